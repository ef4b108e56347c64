"""NP: a CPU-bound fit of partial waves, as a nuclear physicist runs it for hours.

toy events (a file) -> complex amplitudes of six waves -> unbinned maximum likelihood, again and again from random starts.
The intensity at the angles of an event is |sum over waves of V_w Y_w|²; its integral over all angles is sum |V_w|², because the
spherical harmonics Y_w are orthonormal and the toy detector sees everything.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.rehearse.workloads.timed_work import Did, Shift, run_workload

Complexes = npt.NDArray[np.complex128]
Reals = npt.NDArray[np.float64]

EVENTS: Final = 100_000  # of a toy data set
_FILES: Final = 4
_FITS_PER_FILE: Final = 3  # restarts: a fit of amplitudes has many local minima
_STEPS: Final = 150
_MEMORY: Final = 6  # of L-BFGS
_LEAST_INTENSITY: Final = 1e-12
_WAVES: Final = 6  # S, P0, P+1, D0, D+1, D+2


def fit_waves(shift: Shift) -> Did:
    """Fit toy data sets until the time is over."""
    rng = np.random.default_rng(shift.seed)
    files = [shift.scratch / f"events_{number}.npy" for number in range(_FILES)]
    fits = evaluations = sets = 0
    best = np.inf
    try:
        while not (sets and shift.over()):  # at least one, however slow the machine
            waves = harmonics(_read(files[sets % _FILES], rng))  # (events, waves)
            waves = waves[rng.integers(0, len(waves), len(waves))]  # a bootstrap sample: every set is a new one
            sets += 1
            for _ in range(_FITS_PER_FILE):
                value, used = minimise(waves, random_amplitudes(rng), shift)
                fits, evaluations, best = fits + 1, evaluations + used, min(best, value)
    finally:
        for file in files:
            file.unlink(missing_ok=True)
    return {"data_sets": sets, "fits": fits, "evaluations": evaluations, "best": best if np.isfinite(best) else 0.0}


def harmonics(angles: Reals) -> Complexes:
    """The six spherical harmonics at the angles (cos θ, φ) of each event."""
    cos, phi = angles[:, 0], angles[:, 1]
    sin = np.sqrt(np.maximum(0.0, 1 - cos**2))
    turn = np.exp(1j * phi)
    waves = [
        np.full(cos.size, np.sqrt(1 / (4 * np.pi))),
        np.sqrt(3 / (4 * np.pi)) * cos,
        -np.sqrt(3 / (8 * np.pi)) * sin * turn,
        np.sqrt(5 / (16 * np.pi)) * (3 * cos**2 - 1),
        -np.sqrt(15 / (8 * np.pi)) * sin * cos * turn,
        np.sqrt(15 / (32 * np.pi)) * sin**2 * turn**2,
    ]
    return np.ascontiguousarray(np.stack(waves, axis=1).astype(np.complex128))  # (events, waves)


def random_amplitudes(rng: np.random.Generator) -> Complexes:
    """Amplitudes of all waves, together of length one."""
    drawn = rng.normal(size=_WAVES) + 1j * rng.normal(size=_WAVES)
    return np.asarray(drawn / np.linalg.norm(drawn), dtype=np.complex128)


def toy_events(rng: np.random.Generator, number: int) -> Reals:
    """Angles (cos θ, φ) of events of a random state, by acceptance and rejection."""
    amplitudes = random_amplitudes(rng)
    kept: list[Reals] = []
    while sum(map(len, kept)) < number:
        angles = np.column_stack((rng.uniform(-1, 1, number), rng.uniform(-np.pi, np.pi, number)))
        intensity = np.abs(harmonics(angles) @ amplitudes) ** 2
        kept.append(angles[rng.uniform(0, intensity.max(), number) < intensity])
    return np.concatenate(kept)[:number]


def negative_log_likelihood(waves: Complexes, amplitudes: Complexes) -> tuple[float, Complexes]:
    """The extended negative log likelihood per event, and its gradient by the conjugate amplitudes."""
    summed = waves @ amplitudes  # (events,)
    intensity = np.maximum(np.abs(summed) ** 2, _LEAST_INTENSITY)
    value = float(np.vdot(amplitudes, amplitudes).real - np.log(intensity).mean())
    gradient = amplitudes - (waves.conj().T @ (summed / intensity)) / len(waves)
    return value, gradient


def minimise(waves: Complexes, start: Complexes, shift: Shift) -> tuple[float, int]:
    """L-BFGS with step halving; returns the value that was reached and how often the likelihood was computed."""
    at, (value, slope), used = start, negative_log_likelihood(waves, start), 1
    pairs: list[tuple[Complexes, Complexes]] = []
    for _ in range(_STEPS):
        direction = _direction(slope, pairs)
        size, accepted = 1.0, False
        while size > 1e-4 and not shift.over():
            tried = at + size * direction
            new_value, new_slope = negative_log_likelihood(waves, tried)
            used += 1
            if new_value < value:
                accepted = True
                break
            size /= 2
        if not accepted or value - new_value < 1e-9:
            break
        pairs = [*pairs, (tried - at, new_slope - slope)][-_MEMORY:]
        at, value, slope = tried, new_value, new_slope
    return value, used


def _direction(slope: Complexes, pairs: list[tuple[Complexes, Complexes]]) -> Complexes:
    """The two-loop recursion; complex amplitudes count as pairs of real numbers."""
    wanted = -slope
    usable = [(moved, turned, np.vdot(turned, moved).real) for moved, turned in pairs]
    usable = [entry for entry in usable if entry[2] > 1e-14]
    weights: list[float] = []
    for moved, turned, product in reversed(usable):
        weights.append(float(np.vdot(moved, wanted).real / product))
        wanted = wanted - weights[-1] * turned
    if usable:
        _, turned, product = usable[-1]
        wanted = wanted * (product / np.vdot(turned, turned).real)
    for (moved, turned, product), weight in zip(usable, reversed(weights), strict=True):
        wanted = wanted + (weight - float(np.vdot(turned, wanted).real / product)) * moved
    return wanted


def _read(file: Path, rng: np.random.Generator) -> Reals:
    """The events of a file, which is made when it is first asked for."""
    if not file.exists():
        np.save(file, toy_events(rng, EVENTS))
    return np.asarray(np.load(file, allow_pickle=False), dtype=np.float64)


if __name__ == "__main__":
    run_workload("np", fit_waves)
