"""When will it start: Slurm's own `squeue --start` beside our wait, recorded from a small load on a real Slurm.

python -m benchmarks.slurm_start --record LOAD     starts a Slurm of its own (as the tests do), keeps what it said
python -m benchmarks.slurm_start                   judges what was kept; writes benchmarks/results/slurm_start.json

Jobs sleep for seconds and ask for minutes, as users do. Slurm's estimate is the first that it gives of a job, our p50 and p90
come from a model that is trained anew every tenth of the log on what was known; judged is its second half, jobs that Slurm
gave an estimate of. Two small loads on one machine: they say how the two differ in kind, not by how much on a site.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel.jobs.wait.evaluation import judge
from stormpetrel.jobs.wait.training import WaitTraining, last_of_shape, queue_log
from stormpetrel.records.jobs import job_frame

RECORDED: Final = Path(__file__).parent / "recorded"
RESULT: Final = Path(__file__).parent / "results" / "slurm_start.json"
SEED: Final = 5
POLL_S: Final = 2.0
_CPUS_IN_ALL: Final = 8


@dataclass(frozen=True, slots=True)
class Load:
    """A load: who sleeps for how long (s), on how many CPUs, and asks for how many minutes; how busy that makes the nodes."""

    applications: tuple[tuple[int, int, int, int], ...]
    busy: float
    jobs: int

    @property
    def core_s(self) -> float:
        """Core-seconds of a job on average."""
        return sum((low + high) / 2 * cpus for low, high, cpus, _ in self.applications) / len(self.applications)


LOADS: Final = {
    # Limits of 12 to 75 times the run time, in a queue that grows for as long as jobs come.
    "loose limits": Load(((2, 6, 1, 1), (4, 10, 2, 3), (8, 20, 4, 5), (3, 8, 1, 10)), 1.05, 400),
    # Limits of two to four times the run time, as on most sites, and a queue that comes and goes.
    "usual limits": Load(((10, 30, 1, 1), (20, 45, 2, 2), (15, 35, 4, 1), (20, 50, 1, 3)), 0.9, 150),
}
_NO_TIME: Final = ("", "N/A", "Unknown", "None")


def file_of(load: str) -> Path:
    """Where a load is kept."""
    return RECORDED / f"slurm_start_{load.replace(' ', '_')}.csv"


def record(name: str) -> None:
    """Submit a load to a real Slurm, and keep when each job was submitted and started, and what Slurm had said of it first."""
    from tests.parts.slurm import RealSlurm

    load, rng = LOADS[name], Random(SEED)
    estimates: dict[str, tuple[float, str]] = {}
    submitted: dict[str, tuple[int, int, int]] = {}
    with RealSlurm(nodes=2, cpus=4, settings={"SchedulerParameters": "bf_interval=2,bf_resolution=1"}) as slurm:
        polled = 0.0

        def poll() -> int:
            nonlocal polled
            polled = time.time()
            rows = slurm.command("squeue", "--noheader", "--start", "--states=PENDING", "--format=%i|%S").splitlines()
            for row in rows:
                job, start = row.split("|")
                if start not in _NO_TIME:
                    estimates.setdefault(job, (polled, start))
            return len(rows)

        for _ in range(load.jobs):
            shortest, longest, cpus, minutes = rng.choice(load.applications)
            sleep_s = rng.uniform(shortest, longest)
            number = slurm.submit(
                f"--cpus-per-task={cpus}", f"--time={minutes}", f"--job-name=app{cpus}-{minutes}", f"--wrap=sleep {sleep_s:.1f}"
            )
            submitted[str(number)] = (cpus, minutes, round(sleep_s))
            until = time.time() + rng.expovariate(load.busy * _CPUS_IN_ALL / load.core_s)
            while time.time() < until:
                if time.time() - polled >= POLL_S:
                    poll()
                time.sleep(0.1)
        while poll():
            time.sleep(POLL_S)
        time.sleep(60.0)  # the last ones end, and accounting hears of it
        rows = slurm.command(
            "sacct", "-a", "-n", "-P", "-X", "-S", "now-1day", "-o", "JobID,JobName,Submit,Start,End,State"
        ).splitlines()
    kept = []
    for row in rows:
        job, name, submit, start, end, state = row.split("|")
        if job in submitted and state == "COMPLETED":
            at, estimate = estimates.get(job, (None, None))
            cpus, minutes, _ = submitted[job]
            kept.append(
                (
                    int(job),
                    name,
                    cpus,
                    60 * minutes,
                    submit,
                    start,
                    end,
                    estimate,
                    None if at is None else datetime.fromtimestamp(at).isoformat(timespec="seconds"),
                )
            )
    names = ["job", "name", "cpus", "limit_s", "submit", "start", "end", "slurm_start", "slurm_said_at"]
    pl.DataFrame(kept, schema=names, orient="row").sort("job").write_csv(file_of(name))


def judge_recorded(name: str) -> dict[str, Any]:
    """Pinball loss and coverage of Slurm's estimate, of ours and of the last 20 of the same shape, on the same jobs."""
    rows = pl.read_csv(file_of(name)).with_columns(
        pl.col("submit", "start", "end", "slurm_start").str.to_datetime("%Y-%m-%dT%H:%M:%S", time_zone="UTC")
    )
    records: list[dict[str, object]] = [
        {
            "cluster": "petrel", "job_id": row["job"], "submit_time": row["submit"], "restart": 0, "user": "root",
            "job_name": row["name"], "start_time": row["start"], "end_time": row["end"], "state": "COMPLETED",
            "elapsed_s": (row["end"] - row["start"]).total_seconds(), "time_limit_s": float(row["limit_s"]),
            "req_cpus": row["cpus"], "cpus": row["cpus"], "partition": "batch",
        }
        for row in rows.sort("submit", "job").iter_rows(named=True)
    ]  # fmt: skip
    jobs = job_frame(records)
    log = queue_log(jobs)
    training = WaitTraining(log)
    ours = np.full((jobs.height, 2), np.nan)
    cuts = np.quantile(log.table.submit, np.arange(0.4, 1.0 - 1e-9, 0.1))
    for cut, until in zip(cuts, [*cuts[1:], np.inf], strict=True):
        training.fit_at(float(cut))
        at, quantiles_s = training.advance(float(until))
        ours[at] = quantiles_s
    said = dict(zip(rows["job"], rows["slurm_start"], strict=True))
    estimate_s = np.array(
        [_seconds(said[job], submit) for job, submit in zip(log.jobs["job_id"], log.jobs["submit_time"], strict=True)]
    )
    wait_s = log.table.wait_s
    judged = ~np.isnan(estimate_s) & ~np.isnan(ours[:, 0]) & (log.table.submit >= np.quantile(log.table.submit, 0.5))
    slurm = np.stack([estimate_s, estimate_s], axis=1)
    return {
        "recorded": rows.height,
        "with_an_estimate_of_slurm": int((~np.isnan(estimate_s)).sum()),
        "median_wait_s": float(np.median(wait_s[judged])),
        "median_slurm_s": float(np.median(estimate_s[judged])),
        "stormpetrel": judge(ours[judged], wait_s[judged]).as_json(),
        "slurm_start": judge(slurm[judged], wait_s[judged]).as_json(),
        "last_20_same_shape": judge(last_of_shape(log.readings)[judged], wait_s[judged]).as_json(),
    }


def _seconds(start: datetime | None, submit: datetime) -> float:
    return np.nan if start is None else max(0.0, (start - submit).total_seconds())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", choices=LOADS, help="record a load anew, on a real Slurm that is started for it")
    given = parser.parse_args()
    if given.record:
        record(given.record)
    answer = {name: judge_recorded(name) for name in LOADS if file_of(name).exists()}
    RESULT.write_text(json.dumps(answer, indent=1) + "\n")
    print(json.dumps(answer, indent=1))


if __name__ == "__main__":
    main()
