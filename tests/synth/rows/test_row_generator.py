"""What every row-wise generator does: all of them, on logs of all kinds, in and out of a folder."""

from datetime import UTC, datetime

import numpy as np
import polars as pl
import pytest

from stormpetrel.errors import MissingExtraError, ModelError, ModelFormatError, NotEnoughJobsError, UsageError
from stormpetrel.synth.choose import load_generator, new_generator
from stormpetrel.synth.contract import Wanted, sample
from stormpetrel.synth.rows import row_generator as module
from stormpetrel.synth.score.fidelity import kolmogorov_smirnov
from stormpetrel.synth.workload import Workload
from tests.parts import need
from tests.synth.made_workloads import made_workload, workload_at

NEURAL = ("ctgan", "tvae", "copulagan")
ALL = ("rows", "gaussian-copula", *NEURAL)
SECRET = "secret-"
WORKLOAD = Workload(made_workload(600).jobs.with_columns(user=pl.lit(SECRET) + pl.col("user")))


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    need("torch")
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def small(name: str, seed: int = 0):
    return new_generator(name, seed=seed, **({"epochs": 1, "batch_size": 100, "device": "cpu"} if name in NEURAL else {}))


@pytest.fixture(scope="module")
def fitted():
    return {name: small(name).fit(WORKLOAD) for name in ALL}


@pytest.mark.parametrize("name", ALL)
def test_jobs_have_the_columns_of_the_log_new_names_and_rising_times(fitted, name):
    made = sample(fitted[name], Wanted(jobs=250, start=datetime(2030, 1, 1, tzinfo=UTC)))
    assert made.height == 250 and made.jobs.schema == WORKLOAD.jobs.schema
    assert made.jobs["submit_time"].is_sorted() and made.start() == datetime(2030, 1, 1, tzinfo=UTC)
    assert made.jobs["user"].str.contains(r"^user\d{4}$").all()
    assert set(made.jobs["cores"]) <= set(WORKLOAD.jobs["cores"]) and set(made.jobs["state"]) <= set(WORKLOAD.jobs["state"])
    assert (made.jobs["runtime_s"] >= 0).all()


@pytest.mark.parametrize("name", ALL)
def test_the_same_seeds_make_the_same_jobs_and_others_do_not(fitted, name):
    again = small(name).fit(WORKLOAD)
    first, second = (sample(one, Wanted(jobs=50, seed=3)).jobs for one in (fitted[name], again))
    assert first.equals(second)
    assert not first.equals(sample(again, Wanted(jobs=50, seed=4)).jobs)


@pytest.mark.parametrize("name", ["gaussian-copula", *NEURAL])
def test_a_saved_generator_makes_the_same_jobs_and_holds_no_name(fitted, name, tmp_path):
    fitted[name].save(tmp_path / "model")
    loaded = load_generator(tmp_path / "model")
    assert sample(loaded, Wanted(jobs=40)).jobs.equals(sample(fitted[name], Wanted(jobs=40)).jobs)
    assert all(SECRET.encode() not in path.read_bytes() for path in (tmp_path / "model").iterdir())


def test_rows_of_the_log_are_never_saved(fitted, tmp_path):
    with pytest.raises(ModelError, match="never saved"):
        fitted["rows"].save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("part", ["layout", "model", "settings"])
def test_a_damaged_folder_is_refused_in_one_sentence(fitted, tmp_path, part):
    generator = fitted["copulagan"]
    record = {"layout": generator.layout_.record(), "model": generator._record(), "settings": generator._settings()}
    broken = {**record, part: dict(list(record[part].items())[1:]) | {"odd": 1}}
    module.save_model(tmp_path / "model", kind="synth-copulagan", format_version=1, metadata=broken, files=generator._files())
    with pytest.raises(ModelFormatError, match="damaged"):
        load_generator(tmp_path / "model")


@pytest.mark.parametrize("name", ["gaussian-copula", "copulagan"])
def test_numbers_have_the_distribution_of_the_log(fitted, name):
    made = sample(fitted[name], Wanted(jobs=4000))
    assert kolmogorov_smirnov(made.interval_s(), WORKLOAD.interval_s()) < 0.1
    for column in ("runtime_s", "cores"):
        assert kolmogorov_smirnov(made.jobs[column].to_numpy(), WORKLOAD.jobs[column].to_numpy()) < 0.1


def test_days_end_when_they_are_over_and_without_a_wish_are_those_of_the_log(fitted):
    made = sample(fitted["rows"], Wanted(days=3))
    assert 0 < (made.submit_s()[-1] - made.submit_s()[0]) <= 3 * 86400
    whole = sample(fitted["rows"], Wanted())
    assert whole.height == pytest.approx(WORKLOAD.height, rel=0.4)


def test_a_stream_is_cut_in_batches_and_goes_on_where_it_stopped(fitted, monkeypatch):
    monkeypatch.setattr(module, "BATCH_ROWS", 100)
    batches = list(fitted["gaussian-copula"].batches(Wanted(jobs=250)))
    assert [batch.height for batch in batches] == [100, 100, 50]
    assert pl.concat(batches)["submit_time"].is_sorted()
    assert sample(fitted["gaussian-copula"], Wanted(jobs=0)).jobs.schema == WORKLOAD.jobs.schema


def test_wishes_about_users_are_refused(fitted):
    with pytest.raises(UsageError, match="cannot change the number of users"):
        fitted["rows"].batches(Wanted(users=2))


@pytest.mark.parametrize("name", ALL)
def test_thirty_jobs_of_no_user_with_constant_columns_and_many_zero_intervals_are_enough(name):
    submit = np.cumsum(np.where(np.arange(30) % 5 < 3, 0, 3600 * 24 * (np.arange(30) == 14) + 7))
    poor = workload_at(submit, cores=[1] * 30, runtime_s=np.arange(30.0))
    made = sample(small(name).fit(poor), Wanted(jobs=60))
    assert made.height == 60 and set(made.jobs["cores"]) == {1} and (made.interval_s() == 0).any()


def test_a_log_of_one_moment_gives_as_many_jobs():
    still = workload_at(np.zeros(20), cores=list(range(20)))
    assert sample(small("rows").fit(still), Wanted()).height == 20


def test_what_cannot_be_learnt_from_or_with_is_said_in_one_sentence(monkeypatch):
    with pytest.raises(NotEnoughJobsError, match="at least 10"):
        small("rows").fit(WORKLOAD.between(0, 5))
    with pytest.raises(ModelError, match="not learnt anything"):
        small("rows").batches(Wanted(jobs=1))
    with pytest.raises(UsageError, match="epochs"):
        new_generator("ctgan", epochs=0)
    with pytest.raises(UsageError, match="multiple of 10"):
        new_generator("ctgan", batch_size=55)
    with pytest.raises(UsageError, match="Unknown device"):
        new_generator("tvae", device="abacus").fit(WORKLOAD)
    monkeypatch.setattr(module, "find_spec", lambda _name: None)
    with pytest.raises(MissingExtraError, match="traces"):
        small("ctgan").fit(WORKLOAD)
