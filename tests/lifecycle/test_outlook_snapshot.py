"""Snapshots of the outlook: from any cut on it goes on to the last bit as one sweep; whatever does not fit is made anew."""

from __future__ import annotations

import hashlib
import io
from datetime import timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from stormpetrel.jobs.advice.outlook_past import OutlookPast
from stormpetrel.jobs.history.history import event_times
from stormpetrel.jobs.history.keys import stand_ins
from stormpetrel.jobs.needs.past_use import RESOURCES
from stormpetrel.jobs.predictor import known_by
from stormpetrel.lifecycle import outlook_snapshot
from stormpetrel.lifecycle.outlook_snapshot import NAME, site_past
from stormpetrel.records.jobs import KEY
from stormpetrel.store.site import open_site
from stormpetrel.store.upkeep.upkeep import forget
from tests.jobs.logs import one_thread, small_logs
from tests.lifecycle.sites import DAYS, day, few_trees, put_jobs, steady_log, trained_site

NOW = day(DAYS)
FOLLOW_FROM = day(10).timestamp()


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_thread():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with few_trees():
        return trained_site(tmp_path_factory.mktemp("outlook") / "site", steady_log(), until=10)


@pytest.fixture
def site(folder, tmp_path):
    import shutil

    shutil.copytree(folder, tmp_path / "site")
    with open_site(tmp_path / "site") as opened:
        yield opened


def bits(past: OutlookPast, jobs: pl.DataFrame, now: float) -> list[np.ndarray]:
    """What a past says about these jobs, as bits."""
    uses = [past.past_use[name].read(jobs, [now] * jobs.height) for name in sorted(past.past_use)]
    log = past.followed()
    followed = [log.features, log.readings, log.table.submit, log.table.start, log.table.end]
    return [np.ascontiguousarray(array).view(np.uint8) for array in (*uses, past.queue.read(jobs, now), *followed)]


