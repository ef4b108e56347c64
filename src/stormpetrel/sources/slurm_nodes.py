"""The state of each node, as Slurm sees it now: who is down or drained, since when, and why.

scontrol show node, or slurmrestd -> read_node_states -> NodeState, in the order of the names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from stormpetrel.records.nodes import NodeState
from stormpetrel.sources.slurm_cluster import ask_scontrol, states_in
from stormpetrel.sources.slurm_cluster_rest import Record, moment_in, read_rest_records, words_in

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
    text = ask_scontrol(slurm, ["--all", "--oneliner", "show", "node"], patience_s)
    return None if text is None else sorted(node_states_in(text), key=lambda node: node.name)


def node_states_in(text: str) -> Iterator[NodeState]:
    """The nodes in the text of `scontrol -o show node`."""
    for line in text.splitlines():
        name, state = _NAME.search(line), _STATE.search(line)
        if name is None or state is None:
            continue
        words = states_in(state[1])
        if "FUTURE" in words:
            continue
        reason = _REASON.search(line)
        since = _moment(reason[2]) if reason and reason[2] else None
        yield NodeState(name[1], frozenset(words), reason[1][:_LONGEST_REASON].strip() if reason else "", since)


def node_states_of(records: Iterable[Record]) -> Iterator[NodeState]:
    """The nodes in slurmrestd's records."""
    for record in records:
        name, states = record.get("name"), words_in(record, "state", "state_flags")
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
