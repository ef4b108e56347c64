"""The state of each node, as Slurm sees it now (down or drained, since when, and why), and reservations for maintenance.

scontrol show node, or slurmrestd -> read_node_states -> NodeState, in the order of the names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from stormpetrel.records.nodes import NodeState, expand_nodes
from stormpetrel.records.outages import MaintenanceWindow
from stormpetrel.sources.slurm.cluster import query_scontrol, states_in
from stormpetrel.sources.slurm.cluster_rest import Record, flags_in, moment_in, read_rest_records

if TYPE_CHECKING:
    from stormpetrel.config import SlurmSection

_NAME: Final = re.compile(r"NodeName=(\S+)")
_STATE: Final = re.compile(r"\sState=(\S+)")
_REASON: Final = re.compile(r"\sReason=(.*?)(?: \[[^\]@]*@([0-9T:-]+)\])?\s*$")
_LONGEST_REASON: Final = 200


def read_node_states(slurm: SlurmSection, *, patience_s: float) -> list[NodeState] | None:
    """Return the state of every node; None where there is neither a scontrol nor a slurmrestd."""
    if slurm.rest_url:
        records = read_rest_records(slurm, "nodes", patience_s=patience_s)
        return sorted(node_states_of(records), key=lambda node: node.name)
    text = query_scontrol(slurm, ["--all", "--oneliner", "show", "node"], patience_s)
    return None if text is None else sorted(node_states_in(text), key=lambda node: node.name)


def node_states_in(text: str) -> Iterator[NodeState]:
    """The nodes in the text of `scontrol -o show node`."""
    for line in text.splitlines():
        name, state = _NAME.search(line), _STATE.search(line)
        if name is None or state is None:
            continue
        states = states_in(state[1])
        if "FUTURE" in states:
            continue
        reason = _REASON.search(line)
        since = _moment(reason[2]) if reason and reason[2] else None
        yield NodeState(name[1], frozenset(states), reason[1][:_LONGEST_REASON].strip() if reason else "", since)


def node_states_of(records: Iterable[Record]) -> Iterator[NodeState]:
    """The nodes in slurmrestd's records."""
    for record in records:
        name, states = record.get("name"), flags_in(record, "state", "state_flags")
        if not isinstance(name, str) or not name or not states or "FUTURE" in states:
            continue
        reason = " ".join(str(record.get("reason") or "").split())[:_LONGEST_REASON]
        yield NodeState(name, states, reason, moment_in(record, "reason_changed_at", "reason_set_at") if reason else None)


def _moment(text: str) -> datetime | None:
    """A time as scontrol writes it for us: seconds since 1970, or a date in UTC."""
    try:
        return datetime.fromtimestamp(int(text), UTC) if text.isdecimal() else datetime.fromisoformat(text).replace(tzinfo=UTC)
    except (ValueError, OverflowError, OSError):
        return None


_FIELD: Final = re.compile(r"(?:^|\s)([A-Za-z]\w*)=(\S*)")


def read_maintenance(slurm: SlurmSection, *, cluster: str, patience_s: float) -> tuple[MaintenanceWindow, ...] | None:
    """Return the maintenance that Slurm has reserved for now and later; None where there is neither scontrol nor slurmrestd."""
    if slurm.rest_url:
        return tuple(maintenance_of(read_rest_records(slurm, "reservations", patience_s=patience_s), cluster=cluster))
    text = query_scontrol(slurm, ["--all", "--oneliner", "show", "reservation"], patience_s)
    return None if text is None else tuple(maintenance_in(text, cluster=cluster))


def maintenance_in(text: str, *, cluster: str) -> Iterator[MaintenanceWindow]:
    """The maintenance in the text of `scontrol -o show reservation`; one without nodes, of licences say, is none.

    A reservation of all nodes is one of the whole cluster: its submit hosts and what its users do are excused as well.
    """
    for line in text.splitlines():
        fields: dict[str, str] = {}
        for match in _FIELD.finditer(line.partition(" Comment=")[0]):  # behind it stands what a person wrote
            fields.setdefault(match[1], match[2])
        flags = fields.get("Flags", "").split(",")
        nodes = frozenset(expand_nodes(fields.get("Nodes")))
        start, end = _moment(fields.get("StartTime", "")), _moment(fields.get("EndTime", ""))
        if "MAINT" in flags and nodes and start and end and start < end:
            yield MaintenanceWindow(start, end, frozenset() if "ALL_NODES" in flags else nodes, cluster)


def maintenance_of(records: Iterable[Record], *, cluster: str) -> Iterator[MaintenanceWindow]:
    """The maintenance in slurmrestd's records of reservations."""
    for record in records:
        flags, listed = flags_in(record, "flags"), record.get("node_list")
        nodes = frozenset(expand_nodes(listed if isinstance(listed, str) else None))
        start, end = moment_in(record, "start_time"), moment_in(record, "end_time")
        if "MAINT" in flags and nodes and start and end and start < end:
            yield MaintenanceWindow(start, end, frozenset() if "ALL_NODES" in flags else nodes, cluster)
