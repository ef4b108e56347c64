from datetime import UTC, datetime, timedelta

import pytest

from stormpetrel.answers.alarms.acts import act_on_incident
from stormpetrel.answers.alarms.incidents import list_incidents, show_incident
from stormpetrel.answers.schemas.alarms import IncidentQuestion
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.errors import AccessError, NotThereError
from stormpetrel.records.findings import FindingKind, SubjectKind
from tests.builders import make_site
from tests.parts.alarm_findings import batch_finding, finding
from tests.parts.raised_incidents import raise_incidents

NOW = datetime.now(UTC).replace(microsecond=0)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
REFS = [f"{number}-1714953600000000-0-c1" for number in (101, 102, 103)]
ANN, BOB, EVE = (Viewer(user, is_admin=False) for user in ("ann", "bob", "eve"))
WAVE = (SubjectKind.CLUSTER, "c1")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Four incidents: a node three weeks ago, over; a batch of ann's; the node again, now; a wave, two hours ago."""
    with make_site(tmp_path_factory.mktemp("incidents") / "site", site={"time_zone": "UTC"}) as site:
        raise_incidents(
            site,
            finding(when=NOW - 21 * DAY, users=("ann", "bob")),
            batch_finding("ann", when=NOW - 3 * HOUR),
            finding(when=NOW - 2 * HOUR, jobs=REFS, users=("ann", "bob")),
            finding(FindingKind.TIMEOUT_WAVE, WAVE, when=NOW - HOUR, users=("bob", "cat")),
        )
        act_on_incident(site, LOCAL, 1, "confirm", "new disk, bob's jobs were lost")
        yield site


def numbers(answer):
    return [line.id for line in answer.incidents]


def test_open_incidents_are_listed_the_newest_first(site):
    assert numbers(list_incidents(site, LOCAL)) == [4, 3, 2]
    assert numbers(list_incidents(site, LOCAL, IncidentQuestion(state="all"))) == [4, 3, 2, 1]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ({"severity": "warning"}, [4, 3]),
        ({"severity": "page"}, [3]),
        ({"state": "all", "since": NOW - 2.5 * HOUR}, [4, 3]),
        ({"family": "traces"}, []),
        ({"limit": 2}, [4, 3]),
    ],
)
def test_a_list_holds_what_was_asked_for(site, question, expected):
    assert numbers(list_incidents(site, LOCAL, IncidentQuestion(**question))) == expected


def test_messages_a_week_are_counted_since_the_first_incident_or_the_time_asked_for(site):
    whole, day = (list_incidents(site, LOCAL, IncidentQuestion(since=since)) for since in (None, NOW - 2 * DAY))
    assert whole.weeks == pytest.approx(3.0, abs=0.01) and whole.pages_per_week == pytest.approx(2 / 3, abs=0.01)
    assert day.weeks == pytest.approx(2 / 7, abs=0.01) and day.pages_per_week == pytest.approx(3.5, abs=0.05)


def test_over_less_than_a_day_no_rate_is_told(site, tmp_path):
    assert list_incidents(site, LOCAL, IncidentQuestion(since=NOW - HOUR)).pages_per_week is None
    with make_site(tmp_path / "empty") as empty:
        answer = list_incidents(empty, LOCAL)
        assert (answer.incidents, answer.pages_per_week, answer.weeks, answer.quiet) == ([], None, 0.0, 0)


def test_every_time_in_a_title_of_a_list_has_its_date(site):
    assert all(f"{NOW.year}-" in line.title or f"{NOW.year - 1}-" in line.title for line in list_incidents(site, LOCAL).incidents)


def test_a_list_is_read_to_its_end_although_it_is_read_in_pieces(tmp_path):
    with make_site(tmp_path / "site") as site:
        raise_incidents(site, *(batch_finding(f"user{k}", when=NOW - HOUR) for k in range(120)))
        assert numbers(list_incidents(site, LOCAL, IncidentQuestion(limit=1000))) == list(range(120, 0, -1))
        assert numbers(list_incidents(site, Viewer("user3", is_admin=False))) == [4]


