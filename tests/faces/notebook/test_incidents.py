from datetime import UTC, datetime, timedelta

import pytest

from stormpetrel.errors import NotThereError, UsageError
from stormpetrel.faces.notebook import alarms, cases, incident, judge, judge_case
from tests.builders import make_site
from tests.faces.notebook.hostile import HOSTILE, assert_is_text
from tests.parts.alarm_findings import batch_finding, finding
from tests.parts.raised_incidents import raise_incidents

NOW = datetime.now(UTC)
HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with make_site(tmp_path_factory.mktemp("notebook") / "site", site={"time_zone": "Europe/Berlin"}) as site:
        raise_incidents(
            site,
            finding(when=NOW - timedelta(days=21)),
            batch_finding(HOSTILE, HOSTILE, when=NOW - HOUR),
            finding(when=NOW - HOUR, jobs=["101-1714953600000000-0-c1"]),
        )
    return site.folder


def test_open_incidents_are_a_table_the_newest_first(folder):
    table = alarms(folder).table
    assert table["Number"].to_list() == [3, 2] and table["Severity"].to_list() == ["page", "info"]
    assert table.schema["Raised"].time_zone == "Europe/Berlin" and table["What"][0].startswith("n017 fails every job")
    assert len(alarms(folder, state="all")) == 3 and len(alarms(folder, severity="page")) == 1
    assert "pages a week: 0.67" in repr(alarms(folder))


def test_one_incident_shows_itself(folder):
    view = incident(folder, 3)
    assert {"Suspected: node", "Seen by jobs: node eats jobs", "What happened", "Lost jobs (1)", "Like it before"} == set(
        view.parts()
    )
    assert "jobs lost: 3" in repr(view) and "jobs lost: 3" in view._repr_html_() and "1: n017 fails" in repr(view)


def test_names_out_of_logs_are_text(folder):
    for shown in (alarms(folder, state="all"), incident(folder, 2)):
        assert_is_text(shown._repr_html_())


def test_a_site_without_such_incidents_says_so(folder):
    nothing = alarms(folder, since=NOW + HOUR)
    assert len(nothing) == 0 and nothing.table.height == 0 and "no such incident" in nothing._repr_html_()


def test_what_makes_no_sense_is_refused_in_a_sentence(folder):
    with pytest.raises(NotThereError, match="no incident 9"):
        incident(folder, 9)
    with pytest.raises(UsageError, match="no zone"):
        alarms(folder, since=datetime(2026, 1, 31))
    with pytest.raises(UsageError, match="limit"):
        alarms(folder, limit=0)


def test_a_verdict_and_an_answer_are_given_and_taken_back_in_a_notebook(tmp_path):
    with make_site(tmp_path / "site") as site:
        raise_incidents(site, finding(when=NOW - HOUR), batch_finding(when=NOW - HOUR))
    assert judge(site.folder, 1, "confirm", "disk").answer.verdict == "confirmed"
    assert judge(site.folder, 1, "withdraw").answer.verdict is None
    assert set(cases(site.folder)["case"]) == {"incident:1", "incident:2"}
    assert judge_case(site.folder, "incident:2", "dismiss") == "Incident 2 is resolved, dismissed."
