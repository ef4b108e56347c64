"""The first two minutes of a job's CPU traces as columns of the job frame: theirs alone, and nothing later."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.jobs.features import features_at
from stormpetrel.jobs.history.history import History
from stormpetrel.jobs.model import JobOutcomeModel
from stormpetrel.jobs.moments import TELEMETRY_PREFIX, Moment
from stormpetrel.jobs.reasons import feature_text, reasons
from stormpetrel.jobs.training import TrainingSettings, label_jobs
from stormpetrel.lifecycle.job_telemetry import trace_version, with_telemetry
from stormpetrel.records.traces import NO_JOB, Trace, TraceJob
from stormpetrel.records.window_frames import job_start_frame
from stormpetrel.records.windows import job_start_windows, start_steps
from tests.builders import make_site
from tests.jobs.logs import made_jobs, make_log

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
WINDOW = 30


def job(number, *, start=0.0, end=None, cluster="c"):
    began = START + timedelta(seconds=start)
    return {
        "cluster": cluster, "job_id": number, "job_id_raw": number, "submit_time": began - timedelta(minutes=1), "user": "ada",
        "start_time": began, "end_time": None if end is None else START + timedelta(seconds=end), "state": "RUNNING",
    }  # fmt: skip


def put_trace(site, iowait, *, number=7, start=10, seconds=300, cluster="c"):
    """Two threads of a job from second `start` on; `iowait(second)` is its share then, before that they idle."""
    second = np.arange(seconds)
    waits = np.where(second >= start, [iowait(one - start) for one in second], 0.0)
    rates = np.zeros((seconds, 2, 4), dtype=np.float32)
    rates[:, :, 2], rates[:, :, 3] = waits[:, None], 1 - waits[:, None]
    held = np.where(second >= start, 0, NO_JOB).astype(np.int32)[:, None].repeat(2, axis=1)
    time_s = START.timestamp() + 1.0 + second
    trace = Trace("live", 1.0, time_s, ("n1", "n1"), (0, 1), rates, held, (TraceJob(str(number)),)).checked()
    steps, count = start_steps(round(site.settings.traces.window_s), 1.0)
    site.job_starts.append(job_start_frame(job_start_windows(trace, steps=steps, count=count), cluster=cluster))


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site", traces={"window_s": float(WINDOW)}) as site:
        yield site


def column(jobs, name):
    return jobs[f"{TELEMETRY_PREFIX}{name}"].to_list()


def test_a_jobs_first_two_minutes_are_summed_up_and_nothing_after_them_is_seen(site):
    put_trace(site, lambda second: 0.25 if second < 110 else 1.0)
    found = with_telemetry(site, made_jobs(job(8), job(7, start=10)))
    assert column(found, "iowait_mean") == [None, pytest.approx(0.25)] and column(found, "iowait_peak")[1] == pytest.approx(0.25)
    assert column(found, "threads") == [None, 2.0]
    assert found["job_id"].to_list() == [8, 7]  # in the order that they came in


@pytest.mark.parametrize("start", range(5, 105, 20))
def test_a_job_that_lived_two_minutes_has_its_window_with_the_default_length_wherever_it_began(tmp_path, start):
    with make_site(tmp_path / "default") as site:
        put_trace(site, lambda second: 0.25 if second < 100 else 1.0, start=start)
        found = with_telemetry(site, made_jobs(job(7, start=start)))
        assert column(found, "iowait_mean") == [pytest.approx(0.25)] and column(found, "threads") == [2.0]


def test_a_job_that_its_node_saw_too_late_has_none(site):
    put_trace(site, lambda second: 0.25, start=105)
    jobs = made_jobs(job(7, start=10))
    assert with_telemetry(site, jobs).equals(jobs)


def test_what_happens_later_changes_nothing(site, tmp_path):
    put_trace(site, lambda second: 0.25)
    with make_site(tmp_path / "other", traces={"window_s": float(WINDOW)}) as other:
        put_trace(other, lambda second: 0.25 if second < 120 else 0.9)
        jobs = made_jobs(job(7, start=10))
        assert with_telemetry(site, jobs).equals(with_telemetry(other, jobs))


def test_windows_of_another_cluster_of_an_earlier_job_of_that_id_or_of_a_job_that_was_over_do_not_count(site):
    put_trace(site, lambda second: 0.5)
    rows = [job(7, start=10, cluster="d"), job(7, start=-4000), job(7, start=10, end=100)]
    for row in rows:
        found = with_telemetry(site, made_jobs(row))
        assert not any(name.startswith(TELEMETRY_PREFIX) and found[name].drop_nulls().len() for name in found.columns), row


def test_a_live_loop_looks_only_at_jobs_that_it_is_about_to_judge(site):
    put_trace(site, lambda second: 0.5)
    jobs, due = made_jobs(job(7, start=10)), START + timedelta(seconds=130)
    soon = with_telemetry(site, jobs, between=(due - timedelta(seconds=5), due))
    assert column(soon, "iowait_mean") == [pytest.approx(0.5)]
    assert with_telemetry(site, jobs, between=(due, due + timedelta(seconds=5))).equals(jobs)
    assert with_telemetry(site, jobs, fewest=2).equals(jobs)


@pytest.mark.needs("onnxruntime")
def test_the_embedding_of_the_model_in_use_is_there_once_it_has_scored_and_bears_its_version(site):
    from stormpetrel.lifecycle.trace_models import load_trace_model, score_new_windows

    put_trace(site, lambda second: 0.5)
    model = load_trace_model(site)
    score_new_windows(site, model)
    found = with_telemetry(site, made_jobs(job(7, start=10)))
    name, version = trace_version(site)
    inside = site.job_start_scores.read().filter(pl.col("job_id") == "7").collect()
    mean = np.array(inside["embedding"].to_list()).mean(axis=0)
    assert (name, version) == (model.name, model.version) and inside.height == 6  # two threads, three windows
    assert column(found, f"e03@{name}/{version}") == [pytest.approx(mean[3], rel=1e-5)]
    assert column(found, f"score_max@{name}/{version}") == [pytest.approx(inside["score"].max())]


def with_waits(jobs, seed=0):
    """Failing jobs wait for files in their first two minutes, as far as the log goes."""
    noise = np.random.default_rng(seed).random(jobs.height)
    failed = (jobs["state"] != "COMPLETED").to_numpy()
    return jobs.with_columns(telemetry_iowait_mean=np.where(failed, 0.5 + 0.5 * noise, 0.5 * noise))


def test_a_model_that_has_learnt_telemetry_uses_it_and_does_without_where_there_is_none():
    jobs = make_log(400)
    labelled = label_jobs(with_waits(jobs), TrainingSettings(rounds=20))
    rows = labelled.reached(Moment.TWO_MINUTES)
    features = labelled.features[Moment.TWO_MINUTES].rows(rows)
    model = JobOutcomeModel(Moment.TWO_MINUTES, rounds=20).fit(features, labelled.failed[rows], labelled.outcome.filter(rows))
    assert "telemetry.iowait_mean" in model.importance(features)["feature"][:3].to_list()
    plain = features_at(labelled.jobs.drop("telemetry_iowait_mean"), History(), [Moment.TWO_MINUTES])[Moment.TWO_MINUTES].rows(
        rows
    )
    without = model.predict_proba(plain)
    assert without["risk"].is_finite().all() and not np.allclose(without["risk"], model.predict_proba(features)["risk"])
    told = reasons(model.explain(plain), plain, 0)
    assert any(reason.feature == "telemetry.iowait_mean" and "unknown" in reason.words for reason in told)


def test_a_model_that_knows_no_telemetry_leaves_it_out():
    labelled = label_jobs(make_log(400), TrainingSettings(rounds=20))
    rows = labelled.reached(Moment.TWO_MINUTES)
    features = labelled.features[Moment.TWO_MINUTES].rows(rows)
    model = JobOutcomeModel(Moment.TWO_MINUTES, rounds=20).fit(features, labelled.failed[rows], labelled.outcome.filter(rows))
    more = features_at(with_waits(labelled.jobs), History(), [Moment.TWO_MINUTES])[Moment.TWO_MINUTES].rows(rows)
    assert np.array_equal(model.risk(more), model.risk(features))


def test_telemetry_is_told_feature_text():
    assert feature_text("telemetry.iowait_mean", 0.62) == "share of CPU time waiting for I/O in the first two minutes: 62 %"
    assert "what its threads did" in feature_text("telemetry.e03@traces-vanilla/2", 0.1)
