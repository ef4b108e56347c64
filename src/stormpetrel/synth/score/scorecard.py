"""The scorecard of a synthetic workload: fidelity, order, what a classifier sees, what is given away.

real and synthetic Workload -> scorecard -> Scorecard -> as_dict (JSON), summary_rows (tables for people). odd_even_split cuts
a log into its odd and even weeks. Workload, a maker of generators -> evaluate_odd_even -> OddEven: a generator learns the odd
weeks and is judged on the even ones, with mean and spread of every figure over seeds, and its floor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from stormpetrel.engine import ONE_PROCESS, Engine, Progress, no_progress
from stormpetrel.errors import NotEnoughJobsError, UsageError
from stormpetrel.synth.contract import Wanted, WorkloadGenerator, sample
from stormpetrel.synth.score.c2st import FEWEST, MOST, c2st
from stormpetrel.synth.score.copies import Copies, copies
from stormpetrel.synth.score.fidelity import INTERVAL, Fidelity, Pair, fidelity
from stormpetrel.synth.workload import SUBMIT, Workload

WEEK_S: Final = 7 * 24 * 3600


def odd_even_split(workload: Workload) -> tuple[Workload, Workload]:
    """The 1st, 3rd, … week of a workload, and the 2nd, 4th, …, each closed up.

    Weeks are counted from the first submission. The weeks of a part follow each other without a hole: their times are shifted
    by whole weeks, so the hour of the week stays what it was. A week without jobs counts as a week. The even part of a log of one
    week is empty.
    """
    submit_s = workload.submit_s()
    week = np.floor((submit_s - submit_s.min(initial=np.inf)) / WEEK_S).astype(np.int64)  # (jobs,) from 0
    # The week of number w becomes that of number w // 2 of its part.
    earlier = pl.duration(weeks=pl.lit(pl.Series(week - week // 2)))
    closed = workload.jobs.with_columns(pl.col(SUBMIT) - earlier)
    odd, even = (closed.filter(pl.Series(week % 2 == rest)) for rest in (0, 1))
    return Workload(odd, workload.has_clock, workload.notes), Workload(even, workload.has_clock, workload.notes)


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
    rates of copies and the nearest-record ratio then still compare like with like, but membership is unknown and None.
    """
    like = fidelity(real, synthetic)
    row, sequence = (c2st(real, synthetic, sequence=flag, seed=seed) for flag in (False, True))
    disclosure = _copies(real, synthetic, train, held_out, seed)
    notes = (*like.notes, *_c2st_notes(real, synthetic), *disclosure.notes)
    return Scorecard(Pair(real.height, synthetic.height), like, row, sequence, disclosure, notes, floor=floor)


def floor_scorecard(odd: Workload, even: Workload, *, seed: int = 0) -> Scorecard:
    """Real odd against real even weeks, the odd ones in the place of the synthetic jobs; copies are not asked for."""
    like = fidelity(even, odd)
    row, sequence = (c2st(even, odd, sequence=flag, seed=seed) for flag in (False, True))
    notes = (*like.notes, *_c2st_notes(even, odd))
    return Scorecard(Pair(even.height, odd.height), like, row, sequence, Copies(), notes)


def _copies(real: Workload, synthetic: Workload, train: Workload | None, held_out: Workload | None, seed: int) -> Copies:
    if train is not None:
        return copies(synthetic, train, real if held_out is None else held_out, seed=seed)
    measured = copies(synthetic, *odd_even_split(real), attack=False, seed=seed)
    note = "The jobs learnt from are not known: copies are looked for in the odd weeks, and membership is not attacked."
    return Copies(measured.exact, measured.natural, measured.nearest_record_ratio, None, (*measured.notes, note))


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
        meaning = "share of jobs with another value" if category.by == "name" else "who submits how much, largest first"
        yield SummaryRow(f"{name} variation", None, category.tv, 0.0, other.tv if other else None, meaning)
    for figure, name, meaning in _PAIRS:
        pair: Pair = getattr(like, name)
        reached: Pair | None = getattr(floor.fidelity, name) if floor else None
        yield SummaryRow(figure, pair.real, pair.synthetic, pair.real, reached.synthetic if reached else None, meaning)
    for figure, name, ideal, meaning in _SINGLES:
        yield SummaryRow(figure, None, _single(card, name), ideal, _single(floor, name) if floor else None, meaning)
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


SEEDS: Final = (0, 1, 2, 3, 4)
_FEWEST_JOBS: Final = 20  # of either part
_AS_THEY_ARE: Final = ("floor", "notes", "jobs")


