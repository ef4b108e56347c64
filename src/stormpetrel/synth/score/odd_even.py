"""The odd–even protocol: learn from the odd weeks of a log, be judged on the even ones, over several seeds.

Workload, a maker of generators -> evaluate_odd_even -> OddEven: mean and spread of every figure, beside its floor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from stormpetrel.engine import ONE_PROCESS, Engine, Progress, no_progress
from stormpetrel.errors import NotEnoughJobsError, UsageError
from stormpetrel.synth.contract import Wanted, WorkloadGenerator, sample
from stormpetrel.synth.score.fidelity import INTERVAL
from stormpetrel.synth.score.scorecard import Scorecard, floor_scorecard, scorecard
from stormpetrel.synth.score.weeks import odd_even_split
from stormpetrel.synth.workload import Workload

__all__ = ["FEWEST", "SEEDS", "OddEven", "errors", "evaluate_odd_even", "odd_even_split"]

SEEDS: Final = (0, 1, 2, 3, 4)
FEWEST: Final = 20  # jobs of either part
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
        return {name: _spread([_divided(found[name], floor[name]) for found in each]) for name in floor}


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
    the unseen jobs beside them.
    """
    if not seeds:
        raise UsageError("No seed was given.", hint="Give at least one, such as 0.")
    odd, even = odd_even_split(workload)
    if min(odd.height, even.height) < FEWEST:
        raise NotEnoughJobsError(
            f"The odd weeks have {odd.height} jobs and the even weeks {even.height}; each needs {FEWEST}.",
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
        made = sample(generator, Wanted(jobs=self.even.height, seed=seed))
        return scorecard(self.even, made, train=self.odd, held_out=self.even, floor=self.floor, seed=seed)


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
