"""The table of the budget in docs/alarms.md, from what was measured: benchmarks/results/alarm_budget.json -> Markdown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from markdown_tables import table
from measured_traces import measured

_ROWS: Final = {
    "weeks": "calm weeks judged",
    "incidents_a_week": "incidents raised a week",
    "promised_a_week": "pages promised a week",
    "pages_a_week": "**pages a week, pooled**",
    "of_the_promise": "of the promise",
    "fewest_a_week": "fewest of one cluster",
    "most_a_week": "most of one cluster",
    "hosts_named": "healthy hosts named",
}


def budget() -> str:
    """Each set of seeds: what was promised, and what the thresholds alone would have sent."""
    found = measured("alarm_budget")
    seeds = [f"seeds {one['seeds'][0]}–{one['seeds'][-1]}" for one in found.values()]
    return table(("", *seeds), [(words, *(f"{one[key]:.3g}" for one in found.values())) for key, words in _ROWS.items()])


PARTS: Final[dict[str, Callable[[], str]]] = {"alarm-budget": budget}
