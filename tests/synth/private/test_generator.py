"""The private generator keeps to the contract, and its folder holds nothing but noisy counts."""

import json
from datetime import UTC, datetime

import numpy as np
import polars as pl
import pytest

from stormpetrel.errors import ModelError, ModelFormatError, NotEnoughJobsError, UsageError
from stormpetrel.learn.saving import save_model
from stormpetrel.synth.choose import load_generator, new_generator
from stormpetrel.synth.contract import Wanted, sample
from stormpetrel.synth.private.generator import PrivateGenerator
from stormpetrel.synth.private.noise import SeededNoise
from stormpetrel.synth.workload import SUBMIT, Workload
from tests.synth.made_workloads import made_workload, workload_at

NO_NOISE = 1e9  # an epsilon so large that every draw is 0


@pytest.fixture(scope="module")
def real():
    return made_workload(4000, weeks=6, users=40)


@pytest.fixture(scope="module")
def exact(real):
    return PrivateGenerator(epsilon=NO_NOISE, noise=SeededNoise(0)).fit(real)


@pytest.fixture(scope="module")
def noisy(real):
    return PrivateGenerator(epsilon=1.0, noise=SeededNoise(0)).fit(real)


def test_without_noise_new_jobs_resemble_the_log(real, exact):
    made = sample(exact, Wanted(seed=1)).jobs
    assert 0.5 < made.height / real.height < 2
    assert set(made["cores"].unique()) <= {1, 2, 4, 8, 16, 32}
    assert (made["state"] == "FAILED").mean() == pytest.approx(0.1, abs=0.05)
    day = made[SUBMIT].dt.hour().is_between(8, 18).mean()
    assert day == pytest.approx(real.jobs[SUBMIT].dt.hour().is_between(8, 18).mean(), abs=0.12)
    shares = [jobs.select(pl.col("user").eq(pl.col("user").shift()).mean()).item() for jobs in (real.jobs, made)]
    assert shares[1] == pytest.approx(shares[0], abs=0.25)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, NO_NOISE])
def test_every_job_is_one_that_a_log_could_have(real, epsilon):
    made = sample(PrivateGenerator(epsilon=epsilon, noise=SeededNoise(5)).fit(real), Wanted(jobs=3000, seed=2))
    jobs = made.jobs
    assert jobs.height == 3000 and jobs[SUBMIT].is_sorted()
    assert jobs.schema == real.jobs.schema
    assert (jobs["cores"].drop_nulls() >= 0).all() and (jobs["runtime_s"].drop_nulls() >= 0).all()
    beyond = jobs.filter((pl.col("runtime_s") > pl.col("time_limit_s")) & (pl.col("state") != "TIMEOUT"))
    assert not beyond.height
    assert not set(jobs["user"].unique()) & set(real.jobs["user"].unique())


def test_the_same_seed_makes_the_same_jobs_and_another_one_others(noisy):
    one, same, other = (sample(noisy, Wanted(jobs=300, seed=seed)).jobs for seed in (3, 3, 4))
    assert one.equals(same) and not one.equals(other)


def test_a_period_start_days_and_more_users_are_granted(exact):
    start = datetime(2030, 5, 8, 12, tzinfo=UTC)
    jobs = sample(exact, Wanted(days=10, start=start, seed=1)).jobs
    assert start <= jobs[SUBMIT].min() and (jobs[SUBMIT].max() - start).days < 10
    more, usual = (sample(exact, Wanted(seed=1, users=factor)).height for factor in (2.0, 1.0))
    assert 1.5 < more / usual < 2.6
    long = sample(exact, Wanted(days=120, seed=1)).jobs  # longer than the log: its users go on
    assert (long[SUBMIT].max() - long[SUBMIT].min()).days > 100
    assert sample(exact, Wanted(jobs=0)).height == 0


@pytest.mark.parametrize(
    "wish", [{"gpu_jobs": 2.0}, {"group": "a"}, {"later_years": 1}, {"seed": -1}, {"start": datetime(1, 1, 1)}]
)
def test_what_it_cannot_do_is_said_at_once(exact, wish):
    with pytest.raises(UsageError):
        exact.batches(Wanted(**wish))


@pytest.mark.parametrize("epsilon", [0, -1.0, float("inf"), float("nan"), 1e-300])
def test_epsilon_must_be_above_zero_and_finite(epsilon):
    with pytest.raises(UsageError, match="epsilon"):
        PrivateGenerator(epsilon=epsilon)


@pytest.mark.parametrize("setting", [{"most_jobs": 0}, {"most_sessions": 20}, {"unit": "group"}, {"weeks": 0}])
def test_settings_that_make_no_sense_are_refused(setting):
    with pytest.raises(UsageError):
        PrivateGenerator(**setting)


def test_saved_and_loaded_it_makes_the_same_jobs(noisy, tmp_path):
    noisy.save(tmp_path / "model")
    loaded = load_generator(tmp_path / "model")
    assert isinstance(loaded, PrivateGenerator) and loaded.guarantee() == noisy.guarantee() and loaded.notes == noisy.notes
    assert sample(loaded, Wanted(jobs=500, seed=9)).jobs.equals(sample(noisy, Wanted(jobs=500, seed=9)).jobs)


