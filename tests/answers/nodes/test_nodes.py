"""Nodes and their windows: what a site knows of them, for those who may see it."""

from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.answers.nodes.board import jobs_of, make_node_board
from stormpetrel.answers.nodes.nodes import MOST_NODES, node_drawing, node_names, nodes, sampled
from stormpetrel.answers.nodes.traces import window_traces
from stormpetrel.answers.schemas.nodes import NodesQuestion
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
    monkeypatch.setattr("stormpetrel.answers.nodes.board.load_trace_model", made.stand_in_model)


@pytest.fixture
def holding(tmp_path):
    """A site of its own that holds these windows and scores."""
    with make_site(tmp_path / "site") as site:
        yield lambda **tables: made.make_live(site, **tables)


def drawing(live, viewer, **question):
    return node_drawing(live.boards.nodes.wait(live).value, viewer, NodesQuestion(**question))


# --- what is told ---------------------------------------------------------------------------------------------------------------


def test_every_scored_window_counts_for_its_node(live):
    answer = nodes(live, LOCAL)
    assert (answer.windows, answer.flagged) == (SCORES.height, SCORES["flagged"].sum())
    worst = SCORES.sort("score").row(-1, named=True)
    (row,) = (row for row in answer.nodes if row.node == worst["node"])
    assert (row.worst, row.job_id, row.threads) == (worst["score"], worst["job_id"], 16)
    assert answer.worst[0].score == worst["score"]
    flagged = [row.flagged for row in answer.nodes]
    assert flagged == sorted(flagged, reverse=True)


def test_the_heat_map_holds_the_highest_score_of_each_node_and_moment(live):
    heat = drawing(live, LOCAL).heat
    assert heat.bin_s == 100 and heat.nodes == ("node001", "node002", "node003")
    for row, node in enumerate(heat.nodes):
        for column, start in enumerate(heat.starts):
            here = SCORES.filter(pl.col("node") == node, pl.col("window_start") == start)
            settled = here.filter(pl.col("job_type") != "Mixed")  # of threads that did not change hands, where there are any
            assert heat.worst[row, column] == pytest.approx((settled if settled.height else here)["score"].max())


def test_a_time_that_nobody_scored_is_a_gap(holding):
    gap = SCORES["window_start"].unique().sort()[3]
    live = holding(scores=SCORES.filter(~((pl.col("window_start") == gap) & (pl.col("node") == "node002"))))
    heat = drawing(live, LOCAL).heat
    assert np.isnan(heat.worst).nonzero() == ([1], [3])


def test_campaigns_that_lie_days_apart_stand_side_by_side(holding):
    later = SCORES.with_columns(pl.col("window_start") + timedelta(days=3))
    heat = drawing(holding(scores=pl.concat([SCORES, later])), LOCAL, span="all").heat
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
    shown = drawing(holding(scores=pl.concat(many)), LOCAL, span="all")
    assert shown.heat.of_nodes == MOST_NODES + 20 and len(shown.heat.nodes) == MOST_NODES
    assert "n021" in shown.heat.nodes and len(shown.nodes) == MOST_NODES + 20
    assert len(shown.heat.starts) <= 96


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (NodesQuestion(node="node002"), pl.col("node") == "node002"),
        (NodesQuestion(job_type="Bad IO"), pl.col("job_type") == "Bad IO"),
        (NodesQuestion(campaign="monday"), pl.lit(True)),
        (NodesQuestion(campaign="tuesday"), pl.lit(False)),
        (
            NodesQuestion(since=made.START + timedelta(seconds=100), until=made.START + timedelta(seconds=300)),
            pl.col("window_start").is_between(made.START + timedelta(seconds=100), made.START + timedelta(seconds=299)),
        ),
    ],
)
def test_a_choice_leaves_only_what_was_chosen(live, question, expected):
    assert nodes(live, LOCAL, question).windows == SCORES.filter(expected).height


def test_a_node_is_chosen_among_all_which_stay_on_the_heat_map(live):
    answer, shown = nodes(live, LOCAL, NodesQuestion(node="node002")), drawing(live, LOCAL, node="node002")
    assert {window.node for window in answer.worst} == {row.node for row in answer.nodes} == {"node002"}
    assert shown.heat.nodes == ("node001", "node002", "node003") and len(shown.nodes) == 3


