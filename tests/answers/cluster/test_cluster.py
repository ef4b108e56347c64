"""The grid at the desk: how it stands, which alarms and outages, where; and what is told to whom."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.answers.cluster.alarms import finding_texts, kept_findings
from stormpetrel.answers.cluster.board import ClusterLack, build_cluster_board
from stormpetrel.answers.cluster.bucket import MOST_BARS, cluster_bucket
from stormpetrel.answers.cluster.cluster import ClusterState, cluster_now, cluster_period
from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.schemas.cluster import BucketQuestion, ClusterQuestion
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.errors import AccessError, NotThereError
from stormpetrel.figures.cluster.drawn import time_spans, wall_times
from stormpetrel.records.events import as_counts, covered
from stormpetrel.records.outages import Outage, OutageKind
from tests.answers import cluster_sites as made
from tests.builders import make_site

CLUSTER = made.sample_grid()
SCORES = made.scores_of(CLUSTER)
END = CLUSTER.series.moment(len(CLUSTER.series) - 1) + made.HOUR
ADA = Viewer("ada", is_admin=False)


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """A site with counts, outages, a gap and scores; its clock stands a little after the last bucket."""
    with make_site(tmp_path_factory.mktemp("grid") / "site") as site:
        site.now = lambda: END + timedelta(minutes=20)
        yield made.make_live(site, CLUSTER, SCORES)


@pytest.fixture
def holding(tmp_path):
    """Makes a site with whatever it is given, whose clock can be set."""
    opened = []

    def make(*, counts=True, scores=None, now=END + timedelta(minutes=20), outages=(), **sections):
        site = make_site(tmp_path / f"site{len(opened)}", **sections)
        opened.append(site)
        site.now = lambda: now
        if counts:
            made.put_counts(site, CLUSTER, by_place=False)
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
    moments = [CLUSTER.series.moment(place) for place in places]
    is_one = pl.col("bucket_start").is_in(moments)
    why = made.scores_of(CLUSTER).filter(pl.col("alarm"))["why"].item(0)
    return quiet().with_columns(alarm=is_one, why=pl.when(is_one).then(pl.lit(why)).otherwise("why"))


# --- how it stands ---------------------------------------------------------------------------------------------------------


def test_an_empty_site_says_how_to_take_events_in(holding):
    live = holding(counts=False)
    now, period = cluster_now(live, LOCAL), cluster_period(live, LOCAL)
    assert now.state == ClusterState.EMPTY and "stormpetrel ingest events --live" in now.hint
    assert now.lack == ClusterLack.EVENTS and (period.start, period.end, period.buckets) == (None, None, 0)


def test_counts_alone_lack_a_model_and_then_scores(holding):
    live = holding()
    now = cluster_now(live, LOCAL)
    assert now.state == ClusterState.UNJUDGED and "stormpetrel events train" in now.hint
    live.site.models.add(made.MODEL, lambda folder: folder.mkdir(parents=True), {"trained_until": "2025-01-07T00:00:00+00:00"})
    live.site.models.promote(made.MODEL, 1)
    assert build_cluster_board(live, "", None).value.lack is ClusterLack.SCORES


def test_calm_is_calm(holding):
    now = cluster_now(holding(scores=quiet()), LOCAL)
    assert now.state == ClusterState.CALM and "Calm" in now.headline


def test_an_alarm_is_told_since_when_and_why(holding):
    size = len(CLUSTER.series)
    live = holding(scores=alarmed(size - 4, size - 3, size - 1))
    now = cluster_now(live, LOCAL)
    assert now.state == ClusterState.ALARM and now.since == CLUSTER.series.moment(size - 4)
    assert now.findings and set(now.findings) == set(cluster_period(live, LOCAL).alarms[0].findings)


def test_an_alarm_that_is_over_is_none(holding):
    live = holding(scores=alarmed(len(CLUSTER.series) - 5))
    now = cluster_now(live, LOCAL)
    assert now.state == ClusterState.CALM and now.findings == [] and len(cluster_period(live, LOCAL).alarms) == 1


def test_data_that_stay_out_are_told(holding):
    now = cluster_now(holding(scores=alarmed(len(CLUSTER.series) - 1), now=END + timedelta(hours=5)), LOCAL)
    assert now.state == ClusterState.SILENT and now.since == END


def test_a_bucket_that_is_not_over_yet_is_no_silence(holding):
    assert cluster_now(holding(scores=quiet(), now=END + timedelta(minutes=69)), LOCAL).state == ClusterState.CALM


def test_during_a_maintenance_no_alarm_is_expected(holding):
    window = Outage(END - timedelta(hours=2), None, OutageKind.MAINTENANCE, "new <b>switch</b>")
    now = cluster_now(holding(scores=quiet(), outages=[window]), LOCAL)
    assert now.state == ClusterState.MAINTENANCE and "new <b>switch</b>" in now.headline


def test_commands_are_for_administrators(holding):
    assert cluster_now(holding(), ADA).hint == "" != cluster_now(holding(), LOCAL).hint


# --- alarms and outages ----------------------------------------------------------------------------------------------------


def test_an_outage_is_raised_by_the_first_alarm_in_it(holding):
    start = CLUSTER.series.moment(100) + timedelta(minutes=30)
    outages = [
        Outage(start, start + timedelta(hours=6), OutageKind.OUTAGE, "nodes down"),
        Outage(start + timedelta(hours=20), start + timedelta(hours=22), OutageKind.OUTAGE, "nobody noticed"),
        Outage(CLUSTER.series.moment(200), CLUSTER.series.moment(202), OutageKind.MAINTENANCE, "planned"),
    ]
    period = cluster_period(holding(scores=alarmed(102, 103), outages=outages), LOCAL, ClusterQuestion(span="all"))
    raised = {outage.title: (outage.raised, outage.delay_s) for outage in period.outages}
    assert raised["nodes down"] == (True, 2.5 * 3600)  # to the end of the bucket that was an alarm
    assert raised["nobody noticed"] == (False, None) and raised["planned"] == (None, None)
    assert period.alarms[0].outages == ["nodes down"] and period.alarms[0].labels == ["outage: nodes down"]


def test_an_outage_that_nobody_judged_is_neither_raised_nor_missed(holding):
    outage = Outage(CLUSTER.series.moment(10), CLUSTER.series.moment(12), OutageKind.OUTAGE, "before the model")
    live = holding(scores=made.scores_of(CLUSTER, since=300), outages=[outage])
    (outage,) = cluster_period(live, LOCAL, ClusterQuestion(span="all")).outages
    assert (outage.raised, outage.delay_s) == (None, None)


def test_a_maintenance_that_is_yet_to_come_is_told(holding):
    later = Outage(END + timedelta(days=3), END + timedelta(days=4), OutageKind.MAINTENANCE, "next week")
    live = holding(scores=quiet(), outages=[later])
    assert [outage.title for outage in cluster_period(live, LOCAL).outages] == ["next week"]
    assert cluster_period(live, LOCAL, ClusterQuestion(until=END)).outages == []


def drawn(live, question):
    """What a time comes to, and the arrays that its figures are drawn of."""
    board = live.boards.cluster.wait(live).value
    period = cluster_period(live, LOCAL, question, board=board)
    return period, board.value.arrays.between(period.start, period.end)


@pytest.mark.parametrize(
    ("question", "buckets"),
    [
        (ClusterQuestion(span="day"), 24),
        (ClusterQuestion(span="week"), 168),
        (ClusterQuestion(span="all"), len(CLUSTER.series)),
        (ClusterQuestion(), 168),
        (ClusterQuestion(since=made.START + timedelta(hours=10), until=made.START + timedelta(hours=12.5)), 3),
        (ClusterQuestion(until=made.START + timedelta(hours=5)), 5),
        (ClusterQuestion(since=END + timedelta(days=900)), 0),
        (ClusterQuestion(until=made.START - timedelta(days=900)), 0),
    ],
)
def test_the_time_that_is_asked_for_is_the_time_that_is_shown(live, question, buckets):
    period, arrays = drawn(live, question)
    assert period.buckets == buckets == wall_times(arrays, "UTC").size
    assert len(time_spans(period, "UTC")) <= len(period.alarms) + len(period.outages) + len(period.gaps)


def test_figures_show_the_clock_on_the_wall(live):
    period, arrays = drawn(live, ClusterQuestion(span="all"))
    assert str(wall_times(arrays, "America/Chicago")[0]) == "2025-01-05T18:00:00"
    spans = time_spans(period, "America/Chicago")
    assert spans and all(span.start.tzinfo is None and span.start < span.end for span in spans)


def test_a_gap_has_no_counts_and_tells_why(live):
    period, arrays = drawn(live, ClusterQuestion(span="all"))
    (gap,) = period.gaps
    assert (gap.start, gap.end) == (CLUSTER.series.moment(200), CLUSTER.series.moment(206)) and "rotated" in gap.why
    assert np.isnan(arrays.series.counts[200:206]).all() and not np.isnan(arrays.series.counts[206]).any()


# --- one bucket ------------------------------------------------------------------------------------------------------------


def view(live, viewer=LOCAL, place=100, kind=""):
    return cluster_bucket(live, viewer, BucketQuestion(at=CLUSTER.series.moment(place) + timedelta(minutes=59), kind=kind))


def test_a_bucket_tells_each_kind_against_its_forecast(live):
    worst = int(SCORES["score"].arg_max())
    found = view(live, place=worst)
    assert found.alarm and found.start == CLUSTER.series.moment(worst)
    first, surprises = found.kinds[0], [abs(kind.surprise) for kind in found.kinds]
    assert first.kind == found.kind and first.outside
    assert surprises == sorted(surprises, reverse=True)
    column = CLUSTER.series.kinds.index(first.kind)
    assert (first.count, first.expected) == (CLUSTER.series.counts[worst, column], CLUSTER.calm.counts[worst, column])


def test_places_add_up_to_the_whole(live):
    found = view(live, kind="JobTerminated")
    whole = next(kind for kind in found.kinds if kind.kind == "JobTerminated")
    assert set(found.where) == {"site", "submit_host", "group", "node"}
    for bars in found.where.values():
        assert sum(bars.counts) == whole.count and sum(bars.usual) == pytest.approx(whole.expected)
        assert len(bars.names) == len(bars.counts) == len(bars.usual) <= MOST_BARS + 1


def test_a_gap_says_so(live):
    found = view(live, place=203)
    assert "rotated" in found.gap and all(kind.count is None for kind in found.kinds) and found.where == {}
    assert view(live, ADA, place=203).gap == ""


def test_a_time_without_counts_is_none(live):
    with pytest.raises(NotThereError, match="no counts of that time"):
        cluster_bucket(live, LOCAL, BucketQuestion(at=END + timedelta(hours=5)))


def test_a_kind_that_is_not_there_is_the_most_surprising_one(live):
    assert view(live, kind="nonsense").kind == view(live).kinds[0].kind


# --- who sees what ---------------------------------------------------------------------------------------------------------


def test_groups_nodes_and_reasons_of_gaps_are_for_administrators(live):
    def everything(viewer):
        worst = view(live, viewer, place=int(SCORES["score"].arg_max()))
        answers = (cluster_now(live, viewer), cluster_period(live, viewer, ClusterQuestion(span="all")), worst)
        return "".join(answer.model_dump_json() for answer in answers)

    own, full = everything(ADA), everything(LOCAL)
    nodes = CLUSTER.places(0, 1)["node"][0]
    for secret in (made.SECRET_NODE, made.SECRET_GROUP, "rotated", nodes[0], '"group"'):
        assert secret in full or secret in nodes, secret
        assert secret not in own and made.SOURCE not in own, secret
    assert "host2" in own  # submit hosts and sites are everybody's
    assert '"submit_host"' in own and '"site"' in own


def test_a_finding_without_its_group_still_says_what_and_how_much():
    why = SCORES.filter(pl.col("alarm"))["why"].item(0)
    host, group, hole = finding_texts(kept_findings(why), now=END, zone="UTC", in_full=False)
    assert "host2" in host and "expected" in group and hole.startswith("A node fails the jobs")


@pytest.mark.parametrize("kept", ["", "[]", "nonsense", "[{}]", '[{"kind": "other"}]', '{"a": 1}', "null"])
def test_findings_that_cannot_be_read_are_left_out(kept):
    assert kept_findings(kept) == []


def test_reading_needs_the_scope(live):
    with pytest.raises(AccessError, match="read"):
        cluster_now(live, Viewer("ada", is_admin=False, scopes=frozenset({"predict"})))


# --- the board -------------------------------------------------------------------------------------------------------------


def test_a_board_is_made_anew_only_where_something_has_changed(holding):
    live = holding(scores=quiet())
    first = build_cluster_board(live, "", None)
    assert build_cluster_board(live, "", first) is first
    live.site.outages.add(Outage(CLUSTER.series.moment(3), None, OutageKind.OUTAGE, "new"))
    second = build_cluster_board(live, "", first)
    assert second is not first and second.value.outages[0].title == "new"
    live.site.event_scores.append(made.scores_of(CLUSTER, version=2).with_columns(pl.col("said_at") + timedelta(days=1)))
    assert build_cluster_board(live, "", second).value.model_version == 2


def test_the_model_in_use_is_shown_before_one_that_spoke_later(holding):
    live = holding(scores=quiet())
    live.site.event_scores.append(quiet(made.scores_of(CLUSTER, version=2)))
    for _ in range(2):
        live.site.models.add(made.MODEL, lambda folder: folder.mkdir(parents=True), {"trained_until": "2025-01-07T00:00:00Z"})
    live.site.models.promote(made.MODEL, 1)
    assert build_cluster_board(live, "", None).value.model_version == 1


def test_a_kind_that_no_model_knows_is_shown_without_a_forecast(holding):
    live = holding(scores=quiet())
    moment = CLUSTER.series.moment(7)
    row = pl.DataFrame({"bucket_start": [moment], "kind": ["FileTransfer"], "place": [""], "value": [""], "count": [5]})
    rows = as_counts(row.with_columns(pl.col("bucket_start").cast(pl.Datetime("us", "UTC"))), "other", 3600)
    told = pl.concat([rows, covered("other", made.START, END, 3600)])
    live.site.event_counts.replace(told, source="other", start=made.START, end=END, bucket_s=3600)
    board = build_cluster_board(live, "", None).value
    place = board.series.kinds.index("FileTransfer")
    assert (
        place == len(board.series.kinds) - 1 and board.series.counts[7, place] == 5 and np.isnan(board.arrays.low[:, place]).all()
    )


def test_a_score_that_is_missing_is_no_number(holding):
    scores = quiet().with_columns(score=pl.lit(None, dtype=pl.Float64), low=pl.lit(None, dtype=SCORES.schema["low"]))
    live = holding(scores=scores)
    arrays = live.boards.cluster.wait(live).value.value.arrays
    assert np.isnan(arrays.score).all() and np.isnan(arrays.low).all() and cluster_now(live, LOCAL).state == ClusterState.CALM


def test_an_answer_of_now_is_not_kept_for_later(live):
    first = cluster_now(live, LOCAL)
    clock = live.site.now
    live.site.now = lambda: END + timedelta(hours=9)
    assert cluster_now(live, LOCAL).state == ClusterState.SILENT
    live.site.now = clock
    assert cluster_now(live, LOCAL) == first
