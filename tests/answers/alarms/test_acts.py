from dataclasses import replace
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from stormpetrel.answers.alarms.acts import act_on_incident, list_mutes, mute_subject, unmute, unmute_subject
from stormpetrel.answers.alarms.incidents import list_incidents, show_incident
from stormpetrel.answers.nodes.regions import list_regions
from stormpetrel.answers.schemas.incident import NewMute
from stormpetrel.answers.viewer import LOCAL, MANAGE, READ, Viewer
from stormpetrel.errors import AccessError, NotThereError, UsageError
from stormpetrel.records.findings import FindingKind, SubjectKind
from tests.builders import make_site
from tests.lifecycle.traced_site import traced_site
from tests.parts import need
from tests.parts.alarm_findings import batch_finding, finding
from tests.parts.raised_incidents import raise_incidents

NOW = datetime.now(UTC)
HOUR = timedelta(hours=1)
ROOT = Viewer("root", is_admin=True, scopes=frozenset([MANAGE]))
USER = Viewer("ann", is_admin=False)


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as site:
        raise_incidents(site, finding(when=NOW - HOUR), batch_finding("bob", when=NOW - HOUR))
        yield site


def audited(site):
    return [(entry.user, entry.action, entry.about) for entry in site.audit.recent()]


@pytest.mark.parametrize(
    ("kind", "state", "verdict"),
    [
        ("acknowledge", "acknowledged", None),
        ("confirm", "acknowledged", "confirmed"),
        ("dismiss", "resolved", "dismissed"),
        ("note", "open", None),
    ],
)
def test_an_act_is_kept_changes_the_state_and_stands_in_the_audit_trail(site, kind, state, verdict):
    receipt = act_on_incident(site, ROOT, 1, kind, "on my way")
    assert (receipt.state, receipt.verdict, receipt.act.user, receipt.act.note) == (state, verdict, "root", "on my way")
    shown = show_incident(site, LOCAL, 1)
    assert (shown.state, shown.verdict, shown.acts) == (state, verdict, [receipt.act])
    assert audited(site) == [("root", f"incident {kind}", {"incident": 1})]


def test_a_verdict_can_be_withdrawn_and_who_did_so_stands_in_the_audit_trail(site):
    act_on_incident(site, ROOT, 1, "dismiss", "a test of mine")
    receipt = act_on_incident(site, ROOT, 1, "withdraw", "it was none")
    assert (receipt.state, receipt.verdict, receipt.act.note) == ("acknowledged", None, "it was none")
    assert ("root", "incident withdraw", {"incident": 1}) in audited(site)


@pytest.mark.parametrize("number", [1, 99], ids=["nobody judged it", "it is not there"])
def test_there_must_be_a_verdict_to_withdraw(site, number):
    with pytest.raises(NotThereError, match=f"ncident {number}"):
        act_on_incident(site, ROOT, number, "withdraw")


def test_the_last_verdict_holds(site):
    for kind in ("dismiss", "confirm"):
        receipt = act_on_incident(site, ROOT, 1, kind)
    assert (receipt.state, receipt.verdict) == ("acknowledged", "confirmed")


def test_who_runs_the_command_signs_where_nobody_logs_in(site):
    assert act_on_incident(site, LOCAL, 1, "acknowledge").act.user


@pytest.mark.parametrize("viewer", [USER, Viewer("root", is_admin=True, scopes=frozenset([READ]))])
def test_acts_are_for_administrators_who_manage(site, viewer):
    acts = (
        lambda: act_on_incident(site, viewer, 1, "note", "mine"),
        lambda: mute_subject(site, viewer, NewMute(kind="node", name="n017", hours=1)),
        lambda: unmute_subject(site, viewer, "node", "n017"),
        lambda: unmute(site, viewer, 1),
    )
    for act in acts:
        with pytest.raises(AccessError):
            act()
    assert audited(site) == [] and site.incidents.acts([1])[1] == []


def test_a_user_does_not_see_what_is_muted(site):
    with pytest.raises(AccessError, match="administrators"):
        list_mutes(site, USER)


def test_what_cannot_be_done_is_said_and_leaves_no_trace(site):
    with pytest.raises(UsageError, match="note is empty"):
        act_on_incident(site, ROOT, 1, "note", " ")
    with pytest.raises(NotThereError, match="no incident 9"):
        act_on_incident(site, ROOT, 9, "confirm")
    assert audited(site) == []


