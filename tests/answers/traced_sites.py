"""Sites with CPU traces: a simulated campaign, scores made up from its windows, and people whose jobs ran on some threads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl

from stormpetrel.answers.live_site import LiveSite
from stormpetrel.records.window_frames import SLIDING_SCORE_SCHEMA, TRACE_SCORE_SCHEMA, WINDOW_KEY, frame_of
from stormpetrel.records.windows import Windows, cut_windows
from stormpetrel.simulate.telemetry.campaigns import CampaignSpec, simulate_campaign
from stormpetrel.store.site import Site
from stormpetrel.traces.promise import Calm, Promise
from tests.answers.live_sites import put_jobs
from tests.jobs.logs import made_jobs

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
CLUSTER = "c1"
THRESHOLD = 0.02
ADA_JOBS, KIM_JOBS = (1001, 1003, 1005), (1002, 1004)  # of the simulated campaign; the others are in no job table
MODEL = "traces-vanilla"


def campaign(*, name: str = "monday", nodes: int = 3, threads: int = 16, minutes: float = 12, seed: int = 0) -> pl.DataFrame:
    """The windows of a simulated campaign."""
    spec = CampaignSpec(name=name, nodes=nodes, threads_per_node=threads, minutes=minutes, seed=seed, start_s=START.timestamp())
    return frame_of(cut_windows(simulate_campaign(spec)), cluster=CLUSTER)


def scores_of(windows: pl.DataFrame, *, version: int = 1) -> pl.DataFrame:
    """Scores as a model would give them: high where there is iowait."""
    iowait, user = pl.col("iowait").list.mean(), pl.col("user").list.mean()
    made = windows.select(
        *WINDOW_KEY,
        "split",
        "job_id",
        "job_type",
        window_s=pl.col("user").list.len() * pl.col("step_s"),
        model=pl.lit(MODEL),
        model_version=pl.lit(version),
        score=0.002 + 0.2 * iowait + 0.001 * user,
        flagged=pl.lit(False),
        x=3 * iowait - user,
        y=pl.col("system").list.mean() * 4 + 0.1 * user,
        max_iowait=pl.col("iowait").list.max(),
        bad_io_distance=4 * (1 - iowait),
        stands_for=pl.lit(None),
        region=pl.lit(None),
        embedding=pl.lit(None),
    )
    return made.with_columns(flagged=pl.col("score") > THRESHOLD).cast(TRACE_SCORE_SCHEMA)


def put_people(site: Site) -> None:
    """Ada's and Kim's jobs, which ran while the campaign did."""
    rows = [
        {
            "cluster": CLUSTER, "job_id": number, "job_id_raw": number, "user": user, "job_name": f"{user}-app",
            "state": "RUNNING", "submit_time": START - timedelta(minutes=5), "start_time": START - timedelta(minutes=1),
            "end_time": None,
        }
        for user, numbers in (("ada", ADA_JOBS), ("kim", KIM_JOBS))
        for number in numbers
    ]  # fmt: skip
    put_jobs(site, made_jobs(*rows))


@dataclass
class MeanScorer:
    """Draws every window as its own mean: a stand-in for a network."""

    calls: int = 0
    settings: Any = field(default_factory=lambda: SimpleNamespace(steps=100))

    def reconstruct(self, windows: Windows) -> Any:
        self.calls += 1
        mean = windows.rates.mean(axis=1, keepdims=True)
        return np.repeat(mean, windows.steps, axis=1)


def stand_in_model(*_: object, **__: object) -> Any:
    """In the place of `load_trace_model`."""
    no_levels = {
        "detector": None,
        "hierarchy": None,
        "is_shipped": False,
        "regions": (),
        "step_s": 1.0,
        "title": f"{MODEL} version 1",
    }
    promise = Promise(0.001, 0.001, THRESHOLD, Calm(9000, 9000, 9.0))
    return SimpleNamespace(scorer=MeanScorer(), threshold=THRESHOLD, promise=promise, name=MODEL, version=1, **no_levels)


def sliding_row(
    start: datetime, node: str, above: int, *, job: str | None = None, since: datetime | None = None, cpu: int | None = 3
) -> dict[str, Any]:
    """What a span of 50 s of eight threads came to, half of them above where any is; 64 threads where no node is named."""
    threads = 8 if node else 64
    return {
        "cluster": CLUSTER, "trace": "live", "node": node, "window_start": start, "window_s": 50.0, "job_id": job, "job_type": "",
        "model": MODEL, "model_version": 1, "threads": threads, "scored": threads * 50, "above": above,
        "threads_above": min(above, threads // 2), "peak": 3.0, "cpu": cpu if node else None, "above_since": since,
    }  # fmt: skip


def put_sliding(site: Site, rows: Iterable[dict[str, Any]]) -> None:
    """Rows of nodes into the table, and one of all nodes together for each of their spans."""
    rows = list(rows)
    sums: dict[datetime, int] = {}
    for row in rows:
        sums[row["window_start"]] = sums.get(row["window_start"], 0) + row["above"]
    together = [sliding_row(start, "", above) for start, above in sums.items()]
    named = [row for row in rows if row["node"]]
    if together:
        site.sliding_scores.append(pl.DataFrame([*together, *named], schema=SLIDING_SCORE_SCHEMA))


def make_live(site: Site, windows: pl.DataFrame | None = None, scores: pl.DataFrame | None = None) -> LiveSite:
    """A site with these windows and scores, in memory."""
    if windows is not None:
        put_windows(site, windows)
    if scores is not None:
        site.trace_scores.append(scores)
    live = LiveSite(site)
    live.refresh()
    return live


def put_windows(site: Site, windows: pl.DataFrame) -> None:
    """Windows into the table."""
    site.cpu_windows.commit(windows)
