"""The life of a trace model: trained on a site's windows, entered, loaded, and asked about what is new."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import numpy as np
import polars as pl
import pytest

from stormpetrel.engine import ONE_PROCESS, Engine
from stormpetrel.errors import ModelError, ModelFormatError
from stormpetrel.lifecycle import trace_learning
from stormpetrel.lifecycle.trace_learning import campaign_windows, learning_windows
from stormpetrel.lifecycle.trace_models import (
    TRACES,
    load_trace_model,
    loaded_traces,
    model_name,
    score_new_windows,
    train_trace_model,
)
from stormpetrel.lifecycle.window_scoring import score_frame
from stormpetrel.records.traces import BAD_IO, Split, TraceJob
from stormpetrel.records.window_frames import TRACE_SCORE_SCHEMA, frame_of, windows_of
from stormpetrel.records.windows import cut_windows, short_job_windows, without_short_jobs
from stormpetrel.store.registry.models import Training
from stormpetrel.traces.networks.architecture import Architecture
from tests.builders import make_site
from tests.lifecycle.traced_site import STEPS_S, campaign, put_windows, traced_site, train
from tests.traces.small import STEPS, one_torch_thread, small_trace


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_torch_thread():
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    with traced_site(tmp_path_factory.mktemp("sites") / "site") as site:
        entry = train(site)
        yield site, entry


def shares(windows):
    return windows.rates[:, :, :3]


# --- what is learnt from ------------------------------------------------------------------------------------------------------


def test_campaigns_are_learnt_from_by_what_they_are_for(trained):
    found = learning_windows(trained[0])
    assert (found.train.traces, found.validation.traces) == (("train",), ("validation",))
    assert np.array_equal(shares(found.train), shares(campaign(0))) and found.about["from"] == "campaigns"


def test_a_site_of_short_jobs_alone_is_learnt_from_and_scored(tmp_path):
    trace = small_trace(0, steps=20 * STEPS, name="live")
    trace.job[:] = np.where(trace.job >= 0, np.arange(trace.steps, dtype=np.int32)[:, None] // 6, -1)
    trace = replace(trace, jobs=tuple(TraceJob(str(number), "NP") for number in range(trace.steps // 6 + 1)))
    windows, short = cut_windows(trace, steps=STEPS), short_job_windows(trace, steps=STEPS)
    with make_site(tmp_path / "site", traces={"window_s": STEPS_S}) as site:
        for part in (without_short_jobs(windows, short), *short):
            put_windows(site, part)
        seen = learning_windows(site)
        assert seen.train.steps == STEPS and (seen.train.of_normal().job_types() == "NP").mean() > 0.8
        train(site)
        done = score_new_windows(site, load_trace_model(site))
        rows = site.trace_scores.read().collect()
    assert done.other_length == 0 and done.scored == rows.height
    assert set(rows.filter(job_type="NP")["window_s"]) == {2.0, 6.0} and rows["score"].is_finite().all()


def test_what_a_server_told_is_cut_in_time(tmp_path):
    with traced_site(tmp_path / "site", splits=False) as site:
        found = learning_windows(site)
    assert found.train.start_s.max() + STEPS_S <= found.validation.start_s.min()
    assert len(found.validation) / (len(found.train) + len(found.validation)) == pytest.approx(0.2, abs=0.05)
    assert found.about["from"] == "time"


def test_a_window_that_reaches_over_the_cut_is_left_out(tmp_path):
    overlapping = cut_windows(small_trace(0, steps=10 * STEPS), steps=STEPS, stride=STEPS // 2)
    with make_site(tmp_path / "site", traces={"window_s": STEPS_S}) as site:
        put_windows(site, overlapping)
        found = learning_windows(site)
    assert found.train.start_s.max() + STEPS_S <= found.validation.start_s.min()
    assert len(found.train) + len(found.validation) < len(overlapping)


def test_only_the_newest_windows_are_learnt_from(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_learning, "MOST_WINDOWS", 100)
    with traced_site(tmp_path / "site", splits=False) as site:
        found = learning_windows(site)
    assert len(found.train) + len(found.validation) <= 100
    assert found.train.start_s.min() >= campaign(2).start_s.min()


def test_windows_of_another_length_are_not_learnt_from(tmp_path):
    with traced_site(tmp_path / "site") as site:
        put_windows(site, cut_windows(small_trace(9, name="longer"), steps=2 * STEPS), Split.TRAIN)
        assert learning_windows(site).train.traces == ("train",)
    with (
        traced_site(tmp_path / "other", traces={"window_s": 500.0}) as site,
        pytest.raises(ModelError, match="no windows of 500 s"),
    ):
        learning_windows(site)


def test_a_site_without_windows_or_with_too_few_says_what_to_do(tmp_path):
    with make_site(tmp_path / "site", traces={"window_s": STEPS_S}) as site:
        with pytest.raises(ModelError, match=r"no windows of 16 s.*ingest traces"):
            train_trace_model(site)
        put_windows(site, campaign(0, steps=STEPS))
        with pytest.raises(ModelError, match="too few windows"):
            learning_windows(site)


def test_campaign_files_can_teach_without_being_in_the_site(tmp_path):
    traces = [small_trace(seed, name=f"run-{seed}") for seed in (0, 1)]
    found = campaign_windows(traces, window_s=STEPS_S)
    with make_site(tmp_path / "site", traces={"alarm_share": 0.05}) as site:
        entry = train(site, windows=found)
        assert entry.about["from"] == "campaign files" and "table_version" not in entry.about
        assert site.cpu_windows.read().collect().height == 0
        assert load_trace_model(site).version == 1


# --- training -----------------------------------------------------------------------------------------------------------------


def test_a_training_is_entered_current_and_says_what_it_saw(trained):
    site, entry = trained
    about = entry.about
    assert (entry.name, entry.version, entry.current) == ("traces-fast", 1, True)
    assert about["table_version"] == site.cpu_windows.table.version() and about["code_version"]
    assert about["windows"] == {"train": 112, "validation": 112} and about["window_s"] == STEPS_S
    assert about["data"]["train"]["windows"] == 128 and datetime.fromisoformat(about["trained_until"]).tzinfo
    assert site.models.current_training("traces").why == "trained by hand"


def test_no_more_calm_validation_windows_lie_above_the_threshold_than_was_asked_for(trained):
    model = load_trace_model(trained[0])
    scores = model.scorer.score(campaign(1))[~campaign(1).is_anomalous()]
    assert (scores > model.threshold).mean() <= 0.1 and model.promise.is_kept and model.promise.share == 0.1


def test_with_too_few_calm_windows_nothing_is_promised_and_nothing_flagged(tmp_path):
    with make_site(tmp_path / "site", traces={"window_s": STEPS_S}) as site:
        put_windows(site, campaign(0, name="live", steps=5 * STEPS))
        about = train(site).about
        assert about["threshold"] is None and about["promise"]["share"] is None
        assert about["promise"]["needed_windows"] == 2995 and about["promise"]["needed_hours"] > 1
        done = score_new_windows(site, load_trace_model(site))
    assert done.scored == 80 and done.flagged == 0


def test_a_model_from_before_promises_keeps_what_its_validation_windows_allow(trained):
    site, entry = trained
    old = {name: value for name, value in entry.about.items() if name != "promise"}
    few = {**old, "windows": {"train": 12, "validation": 2}}
    kept = [loaded_traces(site, Training("traces-1", (replace(entry, about=about),)), 1) for about in (old, few)]
    assert [model.threshold for model in kept] == [entry.about["threshold"], None]


def test_bad_io_is_known_from_every_campaign_but_that_for_test(trained):
    model = load_trace_model(trained[0])
    assert model.bad_io.windows == 2 * campaign(0).is_anomalous().sum()
    assert model.bad_io.centre.shape == (4,) and model.map.axes.shape == (2, 4)


def test_without_labelled_bad_io_there_is_no_centre(tmp_path):
    with make_site(tmp_path / "site", traces={"window_s": STEPS_S}) as site:
        put_windows(site, campaign(0, name="live").of_normal())
        train(site)
        model = load_trace_model(site)
        assert model.bad_io is None
        score_new_windows(site, model)
        assert site.trace_scores.read().collect()["bad_io_distance"].null_count() == 112


def test_the_same_seed_gives_the_same_model(tmp_path):
    scores = []
    for name in ("a", "b"):
        with traced_site(tmp_path / name) as site:
            train(site)
            scores.append(load_trace_model(site).scorer.score(campaign(2)))
    assert np.array_equal(*scores)


def test_the_architecture_is_that_of_the_settings_unless_one_is_named(tmp_path):
    with traced_site(tmp_path / "site", traces={"model": "node_gnn"}) as site:
        assert train(site).name == "traces-node_gnn"
        assert train(site, architecture=Architecture.JOB_GNN).name == model_name(Architecture.JOB_GNN)
        model = load_trace_model(site)
        assert (model.name, model.scorer.settings.architecture) == ("traces-job_gnn", Architecture.JOB_GNN)


@pytest.mark.parametrize("where", ["fit", "save"])
def test_a_training_that_is_killed_changes_nothing(tmp_path, monkeypatch, where):
    from stormpetrel.traces.networks.autoencoder import TraceAutoencoder

    with traced_site(tmp_path / "site") as site:
        train(site)
        before = load_trace_model(site), site.models.versions()

        def killed(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(TraceAutoencoder, where, killed)
        with pytest.raises(KeyboardInterrupt):
            train(site)
        monkeypatch.undo()
        assert site.models.versions() == before[1] and load_trace_model(site).version == before[0].version
        assert train(site).version == 2


def test_what_the_registry_knows_must_be_whole(tmp_path, monkeypatch):
    with traced_site(tmp_path / "site") as site:
        entry = train(site)
        for missing in (("map",), ("threshold", "promise"), ("step_s",)):
            about = {name: value for name, value in entry.about.items() if name not in missing}
            broken = Training("traces-1", (replace(entry, about=about),))
            monkeypatch.setattr(site.models, "current_training", lambda _family, broken=broken: broken)
            with pytest.raises(ModelFormatError, match=r"traces-1 is not whole.*traces train"):
                load_trace_model(site)


def test_an_older_training_is_put_in_use_again_if_it_can_be_read(tmp_path):
    with traced_site(tmp_path / "site") as site:
        for seed in (1, 2):
            train(site, settings={"seed": seed})
        assert TRACES.roll_back(site, user="ada").name == "traces-1" and load_trace_model(site).version == 1
        assert TRACES.promote(site, "traces-2", user="ada").current
        (site.models.folder_of("traces-fast", 1) / "model.json").write_text("{}")
        for back in (lambda: TRACES.roll_back(site), lambda: TRACES.promote(site, "traces-1")):
            with pytest.raises(ModelFormatError):
                back()
        assert load_trace_model(site).version == 2


# --- scoring ------------------------------------------------------------------------------------------------------------------


def test_every_window_is_scored_once(tmp_path):
    with traced_site(tmp_path / "site") as site:
        train(site)
        model = load_trace_model(site)
        done = score_new_windows(site, model)
        assert (done.scored, done.other_length, done.commits) == (384, 0, 1)
        assert score_new_windows(site, model).scored == 0
        rows = site.trace_scores.read().collect()
    assert rows.schema == TRACE_SCORE_SCHEMA and rows.height == 384 and done.flagged == rows["flagged"].sum()
    bad = rows.filter(job_type=BAD_IO)
    assert bad["score"].mean() > rows.filter(pl.col("job_type") != BAD_IO)["score"].mean()
    assert bad["bad_io_distance"].mean() < rows["bad_io_distance"].mean()
    assert rows["flagged"].to_list() == (rows["score"] > model.threshold).to_list()


def test_scores_are_those_of_the_windows(trained):
    site, _ = trained
    model = load_trace_model(site)
    score_new_windows(site, model)
    frame = frame_of(campaign(2, name="test"), cluster="c", split=Split.TEST)
    expected = frame.select("node", "cpu", "window_start").with_columns(
        pl.Series("expected", model.scorer.score(windows_of(frame)))
    )
    rows = site.trace_scores.read(model=model.name).filter(pl.col("trace") == "test").collect()
    joined = rows.join(expected, on=["node", "cpu", "window_start"])
    assert joined.height == 128 and joined["score"].to_numpy() == pytest.approx(joined["expected"].to_numpy())


def test_a_thread_that_changed_hands_is_scored_and_never_flagged(trained):
    model = load_trace_model(trained[0])
    model = replace(model, promise=replace(model.promise, threshold=0.0))
    frame = frame_of(campaign(2, name="test"), cluster="c", split=Split.TEST)
    mixed = frame.with_columns(job_id=pl.lit(None, dtype=pl.String), job_type=pl.lit("Mixed"))
    assert score_frame(model, frame)["flagged"].all()
    assert not score_frame(model, mixed)["flagged"].any() and score_frame(model, mixed)["score"].gt(0).all()


def test_chunks_hold_whole_moments_and_are_committed_one_by_one(tmp_path):
    with traced_site(tmp_path / "site") as site:
        train(site, architecture=Architecture.NODE_GNN)
        model = load_trace_model(site)
        done = score_new_windows(site, model, chunk_windows=50)
        in_chunks = site.trace_scores.read().collect().sort("trace", "node", "cpu", "window_start")
        assert done.scored == 384 and done.commits >= 6
        site.trace_scores.table.overwrite(in_chunks.clear().with_columns(month=pl.lit("")))
        score_new_windows(site, model)
        at_once = site.trace_scores.read().collect().sort("trace", "node", "cpu", "window_start")
    assert at_once["score"].to_numpy() == pytest.approx(in_chunks["score"].to_numpy(), rel=1e-5)


def test_workers_score_what_one_process_scores(tmp_path):
    with traced_site(tmp_path / "site") as site:
        train(site, architecture=Architecture.NODE_GNN)
        model = load_trace_model(site)
        scores = []
        for engine in (ONE_PROCESS, Engine(2)):
            done = score_new_windows(site, model, chunk_windows=100, engine=engine)
            assert done.scored == 384 and done.commits >= 3
            scores.append(site.trace_scores.read().collect().sort("trace", "node", "cpu", "window_start"))
            site.trace_scores.table.overwrite(scores[0].clear().with_columns(month=pl.lit("")))
    assert (
        scores[0]
        .drop("embedding", "score", "x", "y", "bad_io_distance")
        .equals(scores[1].drop("embedding", "score", "x", "y", "bad_io_distance"))
    )
    assert scores[1]["score"].to_numpy() == pytest.approx(scores[0]["score"].to_numpy(), rel=1e-5)  # of one thread and of two


def test_scoring_that_is_stopped_goes_on(tmp_path):
    with traced_site(tmp_path / "site") as site:
        train(site)
        model = load_trace_model(site)
        looks = []

        def stopped(share: float, words: str) -> None:
            looks.append(words)
            if len(looks) == 4:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            score_new_windows(site, model, chunk_windows=50, progress=stopped)
        kept = site.trace_scores.read().collect().height
        assert 0 < kept < 384 and score_new_windows(site, model).scored == 384 - kept


def test_a_late_window_is_scored_among_its_neighbours(tmp_path):
    with make_site(tmp_path / "site", traces={"window_s": STEPS_S}) as site:
        whole = campaign(0, name="live")
        late = np.arange(len(whole)) % 8 == 3
        put_windows(site, whole.take(~late))
        train(site, architecture=Architecture.NODE_GNN)
        model = load_trace_model(site)
        score_new_windows(site, model)
        put_windows(site, whole)
        assert score_new_windows(site, model).scored == late.sum()
        rows = site.trace_scores.read().collect().sort("window_start", "node", "cpu")
    expected = model.scorer.score(whole)[late]
    assert rows.filter(pl.col("cpu") == 3)["score"].to_numpy() == pytest.approx(expected, rel=1e-4)


def test_windows_that_the_model_does_not_see_are_counted(tmp_path):
    with traced_site(tmp_path / "site") as site:
        train(site)
        put_windows(site, cut_windows(small_trace(9, name="longer"), steps=2 * STEPS))
        done = score_new_windows(site, load_trace_model(site))
    assert (done.scored, done.other_length) == (384, 80)


def test_a_new_version_scores_everything_again(tmp_path):
    with traced_site(tmp_path / "site") as site:
        for version in (1, 2):
            train(site, settings={"seed": version})
            assert score_new_windows(site, load_trace_model(site)).scored == 384
        assert site.trace_scores.read(version=2).collect().height == 384
