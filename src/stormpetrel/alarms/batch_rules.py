"""Rules about batches and waves: the jobs of one user that fail as one, those of one application, and many users' in one way.

known jobs -> batches_failing, applications_failing, wave -> Triggers.

A watch asks every few seconds and knows the jobs of nine days: only groups whose last jobs nearly all failed are examined.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import polars as pl

from stormpetrel.alarms.known_jobs import LONG_AGO, ended
from stormpetrel.alarms.triggers import Triggers, conform, no_triggers

FEWEST_JOBS: Final = 10  # of a batch
WINDOW: Final = timedelta(hours=12)  # in which they ended
LAST_JOBS: Final = 20  # of a group that are looked at, at most
ALL_BUT: Final = 0.9  # share that failed
HIGHEST_USUAL: Final = 0.5  # share of failed jobs in the week before, above which failing is nothing new
LOWEST_SCORE: Final = 3.4  # of a batch that these rules tell
_BROKEN: Final = 0.95  # share of a broken batch that fails
_RAREST: Final = 0.02  # nobody's usual share is taken to be lower
FEWEST_USERS: Final = 3  # whose jobs of one application fail
WAVE: Final = timedelta(hours=3)
FEWEST_IN_WAVE: Final = 5  # users
WAVE_THRESHOLD: Final = 8.0  # natural logarithm of how unlikely so many are
_SHORTEST_PAST: Final = timedelta(days=2)  # before a wave can be told from the everyday
_PRIOR_JOBS: Final = 4.0


def batches_failing(jobs: pl.DataFrame, after: datetime, now: datetime) -> Triggers:
    """Return the failures in (after, now] at which a user's jobs of one application fail as one: name user, part application."""
    groups = ("cluster", "user", "application")
    rows = _of_losing(jobs.filter(pl.col("user") != ""), groups, after, now).with_columns(name="user", part="application")
    return Triggers(_failing_as_one(rows, after, users=1), _members(rows))


def applications_failing(jobs: pl.DataFrame, after: datetime, now: datetime) -> Triggers:
    """Return the failures in (after, now] at which an application fails for several users at once: name application."""
    rows = _of_losing(jobs.filter(pl.col("application") != ""), ("cluster", "application"), after, now)
    rows = rows.with_columns(name="application", part=pl.lit(""))
    return Triggers(_failing_as_one(rows, after, users=FEWEST_USERS), _members(rows))


def _of_losing(jobs: pl.DataFrame, keys: tuple[str, ...], after: datetime, now: datetime) -> pl.DataFrame:
    """The ended jobs of the groups that may be failing as one at a failure after a moment, in the order of their ends."""
    return ended(jobs.join(_losing(jobs, keys, after, now), on=keys, how="semi", maintain_order="left"), now)


def _losing(jobs: pl.DataFrame, keys: tuple[str, ...], after: datetime, now: datetime) -> pl.DataFrame:
    """The groups of whose last ten jobs, up to a failure after a moment, no more did well than of the last twenty may have."""
    recent = jobs.filter((pl.col("end_time") > after - WINDOW).fill_null(True))
    fresh = recent.filter("failed", pl.col("end_time") > after).select(keys).unique()
    in_order = ended(recent.join(fresh, on=keys, how="semi"), now)
    failed = pl.col("failed").cast(pl.Int64).cum_sum()
    last = (failed - failed.shift(FEWEST_JOBS, fill_value=0)).over(keys)
    fewest = FEWEST_JOBS - round((1 - ALL_BUT) * LAST_JOBS)
    return in_order.with_columns(last=last).filter("failed", pl.col("at") > after, pl.col("last") >= fewest).select(keys).unique()


def _failing_as_one(rows: pl.DataFrame, after: datetime, *, users: int) -> pl.DataFrame:
    """Failures at which nearly all of a group's jobs in the window have failed, so many that it is news."""
    keys = ["cluster", "name", "part"]
    sums = rows.select(
        *keys, "at", "user", "failed",
        jobs=pl.int_range(1, pl.len() + 1).over(keys), bad=pl.col("failed").cast(pl.Int64).cum_sum().over(keys),
    )  # fmt: skip
    sums = sums.with_columns(
        bad_before=pl.col("bad").shift(LAST_JOBS, fill_value=0).over(keys), first=pl.col("at").shift(LAST_JOBS - 1).over(keys)
    )
    events = sums.filter("failed", pl.col("at") > after)
    for cut, name in ((WINDOW, "window"), (WINDOW + LONG_AGO, "past")):
        earlier = sums.select(*keys, "at", pl.col("jobs").alias(f"{name}_jobs"), pl.col("bad").alias(f"{name}_bad"))
        events = (
            events.with_columns(cut=pl.col("at") - cut)
            .sort("cut")
            .join_asof(
                earlier.rename({"at": "then"}),
                left_on="cut",
                right_on="then",
                by=keys,
                strategy="backward",
                check_sortedness=False,
            )
        )
        events = events.drop("cut", "then", strict=False).with_columns(pl.col(f"{name}_jobs", f"{name}_bad").fill_null(0))
    # The last twenty jobs are looked at, or those of the window where these are fewer; what is usual was before the window.
    full = pl.col("jobs") - pl.col("window_jobs") > LAST_JOBS
    tried = pl.when(full).then(LAST_JOBS).otherwise(pl.col("jobs") - pl.col("window_jobs"))
    bad = pl.col("bad") - pl.when(full).then(pl.col("bad_before")).otherwise(pl.col("window_bad"))
    opened = pl.when(full).then(pl.col("first")).otherwise(pl.col("at") - WINDOW + pl.duration(microseconds=1))
    bad_before, before = pl.col("window_bad") - pl.col("past_bad"), pl.col("window_jobs") - pl.col("past_jobs")
    expected = (bad_before + 1) / (before + _PRIOR_JOBS)  # of few jobs hardly anything is known: one in four
    hits = events.filter(tried >= FEWEST_JOBS, bad >= ALL_BUT * tried, expected <= HIGHEST_USUAL).with_columns(
        expected=expected,
        usual=pl.when(before >= _PRIOR_JOBS).then(bad_before / before),  # a share of fewer is no figure
        opened=opened,
        deciding_lost=bad,
        deciding_tried=tried,
    )
    if not hits.height:
        return no_triggers()
    failures = sums.filter("failed").join(hits, on=keys, how="semi")
    return conform(_scored(_since(_of_users(hits, failures, keys, users) if users > 1 else hits, failures, keys)))


