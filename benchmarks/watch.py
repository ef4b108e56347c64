"""What a turn of the watch costs on a site of a million jobs, beside sweeping the whole history anew for it.

`python -m benchmarks.watch [--jobs N] [--looks N] [--pause S]`: simulated jobs, repeated under other names; the last hours come
look by look, as a scheduler would tell them. `read` is the commit of what changed, `judge` everything after it. Results in
benchmarks/results/watch.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.jobs import repeated, simulated
from stormpetrel.config import settings_from
from stormpetrel.ingest.commit import commit_jobs
from stormpetrel.jobs.predictor import known_by
from stormpetrel.lifecycle.job_models import enter_job_models, fit_job_models
from stormpetrel.lifecycle.live import open_stream
from stormpetrel.records.jobs import JOB_SCHEMA, KEY, VALUES, field_mask
from stormpetrel.store.site import Site, create_site
from stormpetrel.watch.loop import Watch
from stormpetrel.watch.reading import Read

RESULTS = Path(__file__).parent / "results" / "watch.json"
LIMIT_S = 10.0  # asked: from a moment to its prediction
TICK = timedelta(microseconds=1)
_LEARNT = 100_000


class Replay:
    """A reader that commits what a scheduler would show at each look."""

    def __init__(self, site: Site, jobs: pl.DataFrame, looks: Iterator[datetime]) -> None:
        self.site, self.jobs, self.looks = site, jobs, looks
        self.last = next(looks)
        self.seconds = 0.0

    def read(self) -> Read:
        """Commit what has changed since the last look."""
        now = next(self.looks)
        shown, before = known_by(self.jobs, now + TICK), known_by(self.jobs, self.last + TICK)
        changed = shown.join(before.select(*KEY, "state"), on=[*KEY, "state"], how="anti", nulls_equal=True)
        started = time.perf_counter()
        commit(self.site, changed, now)
        self.seconds = time.perf_counter() - started
        self.last = now
        return Read(now, changed.height)


def commit(site: Site, jobs: pl.DataFrame, now: datetime) -> None:
    rows = jobs.select(list(JOB_SCHEMA)).with_row_index("line").with_columns(pl.col("line").cast(pl.Int64))
    marks = rows.select(*KEY, "state").hash_rows(seed=1).reinterpret(signed=True)
    commit_jobs(site.jobs, rows.with_columns(fingerprint=marks), fields=field_mask(frozenset(VALUES)), as_of=now)


def made_site(folder: Path, jobs: pl.DataFrame, now: datetime) -> Site:
    """A site that holds what was known at a moment, with models of its latest jobs."""
    site = create_site(folder, settings_from({"watch": {"address": ""}}))
    commit(site, known_by(jobs, now), now)
    recent = known_by(jobs, now).sort("submit_time").tail(_LEARNT)
    enter_job_models(site, fit_job_models(site, until=now, jobs=recent), promoted_by="benchmark", why="a benchmark")
    return site


def measure(rows: int, looks: int, pause_s: float) -> dict[str, float]:
    jobs = repeated(simulated(), rows).sort("submit_time")
    end: datetime = jobs["submit_time"].max()  # type: ignore[assignment]
    now = end - timedelta(seconds=looks * pause_s + 600)
    with tempfile.TemporaryDirectory() as folder, made_site(Path(folder) / "site", jobs, now) as site:
        site.predictions.begin(now)
        started = time.perf_counter()
        open_stream(site, horizon=now, began=now)
        anew_s = time.perf_counter() - started
        reader = Replay(site, jobs.filter(pl.col("end_time") > now - timedelta(days=1)), _looks(now, pause_s, looks))
        watch = Watch(site, reader)  # type: ignore[arg-type]
        first = watch.step().seconds
        turns, reads, said = [], [], 0
        for _ in range(looks - 1):
            step = watch.step()
            turns.append(step.seconds)
            reads.append(reader.seconds)
            said += step.predictions.height
    judged = np.array(turns) - np.array(reads)
    return {
        "jobs": rows,
        "looks": looks - 1,
        "pause_s": pause_s,
        "predictions": said,
        "start_s": first,
        "turn_p50_s": float(np.median(turns)),
        "turn_p99_s": float(np.quantile(turns, 0.99)),
        "read_p50_s": float(np.median(reads)),
        "judge_p50_s": float(np.median(judged)),
        "judge_p99_s": float(np.quantile(judged, 0.99)),
        "sweep_anew_s": anew_s,
        "judge_to_sweep_anew": float(np.median(judged)) / anew_s,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def _looks(start: datetime, pause_s: float, count: int) -> Iterator[datetime]:
    return (start + timedelta(seconds=pause_s * number) for number in range(count + 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--looks", type=int, default=120)
    parser.add_argument("--pause", type=float, default=30.0, help="seconds between two looks; the watch's own is 5")
    asked = parser.parse_args()
    result = measure(asked.jobs, asked.looks, asked.pause)
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "polars": pl.__version__, "load": os.getloadavg()[0]}
    RESULTS.write_text(json.dumps({"machine": machine, "limit_s": LIMIT_S, **result}, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
