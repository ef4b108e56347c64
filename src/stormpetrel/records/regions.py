"""Known regions as the store keeps them: the name of a trouble, which windows it is about, and some of these windows.

RegionScope + name -> one row per example window, of TRACE_REGION_SCHEMA. What a model makes of them is worked out by the model in
use (`traces/regions.py`): a region outlives the model that was in use when somebody named it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import polars as pl

from stormpetrel.errors import UsageError
from stormpetrel.records.window_frames import CPU_WINDOW_SCHEMA

LONGEST_NAME: Final = 80
_SCOPE: Final = ("of_cluster", "of_job_type", "of_job", "of_node")

TRACE_REGION_SCHEMA: Final = pl.Schema(
    {
        "region_id": pl.String(),  # two of one name are two regions: either can be taken back
        "name": pl.String(),
        "added": pl.Datetime("us", "UTC"),
        "added_by": pl.String(),
        "incident": pl.Int64(),  # whose confirmation named it; null: named by hand
        **{column: pl.String() for column in _SCOPE},  # which windows it is about; null: any
        "of_since": pl.Datetime("us", "UTC"),
        "of_until": pl.Datetime("us", "UTC"),
        **CPU_WINDOW_SCHEMA,  # one of these windows
    }
)


@dataclass(frozen=True, slots=True)
class RegionScope:
    """The windows that a trouble is about: those that fit everything that is named; times are UTC, `until` excluded."""

    cluster: str | None = None
    job_type: str | None = None
    job_id: str | None = None
    node: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        if self.job_type is None and self.job_id is None and self.node is None:
            raise UsageError("Which windows?", hint="Name a job type, a job or a node (with --since and --until).")
        if self.node is not None and self.job_id is None and (self.since is None or self.until is None):
            raise UsageError(f"When was {self.node!r} in trouble?", hint="Name --since and --until with --node.")

    def holds(self) -> pl.Expr:
        """Which rows of windows or of their scores lie in it, as an expression; a window counts by when it begins."""
        named = {"cluster": self.cluster, "job_type": self.job_type, "job_id": self.job_id, "node": self.node}
        parts = [pl.col(name) == value for name, value in named.items() if value is not None]
        parts += [pl.col("window_start") >= self.since] if self.since else []
        parts += [pl.col("window_start") < self.until] if self.until else []
        return pl.all_horizontal(parts).fill_null(False)

    def columns(self) -> dict[str, object]:
        """As the store keeps it."""
        texts = (self.cluster, self.job_type, self.job_id, self.node)
        return {**dict(zip(_SCOPE, texts, strict=True)), "of_since": self.since, "of_until": self.until}


@dataclass(frozen=True, slots=True)
class KnownRegion:
    """A trouble that somebody named, and how many of its windows are kept as examples."""

    id: str
    name: str
    added: datetime
    added_by: str
    incident: int | None
    scope: RegionScope
    examples: int


def region_name(text: str) -> str:
    """A name for a region out of what somebody wrote: its first line, at most 80 characters; UsageError where it is empty."""
    line = next(iter(text.strip().splitlines()), "").strip()
    name = "".join(letter if letter.isprintable() else " " for letter in line)[:LONGEST_NAME].strip()
    if not name:
        raise UsageError("The region has no name.", hint='Name the trouble: stormpetrel traces label "hung allreduce" --job 4711')
    return name
