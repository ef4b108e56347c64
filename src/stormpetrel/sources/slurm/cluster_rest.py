"""slurmrestd -> what the cluster has and allows: `/slurm/…/partitions`, `/slurm/…/nodes`, `/slurmdb/…/qos`.

The shape changed with each version (v0.0.38 … v0.0.45): each field is read in whatever shape it comes in.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from stormpetrel.config import SlurmSection
from stormpetrel.errors import SourceError, SourceFormatError
from stormpetrel.records.cluster import Cluster, NodeKind, Partition, Qos
from stormpetrel.sources.slurm.cluster import MOST_BYTES, alike, allowed, gpus_in, names_in
from stormpetrel.sources.slurm.rest import SlurmRest

_MIB: Final = 1024**2
_NAME: Final = re.compile(r"[\w.@+:/-]{1,128}", re.ASCII)
_LARGEST: Final = 2**62
_OUT_OF_SERVICE: Final = frozenset(
    "DOWN DRAIN DRAINED DRAINING ERROR FAIL FAILING INVALID_REG MAINT NOT_RESPONDING UNKNOWN".split()
)
_FLAGS: Final = {  # slurmdb's word -> sacctmgr's
    "OVERRIDE_PARTITION_QOS": "OverPartQOS",
    "PARTITION_TIME_LIMIT": "PartitionTimeLimit",
    "PARTITION_MAXIMUM_NODE": "PartitionMaxNodes",
    "PARTITION_MINIMUM_NODE": "PartitionMinNodes",
}

Record = Mapping[str, Any]
_KNOWN_VERSIONS: Final[dict[str, str]] = {}  # of the API, by address


def read_rest_cluster(slurm: SlurmSection, *, patience_s: float) -> Cluster:
    """Partitions, nodes and QOS from slurmrestd, which does not say what is enforced; SourceError where it is not in time."""
    deadline = time.monotonic() + patience_s
    with SlurmRest(slurm, tries=1) as server:  # the caller has the last answer to fall back on
        version = slurm.rest_version or _newest(server, deadline)
        nodes = _records(server, f"/slurm/{version}/nodes", deadline)
        partitions = tuple(partitions_of(_records(server, f"/slurm/{version}/partitions", deadline)))
        try:
            qos = _records(server, f"/slurmdb/{version}/qos", deadline)
        except SourceError:
            qos = []
        if not partitions:
            raise server.failure(SourceFormatError, "shows no partitions", "Check slurm.rest_user and its token.")
    names_default = any(partition.is_default for partition in partitions)
    return Cluster(partitions, alike(nodes_of(nodes)), tuple(qos_of(qos)) or None, names_default=names_default)


def read_rest_records(slurm: SlurmSection, path: str, *, patience_s: float) -> list[Record]:
    """The records of one list of the controller, such as `nodes`, `reservations`; SourceError where it is not there in time.

    The description of the API is half a megabyte and is read once; after an answer that failed it is read again.
    """
    deadline = time.monotonic() + patience_s
    with SlurmRest(slurm, tries=1) as server:
        if not slurm.rest_version and slurm.rest_url not in _KNOWN_VERSIONS:
            _KNOWN_VERSIONS[slurm.rest_url] = _newest(server, deadline)
        version = slurm.rest_version or _KNOWN_VERSIONS[slurm.rest_url]
        try:
            return _records(server, f"/slurm/{version}/{path}", deadline)
        except SourceError:
            _KNOWN_VERSIONS.pop(slurm.rest_url, None)
            raise


def moment_in(record: Record, *names: str) -> datetime | None:
    """The first of some fields that holds a moment, in UTC; None where none does."""
    seconds = next((number for name in names if (number := _number(record.get(name)))), None)
    try:
        return datetime.fromtimestamp(seconds, UTC) if seconds else None
    except (ValueError, OverflowError, OSError):
        return None


def flags_in(record: Record, *names: str) -> frozenset[str]:
    """The words in some fields, each of which is a list, or a text with commas."""
    return frozenset(word.strip().upper() for name in names for word in _comma_text(record.get(name)).split(",") if word.strip())


def _newest(server: SlurmRest, deadline: float) -> str:
    return server.newest_version("slurm", "partitions", plugin="slurmctld", within_s=_left_s(deadline))


def _records(server: SlurmRest, path: str, deadline: float) -> list[Record]:
    """The records of one list, whose name is the last part of its path."""
    document, key = server.get(path, most_bytes=MOST_BYTES, within_s=_left_s(deadline)), path.rpartition("/")[2]
    records = document.get(key, document.get(key.upper()))
    return [record for record in records if isinstance(record, dict)] if isinstance(records, list) else []


def _left_s(deadline: float) -> float:
    return max(0.05, deadline - time.monotonic())


def partitions_of(records: list[Record]) -> Iterator[Partition]:
    """Partitions out of slurmrestd's records."""
    for record in records:
        name = record.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            continue
        minutes = _first(record, ("maximums", "time"), ("max_time_limit",))
        memory = _first(record, ("maximums", "partition_memory_per_node"), ("maximum_memory_per_node",))
        yield Partition(
            name,
            is_default="default" in {str(flag).lower() for flag in _list(record.get("flags"))},
            state=_comma_text(_at(record, "partition", "state") or record.get("state") or "UP").split(",")[0].upper()[:20],
            max_time_s=None if minutes is None else minutes * 60.0,
            max_nodes=_first(record, ("maximums", "nodes"), ("maximum_nodes_per_job",)),
            min_nodes=_first(record, ("minimums", "nodes"), ("min nodes per job",)) or 0,
            max_cpus_per_node=_first(record, ("maximums", "cpus_per_node"), ("maximum_cpus_per_node",)),
            max_mem_per_node_bytes=memory * _MIB if memory else None,
            allow_accounts=allowed(_text(record, ("accounts", "allowed"), ("allowed_accounts",))),
            deny_accounts=names_in(_text(record, ("accounts", "deny"), ("denied_accounts",))),
            allow_qos=allowed(_text(record, ("qos", "allowed"), ("allowed_qos",))),
            deny_qos=names_in(_text(record, ("qos", "deny"), ("denied_qos",))),
            qos=next(iter(names_in(_text(record, ("qos", "assigned"), ("qos",)))), None),
        )


