"""Did a job run on a disturbed host? The public FlowBench workflows, whose hosts were given fewer CPUs or a slower disk.

`STORMPETREL_DATA=… python -m benchmarks.alarm_hosts`: ROC of `disturbed_hosts.py` over the compute jobs of two workflows,
beside the rules "robust z of the job's run time" and "its mean over the host in the run". The rules have medians of all runs, the
score looks at earlier runs only. The form of the score is chosen on one workflow and judged on the other. Spread: bootstrap
over runs. Within runs: the jobs of a run are compared with each other only, so that nothing that changed
from week to week helps. Results in benchmarks/results/alarm_hosts.json.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from benchmarks.disturbed_hosts import MEASURES, disturbed

RESULTS: Final = Path(__file__).parent / "results" / "alarm_hosts.json"
WORKFLOWS: Final = ("smili", "imaging")
RESAMPLES: Final = 300
COLUMNS: Final = {
    "kickstart_hostname": "host", "runtime": "elapsed_s", "kickstart_online_stime": "system_cpu_s", "execute_end": "at",
}  # fmt: skip

Floats = npt.NDArray[np.float64]


def jobs_of(workflow: str) -> pl.DataFrame:
    """The compute jobs of all runs of a workflow: which task, where, when, how long, and whether the host was disturbed."""
    path = Path(os.environ["STORMPETREL_DATA"]) / "events" / f"flowbench_eht_{workflow}.zip"
    with zipfile.ZipFile(path) as archive:
        runs = [
            pl.read_csv(io.BytesIO(archive.read(name)), infer_schema=False)
            .rename({"": "task"})
            .with_columns(together=pl.lit(name))
            for name in sorted(archive.namelist())
        ]
    jobs = pl.concat(runs, how="diagonal").filter(pl.col("type") == "compute").rename(COLUMNS)
    numbers = [pl.col(name).cast(pl.Float64, strict=False) for name in ("at", "elapsed_s", "system_cpu_s")]
    return jobs.select("task", "host", "together", *numbers, bad=pl.col("anomaly_type") != "None", how="anomaly_type")


def rules(jobs: pl.DataFrame) -> dict[str, Floats]:
    """The two rules to beat."""
    value = pl.col("elapsed_s").log1p()
    usual = value.median().over("task")
    spread = 1.4826 * (value - usual).abs().median().over("task").clip(0.01)
    scored = jobs.with_columns(z=(value - usual) / spread).with_columns(mean=pl.col("z").mean().over("together", "host"))
    return {"z of the job": scored["z"].to_numpy(), "mean z of the host": scored["mean"].to_numpy()}


def forms(jobs: pl.DataFrame) -> dict[str, Floats]:
    """Ways to make one score of the two measures: one of them missing, or either direction."""
    blank = pl.lit(None, dtype=pl.Float64)
    alone = {name: jobs.with_columns(blank.alias(other)) for name, other in zip(MEASURES, reversed(MEASURES), strict=True)}
    longer, less = (disturbed(alone[name])["disturbed"].to_numpy() for name in MEASURES)
    return {
        "run time": longer,
        "run time and less system CPU": disturbed(jobs)["disturbed"].to_numpy(),
        "distance": np.hypot(longer, less),
    }


def roc(bad: npt.NDArray[np.bool_], score: Floats) -> float:
    """The area under the curve, ties counted half."""
    from scipy.stats import rankdata

    ranks, ones = rankdata(score), int(bad.sum())
    return float((ranks[bad].sum() - ones * (ones + 1) / 2) / (ones * (bad.size - ones)))


def within(jobs: pl.DataFrame, score: Floats) -> float:
    """The mean over runs that have both of the area among the jobs of the run."""
    areas = []
    for part in jobs.with_columns(score=pl.Series(score)).partition_by("together"):
        bad = part["bad"].to_numpy()
        if 0 < bad.sum() < bad.size:
            areas.append(roc(bad, part["score"].to_numpy()))
    return float(np.mean(areas))


def gain(jobs: pl.DataFrame, score: Floats, rule: Floats, seed: int = 0) -> tuple[float, float]:
    """The 95 % range of how much the score's area exceeds the rule's, over resampled runs."""
    rng, bad = np.random.default_rng(seed), jobs["bad"].to_numpy()
    rows = jobs.with_row_index("row").group_by("together", maintain_order=True).agg("row")["row"].to_list()
    gains = []
    for _ in range(RESAMPLES):
        picked = np.concatenate([rows[run] for run in rng.integers(0, len(rows), len(rows))])
        gains.append(roc(bad[picked], score[picked]) - roc(bad[picked], rule[picked]))
    low, high = np.quantile(gains, [0.025, 0.975])
    return float(low), float(high)


def main() -> None:
    """Both workflows; print the figures, write them down."""
    jobs = {name: jobs_of(name) for name in WORKFLOWS}
    scores = {name: forms(frame) for name, frame in jobs.items()}
    answer: dict[str, Any] = {}
    for name, other in zip(WORKFLOWS, reversed(WORKFLOWS), strict=True):
        bad = jobs[name]["bad"].to_numpy()
        areas = {form: roc(jobs[other]["bad"].to_numpy(), score) for form, score in scores[other].items()}
        chosen = max(areas, key=lambda form: areas[form])
        score, peers = scores[name][chosen], rules(jobs[name])
        calm = (jobs[name]["how"] == "None").to_numpy()
        low, high = gain(jobs[name], score, peers["mean z of the host"])
        answer[name] = {
            "jobs": bad.size,
            "disturbed": round(float(bad.mean()), 3),
            "form_chosen_on_the_other": chosen,
            "roc": round(roc(bad, score), 3),
            "roc_within_runs": round(within(jobs[name], score), 3),
            "roc_by_kind": {
                kind: round(roc(bad[mask], score[mask]), 3)
                for kind in ("cpu", "hdd")
                for mask in [calm | jobs[name]["how"].str.starts_with(kind).to_numpy()]
            },
            "rules": {rule: round(roc(bad, value), 3) for rule, value in peers.items()},
            "rules_within_runs": {rule: round(within(jobs[name], value), 3) for rule, value in peers.items()},
            "gain_over_mean_z": [round(low, 3), round(high, 3)],
            "all_forms": {form: round(roc(bad, value), 3) for form, value in scores[name].items()},
        }
    RESULTS.write_text(json.dumps(answer, indent=1) + "\n")
    print(json.dumps(answer, indent=1))


if __name__ == "__main__":
    main()
