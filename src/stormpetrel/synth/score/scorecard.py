"""The scorecard of a synthetic workload: fidelity, order, what a classifier sees, what is given away.

real and synthetic Workload -> scorecard -> Scorecard -> as_dict (JSON), summary_rows (tables for people).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from stormpetrel.synth.score.c2st import FEWEST, MOST, c2st
from stormpetrel.synth.score.copies import Copies, copies
from stormpetrel.synth.score.fidelity import Fidelity, Pair, fidelity
from stormpetrel.synth.score.weeks import odd_even_split
from stormpetrel.synth.workload import Workload


class SummaryRow(NamedTuple):
    """One line for people: `real` where each side has the figure, `ideal` of a perfect copy, `floor` of real odd weeks."""

    figure: str
    real: float | None
    synthetic: float | None
    ideal: float | None
    floor: float | None
    words: str


@dataclass(frozen=True, slots=True)
class Scorecard:
    """How good a synthetic workload is; None where a figure cannot be had, and `notes` say why.

    `tstr` (train on synthetic, test on real) and `schedule` (a scheduler fed with each) need other rooms and are filled in there.
    `floor` is the scorecard of real odd against real even weeks: no generator can be expected to come closer.
    """

    jobs: Pair
    fidelity: Fidelity
    c2st_row: float | None
    c2st_sequence: float | None
    copies: Copies
    notes: tuple[str, ...] = ()
    tstr: Mapping[str, Any] | None = None
    schedule: Mapping[str, Any] | None = None
    floor: Scorecard | None = None

    def as_dict(self) -> dict[str, Any]:
        """As a plain dictionary, for JSON."""
        return {
            **self.fidelity.as_dict(),
            "c2st_row": self.c2st_row,
            "c2st_sequence": self.c2st_sequence,
            **self.copies.as_dict(),
            "tstr": None if self.tstr is None else dict(self.tstr),
            "schedule": None if self.schedule is None else dict(self.schedule),
            "floor": None if self.floor is None else self.floor.as_dict(),
            "jobs": self.jobs.as_dict(),
            "notes": list(self.notes),
        }

    def summary_rows(self) -> tuple[SummaryRow, ...]:
        """Its lines, the columns first."""
        return tuple(_summary(self))


def scorecard(
    real: Workload,
    synthetic: Workload,
    *,
    train: Workload | None = None,
    held_out: Workload | None = None,
    floor: Scorecard | None = None,
    seed: int = 0,
) -> Scorecard:
    """Judge a synthetic workload against a real one.

    `train` is what the generator learnt from and `held_out` real jobs it never saw (without it, `real`): copies are looked for
    in them. Where `train` is not known the odd weeks of `real` stand in for it and the even ones for the held-out part; both
    rates of copies and the nearest-record ratio then still compare like with like, but membership cannot be told and is None.
    """
    like = fidelity(real, synthetic)
    row, sequence = (c2st(real, synthetic, sequence=flag, seed=seed) for flag in (False, True))
    given_away = _copies(real, synthetic, train, held_out, seed)
    notes = (*like.notes, *_c2st_notes(real, synthetic), *given_away.notes)
    return Scorecard(Pair(real.height, synthetic.height), like, row, sequence, given_away, notes, floor=floor)


def floor_scorecard(odd: Workload, even: Workload, *, seed: int = 0) -> Scorecard:
    """Real odd against real even weeks, the odd ones in the place of the synthetic jobs; copies are not asked for."""
    like = fidelity(even, odd)
    row, sequence = (c2st(even, odd, sequence=flag, seed=seed) for flag in (False, True))
    notes = (*like.notes, *_c2st_notes(even, odd))
    return Scorecard(Pair(even.height, odd.height), like, row, sequence, Copies(), notes)


def _copies(real: Workload, synthetic: Workload, train: Workload | None, held_out: Workload | None, seed: int) -> Copies:
    if train is not None:
        return copies(synthetic, train, real if held_out is None else held_out, seed=seed)
    found = copies(synthetic, *odd_even_split(real), attack=False, seed=seed)
    note = "The jobs learnt from are not known: copies are looked for in the odd weeks, and membership is not attacked."
    return Copies(found.exact, found.natural, found.nearest_record_ratio, None, (*found.notes, note))


def _c2st_notes(real: Workload, synthetic: Workload) -> Iterator[str]:
    fewest, most = sorted((real.height, synthetic.height))
    if fewest < FEWEST + 3:  # the sequence test begins at the fourth job
        yield f"The C2ST needs {FEWEST + 3} jobs on each side; the smaller one has {fewest}."
    if most > MOST:
        yield f"The C2ST of a side with more than {MOST:,} jobs is of the first {MOST // 5:,} of each of its five blocks."


def _summary(card: Scorecard) -> Iterator[SummaryRow]:
    like, floor = card.fidelity, card.floor
    for name, distance in like.columns.items():
        below = floor.fidelity.columns.get(name) if floor else None
        yield SummaryRow(f"{name} KS", None, distance.ks, 0.0, below.ks if below else None, "largest gap of the distributions")
    for name, category in like.categories.items():
        other = floor.fidelity.categories.get(name) if floor else None
        words = "share of jobs with another value" if category.by == "name" else "who submits how much, largest first"
        yield SummaryRow(f"{name} variation", None, category.tv, 0.0, other.tv if other else None, words)
    for figure, name, words in _PAIRS:
        pair: Pair = getattr(like, name)
        reached: Pair | None = getattr(floor.fidelity, name) if floor else None
        yield SummaryRow(figure, pair.real, pair.synthetic, pair.real, reached.synthetic if reached else None, words)
    for figure, name, ideal, words in _SINGLES:
        yield SummaryRow(figure, None, _single(card, name), ideal, _single(floor, name) if floor else None, words)
    yield SummaryRow(
        "exact copies",
        card.copies.natural,
        card.copies.exact,
        card.copies.natural,
        None,
        "share equal to a job learnt from; real: unseen jobs",
    )


def _single(card: Scorecard, name: str) -> float | None:
    part = next(part for part in (card, card.fidelity, card.copies) if hasattr(part, name))
    value: float | None = getattr(part, name)
    return value


_PAIRS = (
    ("lag-1 autocorrelation", "lag1", "does a short interval follow a short one"),
    ("dispersion", "dispersion", "variance ÷ mean of hourly counts: 1 is even, more is bursts"),
    ("same user as before", "same_user_share", "share of jobs from the user of the job before"),
)
_SINGLES = (
    ("autocorrelation error", "acf_mae", 0.0, "mean difference at lags 1 to 50"),
    ("hour-of-week variation", "hour_profile_tv", 0.0, "share of jobs in another hour of the week"),
    ("C2ST, rows", "c2st_row", 0.5, "can trees tell a synthetic job from a real one: 0.5 no, 1 always"),
    ("C2ST, sequence", "c2st_sequence", 0.5, "the same with the two jobs before"),
    ("nearest-record ratio", "nearest_record_ratio", 1.0, "distance to the nearest job learnt from; well below 1 is memorising"),
    ("membership attack", "membership_auc", 0.5, "can an attacker tell who was learnt from: 0.5 no, 1 always"),
)
