"""Hand-made job records for the rules of alarms: who ran what where, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import polars as pl

from stormpetrel.alarms.known_jobs import as_known_at, known_jobs
from stormpetrel.alarms.triggers import MEMBERS, Triggers
from stormpetrel.records.jobs import job_frame
from stormpetrel.simulate.cluster import ClusterSpec, Fault, simulate

Rule = Callable[[pl.DataFrame, datetime, datetime], Triggers]
TROUBLED = datetime(2024, 1, 1, tzinfo=UTC)
_DAY_S = 86_400
DAY0 = datetime(2024, 5, 6, tzinfo=UTC)  # a Monday
_ids = count(1000)

Row = dict[str, Any]


def at(day: float = 0.0, *, hour: float = 0.0, minute: float = 0.0) -> datetime:
    """A moment of the hand-made site."""
    return DAY0 + timedelta(days=day, hours=hour, minutes=minute)


def job(user: str, node: str, start: datetime, *, run_s: float = 3600.0, state: str = "COMPLETED", name: str = "solve") -> Row:
    """One job that started at once."""
    return {
        "cluster": "c1", "job_id": next(_ids), "submit_time": start - timedelta(seconds=1), "restart": 0, "user": user,
        "job_name": name, "state": state, "start_time": start, "end_time": start + timedelta(seconds=run_s), "elapsed_s": run_s,
        "node_list": node,
    }  # fmt: skip


def lost(user: str, node: str, start: datetime, **more: Any) -> Row:
    """A job that failed ten seconds after its start."""
    return job(user, node, start, run_s=10.0, state="FAILED", **more)


def everyday(users: Iterable[str] = ("ann", "bob", "cat"), *, days: int = 6, nodes: int = 6, name: str = "solve") -> list[Row]:
    """Jobs that all end well, eight a day of each user, on n1, n2 and so on in turn."""
    rows = []
    for number, (day, slot, user) in enumerate((day, slot, user) for day in range(days) for slot in range(8) for user in users):
        rows.append(job(user, f"n{1 + number % nodes}", at(day, hour=8 + slot), name=name))
    return rows


def known(*rows: Row | list[Row]) -> pl.DataFrame:
    """The rows as the rules see them."""
    flat = [row for part in rows for row in (part if isinstance(part, list) else [part])]
    return known_jobs(job_frame(flat))


def write_log(path: Path, rows: list[Row]) -> Path:
    """The rows as sacct prints them."""
    columns = ("job_id", "cluster", "user", "job_name", "submit_time", "start_time", "end_time", "state", "node_list")
    header = "JobID|Cluster|User|JobName|Submit|Start|End|State|NodeList"
    times = {"submit_time", "start_time", "end_time"}
    lines = ["|".join(f"{row[name]:%Y-%m-%dT%H:%M:%S}" if name in times else str(row[name]) for name in columns) for row in rows]
    path.write_text("\n".join([header, *lines, ""]))
    return path


@cache
def troubled_jobs(seed: int) -> pl.DataFrame:
    """Three weeks in which nodes are sick, with every kind of end made more frequent than it is, and a second cluster."""
    faults = (Fault(6, 14 * _DAY_S, 17 * _DAY_S), Fault(2, 15 * _DAY_S, 16 * _DAY_S))
    jobs = pl.concat(simulate(ClusterSpec(nodes=12, days=20, load=0.7, seed=seed, start=TROUBLED, faults=faults)))
    rng = Random(seed)
    ends = ["NODE_FAIL", "TIMEOUT", "OUT_OF_MEMORY", "FAILED", "BOOT_FAIL", "CANCELLED"]
    bad_days = [TROUBLED + timedelta(days=rng.uniform(13, 19)) for _ in range(12)]
    for day in bad_days:  # hours in which many jobs end in one way
        hour = pl.col("end_time").is_between(day, day + timedelta(hours=rng.choice([1, 3])))
        jobs = jobs.with_columns(state=pl.when(hour).then(pl.lit(rng.choice(ends))).otherwise("state"))
    return known_jobs(pl.concat([jobs, jobs.sample(fraction=0.5, seed=seed).with_columns(cluster=pl.lit("other"))]))


def asked(rule: Rule) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
    """What a rule fires at, and the jobs that an episode can count, asked for seconds, hours and days of the troubled weeks."""
    for seed in (0, 1):
        rng = Random(seed)
        for length in (5, 60, 600, 3600, 40_000, 5 * _DAY_S, 7 * _DAY_S) * 2:
            now = TROUBLED + timedelta(seconds=rng.randint(13 * _DAY_S, 20 * _DAY_S))
            triggers = rule(as_known_at(troubled_jobs(seed), now), now - timedelta(seconds=length), now)
            yield triggers.rows, _countable(triggers)


def _countable(triggers: Triggers) -> pl.DataFrame:
    """The jobs of who is named, from the beginning of the trouble on."""
    keys = ["cluster", "name", "part"]
    since = triggers.rows.group_by(keys).agg(pl.col("since").min())
    mine = triggers.members.join(since, on=keys).filter(pl.col("at") >= pl.col("since"))
    return mine.select(list(MEMBERS)).sort("cluster", "name", "part", "at", "ref")


def as_at_once(rule: Rule) -> Rule:
    """A rule that is asked for all of the past up to `now`, of which the span is taken: what it has to agree with."""

    def whole(jobs: pl.DataFrame, after: datetime, now: datetime) -> Triggers:
        triggers = rule(jobs, TROUBLED, now)
        return Triggers(triggers.rows.filter(pl.col("at") > after), triggers.members)

    return whole


def assert_same(given: Iterable[tuple[pl.DataFrame, pl.DataFrame]], wanted: Iterable[tuple[pl.DataFrame, pl.DataFrame]]) -> None:
    """Both fire at the same jobs, somewhere at least, and count the same ones."""
    fired = 0
    for (rows, members), (wanted_rows, wanted_members) in zip(given, wanted, strict=True):
        assert rows.equals(wanted_rows)
        assert members.equals(wanted_members)
        fired += rows.height
    assert fired > 0
