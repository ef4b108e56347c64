"""The energy of jobs: measured where it is believed, estimated by what they held elsewhere."""

from datetime import timedelta

import polars as pl
import pytest

from stormpetrel.jobs.held.energy import PowerModel, with_energy
from stormpetrel.records.doubts import judge
from stormpetrel.records.jobs import conform, job_frame
from tests.builders import T0

GIB = 2**30
ENDED = {
    "job_id": 1,
    "state": "COMPLETED",
    "start_time": T0,
    "end_time": T0 + timedelta(hours=1),
    "elapsed_s": 3600.0,
    "nodes": 1,
}
POWER = PowerModel(watts_per_cpu=10.0, watts_per_gpu=300.0, watts_per_gib=0.5)


def energy(power=POWER, **fields):
    """Joules of a job, and those that were measured."""
    return with_energy(job_frame([{**ENDED, "cpus": 4, **fields}]), power).select("joules", "measured_joules").row(0)


@pytest.mark.parametrize(
    ("fields", "watts"),
    [
        ({}, 40),
        ({"gpus": 2}, 640),
        ({"req_gpus": 1}, 340),
        ({"gpus": 0, "req_gpus": 1}, 340),
        ({"mem_bytes": 32 * GIB}, 56),
        ({"req_mem_bytes": 32 * GIB}, 56),
        ({"mem_bytes": 16 * GIB, "req_mem_bytes": 64 * GIB}, 48),
        ({"cpus": None, "req_cpus": 8}, 80),
    ],
)
def test_an_estimate_is_what_was_held_times_its_watts(fields, watts):
    assert energy(**fields) == (watts * 3600, 0)


def test_gpus_of_a_named_type_have_their_own_watts():
    power = PowerModel(0.0, 300.0, 0.0, {"a100": 400.0, "t4": 70.0})
    assert energy(power, gpus=3, alloc_tres="cpu=4,gres/gpu=3,gres/gpu:A100=2,gres/gpu:k80=1,mem=8G")[0] == (2 * 400 + 300) * 3600
    assert energy(power, gpus=2, alloc_tres="cpu=4,gres/gpu:t4=2")[0] == 2 * 70 * 3600
    assert energy(power, gpus=2, alloc_tres=None)[0] == 2 * 300 * 3600


def test_a_name_of_a_type_is_no_pattern():
    power = PowerModel(0.0, 300.0, 0.0, {"a.*": 0.0})
    assert energy(power, gpus=2, alloc_tres="gres/gpu:a100=2")[0] == 2 * 300 * 3600


def test_the_text_of_types_is_read_only_where_types_are_named():
    assert "alloc_tres" not in POWER.columns and "alloc_tres" in PowerModel(gpu_types={"t4": 70.0}).columns


def test_a_measurement_counts_instead_of_the_estimate():
    assert energy(energy_j=100_000) == (100_000, 100_000)


@pytest.mark.parametrize("nothing", [None, 0, -5])
def test_no_measurement_is_an_estimate(nothing):
    assert energy(energy_j=nothing) == (144_000, 0)


def test_a_measurement_far_above_the_estimate_is_of_nodes_that_others_shared():
    assert energy(energy_j=432_000) == (432_000, 432_000)
    assert energy(energy_j=432_001) == (144_000, 0)
    trusting = PowerModel(10.0, shared_above=0.0)
    assert energy(trusting, energy_j=10**8) == (10**8, 10**8)


def test_without_an_estimate_every_measurement_counts():
    assert energy(PowerModel(0.0, 0.0, 0.0), energy_j=5_000_000) == (5_000_000, 5_000_000)


def test_a_counter_that_wrapped_around_is_doubted_and_estimated():
    jobs = job_frame([{**ENDED, "cpus": 4, "energy_j": 2**44}]).with_columns(line=1)
    judged, met = judge(jobs)
    assert [rule.rule.name for rule in met] == ["impossible_energy"]
    assert with_energy(conform(judged), PowerModel(10.0, shared_above=0.0))["joules"].item() == 4 * 10 * 3600


def test_a_large_job_may_draw_a_lot():
    jobs = job_frame([{**ENDED, "nodes": 9_000, "cpus": 9_000 * 64, "energy_j": 9_000 * 15_000 * 3600}]).with_columns(line=1)
    assert judge(jobs)[1] == []


def test_a_job_that_ran_for_no_time_took_nothing_whatever_its_nodes_drew():
    assert energy(elapsed_s=0.0, energy_j=5000) == (0, 0)


@pytest.mark.parametrize("fields", [{"cpus": None, "nodes": None}, {"quality": "elapsed_above_limit"}])
def test_of_a_job_of_which_nobody_knows_what_it_held_there_is_no_energy(fields):
    assert energy(energy_j=1000, **fields) == (None, None)


def test_an_absurd_record_does_not_wrap_around():
    assert energy(gpus=10**9, elapsed_s=3e9, cpus=1)[0] == 2**53


def test_joules_are_whole_numbers():
    frame = job_frame([{**ENDED, "cpus": 1, "elapsed_s": 1.0, "mem_bytes": GIB}])
    found = with_energy(frame, PowerModel(1.4, 0.0, 0.0)).select("joules", "measured_joules")
    assert found.schema == {"joules": pl.Int64, "measured_joules": pl.Int64}
    assert found["joules"].item() == 1
