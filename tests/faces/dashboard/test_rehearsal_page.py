"""The page of the rehearsal, and changes shown apart from anomalies on Alarms and Trends."""

import json
from unittest.mock import MagicMock

import pytest
from plotly.utils import PlotlyJSONEncoder

from stormpetrel.answers.alarms.rehearsal import HISTORY, LIVE, save_report
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.faces.dashboard.pages import alarms, rehearsal, trends
from tests.builders import T0, make_site

CELL = {"recall": 0.5, "delay_s": 5400.0, "n": 2, "paged": None, "paged_delay_s": None}
REPORT = {
    "faults": {"straggler": {"mild": CELL}},
    "false_pages_per_week": 1.25,
    "holes": ["A straggler in an MPI job (mild) would not be seen here: 0 of 3. <b>x</b>"],
    "labels": {"straggler": "a straggler in an MPI job"},
    "promised_pages_per_week": 3.0,
    "since": T0.isoformat(), "until": T0.isoformat(), "done_at": T0.isoformat(), "walks": 4,
}  # fmt: skip


@pytest.fixture
def live(tmp_path):
    with make_site(tmp_path / "site") as site:
        yield MagicMock(site=site, settings=site.settings)


def sent(component):
    return json.dumps(component, cls=PlotlyJSONEncoder)


def test_a_site_without_a_rehearsal_is_told_how_to_make_one(live):
    assert "stormpetrel rehearse" in sent(rehearsal.layout(live, LOCAL, {}))


def test_the_last_rehearsal_is_shown_with_its_holes_in_words_delays_and_false_pages(live):
    save_report(live.site.folder, HISTORY, REPORT)
    page = sent(rehearsal.layout(live, LOCAL, {}))
    for text in ("would not be seen here: 0 of 3", "a straggler in an MPI job", "90 min", "1.2", "the budget is 3", "4 walks"):
        assert text in page
    assert "In a copy of the live stream" not in page


def test_the_rehearsal_beside_the_live_stream_is_shown_as_that(live):
    save_report(live.site.folder, LIVE, REPORT | {"live": True})
    assert "In a copy of the live stream" in sent(rehearsal.layout(live, LOCAL, {}))


def test_users_are_not_shown_it(live):
    save_report(live.site.folder, HISTORY, REPORT)
    assert "straggler" not in sent(rehearsal.layout(live, Viewer("ada", is_admin=False), {}))


def test_incidents_that_a_change_explains_stand_in_a_card_of_their_own(monkeypatch):
    line = MagicMock(change="The application sweep is new since 2026-03-31.", id=7)
    monkeypatch.setattr(alarms, "incident_rows", lambda _live, lines: [{"number": one.id, "title": "t"} for one in lines])
    (card,) = alarms._changes(MagicMock(), [line])
    assert "Changes, not anomalies" in sent(card) and "sweep is new" in sent(card)
    assert alarms._changes(MagicMock(), []) == []


def test_what_is_new_at_the_site_is_on_trends(monkeypatch):
    monkeypatch.setattr(trends, "site_changes", lambda _site, _viewer: ["The user eve is new since 2026-03-31."])
    assert "The user eve is new" in sent(trends._new_here(MagicMock(), LOCAL))
    monkeypatch.setattr(trends, "site_changes", lambda _site, _viewer: [])
    assert trends._new_here(MagicMock(), LOCAL) == []