@dataclass(frozen=True, slots=True)
class OddEven:
    """The scorecards of several seeds, and the floor: real odd against real even weeks."""

    seeds: tuple[int, ...]
    cards: tuple[Scorecard, ...]
    floor: Scorecard

    def as_dict(self) -> dict[str, Any]:
        """The figures of a scorecard as mean, std and n over the seeds, with the floor and the ratios to it."""
        cards = [card.as_dict() for card in self.cards]
        averaged = {name: _averaged([card[name] for card in cards]) for name in cards[0] if name not in _AS_THEY_ARE}
        return {
            **averaged,
            "floor": self.floor.as_dict(),
            "floor_ratio": self.floor_ratio(),
            "jobs": cards[0]["jobs"],
            "seeds": list(self.seeds),
            "notes": list(dict.fromkeys(note for card in self.cards for note in card.notes)),
        }

    def floor_ratio(self) -> dict[str, dict[str, float | int | None]]:
        """Error ÷ error of the floor for the interval KS, the autocorrelation and the dispersion, over the seeds."""
        floor = errors(self.floor)
        each = [errors(card) for card in self.cards]
        return {name: _spread([_divided(figures[name], floor[name]) for figures in each]) for name in floor}


def evaluate_odd_even(
    workload: Workload,
    make: Callable[[int], WorkloadGenerator],
    seeds: Sequence[int] = SEEDS,
    progress: Progress = no_progress,
    *,
    engine: Engine = ONE_PROCESS,
) -> OddEven:
    """Fit on the odd weeks and score on the even ones, once per seed; `make` gives an untrained generator for a seed.

    With an engine of several processes `make` has to be one that can be sent there, such as a `GeneratorMaker`.

    The generator is asked for as many jobs as the even weeks have. Copies are looked for in the odd weeks; the even weeks are
    the unseen jobs for comparison.
    """
    if not seeds:
        raise UsageError("No seed was given.", hint="Give at least one, such as 0.")
    odd, even = odd_even_split(workload)
    if min(odd.height, even.height) < _FEWEST_JOBS:
        raise NotEnoughJobsError(
            f"The odd weeks have {odd.height} jobs and the even weeks {even.height}; each needs {_FEWEST_JOBS}.",
            hint="Take a longer log: two weeks at the least, better ten.",
        )
    progress(0.0, "real odd against real even weeks")
    floor = floor_scorecard(odd, even)
    cards = engine.map(_OneSeed(odd, even, floor, make), seeds, name=lambda seed: f"seed {seed}", progress=progress)
    return OddEven(tuple(seeds), tuple(cards), floor)


@dataclass(frozen=True, slots=True)
class _OneSeed:
    """The scorecard of the generator of one seed."""

    odd: Workload
    even: Workload
    floor: Scorecard
    make: Callable[[int], WorkloadGenerator]

    def __call__(self, seed: int, progress: Progress) -> Scorecard:
        generator = self.make(seed).fit(self.odd, progress=progress)
        synthetic = sample(generator, Wanted(jobs=self.even.height, seed=seed))
        return scorecard(self.even, synthetic, train=self.odd, held_out=self.even, floor=self.floor, seed=seed)


def errors(card: Scorecard) -> dict[str, float | None]:
    """The three errors that are held against the floor: interval KS, autocorrelation, and dispersion as |ratio − 1|."""
    ratio = card.fidelity.dispersion.ratio
    return {
        "interval_ks": card.fidelity.columns[INTERVAL].ks,
        "acf_mae": card.fidelity.acf_mae,
        "dispersion": None if ratio is None else abs(ratio - 1),
    }


def _averaged(values: list[Any]) -> Any:
    """The same tree with mean, std and n in the place of each number; text stays."""
    if isinstance(values[0], dict):
        names = dict.fromkeys(name for value in values if isinstance(value, dict) for name in value)
        return {name: _averaged([value.get(name) if isinstance(value, dict) else None for value in values]) for name in names}
    if any(isinstance(value, str | list | bool) for value in values):
        return values[0]
    return _spread(values) if any(value is not None for value in values) else None


def _spread(values: Sequence[float | None]) -> dict[str, float | int | None]:
    known = [value for value in values if value is not None]
    if not known:
        return {"mean": None, "std": None, "n": 0}
    return {"mean": float(np.mean(known)), "std": float(np.std(known)), "n": len(known)}


def _divided(error: float | None, floor: float | None) -> float | None:
    return None if error is None or floor is None or floor == 0 else error / floor
