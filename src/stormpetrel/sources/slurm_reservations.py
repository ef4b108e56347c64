"""Maintenance that is reserved in Slurm: which nodes, from when to when.

scontrol show reservation, or slurmrestd -> read_maintenance -> MaintenanceWindow, of the reservations with the flag MAINT.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from stormpetrel.records.nodes import expand_nodes
from stormpetrel.records.outages import MaintenanceWindow
from stormpetrel.sources.slurm_cluster import ask_scontrol
from stormpetrel.sources.slurm_cluster_rest import Record, moment_in, read_rest_records, words_in

if TYPE_CHECKING:
    from stormpetrel.config import SlurmSection

_FIELD: Final = re.compile(r"(?:^|\s)([A-Za-z]\w*)=(\S*)")


def read_maintenance(slurm: SlurmSection, *, cluster: str, patience_s: float) -> tuple[MaintenanceWindow, ...] | None:
    """Return the maintenance that Slurm has reserved for now and later; None where there is neither scontrol nor slurmrestd."""
    if slurm.rest_url:
        return tuple(maintenance_of(read_rest_records(slurm, "reservations", patience_s=patience_s), cluster=cluster))
    text = ask_scontrol(slurm, ["--all", "--oneliner", "show", "reservation"], patience_s)
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
        flags, listed = words_in(record, "flags"), record.get("node_list")
        nodes = frozenset(expand_nodes(listed if isinstance(listed, str) else None))
        start, end = moment_in(record, "start_time"), moment_in(record, "end_time")
        if "MAINT" in flags and nodes and start and end and start < end:
            yield MaintenanceWindow(start, end, frozenset() if "ALL_NODES" in flags else nodes, cluster)


def _moment(text: str) -> datetime | None:
    """A time as scontrol writes it for us: seconds since 1970, or a date in UTC."""
    try:
        return datetime.fromtimestamp(int(text), UTC) if text.isdecimal() else datetime.fromisoformat(text).replace(tzinfo=UTC)
    except (ValueError, OverflowError, OSError):
        return None
