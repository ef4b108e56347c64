"""Whether a cluster can run a job at all: what is requested against what partitions, nodes, QOS and associations allow.

ResourceRequest + Cluster -> misfits -> what does not fit, with the smallest change that does.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from stormpetrel.jobs.advice.text import format_duration
from stormpetrel.records.cluster import UP, Association, Cluster, Counts, NodeKind, Partition, Qos, ResourceRequest
from stormpetrel.records.units import format_memory

_DAY_S: Final = 86400
_MIB: Final = 1024**2
_SHOWN_NAMES: Final = 8
_LIMITED: Final = {  # Slurm's name -> (in words, column, option)
    "cpu": ("CPUs", "req_cpus", "--ntasks or --cpus-per-task"),
    "mem": ("memory", "req_mem_bytes", "--mem"),
    "node": ("nodes", "req_nodes", "--nodes"),
    "gres/gpu": ("GPUs", "req_gpus", "--gres or --gpus"),
}


@dataclass(frozen=True, slots=True)
class Misfit:
    """One thing that does not fit: what it is, and the smallest change that fits.

    `never`: the job cannot run as it stands; otherwise it has to wait for somebody. `proposed` is the value of `column` that
    would fit, of the whole job; None where no single value does.
    """

    rule: str
    words: str
    change: str
    column: str | None = None
    proposed: int | float | str | None = None
    never: bool = True


def misfits(request: ResourceRequest, cluster: Cluster, associations: Sequence[Association] = ()) -> tuple[Misfit, ...]:
    """Everything that does not fit, what can never run first; of several partitions the one that fits best is examined."""
    named = list(_unknown_partitions(request, cluster))
    candidates = [partition for name in request.partitions if (partition := cluster.partition(name))]
    if not request.partitions and (default := cluster.default_partition()):
        candidates = [default]
    if not candidates:
        nowhere = _no_partition(cluster) if not request.partitions and cluster.names_default else ()
        return (*named, *nowhere, *_misfits_of_account(request, cluster, associations))
    problems = min((_in_partition(request, cluster, partition, associations) for partition in candidates), key=_how_bad)
    if any(partition.never for partition in problems):
        problems = tuple(_or_elsewhere(problems, request, cluster, candidates, associations))
    return tuple(sorted((*named, *problems), key=lambda partition: not partition.never))


def time_and_days(seconds: float) -> str:
    """A limit as people say it: `1 day`, `3 days`, `36 h`, `1 h 30 min`."""
    days, rest = divmod(round(seconds), _DAY_S)
    return f"{days} day{'s' if days > 1 else ''}" if days and not rest else format_duration(seconds)


def clock(seconds: float) -> str:
    """A limit as Slurm writes it: `1-00:00:00`."""
    days, rest = divmod(int(seconds), _DAY_S)
    text = f"{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days}-{text}" if days else text


def _how_bad(problems: Sequence[Misfit]) -> tuple[int, int]:
    return sum(problem.never for problem in problems), len(problems)


def _unknown_partitions(request: ResourceRequest, cluster: Cluster) -> Iterator[Misfit]:
    names = [partition.name for partition in cluster.partitions]
    for name in request.partitions:
        if name not in names:
            near = _nearest(name, names)
            meant = f"Write --partition={near}." if near else f"There are: {_listed(names)}."
            yield Misfit("unknown_partition", f"There is no partition {name}.", meant, "partition", near)


def _no_partition(cluster: Cluster) -> Iterator[Misfit]:
    names = _listed(partition.name for partition in cluster.partitions)
    yield Misfit(
        "no_partition", "It names no partition, and the cluster has no default one.", f"Name one of {names}.", "partition"
    )


def _in_partition(
    request: ResourceRequest, cluster: Cluster, partition: Partition, associations: Sequence[Association]
) -> tuple[Misfit, ...]:
    account, qos = _account_and_qos(request, partition, associations)
    job_qos = cluster.find_qos(qos) if cluster.enforces("limits") else None
    return (
        *_state(partition),
        *_time(request, partition, job_qos),
        *_node_count(request, cluster, partition, job_qos),
        *_allowed("account", account, partition.allow_accounts, partition.deny_accounts, partition.name),
        *_allowed("qos", qos, partition.allow_qos, partition.deny_qos, partition.name),
        *_on_nodes(request, cluster, partition),
        *_in_all(request, cluster, partition),
        *_misfits_of_account(request, cluster, associations),
        *_limits(request, cluster, partition, job_qos, _association(account, partition, associations)),
    )


def _or_elsewhere(
    problems: Sequence[Misfit],
    request: ResourceRequest,
    cluster: Cluster,
    tried: Sequence[Partition],
    associations: Sequence[Association],
) -> Iterator[Misfit]:
    """The same misfits, the first with the name of a partition that could run the job as it is."""
    fits = (
        item.name
        for item in cluster.partitions
        if item not in tried and item.state == UP and not _in_partition(request, cluster, item, associations)
    )
    other = next(fits, None)
    for place, item in enumerate(problems):
        yield replace(item, change=f"{item.change} Or take --partition={other}: it fits there.") if other and not place else item


# The partition.


def _state(partition: Partition) -> Iterator[Misfit]:
    if partition.state == UP:
        return
    starts = "it takes jobs, but starts none" if partition.state == "DOWN" else "it takes no new jobs"
    text = f"Partition {partition.name} is {partition.state.lower()}: {starts}."
    yield Misfit("partition_not_up", text, "Name another partition, or wait.", "partition", never=partition.state != "DOWN")


def _time(request: ResourceRequest, partition: Partition, qos: Qos | None) -> Iterator[Misfit]:
    limit = partition.max_time_s
    if limit is None or (qos is not None and "PartitionTimeLimit" in qos.flags):
        return
    if request.no_time_limit or (request.time_limit_s or 0.0) > limit:
        requested = "no time limit" if request.time_limit_s is None else time_and_days(request.time_limit_s)
        text = f"It asks for {requested}; the limit of partition {partition.name} is {time_and_days(limit)}."
        yield Misfit("time_above_partition", text, f"Ask for --time={clock(limit)}.", "time_limit_s", limit)


def _node_count(request: ResourceRequest, cluster: Cluster, partition: Partition, qos: Qos | None) -> Iterator[Misfit]:
    requested, flags = request.min_nodes or 1, qos.flags if qos else ()
    limit = None if "PartitionMaxNodes" in flags else partition.max_nodes
    there = sum(kind.count for kind in cluster.nodes_of(partition.name))
    if limit is not None and requested > limit:
        text = f"It asks for {_nodes(requested)}; partition {partition.name} allows a job {_nodes(limit)}."
        yield Misfit("nodes_above_partition", text, f"Ask for --nodes={limit}.", "req_nodes", limit)
    elif there and requested > there:
        text = f"It asks for {_nodes(requested)}; partition {partition.name} has {_nodes(there)}."
        yield Misfit("nodes_above_partition", text, f"Ask for --nodes={there}.", "req_nodes", there)
    most, least = request.max_nodes or requested, partition.min_nodes
    if least > most and "PartitionMinNodes" not in flags:
        text = f"It asks for {_nodes(most)}; partition {partition.name} wants {_nodes(least)} or more."
        yield Misfit("nodes_below_partition", text, f"Ask for --nodes={least}.", "req_nodes", least)


def _allowed(
    column: str, name: str | None, allow: tuple[str, ...] | None, deny: tuple[str, ...], partition: str
) -> Iterator[Misfit]:
    what = {"account": "Account", "qos": "QOS"}[column]
    if name is None:
        return
    if allow is not None and name.lower() not in {entry.lower() for entry in allow}:
        only = allow[0] if len(allow) == 1 else None
        change = f"Name one that may: {_listed(allow)} (--{column})."
        yield Misfit(f"{column}_not_allowed", f"{what} {name} may not use partition {partition}.", change, column, only)
    elif allow is None and name.lower() in {entry.lower() for entry in deny}:
        change = f"Name another (--{column})."
        yield Misfit(f"{column}_not_allowed", f"{what} {name} may not use partition {partition}.", change, column)


# Its nodes.


def _on_nodes(request: ResourceRequest, cluster: Cluster, partition: Partition) -> tuple[Misfit, ...]:
    kinds = [_capped(kind, partition) for kind in cluster.nodes_of(partition.name)]
    if not kinds:
        return ()
    single = (*_cpus(request, kinds, partition), *_memory(request, kinds, partition), *_gpus(request, kinds, partition))
    single = (*single, *_features(request, kinds, partition))
    return single or tuple(_together(request, kinds, partition))


def _capped(kind: NodeKind, partition: Partition) -> NodeKind:
    """A node as a job in this partition can use it."""
    cpus = min(kind.cpus, partition.max_cpus_per_node or kind.cpus)
    return replace(kind, cpus=cpus, memory_bytes=min(kind.memory_bytes, partition.max_mem_per_node_bytes or kind.memory_bytes))


def _cpus(request: ResourceRequest, kinds: Sequence[NodeKind], partition: Partition) -> Iterator[Misfit]:
    most, requested = max(kind.cpus for kind in kinds), request.cpus_on_one_node
    if requested <= most:
        return
    text = f"It asks for {requested} CPUs on one node; the largest node of partition {partition.name} has {most}."
    per_task = most // (request.tasks_per_node or 1)
    if (request.cpus_per_task or 1) > 1 and per_task:
        tasks = max(1, (request.cpus or requested) // (request.cpus_per_task or 1))
        yield Misfit("cpus_above_node", text, f"Ask for --cpus-per-task={per_task}.", "req_cpus", tasks * per_task)
    elif (request.cpus_per_task or 1) == 1:
        proposed = most * (request.min_nodes or 1)
        yield Misfit("cpus_above_node", text, f"Ask for --ntasks-per-node={most}.", "req_cpus", proposed)
    else:
        yield Misfit("cpus_above_node", text, "Ask for fewer tasks on a node (--ntasks-per-node).", "req_cpus")


def _memory(request: ResourceRequest, kinds: Sequence[NodeKind], partition: Partition) -> Iterator[Misfit]:
    most, requested = max(kind.memory_bytes for kind in kinds), request.memory_on_one_node
    if requested <= most:
        return
    has = f"the largest node of partition {partition.name} has {format_memory(most)}"
    text = f"It asks for {format_memory(requested)} of memory on one node; {has}."
    if request.mem_per_node_bytes is not None:
        change, proposed = f"Ask for --mem={most // _MIB}M.", most * (request.min_nodes or 1)
    else:
        per_cpu = most // request.cpus_on_one_node // _MIB
        change, proposed = f"Ask for --mem-per-cpu={per_cpu}M.", per_cpu * _MIB * (request.cpus or 1)
    yield Misfit("memory_above_node", text, change, "req_mem_bytes", proposed)


def _gpus(request: ResourceRequest, kinds: Sequence[NodeKind], partition: Partition) -> Iterator[Misfit]:
    types = sorted({name for kind in kinds for name in kind.gpus if name})
    for name, requested in request.gpus_per_node.items():
        most = max((kind.gpus.get(name, 0) if name else kind.all_gpus) for kind in kinds)
        if requested <= most:
            continue
        what = f"GPUs of type {name}" if name else "GPUs"
        if most:
            text = f"It asks for {requested} {what} on one node; no node of partition {partition.name} has more than {most}."
            proposed = most * (request.min_nodes or 1)
            yield Misfit("gpus_above_node", text, f"Ask for {most} on a node.", "req_gpus", proposed)
        else:
            there = f"There are: {_listed(types)}." if types else "Name another partition (--partition)."
            yield Misfit("gpus_above_node", f"No node of partition {partition.name} has {what}.", there, "req_gpus")


def _features(request: ResourceRequest, kinds: Sequence[NodeKind], partition: Partition) -> Iterator[Misfit]:
    known = sorted({name for kind in kinds for name in kind.features})
    for name in request.features:
        if name not in known:
            near = _nearest(name, known)
            change = f"Write --constraint={near}." if near else f"There are: {_listed(known)}."
            yield Misfit("unknown_feature", f"No node of partition {partition.name} has the feature {name}.", change)


def _together(request: ResourceRequest, kinds: Sequence[NodeKind], partition: Partition) -> Iterator[Misfit]:
    """What one node must have at the same time, and how many such nodes there are."""
    fitting = [kind for kind in kinds if _holds(kind, request)]
    there, in_service = (sum(getattr(kind, name) for kind in fitting) for name in ("count", "in_service"))
    requested = request.min_nodes or 1
    on_one = ", ".join(f"{_amount(name, count)}" for name, count in request.on_each_node().items())
    if not there:
        text = f"No node of partition {partition.name} has all of it at once: {on_one}{_with_features(request)}."
        yield Misfit("no_such_node", text, "Ask for less on one node, or for another partition (--partition).")
    elif sum(kind.count for kind in kinds) >= requested > there:
        text = f"It asks for {_nodes(requested)} with {on_one}{_with_features(request)}; partition {partition.name} has {there}."
        yield Misfit("nodes_above_partition", text, f"Ask for --nodes={there}.", "req_nodes", there)
    elif there >= requested > in_service:
        text = f"{there - in_service} of the {there} nodes of partition {partition.name} that could run it are out of service."
        yield Misfit("nodes_out_of_service", text, "Wait until they are back: sinfo -R tells why they are away.", never=False)


def _holds(kind: NodeKind, request: ResourceRequest) -> bool:
    gpus = all((kind.gpus.get(name, 0) if name else kind.all_gpus) >= count for name, count in request.gpus_per_node.items())
    fits = kind.cpus >= request.cpus_on_one_node and kind.memory_bytes >= request.memory_on_one_node
    return fits and gpus and set(request.features) <= set(kind.features)


def _in_all(request: ResourceRequest, cluster: Cluster, partition: Partition) -> Iterator[Misfit]:
    """What is requested in all against what as many nodes as a job may take have in all."""
    kinds = [_capped(kind, partition) for kind in cluster.nodes_of(partition.name)]
    bounds = [bound for bound in (partition.max_nodes, request.max_nodes) if bound]
    for name, requested in (("cpu", request.cpus), ("gres/gpu", request.gpus)):
        each = sorted(((kind.cpus if name == "cpu" else kind.all_gpus, kind.count) for kind in kinds), reverse=True)
        most = _largest(each, min(bounds, default=None))
        per_node = request.cpus_on_one_node if name == "cpu" else request.gpus_on_one_node
        if kinds and requested is not None and requested > most >= per_node * (request.min_nodes or 1):
            what, column, option = _LIMITED[name]
            on = f"the {min(bounds)} nodes that it may have" if bounds else "its nodes in all"
            text = f"It asks for {requested} {what}; of partition {partition.name}, {on} have {most}."
            yield Misfit(f"{what.lower()}_above_partition", text, f"Ask for at most {most} ({option}).", column, most or None)


def _largest(each: Iterable[tuple[int, int]], nodes: int | None) -> int:
    total, left = 0, nodes
    for amount, count in each:
        taken = count if left is None else min(count, left)
        total += amount * taken
        left = None if left is None else left - taken
    return total


# Accounts and QOS.


def _account_and_qos(
    request: ResourceRequest, partition: Partition, associations: Sequence[Association]
) -> tuple[str | None, str | None]:
    """The account and the QOS that the job would have; None where that is not known."""
    default = next((candidate.account for candidate in associations if candidate.is_default), None)
    account = request.account or default
    association = _association(account, partition, associations)
    implied = None
    if association is not None:
        implied = association.default_qos or (association.qos[0] if len(association.qos) == 1 else None)
    return account, request.qos or implied


def _association(account: str | None, partition: Partition, associations: Sequence[Association]) -> Association | None:
    """The association of an account; the one for this very partition before the one for all."""
    own = [association for association in associations if account is not None and association.account.lower() == account.lower()]
    named = [association for association in own if association.partition == partition.name]
    return next(iter((*named, *(association for association in own if association.partition is None))), None)


def _misfits_of_account(request: ResourceRequest, cluster: Cluster, associations: Sequence[Association]) -> Iterator[Misfit]:
    accounts = sorted({item.account for item in associations})
    if request.account and accounts and cluster.enforces("associations") and request.account.lower() not in accounts:
        near = _nearest(request.account, accounts) or (accounts[0] if len(accounts) == 1 else None)
        text = f"The user has no account {request.account}."
        yield Misfit("unknown_account", text, f"There are: {_listed(accounts)} (--account).", "account", near)
    if request.qos is None or cluster.qos is None or not cluster.enforces("qos"):
        return
    known = [item.name for item in cluster.qos]
    own = sorted({name for item in associations for name in item.qos})
    if request.qos not in known:
        near = _nearest(request.qos, own or known)
        change = f"Write --qos={near}." if near else f"There are: {_listed(own or known)}."
        yield Misfit("unknown_qos", f"There is no QOS {request.qos}.", change, "qos", near)
    elif associations and request.qos not in own:
        only = own[0] if len(own) == 1 else None
        yield Misfit("qos_not_allowed", f"The user may not use QOS {request.qos}.", f"There are: {_listed(own)}.", "qos", only)


def _limits(
    request: ResourceRequest, cluster: Cluster, partition: Partition, qos: Qos | None, association: Association | None
) -> Iterator[Misfit]:
    """The limits of QOS and association. The first that is set counts: of the partition's QOS, the job's, the association."""
    if not cluster.enforces("limits"):
        return
    own = cluster.find_qos(partition.qos)
    ordered = [qos, own] if qos is not None and "OverPartQOS" in qos.flags else [own, qos]
    holders = [(f"QOS {holder.name}", holder) for holder in ordered if holder is not None]
    yield from _wall(request, holders, association)
    per_job: list[tuple[str, Counts]] = [(name, holder.max_per_job) for name, holder in holders]
    per_node: list[tuple[str, Counts]] = [(name, holder.max_per_node) for name, holder in holders]
    in_all: list[tuple[str, Counts]] = [(name, holder.max_in_all) for name, holder in holders]
    if association is not None:
        text = f"account {association.account}"
        per_job.append((text, association.max_per_job))
        per_node.append((text, association.max_per_node))
        in_all.append((text, association.max_in_all))
    yield from _above(request.totals(), per_job, "in one job")
    yield from _above(request.on_each_node(), per_node, "on one node")
    yield from _above(request.totals(), in_all, "in all its jobs together")
    yield from _above(request.totals(), [(name, holder.max_per_user) for name, holder in holders], "one user")
    yield from _above(request.totals(), [(name, holder.max_per_account) for name, holder in holders], "one account")
    yield from _below(request.totals(), [(name, holder.min_per_job) for name, holder in holders])


def _wall(request: ResourceRequest, holders: Sequence[tuple[str, Qos]], association: Association | None) -> Iterator[Misfit]:
    limits = [(name, holder.max_wall_s) for name, holder in holders]
    if association is not None:
        limits.append((f"account {association.account}", association.max_wall_s))
    for name, limit in limits:
        if limit is not None:
            if (request.time_limit_s or 0.0) > limit:
                requested = time_and_days(request.time_limit_s or 0.0)
                text = f"It asks for {requested}; the limit of {name} is {time_and_days(limit)}."
                yield Misfit("time_above_qos", text, f"Ask for --time={clock(limit)}.", "time_limit_s", limit)
            return


def _above(requested: Counts, limits: Sequence[tuple[str, Counts]], where: str) -> Iterator[Misfit]:
    for name in requested:
        holder, limit = next(((holder, counts[name]) for holder, counts in limits if name in counts), ("", None))
        if limit is not None and requested[name] > limit:
            text = f"It asks for {_amount(name, requested[name])}; {holder} allows {_amount(name, limit)} {where}."
            _, column, option = _LIMITED.get(name, ("", None, name))
            change = f"Ask for at most {_amount(name, limit)} ({option}), or name another QOS (--qos)."
            yield Misfit("above_limit", text, change, column, limit if column and where != "on one node" and limit else None)


def _below(requested: Counts, limits: Sequence[tuple[str, Counts]]) -> Iterator[Misfit]:
    for name in ("cpu", "node", "mem", "gres/gpu"):
        holder, limit = next(((holder, counts[name]) for holder, counts in limits if name in counts), ("", None))
        known = name in requested or name == "gres/gpu"  # GPUs that are not requested are none
        if limit is not None and known and requested.get(name, 0) < limit:
            text = f"It asks for {_amount(name, requested.get(name, 0))}; {holder} demands {_amount(name, limit)}."
            _, column, option = _LIMITED[name]
            yield Misfit("below_limit", text, f"Ask for {_amount(name, limit)} ({option}).", column, limit)


# Words.


def _amount(name: str, count: int) -> str:
    if name == "mem":
        return f"{format_memory(count)} of memory" if count else "no memory"
    if name == "node":
        return _nodes(count)
    what = _LIMITED.get(name, (name.removeprefix("gres/gpu:") + " GPUs" if name.startswith("gres/gpu:") else name, "", ""))[0]
    return f"{count} {what.removesuffix('s') if count == 1 else what}"


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


def _with_features(request: ResourceRequest) -> str:
    return f" and the feature{'s' if len(request.features) > 1 else ''} {_listed(request.features)}" if request.features else ""


def _nearest(name: str, names: Iterable[str]) -> str | None:
    known = list(names)
    same = next((candidate for candidate in known if candidate.lower() == name.lower()), None)
    return same or next(iter(difflib.get_close_matches(name[:100], known, n=1)), None)


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - _SHOWN_NAMES} more" if len(every) > _SHOWN_NAMES else ""
    return (", ".join(every[:_SHOWN_NAMES]) + more) or "none"
