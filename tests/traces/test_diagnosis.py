"""Diagnosis: who lies where Bad IO lies, and what is said of it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from stormpetrel.errors import ModelFormatError
from stormpetrel.records.traces import BAD_IO, GOOD_IO, IDLE, MIXED, NP
from stormpetrel.traces.diagnosis import Trouble, diagnose, known_bad_io, place, rank_correlation
from stormpetrel.traces.separability import PcaMap
from tests.traces.flat_scorer import FlatScorer
from tests.traces.small import small_windows

WINDOWS = small_windows(0)
SCORER = FlatScorer()
REGION = Trouble(np.zeros(3), radius=2.0, high_iowait=0.4, windows=9)


def diagnosed(*rows, trouble=REGION):
    """Rows of (job, type, node, cpu, distance, iowait)."""
    jobs, types, nodes, cpus, distance, iowait = zip(*rows, strict=True)
    return diagnose(jobs, types, nodes, cpus, np.array(distance), np.array(iowait), trouble)


def test_the_centre_is_that_of_the_labelled_windows():
    found = known_bad_io(SCORER, WINDOWS)
    bad = WINDOWS.is_anomalous()
    assert found.centre == pytest.approx(SCORER.embed(WINDOWS)[bad].mean(axis=0), abs=1e-6)
    assert found.windows == bad.sum() and 0.3 < found.high_iowait < 0.5
    distance = found.distance(SCORER.embed(WINDOWS))
    assert distance[bad].max() < distance[~bad].min()


def test_a_quarter_of_the_normal_windows_of_jobs_lies_within_the_radius():
    found = known_bad_io(SCORER, WINDOWS)
    normal = ~np.isin(WINDOWS.job_types(), [BAD_IO, IDLE])
    assert (found.distance(SCORER.embed(WINDOWS))[normal] <= found.radius).mean() == pytest.approx(0.25, abs=0.01)


def test_without_labelled_windows_there_is_no_centre():
    assert known_bad_io(SCORER, WINDOWS.of_normal()) is None


def test_bad_io_alone_is_its_own_region():
    found = known_bad_io(SCORER, WINDOWS.take(WINDOWS.is_anomalous()))
    assert found.holds(found.distance(SCORER.embed(WINDOWS)), np.ones(len(WINDOWS))).sum() == found.windows


def test_windows_get_their_place_score_and_distance():
    chart = PcaMap.fit(SCORER.embed(WINDOWS.of_normal()))
    found = place(SCORER, chart, known_bad_io(SCORER, WINDOWS), WINDOWS)
    assert len(found.x) == len(found.y) == len(found.score) == len(found.max_iowait) == len(found.bad_io_distance) == len(WINDOWS)
    assert found.score == pytest.approx(SCORER.score(WINDOWS))
    assert place(SCORER, chart, None, WINDOWS).bad_io_distance is None


def test_a_suspect_is_near_and_waits():
    found = diagnosed(
        ("7", NP, "n1", 0, 1.0, 0.6),
        ("7", NP, "n1", 1, 1.5, 0.5),
        ("7", NP, "n1", 2, 9.0, 0.0),
        ("8", NP, "n1", 3, 1.0, 0.1),  # near, but does not wait
        ("9", NP, "n2", 3, 5.0, 0.9),  # waits, but lies elsewhere
    )
    (suspect,) = found.suspects
    assert (suspect.job_id, suspect.node, suspect.cpus, suspect.windows, suspect.near) == ("7", "n1", (0, 1), 3, 2)
    assert (suspect.nearest, suspect.max_iowait, found.windows, found.near) == (1.0, 0.6, 5, 2)


@pytest.mark.parametrize("job_type", [BAD_IO, IDLE, MIXED])
def test_what_is_known_idle_or_of_several_jobs_is_no_suspect(job_type):
    found = diagnosed(("7", job_type, "n1", 0, 0.5, 0.9), ("8", GOOD_IO, "n1", 1, 9.0, 0.0))
    assert found.suspects == () and found.windows == 1


def test_a_thread_without_a_known_job_is_named_by_itself():
    found = diagnosed((None, "", "n1", 4, 0.5, 0.9), (None, "", "n1", 5, 0.4, 0.9), (None, "", "n1", 5, 0.3, 0.9))
    assert [(one.job_id, one.cpus, one.near) for one in found.suspects] == [("", (5,), 2), ("", (4,), 1)]


def test_windows_without_a_distance_are_not_asked():
    found = diagnosed(("7", NP, "n1", 0, np.nan, 0.9), ("8", NP, "n1", 1, 1.0, 0.9))
    assert found.windows == 1 and found.suspects[0].job_id == "8"


def test_the_correlation_is_of_np_windows_where_there_are_any():
    near_waits = [("1", NP, "n", k, float(k), 1.0 - k / 10) for k in range(8)]
    others = [("2", GOOD_IO, "n", k, float(k), k / 10) for k in range(8)]
    assert diagnosed(*near_waits, *others).rank_correlation == pytest.approx(-1.0)
    assert diagnosed(*others).rank_correlation == pytest.approx(1.0)


def test_ranks_are_correlated_and_constants_are_not():
    assert rank_correlation(np.array([1.0, 2.0, 30.0]), np.array([1.0, 4.0, 9.0])) == pytest.approx(1.0)
    assert rank_correlation(np.array([1.0, 2.0, 3.0]), np.zeros(3)) is None
    assert rank_correlation(np.array([1.0, 2.0]), np.array([1.0, 2.0])) is None
    tied = rank_correlation(np.array([1.0, 1.0, 2.0, 3.0]), np.array([4.0, 4.0, 5.0, 6.0]))
    assert tied == pytest.approx(1.0)


def test_a_region_comes_back_from_its_record():
    again = Trouble.of_record(json.loads(json.dumps(known_bad_io(SCORER, WINDOWS).record())))
    assert again.record() == known_bad_io(SCORER, WINDOWS).record()


@pytest.mark.parametrize("record", [None, {}, {"centre": "x"}, {"centre": 3}, {"centre": [float("nan")]}, {"radius": None}])
def test_a_damaged_record_is_refused(record):
    with pytest.raises(ModelFormatError, match="centre of Bad IO"):
        Trouble.of_record(record and {"centre": [1.0], "radius": 1, "high_iowait": 0, "windows": 1, **record})
