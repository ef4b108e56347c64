"""What forecasts about jobs cost, beside what their parts cost on their own; and whether they hold when users and requests go.

`python -m benchmarks.jobs [--only fit single batch growth drift] [--rows N] [--calls N] [--sizes N …] [--logs NAME …]`. Each part
is replaced on its own in benchmarks/results/jobs.json, `--sizes` and `--logs` those cases only. With STORMPETREL_DATA set, fit,
single and batch take the public Curie log, else simulated jobs; drift needs it for KTH. growth draws docs/figures/jobs-growth.svg
by CPU time, which other programs on the machine change less than the clock's; both are written.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cache
from importlib.metadata import version
from itertools import pairwise
from math import ceil, floor, log10
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from stormpetrel.jobs.exam.baselines import xgboost_untuned
from stormpetrel.jobs.exam.evaluation import evaluate
from stormpetrel.jobs.features import features_at
from stormpetrel.jobs.history.history import History
from stormpetrel.jobs.model import JobOutcomeModel
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.predictor import JobPredictor
from stormpetrel.jobs.profiles import with_profile
from stormpetrel.jobs.training import LabelledJobs, TrainingSettings, fit_at, label_jobs, train
from stormpetrel.learn.threads import wait_politely
from stormpetrel.simulate.cluster import ClusterSpec, simulate
from stormpetrel.sources.formats import ReadOptions
from stormpetrel.sources.reading import read_log

wait_politely()  # before XGBoost is first imported
RESULTS = Path(__file__).parent / "results" / "jobs.json"
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "jobs-growth.svg"
CURIE, KTH = "jobs/CEA-Curie-2011-2.1-cln.swf.gz", "jobs/KTH-SP2-1996-2.1-cln.swf.gz"
FIT_LIMIT_S = 90.0  # asked of 300,000 jobs, on two quiet cores
SINGLE_LIMIT_MS = 20.0  # asked of the 99th percentile
BATCH_LIMIT = 50_000  # jobs a second asked, features included
QUIET = 1.0  # load average above which times are not those of a quiet machine
SIMULATED = 100_000  # jobs made by the simulator; more are repeats of them
COSTS = ("features_s", "features_cpu_s", "features_peak_bytes", "fit_s", "fit_cpu_s", "fit_peak_bytes")
SIZES = (30_000, 100_000, 300_000, 1_000_000, 3_000_000)
RENAMED_FROM = 0.60  # quantile of submission: the first cut of the rolling protocol
DRIFTS = ("plain", "renamed", "no-requests", "renamed-no-requests")
REQUESTS = ("req_cpus", "req_nodes", "req_gpus", "req_mem_bytes", "time_limit_s", "req_tres", "submit_line")


def read(path: str) -> pl.DataFrame:
    folder = os.environ.get("STORMPETREL_DATA")
    if not folder:
        sys.exit("Set STORMPETREL_DATA to the folder of public logs.")
    return read_log([str(Path(folder) / path)], None, ReadOptions()).jobs


def simulated() -> pl.DataFrame:
    return pl.concat(simulate(ClusterSpec(nodes=100, jobs=SIMULATED, days=None))).sort("submit_time")


def repeated(jobs: pl.DataFrame, rows: int) -> pl.DataFrame:
    """The log again and again, whole weeks later and under other names: each repeat brings new users to the same applications."""
    days = 7 * ceil((jobs["submit_time"].max() - jobs["submit_time"].min()) / timedelta(days=7))  # type: ignore[operator]
    parts = [
        jobs.with_columns(
            pl.col("submit_time", "eligible_time", "start_time", "end_time") + timedelta(days=days * repeat),
            job_id=pl.col("job_id") + repeat * 10 * SIMULATED,
            user=pl.col("user") + f"-{repeat}",
        )
        for repeat in range(ceil(rows / jobs.height))
    ]
    return pl.concat(parts, rechunk=True).head(rows)


@cache
def many_jobs(rows: int) -> tuple[str, pl.DataFrame, TrainingSettings]:
    """The first `rows` jobs of a log, its name, and what counts as a failure in it."""
    if os.environ.get("STORMPETREL_DATA"):
        return "CEA-Curie-2011", read(CURIE).head(rows), TrainingSettings(("FAILED",), ("CANCELLED",))
    return "simulated, repeated", repeated(simulated(), rows), TrainingSettings()


@cache
def trained(rows: int) -> tuple[JobOutcomeModel, LabelledJobs]:
    """The model at submission that single and batch share."""
    _, jobs, settings = many_jobs(rows)
    models, labelled = train(jobs, settings, [Moment.SUBMIT])
    return models[Moment.SUBMIT], labelled


def warm_up(jobs: pl.DataFrame, settings: TrainingSettings) -> float:
    """Imports and compiled functions, so that what is timed afterwards is the work; the seconds it took."""
    return seconds(lambda: train(jobs.head(5_000), settings))


def fit(options: argparse.Namespace) -> dict[str, Any]:
    """From the table to fitted models of all three moments; the peer is untuned XGBoost on fifteen ready columns."""
    log, jobs, settings = many_jobs(options.rows)
    warm_up_s, cpu = warm_up(jobs, settings), time.process_time()
    steps: list[tuple[str, float]] = []
    _, labelled = train(jobs, settings, progress=lambda step: steps.append((step, time.perf_counter())))
    steps.append(("", time.perf_counter()))
    cpu_s, peak = time.process_time() - cpu, peak_bytes()
    ready = labelled.features[Moment.SUBMIT].rows(labelled.usable)
    peer = seconds(lambda: xgboost_untuned(ready, labelled.failed[labelled.usable], ready))
    steps_s = {step: later - began for (step, began), (_, later) in pairwise(steps)}
    total = sum(steps_s.values())
    return {
        "log": log, "jobs": jobs.height, "features": len(ready.names), "warm_up_s": warm_up_s, "steps_s": steps_s,
        "total_s": total, "cpu_s": cpu_s, "peak_bytes": peak, "untuned_xgboost_s": peer,
        "ratios": {"model at submit / untuned xgboost": steps_s["model at submit"] / peer},
        "asked": f"total_s at most {FIT_LIMIT_S:.0f}", "holds": total <= FIT_LIMIT_S,
    }  # fmt: skip


def single(options: argparse.Namespace) -> dict[str, Any]:
    """One forecast with its reasons, history included; the peer is XGBoost's own forecast and contributions of a ready row."""
    import xgboost

    model, labelled = trained(options.rows)
    log, known, _ = many_jobs(options.rows)
    coming = many_jobs(options.rows + options.calls)[1].slice(options.rows)
    if coming.height < options.calls:
        sys.exit(f"{log} has {known.height + coming.height:,} jobs: ask for fewer --rows or --calls.")
    predictor = JobPredictor({Moment.SUBMIT: model}, labelled.profiles, known, now=coming["submit_time"][0])
    # As they are seen at submission: nothing of the start or the end.
    coming = coming.with_columns(*empty(coming, ("start_time", "end_time", "elapsed_s", "node_list")), state=pl.lit("PENDING"))
    spent = np.empty((options.calls, 2))
    for call, now in enumerate(coming["submit_time"]):
        job = coming[call : call + 1]
        began = time.perf_counter()
        predictor.judge(job, Moment.SUBMIT, now)
        spent[call, 0] = time.perf_counter() - began
        ready = predictor.features(job, Moment.SUBMIT, now).values
        began = time.perf_counter()
        row = xgboost.DMatrix(ready, nthread=1)
        model._risk.predict(row)
        model._risk.predict(row, pred_contribs=True)
        spent[call, 1] = time.perf_counter() - began
    ours, peer = ({f"p{q}_ms": float(np.percentile(spent[:, k], q) * 1e3) for q in (50, 99)} for k in (0, 1))
    return {
        "log": log, "history": known.height, "calls": options.calls, "judge": ours, "xgboost_ready_row": peer,
        "ratios": {f"judge / xgboost ready row, {q}": ours[f"{q}_ms"] / peer[f"{q}_ms"] for q in ("p50", "p99")},
        "asked": f"judge p99_ms at most {SINGLE_LIMIT_MS:.0f}", "holds": ours["p99_ms"] <= SINGLE_LIMIT_MS,
    }  # fmt: skip


