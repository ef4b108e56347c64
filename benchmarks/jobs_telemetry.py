"""What the first two minutes of CPU traces add to the risk of a job at `2min`: an ablation on the simulated site.

python -m benchmarks.jobs_telemetry [--seeds 10] [--days 12] -> benchmarks/results/jobs_telemetry.json

Each seed: a simulated cluster; the CPU traces of all its nodes, three days at a time; the first window of each job (of the
default length) scored by the shipped encoder, in a site; then the model at `2min` judged on the last fifth of the jobs (split by
time), the same jobs: without the columns `telemetry_…` and with them. Two sites are measured, since how a failing job shows
itself is ours to make up: `as simulated`, where jobs that fail fall silent, hang or swap for the last part of their run only
(mostly after the two minutes), and `early`, where half of the jobs that fail wait for their files from the first second on. The
second only shows that what is there is found.
Seeds with too few failures to learn from are left out and named.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from stormpetrel.config import Settings
from stormpetrel.errors import NotEnoughJobsError
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.training import LabelledJobs, TrainingSettings, fit_risk_at, label_jobs
from stormpetrel.learn.metrics import pr_auc, roc_auc
from stormpetrel.lifecycle.job_telemetry import with_telemetry
from stormpetrel.lifecycle.trace_models import load_trace_model
from stormpetrel.lifecycle.window_scoring import score_frame
from stormpetrel.records.traces import IOWAIT, OTHER, USER, Trace
from stormpetrel.records.window_frames import job_start_frame
from stormpetrel.records.windows import job_start_windows, start_steps
from stormpetrel.simulate.cluster import ClusterSpec, simulate
from stormpetrel.store.site import Site, create_site
from stormpetrel.synth.writers.traces import TracedSpan, job_traces

RESULTS = Path(__file__).parent / "results" / "jobs_telemetry.json"
NODES, CORES, SPAN_DAYS = 4, 8, 3
WINDOW = 100  # seconds
SIMULATED, EARLY = "as simulated", "early"


def starts_only(trace: Trace, jobs: pl.DataFrame) -> list[Trace]:
    """The pieces of a trace around the starts of jobs: nothing else can be seen at `2min`, and the rest costs hours to cut."""
    began = np.unique(jobs["start_time"].dt.epoch("s").to_numpy())
    first = trace.time_s[0]
    wanted = np.zeros(trace.steps, dtype=bool)
    for start in began[(began >= first - 1) & (began < trace.time_s[-1])]:
        place = int(start - first)
        wanted[max(0, place - 5) : place + 150] = True
    edges = np.flatnonzero(np.diff(np.r_[False, wanted, False]))
    pieces = []
    for low, high in zip(edges[::2], edges[1::2], strict=True):
        part = slice(low, high)
        pieces.append(replace(trace, time_s=trace.time_s[part], rates=trace.rates[part], job=trace.job[part]))
    return pieces


def made_early(trace: Trace, jobs: pl.DataFrame, rng: np.random.Generator) -> Trace:
    """The same trace with half of the failing jobs waiting for files: what is user time becomes iowait, four fifths of it."""
    bad = jobs.filter(~pl.col("state").is_in(["COMPLETED", "CANCELLED"]))["job_id_raw"].cast(pl.String).to_list()
    sick = {job for job in bad if rng.random() < 0.5}
    of_sick = np.array([*(job.job_id in sick for job in trace.jobs), False, False, False])[trace.job]  # (steps, threads)
    rates = trace.rates.copy()
    moved = np.where(of_sick, 0.8 * rates[..., USER], 0.0)
    rates[..., USER] -= moved
    rates[..., IOWAIT] += moved
    rates[..., OTHER] = 1 - rates[..., :OTHER].sum(axis=2)
    return replace(trace, rates=rates)


def put_windows(sites: dict[str, Site], jobs: pl.DataFrame, seed: int) -> None:
    """Traces of the whole time, cut around the starts of jobs, scored and kept in both sites."""
    first, last = jobs["start_time"].min(), jobs["start_time"].max()
    assert isinstance(first, datetime) and isinstance(last, datetime)
    until = first + timedelta(days=SPAN_DAYS)
    while until < last + timedelta(days=SPAN_DAYS):
        span = TracedSpan(until, CORES, hours=24.0 * SPAN_DAYS, nodes=NODES, seed=seed)
        traces = job_traces(jobs, span).traces
        for name, site in sites.items():
            frames = []
            for trace in traces:
                changed = made_early(trace, jobs, np.random.default_rng(seed)) if name == EARLY else trace
                steps, count = start_steps(WINDOW, trace.step_s)
                pieces = starts_only(changed, jobs)
                windows = [job_start_windows(piece, steps=steps, count=count) for piece in pieces]
                frames += [job_start_frame(part, cluster="petrel") for part in windows if len(part)]
            rows = pl.concat(frames).unique(["node", "cpu", "window_start"]).with_columns(trace=pl.lit("live"))
            site.job_starts.append(rows)
            site.job_start_scores.append(score_frame(load_trace_model(site, threads=1), rows.drop("of_threads")))
        until += timedelta(days=SPAN_DAYS)


def judged(labelled: LabelledJobs, seed: int) -> dict[str, float]:
    """ROC and PR area at `2min` on the jobs after the 80 % quantile of submission; what ended after it is not learnt from."""
    rows = labelled.reached(Moment.TWO_MINUTES)
    cut = np.quantile(labelled.submit[rows], 0.8)
    train, test = rows & (labelled.end < cut), rows & (labelled.submit > cut)
    features = labelled.features[Moment.TWO_MINUTES]
    model = fit_risk_at(labelled, Moment.TWO_MINUTES, train, TrainingSettings(seed=seed))
    risk, truth = model.risk(features.rows(test)), labelled.failed[test]
    learnt = sum(name.startswith("telemetry.") for name in model.names_)
    return {"roc_auc": float(roc_auc(truth, risk) or np.nan), "pr_auc": float(pr_auc(truth, risk) or np.nan), "columns": learnt}


def one_seed(seed: int, days: float) -> dict[str, dict[str, Any]]:
    """The forecasts of one simulated cluster, with and without telemetry of both kinds."""
    jobs = pl.concat(simulate(ClusterSpec(nodes=NODES, cores_per_node=CORES, days=days, seed=seed)))
    chosen, found = TrainingSettings(seed=seed), {}
    without = judged(label_jobs(jobs, chosen, [Moment.TWO_MINUTES]), seed)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        settings = Settings.model_validate({"traces": {"window_s": float(WINDOW)}})
        sites = {name: opened.enter_context(create_site(Path(folder) / name, settings)) for name in (SIMULATED, EARLY)}
        put_windows(sites, jobs, seed)
        for name, site in sites.items():
            labelled = label_jobs(with_telemetry(site, jobs), chosen, [Moment.TWO_MINUTES])
            found[name] = {
                "jobs": int(labelled.reached(Moment.TWO_MINUTES).sum()),
                "seen": float(
                    labelled.jobs["telemetry_threads"].is_not_null().to_numpy()[labelled.reached(Moment.TWO_MINUTES)].mean()
                ),
                "without": without,
                "with": judged(labelled, seed),
            }
    return found


def main() -> None:
    """Both sites, all seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--days", type=float, default=12.0)
    chosen = parser.parse_args()
    rows: dict[str, list[dict[str, Any]]] = {SIMULATED: [], EARLY: []}
    for seed in range(1, 3 * chosen.seeds):
        if len(rows[EARLY]) == chosen.seeds:
            break
        try:
            both = one_seed(seed, chosen.days)
        except NotEnoughJobsError as error:  # a small site may have hardly a failure
            print(f"seed {seed} is left out: {error}", flush=True)
            continue
        for name, row in both.items():
            rows[name].append(row)
            print(seed, name, json.dumps(row), flush=True)
        results = {name: summary(found) for name, found in rows.items()}
        RESULTS.write_text(json.dumps({"days": chosen.days, "window_s": WINDOW, "sites": results}, indent=1) + "\n")
    print(json.dumps(results, indent=1))


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation over the seeds, without telemetry and with it, and of the difference."""

    def spread(values: list[float]) -> dict[str, float]:
        return {"mean": float(np.mean(values)), "std": float(np.std(values)), "n": len(values)}

    found: dict[str, Any] = {name: spread([row[name] for row in rows]) for name in ("jobs", "seen")}
    for way in ("without", "with"):
        found[way] = {figure: spread([row[way][figure] for row in rows]) for figure in ("roc_auc", "pr_auc", "columns")}
        for figure in ("roc_auc", "pr_auc"):
            found[way][f"{figure}_gain"] = spread([row[way][figure] - row["without"][figure] for row in rows])
    return found


if __name__ == "__main__":
    main()
