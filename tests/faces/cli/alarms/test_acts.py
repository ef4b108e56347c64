"""Incidents on the command line: seen, answered and muted, readable at 80 columns."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.builders import make_site
from tests.parts.alarm_findings import batch_finding, finding
from tests.parts.command_line import complaint_of, report_of, run_here
from tests.parts.raised_incidents import raise_incidents

NOW = datetime.now(UTC)
HOUR = timedelta(hours=1)
REFS = [f"{number}-1714953600000000-0-c1" for number in range(101, 120)]
HOSTILE = "fit\x1b[2J\n$(reboot)"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A node three weeks ago, a batch with a hostile name, the node again: what is only looked at."""
    with make_site(tmp_path_factory.mktemp("verbs") / "site", site={"time_zone": "Europe/Berlin"}) as site:
        raise_incidents(
            site,
            finding(when=NOW - timedelta(days=21)),
            batch_finding("ann", HOSTILE, when=NOW - 2 * HOUR),
            finding(when=NOW - HOUR, jobs=REFS, lost=781, tried=781),
        )
    run_here(site.folder, "alarms", "confirm", "1", "--note", "disk replaced")
    return site.folder


@pytest.fixture
def fresh(tmp_path):
    """A site with one open incident, to act on."""
    with make_site(tmp_path / "site") as site:
        raise_incidents(site, finding(when=NOW - HOUR))
    return site.folder


def output(site, *words):
    done = run_here(site, "alarms", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_list_shows_open_incidents_and_what_to_do_next(site):
    text = output(site, "list")
    assert text.index("n017 fails every job since") < text.index("jobs of ann fail since")  # the newest first
    assert "2 open incidents; pages a week: 0.67, over 3.0 weeks. Times in Europe/Berlin." in text
    assert "Show one: stormpetrel alarms show 3" in text and "Acknowledge it: stormpetrel alarms ack 3" in text
    assert "resolved, confirmed" not in text and "resolved, confirmed" in output(site, "list", "--all")


@pytest.mark.parametrize("words", [("list", "--all"), ("show", "3"), ("mutes",)])
def test_no_line_is_longer_than_eighty_columns_and_no_name_is_obeyed(site, words):
    text = output(site, *words)
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text


def test_programs_get_the_document_that_is_promised(site):
    document = report_of(run_here(site, "alarms", "list", "--severity", "page", "--json"))
    assert document.keys() == {"incidents", "pages_per_week", "weeks", "quiet", "verdicts"}
    assert [one["id"] for one in document["incidents"]] == [3]
    assert report_of(run_here(site, "alarms", "list", "--all", "--limit", "1", "--json"))["incidents"] == document["incidents"]
    assert report_of(run_here(site, "alarms", "list", "--family", "traces", "--json"))["incidents"] == []
    assert report_of(run_here(site, "alarms", "list", "--since", "2100-01-01", "--json"))["incidents"] == []


def test_one_incident_is_shown_with_all_that_is_known(site):
    text = output(site, "show", "3")
    for part in (
        "Incident 3: page, open",
        "Why node is suspected",
        "jobs lost: 781",
        "usual before:",
        "/nodes?node=n017",
        "What happened",
        "sent at once",
        "Lost jobs, the newest of 19",
        "1 (confirmed): n017 fails",
        "disk replaced",
        "stormpetrel alarms ack 3",
        "stormpetrel alarms mute node:n017 --for 8h",
    ):
        assert part in text, part
    assert report_of(run_here(site, "alarms", "show", "3", "--json"))["jobs_total"] == 19


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("ack", "Incident 1 is acknowledged."),
        ("confirm", "Incident 1 is acknowledged, confirmed."),
        ("dismiss", "Incident 1 is resolved, dismissed."),
    ],
)
def test_a_verb_changes_the_state_and_says_so(fresh, verb, said):
    text = output(fresh, verb, "1", "--note", "looked at it")
    assert text.startswith(said) and "looked at it" in output(fresh, "show", "1")


def test_a_note_leaves_the_state_as_it_is(fresh):
    assert output(fresh, "note", "1", "disk ordered") == "The note is kept. Incident 1 is open.\n"
    assert report_of(run_here(fresh, "alarms", "note", "1", "it came", "--json"))["act"]["note"] == "it came"


def test_a_subject_is_muted_listed_and_heard_again(fresh):
    text = output(fresh, "mute", "node:n017", "--for", "8h", "--reason", "new disk")
    assert "Nothing is sent about node:n017 until " in text and "It holds back: 1." in text
    assert "node:n017 in c1 until " in output(fresh, "mutes") and "new disk" in output(fresh, "mutes")
    assert output(fresh, "unmute", "node:n017") == "node:n017 is no longer muted.\n"
    assert output(fresh, "mutes").startswith("Nothing is muted.")
    assert "is the name right?" in output(fresh, "mute", "node:n17", "--until", "2027-01-01" if NOW.year < 2027 else "2100-01-01")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("show", "99"), "There is no incident 99. List them: stormpetrel alarms list"),
        (("ack", "99"), "There is no incident 99."),
        (("note", "1", " "), "The note is empty."),
        (("mute", "n017", "--for", "8h"), "Write KIND:NAME, such as node:n017."),
        (("mute", "node:n017"), "Muted until when?"),
        (("mute", "node:n017", "--for", "soon"), "Write 8h, 90m or 2d"),
        (("unmute", "node:n018"), "'node:n018' is not muted."),
        (("list", "--family", "Jobs!"), "is not a family of rules and models"),
    ],
)
def test_what_cannot_be_done_is_one_line_with_what_to_do(site, words, complaint):
    done = run_here(site, "alarms", *words)
    assert done.returncode != 0 and not done.stdout and complaint in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_site_without_incidents_says_so(tmp_path):
    with make_site(tmp_path / "site") as site:
        pass
    assert output(site.folder, "list").splitlines() == [
        "There is no open incident.",
        "Also resolved ones: stormpetrel alarms list --all",
    ]
    assert "stormpetrel alarms replay" in output(site.folder, "list", "--all")


def test_a_site_without_a_name_is_refused_as_everywhere(tmp_path):
    assert complaint_of(run_here(tmp_path / "none", "alarms", "list"))


def test_a_verdict_is_withdrawn_on_the_command_line(fresh):
    output(fresh, "dismiss", "1")
    assert "alarms withdraw 1" in output(fresh, "show", "1")
    assert "Incident 1 is acknowledged." in output(fresh, "withdraw", "1", "--note", "it was one")


def test_cases_are_asked_about_and_answered_on_the_command_line(fresh):
    assert "alarms answer 'incident:1' confirm" in output(fresh, "ask")
    assert "Incident 1 is resolved, dismissed." in output(fresh, "answer", "incident:1", "dismiss")
    assert "There is nothing to ask" in output(fresh, "ask")
