"""A running Slurm -> what it has and allows: partitions, nodes, QOS, and what one user may do.

scontrol and sacctmgr -> read_cluster -> Cluster; through slurmrestd where that is set (`slurm_cluster_rest`). The text of
`scontrol -o` is read rather than its JSON: it is the same from 22.05 to 26.05, and says which partition is the default one.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

import polars as pl

from stormpetrel.config import SlurmSection
from stormpetrel.errors import SourceError, SourceFormatError
from stormpetrel.records import units
from stormpetrel.records.cluster import Association, Cluster, NodeKind, Partition, Qos
from stormpetrel.sources.slurm.live import run_sacct

MOST_BYTES: Final = 64 * 1024**2  # of one answer
_MIB: Final = 1024**2
_FIELD: Final = re.compile(r"(?:^|\s)([A-Za-z]\w*)=(\S*)")
_FREE_TEXT: Final = ("Reason", "Comment", "Extra")  # whatever stands behind them was written by a person
_NAME: Final = re.compile(r"[\w.@+:/-]{1,128}", re.ASCII)
_USER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}\$?")
_NO_LIMIT: Final = ("UNLIMITED", "INFINITE", "NONE", "N/A", "(null)", "NO_VAL", "")
_OUT_OF_SERVICE: Final = frozenset(
    "DOWN DRAIN DRAINED DRAINING ERROR FAIL FAILING INVAL INVALID_REG MAINT NOT_RESPONDING UNKNOWN".split()
)
_GRES: Final = re.compile(r"gpu(?::([A-Za-z][\w.-]{0,63}))?:(\d{1,6})", re.ASCII)
_QOS_FORMAT: Final = "Name,MaxWall,MaxTRES,MaxTRESPerNode,MinTRES,MaxTRESPerUser,MaxTRESPerAccount,GrpTRES,Flags"
_MEMORY_UPDATES_SINCE: Final = (26, 5)
_USER_FORMAT: Final = "Cluster,DefaultAccount,Account,Partition,QOS,DefaultQOS,MaxWall,MaxTRES,MaxTRESPerNode,GrpTRES"


def read_cluster(slurm: SlurmSection, *, patience_s: float) -> Cluster | None:
    """Partitions, nodes and QOS, in `patience_s` at most; None where there is no Slurm to be asked.

    SourceError where it does not answer. A database that does not answer leaves the QOS unknown, and nothing else.
    """
    if slurm.rest_url:
        from stormpetrel.sources.slurm.cluster_rest import read_rest_cluster

        return read_rest_cluster(slurm, patience_s=patience_s)
    scontrol = find_scontrol(slurm)
    if scontrol is None:
        return None
    where = _where(slurm)
    sacctmgr = shutil.which("sacctmgr", path=str(Path(scontrol).parent))
    commands = {
        "partitions": [scontrol, *where, "--all", "--oneliner", "show", "partition"],
        "nodes": [scontrol, *where, "--all", "--oneliner", "show", "node"],
        "config": [scontrol, *where, "show", "config"],
    }
    if sacctmgr:
        commands["qos"] = [sacctmgr, "--noheader", "--parsable2", "show", "qos", f"format={_QOS_FORMAT}"]
    with ThreadPoolExecutor(len(commands)) as pool:
        answers = {name: pool.submit(_answer, command, patience_s) for name, command in commands.items()}
    config = _config(_or_empty(answers["config"]))
    qos = tuple(qos_in(_or_empty(answers["qos"]))) if "qos" in answers else ()
    partitions = tuple(partitions_in(answers["partitions"].result()))
    if not partitions:
        raise SourceFormatError(f"{scontrol} shows no partitions.", hint="Set slurm.scontrol to the real one.")
    return Cluster(
        partitions,
        alike(nodes_in(answers["nodes"].result())),
        qos or None,
        enforced=_enforced(config),
        name=name if _NAME.fullmatch(name := config.get("ClusterName", "")) else None,
        updates_memory=updates_memory(config),
    )


def read_associations(slurm: SlurmSection, user: str, *, cluster: str | None, patience_s: float) -> tuple[Association, ...]:
    """What a user may do; nothing where that cannot be asked. It is asked for each time: no list of users is kept."""
    scontrol = None if slurm.rest_url else find_scontrol(slurm)
    sacctmgr = shutil.which("sacctmgr", path=str(Path(scontrol).parent)) if scontrol else None
    if sacctmgr is None or not _USER.fullmatch(user):
        return ()
    command = [sacctmgr, "--noheader", "--parsable2", "show", "user", f"name={user}", "withassoc", f"format={_USER_FORMAT}"]
    try:
        return tuple(associations_in(_answer(command, patience_s), cluster=cluster))
    except SourceError:
        return ()


def query_scontrol(slurm: SlurmSection, arguments: Sequence[str], patience_s: float) -> str | None:
    """What scontrol says; None where there is none, or where slurmrestd is read in its place."""
    scontrol = None if slurm.rest_url else find_scontrol(slurm)
    return None if scontrol is None else _answer([scontrol, *_where(slurm), *arguments], patience_s)


def find_scontrol(slurm: SlurmSection) -> str | None:
    """The scontrol in the settings, or the one that lies next to sacct."""
    if slurm.scontrol:
        return shutil.which(slurm.scontrol)
    sacct = shutil.which(slurm.sacct)
    return shutil.which("scontrol", path=str(Path(sacct).parent)) if sacct else None


def _where(slurm: SlurmSection) -> list[str]:
    return [f"--clusters={slurm.clusters[0]}"] if len(slurm.clusters) == 1 else []


def _answer(command: list[str], patience_s: float) -> str:
    with tempfile.TemporaryFile() as out:
        run_sacct(command, out.fileno(), patience_s)
        if out.seek(0, 2) > MOST_BYTES:
            raise SourceFormatError(f"{command[0]} said more than {MOST_BYTES // _MIB} MiB.", hint="Try the same by hand.")
        out.seek(0)
        return out.read().decode("utf-8", "replace")


def _or_empty(answer: Future[str]) -> str:
    try:
        return answer.result()
    except SourceError:
        return ""


# scontrol


def partitions_in(text: str) -> Iterator[Partition]:
    """The partitions in the text of `scontrol -o show partition`."""
    for line in text.splitlines():
        fields = _fields(line)
        name = fields.get("PartitionName", "")
        if not _NAME.fullmatch(name):
            continue
        yield Partition(
            name,
            is_default=fields.get("Default") == "YES",
            state=fields.get("State", "UP").upper()[:20],
            max_time_s=seconds_of(fields.get("MaxTime")),
            max_nodes=count_of(fields.get("MaxNodes")),
            min_nodes=count_of(fields.get("MinNodes")) or 0,
            max_cpus_per_node=count_of(fields.get("MaxCPUsPerNode")),
            max_mem_per_node_bytes=_mib(fields.get("MaxMemPerNode")),
            allow_accounts=allowed(fields.get("AllowAccounts")),
            deny_accounts=names_in(fields.get("DenyAccounts")),
            allow_qos=allowed(fields.get("AllowQos")),
            deny_qos=names_in(fields.get("DenyQos")),
            qos=next(iter(names_in(fields.get("QoS"))), None),
        )


def nodes_in(text: str) -> Iterator[NodeKind]:
    """The nodes in the text of `scontrol -o show node`, each as a kind of its own; those that are yet to come are left out."""
    for line in text.splitlines():
        fields = _fields(line)
        cpus = count_of(fields.get("CPUEfctv")) or count_of(fields.get("CPUTot"))
        states = states_in(fields.get("State", ""))
        if not cpus or "FUTURE" in states:
            continue
        memory = max(0, (count_of(fields.get("RealMemory")) or 0) - (count_of(fields.get("MemSpecLimit")) or 0))
        yield NodeKind(
            cpus,
            memory * _MIB,
            gpus_in(fields.get("Gres", "")),
            names_in(fields.get("AvailableFeatures")),
            names_in(fields.get("Partitions")),
            in_service=int(not states & _OUT_OF_SERVICE),
        )


def alike(nodes: Iterable[NodeKind]) -> tuple[NodeKind, ...]:
    """Nodes that are alike as one kind, with how many there are: ten thousand nodes are a handful of kinds."""
    kinds: dict[tuple[object, ...], NodeKind] = {}
    total: Counter[tuple[object, ...]] = Counter()
    usable: Counter[tuple[object, ...]] = Counter()
    for node in nodes:
        key = (node.cpus, node.memory_bytes, tuple(sorted(node.gpus.items())), node.features, node.partitions)
        kinds.setdefault(key, node)
        total[key] += 1
        usable[key] += node.in_service
    return tuple(replace(kind, count=total[key], in_service=usable[key]) for key, kind in kinds.items())


def _config(text: str) -> dict[str, str]:
    """The settings in the text of `scontrol show config`."""
    return {key.strip(): value.strip() for key, equals, value in (line.partition("=") for line in text.splitlines()) if equals}


def _enforced(config: Mapping[str, str]) -> tuple[str, ...] | None:
    """What accounting insists on; None where nobody says."""
    enforced = config.get("AccountingStorageEnforce")
    return None if enforced is None else tuple(word for word in enforced.lower().split(",") if word.isalpha())


def updates_memory(config: Mapping[str, str]) -> bool:
    """Whether `sbatch --mem-update` works: from 26.05 on, with the step manager and accounting by cgroups (its manual)."""
    version = re.match(r"(\d{2})\.(\d{2})(?!\d)", config.get("SLURM_VERSION", ""), re.ASCII)
    new_enough = version is not None and (int(version[1]), int(version[2])) >= _MEMORY_UPDATES_SINCE
    parameters = config.get("SlurmctldParameters", "").lower().split(",")
    return new_enough and "enable_stepmgr" in parameters and config.get("JobAcctGatherType") == "jobacct_gather/cgroup"


def _fields(line: str) -> dict[str, str]:
    """`Key=value` of a line, the first of each; nothing of what stands behind free text."""
    fields: dict[str, str] = {}
    for match in _FIELD.finditer(line):
        if match[1] in _FREE_TEXT:
            break
        fields.setdefault(match[1], match[2])
    return fields


# sacctmgr


def qos_in(text: str) -> Iterator[Qos]:
    """The QOS in what sacctmgr prints."""
    for name, wall, job, node, least, user, account, group, flags in _rows(text, 9):
        if _NAME.fullmatch(name):
            yield Qos(
                name, seconds_of(wall), tres_in(job), tres_in(node), tres_in(least), tres_in(user), tres_in(account),
                tres_in(group), names_in(flags),
            )  # fmt: skip


def associations_in(text: str, *, cluster: str | None) -> Iterator[Association]:
    """The associations of one user in what sacctmgr prints; those of another cluster are left out."""
    for where, default, account, partition, qos, default_qos, wall, job, node, group in _rows(text, 10):
        if _NAME.fullmatch(account) and (cluster is None or where == cluster):
            yield Association(
                account,
                is_default=account == default,
                partition=partition if _NAME.fullmatch(partition) else None,
                qos=names_in(qos),
                default_qos=default_qos if _NAME.fullmatch(default_qos) else None,
                max_wall_s=seconds_of(wall),
                max_per_job=tres_in(job),
                max_per_node=tres_in(node),
                max_in_all=tres_in(group),
            )


def _rows(text: str, width: int) -> Iterator[list[str]]:
    rows = (line.split("|") for line in text.splitlines())
    return (row for row in rows if len(row) == width)


# Values.


def names_in(text: str | None) -> tuple[str, ...]:
    """The names in `a,b`; whatever is no name is dropped."""
    return tuple(name for name in (text or "").split(",") if name not in _NO_LIMIT and _NAME.fullmatch(name))


def allowed(text: str | None) -> tuple[str, ...] | None:
    """Who is allowed; None for everybody."""
    return None if text in (None, "", "ALL", "(null)") else names_in(text)


def seconds_of(text: str | None) -> float | None:
    """A time limit in seconds; None for no limit. A bare number is minutes."""
    if text is None or text.upper() in _NO_LIMIT:
        return None
    if text.isascii() and text.isdigit():
        return float(text[:9]) * 60.0
    seconds = units.duration_s(pl.Series([text[:40]], dtype=pl.String))[0]
    return None if seconds is None else float(seconds)


def count_of(text: str | None) -> int | None:
    """A count; None for no limit, and for whatever is none."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= 12 else None


