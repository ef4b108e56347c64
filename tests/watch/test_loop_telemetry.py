"""The first two minutes of CPU traces in the live loop: learnt, and used at the moment that a job is judged."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import numpy as np
import polars as pl

from stormpetrel.jobs.moments import Moment
from stormpetrel.lifecycle.job_models import load_models, train_job_models
from stormpetrel.records.jobs import JOB_SCHEMA
from stormpetrel.records.window_frames import JOB_START_SCHEMA
from stormpetrel.watch.loop import Watch
from tests.answers.live_sites import put_jobs
from tests.builders import make_site
from tests.jobs.logs import make_log

STEPS = 30


def windows_of(jobs, iowait):
    """Four windows of 30 s of one thread for each job, the last of them beyond the two minutes and full of iowait."""
    rows = [
        {
            "cluster": job["cluster"], "trace": "live", "split": None, "node": f"n{number}", "cpu": 0, "step_s": 1.0,
            "window_start": job["start_time"] + timedelta(seconds=5 + STEPS * part), "job_id": str(job["job_id_raw"]),
            "job_type": "", "user": [0.1] * STEPS, "system": [0.0] * STEPS,
            "iowait": [float(share) if part < 3 else 0.9] * STEPS, "anomalous": None, "of_threads": 1,
        }
        for number, (job, share) in enumerate(zip(jobs.iter_rows(named=True), iowait, strict=True))
        for part in range(4)
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=JOB_START_SCHEMA)


def test_a_running_job_is_judged_by_what_its_threads_did_in_its_first_two_minutes(tmp_path):
    past = make_log(1200).filter(pl.col("start_time").is_not_null()).with_columns(job_id_raw=pl.col("job_id"))
    failed = (past["state"] != "COMPLETED").to_numpy()
    waits = np.where(failed, 0.7, 0.1) + 0.05 * np.random.default_rng(0).random(past.height)
    with make_site(tmp_path / "site", traces={"window_s": float(STEPS)}) as site:
        put_jobs(site, past)
        site.job_starts.append(windows_of(past, waits))
        end = past["end_time"].max() + timedelta(hours=1)
        site.now = lambda: end
        train_job_models(site, [Moment.TWO_MINUTES])
        model = load_models(site, moments=[Moment.TWO_MINUTES]).models[Moment.TWO_MINUTES]
        assert "telemetry.iowait_mean" in model.names_
        started = end + timedelta(minutes=1)
        ids = pl.Series([900_001, 900_002])
        running = {"end_time": None, "elapsed_s": None, "exit_code": None, "state": pl.lit("RUNNING")}
        times = {"submit_time": pl.lit(end + timedelta(seconds=30)), "start_time": pl.lit(started)}
        fresh = pl.concat([past.tail(1), past.tail(1)]).with_columns(job_id=ids, job_id_raw=ids, **times, **running)
        put_jobs(site, fresh.cast({name: JOB_SCHEMA[name] for name in fresh.columns if name in JOB_SCHEMA}))
        site.job_starts.append(windows_of(fresh, [0.72, 0.12]))
        until = started + timedelta(seconds=121)
        reader = SimpleNamespace(read=lambda: SimpleNamespace(until=until, problem=None))
        watch = Watch(site, reader=reader)
        site.predictions.begin(end)
        step = watch.step()
        rows = step.predictions.filter(pl.col("moment") == "2min").sort("job_id")
    assert rows["job_id"].to_list() == [900_001, 900_002]
    assert rows["risk"][0] > rows["risk"][1] + 0.3
