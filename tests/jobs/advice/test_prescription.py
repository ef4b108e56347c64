"""Prescriptions: what helped after the last failure, a short test, an experiment; and nothing where a request is tight."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.jobs.advice.advice import Advice, advise
from stormpetrel.jobs.advice.kinds import find_kind
from stormpetrel.jobs.advice.outlook import OF_APPLICATION, OF_OTHERS, NeedEstimate, WaitEstimate
from stormpetrel.jobs.advice.prescription import Prescribed, prescribe, with_effects
from stormpetrel.jobs.advice.text import effect_text, need_texts, wait_texts
from stormpetrel.records.jobs import job_frame

T0 = datetime(2026, 1, 1, tzinfo=UTC)
NOW = T0 + timedelta(days=30)
GIB = 1 << 30


def run(number: int, state: str = "COMPLETED", *, gib: int = 8, elapsed_s: float = 600.0):
    submit = T0 + timedelta(hours=3 * number)
    return {
        "cluster": "c", "job_id": number + 1, "submit_time": submit, "restart": 0, "user": "ada", "job_name": "align",
        "req_cpus": 4, "cpus": 4, "req_nodes": 1, "nodes": 1, "req_mem_bytes": gib * GIB, "mem_bytes": gib * GIB,
        "max_rss_bytes": 2 * GIB, "start_time": submit, "end_time": submit + timedelta(seconds=elapsed_s), "state": state,
        "elapsed_s": elapsed_s, "exit_code": 1 if state == "FAILED" else 0, "time_limit_s": 7200.0, "work_dir": "/home/ada/align",
    }  # fmt: skip


def request(gib: int = 8) -> pl.DataFrame:
    later = ("start_time", "end_time", "elapsed_s", "max_rss_bytes", "cpus", "nodes", "mem_bytes")
    row = {name: value for name, value in run(200, gib=gib).items() if name not in later}
    return job_frame([row | {"submit_time": NOW, "state": "PENDING"}])


class Outlook:
    """An outlook whose estimates are set by the test."""

    def __init__(self, *, wait_s: float = 100.0, **needs: NeedEstimate) -> None:
        self._needs, self._wait_s = needs, wait_s

    def needs(self, job: pl.DataFrame) -> dict[str, NeedEstimate]:
        return self._needs

    def wait(self, job: pl.DataFrame) -> WaitEstimate:
        """In proportion to the memory that is asked for."""
        return WaitEstimate(self._wait_s * job["req_mem_bytes"].item() / GIB, 1e5)


def prescribed(past: list[dict], *, flagged: bool = True, outlook=None, gib: int = 8):
    jobs, job = job_frame(past), request(gib)
    kind = find_kind(job, jobs, now=NOW)
    advice = advise(job, jobs, now=NOW, kind=kind)
    return prescribe(job, outlook, Prescribed(advice, lambda: flagged, NOW, kind))


def memory(p90_gib: float, *, request_gib: int = 8, similar: int = 20, short: float = 0.0) -> NeedEstimate:
    half, most = p90_gib * GIB / 2, p90_gib * GIB
    return NeedEstimate("memory", request_gib * GIB, half, most, most, short, most, similar, "this user's jobs of this name")


def test_what_helped_after_the_same_failure_is_prescribed():
    pairs = [run(2 * k + odd, "COMPLETED" if odd else "OUT_OF_MEMORY", gib=32 if odd else 8) for k in range(6) for odd in (0, 1)]
    pieces, _ = prescribed([*pairs, run(40, "OUT_OF_MEMORY", gib=30)], gib=30)
    assert pieces[0].column == "req_mem_bytes" and pieces[0].proposed > 30 * GIB
    assert any("6 of the next tries completed" in fact for fact in pieces[0].evidence)


def test_without_anybody_who_tried_more_it_is_an_experiment():
    pieces, _ = prescribed([*(run(k) for k in range(6)), run(9, "TIMEOUT", elapsed_s=7200.0)])
    assert pieces[0].experiment and pieces[0].column == "time_limit_s" and pieces[0].proposed > 7200.0


def test_errors_that_come_early_are_met_by_a_short_test():
    failures = [run(k, "FAILED" if k % 2 else "COMPLETED", elapsed_s=100.0 if k % 2 else 3000.0) for k in range(12)]
    pieces, _ = prescribed(failures)
    assert pieces[0].experiment and pieces[0].proposed == 300.0 and "6 of your last 12 jobs" in pieces[0].evidence[0]
    assert not any(piece.experiment for piece in prescribed(failures, flagged=False)[0])


def test_a_short_test_is_not_judged_by_the_risk_of_ending_within_it():
    failures = [run(k, "FAILED" if k % 2 else "COMPLETED", elapsed_s=100.0 if k % 2 else 3000.0) for k in range(12)]
    pieces = with_effects(prescribed(failures)[0][:1], request(), None, lambda jobs: np.full(jobs.height, 0.5))
    assert [piece.risk_before for piece in pieces] == [None]


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (0.31, 0.37, "the model sees no gain (31% → 37%)"),
        (0.31, 0.312, "the model sees no difference (31% → 31%)"),
        (0.3, 0.1, "risk 30% → 10%"),
    ],
)
def test_a_risk_that_rises_is_not_called_no_difference(before, after, text):
    piece = Advice("time_limit_s", 1.0, 2.0, "x", (), 3, "user", risk_before=before, risk_after=after)
    assert effect_text(piece) == text


def test_a_job_that_runs_is_told_of_the_next_try_and_how_far_it_has_come():
    failures = job_frame([run(k, "FAILED" if k % 2 else "COMPLETED", elapsed_s=100.0 if k % 2 else 3000.0) for k in range(12)])
    job = request().with_columns(start_time=pl.lit(NOW - timedelta(hours=1)).cast(failures.schema["start_time"]))
    kind = find_kind(job, failures, now=NOW)
    pieces, _ = prescribe(job, None, Prescribed([], lambda: True, NOW, kind))
    assert "before the next try" in pieces[0].sentence
    assert pieces[0].evidence[1] == "this one has run for 1 h, longer than those"
    ended = job.with_columns(end_time=pl.lit(NOW - timedelta(minutes=59)).cast(failures.schema["end_time"]))
    pieces, _ = prescribe(ended, None, Prescribed([], lambda: True, NOW, kind))
    assert "before the next try" in pieces[0].sentence
    assert not any("has run for" in fact for fact in pieces[0].evidence)


def test_more_is_asked_for_only_where_a_run_of_the_same_work_came_near_the_request():
    far = replace(memory(9.0, short=0.2), typical=2.0 * GIB, most=3.0 * GIB)
    assert prescribed([run(k) for k in range(6)], flagged=False, outlook=Outlook(memory=far))[0] == []
    [near], _ = prescribed([run(k) for k in range(6)], flagged=False, outlook=Outlook(memory=replace(far, most=7.9 * GIB)))
    assert near.proposed == 12 * GIB and "half used up to 2 GB, the largest used up to 7.9 GB" in near.evidence[0]


def test_runs_that_ended_in_an_error_at_once_do_not_speak_for_less():
    short = NeedEstimate("time", 7200.0, 20.0, 100.0, 200.0, 0.0, 100.0, 20, "this user's jobs of this name", 20.0, 20.0)
    crashed, _ = prescribed([run(k, "FAILED", elapsed_s=20.0) for k in range(8)], outlook=Outlook(time=short))
    assert not any(piece.saves and piece.column == "time_limit_s" for piece in crashed)


@pytest.mark.parametrize(("p90_s", "is_saved"), [(7000.0, False), (1000.0, True)])
def test_a_shorter_limit_is_not_offered_where_the_forecast_needs_more(p90_s, is_saved):
    need = NeedEstimate("time", 7200.0, p90_s / 2, p90_s, p90_s, 0.05, p90_s, 20, "this user's jobs of this name")
    pieces, _ = prescribed([run(k) for k in range(15)], outlook=Outlook(time=need), flagged=False)
    assert any(piece.saves and piece.column == "time_limit_s" for piece in pieces) is is_saved


def test_a_request_that_is_tight_gets_a_note_and_no_advice():
    pieces, notes = prescribed([run(k) for k in range(6)], flagged=False, outlook=Outlook(memory=memory(6.0)))
    assert pieces == [] and notes == ["One in ten such jobs need 6 GB of memory or more: there is little to save."]


def test_unknown_work_gets_the_smallest_experiment():
    pieces, _ = prescribed([], outlook=Outlook(memory=memory(3.0, similar=0)))
    assert pieces[0].experiment and pieces[0].proposed == 4 * GIB and "Run one with 4 GB" in pieces[0].sentence


def test_an_experiment_changes_something_or_says_what_to_read():
    unsure, known = memory(206.0, request_gib=1, similar=0, short=0.4), memory(0.9, request_gib=1, similar=0, short=0.01)
    [more] = prescribed([], outlook=Outlook(memory=unsure), gib=1)[0][:1]
    assert more.proposed == 2 * GIB and "Run one with 2 GB of memory instead of 1 GB" in more.sentence
    [read] = prescribed([], outlook=Outlook(memory=known), gib=1)[0][:1]
    assert read.experiment and read.proposed is None and "sacct -j JOBID -o MaxRSS,Elapsed" in read.sentence


def test_where_nothing_is_known_it_says_so():
    pieces, notes = prescribed([], flagged=False, outlook=Outlook(memory=memory(206.0, request_gib=1, similar=0)), gib=1)
    assert "read what it used of memory: sacct -j JOBID" in pieces[0].sentence
    assert notes == ["Nothing like this job has run here yet: its need of memory is not known."]


@pytest.mark.parametrize(
    ("p90", "similar", "group", "known"),
    [
        (206, 0, OF_OTHERS, False),
        (0.9, 0, OF_OTHERS, True),
        (3, 0, OF_APPLICATION, True),
        (5, 0, OF_APPLICATION, False),
        (206, 1, "", True),
    ],
)
def test_others_jobs_tell_a_need_only_where_they_stay_near_the_request(p90, similar, group, known):
    need = replace(memory(p90, request_gib=1, similar=similar), group=group)
    assert need.is_known is known


def test_gpus_that_idle_are_saved_and_experiments_ask_for_none():
    gpus = NeedEstimate("gpus", 4.0, 0.5, 0.9, 1.2, 0.0, 1.0, 20, "this user's jobs of this name")
    pieces, _ = prescribed([run(k) for k in range(6)], flagged=False, outlook=Outlook(gpus=gpus))
    assert [(piece.column, piece.proposed, piece.saves) for piece in pieces] == [("req_gpus", 2, True)]
    assert pieces[0].sentence == "2 GPUs would do instead of 4 GPUs." and "kept up to 0.9 GPUs busy" in pieces[0].evidence[0]
    few, _ = prescribed([], outlook=Outlook(gpus=replace(gpus, similar=0)))
    assert not any(piece.column == "req_gpus" for piece in few)


def test_a_smaller_request_tells_risk_wait_and_core_hours():
    time = NeedEstimate("time", 7200.0, 3600.0, 5400.0, 7000.0, 0.0, 5400.0, 20, "this user's jobs of this name")
    outlook = Outlook(memory=memory(6.0, request_gib=64), time=time)
    pieces, _ = prescribed([run(k) for k in range(6)], outlook=outlook, gib=64)
    risks = iter([0.61, 0.09])
    [piece] = with_effects(pieces, request(64), outlook, lambda jobs: np.array([next(risks) for _ in range(jobs.height)]))
    assert piece.saves and piece.proposed == 6 * GIB and piece.core_hours_saved == pytest.approx(4 * (1 - 6 / 64), abs=1e-3)
    assert effect_text(piece) == "risk 61% → 9%, starts within 10 min instead of 1 h 47 min, 3.6 core-hours saved"


def test_cpus_that_idle_are_saved_with_evidence():
    cpus = NeedEstimate("cpus", 16.0, 2.5, 3.4, 4.0, 0.0, 3.6, 20, "this user's jobs of this name")
    time = NeedEstimate("time", 7200.0, 3600.0, 5400.0, 7000.0, 0.0, 5400.0, 20, "this user's jobs of this name")
    outlook = Outlook(cpus=cpus, time=time)
    job = request().with_columns(req_cpus=pl.lit(16, dtype=pl.Int64))
    jobs = job_frame([run(k) for k in range(6)])
    kind = find_kind(job, jobs, now=NOW)
    pieces, notes = prescribe(job, outlook, Prescribed([], lambda: False, NOW, kind))
    [piece] = with_effects(pieces, job, outlook, None)
    assert piece.saves and piece.proposed == 4 and piece.core_hours_saved == pytest.approx(12.0)
    assert piece.sentence == "4 CPUs would do instead of 16 CPUs." and "nine in ten kept up to 3.4 CPUs busy" in piece.evidence[0]
    assert notes == ["One in ten such jobs need 1 h 30 min of run time or more: there is little to save."]


def test_needs_and_start_are_told_in_a_line_each():
    assert need_texts({"memory": memory(6.0, short=0.2)}) == [
        "Memory: half such jobs need up to 3 GB, nine in ten up to 6 GB (it asks for 8 GB); more than it asks for with 20%"
    ]
    assert wait_texts(WaitEstimate(60.0, 3600.0, 30.0)) == [
        "Starts within 1 min (half of such jobs), 1 h (nine in ten) of its submission; it has waited for 30 s"
    ]
    assert wait_texts(WaitEstimate(0.0, 3600.0, 0.0)) == [
        "Starts at once (half of such jobs), within 1 h (nine in ten) of its submission"
    ]
    reason = "No estimate of the start: it is held."
    assert wait_texts(WaitEstimate(None, None, 0.0, reason)) == [reason]
