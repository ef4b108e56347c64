"""The ledger of a dry run: settled when jobs end, by what they held, and by nothing that is not over yet."""

from dataclasses import replace
from datetime import timedelta

import polars as pl
import pytest

from stormpetrel.jobs.cancel_policy import cancel_curve, policy_at
from stormpetrel.records.actions.acts import Act, ActState, Mode
from stormpetrel.records.actions.policies import Action
from stormpetrel.records.jobs import JOB_SCHEMA, JobRef, job_frame
from stormpetrel.records.states import DEFAULT_FAILURE_STATES
from stormpetrel.watch.actions.ledger import NEEDED, is_drain_due, settle_drain, settle_jobs, with_costs
from tests.builders import T0

HOUR = 3600.0
ACTED = T0 + timedelta(minutes=15)  # a quarter of an hour in


def act(action=Action.CANCEL, job_id=7, **more):
    subject = "n017" if action == Action.DRAIN else str(JobRef("c1", job_id, None, T0, 0))
    values = {
        "key": f"k{job_id}", "policy": "p", "digest": "d", "mode": Mode.DRY, "action": action, "cluster": "c1",
        "subject": subject, "user": "ada", "by": "policy:p", "decided": ACTED, "evidence": {}, "state": ActState.DRY,
        "node": "n017",
    }  # fmt: skip
    return Act(**(values | more))


def job(state="FAILED", *, job_id=7, hours=1.0, start=T0, cpus=4, nodes="n017"):
    end = None if state == "RUNNING" else start + timedelta(hours=hours)
    return {
        "cluster": "c1", "job_id": job_id, "array_task": None, "submit_time": T0, "restart": 0, "state": state,
        "start_time": start, "end_time": end, "elapsed_s": hours * HOUR if end else None, "cpus": cpus,
        "node_list": nodes, "source": "sacct",
    }  # fmt: skip


def frame(*rows):
    return with_costs(job_frame(list(rows)).select(NEEDED), DEFAULT_FAILURE_STATES)


def settled(one, *rows, now=T0 + timedelta(days=2)):
    return settle_jobs([one], frame(*rows), now)


def hours(one):
    return one.saved_core_s / HOUR, one.lost_core_s / HOUR, one.redo_core_s / HOUR


@pytest.mark.parametrize(
    ("action", "state", "outcome", "figures"),
    [
        (Action.CANCEL, "FAILED", "right", (3.0, 0.0, 0.0)),
        (Action.CANCEL, "COMPLETED", "wrong", (0.0, 3.0, 1.0)),
        (Action.CANCEL, "CANCELLED", "neither", (0.0, 0.0, 0.0)),
        (Action.REQUEUE, "NODE_FAIL", "right", (3.0, 0.0, 0.0)),
        (Action.REQUEUE, "COMPLETED", "wrong", (0.0, 0.0, 1.0)),
        (Action.NOTIFY, "TIMEOUT", "right", (0.0, 0.0, 0.0)),
    ],
)
def test_of_a_job_of_four_core_hours_three_come_after_the_act(action, state, outcome, figures):
    (one,) = settled(act(action), job(state))
    assert (one.outcome, hours(one)) == (outcome, figures)


def test_a_hold_saves_all_that_a_failed_job_held_and_delays_all_of_one_that_completed():
    held = replace(act(Action.HOLD), decided=T0 - timedelta(minutes=1))
    assert hours(settled(held, job("FAILED"))[0]) == (4.0, 0.0, 0.0)
    assert hours(settled(held, job("COMPLETED"))[0]) == (0.0, 4.0, 0.0)


def test_a_job_that_runs_or_ends_later_than_now_settles_nothing():
    assert settled(act(), job("RUNNING")) == []
    assert settled(act(), job("FAILED"), now=T0 + timedelta(minutes=59)) == []


def test_a_job_of_which_nothing_more_is_heard_is_neither_after_two_months():
    assert settled(act(), now=T0 + timedelta(days=50)) == []
    assert [one.outcome for one in settled(act(), now=T0 + timedelta(days=70))] == ["neither"]


def test_a_drain_is_settled_by_the_day_after_it_and_by_jobs_that_started_on_that_node():
    later = ACTED + timedelta(hours=1)
    rows = (
        job("FAILED", job_id=1, start=later), job("FAILED", job_id=2, start=later, nodes="n[016-017]"),
        job("COMPLETED", job_id=3, start=later, nodes="n[017-018]"), job("FAILED", job_id=4, start=later, nodes="n018"),
        job("FAILED", job_id=5, start=T0), job("FAILED", job_id=6, start=later + timedelta(days=2)),
    )  # fmt: skip
    drained = settle_drain(act(Action.DRAIN), frame(*rows), ACTED + timedelta(days=1))
    assert (drained.outcome, drained.right_jobs, drained.wrong_jobs, hours(drained)) == ("right", 2, 1, (8.0, 2.0, 0.0))


def test_a_healthy_node_that_would_have_been_drained_was_a_mistake():
    healthy = frame(*(job("COMPLETED", job_id=number, start=ACTED + timedelta(hours=1)) for number in range(3)))
    assert settle_drain(act(Action.DRAIN), healthy, ACTED + timedelta(days=1)).outcome == "wrong"
    assert not is_drain_due(act(Action.DRAIN), ACTED + timedelta(hours=23))


def test_the_ledger_of_cancelling_says_what_the_replay_of_the_same_jobs_says():
    """`jobs waste` replays the policy over the past; a dry run that decided at the same moments comes to the same sums."""
    states = ["FAILED", "COMPLETED", "TIMEOUT", "COMPLETED", "OUT_OF_MEMORY", "COMPLETED"]
    rows = [job(state, job_id=10 + place, hours=1 + place, cpus=2 + place) for place, state in enumerate(states)]
    acts = [act(job_id=10 + place, decided=T0 + timedelta(seconds=120)) for place in range(len(rows))]
    ledger = settle_jobs(acts, frame(*rows), T0 + timedelta(days=2))
    risks = pl.DataFrame(
        {"risk": [0.9] * 6, "failed": [state != "COMPLETED" for state in states],
         "elapsed_s": [row["elapsed_s"] for row in rows], "cpus": [row["cpus"] for row in rows]}
    )  # fmt: skip
    point = policy_at(cancel_curve(risks, most_points=None), 0.5)
    sums = [sum(getattr(one, name) for one in ledger) for name in ("saved_core_s", "lost_core_s", "redo_core_s")]
    assert sums == pytest.approx([point.saved_core_seconds, point.wrong_core_seconds, point.redo_core_seconds])


def test_the_ledger_needs_only_columns_that_every_job_has():
    assert set(NEEDED) <= set(JOB_SCHEMA)
