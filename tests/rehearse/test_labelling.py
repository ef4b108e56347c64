"""Labels from the campaign's own record."""

import numpy as np
import pytest

from stormpetrel.errors import SourceFormatError
from stormpetrel.records.traces import NO_JOB, UNKNOWN_JOB, Split, Trace, TraceJob
from stormpetrel.rehearse.campaign_files import compare_with_exporter, label_trace, summary_by_type
from stormpetrel.rehearse.plan import JobKind, PlannedJob
from stormpetrel.rehearse.running import JobRecord

IDLE_STEP = (0.0, 0.0, 0.0, 1.0)


def make_recording(steps=40, cpus=(0, 1, 2), jobs=(), job=None):
    rates = np.tile(np.array(IDLE_STEP, dtype=np.float32), (steps, len(cpus), 1))
    told = np.full((steps, len(cpus)), NO_JOB, dtype=np.int32) if job is None else job
    time_s = 1000.0 + np.arange(1, steps + 1)
    return Trace("live", 1.0, time_s, ("n1",) * len(cpus), cpus, rates, told, jobs)


def make_record(start, end, *, cpus=(0,), kind=JobKind.NP, job_id="c.1", died=None, codes=(0,)):
    job = PlannedJob(job_id, kind, cpus, 0)
    return JobRecord(job, 1000.0 + start, 1000.0 + (died or end), 1000.0 + (died or end), 1000.0 + end, codes)


def label(recording, *records, cpus=(0, 1)):
    return label_trace(recording, records, name="train-1", split=Split.TRAIN, node="n1", cpus=cpus)


def test_a_job_is_labelled_between_its_guards_and_unknown_within_them():
    job = label(make_recording(), make_record(10, 20)).job[:, 0]
    assert (job[:8] == NO_JOB).all()  # until 1008
    assert (job[8:12] == UNKNOWN_JOB).all()
    assert (job[12:18] == 0).all()  # 1012 to 1018
    assert (job[18:22] == UNKNOWN_JOB).all()
    assert (job[22:] == NO_JOB).all()


def test_a_start_in_the_middle_of_a_step_is_on_the_safe_side():
    job = label(make_recording(), make_record(10.4, 20.6)).job[:, 0]
    assert list(np.flatnonzero(job == 0)) == list(range(13, 18))  # whole steps inside 1012.4 to 1018.6
    assert list(np.flatnonzero(job == UNKNOWN_JOB)) == [*range(8, 13), *range(18, 23)]


def test_a_thread_beside_a_job_stays_idle():
    labelled = label(make_recording(), make_record(10, 20))
    assert (labelled.job[:, 1] == NO_JOB).all()


def test_threads_that_the_campaign_did_not_use_are_left_out():
    assert label(make_recording(), make_record(10, 20)).cpus == (0, 1)
    assert label(make_recording(), make_record(10, 20, cpus=(2,)), cpus=(2, 0)).cpus == (2, 0)


def test_jobs_that_follow_each_other_do_not_lose_their_middle():
    job = label(make_recording(), make_record(10, 20), make_record(20, 30, job_id="c.2")).job[:, 0]
    assert (job[12:18] == 0).all() and (job[18:22] == UNKNOWN_JOB).all() and (job[22:28] == 1).all()


def test_after_a_job_died_its_thread_is_unknown_until_its_time_would_have_been_over():
    job = label(make_recording(), make_record(10, 30, died=18, codes=(1,))).job[:, 0]
    assert (job[12:16] == 0).all()
    assert (job[16:32] == UNKNOWN_JOB).all()
    assert (job[32:] == NO_JOB).all()


def test_an_mpi_job_has_all_its_threads():
    labelled = label(make_recording(), make_record(10, 20, cpus=(0, 1), kind=JobKind.MPI))
    assert labelled.jobs == (TraceJob("c.1", "MPI 2"),)
    assert (labelled.job[12:18] == 0).all()


def test_a_machine_that_was_not_recorded_is_named():
    with pytest.raises(SourceFormatError, match="no CPU 7 of the node 'n1'"):
        label(make_recording(), make_record(10, 20, cpus=(7,)), cpus=(7,))


def test_a_recording_that_is_mostly_gaps_is_refused():
    recording = make_recording()
    recording.rates[5:] = np.nan
    with pytest.raises(SourceFormatError, match="Only 12% of the steps"):
        label(recording, make_record(10, 20))


def test_what_the_exporter_said_is_compared_where_we_are_sure():
    told = np.full((40, 3), NO_JOB, dtype=np.int32)
    told[12:18, 0] = 0  # the same job
    told[13, 0] = 1  # another one
    told[14, 0] = UNKNOWN_JOB  # could not tell
    told[8:12, 0] = 1  # within the guard: does not count
    recording = make_recording(jobs=(TraceJob("c.1"), TraceJob("99")), job=told)
    ours = label(recording, make_record(10, 20))
    assert compare_with_exporter(ours, recording) == {"steps_compared": 72, "agree": 70, "disagree": 1, "not_told": 1}


def test_the_summary_counts_steps_that_were_seen_and_gives_their_mean_modes():
    recording = make_recording()
    recording.rates[12:18, 0] = (0.5, 0.25, 0.25, 0.0)
    recording.rates[12, 0] = np.nan
    table = summary_by_type(label(recording, make_record(10, 20)))
    assert table["NP"] == {"thread_steps": 5, "user": 0.5, "system": 0.25, "iowait": 0.25, "other": 0.0}
    assert table["unknown"]["thread_steps"] == 8
    assert table["Idle"]["other"] == 1.0
