"""The generator of a site: learnt from its finished jobs, measured, in the registry, put back."""

from __future__ import annotations

import polars as pl
import pytest

from stormpetrel.errors import ModelError, ModelFormatError, NotEnoughJobsError, StoreBusyError
from stormpetrel.lifecycle import workload_models
from stormpetrel.lifecycle.workload_models import (
    SYNTH,
    fit_site_generator,
    load_site_generator,
    site_workload,
)
from stormpetrel.synth.contract import Wanted, sample
from tests.answers.live_sites import put_jobs
from tests.answers.workload_sites import GENERATOR, NOW, put_generator, put_workload
from tests.builders import make_site
from tests.parts.watched_site import simulated_jobs


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as made:
        put_workload(made)
        yield made


def test_a_fitted_generator_is_measured_in_use_and_makes_jobs_of_the_sites_columns(site):
    said = []
    made = fit_site_generator(site, GENERATOR, seed=3, user="root", progress=lambda share, words: said.append((share, words)))
    about = made.models[0].about
    assert made.name == "synth-1" and made.current and made.models[0].name == f"synth-{GENERATOR}"
    assert about["n_train"] == site_workload(site).height and about["table_version"] == site.jobs.table.version()
    assert set(about["scorecard"]["columns"]) >= {"interval_s", "runtime_s", "cores"} and about["scorecard"]["floor"]
    shares = [share for share, _ in said]
    assert shares == sorted(shares) and shares[-1] == 1.0 and "wait_s" not in about["columns"]
    in_use = load_site_generator(site)
    new = sample(in_use.generator, Wanted(jobs=50, seed=1))
    assert new.height == 50 and set(new.jobs.columns) >= {"submit_time", "user", "cores", "runtime_s"}
    assert site.audit.recent()[0].action == "synth fit" and site.audit.recent()[0].user == "root"


def test_only_finished_jobs_are_learnt_from_each_once_and_the_newest(site):
    jobs = simulated_jobs()
    before = site_workload(site).height
    odd = jobs.head(3).with_columns(
        job_id=pl.Series([900_001, 900_002, 900_003], dtype=pl.Int64),
        state=pl.Series(["RUNNING", "PENDING", "COMPLETED"]),
        restart=pl.Series([0, 0, 1], dtype=pl.Int32),
    )
    put_jobs(site, odd)
    assert site_workload(site).height == before
    newest = site_workload(site, most=10)
    assert newest.height == 10 and newest.start() > site_workload(site).start()


def test_fields_that_a_source_adds_are_not_learnt(site):
    row = simulated_jobs().head(1).with_columns(job_id=pl.lit(900_009, dtype=pl.Int64), extra=pl.lit(None))
    extra = pl.Series(
        "extra", [[{"key": "comment", "value": "for the audit of Dr Smith"}]], dtype=simulated_jobs().schema["extra"]
    )
    put_jobs(site, row.with_columns(extra))
    assert not site_workload(site).own_columns


def test_too_few_weeks_for_a_scorecard_are_told_and_the_generator_is_fitted_all_the_same(site, tmp_path):
    with make_site(tmp_path / "short") as short:
        short.now = lambda: NOW
        put_jobs(short, simulated_jobs().head(60))
        about = fit_site_generator(short, GENERATOR).models[0].about
    assert about["scorecard"] is None and "weeks" in about["not_scored"]


def test_promotion_and_the_way_back(site):
    first, second = put_generator(site), put_generator(site)
    assert second.previous == first.name
    assert SYNTH.roll_back(site).name == first.name and load_site_generator(site).training == first.name
    assert SYNTH.promote(site, second.name).current


def test_a_damaged_generator_is_not_put_in_use(site):
    first, second = put_generator(site), put_generator(site)
    entry = first.models[0]
    (site.models.folder_of(entry.name, entry.version) / "model.json").write_text("{")
    with pytest.raises(ModelFormatError):
        SYNTH.promote(site, first.name)
    with pytest.raises(ModelFormatError):
        SYNTH.roll_back(site)
    assert load_site_generator(site).training == second.name


def test_a_site_without_jobs_or_generator_says_what_to_do(tmp_path):
    with make_site(tmp_path / "site") as site:
        with pytest.raises(NotEnoughJobsError, match="ingest jobs"):
            fit_site_generator(site, GENERATOR)
        with pytest.raises(ModelError, match="synth fit"):
            load_site_generator(site)
        with pytest.raises(ModelError, match="synth fit"):
            SYNTH.roll_back(site)


def test_two_fittings_at_once_are_one_too_many(site, monkeypatch):
    def meanwhile(*_args, **_options):
        with pytest.raises(StoreBusyError):
            fit_site_generator(site, GENERATOR)
        return {"scorecard": None, "not_scored": "not asked"}

    monkeypatch.setattr(workload_models, "_scored", meanwhile)
    assert fit_site_generator(site, GENERATOR).name == "synth-1"
