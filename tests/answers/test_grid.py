"""The grid at the desk: how it stands, which alarms and outages, where; and what is told to whom."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.answers.grid import GridQuestion, GridState, grid
from stormpetrel.answers.grid_board import GRID_BOARDS, GridLack, make_grid_board
from stormpetrel.answers.grid_hour import MOST_BARS, bucket_view
from stormpetrel.answers.grid_words import finding_words
from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.errors import AccessError, NotThereError
from stormpetrel.figures.grid_drawn import time_spans, wall_times
from stormpetrel.records.event_counting import as_counts, covered
from stormpetrel.records.outages import Outage, OutageKind
from tests.answers import grid_sites as made
from tests.builders import make_site

GRID = made.made_grid()
SCORES = made.scores_of(GRID)
END = GRID.series.moment(len(GRID.series) - 1) + made.HOUR
ADA = Viewer("ada", is_admin=False)


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """A site with counts, outages, a gap and scores; its clock stands a little after the last bucket."""
    with make_site(tmp_path_factory.mktemp("grid") / "site") as site:
        site.now = lambda: END + timedelta(minutes=20)
        yield made.make_live(site, GRID, SCORES)


@pytest.fixture
def holding(tmp_path):
    """Makes a site with whatever it is given, whose clock can be set."""
    opened = []

    def make(*, counts=True, scores=None, now=END + timedelta(minutes=20), outages=(), **sections):
        site = make_site(tmp_path / f"site{len(opened)}", **sections)
        opened.append(site)
        site.now = lambda: now
        if counts:
            made.put_counts(site, GRID, by_place=False)
        for outage in outages:
            site.outages.add(outage)
        if scores is not None:
            site.event_scores.append(scores)
        live = LiveSite(site)
        live.refresh()
        return live

    yield make
    for site in opened:
        site.close()


def quiet(scores=SCORES):
    return scores.with_columns(alarm=pl.lit(False), why=pl.lit("[]"))


def alarmed(*places):
    """Scores with an alarm in these hours and in no other."""
    moments = [GRID.series.moment(place) for place in places]
    is_one = pl.col("bucket_start").is_in(moments)
    why = made.scores_of(GRID).filter(pl.col("alarm"))["why"].item(0)
    return quiet().with_columns(alarm=is_one, why=pl.when(is_one).then(pl.lit(why)).otherwise("why"))


# --- how it stands ---------------------------------------------------------------------------------------------------------


def test_an_empty_site_says_how_to_take_events_in(holding):
    answer = grid(holding(counts=False), LOCAL)
    assert answer.head.state is GridState.EMPTY and "stormpetrel ingest events --live" in answer.head.hint
    assert answer.board.lack is GridLack.EVENTS and (answer.first, answer.last) == (0, 0)


def test_counts_alone_lack_a_model_and_then_scores(holding):
    live = holding()
    answer = grid(live, LOCAL)
    assert answer.head.state is GridState.UNJUDGED and "stormpetrel events train" in answer.head.hint
    live.site.models.add(made.MODEL, lambda folder: folder.mkdir(parents=True), {"trained_until": "2025-01-07T00:00:00+00:00"})
    live.site.models.promote(made.MODEL, 1)
    assert make_grid_board(live, "", None).value.lack is GridLack.SCORES


def test_calm_is_calm(holding):
    head = grid(holding(scores=quiet()), LOCAL).head
    assert head.state is GridState.CALM and "Calm" in head.words


def test_an_alarm_is_told_since_when_and_why(holding):
    size = len(GRID.series)
    answer = grid(holding(scores=alarmed(size - 4, size - 3, size - 1)), LOCAL)
    assert answer.head.state is GridState.ALARM and answer.head.since == GRID.series.moment(size - 4)
    assert answer.findings and answer.findings[0] == answer.alarms[0].findings[0]


def test_an_alarm_that_is_over_is_none(holding):
    answer = grid(holding(scores=alarmed(len(GRID.series) - 5)), LOCAL)
    assert answer.head.state is GridState.CALM and len(answer.alarms) == 1 and answer.findings == ()


def test_data_that_stay_out_are_told(holding):
    head = grid(holding(scores=alarmed(len(GRID.series) - 1), now=END + timedelta(hours=5)), LOCAL).head
    assert head.state is GridState.SILENT and head.since == END


def test_a_bucket_that_is_not_over_yet_is_no_silence(holding):
    assert grid(holding(scores=quiet(), now=END + timedelta(minutes=69)), LOCAL).head.state is GridState.CALM


def test_during_a_maintenance_no_alarm_is_expected(holding):
    window = Outage(END - timedelta(hours=2), None, OutageKind.MAINTENANCE, "new <b>switch</b>")
    head = grid(holding(scores=quiet(), outages=[window]), LOCAL).head
    assert head.state is GridState.MAINTENANCE and "new <b>switch</b>" in head.words


def test_commands_are_for_administrators(holding):
    assert grid(holding(), ADA).head.hint == "" != grid(holding(), LOCAL).head.hint


# --- alarms and outages ----------------------------------------------------------------------------------------------------


def test_an_outage_is_raised_by_the_first_alarm_in_it(holding):
    start = GRID.series.moment(100) + timedelta(minutes=30)
    outages = [
        Outage(start, start + timedelta(hours=6), OutageKind.OUTAGE, "nodes down"),
        Outage(start + timedelta(hours=20), start + timedelta(hours=22), OutageKind.OUTAGE, "nobody noticed"),
        Outage(GRID.series.moment(200), GRID.series.moment(202), OutageKind.MAINTENANCE, "planned"),
    ]
    answer = grid(holding(scores=alarmed(102, 103), outages=outages), LOCAL, GridQuestion("all"))
    told = {seen.outage.title: (seen.raised, seen.delay) for seen in answer.outages}
    assert told["nodes down"] == (True, timedelta(hours=2.5))  # to the end of the bucket that was an alarm
    assert told["nobody noticed"] == (False, None) and told["planned"] == (None, None)
    assert answer.alarms[0].outages == ("nodes down",)


def test_an_outage_that_nobody_judged_is_neither_raised_nor_missed(holding):
    outage = Outage(GRID.series.moment(10), GRID.series.moment(12), OutageKind.OUTAGE, "before the model")
    live = holding(scores=made.scores_of(GRID, since=300), outages=[outage])
    (seen,) = grid(live, LOCAL, GridQuestion("all")).outages
    assert (seen.raised, seen.delay) == (None, None)


def test_a_maintenance_that_is_yet_to_come_is_told(holding):
    later = Outage(END + timedelta(days=3), END + timedelta(days=4), OutageKind.MAINTENANCE, "next week")
    live = holding(scores=quiet(), outages=[later])
    assert [seen.outage.title for seen in grid(live, LOCAL).outages] == ["next week"]
    assert grid(live, LOCAL, GridQuestion(until=END)).outages == ()


@pytest.mark.parametrize(
    ("asked", "buckets"),
    [
        (GridQuestion("day"), 24),
        (GridQuestion("week"), 168),
        (GridQuestion("all"), len(GRID.series)),
        (GridQuestion("nonsense"), 168),
        (GridQuestion(since=made.START + timedelta(hours=10), until=made.START + timedelta(hours=12.5)), 3),
        (GridQuestion(until=made.START + timedelta(hours=5)), 5),
        (GridQuestion(since=END + timedelta(days=900)), 0),
        (GridQuestion(until=made.START - timedelta(days=900)), 0),
    ],
)
def test_the_time_that_is_asked_for_is_the_time_that_is_shown(live, asked, buckets):
    answer = grid(live, LOCAL, asked)
    assert answer.last - answer.first == buckets == wall_times(answer, "UTC").size
    assert len(time_spans(answer, "UTC")) <= len(answer.alarms) + len(answer.outages) + len(answer.gaps)


def test_figures_show_the_clock_on_the_wall(live):
    answer = grid(live, LOCAL, GridQuestion("all"))
    assert str(wall_times(answer, "America/Chicago")[0]) == "2025-01-05T18:00:00"
    spans = time_spans(answer, "America/Chicago")
    assert spans and all(span.start.tzinfo is None and span.start < span.end for span in spans)


def test_a_gap_has_no_counts_and_tells_why(live):
    answer = grid(live, LOCAL, GridQuestion("all"))
    (gap,) = answer.gaps
    assert (gap.start, gap.end) == (GRID.series.moment(200), GRID.series.moment(206)) and "rotated" in gap.why
    assert np.isnan(answer.board.series.counts[200:206]).all() and not np.isnan(answer.board.series.counts[206]).any()


# --- one bucket ------------------------------------------------------------------------------------------------------------


def view(live, viewer=LOCAL, place=100, kind=""):
    board = GRID_BOARDS.wait(live).value
    return bucket_view(live, board, viewer, GRID.series.moment(place) + timedelta(minutes=59), kind)


def test_a_bucket_tells_each_kind_against_its_forecast(live):
    worst = int(SCORES["score"].arg_max())
    found = view(live, place=worst)
    assert found.place == worst and found.alarm and found.start == GRID.series.moment(worst)
    first = found.lines[0]
    assert first.kind == found.kind and first.is_outside
    assert [abs(line.surprise) for line in found.lines] == sorted((abs(line.surprise) for line in found.lines), reverse=True)
    column = GRID.series.kinds.index(first.kind)
    assert (first.count, first.expected) == (GRID.series.counts[worst, column], GRID.calm.counts[worst, column])


def test_places_add_up_to_the_whole(live):
    found = view(live, kind="JobTerminated")
    whole = next(line for line in found.lines if line.kind == "JobTerminated")
    assert set(found.where) == {"site", "submit_host", "group", "node"}
    for bars in found.where.values():
        assert sum(bars.counts) == whole.count and sum(bars.usual) == pytest.approx(whole.expected)
        assert len(bars.names) == len(bars.counts) == len(bars.usual) <= MOST_BARS + 1


def test_a_gap_says_so(live):
    found = view(live, place=203)
    assert "rotated" in found.gap and all(line.count is None for line in found.lines) and found.where == {}
    assert view(live, ADA, place=203).gap == ""


def test_a_time_without_counts_is_none(live):
    with pytest.raises(NotThereError, match="no counts of that time"):
        bucket_view(live, GRID_BOARDS.wait(live).value, LOCAL, END + timedelta(hours=5))


def test_a_kind_that_is_not_there_is_the_most_surprising_one(live):
    assert view(live, kind="nonsense").kind == view(live).lines[0].kind


# --- who sees what ---------------------------------------------------------------------------------------------------------


def test_groups_nodes_and_reasons_of_gaps_are_for_administrators(live):
    def everything(viewer):
        answer = grid(live, viewer, GridQuestion("all"))
        worst = view(live, viewer, place=int(SCORES["score"].arg_max()))
        return json.dumps([answer.findings, answer.alarms, answer.gaps, worst.findings, worst.where, worst.gap], default=str)

    own, full = everything(ADA), everything(LOCAL)
    nodes = GRID.places(0, 1)["node"][0]
    for secret in (made.SECRET_NODE, made.SECRET_GROUP, made.SOURCE, "rotated", nodes[0], '"group"'):
        assert secret in full or secret in nodes, secret
        assert secret not in own, secret
    assert "host2" in own  # submit hosts and sites are everybody's
    assert '"submit_host"' in own and '"site"' in own


def test_a_finding_without_its_group_still_says_what_and_how_much():
    why = SCORES.filter(pl.col("alarm"))["why"].item(0)
    host, group, hole = finding_words(why, now=END, zone="UTC", in_full=False)
    assert "host2" in host and "expected" in group and hole.startswith("A node fails the jobs")


@pytest.mark.parametrize("kept", ["", "[]", "nonsense", "[{}]", '[{"kind": "other"}]', '{"a": 1}', "null"])
def test_findings_that_cannot_be_read_are_left_out(kept):
    assert finding_words(kept, now=END, zone="UTC", in_full=True) == ()


def test_reading_needs_the_scope(live):
    with pytest.raises(AccessError, match="read"):
        grid(live, Viewer("ada", is_admin=False, scopes=frozenset({"predict"})))


# --- the board -------------------------------------------------------------------------------------------------------------


def test_a_board_is_made_anew_only_where_something_has_changed(holding):
    live = holding(scores=quiet())
    first = make_grid_board(live, "", None)
    assert make_grid_board(live, "", first) is first
    live.site.outages.add(Outage(GRID.series.moment(3), None, OutageKind.OUTAGE, "new"))
    second = make_grid_board(live, "", first)
    assert second is not first and second.value.outages[0].title == "new"
    live.site.event_scores.append(made.scores_of(GRID, version=2).with_columns(pl.col("said_at") + timedelta(days=1)))
    assert make_grid_board(live, "", second).value.model_version == 2


def test_the_model_in_use_is_shown_before_one_that_spoke_later(holding):
    live = holding(scores=quiet())
    live.site.event_scores.append(quiet(made.scores_of(GRID, version=2)))
    for _ in range(2):
        live.site.models.add(made.MODEL, lambda folder: folder.mkdir(parents=True), {"trained_until": "2025-01-07T00:00:00Z"})
    live.site.models.promote(made.MODEL, 1)
    assert make_grid_board(live, "", None).value.model_version == 1


def test_a_kind_that_no_model_knows_is_shown_without_a_forecast(holding):
    live = holding(scores=quiet())
    moment = GRID.series.moment(7)
    row = pl.DataFrame({"bucket_start": [moment], "kind": ["FileTransfer"], "place": [""], "value": [""], "count": [5]})
    rows = as_counts(row.with_columns(pl.col("bucket_start").cast(pl.Datetime("us", "UTC"))), "other", 3600)
    told = pl.concat([rows, covered("other", made.START, END, 3600)])
    live.site.event_counts.replace(told, source="other", start=made.START, end=END, bucket_s=3600)
    board = make_grid_board(live, "", None).value
    place = board.series.kinds.index("FileTransfer")
    assert place == len(board.series.kinds) - 1 and board.series.counts[7, place] == 5 and np.isnan(board.low[:, place]).all()


def test_a_score_that_is_missing_is_no_number(holding):
    scores = quiet().with_columns(score=pl.lit(None, dtype=pl.Float64), low=pl.lit(None, dtype=SCORES.schema["low"]))
    answer = grid(holding(scores=scores), LOCAL)
    assert np.isnan(answer.board.score).all() and np.isnan(answer.board.low).all() and answer.head.state is GridState.CALM


def test_an_answer_of_now_is_not_kept_for_later(live):
    first = grid(live, LOCAL).head
    clock = live.site.now
    live.site.now = lambda: END + timedelta(hours=9)
    assert grid(live, LOCAL).head.state is GridState.SILENT
    live.site.now = clock
    assert grid(live, LOCAL).head == replace(first)