def _scored(hits: pl.DataFrame) -> pl.DataFrame:
    """Add how much better a broken batch explains the jobs looked at than the expected share of failures does, in nats.

    The same in minutes tells more than in half a day: added is the logarithm of how much shorter than the window it took.
    """
    expected = pl.col("expected").clip(_RAREST, HIGHEST_USUAL)
    kept = pl.col("deciding_tried") - pl.col("deciding_lost")
    gain = pl.col("deciding_lost") * (_BROKEN / expected).log() + kept * ((1 - _BROKEN) / (1 - expected)).log()
    took = (pl.col("at") - pl.col("since")).dt.total_seconds().clip(60.0, WINDOW.total_seconds())
    return hits.with_columns(score=gain + (WINDOW.total_seconds() / took).log())


def _since(hits: pl.DataFrame, failures: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Add when the first of the failures in the window of each trigger ended."""
    ends = failures.select(*keys, since="at").sort("since")
    return hits.sort("opened").join_asof(
        ends, left_on="opened", right_on="since", by=keys, strategy="forward",
        coalesce=False, check_sortedness=False,
    )  # fmt: skip


def _of_users(hits: pl.DataFrame, failures: pl.DataFrame, keys: list[str], users: int) -> pl.DataFrame:
    """The triggers whose failures are of so many users, both among the last jobs and in the window."""
    for index, period in (("jobs", f"{LAST_JOBS}i"), ("at", f"{WINDOW // timedelta(hours=1)}h")):
        rolled = failures.sort(index).rolling(index, period=period, group_by=keys).agg(users=pl.col("user").n_unique())
        hits = hits.join(rolled.filter(pl.col("users") >= users), on=[*keys, index], how="semi")
    return hits


def wave(jobs: pl.DataFrame, outcome: str, after: datetime, now: datetime) -> Triggers:
    """Return the ends in (after, now] at which more users than usual lose jobs to this outcome: name cluster.

    Users are counted, not jobs: a hundred jobs of one batch are one mistake. A user counts once in the length of a wave.
    """
    hits = ended(jobs.filter(pl.col("outcome") == outcome), now).with_columns(name="cluster", part=pl.lit(""))
    if not hits.filter(pl.col("at") > after).height:
        return Triggers(no_triggers(), _members(hits))
    over = jobs.filter(pl.col("failed").is_not_null(), pl.col("end_time") <= now)
    first_end = over.group_by("cluster").agg(began=pl.col("end_time").min())
    again = (pl.col("at").diff() < WAVE).fill_null(False).over("cluster", "user")
    firsts = hits.filter(~again).select("cluster", "at", users=pl.int_range(1, pl.len() + 1).over("cluster"))
    events = firsts.filter(pl.col("at") > after).join(first_end, on="cluster")
    for cut, name in ((WAVE, "wave"), (WAVE + LONG_AGO, "past")):
        earlier = firsts.select("cluster", then="at", earlier="users")
        events = (
            events.with_columns(cut=pl.col("at") - cut)
            .sort("cut")
            .join_asof(earlier, left_on="cut", right_on="then", by="cluster", strategy="backward", check_sortedness=False)
        )
        events = events.drop("cut", "then", strict=False).rename({"earlier": name}).with_columns(pl.col(name).fill_null(0))
    past = pl.min_horizontal(pl.col("at") - WAVE - pl.col("began"), pl.lit(LONG_AGO))
    many = pl.col("users") - pl.col("wave")
    in_a_wave = WAVE.total_seconds() / past.dt.total_seconds().clip(1)
    usual, expected = ((pl.col("wave") - pl.col("past") + more) * in_a_wave for more in (0, 1))
    surprise = many * (many / expected).log() - (many - expected)  # Chernoff's bound on a Poisson tail
    scored = events.with_columns(score=surprise, usual=usual, past=past, many=many).filter(
        pl.col("many") >= FEWEST_IN_WAVE, pl.col("past") >= _SHORTEST_PAST, pl.col("score") >= WAVE_THRESHOLD
    )
    named = scored.with_columns(name="cluster", since=pl.col("at") - WAVE)
    return Triggers(conform(named), _members(hits))


def _members(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select("cluster", "name", "part", "user", "ref", "start_time", "at", bad="failed")