def test_a_mute_holds_back_what_is_about_its_subject_until_it_ends(site):
    receipt = mute_subject(site, ROOT, NewMute(kind="node", name="n017", hours=8, reason="new disk"))
    assert receipt.holds_back == [1] and receipt.mute.cluster == "c1" and receipt.mute.reason == "new disk"
    assert receipt.mute.until - receipt.mute.since == 8 * HOUR
    assert list_mutes(site, LOCAL).mutes == [receipt.mute]
    assert [line.id for line in list_incidents(site, LOCAL).incidents] == [2, 1]  # listed all the same
    ended = unmute_subject(site, ROOT, "node", "n017")
    assert ended.mute.until < receipt.mute.until and list_mutes(site, LOCAL).mutes == []
    assert [action for _, action, _ in audited(site)] == ["subject unmuted", "subject muted"]
    assert audited(site)[1][2]["subject"] == "node:n017"


def test_a_mute_is_ended_by_its_number_once(site):
    mute = mute_subject(site, ROOT, NewMute(kind="user", name="bob", until=NOW + HOUR)).mute
    unmute(site, ROOT, mute.id)
    for again in (lambda: unmute(site, ROOT, mute.id), lambda: unmute_subject(site, ROOT, "user", "bob")):
        with pytest.raises(NotThereError):
            again()


def test_a_mute_about_nothing_that_is_open_holds_nothing_back(site):
    assert mute_subject(site, ROOT, NewMute(kind="node", name="n17", hours=1)).holds_back == []


@pytest.mark.parametrize(
    ("when", "complaint"),
    [
        ({}, "until when"),
        ({"hours": 1, "until": NOW + HOUR}, "until when"),
        ({"until": NOW - HOUR}, "is over"),
        ({"until": NOW + timedelta(days=400)}, "more than a year"),
    ],
)
def test_a_mute_without_a_sensible_end_is_refused(site, when, complaint):
    with pytest.raises(UsageError, match=complaint):
        mute_subject(site, ROOT, NewMute(kind="node", name="n017", **when))


def test_where_there_are_several_clusters_one_must_be_named(site):
    raise_incidents(site, finding(when=NOW - HOUR, cluster="c2"))
    with pytest.raises(UsageError, match="several clusters: c1, c2"):
        mute_subject(site, ROOT, NewMute(kind="node", name="n017", hours=1))
    with pytest.raises(UsageError, match="no cluster 'c3'"):
        mute_subject(site, ROOT, NewMute(kind="node", name="n017", hours=1, cluster="c3"))
    receipts = [mute_subject(site, ROOT, NewMute(kind="node", name="n017", hours=1, cluster=name)) for name in ("c1", "c2")]
    assert [receipt.holds_back for receipt in receipts] == [[1], [3]]
    with pytest.raises(UsageError, match="in several clusters: c1, c2"):
        unmute_subject(site, ROOT, "node", "n017")
    assert unmute_subject(site, ROOT, "node", "n017", "c2").mute.cluster == "c2"


def test_confirming_an_incident_of_traces_names_a_region_and_dismissing_it_takes_it_back(tmp_path):
    need("onnxruntime")
    with traced_site(tmp_path / "traced", splits=False) as site:
        rows = site.cpu_windows.read().filter(pl.col("node") == "n1").collect()
        since, until = rows["window_start"].min(), rows["window_start"].max()
        odd = finding(FindingKind.WINDOWS_ODD, (SubjectKind.NODE, "n1"), when=until.astimezone(UTC), family="traces", users=())
        raise_incidents(site, replace(odd, since=since.astimezone(UTC)))
        receipt = act_on_incident(site, ROOT, 1, "confirm", "hung allreduce\nrank 3 spun")
        assert receipt.regions == ["hung allreduce"]
        (region,) = site.trace_regions.list()
        assert (region.name, region.incident, region.added_by, region.scope.node) == ("hung allreduce", 1, "root", "n1")
        assert act_on_incident(site, ROOT, 1, "confirm").regions == ["incident 1"]  # renamed, not added
        assert [known.name for known in list_regions(site, LOCAL).regions] == ["incident 1"]
        assert list_regions(site, LOCAL).fitted[0].examples == region.examples
        assert act_on_incident(site, ROOT, 1, "dismiss").regions == ["incident 1"] and site.trace_regions.list() == []


def test_a_verdict_on_what_is_not_of_traces_names_nothing(site):
    assert act_on_incident(site, ROOT, 1, "confirm", "disk died").regions == [] and site.trace_regions.list() == []
