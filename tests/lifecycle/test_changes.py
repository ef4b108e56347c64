"""Incidents that a change at the site explains, and those that it does not."""

import weakref
from dataclasses import replace
from datetime import timedelta

import pytest

from stormpetrel.alarms.grouping import IncidentBook
from stormpetrel.lifecycle.changes import change_texts, changes_at, explanation, read_work
from stormpetrel.records.findings import Evidence, FindingKind, Subject, SubjectKind, Unit
from stormpetrel.records.jobs import ref_text
from tests.answers.live_sites import put_jobs
from tests.builders import T0, make_site
from tests.jobs.logs import made_jobs
from tests.parts.alarm_findings import batch_finding

DAYS, NEW_FROM = 30, 27
NOW = T0 + timedelta(days=DAYS)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    rows, number = [], 0
    for day in range(DAYS):
        for hour in range(0, 24, 2):
            submit = T0 + timedelta(days=day, hours=hour)
            names = [("ada", "fit")] + ([("eve", "sweep")] * 3 if day >= NEW_FROM else [])
            for user, name in names:
                number += 1
                rows.append(
                    {
                        "cluster": "c", "job_id": number, "user": user, "job_name": name, "account": "lab", "submit_time": submit,
                        "start_time": submit, "end_time": submit + timedelta(minutes=9), "elapsed_s": 540,
                        "state": "FAILED" if user == "eve" else "COMPLETED",
                    }
                )  # fmt: skip
    with make_site(tmp_path_factory.mktemp("changes") / "site") as site:
        put_jobs(site, made_jobs(*rows))
        yield site


def refs(site, user):
    rows = site.jobs.read_jobs().collect()
    return tuple(rows.filter(rows["user"] == user).select(ref_text())["ref"].tail(12))


def incident(site, user, kind=FindingKind.BATCH_FAILS, **changes):
    jobs = refs(site, user)
    about = {"kind": kind, "jobs": jobs, "deciding_jobs": len(jobs), "subjects": (Subject(SubjectKind.USER, user),), "label": ""}
    finding = replace(batch_finding(), **about | changes)
    (one,) = IncidentBook().take([finding], finding.known_at)
    return replace(one, raised_at=NOW)


def test_the_new_application_and_its_user_are_known_at_their_time(site):
    assert {(one.by, one.name) for one in changes_at(site, NOW).newcomers} == {("application", "sweep"), ("user", "eve")}
    assert changes_at(site, T0 + timedelta(days=NEW_FROM - 1)).newcomers == ()


def test_of_this_week_the_work_up_to_an_earlier_hour_is_let_go_and_that_of_past_weeks_is_kept(site, monkeypatch):
    past, hour = read_work(site, NOW - timedelta(weeks=1)), weakref.ref(read_at(site, monkeypatch, NOW))
    assert read_at(site, monkeypatch, NOW) is hour()
    later = read_at(site, monkeypatch, NOW + timedelta(hours=1))
    assert hour() is None and later.height and read_work(site, NOW - timedelta(weeks=1)) is past


def read_at(site, monkeypatch, moment):
    monkeypatch.setattr(type(site), "now", lambda _: moment)
    return read_work(site, moment)


def test_failures_of_something_new_are_a_change(site):
    text = explanation(site, incident(site, "eve"))
    assert text.startswith("The application sweep is new since 2024-03-31: ") and "% of the load" in text


def test_a_share_that_is_hardly_any_is_not_called_none(site):
    changes = changes_at(site, NOW)
    few = replace(changes, newcomers=(replace(changes.newcomers[0], share_of_jobs=0.004, share_of_load=0.0),))
    assert change_texts(few)[0].endswith("less than 1 % of all and less than 1 % of the load.")


def test_failures_of_what_was_there_before_are_no_change(site):
    assert explanation(site, incident(site, "ada")) == ""


def test_a_node_that_fails_is_never_explained_by_who_is_new(site):
    assert explanation(site, incident(site, "eve", FindingKind.NODE_EATS_JOBS)) == ""


def test_more_submissions_than_expected_are_a_change_where_something_new_makes_them(site):
    since = NOW - timedelta(hours=6)
    figures = (Evidence("count", 12, Unit.EVENTS), Evidence("expected", 3, Unit.EVENTS))
    many = incident(site, "eve", FindingKind.COUNTS_ODD, since=since, until=NOW, evidence=figures)
    of_submissions = replace(many, findings=(replace(many.findings[0], jobs=(), label="Submit"),))
    assert "sweep is new" in explanation(site, of_submissions)
    failures = replace(many, id=77, findings=(replace(many.findings[0], jobs=(), label="JobFailed"),))
    assert explanation(site, failures) == ""


def many_submissions(site, *places, number):
    figures = (Evidence("count", 60, Unit.EVENTS), Evidence("expected", 12, Unit.EVENTS), Evidence("share", 0.8, Unit.SHARE))
    subjects = (Subject(SubjectKind.CLUSTER, "c"), *places)
    about = {"since": NOW - timedelta(hours=30), "until": NOW, "evidence": figures, "subjects": subjects}
    one = incident(site, "eve", FindingKind.COUNTS_ODD, **about)
    return replace(one, id=number, findings=(replace(one.findings[0], jobs=(), label="Submit"),))


def test_more_submissions_of_a_group_that_was_always_there_are_no_change(site):
    assert explanation(site, many_submissions(site, number=81))  # of no place in particular: most are of what is new
    assert explanation(site, many_submissions(site, Subject(SubjectKind.GROUP, "lab"), number=82)) == ""


def wave(site, *, new, others):
    """Jobs that the whole cluster lost: so many of the newcomer, and so many of others."""
    jobs = (*refs(site, "eve")[:new], *refs(site, "ada")[:others])
    return incident(
        site, "eve", FindingKind.OOM_WAVE, jobs=jobs, deciding_jobs=len(jobs), subjects=(Subject(SubjectKind.CLUSTER, "c"),)
    )


def test_what_the_whole_cluster_lost_is_a_change_only_where_the_newcomer_lost_clearly_more_than_its_share(site):
    share = changes_at(site, NOW).newcomers[0].share_of_jobs
    assert 0.5 < share < 0.6
    assert "sweep is new" in explanation(site, wave(site, new=12, others=1))
    assert explanation(site, wave(site, new=9, others=5)) == ""


def test_an_unusual_number_of_failures_is_a_change_where_the_failed_jobs_are_of_something_new(site):
    about = {
        "label": "JobFailed",
        "subjects": (Subject(SubjectKind.CLUSTER, "c"),),
        "since": NOW - timedelta(hours=6),
        "until": NOW,
    }
    assert "sweep is new" in explanation(site, incident(site, "eve", FindingKind.COUNTS_ODD, **about))
    assert explanation(site, incident(site, "ada", FindingKind.COUNTS_ODD, **about)) == ""


def test_counts_that_grew_after_the_incident_was_raised_are_judged_at_their_own_time(site):
    early = replace(many_submissions(site, number=83), raised_at=T0 + timedelta(days=NEW_FROM - 1))
    assert "sweep is new" in explanation(site, early)


def test_what_was_raised_long_ago_is_not_looked_at(site):
    assert explanation(site, incident(site, "eve"), oldest=NOW + timedelta(days=1)) == ""