def batch(options: argparse.Namespace) -> dict[str, Any]:
    """Forecasts of every job of a log by a trained model, profile, history and features included, as `jobs predict` makes them.

    The peer joins one column, the user's failure rate. `labels and new profiles` is what a training does before it fits.
    """
    log, jobs, settings = many_jobs(options.rows)
    model, labelled = trained(options.rows)
    ended = labelled.jobs.select("user", "end_time").with_columns(failed=labelled.failed).filter(labelled.usable).sort("end_time")

    def predicted() -> object:
        history = History(settings.failure_states, settings.dropped_states)
        return model.predict_proba(features_at(with_profile(jobs, labelled.profiles), history, [Moment.SUBMIT])[Moment.SUBMIT])

    work: dict[str, Callable[[], object]] = {
        "stormpetrel": predicted,
        "stormpetrel, labels and new profiles": lambda: label_jobs(jobs, settings, [Moment.SUBMIT]),
        "polars join_asof, user rate": lambda: polars_user_rate(labelled.jobs, ended),
    }
    rates = {case: jobs.height / seconds(do) for case, do in work.items()}
    columns, peer = len(labelled.features[Moment.SUBMIT].names), rates["polars join_asof, user rate"]
    ratios = {"jobs/s: stormpetrel / polars join_asof": rates["stormpetrel"] / peer}
    ratios["values/s: stormpetrel / polars join_asof"] = columns * rates["stormpetrel"] / peer
    return {
        "log": log, "jobs": jobs.height, "features": columns, "jobs_per_second": rates, "ratios": ratios,
        "asked": f"stormpetrel at least {BATCH_LIMIT:,} jobs_per_second", "holds": rates["stormpetrel"] >= BATCH_LIMIT,
    }  # fmt: skip


