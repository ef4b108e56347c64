"""Faults put into job records: whom they hit, and that the rest stays as it was."""

from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.records.nodes import expand_nodes
from stormpetrel.rehearse.site.job_faults import JOB_FAULTS, JobFaults, choose_job_fault, put_into_jobs
from stormpetrel.simulate.cluster import ClusterSpec, simulate

SPEC = ClusterSpec(nodes=12, days=21, load=0.7, seed=4)
AT = SPEC.start + timedelta(days=15, hours=10)


@pytest.fixture(scope="module")
def jobs():
    return pl.concat(simulate(SPEC))


def put(jobs, kind, severity="severe", seed=1):
    fault = choose_job_fault(jobs, kind, severity, AT, np.random.default_rng(seed))
    assert fault is not None
    return put_into_jobs(jobs, fault)


def hit_rows(before, after):
    return after.filter((after["state"] != before["state"]) | (after["end_time"] != before["end_time"]).fill_null(False))


@pytest.mark.parametrize("kind", JOB_FAULTS)
def test_a_fault_changes_only_jobs_of_its_time(jobs, kind):
    after, fault = put(jobs, kind)
    changed = hit_rows(jobs, after)
    assert changed.height == fault.hit > 0
    assert changed["end_time"].min() >= fault.since
    untouched = after.filter(pl.col("end_time") < fault.since)
    assert untouched.equals(jobs.filter(pl.col("end_time") < fault.since))


def test_jobs_on_a_node_that_eats_jobs_fail_within_two_minutes(jobs):
    after, fault = put(jobs, "node_eats_jobs")
    rows = hit_rows(jobs, after)
    (node,) = fault.nodes
    assert all(node in expand_nodes(text) for text in rows["node_list"])
    assert set(rows["state"]) == {"FAILED"} and (rows["end_time"] - rows["start_time"]).max() < timedelta(minutes=2)


def test_a_milder_fault_hits_fewer_of_the_same_jobs(jobs):
    mild, severe = (put(jobs, "timeout_wave", severity)[1] for severity in ("mild", "severe"))
    assert 0 < mild.hit < severe.hit and mild.jobs <= severe.jobs


def test_the_same_jobs_are_hit_whatever_else_is_known(jobs):
    _, whole = put(jobs, "storage_gone")
    part, _ = jobs.filter(pl.col("job_id") % 2 == 0), None
    _, half = put_into_jobs(part, whole)
    assert half.jobs < whole.jobs and half.hit == sum(int(ref.split("-")[0].split("_")[0]) % 2 == 0 for ref in whole.jobs)


def test_whom_a_fault_hits_does_not_depend_on_what_comes_later(jobs):
    known = jobs.filter(pl.col("start_time") < AT).with_columns(
        state=pl.when(pl.col("end_time") > AT).then(pl.lit("RUNNING")).otherwise("state"),
        end_time=pl.when(pl.col("end_time") <= AT).then("end_time"),
    )
    for kind in JOB_FAULTS:
        early, late = (choose_job_fault(frame, kind, "moderate", AT, np.random.default_rng(5)) for frame in (known, jobs))
        assert early == late


def test_nothing_starts_while_the_scheduler_is_stalled(jobs):
    after, fault = put(jobs, "scheduler_stalled")
    inside = (pl.col("start_time") >= fault.since) & (pl.col("start_time") < fault.until)
    assert jobs.filter(inside).height == fault.hit and not after.filter(inside).height
    assert (after["end_time"] - after["start_time"]).equals(jobs["end_time"] - jobs["start_time"])


def test_a_fault_that_would_hit_nobody_is_not_put_in(jobs):
    faults = JobFaults(jobs)
    quiet = SPEC.start + timedelta(days=400)
    assert all(faults.put(kind, "severe", quiet, np.random.default_rng(0)) is None for kind in JOB_FAULTS)
    assert faults.jobs is jobs
