"""Training piece by piece: to the last bit the features and models of a training in memory, of the rows that a fit takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from stormpetrel.engine import ONE_PROCESS, Engine
from stormpetrel.jobs.moments import MOMENTS
from stormpetrel.jobs.predictor import known_by
from stormpetrel.jobs.training import label_jobs, rows_of_fits
from stormpetrel.lifecycle import history_snapshot, training_pieces
from stormpetrel.lifecycle.job_models import fit_job_models
from stormpetrel.lifecycle.training_pieces import is_large, label_site
from tests.jobs.logs import make_log, one_thread
from tests.lifecycle.sites import DAYS, QUICK, day, make_site, put_jobs

UNTIL = day(DAYS - 3)  # some jobs still wait or run


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_thread():
        yield


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.setattr(history_snapshot, "PIECE_ROWS", 70)
    monkeypatch.setattr(training_pieces, "_LARGE", 100)
    with make_site(tmp_path / "site") as opened:
        put_jobs(opened, make_log(900, 3, days=DAYS, unfinished=0.05))
        yield opened


@pytest.mark.parametrize(
    ("most_rows", "engine"), [(1_000_000, ONE_PROCESS), (150, ONE_PROCESS), (150, Engine(2))], ids=["all", "few", "by workers"]
)
def test_features_of_the_rows_that_fits_take_are_those_of_one_sweep(site, most_rows, engine):
    settings = replace(QUICK, most_rows=most_rows)
    whole = label_jobs(known_by(site.jobs.read_jobs(until=UNTIL).collect(), UNTIL), settings)
    labelled = label_site(site, settings, MOMENTS, until=UNTIL, answers=False, engine=engine)
    assert not list(site.folder.glob(".features-*"))
    assert labelled.profiles.summary_.equals(whole.profiles.summary_)
    np.testing.assert_array_equal(labelled.usable, whole.usable)
    np.testing.assert_array_equal(labelled.failed[labelled.usable], whole.failed[whole.usable])
    assert labelled.outcome.equals(whole.outcome, null_equal=True)
    for moment in MOMENTS:
        np.testing.assert_array_equal(labelled.reached(moment), whole.reached(moment))
        rows = rows_of_fits(whole, moment, settings)
        assert 0 < rows.sum() < rows.size
        kept, wanted = labelled.features[moment].rows(rows), whole.features[moment].rows(rows)
        assert kept.names == wanted.names
        np.testing.assert_array_equal(kept.values.view(np.uint32), wanted.values.view(np.uint32))
        left_out = np.flatnonzero(~rows)[:1]
        with pytest.raises(ValueError, match="not kept"):
            labelled.features[moment].rows(left_out)


def test_a_training_by_pieces_makes_the_same_models(site, monkeypatch):
    assert is_large(site, UNTIL)
    pieces = fit_job_models(site, until=UNTIL, settings=QUICK)
    monkeypatch.setattr(training_pieces, "_LARGE", 10_000)
    whole = fit_job_models(site, until=UNTIL, settings=QUICK)
    for moment in MOMENTS:
        mine, other = pieces.models[moment], whole.models[moment]
        assert (mine.threshold, mine.n_train_, mine.outcome_shares_) == (other.threshold, other.n_train_, other.outcome_shares_)
        assert mine._risk.save_raw("json") == other._risk.save_raw("json")
        assert mine.metadata == other.metadata
    assert not list(site.folder.glob("tmp*"))


def test_a_log_without_requests_has_stand_ins_in_every_piece(site, tmp_path):
    bare = make_log(300, 4, days=DAYS).with_columns(pl.lit(None, pl.Int64).alias("req_cpus"))
    with make_site(tmp_path / "bare") as other:
        put_jobs(other, bare.cast({"req_cpus": make_log(1).schema["req_cpus"]}))
        labelled = label_site(other, QUICK, MOMENTS, until=day(DAYS), answers=False)
        whole = label_jobs(known_by(other.jobs.read_jobs().collect(), day(DAYS)), QUICK)
    assert labelled.history.stand_in == whole.history.stand_in == {"asked_cpus": "cpus"}
    assert labelled.notes == whole.notes
