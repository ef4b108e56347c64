"""CPU traces in the replay: the scores that were stored, window by window."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.records.findings import FindingKind
from stormpetrel.records.traces import LIVE
from stormpetrel.records.window_frames import TRACE_SCORE_SCHEMA
from stormpetrel.watch.past.replay import replay
from stormpetrel.watch.past.traces import TracePast, scored_span
from tests.builders import make_site

START = datetime(2026, 3, 1, tzinfo=UTC)
WINDOW = timedelta(minutes=5)
WINDOWS = 400
ODD_FROM, ODD_UNTIL = 350, 360
NODES, THREADS = 6, 16


def scores(*, version=1, odd_until=ODD_UNTIL):
    """Windows of which one in two hundred is flagged, and on one node, for a while, nearly all."""
    rng = np.random.default_rng(1)
    places = [(at, node, thread) for at in range(WINDOWS) for node in range(NODES) for thread in range(THREADS)]
    odd = [node == 2 and ODD_FROM <= at < odd_until for at, node, _ in places]
    flagged = np.where(odd, rng.random(len(places)) < 0.9, rng.random(len(places)) < 0.005)
    columns = {
        "cluster": ["c"] * len(places),
        "trace": [LIVE] * len(places),
        "node": [f"n{node}" for _, node, _ in places],
        "cpu": [thread for *_, thread in places],
        "window_start": [START + at * WINDOW for at, *_ in places],
        "window_s": [WINDOW.total_seconds()] * len(places),
        "model": ["traces-made"] * len(places),
        "model_version": [version] * len(places),
        "score": flagged.astype(float),
        "flagged": flagged,
    }
    return pl.DataFrame({name: columns.get(name, [None] * len(places)) for name in TRACE_SCORE_SCHEMA}, schema=TRACE_SCORE_SCHEMA)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with make_site(tmp_path_factory.mktemp("traces") / "site", site={"time_zone": "UTC"}) as opened:
        opened.trace_scores.append(scores())
        yield opened


def test_windows_alone_are_a_past_and_an_odd_node_is_known_when_its_windows_had_ended(site):
    assert scored_span(site) == (START, START + WINDOWS * WINDOW)
    past = replay(site)
    (incident,) = past.incidents
    assert (incident.kinds, incident.families, incident.subjects[0].name) == ((FindingKind.WINDOWS_ODD,), ("traces",), "n2")
    third_end = START + (ODD_FROM + 3) * WINDOW
    assert third_end < incident.raised_at < third_end + 2 * timedelta(minutes=1) and past.looked_at.has_traces
    assert incident.findings[0].rule == "traces-made/1" and not incident.late


def test_small_steps_tell_the_same_and_another_future_changes_nothing(site, tmp_path):
    end, cut = START + WINDOWS * WINDOW, START + (ODD_FROM + 6) * WINDOW
    whole, walked = TracePast(site, START).step(end), TracePast(site, START)
    steps = [one for at in range(13, WINDOWS, 13) for one in walked.step(START + at * WINDOW)] + walked.step(end)
    assert steps == whole and len(whole) > 5
    with make_site(tmp_path / "other") as other:
        later = pl.col("window_start") >= cut
        other.trace_scores.append(scores().with_columns(flagged=pl.when(later).then(~pl.col("flagged")).otherwise("flagged")))
        before = [one for one in TracePast(other, START).step(end) if one.decided_at <= cut]
    assert before == [one for one in whole if one.decided_at <= cut]


def test_a_later_model_does_not_speak_of_windows_that_an_earlier_one_has_scored(tmp_path):
    with make_site(tmp_path / "again") as again:
        again.trace_scores.append(scores(odd_until=0))
        again.trace_scores.append(scores(version=2))
        assert TracePast(again, START).step(START + WINDOWS * WINDOW) == []