def assert_same(one: OutlookPast, other: OutlookPast, jobs: pl.DataFrame, now: float = NOW.timestamp()) -> None:
    for mine, theirs in zip(bits(one, jobs, now), bits(other, jobs, now), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def recalled(site, *, now=NOW) -> OutlookPast:
    return site_past(site, RESOURCES, FOLLOW_FROM, now=now, fewest=10)


def swept(site, *, now=NOW) -> OutlookPast:
    return OutlookPast.of(known_by(site.jobs.read_jobs(until=now).collect(), now), RESOURCES, FOLLOW_FROM)


@settings(max_examples=60, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(small_logs(), st.data())
def test_from_any_cut_on_the_past_goes_on_to_the_last_bit(jobs, data):
    jobs = jobs.unique(list(KEY), keep="first", maintain_order=True)  # as a table of jobs has them
    happened = event_times(jobs)
    times = happened[~np.isnan(happened)]
    cut = data.draw(st.sampled_from([*times, *(times + 0.5), times.min() - 1.0]))
    follow_from = data.draw(st.sampled_from([times.min(), float(np.median(times)), cut, times.max() + 1.0]))
    whole = OutlookPast(RESOURCES, follow_from, stand_ins(jobs))
    whole.advance(jobs, since=-np.inf, until=cut)  # in one: what the first span computes of those over before the cut is the same
    first = OutlookPast(RESOURCES, follow_from, stand_ins(jobs))
    first.advance(jobs, since=-np.inf, until=cut)
    second = OutlookPast(RESOURCES, follow_from, stand_ins(jobs))
    second.restore({name: array.copy() for name, array in first.to_arrays().items()})
    assert_same(second, whole, jobs, now=cut)
    with np.errstate(invalid="ignore"):
        open_at_cut = (happened >= cut).any(axis=1) | np.isnan(happened[:, 3])
    second.advance(jobs.filter(pl.Series(open_at_cut)), since=cut, until=np.inf)
    if follow_from <= times.min():  # then both compute the expected run of every job
        once = OutlookPast.of(jobs, RESOURCES, follow_from)
        assert_same(second, once, jobs, now=float(times.max()) + 1.0)
    else:
        once = OutlookPast.of(jobs, RESOURCES, follow_from)
        for mine, theirs in zip(second.followed().features.T, once.followed().features.T, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


def test_a_past_from_a_snapshot_is_to_the_last_bit_that_of_one_sweep(site, monkeypatch):
    jobs = site.jobs.read_jobs().collect()
    wanted = swept(site)
    assert len(wanted.followed().features) > 20
    assert_same(recalled(site), wanted, jobs)
    assert (site.snapshots / NAME).stat().st_mode & 0o077 == 0
    monkeypatch.setattr(outlook_snapshot, "write_arrays", None)  # the second finds everything
    assert_same(recalled(site), wanted, jobs)


def test_what_happened_since_leaves_the_snapshot_in_use(site, monkeypatch):
    recalled(site)
    fresh = site.jobs.read_jobs().collect().sort("submit_time").tail(1).with_columns(
        pl.col("submit_time", "start_time", "end_time") - timedelta(minutes=1), job_id=pl.lit(999_999)
    )  # fmt: skip
    put_jobs(site, fresh)
    monkeypatch.setattr(outlook_snapshot, "write_arrays", None)
    assert_same(recalled(site), swept(site), site.jobs.read_jobs().collect())


def test_a_record_that_came_late_is_counted(site):
    recalled(site)
    late = site.jobs.read_jobs().collect().sort("submit_time").tail(1)
    put_jobs(site, late.with_columns(pl.col("submit_time", "start_time", "end_time") - timedelta(days=6), job_id=pl.lit(999_999)))
    assert_same(recalled(site), swept(site), site.jobs.read_jobs().collect())


def test_another_day_has_another_snapshot(site):
    jobs = site.jobs.read_jobs().collect()
    for now in (NOW - timedelta(days=8), NOW, NOW - timedelta(days=4)):
        assert_same(recalled(site, now=now), swept(site, now=now), jobs, now=now.timestamp())


@pytest.mark.parametrize("damage", ["bit", "cut short", "empty", "identity", "numbers", "record", "missing"])
def test_a_damaged_or_foreign_snapshot_is_made_anew(site, damage, monkeypatch):
    recalled(site)
    path = site.snapshots / NAME
    content = bytearray(path.read_bytes())
    if damage == "bit":
        content[len(content) // 2] ^= 1
    elif damage == "cut short":
        content = content[: len(content) // 3]
    elif damage == "empty":
        content = bytearray()
    elif damage == "identity":
        monkeypatch.setattr(outlook_snapshot, "FORMAT_VERSION", 99)
    elif damage in ("numbers", "record"):  # whole by its digest, and yet nonsense
        with np.load(io.BytesIO(bytes(content[32:]))) as stored:
            arrays = {name: stored[name] for name in stored.files}
        if damage == "numbers":
            arrays["queue.code.user"] = arrays["queue.code.user"] + 10**6
        else:
            arrays["record"] = np.frombuffer(b"[1, 2", np.uint8)
        whole = io.BytesIO()
        np.savez(whole, **arrays)
        content = bytearray(hashlib.sha256(whole.getvalue()).digest() + whole.getvalue())
    path.write_bytes(bytes(content))
    if damage == "missing":
        path.unlink()
    assert_same(recalled(site), swept(site), site.jobs.read_jobs().collect())
    assert path.read_bytes() != bytes(content) or damage == "missing"


def test_who_is_forgotten_is_in_no_snapshot(site):
    recalled(site)
    user = site.jobs.read_jobs().select("user").collect()["user"].drop_nulls()[0]
    assert user.encode() in (site.snapshots / NAME).read_bytes()
    assert forget(site, user) > 0
    assert not (site.snapshots / NAME).exists()
    assert_same(recalled(site), swept(site), site.jobs.read_jobs().collect())
