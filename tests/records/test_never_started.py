from stormpetrel.records.jobs import job_frame, never_started, was_never_started
from tests.builders import T0


def verdict(**columns: object) -> bool:
    row = {"cluster": "c", "job_id": 1, "submit_time": T0, "restart": 0, **columns}
    job = job_frame([row])
    said = bool(job.select(never_started()).item())
    assert was_never_started(job.row(0, named=True)) == said
    return said


def test_a_job_cancelled_while_it_waited_never_started():
    assert verdict(state="CANCELLED")
    assert verdict(state="CANCELLED", elapsed_s=0.0, end_time=T0)
    assert verdict(state="VANISHED")


def test_a_job_that_ran_was_started_whatever_became_of_it():
    assert not verdict(state="CANCELLED", start_time=T0, elapsed_s=0.0)
    assert not verdict(state="COMPLETED")


def test_a_job_that_still_waits_is_not_over():
    assert not verdict(state="PENDING")
    assert not verdict(state=None)


def test_a_log_without_start_times_still_tells_that_its_jobs_ran():
    assert not verdict(state="CANCELLED", elapsed_s=30.0)
