"""Alarms that belong together, as `events score` and the demo tell them.

rows of event_scores + labels -> episodes_of -> Episode, oldest first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    import polars as pl

    from stormpetrel.events.finding import Finding
    from stormpetrel.records.outages import Outage


@dataclass(frozen=True, slots=True)
class Episode:
    """Alarms less than six hours apart: from when to when, the highest score, what was wrong, and what people say of it."""

    start: datetime
    end: datetime
    score: float | None
    times_threshold: float | None
    why: list[str]
    labels: list[str]

    def as_dict(self) -> dict[str, Any]:
        """As `--json` prints it."""
        told = {"from": self.start.isoformat(), "to": self.end.isoformat(), "score": self.score}
        return {**told, "why": self.why, "labels": self.labels}

    def span(self, zone: str) -> str:
        """From and to, by the clock on the site's wall."""
        return f"{_local(self.start, zone)} to {_local(self.end, zone)}"

    def label_command(self, zone: str) -> str:
        """How to say that it was none."""
        return f"stormpetrel events label '{_local(self.start, zone)}' '{_local(self.end, zone)}' --kind normal"


def episodes_of(rows: pl.DataFrame, outages: Sequence[Outage] = ()) -> list[Episode]:
    """The alarms among some rows of event_scores."""
    import polars as pl

    from stormpetrel.events.alarm_budget import APART_HOURS

    alarms = rows.filter("alarm").sort("bucket_start")
    apart = timedelta(hours=APART_HOURS) + pl.duration(seconds=pl.col("bucket_s"))
    number = (pl.col("bucket_start").diff() >= apart).fill_null(False).cum_sum()
    parts = alarms.with_columns(number.alias("number")).group_by("number", maintain_order=True)
    return [_episode(part, outages) for _, part in parts]


def _episode(part: pl.DataFrame, outages: Sequence[Outage]) -> Episode:
    from stormpetrel.events.finding import findings_of_json

    start = part["bucket_start"][0]
    end = part["bucket_start"][-1] + timedelta(seconds=int(part["bucket_s"][-1]))
    worst = part.row(int(part["score"].fill_null(float("-inf")).arg_max() or 0), named=True)
    score, threshold = worst["score"], worst["threshold"]
    return Episode(
        start,
        end,
        score,
        None if score is None or not threshold else score / threshold,
        _words([findings_of_json(why) for why in part["why"]], findings_of_json(worst["why"])),
        [f"{one.kind.value}: {one.title}" for one in outages if one.start < end and (one.end is None or one.end > start)],
    )


def _words(all_findings: Sequence[Sequence[Finding]], worst: Sequence[Finding]) -> list[str]:
    """Nodes and hosts that a rule has found at any time come first, then what the most abnormal bucket says."""
    from stormpetrel.events.nodes_and_hosts import HARD

    largest: dict[tuple[str, str], Finding] = {}
    for one in (one for several in all_findings for one in several if one.kind in HARD):
        before = largest.get((one.kind, one.value))
        if before is None or one.count >= before.count:
            largest[one.kind, one.value] = one
    return [*(one.words for one in largest.values()), *(one.words for one in worst if one.kind not in HARD)]


def _local(moment: datetime, zone: str) -> str:
    return f"{moment.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M}"
