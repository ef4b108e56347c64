"""A user's failure rate beside that of people alike: the same mix of group and application, and nobody who could be recognised.

sums by user, account and application -> compare -> PeerRate. Each of the user's jobs is compared with the others who ran the
same application in the same account; where those are fewer than `FEWEST`, with those of the application, of the account, of the
site. The rate of others is a mean over people, not jobs, so that nobody's jobs make it alone; it is given in whole per cent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl

FEWEST: Final = 5  # others behind every figure
FEWEST_JOBS: Final = 5  # of each of them: a rate of one job would be that job
LEVELS: Final[tuple[tuple[str, ...], ...]] = (("account", "application"), ("application",), ("account",), ())


@dataclass(frozen=True, slots=True)
class PeerRate:
    """The mean failure rate of others at the user's own mix of jobs; `compared` is the part of those jobs that could be compared.

    `levels` says by what they were, in parts of the compared ones: `account+application`, `application`, `account`, `site`.
    """

    rate: float
    fewest: int
    compared: float
    levels: dict[str, float]
    by_application: dict[str, float]


def compare(days: pl.DataFrame, user: str) -> PeerRate | None:
    """Compare a user with the others in the rows of a day book; None where too few others could be compared with."""
    sums = (
        days.filter(pl.col("user").is_not_null() & (pl.col("judged") > 0))
        .with_columns(pl.col("user", "account", "application").cast(pl.String))
        .group_by("user", "account", "application")
        .agg(pl.col("judged", "judged_failed").sum())
    )
    own = (
        sums.filter(pl.col("user") == user).select("account", "application", "judged").with_columns(rate=pl.lit(None, pl.Float64))
    )
    own = own.with_columns(level=pl.lit(None, pl.String), others=pl.lit(None, pl.Int64))
    others = sums.filter(pl.col("user") != user)
    for keys in LEVELS:
        own = _fill(own, _rates(others, keys), keys)
    known = own.drop_nulls("rate")
    total, compared = int(own["judged"].sum()), int(known["judged"].sum())
    if compared == 0:
        return None
    rate = float((known["rate"] * known["judged"]).sum()) / compared
    by_level = known.group_by("level").agg(pl.col("judged").sum())
    applications = known.group_by("application").agg((pl.col("rate") * pl.col("judged")).sum() / pl.col("judged").sum())
    return PeerRate(
        rate=round(rate, 2),
        fewest=int(known["others"].min() or 0),  # type: ignore[arg-type]  # of a column of integers
        compared=compared / total,
        levels={level: jobs / compared for level, jobs in by_level.sort("judged", descending=True).iter_rows()},
        by_application={name: round(share, 2) for name, share in applications.iter_rows()},
    )


def _rates(others: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
    """Mean failure rate over people with enough jobs in each group, of groups with enough people."""
    people = others.group_by("user", *keys).agg(pl.col("judged", "judged_failed").sum()).filter(pl.col("judged") >= FEWEST_JOBS)
    rate, count = (pl.col("judged_failed") / pl.col("judged")).mean().alias("found"), pl.len().cast(pl.Int64).alias("people")
    groups = people.group_by(keys).agg(rate, count) if keys else people.select(rate, count)
    return groups.filter(pl.col("people") >= FEWEST)


def _fill(own: pl.DataFrame, groups: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
    """The rows that have no rate yet, with that of their group at this level."""
    joined = own.join(groups, on=list(keys), how="left") if keys else own.join(groups, how="cross") if groups.height else None
    if joined is None:
        return own
    is_new = pl.col("rate").is_null() & pl.col("found").is_not_null()
    return joined.with_columns(
        rate=pl.coalesce("rate", "found"),
        level=pl.when(is_new).then(pl.lit("+".join(keys) or "site")).otherwise("level"),
        others=pl.when(is_new).then("people").otherwise("others"),
    ).drop("found", "people")
