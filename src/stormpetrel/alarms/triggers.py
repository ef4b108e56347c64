"""What a rule returns: the moments at which it fires, and the jobs that its figures are counted over.

Triggers -> episodes -> Episode: triggers of one subject that follow each other closely are one episode.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import polars as pl
from polars.datatypes import DataType, DataTypeClass

from stormpetrel.records.times import UTC_TIME

CLOSE: Final = timedelta(hours=1)  # triggers of one subject less far apart are one finding
TRIGGERS: Final[dict[str, DataType | DataTypeClass]] = {
    "cluster": pl.String,
    "name": pl.String,  # of the subject
    "part": pl.String,  # of the subject: which application of a user; empty for the whole
    "at": UTC_TIME,  # the record that fires it; nothing later has been looked at
    "since": UTC_TIME,
    "score": pl.Float64,
    "usual": pl.Float64,  # what was measured before, or elsewhere; null where nothing was
    "deciding_lost": pl.Int64,  # of so many jobs that were looked at, so many had failed; null where a rule does not count so
    "deciding_tried": pl.Int64,
}
_MAY_LACK: Final = {"part": "", "deciding_lost": None, "deciding_tried": None}
MEMBERS: Final[dict[str, DataType | DataTypeClass]] = {
    "cluster": pl.String,
    "name": pl.String,
    "part": pl.String,
    "user": pl.String,
    "ref": pl.String,
    "start_time": UTC_TIME,
    "at": UTC_TIME,
    "bad": pl.Boolean,
}


@dataclass(frozen=True, slots=True)
class Triggers:
    """When a rule fires for whom (`TRIGGERS`), and the jobs of its subjects, good and bad (`MEMBERS`)."""

    rows: pl.DataFrame
    members: pl.DataFrame


@dataclass(frozen=True, slots=True)
class Episode:
    """Triggers of one subject that follow each other closely, and the jobs in it that were not counted before."""

    cluster: str
    name: str
    part: str
    since: datetime
    decided_at: datetime
    until: datetime
    score: float
    deciding_score: float  # at the first trigger
    usual: float | None
    deciding_lost: int | None  # of the jobs that the first trigger looked at; some may have been counted before
    deciding_tried: int | None
    continues: bool  # the episode of the step before
    members: pl.DataFrame  # in the order of `at`
    counted: pl.DataFrame  # bad ones of the subject that were counted before


def no_triggers() -> pl.DataFrame:
    """Return that nothing fires."""
    return pl.DataFrame(schema=TRIGGERS)


def no_members() -> pl.DataFrame:
    """Return that there are no jobs to count."""
    return pl.DataFrame(schema=MEMBERS)


def conform(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with the columns of triggers, in the order of time; `part` is empty where there is none."""
    lacking = {name: pl.lit(value) for name, value in _MAY_LACK.items() if name not in rows.columns}
    whole = rows.with_columns(**lacking)
    return whole.select(pl.col(name).cast(dtype) for name, dtype in TRIGGERS.items()).sort("at", "cluster", "name", "part")


def episodes(triggers: Triggers, counted: dict[tuple[str, str, str], datetime]) -> Iterator[Episode]:
    """Yield the episodes of a rule, by subject and time.

    `counted` says up to when the jobs of each subject were counted before, and is moved on.
    """
    keys = ["cluster", "name", "part"]
    rows = triggers.rows.sort(*keys, "at")
    apart = (pl.col("at").diff() > CLOSE).fill_null(False).cast(pl.Int32).cum_sum().over(keys)
    spans = rows.with_columns(span=apart).group_by(*keys, "span", maintain_order=True).agg(
        pl.col("since").first(), decided_at=pl.col("at").min(), until=pl.col("at").max(), score=pl.col("score").max(),
        deciding_score=pl.col("score").first(),
        usual=pl.col("usual").first(), deciding_lost=pl.col("deciding_lost").first(),
        deciding_tried=pl.col("deciding_tried").first(),
    )  # fmt: skip
    mine = triggers.members.join(spans, on=keys, how="semi").partition_by(keys, as_dict=True)
    for span in spans.drop("span").iter_rows(named=True):
        key = (span["cluster"], span["name"], span["part"])
        before = counted.get(key)
        goes_on = before is not None and span["decided_at"] - before <= CLOSE
        if before is not None and not goes_on:  # what came before is another episode's
            span["since"] = max(span["since"], before)
        members = _not_counted(mine[key], span, before, goes_on=goes_on).sort("at", "ref")
        earlier = mine[key].filter("bad", pl.lit(False) if before is None else pl.col("at") <= before)
        yield Episode(**span, continues=goes_on, members=members, counted=earlier)
        counted[key] = span["until"] if before is None else max(before, span["until"])  # earlier: looked at once more


def _not_counted(members: pl.DataFrame, span: dict[str, Any], before: datetime | None, *, goes_on: bool) -> pl.DataFrame:
    """The jobs of a subject from the beginning of the trouble on, without those that an earlier episode has counted."""
    fresh = pl.lit(True) if before is None else pl.col("at") > before
    began = (pl.col("start_time").fill_null(pl.col("at")) >= span["since"]) | pl.col("bad")
    in_trouble = pl.lit(True) if goes_on else began & (pl.col("at") >= span["since"])
    return members.filter(fresh & in_trouble & (pl.col("at") <= span["until"]))