def polars_user_rate(jobs: pl.DataFrame, ended: pl.DataFrame) -> pl.DataFrame:
    """Each user's failure rate among the jobs that had ended, by a join in time: one key, one column."""
    rated = ended.with_columns(rate=pl.col("failed").cum_sum().over("user") / pl.col("failed").cum_count().over("user"))
    return jobs.select("user", "submit_time").join_asof(
        rated, left_on="submit_time", right_on="end_time", by="user", allow_exact_matches=False, check_sortedness=False
    )


def growth(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds and peak memory by the number of jobs, at submission, each size in a process of its own."""
    known = {case["jobs"]: case for case in stored().get("growth", {}).get("cases", [])} if options.sizes else {}
    with tempfile.TemporaryDirectory(prefix="stormpetrel-bench-") as folder:
        log = Path(folder) / "jobs.parquet"
        simulated().write_parquet(log)
        for size in options.sizes or SIZES:
            case = ["--case", str(size), str(log), str(options.fit_up_to)]
            load = os.getloadavg()[0]
            done = subprocess.run([sys.executable, "-m", "benchmarks.jobs", *case], check=True, capture_output=True, text=True)
            known[size] = {**json.loads(done.stdout.splitlines()[-1]), "load_before": load}
    cases = [known[size] for size in sorted(known)]
    FIGURE.write_text(growth_svg(cases))
    return {"log": "simulated, repeated", "moment": "submit", "cases": cases, "exponents": exponents(cases)}


def exponents(cases: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """How each cost grows from the smallest size to the largest that has it: 1 is linear."""
    found = {name: [case for case in cases if name in case] for name in COSTS}
    pairs = {name: (some[0], some[-1]) for name, some in found.items() if len(some) > 1}
    return {name: log10(z[name] / a[name]) / log10(z["jobs"] / a["jobs"]) for name, (a, z) in pairs.items()}


def growth_case(size: int, log: Path, fit_up_to: int) -> None:
    """One size in this process. `fit_s` includes the features; a fit takes at most `most_rows` jobs, the most recent ones."""
    settings, base = TrainingSettings(), pl.read_parquet(log)
    warm_up(base, settings)
    jobs = repeated(base, size)
    case: dict[str, float] = {"jobs": jobs.height, "table_bytes": jobs.estimated_size(), "before_peak_bytes": peak_bytes()}
    began, cpu = time.perf_counter(), time.process_time()
    labelled = label_jobs(jobs, settings, [Moment.SUBMIT])
    case |= {"features_s": time.perf_counter() - began, "features_cpu_s": time.process_time() - cpu}
    case["features_peak_bytes"] = peak_bytes()
    if size <= fit_up_to:
        model = fit_at(labelled, Moment.SUBMIT, labelled.reached(Moment.SUBMIT), settings)
        case |= {"fit_s": time.perf_counter() - began, "fit_cpu_s": time.process_time() - cpu, "fit_rows": model.n_train_}
        case["fit_peak_bytes"] = peak_bytes()
    print(json.dumps(case))


def growth_svg(cases: Sequence[Mapping[str, float]]) -> str:
    """Two panels on logarithmic axes; grey and colours (Okabe–Ito) that can be read on white and on black."""
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 330" font-family="sans-serif" font-size="12" fill="#777">']
    for left, title, names, unit in (
        (60, "CPU time, seconds", ("features_cpu_s", "fit_cpu_s"), 1.0),
        (420, "Peak memory of the process, GB", ("features_peak_bytes", "fit_peak_bytes"), 1e9),
    ):
        xs = {case["jobs"]: left + 270 * (log10(case["jobs"]) - 4) / 3 for case in cases}
        lines = [[(xs[case["jobs"]], log10(case[name] / unit)) for case in cases if name in case] for name in names]
        heights = [y for line in lines for _, y in line]
        low, high = floor(min(heights)), ceil(max(heights))
        parts.append(f'<text x="{left}" y="18" font-size="14">{title}</text>')
        for decade in range(low, high + 1):
            y = 260 - 220 * (decade - low) / (high - low)
            parts.append(f'<path d="M{left} {y:.0f}h270" stroke="#777" stroke-opacity=".4"/>')
            parts.append(f'<text x="{left - 6}" y="{y + 4:.0f}" text-anchor="end">{10.0**decade:g}</text>')
        for size, x in xs.items():
            parts.append(f'<path d="M{x:.0f} 40v220" stroke="#777" stroke-opacity=".2"/>')
            parts.append(f'<text x="{x:.0f}" y="276" text-anchor="middle">{size / 1e3:,g}</text>')
        parts.append(f'<text x="{left + 135}" y="294" text-anchor="middle">thousand jobs</text>')
        for line, colour in zip(lines, ("#0072B2", "#D55E00"), strict=True):
            points = [(x, 260 - 220 * (y - low) / (high - low)) for x, y in line]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in points]
    for x, colour, words in ((60, "#0072B2", "features"), (160, "#D55E00", "features and fit")):
        parts.append(f'<path d="M{x} 316h24" stroke="{colour}" stroke-width="2.5"/><text x="{x + 30}" y="320">{words}</text>')
    return "\n".join([*parts, "</svg>", ""])


def drift(options: argparse.Namespace) -> dict[str, Any]:
    """KTH with other users from the first cut on, without requests, and both: model against the user's rate and last outcome."""
    plain = read(KTH)
    late = pl.col("submit_time") >= plain["submit_time"].quantile(RENAMED_FROM)
    renamed = plain.with_columns(user=pl.when(late).then(pl.col("user") + "-renamed").otherwise("user"))
    changed = (plain, renamed, plain.with_columns(empty(plain, REQUESTS)), renamed.with_columns(empty(plain, REQUESTS)))
    logs = dict(zip(DRIFTS, changed, strict=True))
    cases: dict[str, Any] = stored().get("drift", {}).get("cases", {}) if options.logs else {}
    for name in options.logs or DRIFTS:
        result = evaluate(logs[name], TrainingSettings(("FAILED",)), moments=[Moment.SUBMIT], protocol="rolling").as_json()
        at = {"model": result["at"]["submit"]["model"], **result["at"]["submit"]["baselines"]}
        areas = {who: {area: at[who][area] for area in ("roc_auc", "pr_auc")} for who in ("model", "user_rate", "last_outcome")}
        holds = all(areas["model"][area] >= areas["user_rate"][area] for area in ("roc_auc", "pr_auc"))
        cases[name] = {**areas, "holds": holds, "notes": result["notes"]}
    holds = all(case["holds"] for case in cases.values())
    return {"log": "KTH-SP2-1996", "protocol": "rolling", "cases": cases, "asked": "model at least user_rate", "holds": holds}


def empty(jobs: pl.DataFrame, columns: Sequence[str]) -> list[pl.Expr]:
    return [pl.lit(None, jobs.schema[name]).alias(name) for name in columns]


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def stored() -> dict[str, Any]:
    return dict(json.loads(RESULTS.read_text())["pieces"]) if RESULTS.exists() else {}


def show(name: str, value: object, depth: int = 0) -> None:
    """A result as indented lines."""
    if not isinstance(value, dict | list):
        print(f"{'  ' * depth + name:<48}" + (f"{value:,.4g}" if isinstance(value, float) else f"{value}"))
        return
    print("  " * depth + name)
    for key, inner in value.items() if isinstance(value, dict) else ((f"{n + 1}", inner) for n, inner in enumerate(value)):
        show(key, inner, depth + 1)


def main() -> None:
    """Measure, print, write."""
    pieces = {piece.__name__: piece for piece in (fit, single, batch, growth, drift)}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(pieces), default=list(pieces))
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--calls", type=int, default=2_000)
    parser.add_argument("--sizes", type=int, nargs="+", help="measure the growth at these sizes and keep the others")
    parser.add_argument("--fit-up-to", type=int, default=SIZES[-1], help="larger sizes measure the features alone")
    parser.add_argument("--logs", choices=DRIFTS, nargs="+", help="measure the drift of these and keep the others")
    parser.add_argument("--case", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        growth_case(int(options.case[0]), Path(options.case[1]), int(options.case[2]))
        return
    versions = {name: version(name) for name in ("stormpetrel", "polars", "xgboost-cpu", "numba", "numpy")}
    about = {"python": platform.python_version(), "cores": os.cpu_count(), "versions": versions}
    for name in options.only:
        load = os.getloadavg()[0]
        result = {**pieces[name](options), "load_before": load, "quiet": load <= QUIET}
        show(name, result)
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps({**about, "pieces": {**stored(), name: result}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
