"""Findings in words for whoever reads them: groups and nodes are named to administrators only.

findings as the store keeps them -> kept_findings -> Finding; finding_words -> sentences.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from stormpetrel.events.finding import Finding, FindingKind, findings_of_json
from stormpetrel.events.why_words import amount_words, shown_name, since_words
from stormpetrel.records.events import PLACES

FOR_ADMINISTRATORS: Final = frozenset({"group", "node"})  # places that say who works on what, and where
EVERYBODYS: Final = tuple(place for place in PLACES if place not in FOR_ADMINISTRATORS)
_BLACK_HOLE: Final = "A node fails the jobs that it starts within seconds"


def places_seen(*, in_full: bool) -> tuple[str, ...]:
    """The sorts of places whose counts a viewer may see."""
    return tuple(PLACES) if in_full else EVERYBODYS


def kept_findings(kept: str) -> list[Finding]:
    """What the store has kept about a bucket; nothing where it cannot be read."""
    try:
        return findings_of_json(kept)
    except (ValueError, TypeError, KeyError):  # written by another version: the figures still tell
        return []


def finding_words(findings: Iterable[Finding], *, now: datetime, zone: str, in_full: bool) -> list[str]:
    """A sentence for each finding, as of a moment by the clock of a zone; two nodes without their names are one sentence."""
    return list(dict.fromkeys(one.words if in_full else _without_names(one, now, zone) for one in findings))


def _without_names(finding: Finding, now: datetime, zone: str) -> str:
    """The same sentence without a group or a node."""
    if finding.place not in FOR_ADMINISTRATORS:
        return finding.words
    since = f" {since_words(finding.since, now, zone)}" if finding.since is not None else ""
    if finding.kind is FindingKind.BLACK_HOLE:
        return f"{_BLACK_HOLE}{since}"
    return f"{shown_name(finding.event_kind)} {amount_words(finding.count, finding.expected)}{since}"
