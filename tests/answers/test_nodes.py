"""Nodes and their windows: what a site knows of them, for those who may see it."""

import json
from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.answers.node_board import BOARDS, Lack, jobs_of, make_board
from stormpetrel.answers.nodes import MOST_NODES, NodeQuestion, nodes, sampled
from stormpetrel.answers.trace_view import trace_view
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.errors import AccessError, MissingExtraError, NotThereError
from tests.answers import traced_sites as made
from tests.answers.live_sites import put_jobs
from tests.builders import make_site
from tests.jobs.logs import made_jobs

WINDOWS = made.campaign()
SCORES = made.scores_of(WINDOWS)
ADA, KIM, EVE = (Viewer(name, is_admin=False) for name in ("ada", "kim", "eve"))


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with make_site(tmp_path_factory.mktemp("nodes") / "site") as site:
        made.put_people(site)
        yield made.make_live(site, WINDOWS, SCORES)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    monkeypatch.setattr("stormpetrel.lifecycle.trace_models.load_trace_model", made.stand_in_model)


@pytest.fixture
def holding(tmp_path):
    """A site of its own that holds these windows and scores."""
    with make_site(tmp_path / "site") as site:
        yield lambda **tables: made.make_live(site, **tables)


# --- what is told ---------------------------------------------------------------------------------------------------------------


def test_every_scored_window_counts_for_its_node(live):
    answer = nodes(live, LOCAL)
    assert (answer.windows, answer.flagged) == (SCORES.height, SCORES["flagged"].sum())
    worst = SCORES.sort("score").row(-1, named=True)
    row = answer.nodes.filter(node=worst["node"]).row(0, named=True)
    assert row["worst"] == worst["score"] and row["job_id"] == worst["job_id"] and row["threads"] == 16
    assert answer.listed["score"].item(0) == worst["score"]
    assert answer.nodes["flagged"].is_sorted(descending=True)


def test_the_heat_map_holds_the_highest_score_of_each_node_and_moment(live):
    heat = nodes(live, LOCAL).heat
    assert heat.bin_s == 100 and heat.nodes == ("node001", "node002", "node003")
    for row, node in enumerate(heat.nodes):
        for column, start in enumerate(heat.starts):
            here = SCORES.filter(pl.col("node") == node, pl.col("window_start") == start)
            settled = here.filter(pl.col("job_type") != "Mixed")  # of threads that did not change hands, where there are any
            assert heat.worst[row, column] == pytest.approx((settled if settled.height else here)["score"].max())


def test_a_time_that_nobody_scored_is_a_gap(holding):
    gap = SCORES["window_start"].unique().sort()[3]
    live = holding(scores=SCORES.filter(~((pl.col("window_start") == gap) & (pl.col("node") == "node002"))))
    heat = nodes(live, LOCAL).heat
    assert np.isnan(heat.worst).nonzero() == ([1], [3])


def test_campaigns_that_lie_days_apart_stand_side_by_side(holding):
    later = SCORES.with_columns(pl.col("window_start") + timedelta(days=3))
    heat = nodes(holding(scores=pl.concat([SCORES, later])), LOCAL, NodeQuestion(span="all")).heat
    assert heat.skips and heat.bin_s == 100 and not np.isnan(heat.worst).any()
    assert list(heat.starts) == sorted({*SCORES["window_start"], *later["window_start"]})


