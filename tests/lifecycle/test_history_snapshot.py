"""Snapshots of the history: from any cut on it goes on to the last bit as one sweep; whatever does not fit is made anew."""

from __future__ import annotations

import json
from datetime import timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from stormpetrel.jobs.features import features_now
from stormpetrel.jobs.history.history import History, event_times, in_order
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.predictor import JobPredictor
from stormpetrel.lifecycle import history_snapshot
from stormpetrel.lifecycle.history_snapshot import carry_history, recall_history
from stormpetrel.lifecycle.job_models import load_models
from stormpetrel.lifecycle.live import open_stream
from stormpetrel.records.jobs import KEY
from stormpetrel.store.site import open_site
from stormpetrel.store.upkeep.upkeep import forget, retain
from tests.jobs.logs import one_thread, small_logs
from tests.lifecycle.sites import DAYS, day, few_trees, put_jobs, steady_log, trained_site

NOW = day(DAYS)


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_thread():
        yield


@pytest.fixture
def site(tmp_path):
    with few_trees(), open_site(trained_site(tmp_path / "site", steady_log(), until=10)) as opened:
        yield opened


def readings(predictor: JobPredictor, jobs: pl.DataFrame) -> np.ndarray:
    """What the history says about these jobs now, as bits."""
    now = np.full(jobs.height, NOW.timestamp())
    parts = [features_now(predictor.profiled(jobs), predictor.history, moment, now).values for moment in MOMENTS]
    return np.concatenate(parts, axis=1).view(np.uint32)


def recalled(site, *, now=NOW) -> JobPredictor:
    predictor = load_models(site)
    recall_history(site, predictor, now=now, fewest=10)
    return predictor


def swept(site, *, now=NOW) -> JobPredictor:
    """One sweep over all jobs, without any snapshot."""
    empty = load_models(site)
    return JobPredictor(empty.models, empty.profiles, site.jobs.read_jobs(until=now).collect(), now=now)


