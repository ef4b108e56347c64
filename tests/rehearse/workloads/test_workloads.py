"""The workloads as programs: a second each, one line of JSON, nothing left behind."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest

from stormpetrel.rehearse.workloads.likelihood_fit import (
    harmonics,
    minimise,
    negative_log_likelihood,
    random_amplitudes,
    toy_events,
)
from stormpetrel.rehearse.workloads.timed_work import Shift
from tests.parts import wait_until

ALL = ["likelihood_fit", "bad_io", "good_io"]


def words_of(name, scratch, seconds="1"):
    module = f"stormpetrel.rehearse.workloads.{name}"
    return [sys.executable, "-P", "-m", module, "--seconds", seconds, "--scratch", str(scratch), "--seed", "5"]


@pytest.mark.parametrize(
    ("name", "counted"),
    [
        ("likelihood_fit", ["data_sets", "evaluations"]),
        ("bad_io", ["writes", "seeks", "flushes"]),
        ("good_io", ["passes", "bytes"]),
    ],
)
def test_a_workload_works_for_its_time_says_what_it_did_and_removes_its_files(tmp_path, name, counted):
    done = subprocess.run(words_of(name, tmp_path), capture_output=True, text=True, timeout=60, check=True)
    did = json.loads(done.stdout)
    assert did["seconds"] >= 1
    assert all(did[word] > 0 for word in counted)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ALL)
def test_a_workload_that_is_told_to_end_removes_its_files_as_well(tmp_path, name):
    process = subprocess.Popen(words_of(name, tmp_path, "600"), stdout=subprocess.PIPE)
    wait_until(lambda: any(tmp_path.iterdir()), "it writes a file", limit_s=30)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=30)
    assert (said, process.returncode) == (b"", 128 + signal.SIGTERM)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_one_line(tmp_path):
    done = subprocess.run(words_of("bad_io", tmp_path / "gone"), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and "gone" in done.stderr


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "1e9", "soon"])
def test_a_time_that_makes_no_sense_is_refused(tmp_path, seconds):
    done = subprocess.run(words_of("bad_io", tmp_path, seconds), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and not list(tmp_path.iterdir())


def test_the_harmonics_are_orthonormal():
    rng = np.random.default_rng(1)
    angles = np.column_stack((rng.uniform(-1, 1, 200_000), rng.uniform(-np.pi, np.pi, 200_000)))
    waves = harmonics(angles)
    product = 4 * np.pi * (waves.conj().T @ waves) / len(waves)
    np.testing.assert_allclose(product, np.eye(6), atol=0.03)


def test_the_gradient_is_that_of_the_likelihood():
    rng = np.random.default_rng(2)
    waves, at = harmonics(toy_events(rng, 500)), random_amplitudes(rng)
    value, gradient = negative_log_likelihood(waves, at)
    for wave in range(at.size):
        for unit in (1, 1j):
            step = np.zeros_like(at)
            step[wave] = 1e-6 * unit
            slope = (negative_log_likelihood(waves, at + step)[0] - value) / 1e-6
            assert slope == pytest.approx(2 * (gradient[wave] * np.conj(unit)).real, abs=1e-4)


def test_a_fit_near_the_truth_ends_a_little_better_than_the_truth(tmp_path):
    waves = harmonics(toy_events(np.random.default_rng(9), 5000))
    amplitudes = random_amplitudes(np.random.default_rng(9))  # the first draw of the generator above
    truth, _ = negative_log_likelihood(waves, amplitudes)
    found, used = minimise(waves, amplitudes + 0.1 * random_amplitudes(np.random.default_rng(1)), endless(tmp_path))
    assert truth - 0.01 < found < truth  # the likelihood of these events has its maximum near what they were made of
    assert used > 5


def test_fits_from_random_amplitudes_improve_and_end_in_different_places(tmp_path):
    rng = np.random.default_rng(3)
    waves = harmonics(toy_events(rng, 2000))
    starts = [random_amplitudes(rng) for _ in range(4)]
    ends = [minimise(waves, start, endless(tmp_path))[0] for start in starts]
    assert all(end < negative_log_likelihood(waves, start)[0] for start, end in zip(starts, ends, strict=True))
    assert max(ends) - min(ends) > 1e-3  # why fits are restarted


def endless(folder):
    return Shift(0, float("inf"), folder, 0)
