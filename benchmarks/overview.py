"""How long a page of the job table takes on a million jobs, beside a plain `sort().slice()` of the same frame.

`python -m benchmarks.overview [--jobs N] [--rounds N]`: made-up jobs, months of 80,000, all in memory; results in
benchmarks/results/overview.json. `first` is the first question after a refresh, when the newest month has to be looked at afresh.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from stormpetrel.answers.overview.month import PREDICTION_COLUMNS, month_frame
from stormpetrel.answers.overview.overview import OVERVIEW_SCHEMA, Overview, TableFilter, TableQuery
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.records.jobs import KEY, conform

RESULTS = Path(__file__).parent / "results" / "overview.json"
LIMIT_MS = 300.0  # asked of a page's request, p99, while a watch runs
MONTH = 80_000
START = datetime(2026, 11, 1, tzinfo=UTC)
STATES = ("COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "CANCELLED", "RUNNING", "PENDING")
SHARES = (0.7, 0.12, 0.05, 0.03, 0.08, 0.01, 0.01)


@dataclass(frozen=True)
class Question:
    """A page, and the rows that a plain filter would keep for it."""

    name: str
    query: TableQuery
    plain: pl.Expr | None = None
    viewer: Viewer = LOCAL


def made_month(number: int, jobs: int, seed: int) -> pl.DataFrame:
    """One month of jobs with a prediction for most of them; a third of the names is used once, all begin alike."""
    rng = np.random.default_rng((seed, number))
    begin = START - timedelta(days=30 * number)
    submit = pl.Series(np.sort(rng.integers(0, 30 * 86_400, jobs))) * 1_000_000 + int(begin.timestamp()) * 1_000_000
    state = pl.Series(rng.choice(STATES, jobs, p=SHARES))
    run = pl.Series(np.floor(rng.lognormal(7.0, 2.0, jobs)))
    names = np.where(rng.random(jobs) < 0.33, rng.integers(0, 10**8, jobs), rng.integers(0, 2000, jobs))
    user = rng.zipf(1.3, jobs) % 1000
    frame = pl.DataFrame(
        {
            "cluster": ["petrel"] * jobs,
            "job_id": np.arange(jobs) + 10_000_000 - number * jobs,
            "submit_time": submit.cast(pl.Datetime("us", "UTC")),
            "restart": np.zeros(jobs, dtype=np.int32),
            "user": [f"user{k:04d}" for k in user],
            "account": [f"project{k % 60}" for k in user],
            "partition": rng.choice(["batch", "gpu", "long", "debug"], jobs),
            "job_name": [f"simulation_of_run_{k}" for k in names],
            "state": state,
            "elapsed_s": run,
            "cpus": rng.choice([1, 2, 4, 16, 64], jobs),
            "time_limit_s": rng.choice([600.0, 3600.0, 86_400.0], jobs),
            "req_mem_bytes": rng.choice([2, 8, 64], jobs) * (1 << 30),
        }
    )
    waited = pl.Series("waited", rng.integers(0, 7200, jobs))
    started = pl.col("submit_time") + pl.duration(seconds="waited")
    ended = pl.col("state").is_in(["RUNNING", "PENDING"]).not_()
    frame = frame.with_columns(waited).with_columns(start_time=pl.when(pl.col("state") != "PENDING").then(started))
    frame = conform(frame.with_columns(end_time=pl.when(ended).then(pl.col("start_time") + pl.duration(seconds="elapsed_s"))))
    risk = pl.Series(rng.beta(1, 5, jobs))
    said = frame.select(KEY).with_columns(
        moment=pl.lit("2min"),
        moment_time=pl.col("submit_time"),
        predicted_at=pl.col("submit_time"),
        late=pl.lit(False),
        model_version=pl.lit(3),
        risk=risk,
        flagged=risk >= 0.4,
        known=pl.lit(True),
        likeliest=pl.lit("TIMEOUT"),
        profile=pl.lit(0),
    )
    return month_frame(
        frame, said.select(*KEY, *PREDICTION_COLUMNS).filter(pl.Series(rng.random(jobs) < 0.9)), ["FAILED", "TIMEOUT"], []
    )


def made_overview(jobs: int, seed: int = 1) -> dict[str, pl.DataFrame]:
    """The months of a made-up site, the newest first."""
    sizes = [MONTH] * (jobs // MONTH) + ([jobs % MONTH] if jobs % MONTH else [])
    return {f"{number:03d}": made_month(number, size, seed) for number, size in enumerate(sizes)}


def questions(jobs: int) -> list[Question]:
    """What people ask of a table: every column both ways, deep pages, every sort of filter, searches, a user's own jobs."""
    asked = [
        Question(f"sort by {name}, {'down' if down else 'up'}", TableQuery(sort=((name, down),)))
        for name in OVERVIEW_SCHEMA
        for down in (True, False)
    ]
    deep = jobs // 2
    asked += [
        Question(f"deep page by {name}", TableQuery(((name, True),), offset=deep))
        for name in ("risk", "elapsed_s", "job_name", "user")
    ]
    asked.append(Question("two columns, deep", TableQuery((("state", False), ("elapsed_s", True)), offset=deep)))
    lower = pl.col("job_name").str.to_lowercase()
    week = (START - timedelta(days=17), START - timedelta(days=10))
    filters: list[tuple[TableFilter, pl.Expr]] = [
        (TableFilter("state", "equals", "FAILED"), pl.col("state") == "FAILED"),
        (TableFilter("state", "is_in", ["FAILED", "TIMEOUT"]), pl.col("state").is_in(["FAILED", "TIMEOUT"])),
        (TableFilter("user", "not_equal", "user0001"), pl.col("user") != "user0001"),
        (TableFilter("job_name", "contains", "run_77"), lower.str.contains("run_77", literal=True)),
        (TableFilter("job_name", "not_contains", "run_77"), ~lower.str.contains("run_77", literal=True)),
        (TableFilter("job", "contains", "123"), pl.col("job").str.contains("123", literal=True)),
        (TableFilter("account", "starts_with", "project1"), pl.col("account").str.starts_with("project1")),
        (TableFilter("risk", "greater", 0.5), pl.col("risk") > 0.5),
        (TableFilter("risk", "blank"), pl.col("risk").is_null()),
        (TableFilter("failed", "equals", True), pl.col("failed")),
        (TableFilter("submit_time", "between", *week), pl.col("submit_time").is_between(*week)),
    ]
    for one, plain in filters:
        for sort in ((("submit_time", True),), (("elapsed_s", True),)):
            asked.append(Question(f"{one.column} {one.kind}, by {sort[0][0]}", TableQuery(sort, (one,)), plain))
    asked += [
        Question(f"search '{text}'", TableQuery((("risk", True),), search=text)) for text in ("user00", "1234", "run_5", "none")
    ]
    own = Viewer("user0007", is_admin=False)
    asked += [
        Question(f"a user's own, by {name}", TableQuery(((name, True),)), own.sees(), own)
        for name in ("submit_time", "risk", "job_name")
    ]
    return asked