def _mib(text: str | None) -> int | None:
    count = count_of(text)
    return None if not count else count * _MIB


def states_in(text: str) -> set[str]:
    """The words of a node's state: `IDLE+DRAIN`, `DOWN*`; the star means that it does not respond."""
    states = {re.sub(r"[^A-Z_]", "", word) for word in text.upper().split("+")}
    return states | {"NOT_RESPONDING"} if "*" in text else states


def gpus_in(gres: str) -> Mapping[str, int]:
    """GPUs by type in `gpu:a100:4(S:0-1),nvme:1`; "" for those without a type."""
    counts: Counter[str] = Counter()
    for entry in re.sub(r"\([^()]*\)", "", gres).split(","):
        match = _GRES.fullmatch(entry)
        if match:
            counts[match[1] or ""] += int(match[2])
    return dict(counts)


def tres_in(text: str) -> Mapping[str, int]:
    """Limits by resource in `cpu=2,mem=200M,gres/gpu=1`, memory in bytes."""
    gpus: dict[str, int] = {}
    for entry in text.split(","):
        name, _, value = entry.partition("=")
        if not _NAME.fullmatch(name):
            continue
        count = count_of(value)
        if name == "mem":
            size = units.size_bytes(pl.Series([value[:20]], dtype=pl.String), default_unit="M")[0]
            count = None if size is None else int(size)
        if count is not None:
            gpus[name] = count
    return gpus
