"""Which cases are asked about, what an answer teaches, and how it is taken back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from stormpetrel.answers.alarms.cases import answer_case, ask_cases
from stormpetrel.answers.schemas.verdicts import CaseQuestion, NewCaseAnswer
from stormpetrel.answers.viewer import LOCAL, MANAGE, READ, Viewer
from stormpetrel.errors import AccessError, NotThereError
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.lifecycle.case_answers import answered_jobs, cleared_hours, with_answers
from stormpetrel.records.events import EVENT_SCORE_SCHEMA
from stormpetrel.records.jobs import KEY, ref_text
from stormpetrel.records.outages import OutageKind
from stormpetrel.records.predictions import PREDICTION_SCHEMA
from stormpetrel.sources.slurm.sacct_text import SacctText
from tests.builders import make_jobs, make_site, write_sacct
from tests.parts.alarm_findings import batch_finding, finding
from tests.parts.raised_incidents import raise_incidents

NOW = datetime.now(UTC)
ROOT = Viewer("root", is_admin=True, scopes=frozenset([READ, MANAGE]))


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as site:
        yield site


def said(site, case, answer, note=""):
    return answer_case(site, ROOT, NewCaseAnswer(case=case, answer=answer, note=note))


def cases(site, **question):
    return [line.case for line in ask_cases(site, LOCAL, CaseQuestion(**question)).cases]


def put_bucket(site, score, threshold=4.0, ago_h=5):
    start = (NOW - timedelta(hours=ago_h)).replace(minute=0, second=0, microsecond=0)
    values = {"bucket_start": start, "bucket_s": 3600, "model": "m", "model_version": 1, "score": score, "threshold": threshold}
    row = dict.fromkeys(EVENT_SCORE_SCHEMA) | values | {"alarm": score > threshold, "said_at": NOW, "why": "[]"}
    lists = {name: [] for name in ("kinds", "counts", "expected", "low", "high", "surprise")}
    site.event_scores.append(pl.DataFrame([row | lists], schema=EVENT_SCORE_SCHEMA))
    return f"bucket:{int(start.timestamp())}"


def put_jobs(site, tmp_path, risks):
    jobs = make_jobs(len(risks), failed=1, start=NOW - timedelta(days=2))
    ingest_jobs(site, SacctText(write_sacct(tmp_path / "jobs.txt", jobs)))
    rows = site.jobs.read_jobs().collect().select(KEY).sort("job_id")
    values = {"moment": "submit", "moment_time": NOW - timedelta(days=2), "threshold": 0.6}
    frame = pl.DataFrame(
        [dict.fromkeys(PREDICTION_SCHEMA) | key | values | {"risk": risk, "flagged": risk > 0.6}
         for key, risk in zip(rows.iter_rows(named=True), risks, strict=True)],
        schema=PREDICTION_SCHEMA,
    )  # fmt: skip
    site.predictions.append(frame, horizon=NOW)
    return [f"job:{ref}" for ref in rows.select(ref_text()).to_series()]


def test_incidents_that_nobody_judged_are_asked_about_and_judged_ones_are_not(site):
    raise_incidents(site, finding(when=NOW), batch_finding("bob", when=NOW))
    assert set(cases(site)) == {"incident:1", "incident:2"}
    said(site, "incident:1", "dismiss", "a test")
    assert cases(site) == ["incident:2"]


def test_a_bucket_below_the_threshold_is_asked_about_and_its_answer_is_a_label_that_can_be_taken_back(site):
    case = put_bucket(site, 3.9)
    assert cases(site) == [case]
    said(site, case, "confirm", "disks were slow")
    assert [(one.kind, one.title) for one in site.outages.list()] == [(OutageKind.OUTAGE, "disks were slow")]
    assert cases(site) == []
    said(site, case, "withdraw")
    assert site.outages.list() == [] and cases(site) == [case]


def test_what_is_nearer_to_the_threshold_is_asked_about_first(site):
    sure, doubtful = put_bucket(site, 1.3, ago_h=9), put_bucket(site, 3.9, ago_h=5)
    assert cases(site) == [doubtful, sure]


def test_a_job_about_which_the_model_was_undecided_is_asked_about_first_also_below_the_threshold(site, tmp_path):
    sure, undecided, flagged = put_jobs(site, tmp_path, [0.02, 0.5, 0.97])
    assert cases(site)[0] == undecided and set(cases(site)) == {sure, undecided, flagged}


def test_of_the_same_work_one_job_is_asked_about(site, tmp_path):
    jobs = put_jobs(site, tmp_path, [0.5, 0.45, 0.4])
    rows = site.jobs.table.scan().with_columns(user=pl.lit("ada"), job_name=pl.lit("sweep")).collect()
    site.jobs.table.overwrite(rows)
    (first,) = cases(site)
    said(site, first, "dismiss")
    (then,) = cases(site)
    assert {first, then} < set(jobs), "answered, another one is asked about"


def test_each_sort_of_cases_is_asked_about_however_many_jobs_are_undecided(site, tmp_path):
    put_jobs(site, tmp_path, [0.5] * 12)
    raise_incidents(site, finding(when=NOW), batch_finding("bob", when=NOW), batch_finding("cat", when=NOW))
    bucket = put_bucket(site, 1.3)
    shown = cases(site)
    assert len(shown) == 10 and bucket in shown and sum(case.startswith("incident") for case in shown) >= 2


def test_what_administrators_say_of_a_job_counts_in_place_of_its_state(site, tmp_path):
    fine, other = put_jobs(site, tmp_path, [0.5, 0.5])
    jobs = site.jobs.read_jobs().collect().sort("job_id")
    states = dict(zip(jobs.select(ref_text()).to_series(), jobs["state"], strict=True))
    completed = next(f"job:{ref}" for ref, state in states.items() if state == "COMPLETED")
    said(site, completed, "confirm", "it wrote nonsense")
    assert answered_jobs(site) == {completed[4:]: True}
    assert with_answers(site, jobs)["state"].to_list().count("FAILED") == jobs["state"].to_list().count("FAILED") + 1
    said(site, completed, "withdraw")
    assert with_answers(site, jobs).equals(jobs) and {fine, other} == set(cases(site))


def test_an_hour_of_a_node_that_somebody_found_calm_is_learnt_as_such(site):
    said(site, "node:n017@1794990000", "dismiss")
    assert [(hour.node, hour.since) for hour in cleared_hours(site)] == [("n017", datetime.fromtimestamp(1794990000, UTC))]


@pytest.mark.parametrize("case", ["job:1-2-3-c", "node:@5", "bucket:x", "planet:mars", "incident:x", "incident:7"])
def test_a_case_that_is_none_is_refused(site, case):
    with pytest.raises(NotThereError):
        said(site, case, "confirm")


def test_there_must_be_an_answer_to_take_back(site):
    with pytest.raises(NotThereError, match="Nothing was answered"):
        said(site, "node:n017@1794990000", "withdraw")


def test_users_are_neither_asked_nor_heard(site):
    with pytest.raises(AccessError):
        ask_cases(site, Viewer("ann", is_admin=False))
    with pytest.raises(AccessError):
        answer_case(site, Viewer("ann", is_admin=False), NewCaseAnswer(case="incident:1", answer="dismiss"))


def test_who_answered_stands_in_the_audit_trail(site):
    said(site, "node:n017@1794990000", "dismiss")
    assert next((entry.user, entry.action) for entry in site.audit.recent()) == ("root", "case dismiss")