def test_the_last_hour_is_counted_from_the_latest_window(holding):
    later = SCORES.with_columns(pl.col("window_start") + timedelta(hours=5))
    live = holding(scores=pl.concat([SCORES, later]))
    assert nodes(live, LOCAL, NodesQuestion(span="hour")).windows == later.height
    assert nodes(live, LOCAL, NodesQuestion(span="all")).windows == 2 * later.height


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
        board = make_node_board(live, "", None).value
        assert (board.model_version, board.windows.height, board.threshold) == (version, windows, 0.5)


# --- who sees what --------------------------------------------------------------------------------------------------------------


def test_a_user_sees_windows_of_the_own_jobs_only(live):
    for viewer, jobs in ((ADA, made.ADA_JOBS), (KIM, made.KIM_JOBS)):
        answer = nodes(live, viewer, NodesQuestion(span="all"))
        own = SCORES.filter(pl.col("job_id").is_in([str(job) for job in jobs]))
        assert answer.own_only and answer.windows == own.height > 0
        shown = drawing(live, viewer, span="all")
        assert {row.node for row in answer.nodes} == set(own["node"]) == set(shown.heat.nodes)
        assert set(node_names(live.boards.nodes.wait(live).value, viewer).job_type) == set(own["job_type"])
        assert {window.job_id for window in answer.worst} <= set(own["job_id"]) and set(shown.points["user"]) == {viewer.user}


def test_who_has_no_jobs_sees_nothing(live):
    answer = nodes(live, EVE)
    assert (answer.windows, answer.latest, answer.nodes) == (0, None, [])
    assert node_names(live.boards.nodes.wait(live).value, EVE).node == []


def test_a_window_of_somebody_else_and_one_that_is_not_there_are_not_told_apart(live):
    foreign = nodes(live, KIM).worst[0].key
    problems = []
    for key in (foreign, foreign.replace("monday", "nowhere"), "1-2", "", "x" * 5000, "١-٢-a", "9" * 40 + "-1-a"):
        with pytest.raises(NotThereError) as error:
            window_traces(live, ADA, key)
        problems.append(str(error.value))
    assert len(set(problems)) == 1
    assert window_traces(live, LOCAL, foreign).window.job_id in map(str, made.KIM_JOBS)


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
    view = window_traces(live, LOCAL, answer.worst[0].key)
    assert view.window == answer.worst[0] and view.judged
    here = SCORES.filter(window_start=view.window_start, node=view.window.node).sort("cpu")
    kept = {row["cpu"]: row for row in WINDOWS.filter(window_start=view.window_start, node=view.window.node).to_dicts()}
    assert {thread.cpu: thread.score for thread in view.threads} == dict(here.select("cpu", "score").rows())
    for thread in view.threads:
        assert thread.original == [kept[thread.cpu][mode] for mode in view.modes[:3]] + thread.original[3:]
        assert np.sum(thread.original, axis=0) == pytest.approx(np.ones(100), abs=1e-4)
        assert np.array(thread.reconstruction)[:, 0] == pytest.approx(np.mean(thread.original, axis=1), abs=1e-5)
    same_job = [thread.same_job for thread in view.threads]
    assert same_job == sorted(same_job, reverse=True) and same_job[0]


def test_beside_the_own_window_a_user_sees_the_own_threads_only(live):
    view = window_traces(live, ADA, nodes(live, ADA).worst[0].key)
    assert 0 < len(view.threads) == view.of_threads < 16
    assert {thread.job_id for thread in view.threads} <= {str(job) for job in made.ADA_JOBS}
    assert "kim" not in view.model_dump_json()


def test_without_the_extra_the_trace_is_shown_all_the_same(live, monkeypatch):
    def missing(*_):
        raise MissingExtraError("Scoring traces", "traces")

    monkeypatch.setattr("stormpetrel.answers.nodes.traces.model_of", missing)
    view = window_traces(live, LOCAL, nodes(live, LOCAL).worst[0].key)
    assert "stormpetrel[traces]" in view.error.hint and view.problem == f"{view.error.what} {view.error.hint}"
    assert len(view.threads) == 16 and all(thread.reconstruction is None and thread.original for thread in view.threads)