def test_nothing_but_noisy_counts_and_public_facts_is_in_the_folder(tmp_path):
    real = made_workload(500, weeks=3).jobs.with_columns(secret=pl.Series(["verylongsecretword", "b"] * 250))
    PrivateGenerator().fit(Workload(real)).save(tmp_path / "model")
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["model.json"]
    text = (tmp_path / "model" / "model.json").read_text()
    record = json.loads(text)
    assert set(record) == {"kind", "format_version", "files", "digest", "guarantee", "layout", "counts"}
    assert not any(word in text for word in ("verylongsecretword", "narrow", "wide", *real["user"].unique()))
    assert all(isinstance(count, int) for table in record["counts"].values() for count in table)
    assert record["layout"]["begin_s"] % 86_400 == 0
    again = PrivateGenerator().fit(Workload(real))
    assert again.counts_["users"].tolist() != record["counts"]["users"]  # the same log, other noise


def test_the_result_says_what_is_guaranteed_and_when_nothing_is(real):
    sound, known = PrivateGenerator(epsilon=2).fit(real), PrivateGenerator(noise=SeededNoise(1)).fit(real)
    told = sound.guarantee()
    assert told["holds"] and told["epsilon"] == 2 and told["delta"] == 0
    assert sum(table["epsilon"] for table in told["tables"].values()) == pytest.approx(2)
    assert "epsilon = 2" in sound.notes[0]
    assert not known.guarantee()["holds"] and known.notes[0].startswith("No guarantee")


def test_a_damaged_model_is_refused_in_one_sentence(noisy, tmp_path):
    noisy.save(tmp_path / "whole")
    record = json.loads((tmp_path / "whole" / "model.json").read_text())
    for number, damage in enumerate(({"counts": {}}, {"layout": {}}, {"counts": {name: [2**60] for name in record["counts"]}})):
        broken = {name: record[name] for name in ("guarantee", "layout", "counts")} | damage
        save_model(tmp_path / str(number), kind="synth-private", format_version=1, metadata=broken, files={})
        with pytest.raises(ModelFormatError, match="damaged"):
            load_generator(tmp_path / str(number))


def test_before_it_has_learnt_it_says_so():
    with pytest.raises(ModelError, match="not learnt"):
        PrivateGenerator().batches(Wanted(jobs=1))


def test_a_log_without_users_is_refused_unless_single_jobs_are_to_be_protected():
    nameless = workload_at(np.arange(200.0) ** 2, cores=[1, 2] * 100)
    with pytest.raises(NotEnoughJobsError, match="user"):
        PrivateGenerator().fit(nameless)
    made = sample(PrivateGenerator(unit="job", epsilon=NO_NOISE).fit(nameless), Wanted(seed=1)).jobs
    assert made.columns == [SUBMIT, "cores"] and 100 < made.height < 400


@pytest.mark.parametrize(
    "small",
    [
        made_workload(30, weeks=1, users=3),
        made_workload(200, weeks=2, users=1),
        workload_at(np.zeros(50), user=["a"] * 50),
        workload_at(np.array([0.0, 90 * 86_400.0]), user=["a", "b"], cores=[1, None]),
    ],
    ids=["30 jobs", "one user", "one moment", "two jobs months apart"],
)
def test_small_and_odd_logs_make_jobs(small):
    made = sample(new_generator("private", seed=0, epsilon=1.0).fit(small), Wanted(jobs=200, seed=1))
    assert made.height == 200 and set(made.jobs.columns) == set(small.jobs.columns)


def test_unknown_columns_are_kept_with_new_words_and_public_words_as_they_are():
    rng = np.random.default_rng(0)
    real = made_workload(1500, weeks=4, users=30).jobs.with_columns(
        pl.Series("licences", rng.integers(0, 9, 1500)), pl.Series("load", rng.normal(size=1500)),
        pl.Series("colour", rng.choice(["red", "green"], 1500)),
    )  # fmt: skip
    generator = PrivateGenerator(epsilon=NO_NOISE, names={"partition": ["wide", "narrow"]}).fit(Workload(real))
    made = sample(generator, Wanted(jobs=2000, seed=1)).jobs
    assert made["licences"].dtype == pl.Int64 and made["licences"].is_between(0, 15).all()
    assert made["load"].dtype == pl.Float64 and (made["load"] < 0).mean() == pytest.approx(0.5, abs=0.15)
    common = made["colour"].value_counts(sort=True).head(2)
    assert common["count"].sum() > 1900 and all(word.startswith("colour") for word in common["colour"])
    assert set(made["partition"].value_counts(sort=True).head(2)["partition"]) == {"wide", "narrow"}
    assert any("colour" in note and "partition" not in note for note in generator.notes)


def test_a_public_period_leaves_out_what_lies_beyond_it(real):
    generator = PrivateGenerator(since=datetime(2024, 1, 8), weeks=2, epsilon=NO_NOISE).fit(real)
    assert generator.layout.weeks == 2 and generator.counts_["starts"].sum() > 0
    made = sample(generator, Wanted(seed=0)).jobs
    assert made[SUBMIT].min() >= datetime(2024, 1, 8, tzinfo=UTC) and made[SUBMIT].max() < datetime(2024, 1, 22, tzinfo=UTC)
