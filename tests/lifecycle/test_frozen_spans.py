"""A confirmed incident's span never becomes normal, a dismissed one's is calm, and both can be taken back."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from stormpetrel.lifecycle.frozen_spans import (
    BY_VERDICT,
    frozen_spans,
    halting_incident,
    known_calm,
    learning_labels,
    learning_series,
    never_normal,
)
from stormpetrel.lifecycle.nightly import run_nightly
from stormpetrel.lifecycle.trace_learning import learning_windows
from stormpetrel.records.event_series import ANOMALY
from stormpetrel.records.findings import FindingKind, SubjectKind
from stormpetrel.records.incidents import ActKind, IncidentAct, IncidentState
from stormpetrel.records.outages import OutageKind
from stormpetrel.store.site import create_site
from tests.answers.cluster_sites import put_counts, sample_grid
from tests.builders import make_site
from tests.lifecycle.traced_site import traced_site
from tests.parts.alarm_findings import batch_finding, finding
from tests.parts.raised_incidents import raise_incidents


@pytest.fixture
def site(tmp_path):
    with traced_site(tmp_path / "site", splits=False) as site:
        yield site


def act(site, number, kind):
    site.incidents.add_act(IncidentAct(number, datetime.now(UTC), "anna", kind))


def odd_windows(site):
    """An incident of the windows of one node, over the first half of what the site has, and which rows these are."""
    rows = site.cpu_windows.read().collect()
    first, last = rows["window_start"].min(), rows["window_start"].max()
    middle = first + (last - first) / 2
    odd = finding(FindingKind.WINDOWS_ODD, (SubjectKind.NODE, rows["node"][0]), family="traces", when=middle)
    raise_incidents(site, replace(odd, since=first), finding(when=last + timedelta(days=3)))  # by the second the first is over
    inside = (rows["node"] == rows["node"][0]) & (rows["window_start"] <= middle)
    return rows, inside


def normal_windows(site):
    windows = learning_windows(site)
    return len(windows.train.of_normal()) + len(windows.validation.of_normal())


def test_windows_of_a_confirmed_incident_are_never_learnt_as_normal_until_it_is_withdrawn(site):
    rows, inside = odd_windows(site)
    before = normal_windows(site)
    act(site, 1, ActKind.CONFIRM)
    assert rows.select(never_normal(site)).to_series().to_list() == inside.to_list()
    frozen = normal_windows(site)
    act(site, 1, ActKind.WITHDRAW)
    assert frozen < before == normal_windows(site)


def test_windows_of_a_dismissed_incident_are_known_to_be_calm(site):
    rows, inside = odd_windows(site)
    act(site, 1, ActKind.DISMISS)
    assert rows.select(known_calm(site)).to_series().to_list() == inside.to_list()


def test_an_incident_of_the_whole_cluster_freezes_every_node(site):
    rows = site.cpu_windows.read().collect()
    start = rows["window_start"].min()
    raise_incidents(site, finding(FindingKind.TIMEOUT_WAVE, (SubjectKind.CLUSTER, "c1"), when=start + timedelta(hours=1)))
    act(site, 1, ActKind.CONFIRM)
    hit = rows.filter(never_normal(site))
    assert set(hit["node"]) == set(rows.filter(rows["window_start"] == start)["node"]) and hit.height


def test_an_incident_of_a_user_freezes_the_windows_of_the_lost_jobs_alone(site):
    rows = site.cpu_windows.read().collect()
    some = rows["job_id"].drop_nulls()[0]
    job = rows.filter(rows["job_id"] == some)
    lost = replace(batch_finding(when=job["window_start"].max(), jobs=[f"{some}-1-0-c"]), since=job["window_start"].min())
    raise_incidents(site, lost)
    act(site, 1, ActKind.CONFIRM)
    assert set(rows.filter(never_normal(site))["job_id"]) == {some}


def test_a_confirmed_incident_that_is_not_over_freezes_what_comes_as_well(tmp_path):
    with make_site(tmp_path / "site") as site:
        raise_incidents(site, finding())
        act(site, 1, ActKind.CONFIRM)
        assert [span.until for span in frozen_spans(site)] == [None]


@pytest.mark.parametrize(
    ("verdict", "label"), [(ActKind.CONFIRM, OutageKind.OUTAGE), (ActKind.DISMISS, OutageKind.NORMAL)], ids=["outage", "clear"]
)
def test_a_verdict_on_an_incident_of_events_labels_its_buckets(tmp_path, verdict, label):
    with make_site(tmp_path / "site") as site:
        raise_incidents(site, finding(FindingKind.COUNTS_ODD, (SubjectKind.CLUSTER, "c1"), family="events"))
        act(site, 1, verdict)
        assert [(span.kind, span.source, span.uid) for span in learning_labels(site)] == [(label, BY_VERDICT, "1")]
        assert learning_labels(site, known_at=datetime.now(UTC) - timedelta(days=1)) == []


def test_buckets_of_a_confirmed_incident_are_no_normal_operation_to_the_event_models(tmp_path):
    with create_site(tmp_path / "site") as site:
        put_counts(site, sample_grid(200))
        plain = learning_series(site)
        odd = finding(FindingKind.COUNTS_ODD, (SubjectKind.CLUSTER, "c1"), family="events", when=plain.moment(100))
        raise_incidents(site, odd, finding(when=plain.moment(199)))  # the second: the first is over
        act(site, 1, ActKind.CONFIRM)
        differ = np.flatnonzero((learning_series(site).label == ANOMALY) & (plain.label != ANOMALY))
        assert differ.size and set(differ) <= {99, 100}


def test_all_training_halts_while_a_confirmed_incident_is_open_where_the_site_wants_that(tmp_path):
    with make_site(tmp_path / "site", alarms={"halt_training": True}) as site:
        raise_incidents(site, finding())
        assert halting_incident(site) is None
        act(site, 1, ActKind.CONFIRM)
        assert "incident 1 is confirmed" in run_nightly(site, progress=lambda _words: None).jobs.why


def test_a_confirmed_incident_halts_nothing_by_default(tmp_path):
    with make_site(tmp_path / "site") as site:
        raise_incidents(site, finding())
        act(site, 1, ActKind.CONFIRM)
        assert halting_incident(site) is None


def test_what_people_judged_stays_in_the_state_however_old_it_is(tmp_path):
    with make_site(tmp_path / "site") as site:
        raise_incidents(site, finding(), batch_finding("bob"))
        act(site, 1, ActKind.CONFIRM)
        over = [replace(one, resolved_at=one.until, state=IncidentState.RESOLVED) for one in site.incidents.list()]
        site.incidents.commit(over, watcher="jobs", watcher_state="", now=site.now())
        token, _ = site.incidents.take_unrecorded(10)
        site.incidents.note_recorded(token)
        site.incidents.prune(site.now(), keep=0)
        assert [one.incident.id for one in site.incidents.judged()] == [1] == [one.id for one in site.incidents.list()]