def plain_page(frame: pl.DataFrame, question: Question) -> pl.DataFrame:
    """The peer: filter, sort everything, cut out the page."""
    rows = frame if question.plain is None else frame.filter(question.plain)
    by, down = zip(*question.query.sort, strict=True)
    return rows.sort(by, descending=down, nulls_last=True, maintain_order=True).slice(question.query.offset, question.query.limit)


def timed_ms(work: Callable[..., object], *words: object) -> tuple[float, float]:
    """Milliseconds by the clock, and of the processor: on a busy machine only the second says something about the work."""
    began, began_cpu = time.perf_counter(), time.process_time()
    work(*words)
    return 1000 * (time.perf_counter() - began), 1000 * (time.process_time() - began_cpu)


def percentiles(times: list[tuple[float, float]]) -> dict[str, float]:
    clock, cpu = np.array(times).T
    found = {
        "p50_ms": np.median(clock),
        "p99_ms": np.quantile(clock, 0.99),
        "cpu_p50_ms": np.median(cpu),
        "cpu_p99_ms": np.quantile(cpu, 0.99),
    }
    return {**{name: round(float(value), 2) for name, value in found.items()}, "requests": len(times)}


def measure(jobs: int, rounds: int) -> dict[str, Any]:
    """All questions, several times over, in an order of chance; the peer once."""
    months = made_overview(jobs)
    overview = Overview()
    overview.take(months)
    asked, rng = questions(jobs), np.random.default_rng(3)
    for question in asked:
        overview.page(question.viewer, question.query)
    # A refresh replaces the newest month: what was prepared for it has to be made anew by whoever asks first.
    newest, *_ = months
    first = []
    for question in asked:
        overview.take({newest: months[newest].clone()})
        first.append(timed_ms(overview.page, question.viewer, question.query))
    again: dict[str, list[tuple[float, float]]] = {question.name: [] for question in asked}
    for place in rng.permutation(len(asked) * rounds):
        question = asked[place % len(asked)]
        again[question.name].append(timed_ms(overview.page, question.viewer, question.query))
    plain = {}
    shown = overview.frame.select(*OVERVIEW_SCHEMA)
    for question in asked:
        if not question.query.search:
            plain[question.name] = timed_ms(plain_page, shown, question)
    every = [value for values in again.values() for value in values]
    cases = {
        name: {**percentiles(values), "plain_ms": plain[name][0] if name in plain else None} for name, values in again.items()
    }
    return {
        "jobs": jobs,
        "again": percentiles(every),
        "first": percentiles(first),
        "plain": percentiles(list(plain.values())),
        "frame_bytes": overview.frame.estimated_size(),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "load": os.getloadavg()[0],
        "cases": cases,
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores; asked: p99 of a page's request at most {LIMIT_MS:.0f} ms")
    result = measure(options.jobs, options.rounds)
    print(f"  load of the machine {result['load']:.1f}")
    for name, words in (("again", "the same again"), ("first", "first after a refresh"), ("plain", "plain sort().slice()")):
        part = result[name]
        spent = f"(CPU {part['cpu_p50_ms']:.1f} and {part['cpu_p99_ms']:.1f} ms)"
        print(
            f"  {words:24s} p50 {part['p50_ms']:7.1f} ms   p99 {part['p99_ms']:7.1f} ms {spent}   of {part['requests']} requests"
        )
    ratio = result["plain"]["p50_ms"] / result["again"]["p50_ms"]
    print(
        f"  {ratio:.1f} times as fast as the plain sort (p50); {result['frame_bytes'] / 1e6:,.0f} MB for {result['jobs']:,} jobs"
    )
    for name, part in sorted(result["cases"].items(), key=lambda case: -case[1]["p99_ms"])[:8]:
        peer = "" if part["plain_ms"] is None else f"   plain {part['plain_ms']:7.1f} ms"
        print(f"    {name:36s} p50 {part['p50_ms']:7.1f} ms   p99 {part['p99_ms']:7.1f} ms{peer}")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"python": platform.python_version(), "cores": os.cpu_count(), **result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