def test_a_window_whose_trace_is_gone_says_so(holding):
    live = holding(windows=WINDOWS.tail(1), scores=SCORES)
    with pytest.raises(NotThereError, match="no longer kept"):
        window_traces(live, LOCAL, nodes(live, LOCAL).worst[0].key)


@pytest.mark.needs("torch")
def test_the_reconstruction_is_that_of_the_model_in_use(holding, monkeypatch):
    from stormpetrel.lifecycle.trace_models import score_new_windows, train_trace_model
    from stormpetrel.traces.networks.architecture import AutoencoderSettings

    monkeypatch.undo()  # the real one
    from stormpetrel.lifecycle.trace_models import load_trace_model

    live = holding(windows=WINDOWS)
    settings = AutoencoderSettings(channels=(4,), hidden=8, embedding=4, max_epochs=1, batch_windows=64)
    train_trace_model(live.site, settings=settings, device="cpu", user="root")
    model = load_trace_model(live.site, threads=1)
    score_new_windows(live.site, model)
    answer = nodes(live, LOCAL)
    view = window_traces(live, LOCAL, answer.worst[0].key)
    error = [np.square(np.subtract(thread.original, thread.reconstruction)).mean() for thread in view.threads]
    assert view.problem is None and error == pytest.approx([thread.score for thread in view.threads], rel=1e-3, abs=1e-5)
    assert answer.threshold == model.threshold and answer.near == (model.bad_io.radius if model.bad_io else None)


# --- the steps before -----------------------------------------------------------------------------------------------------------


def test_an_empty_site_lacks_windows(holding):
    assert nodes(holding(), LOCAL).lack == "windows"


def test_windows_alone_lack_scores(holding):
    live = holding(windows=WINDOWS)
    assert nodes(live, LOCAL).lack == "scores"
    live.site.models.add(made.MODEL, lambda folder: folder.mkdir(parents=True), {"trained_until": "2026-03-01T00:00:00+00:00"})
    live.site.models.promote(made.MODEL, 1)
    assert make_node_board(live, "", None).value.lack == "scores"


def test_scores_of_the_shipped_encoder_are_said_to_be_so_until_the_site_has_its_own(holding):
    shipped = SCORES.with_columns(model=pl.lit("traces-shipped"), flagged=pl.lit(False))
    live = holding(windows=WINDOWS, scores=shipped)
    answer = nodes(live, LOCAL)
    assert answer.shipped and answer.threshold is None and "Nothing is flagged" in answer.promise and answer.near > 0
    assert not window_traces(live, LOCAL, answer.worst[0].key).judged, "it was held against no threshold"
    live.site.trace_scores.append(SCORES)
    live.site.models.add(made.MODEL, lambda folder: folder.mkdir(parents=True), {"trained_until": "2026-03-01T00:00:00+00:00"})
    live.site.models.promote(made.MODEL, 1)
    assert make_node_board(live, "", None).value.model == made.MODEL


def test_a_board_is_made_anew_only_where_something_has_changed(holding):
    live = holding(windows=WINDOWS, scores=SCORES)
    first = make_node_board(live, "", None)
    assert make_node_board(live, "", first) is first
    made.put_people(live.site)
    live.refresh()
    second = make_node_board(live, "", first)
    assert second is not first and second.value.scored is first.value.scored and "ada" in second.value.windows["user"]
    live.site.trace_scores.append(SCORES.head(5).with_columns(pl.col("window_start") + timedelta(days=1)))
    third = make_node_board(live, "", second)
    assert third.value.windows.height == SCORES.height + 5
    assert third.value.network is first.value.network, "a loaded model stays as long as it is in use"


def test_the_oldest_windows_are_left_out_of_memory_and_counted(holding, monkeypatch):
    monkeypatch.setattr("stormpetrel.answers.nodes.board.MOST_WINDOWS", 100)
    live = holding(scores=SCORES)
    board = live.boards.nodes.wait(live).value.value
    assert board.windows["window_start"].max() == SCORES["window_start"].max()
    assert board.left_out == SCORES.height - board.windows.height > 0