def nodes_of(records: list[Record]) -> Iterator[NodeKind]:
    """Nodes out of slurmrestd's records, each as a kind of its own."""
    for record in records:
        cpus = _number(record.get("effective_cpus")) or _number(record.get("cpus"))
        state = f"{_comma_text(record.get('state'))},{_comma_text(record.get('state_flags'))}"
        states = {word.strip().upper() for word in state.split(",")}
        if not cpus or "FUTURE" in states:
            continue
        memory = max(0, (_number(record.get("real_memory")) or 0) - (_number(record.get("specialized_memory")) or 0))
        features, partitions = (names_in(_comma_text(record.get(name))) for name in ("features", "partitions"))
        gpus = gpus_in(str(record.get("gres") or ""))
        yield NodeKind(cpus, memory * _MIB, gpus, features, partitions, in_service=int(not states & _OUT_OF_SERVICE))


def qos_of(records: list[Record]) -> Iterator[Qos]:
    """QOS out of slurmdb's records."""
    for record in records:
        name, limits = record.get("name"), record.get("limits")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            continue
        minutes = _number(_at(limits, "max", "wall_clock", "per", "job"))
        per = {who: _tres(_at(limits, "max", "tres", "per", who)) for who in ("job", "node", "user", "account")}
        flags = [_FLAGS[str(flag)] for flag in _list(record.get("flags")) if str(flag) in _FLAGS]
        yield Qos(
            name,
            max_wall_s=None if minutes is None else minutes * 60.0,
            max_per_job=per["job"],
            max_per_node=per["node"],
            min_per_job=_tres(_at(limits, "min", "tres", "per", "job")),
            max_per_user=per["user"],
            max_per_account=per["account"],
            max_in_all=_tres(_at(limits, "max", "tres", "total")),
            flags=tuple(flags),
        )


def _tres(entries: Any) -> dict[str, int]:
    gpus: dict[str, int] = {}
    for entry in _list(entries):
        count = _number(entry.get("count")) if isinstance(entry, dict) else None
        if count is None:
            continue
        kind = str(entry.get("type") or "")
        name = f"{kind}/{entry['name']}" if entry.get("name") else kind
        if _NAME.fullmatch(name):
            gpus[name] = count * _MIB if kind == "mem" else count
    return gpus


def _at(record: Any, *path: str) -> Any:
    for name in path:
        record = record.get(name) if isinstance(record, dict) else None
    return record


def _first(record: Record, *paths: tuple[str, ...]) -> int | None:
    """The first of some places that holds a number; None for no limit."""
    return next((number for path in paths if (number := _number(_at(record, *path))) is not None), None)


def _text(record: Record, *paths: tuple[str, ...]) -> str | None:
    return next((value for path in paths if isinstance(value := _at(record, *path), str)), None)


def _number(value: Any) -> int | None:
    """A number, plain or as `{"set", "infinite", "number"}`; None where it is not set, infinite, or a mark for "no value"."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _LARGEST:
        return None
    return None if value in (0xFFFFFFFE, 0xFFFFFFFF, 0xFFFE, 0xFFFF) else value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _comma_text(value: Any) -> str:
    return ",".join(str(word) for word in value) if isinstance(value, list) else str(value or "")