def test_a_long_time_has_wide_columns_and_many_nodes_leave_the_calm_ones_out(holding):
    one = SCORES.head(2)
    many = [
        one.with_columns(
            node=pl.lit(f"n{number:03d}"),
            window_start=pl.col("window_start") + timedelta(hours=number),
            flagged=pl.lit(number > 20),
        )
        for number in range(MOST_NODES + 20)
    ]
    answer = nodes(holding(scores=pl.concat(many)), LOCAL, NodeQuestion(span="all"))
    assert answer.heat.of_nodes == MOST_NODES + 20 and len(answer.heat.nodes) == MOST_NODES
    assert "n021" in answer.heat.nodes and answer.nodes.height == MOST_NODES + 20
    assert len(answer.heat.starts) <= 96


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (NodeQuestion(node="node002"), pl.col("node") == "node002"),
        (NodeQuestion(kind="Bad IO"), pl.col("job_type") == "Bad IO"),
        (NodeQuestion(trace="monday"), pl.lit(True)),
        (NodeQuestion(trace="tuesday"), pl.lit(False)),
        (
            NodeQuestion(since=made.START + timedelta(seconds=100), until=made.START + timedelta(seconds=300)),
            pl.col("window_start").is_between(made.START + timedelta(seconds=100), made.START + timedelta(seconds=299)),
        ),
    ],
)
def test_a_choice_leaves_only_what_was_chosen(live, asked, expected):
    assert nodes(live, LOCAL, asked).windows == SCORES.filter(expected).height


def test_a_node_is_chosen_among_all_which_stay_on_the_heat_map(live):
    answer = nodes(live, LOCAL, NodeQuestion(node="node002"))
    assert answer.listed["node"].unique().to_list() == ["node002"]
    assert answer.heat.nodes == ("node001", "node002", "node003") and answer.nodes.height == 3


def test_the_last_hour_is_counted_from_the_latest_window(holding):
    later = SCORES.with_columns(pl.col("window_start") + timedelta(hours=5))
    live = holding(scores=pl.concat([SCORES, later]))
    assert nodes(live, LOCAL, NodeQuestion(span="hour")).windows == later.height
    assert nodes(live, LOCAL, NodeQuestion(span="all")).windows == 2 * later.height


def test_a_map_keeps_every_flagged_window():
    few = sampled(SCORES, most=100)
    assert few.height == 100
    assert few["flagged"].sum() == SCORES["flagged"].sum()
    assert sampled(SCORES, most=100).equals(few)
    fewest = sampled(SCORES, most=10)
    assert fewest["flagged"].all() and fewest["score"].min() >= SCORES["score"].top_k(10).min()


def test_only_the_version_in_use_is_shown(holding):
    live = holding(scores=pl.concat([SCORES.head(70), made.scores_of(WINDOWS.head(50), version=2)]))
    for _ in (1, 2):
        live.site.models.add(
            made.MODEL, lambda folder: folder.mkdir(parents=True), {"trained_until": "2026-03-01", "threshold": 0.5}
        )
    for version, windows in ((1, 70), (2, 50)):
        live.site.models.promote(made.MODEL, version)
        board = make_board(live, "", None).value
        assert (board.model_version, board.windows.height, board.threshold) == (version, windows, 0.5)


# --- who sees what --------------------------------------------------------------------------------------------------------------


def test_a_user_sees_windows_of_the_own_jobs_only(live):
    for viewer, jobs in ((ADA, made.ADA_JOBS), (KIM, made.KIM_JOBS)):
        answer = nodes(live, viewer, NodeQuestion(span="all"))
        own = SCORES.filter(pl.col("job_id").is_in([str(job) for job in jobs]))
        assert answer.own_only and answer.windows == own.height > 0
        assert set(answer.nodes["node"]) == set(own["node"]) == set(answer.heat.nodes)
        assert set(answer.names["kind"]) == set(own["job_type"])
        assert set(answer.listed["user"]) == set(answer.points["user"]) == {viewer.user}


def test_who_has_no_jobs_sees_nothing(live):
    answer = nodes(live, EVE)
    assert (answer.windows, answer.latest, answer.nodes.height, answer.names["node"]) == (0, None, 0, [])


def test_a_window_of_somebody_else_and_one_that_is_not_there_are_not_told_apart(live):
    foreign = nodes(live, KIM).listed["key"].item(0)
    problems = []
    for key in (foreign, foreign.replace("monday", "nowhere"), "1-2", "", "x" * 5000, "١-٢-a", "9" * 40 + "-1-a"):
        with pytest.raises(NotThereError) as error:
            trace_view(live, ADA, key)
        problems.append(str(error.value))
    assert len(set(problems)) == 1
    assert trace_view(live, LOCAL, foreign).window["user"] == "kim"