@pytest.mark.parametrize("similar_names", [False, True])
@settings(max_examples=60, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(jobs=small_logs(), data=st.data())
def test_from_any_cut_on_the_history_goes_on_to_the_last_bit(similar_names, jobs, data):
    jobs = in_order(jobs.unique(list(KEY), keep="first", maintain_order=True))  # as a table of jobs has them
    happened = event_times(jobs)
    times = happened[~np.isnan(happened)]
    cut = data.draw(st.sampled_from([*times, *(times + 0.5), times.min() - 1.0]))
    whole = (
        History(similar_names=similar_names)
        .advance(jobs, happened < -np.inf, since=-np.inf, until=np.inf, moments=MOMENTS)
        .readings
    )
    first = History(stand_in={}, similar_names=similar_names)
    before = first.advance(jobs, happened < -np.inf, since=-np.inf, until=float(np.nextafter(cut, -np.inf)), moments=MOMENTS)
    second = History(stand_in={}, similar_names=similar_names)
    second.restore({name: array.copy() for name, array in first.to_arrays().items()})
    with np.errstate(invalid="ignore"):
        open_at_cut = (happened >= cut).any(axis=1)
    rest = jobs.filter(pl.Series(open_at_cut))
    after = second.advance(rest, happened[open_at_cut] < cut, since=-np.inf, until=np.inf, moments=MOMENTS)
    rows = np.flatnonzero(open_at_cut)
    for column, moment in enumerate(MOMENTS):
        joined = before.readings.at[moment].copy()
        later = happened[rows, column] >= cut
        joined[rows[later]] = after.readings.at[moment][later]
        np.testing.assert_array_equal(joined.view(np.uint32), whole.at[moment].view(np.uint32))
    similarity = before.readings.similarity.copy()
    similarity[rows] = after.readings.similarity
    np.testing.assert_array_equal(similarity, whole.similarity)


def test_a_history_from_a_snapshot_is_to_the_last_bit_that_of_one_sweep(site, monkeypatch):
    jobs = site.jobs.read_jobs().collect()
    monkeypatch.setattr(history_snapshot, "PIECE_ROWS", 40)
    wanted = readings(swept(site), jobs)
    np.testing.assert_array_equal(readings(recalled(site), jobs), wanted)  # by pieces
    assert (site.snapshots / "history.json").stat().st_mode & 0o077 == 0
    monkeypatch.setattr(history_snapshot, "pieces", None)  # the second finds everything
    np.testing.assert_array_equal(readings(recalled(site), jobs), wanted)


def test_a_snapshot_is_carried_on_and_not_made_anew(site, monkeypatch):
    jobs = site.jobs.read_jobs().collect()
    recalled(site, now=NOW - timedelta(days=8))
    since = []
    real = history_snapshot.pieces
    monkeypatch.setattr(history_snapshot, "pieces", lambda site, cut, until: since.append(cut) or real(site, cut, until))
    predictor = recalled(site)
    assert since and all(since)
    np.testing.assert_array_equal(readings(predictor, jobs), readings(swept(site), jobs))


def test_an_earlier_time_is_swept_by_itself_and_leaves_the_later_snapshot(site):
    recalled(site)
    record = (site.snapshots / "history.json").read_text()
    jobs = site.jobs.read_jobs().collect()
    early = NOW - timedelta(days=9)
    np.testing.assert_array_equal(readings(recalled(site, now=early), jobs), readings(swept(site, now=early), jobs))
    assert (site.snapshots / "history.json").read_text() == record


def test_a_record_that_came_late_is_counted(site):
    recalled(site)
    late = site.jobs.read_jobs().collect().sort("submit_time").tail(1)
    late = late.with_columns(
        pl.col("submit_time", "start_time", "end_time") - timedelta(days=6), job_id=pl.lit(999_999), state=pl.lit("FAILED")
    )
    put_jobs(site, late)
    jobs = site.jobs.read_jobs().collect()
    np.testing.assert_array_equal(readings(recalled(site), jobs), readings(swept(site), jobs))


def test_what_happened_since_leaves_the_snapshot_in_use(site, monkeypatch):
    recalled(site)
    fresh = site.jobs.read_jobs().collect().sort("submit_time").tail(1).with_columns(
        pl.col("submit_time", "start_time", "end_time") + timedelta(minutes=1), job_id=pl.lit(999_999)
    )  # fmt: skip
    put_jobs(site, fresh)
    monkeypatch.setattr(history_snapshot, "pieces", None)
    jobs = site.jobs.read_jobs().collect()
    np.testing.assert_array_equal(readings(recalled(site), jobs), readings(swept(site), jobs))


@pytest.mark.parametrize("damage", ["arrays", "record", "identity", "missing"])
def test_a_damaged_or_foreign_snapshot_is_made_anew(site, damage):
    recalled(site)
    record, (arrays,) = site.snapshots / "history.json", site.snapshots.glob("*.npz")
    if damage == "arrays":
        content = bytearray(arrays.read_bytes())
        content[len(content) // 2] ^= 1
        arrays.write_bytes(content)
    elif damage == "record":
        record.write_text("[1, 2")
    elif damage == "identity":
        record.write_text(json.dumps({**json.loads(record.read_text()), "identity": {}}))
    else:
        arrays.unlink()
    jobs = site.jobs.read_jobs().collect()
    np.testing.assert_array_equal(readings(recalled(site), jobs), readings(swept(site), jobs))
    assert json.loads(record.read_text())["identity"]


def test_a_stream_from_a_snapshot_goes_on_as_one_that_has_seen_all(site, monkeypatch):
    jobs = site.jobs.read_jobs().collect()
    whole = open_stream(site, horizon=NOW, remember=False)
    recalled(site)
    monkeypatch.setattr(history_snapshot, "pieces", None)
    stream = open_stream(site, horizon=NOW, remember=False)
    assert stream.open_jobs == whole.open_jobs
    np.testing.assert_array_equal(readings(stream.predictor, jobs), readings(whole.predictor, jobs))


@pytest.mark.parametrize("delete", [lambda site: forget(site, "user3"), lambda site: retain(site, 1)])
def test_a_snapshot_goes_with_the_jobs_that_are_deleted(site, delete):
    recalled(site)
    delete(site)
    assert not site.snapshots.exists()


def test_few_jobs_are_swept_without_a_snapshot(site):
    assert carry_history(site, load_models(site), until=NOW) is None
    assert not site.snapshots.exists()


def test_a_site_that_cannot_be_written_does_without(site, monkeypatch):
    monkeypatch.setattr(site, "read_only", "it is on a read-only disk")
    assert carry_history(site, load_models(site, moments=[Moment.SUBMIT]), until=NOW, fewest=10) is not None
    assert not site.snapshots.exists()
