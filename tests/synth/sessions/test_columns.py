"""Columns as numbers and back: requests as a whole, nothing of a name."""

import numpy as np
import polars as pl
import pytest

from stormpetrel.synth.sessions.columns import OTHER, encode, usable
from stormpetrel.synth.workload import SUBMIT
from tests.synth.made_workloads import made_workload, site_workload, with_columns, workload_at

ROW = pl.int_range(pl.len())


def coded(workload, fewest=20):
    return encode(usable(workload), fewest=fewest)


def test_what_is_encoded_is_decoded():
    log = site_workload(500)
    coding, encoded, _ = coded(log)
    frame = coding.decode(encoded.request, encoded.state, encoded.runtime, encoded.numbers)
    names = ["partition", "cores", "gpus", "mem_bytes", "time_limit_s", "app", "state", "runtime_s", "energy_j"]
    assert frame.select(names).equals(log.jobs.select(names))


def test_nulls_are_decoded_as_nulls():
    log = with_columns(
        site_workload(200),
        runtime_s=pl.when(ROW % 3 != 0).then("runtime_s"),
        state=pl.when(ROW % 4 != 0).then("state"),
        cores=pl.when(ROW % 5 != 0).then("cores"),
        own=pl.when(ROW % 2 != 0).then(ROW * 37 % 211 / 3),
    )
    coding, encoded, _ = coded(log)
    frame = coding.decode(encoded.request, encoded.state, encoded.runtime, encoded.numbers)
    assert all(frame[name].equals(usable(log).jobs[name], null_equal=True) for name in ("runtime_s", "state", "cores", "own"))


def test_the_most_common_request_is_the_first():
    coding, encoded, _ = coded(site_workload(500))
    counts = np.bincount(encoded.request)
    assert len(counts) == coding.requests.height and counts[0] == counts.max() and np.all(np.diff(counts) <= 0)


def test_a_log_in_which_nothing_is_asked_for_has_one_request():
    coding, encoded, _ = coded(workload_at(np.arange(30.0)))
    assert coding.requests.height == 1 and set(encoded.request) == {0} and coding.columns == (SUBMIT,)
    assert coding.features().shape == (1, 0) and np.isnan(coding.limits()).all() and not coding.gpus().any()


def test_columns_that_never_change_are_no_features():
    log = workload_at(np.arange(40.0), cores=[4] * 40, nodes=[1, 2] * 20)
    assert coded(log)[0].features().tolist() == [[1.0], [2.0]]


def test_features_fit_into_what_trees_compare():
    features = coded(with_columns(made_workload(60), vast=1e300 * (ROW % 3 - 1)))[0].features()
    assert features.dtype == np.float32 and bool(np.isfinite(features).all())


def test_few_numbers_belong_to_the_request_and_many_to_the_outcome():
    coding, _, _ = coded(with_columns(made_workload(400), few=ROW % 5, many=ROW * 7919 % 401))
    assert "few" in coding.requests.columns and coding.numbers == ("many",)


@pytest.mark.parametrize("name", ["len", "code", "count", "key0", "literal", "_nothing", "share"])
def test_a_column_may_have_any_name(name):
    coding, encoded, _ = coded(with_columns(made_workload(60), **{name: ROW % 5}))
    assert coding.requests[encoded.request][name].to_list() == [row % 5 for row in range(60)]


def test_rare_texts_are_other_and_told():
    log = with_columns(made_workload(100), note=pl.when(ROW < 3).then(pl.format("secret{}", ROW)).otherwise(pl.lit("usual")))
    coding, _, notes = coded(log)
    assert set(coding.requests["note"]) == {"usual", OTHER} and "'note': 3 texts" in notes[0] and "secret" not in notes[0]


def test_names_of_users_in_other_columns_are_other():
    log = with_columns(site_workload(600), owner=pl.col("user"), payer=pl.col("account"), queue=pl.lit("day"))
    requests = coded(log, fewest=1)[0].requests
    assert set(requests["owner"]) == set(requests["payer"]) == {OTHER} and set(requests["queue"]) == {"day"}


def test_users_are_numbers_by_how_many_jobs_they_have():
    _, encoded, _ = coded(site_workload(500))
    assert np.all(np.diff(np.bincount(encoded.user)) <= 0)


def test_jobs_without_a_user_are_one_of_their_own():
    _, encoded, _ = coded(with_columns(made_workload(100), user=pl.when(ROW % 2 == 0).then("user")))
    assert np.mean(encoded.user == encoded.nameless) == 0.5
    assert coded(made_workload(100))[1].nameless == -1


def test_new_names_begin_as_no_name_of_the_log_does():
    prefixes = coded(workload_at(np.arange(20.0), user=["user7", "newuser0001"] * 10, group=["groups"] * 20))[0].prefixes
    assert prefixes == {"user": "newnewuser", "group": "group", "account": "project"}
