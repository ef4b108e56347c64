import pytest

from stormpetrel.records.states import (
    DEFAULT_FAILURE_STATES,
    FINISHED,
    UNFINISHED,
    JobState,
    cancelled_by,
    condor_state,
    pbs_state,
    slurm_state,
    swf_state,
)


@pytest.mark.parametrize(
    ("raw", "state"),
    [
        ("COMPLETED", JobState.COMPLETED),
        ("CANCELLED by 1000", JobState.CANCELLED),
        ("OUT_OF_ME+", JobState.OUT_OF_MEMORY),
        ("NODE_FAIL", JobState.NODE_FAIL),
        ("BOOT_FAIL", JobState.BOOT_FAIL),
        ("DEADLINE", JobState.DEADLINE),
        ("PREEMPTED", JobState.PREEMPTED),
        ("REQUEUED", JobState.REQUEUED),
        ("COMPLETING", JobState.RUNNING),
        ("TO", JobState.TIMEOUT),
        ("11", JobState.OUT_OF_MEMORY),
        ("PENDING,REQUEUED", JobState.REQUEUED),
        ("RUNNING,COMPLETING", JobState.RUNNING),
        ("timeout", JobState.TIMEOUT),
        ("FAILED by 1000", JobState.FAILED),
        ("CANCELLED+", JobState.CANCELLED),
        ("CANCELLED b+", JobState.CANCELLED),
        ("CANCELLED by 10+", JobState.CANCELLED),
        ("NODE_FAIL+", JobState.NODE_FAIL),
        ("OUT_OF_MEM", JobState.OUT_OF_MEMORY),
        ("COMPLETE", JobState.COMPLETED),
    ],
)
def test_slurm_words_have_one_meaning(raw, state):
    assert slurm_state(raw) is state


@pytest.mark.parametrize(
    "raw", ["", "NONSENSE", "C+", "99", "COMPLETED,NONSENSE", "²", "COMPLET+", "COMPLET", "RE", "EXPLODED by 1000", "EXPLODED+"]
)
def test_a_word_that_slurm_does_not_have_is_none(raw):
    assert slurm_state(raw) is None


def test_who_cancelled_is_told_apart_from_that_it_was_cancelled():
    assert (cancelled_by("CANCELLED by 4711"), cancelled_by("CANCELLED")) == ("4711", None)
    assert (cancelled_by("FAILED by 4711"), cancelled_by("CANCELLED by 4+")) == (None, None)


def test_swf_has_six_states_and_unknown():
    assert [swf_state(raw) for raw in ("1", "0", "5", "-1", "7")] == [
        JobState.COMPLETED,
        JobState.FAILED,
        JobState.CANCELLED,
        JobState.UNKNOWN,
        None,
    ]


def test_pbs_exit_status_tells_failure_from_signal_and_from_the_server():
    assert [pbs_state(code) for code in (0, 1, 271, 265, -4, -10)] == [
        JobState.COMPLETED,
        JobState.FAILED,
        JobState.CANCELLED,
        JobState.CANCELLED,
        JobState.NODE_FAIL,
        JobState.OUT_OF_MEMORY,
    ]


def test_a_condor_job_that_exited_non_zero_failed():
    assert condor_state("4", exit_code=0, exited_by_signal=False) is JobState.COMPLETED
    assert condor_state("4", exit_code=2, exited_by_signal=False) is JobState.FAILED
    assert condor_state("4", exit_code=None, exited_by_signal=True) is JobState.FAILED
    assert condor_state("3", exit_code=None, exited_by_signal=False) is JobState.CANCELLED


def test_every_state_is_finished_or_not():
    assert set(JobState) == FINISHED | UNFINISHED
    assert not FINISHED & UNFINISHED
    assert set(DEFAULT_FAILURE_STATES) <= FINISHED
