"""The mixture of the p90 of a wait: weights follow losses, jobs that still wait count, and a correction has a limit."""

from __future__ import annotations

import numpy as np
import pytest

from stormpetrel.jobs.wait.mixture import CANDIDATES, LEVEL, Mixture, weigh

N = 4_000


def past(seed: int = 0, *, good: int = 7, good_s: float = 90.0) -> tuple[np.ndarray, np.ndarray]:
    """Waits of up to 100 s, and candidates of which one is about right and all others are far too long."""
    waits = np.random.default_rng(seed).uniform(0.0, 100.0, N)
    said = np.full((N, len(CANDIDATES)), np.log1p(5_000.0), np.float32)
    said[:, good] = np.log1p(good_s)
    return said, waits


def test_who_lost_least_gets_nearly_all_of_the_weight():
    said, waits = past()
    mixture = weigh(said, said[:, 7].astype(float), waits, np.ones(N, bool))
    assert mixture.weights[7] > 0.99 and mixture.seconds(said[:1])[0] == pytest.approx(90.0, rel=0.05)
    assert sum(mixture.weights) == pytest.approx(1.0)


def test_jobs_that_still_wait_speak_against_what_was_too_short():
    said, waits = past()
    settled = np.ones(N, bool)
    settled[::2], waits = (
        False,
        np.where(np.arange(N) % 2 == 0, 4_000.0, waits),
    )  # half of them wait for more than an hour already
    mixture = weigh(said, said[:, 7].astype(float), waits, settled)
    assert mixture.weights[7] < 0.1


def test_the_correction_moves_to_nine_in_ten_and_no_farther_than_its_limit():
    said, waits = past(good_s=75.0)
    slightly = weigh(said, said[:, 7].astype(float), waits, np.ones(N, bool))
    assert np.mean(waits <= slightly.seconds(said[:, :])) == pytest.approx(LEVEL, abs=0.02)
    far = weigh(said, said[:, 7].astype(float) - 3.0, waits, np.ones(N, bool))
    assert far.offset == 0.3


def test_few_jobs_leave_all_candidates_equal():
    said, waits = past()
    assert weigh(said[:50], said[:50, 0].astype(float), waits[:50], np.ones(50, bool)) == Mixture()


@pytest.mark.parametrize(
    "damage", [{"weights": [1.0]}, {"weights": [1.0] * len(CANDIDATES)}, {"offset": 9.0}, {"offset": float("nan")}]
)
def test_a_damaged_mixture_is_refused(damage):
    with pytest.raises(ValueError, match="makes no sense"):
        Mixture.from_json({**Mixture().as_json(), **damage})


def test_a_mixture_survives_being_written():
    said, waits = past()
    mixture = weigh(said, said[:, 7].astype(float), waits, np.ones(N, bool))
    assert Mixture.from_json(mixture.as_json()) == mixture