def test_reading_needs_the_scope(live):
    with pytest.raises(AccessError, match="read"):
        nodes(live, Viewer("ada", is_admin=False, scopes=frozenset({"predict"})))


def run(number, user, start_min, end_min, **more):
    start, end = (made.START + timedelta(minutes=minutes) for minutes in (start_min, end_min))
    return {
        "cluster": made.CLUSTER,
        "job_id": number,
        "user": user,
        "submit_time": start,
        "start_time": start,
        "end_time": end,
    } | more


@pytest.mark.parametrize(
    ("jobs", "user"),
    [
        ([run(1001, "ada", -5, 60)], "ada"),
        ([run(1001, "ada", -500, -400), run(1001, "kim", -5, 60)], "kim"),  # ids repeat: who ran then
        ([run(1001, "ada", -500, -400)], None),
        ([run(1001, "ada", -5, 60), run(1001, "kim", -4, 60)], None),  # both could be meant
        ([run(1001, "ada", -5, 60, cluster="elsewhere")], None),
        ([run(77, "ada", -5, 60, array_task=3, job_id_raw=1001)], "ada"),  # a task, by its internal id
    ],
)
def test_a_window_belongs_to_who_ran_that_job_at_that_time(tmp_path, jobs, user):
    with make_site(tmp_path / "site") as site:
        put_jobs(site, made_jobs(*jobs))
        live = made.make_live(site)
        found = jobs_of(SCORES.filter(pl.col("job_id") == "1001"), live.overview.frame)
    assert set(found["user"]) == ({user} if user or found.height else set())


# --- one window -----------------------------------------------------------------------------------------------------------------


def test_a_window_is_shown_with_its_reconstruction_and_its_neighbours(live):
    answer = nodes(live, LOCAL)
    view = trace_view(live, LOCAL, answer.listed["key"].item(0))
    kept = WINDOWS.filter(
        pl.col("node") == view.window["node"],
        pl.col("cpu") == view.window["cpu"],
        pl.col("window_start") == view.window["window_start"],
    )
    assert view.original[view.place, :, 2].tolist() == kept["iowait"].item(0).to_list()
    assert view.original.sum(axis=2) == pytest.approx(1, abs=1e-4)
    assert view.reconstruction.shape == view.original.shape == (16, 100, 4)
    assert view.reconstruction[3, 0] == pytest.approx(view.original[3].mean(axis=0), abs=1e-5)
    assert view.threads["same_job"].is_sorted(descending=True) and view.job_threads >= 1
    scores = {
        (row["node"], row["cpu"]): row["score"] for row in SCORES.filter(window_start=view.window["window_start"]).to_dicts()
    }
    assert all(scores[node, cpu] == score for node, cpu, score in view.threads.select("node", "cpu", "score").iter_rows())


def test_beside_the_own_window_a_user_sees_the_own_threads_only(live):
    view = trace_view(live, ADA, nodes(live, ADA).listed["key"].item(0))
    assert 0 < view.threads.height < 16 and view.of_threads == view.threads.height == len(view.original)
    assert set(view.threads["job_id"]) <= {str(job) for job in made.ADA_JOBS}
    assert "kim" not in json.dumps(view.as_json(), default=str)


def test_without_the_extra_the_trace_is_shown_all_the_same(live, monkeypatch):
    def missing(*_):
        raise MissingExtraError("Scoring traces", "traces")

    monkeypatch.setattr("stormpetrel.answers.trace_view.model_of", missing)
    view = trace_view(live, LOCAL, nodes(live, LOCAL).listed["key"].item(0))
    assert view.reconstruction is None and "stormpetrel[traces]" in view.problem.hint and len(view.original) == 16


