"""What a policy decides: by risk or by an incident, out of what is known now, on its allow-list only."""

from datetime import timedelta

import polars as pl
import pytest

from stormpetrel.alarms.acts import Silences
from stormpetrel.alarms.grouping import IncidentBook
from stormpetrel.records.actions.acts import ActState, Mode
from stormpetrel.records.actions.policies import Policy
from stormpetrel.records.findings import FindingKind, Subject, SubjectKind
from stormpetrel.records.incidents import Mute
from stormpetrel.watch.actions.decide import decide_by_incident, decide_by_risk
from tests.builders import T0
from tests.parts.alarm_findings import batch_finding, finding

NODE = (SubjectKind.NODE, "n017")


def judged(**more):
    row = {
        "cluster": "c1", "job_id": 7, "array_task": None, "submit_time": T0, "restart": 0, "user": "ada", "account": "science",
        "partition": "debug", "node_list": "n[016-017]", "state": "RUNNING", "source": "sacct", "moment": "2min",
        "moment_time": T0, "risk": 0.95, "threshold": 0.5, "model_version": 3,
    }  # fmt: skip
    return pl.DataFrame([row | more])


def by_risk(rows, now=T0 + timedelta(seconds=5), **more):
    policy = Policy(**{"name": "p", "action": "cancel", "tau": 0.9, "users": ["*"], **more})
    return decide_by_risk(policy, rows, now=now, mode=Mode.LIVE)


def by_incident(*findings, now=T0 + timedelta(minutes=1), running=None, silences=Silences(), **more):
    book = IncidentBook()
    for one in findings:
        book.take([one], one.known_at)
    policy = Policy(**{"name": "d", "action": "drain", "nodes": ["n*"], **more})
    return decide_by_incident(
        policy, list(book), judged() if running is None else running, silences, now=now, mode=Mode.LIVE
    )  # fmt: skip


def sick(name="n017", **more):
    return finding(FindingKind.NODE_EATS_JOBS, (SubjectKind.NODE, name), when=T0, **more)


def test_a_running_job_at_two_minutes_above_tau_is_cancelled_and_what_was_known_is_kept():
    (act,) = by_risk(judged())
    assert (act.action, act.subject, act.state) == ("cancel", f"7-{int(T0.timestamp())}000000-0-c1", ActState.INTENDED)
    assert act.evidence == {"risk": 0.95, "threshold": 0.9, "moment": "2min", "model_version": 3}


@pytest.mark.parametrize(
    "row",
    [{"risk": 0.89}, {"moment": "start"}, {"state": "COMPLETED"}, {"moment_time": T0 - timedelta(minutes=16)},
     {"moment_time": T0 + timedelta(minutes=1)}],
)  # fmt: skip
def test_a_job_below_tau_at_another_moment_over_or_judged_long_ago_or_later_is_not(row):
    assert by_risk(judged(**row)) == []


def test_without_a_tau_the_models_own_threshold_holds():
    assert len(by_risk(judged(risk=0.6), tau=0.0)) == 1 and by_risk(judged(risk=0.4), tau=0.0) == []


@pytest.mark.parametrize("lists", [{"users": ["bob"]}, {"accounts": ["x"]}, {"partitions": ["gpu"]}, {"nodes": ["n9*"]}])
def test_a_job_that_is_not_on_the_allow_list_is_left_alone(lists):
    assert by_risk(judged(), **lists) == []


def test_the_riskiest_comes_first_so_that_a_cap_takes_it():
    rows = pl.concat([judged(risk=0.91), judged(job_id=8, risk=0.99)])
    assert [act.subject.partition("-")[0] for act in by_risk(rows)] == ["8", "7"]


def test_a_waiting_job_is_held_by_its_first_prediction():
    waiting = judged(state="PENDING", moment="submit", node_list=None)
    assert [act.action for act in by_risk(waiting, action="hold")] == ["hold"]


def test_a_sick_node_is_drained_once_for_each_time_its_incident_opens():
    (act,) = by_incident(sick())
    assert (act.node, act.key, act.evidence["incident"]) == ("n017", "d:live:1.0:n017", 1)


def test_a_node_off_the_list_or_of_another_kind_of_finding_is_not():
    assert by_incident(sick(), nodes=["m*"]) == []
    assert by_incident(sick(), kinds=["node_down"]) == []


def test_where_not_the_node_is_suspected_nothing_is_drained():
    assert by_incident(batch_finding(when=T0)) == []


def test_a_muted_node_and_one_of_which_nothing_is_heard_any_more_is_left_alone():
    mute = Mute(1, "c1", Subject(*NODE), T0, T0 + timedelta(days=1), "root")
    assert by_incident(sick(), silences=Silences((mute,))) == []
    assert by_incident(sick(), now=T0 + timedelta(hours=7)) == []


def test_only_running_jobs_on_the_sick_node_are_requeued():
    running = pl.concat([judged(), judged(job_id=8, node_list="n018"), judged(job_id=9, state="PENDING")])
    (act,) = by_incident(sick(), action="requeue", running=running, nodes=[], users=["*"])
    assert (act.subject.partition("-")[0], act.node) == ("7", "n017")


def test_a_node_with_a_hostile_name_is_refused_when_it_is_decided():
    (act,) = by_incident(sick("n1,ALL"))
    assert act.state == ActState.REFUSED and "not the name of one node" in act.why