def test_what_a_person_dismissed_is_over(tmp_path):
    with make_site(tmp_path / "site") as site:
        raise_incidents(site, finding(when=NOW - HOUR))
        act_on_incident(site, LOCAL, 1, "dismiss")
        assert numbers(list_incidents(site, LOCAL)) == []
        (line,) = list_incidents(site, LOCAL, IncidentQuestion(state="all")).incidents
        assert (line.state, line.verdict) == ("resolved", "dismissed")


def test_one_incident_has_figures_with_units_words_and_links(site):
    (part,) = show_incident(site, LOCAL, 3).findings
    node = part.subjects[0]
    assert (node.kind, node.name) == ("node", "n017") and node.link.startswith("/nodes?node=n017&at=")
    lost = next(figure for figure in part.evidence if figure.name == "lost")
    assert (lost.value, lost.unit, lost.label, lost.text) == (3.0, "jobs", "jobs lost", "3")
    assert lost.link.startswith("/jobs?view=all&start_time=inRange%3A")


def test_lost_jobs_are_named_with_links(site):
    answer = show_incident(site, LOCAL, 3)
    assert [job.job for job in answer.jobs] == ["103", "102", "101"] and answer.jobs_total == 3
    assert answer.jobs[0].link == "/jobs?view=all&job=103-1714953600000000-0-c1"


def test_the_time_line_tells_what_happened_in_order(site):
    answer = show_incident(site, LOCAL, 1)
    assert [moment.what for moment in answer.timeline] == ["began", "raised", "sent", "resolved", "confirm"]
    assert [moment.time for moment in answer.timeline] == sorted(moment.time for moment in answer.timeline)
    assert "new disk" in answer.timeline[-1].words and answer.acts[0].note == "new disk, bob's jobs were lost"


def test_the_nearest_past_incident_says_what_was_done_then(site):
    similar = show_incident(site, LOCAL, 3).similar[0]
    assert (similar.id, similar.distance, similar.verdict) == (1, 0.0, "confirmed")
    assert "node n017" in similar.same and similar.acts[0].note == "new disk, bob's jobs were lost"


def test_why_it_was_not_sent_is_a_sentence(tmp_path):
    with make_site(tmp_path / "site") as site:
        raise_incidents(site, finding(when=NOW - DAY, known=NOW - HOUR))
        answer = show_incident(site, LOCAL, 1)
        assert (answer.held_back, answer.held_back_words[:23]) == ("late", "It was known too long a")


def test_a_user_sees_incidents_of_own_jobs_and_nothing_of_others(site):
    assert numbers(list_incidents(site, BOB, IncidentQuestion(state="all"))) == [4, 3, 1]
    answer = show_incident(site, BOB, 1)
    assert "ann" not in answer.model_dump_json() and "new disk" not in answer.model_dump_json()
    assert [act.kind for act in answer.acts] == ["confirm"] and answer.verdict == "confirmed"
    again = show_incident(site, BOB, 3)
    assert again.jobs == [] and "user=equals%3Abob" in again.findings[0].evidence[0].link
    assert "disk" not in again.model_dump_json()


def test_an_incident_of_others_and_one_that_is_not_there_are_not_told_apart(site):
    for viewer, number in ((BOB, 2), (BOB, 99), (EVE, 1)):
        with pytest.raises(NotThereError) as refused:
            show_incident(site, viewer, number)
        assert (refused.value.what, refused.value.hint) == (
            f"There is no incident {number}.",
            "List them: stormpetrel alarms list",
        )


def test_who_may_not_read_sees_nothing(site):
    for question in (lambda viewer: list_incidents(site, viewer), lambda viewer: show_incident(site, viewer, 1)):
        with pytest.raises(AccessError):
            question(Viewer("root", is_admin=True, scopes=frozenset(["manage"])))
