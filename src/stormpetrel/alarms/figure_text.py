"""Figures and reasons of incidents in words; sentences about a whole incident are made in `titles.py`.

Evidence -> figure_label, figure_text -> "jobs lost", "46"; held back -> held_back_words.
"""

from __future__ import annotations

from typing import Final

from stormpetrel.alarms.silences import LATE, MAINTENANCE, MUTED
from stormpetrel.records.findings import Evidence, Unit

_LABELS: Final = {
    "lost": "jobs lost",
    "tried": "jobs tried",
    "users": "users whose jobs were lost",
    "usual": "usual before",
    "deciding_lost": "failed among the jobs that decided",
    "deciding_tried": "jobs that decided",
    "nodes": "nodes involved",
    "on_one_node": "share of the lost jobs on one node",
    "neighbours": "jobs of others on the same nodes",
    "neighbours_failed": "of these failed",
    "losing_nodes": "nodes that lost nearly all jobs of several users in the hour before",
    "points_at_user": "events that point at a user, in nats",
    "points_at_node": "events that point at a node, in nats",
    "points_at_storage": "events that point at storage, in nats",
    "points_at_scheduler": "events that point at the scheduler, in nats",
    "flagged": "CPU windows that are unusual",
    "windows": "CPU windows",
    "waiting": "share of the unusual CPU windows that wait for data",
    "waiting_nodes": "nodes whose CPU traces wait for data at once",
    "waiting_nodes_of_one_job": "of these nodes on which one and the same job waits",
    "watched_nodes": "nodes whose CPU traces are known",
    "late_s": "seconds between the end of a job and its record, by our clock",
    "count": "events counted",
    "expected": "expected",
    "share": "of these at the place named",
    "inside": "windows in the known region",
}
_HELD_BACK: Final = {
    LATE: "It was known too long after the fact to wake anybody.",
    MUTED: "What it is about was muted.",
    MAINTENANCE: "What it is about was under maintenance.",
}


def figure_label(figure: Evidence) -> str:
    """Return what a figure is; its own name where there are no words for it."""
    return _LABELS.get(figure.name, figure.name.replace("_", " "))


def figure_text(figure: Evidence) -> str:
    """Return the value as people read it: a share in per cent, counts with their thousands told apart."""
    if figure.unit == Unit.SHARE:
        return f"{100 * figure.value:.0f} %"
    if figure.value == int(figure.value):
        return f"{figure.value:,.0f}"
    return f"{figure.value:,.3g}"


def held_back_words(reason: str) -> str:
    """Return why an incident was not sent, as a sentence; empty where nothing holds it back."""
    return _HELD_BACK.get(reason, f"It was held back: {reason}." if reason else "")
