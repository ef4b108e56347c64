"""Profiles of jobs."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from stormpetrel.errors import ModelFormatError, UsageError
from stormpetrel.jobs.preparation import prepare
from stormpetrel.jobs.profiles import (
    END,
    FILE,
    SUBMIT,
    JobProfiles,
    activity_table,
    duration_table,
    knee,
    resource_table,
    status_table,
    type_table,
)

KINDS = ((2.0, 4.0, 60.0, 5.0), (16.0, 64.0, 3600.0, 600.0), (512.0, 2000.0, 60_000.0, 20_000.0))  # cpu, GiB, run s, wait s


def made(n_per_kind=300, kinds=KINDS, seed=0, spread=0.2):
    """A prepared frame of jobs of a few kinds, each log-normal around its centre; kind 1 fails in one case of two."""
    rng = np.random.default_rng(seed)
    kind = np.repeat(np.arange(len(kinds)), n_per_kind)
    values = np.array(kinds)[kind] * np.exp(rng.normal(0, spread, (len(kind), 4)))
    failed = (kind == 1) & (np.arange(len(kind)) % 2 == 0)
    frame = pl.DataFrame(values, schema=dict.fromkeys(END, pl.Float64))
    return frame.with_columns(
        pl.Series("kind", kind),
        pl.Series("failed", failed),
        pl.Series("state", np.where(failed, "FAILED", "COMPLETED")),
        pl.Series("user", np.array([f"user{k}" for k in kind * 10 + np.arange(len(kind)) % 3])),
        req_cpu="cpu",
        req_node=pl.lit(1.0),
        req_mem_gb="mem_gb",
        time_limit_s=2 * pl.col("run_time_s"),
        imputed=pl.lit([], dtype=pl.List(pl.String)),
    )


@pytest.fixture(scope="module")
def jobs():
    return made()


@pytest.fixture(scope="module")
def model(jobs):
    return JobProfiles().fit(jobs)


@pytest.fixture(scope="module")
def profiled(jobs, model):
    return jobs.with_columns(model.assign(jobs))


@pytest.mark.parametrize("method", ["gmm", "kmeans"])
def test_three_kinds_of_jobs_are_found_as_three_profiles_from_light_to_heavy(jobs, method):
    model = JobProfiles(method=method).fit(jobs)
    assert (model.k_, model.k_elbow_) == (3, 3)
    assert model.assign(jobs).to_list() == jobs["kind"].to_list()


def test_the_elbow_curve_falls_over_one_to_ten(model):
    assert model.elbow_["k"].to_list() == list(range(1, 11))
    assert model.elbow_["distortion"].is_sorted(descending=True)
    assert model.bic_.columns == ["k", "bic"] and model.bic_.height == 10


def test_the_knee_is_the_point_farthest_below_the_chord():
    assert knee(np.array([100.0, 40.0, 10.0, 8.0, 6.0, 5.0])) == 3
    assert knee(np.array([5.0, 5.0, 5.0])) == 1
    assert knee(np.array([9.0])) == 1


def test_another_seed_finds_as_many_profiles(jobs, model):
    assert JobProfiles().fit(jobs, seed=7).k_ == model.k_


def test_the_same_seed_gives_the_same_profiles(jobs, model):
    assert np.array_equal(JobProfiles().fit(jobs, seed=0).means_, model.means_)


def test_profiles_at_submission_do_not_see_how_the_job_went(jobs):
    model = JobProfiles(SUBMIT).fit(jobs)
    assert not set(model.columns_used_) & set(END)
    hidden = jobs.with_columns(pl.lit(None, dtype=pl.Float64).alias(name) for name in END)
    assert model.assign(hidden).equals(model.assign(jobs))
    assert model.left_out_ == {"req_node": "the same for every job"}


def test_a_log_without_memory_has_profiles_and_says_so(jobs):
    model = JobProfiles().fit(jobs.with_columns(mem_gb=pl.lit(None, dtype=pl.Float64)))
    assert model.columns_used_ == ("cpu", "run_time_s", "wait_time_s") and "mem_gb" in model.left_out_
    assert model.assign(jobs).to_list() == jobs["kind"].to_list()


def test_a_job_is_assigned_by_what_is_known_of_it(jobs, model):
    partly = jobs.with_columns(mem_gb=pl.lit(None, dtype=pl.Float64)).drop("wait_time_s")
    assert model.assign(partly).to_list() == jobs["kind"].to_list()
    assert model.assign(jobs.select("user")).null_count() == jobs.height


def test_profiles_agree_with_the_reference_implementation(jobs, model):
    from sklearn.mixture import GaussianMixture

    reference = GaussianMixture(3)
    reference.weights_, reference.means_, reference.covariances_ = model.weights_, model.means_, model.covariances_
    reference.precisions_cholesky_ = np.linalg.cholesky(np.linalg.inv(model.covariances_))
    points = model.normaliser_.transform(jobs.select(END).to_numpy())
    assert np.array_equal(model.assign(jobs).to_numpy(), reference.predict(points))


@pytest.mark.parametrize(
    "frame",
    [
        made(10, KINDS[:1]),
        made(1, KINDS[:1]),
        made(4),
        made(50, KINDS[:1], spread=0.0),
        made(0),
        made(50, KINDS[:1]).with_columns(user=pl.lit("ada")),
    ],
    ids=["ten jobs", "one job", "twelve jobs", "constant", "none", "one kind of one user"],
)
@pytest.mark.parametrize("method", ["gmm", "kmeans"])
def test_what_cannot_be_told_apart_is_one_profile(frame, method):
    model = JobProfiles(method=method).fit(frame)
    assert model.k_ == 1
    assert model.assign(frame).null_count() == 0
    assert "jobs" in model.describe(0)


def test_a_description_is_one_sentence_with_size_length_and_failures(model):
    assert model.describe(0).startswith("small, short jobs (") and "nearly always complete (0.0 % fail)" in model.describe(0)
    assert "often fail (50.0 % fail)" in model.describe(1)
    assert model.describe(2).startswith("large, long jobs (") and " h)" in model.describe(2)
    with pytest.raises(UsageError, match="Known: 0 to 2"):
        model.describe(3)


def test_cancelled_jobs_are_not_said_to_complete(jobs):
    cancelled = jobs.with_columns(state=pl.lit("CANCELLED"), failed=pl.lit(False))
    assert "seldom fail (0.0 % fail)" in JobProfiles().fit(cancelled).describe(0)


def test_saved_profiles_assign_the_same(jobs, model, tmp_path):
    model.save(tmp_path / "m")
    again = JobProfiles.load(tmp_path / "m")
    assert again.assign(jobs).equals(model.assign(jobs))
    assert again.elbow_.equals(model.elbow_) and again.describe(1) == model.describe(1)
    assert (again.k_, again.k_bic_, again.columns, again.left_out_) == (model.k_, model.k_bic_, model.columns, model.left_out_)


@pytest.mark.parametrize("method", ["gmm", "kmeans"])
def test_one_profile_without_columns_survives_saving(tmp_path, method):
    JobProfiles(method=method).fit(made(0)).save(tmp_path / "saved")
    assert JobProfiles.load(tmp_path / "saved").assign(made(2)).to_list() == [0] * 6


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"format_version": 99}, "format version 99"),
        ({"means": None}, "not the record that was saved"),
        ({"weights": [1.0]}, "not the record that was saved"),
    ],
)
def test_profiles_of_another_version_or_with_holes_are_refused(model, tmp_path, damage, message):
    folder = tmp_path / "saved"
    model.save(folder)
    state = json.loads((folder / FILE).read_text()) | damage
    (folder / FILE).write_text(json.dumps({name: value for name, value in state.items() if value is not None}))
    with pytest.raises(ModelFormatError, match=message):
        JobProfiles.load(folder)


def test_a_folder_without_profiles_or_with_rubble_is_refused(tmp_path):
    with pytest.raises(ModelFormatError, match="holds no model"):
        JobProfiles.load(tmp_path)
    (tmp_path / FILE).write_text("{")
    with pytest.raises(ModelFormatError, match="cannot be read"):
        JobProfiles.load(tmp_path)


def test_the_resource_table_has_mean_and_deviation_per_profile(jobs, profiled):
    table = resource_table(profiled)
    assert table["jobs"].to_list() == [300, 300, 300]
    first = jobs.filter(kind=0)
    assert table["cpu_mean"][0] == pytest.approx(first["cpu"].mean())
    assert table["run_time_s_std"][0] == pytest.approx(first["run_time_s"].std())


def test_composition_tables_count_every_job_once(profiled):
    for table in (duration_table(profiled), status_table(profiled), type_table(profiled)):
        assert table.select(pl.sum_horizontal(pl.exclude("profile"))).to_series().to_list() == [300, 300, 300]
    assert duration_table(profiled)["Short"][0] == 300 and duration_table(profiled)["Long"][2] > 290
    assert status_table(profiled)["Failed"].to_list() == [0, 150, 0]


def test_the_activity_table_counts_users_not_jobs(profiled):
    table = activity_table(profiled)
    assert table.columns == ["profile", "Frequent", "Infrequent", "New"]
    assert table["Frequent"].to_list() == [3, 3, 3]


@pytest.mark.realdata
def test_a_public_log_has_a_handful_of_profiles(public_logs):
    from stormpetrel.sources.formats import ReadOptions, open_source
    from tests.builders import read_all

    log = read_all(open_source(str(public_logs / "jobs/mit_supercloud_sample.csv.gz"), None, ReadOptions()))[0]
    frame = prepare(log).frame
    model = JobProfiles().fit(frame)
    assert 2 <= model.k_ <= 7 and model.columns_used_ == END
    assert model.assign(frame).n_unique() == model.k_
    assert len({model.describe(profile) for profile in range(model.k_)}) == model.k_
