"""Trends: how often the jobs of a user, project, application, node or profile fail over time, and whose rate has changed.

job frame -> failure_trend -> one row per group and period -> movers -> the groups that changed, with a sentence each.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.errors import UsageError
from stormpetrel.jobs.outcomes import failed
from stormpetrel.jobs.waste import UNKNOWN, group_key
from stormpetrel.records.arrays import Floats
from stormpetrel.records.nodes import expand_nodes
from stormpetrel.records.states import DEFAULT_FAILURE_STATES

TREND_GROUPS: Final = ("user", "account", "application", "node", "profile", "partition")
TREND_SCHEMA: Final = pl.Schema(
    {
        "by": pl.String,
        "every": pl.String,
        "group": pl.String,
        "period": pl.Date,
        "jobs": pl.Int64,
        "failed": pl.Int64,
        "rate": pl.Float64,
        "low": pl.Float64,
        "high": pl.Float64,
    }
)
MOVER_SCHEMA: Final = pl.Schema(
    {
        "by": pl.String,
        "group": pl.String,
        "period": pl.Date,
        "jobs": pl.Int64,
        "failed": pl.Int64,
        "rate": pl.Float64,
        "earlier_jobs": pl.Int64,
        "earlier_failed": pl.Int64,
        "earlier_rate": pl.Float64,
        "p_value": pl.Float64,
        "sentence": pl.String,
    }
)
FALSE_DISCOVERY_RATE: Final = 0.05
_Z95: Final = 1.959963984540054
_EVERY: Final = r"^[1-9]\d{0,2}(d|w|mo|q|y)$"
Integers = npt.NDArray[np.int64]


def failure_trend(
    jobs: pl.DataFrame,
    *,
    by: str,
    every: str = "1w",
    failure_states: Iterable[str] = DEFAULT_FAILURE_STATES,
    time_zone: str = "UTC",
    top: int | None = 10,
    min_jobs: int = 20,
) -> pl.DataFrame:
    """Failure rate per group and period, with its Wilson 95 % interval, oldest period first.

    A job counts in the period in which it ended, named by its first day in the site's time zone (a week by its Monday). Of the
    groups with at least `min_jobs` jobs, the `top` ones with the most failures are kept, or all where `top` is None. Jobs
    of no known group, without an end, or in a state that is neither success nor failure count nowhere; a job on several
    nodes counts on each of them.
    """
    check_trend(by, every)
    # Truncated as local wall-clock time: some zones skip a midnight in spring, and no day may be lost to that.
    period = pl.col("end_time").dt.convert_time_zone(time_zone).dt.replace_time_zone(None).dt.truncate(every).cast(pl.Date)
    source = pl.col("node_list") if by == "node" else group_key(by, jobs.columns, time_zone)
    judged = jobs.select(source.alias("group"), period.alias("period"), failed(failure_states)).drop_nulls()
    counts = judged.group_by("group", "period").agg(pl.len().cast(pl.Int64).alias("jobs"), pl.col("failed").sum().cast(pl.Int64))
    if by == "node":
        counts = _per_node(counts)
    return trend_of_counts(counts, by=by, every=every, top=top, min_jobs=min_jobs)


def check_trend(by: str, every: str) -> None:
    """Raise UsageError for a group or a period that no trend has."""
    if by not in TREND_GROUPS:
        raise UsageError(f"Unknown group '{by}' for a trend.", hint=f"Known: {', '.join(TREND_GROUPS)}.")
    if not pl.Series([every]).str.contains(_EVERY).item():
        raise UsageError(
            f"A period cannot be '{every}'.", hint="Give whole days, weeks, months, quarters or years: 1d, 1w, 1mo, …"
        )


def trend_of_counts(counts: pl.DataFrame, *, by: str, every: str, top: int | None = 10, min_jobs: int = 20) -> pl.DataFrame:
    """The trend out of `jobs` and `failed` that were counted per `group` and `period` before."""
    kept = _largest(counts.filter(pl.col("group") != UNKNOWN), top, min_jobs)
    rated = kept.with_columns(pl.lit(by).alias("by"), pl.lit(every).alias("every"), *_wilson())
    return rated.select(list(TREND_SCHEMA)).cast(TREND_SCHEMA).sort("period", "group")


def movers(trend: pl.DataFrame, *, false_discovery_rate: float = FALSE_DISCOVERY_RATE) -> pl.DataFrame:
    """Groups whose failure rate in the trend's last period is not that of their own earlier periods, clearest first.

    Fisher's exact test of the two proportions (the counts of one week are small), Benjamini–Hochberg over all groups tested. It
    takes jobs as independent: a campaign of equal jobs that fail together counts as many, so a mover is a hint, not a proof.
    """
    latest = trend.filter(pl.col("period") == pl.col("period").max())
    earlier = trend.filter(pl.col("period") < pl.col("period").max()).group_by("by", "group")
    sums = earlier.agg(earlier_jobs=pl.col("jobs").sum(), earlier_failed=pl.col("failed").sum())
    pairs = latest.join(sums, on=["by", "group"]).with_columns(earlier_rate=pl.col("earlier_failed") / pl.col("earlier_jobs"))
    names = ("failed", "jobs", "earlier_failed", "earlier_jobs")
    p_values = fisher_exact(*(pairs[name].to_numpy().astype(np.int64) for name in names))
    significant = pairs.with_columns(p_value=p_values).filter(benjamini_hochberg(p_values, false_discovery_rate))
    sentences = pl.Series("sentence", [_sentence(row) for row in significant.iter_rows(named=True)], dtype=pl.String)
    return significant.with_columns(sentences).select(list(MOVER_SCHEMA)).cast(MOVER_SCHEMA).sort("p_value", "group")


def fisher_exact(hits: Integers, total: Integers, other_hits: Integers, other_total: Integers) -> Floats:
    """Two-sided p-values of Fisher's exact test that two proportions are equal, one per pair."""
    largest = int((total + other_total).max(initial=0))
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, largest + 1)))])

    def log_choose(n: int, k: Integers) -> Floats:
        return np.asarray(log_factorial[n] - log_factorial[k] - log_factorial[n - k], dtype=np.float64)

    def p_value(a: int, n: int, b: int, m: int) -> float:
        possible = np.arange(max(0, a + b - m), min(n, a + b) + 1)
        log_p = log_choose(n, possible) + log_choose(m, a + b - possible)
        log_p -= log_p.max()
        weights = np.exp(log_p)
        as_rare = log_p <= log_p[a - possible[0]] + 1e-7  # equal probabilities differ in their last digits
        return min(1.0, float(weights[as_rare].sum() / weights.sum()))

    pairs = zip(hits.tolist(), total.tolist(), other_hits.tolist(), other_total.tolist(), strict=True)
    return np.array([p_value(*pair) for pair in pairs], dtype=np.float64)