def test_a_window_whose_trace_is_gone_says_so(holding):
    live = holding(windows=WINDOWS.tail(1), scores=SCORES)
    with pytest.raises(NotThereError, match="no longer kept"):
        trace_view(live, LOCAL, nodes(live, LOCAL).listed["key"].item(0))


@pytest.mark.needs("torch")
def test_the_reconstruction_is_that_of_the_model_in_use(holding, monkeypatch):
    from stormpetrel.lifecycle.trace_models import score_new_windows, train_trace_model
    from stormpetrel.traces.architecture import AutoencoderSettings

    monkeypatch.undo()  # the real one
    from stormpetrel.lifecycle.trace_models import load_trace_model

    live = holding(windows=WINDOWS)
    settings = AutoencoderSettings(channels=(4,), hidden=8, embedding=4, max_epochs=1, batch_windows=64)
    train_trace_model(live.site, settings=settings, device="cpu", user="root")
    model = load_trace_model(live.site, threads=1)
    score_new_windows(live.site, model)
    answer = nodes(live, LOCAL)
    view = trace_view(live, LOCAL, answer.listed["key"].item(0))
    error = ((view.original - view.reconstruction) ** 2).mean(axis=(1, 2))
    assert view.problem is None and error == pytest.approx(view.threads["score"].to_numpy(), rel=1e-3, abs=1e-5)
    assert answer.threshold == model.threshold and answer.near == (model.bad_io.radius if model.bad_io else None)


# --- the steps before -----------------------------------------------------------------------------------------------------------


def test_an_empty_site_lacks_windows(holding):
    assert nodes(holding(), LOCAL).lack is Lack.WINDOWS


def test_windows_alone_lack_scores(holding):
    live = holding(windows=WINDOWS)
    assert nodes(live, LOCAL).lack is Lack.SCORES
    live.site.models.add(made.MODEL, lambda folder: folder.mkdir(parents=True), {"trained_until": "2026-03-01T00:00:00+00:00"})
    live.site.models.promote(made.MODEL, 1)
    assert make_board(live, "", None).value.lack is Lack.SCORES


def test_scores_of_the_shipped_encoder_are_said_to_be_so_until_the_site_has_its_own(holding):
    shipped = SCORES.with_columns(model=pl.lit("traces-shipped"), flagged=pl.lit(False))
    live = holding(windows=WINDOWS, scores=shipped)
    answer = nodes(live, LOCAL)
    assert answer.shipped and answer.threshold is None and "Nothing is flagged" in answer.promise and answer.near > 0
    assert not trace_view(live, LOCAL, answer.listed["key"].item(0)).is_judged, "it was held against no threshold"
    live.site.trace_scores.append(SCORES)
    live.site.models.add(made.MODEL, lambda folder: folder.mkdir(parents=True), {"trained_until": "2026-03-01T00:00:00+00:00"})
    live.site.models.promote(made.MODEL, 1)
    assert make_board(live, "", None).value.model == made.MODEL


def test_a_board_is_made_anew_only_where_something_has_changed(holding):
    live = holding(windows=WINDOWS, scores=SCORES)
    first = make_board(live, "", None)
    assert make_board(live, "", first) is first
    made.put_people(live.site)
    live.refresh()
    second = make_board(live, "", first)
    assert second is not first and second.value.scored is first.value.scored and "ada" in second.value.windows["user"]
    live.site.trace_scores.append(SCORES.head(5).with_columns(pl.col("window_start") + timedelta(days=1)))
    third = make_board(live, "", second)
    assert third.value.windows.height == SCORES.height + 5


def test_the_oldest_windows_are_left_out_of_memory_and_counted(holding, monkeypatch):
    monkeypatch.setattr("stormpetrel.answers.node_board.MOST_WINDOWS", 100)
    live = holding(scores=SCORES)
    board = BOARDS.wait(live).value.value
    assert board.windows["window_start"].max() == SCORES["window_start"].max()
    assert board.left_out == SCORES.height - board.windows.height > 0