def benjamini_hochberg(p_values: Floats, rate: float = FALSE_DISCOVERY_RATE) -> npt.NDArray[np.bool_]:
    """Which of many tests are significant when at most `rate` of those found may be chance."""
    ordered = np.sort(p_values)
    passing = ordered[ordered <= rate * np.arange(1, ordered.size + 1) / max(1, ordered.size)]
    return np.asarray(p_values <= passing.max(initial=-1.0), dtype=np.bool_)


def _per_node(counts: pl.DataFrame) -> pl.DataFrame:
    """Counts per node list turned into counts per node; each distinct list is expanded once."""
    lists = counts["group"].unique(maintain_order=True)
    expanded = pl.DataFrame(
        {"group": lists, "node": [sorted(set(expand_nodes(text))) for text in lists]},
        schema={"group": pl.String, "node": pl.List(pl.String)},
    )
    on_nodes = counts.join(expanded, on="group").explode("node").drop_nulls("node")
    summed = on_nodes.group_by("node", "period").agg(pl.col("jobs").sum(), pl.col("failed").sum())
    return summed.rename({"node": "group"})


def _largest(counts: pl.DataFrame, top: int | None, min_jobs: int) -> pl.DataFrame:
    sizes = counts.group_by("group").agg(pl.col("jobs").sum(), pl.col("failed").sum()).filter(pl.col("jobs") >= min_jobs)
    order = sizes.sort("failed", "jobs", "group", descending=[True, True, False])
    return counts.join(order.select("group").head(order.height if top is None else top), on="group", how="semi")


def _wilson() -> list[pl.Expr]:
    """Rate, and its Wilson interval, which stays within 0 and 1 and is honest about few jobs."""
    n, rate = pl.col("jobs"), pl.col("failed") / pl.col("jobs")
    spread = _Z95**2 / n
    centre = (rate + spread / 2) / (1 + spread)
    half = _Z95 * (rate * (1 - rate) / n + spread / (4 * n)).sqrt() / (1 + spread)
    low = pl.when(pl.col("failed") == 0).then(0.0).otherwise(centre - half)
    high = pl.when(pl.col("failed") == n).then(1.0).otherwise(centre + half)
    return [rate.alias("rate"), low.alias("low"), high.alias("high")]


def _sentence(row: dict[str, object]) -> str:
    jobs, period = row["jobs"], row["period"]
    assert isinstance(period, date)
    noun = "job" if jobs == 1 else "jobs"
    when = _when(period, str(row["every"]))
    return f"{row['by']} {row['group']}: {row['failed']} of {jobs} {noun} failed {when}; {_percent(row['earlier_rate'])} before"


def _when(first_day: date, every: str) -> str:
    day = f"{first_day.day} {first_day:%B}"
    phrases = {"1d": f"on {day}", "1w": f"in the week of {day}", "1mo": f"in {first_day:%B}", "1y": f"in {first_day.year}"}
    return phrases.get(every, f"in the period from {day}")


def _percent(rate: object) -> str:
    assert isinstance(rate, float)
    if 0 < rate < 0.01:
        return "under 1 %"
    return "over 99 %" if 0.99 < rate < 1 else f"{100 * rate:.0f} %"
