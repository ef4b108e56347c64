"""What decides between a champion and its challengers: differences beyond noise, large groups, and what the night cost.

paired differences -> Difference (mean and interval); groups -> worse_groups; everything together -> FamilyNight, of which people
read one sentence. Lower is better in every difference: challenger − champion.

The spans that challengers learn from: the previous day, the previous week, everything that is kept.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stormpetrel.engine import Engine, engine_at
from stormpetrel.records.arrays import Floats
from stormpetrel.store.site import Site

LEVEL: Final = 0.90  # of the interval of a difference
DRAWS: Final = 1000
FEWEST_GROUPS: Final = 10
_AT_ONCE: Final = 2_000_000  # numbers of the resampling in memory


@dataclass(frozen=True, slots=True)
class Difference:
    """A mean difference, challenger − champion, and its interval; below zero the challenger is better."""

    mean: float
    low: float
    high: float

    @property
    def better(self) -> bool:
        """Whether the challenger is better beyond noise."""
        return self.high < 0

    @property
    def worse(self) -> bool:
        """Whether the challenger is worse beyond noise."""
        return self.low > 0

    def as_dict(self) -> dict[str, float]:
        """As a plain dictionary, for JSON."""
        return {"mean": self.mean, "low": self.low, "high": self.high}


def level_for(comparisons: int) -> float:
    """The level of one interval where so many are looked at: together they err as often as a single one would."""
    return 1.0 - (1.0 - LEVEL) / max(1, comparisons)


def difference_of(values: Floats, group: NDArray[np.int64], *, level: float = LEVEL) -> Difference:
    """The mean of paired differences and its interval, by a bootstrap that draws groups of them; the same each time.

    Values of one group (one user's jobs of one day, windows of one node) tend to stand or fall together: they are drawn together.
    """
    groups = int(group.max()) + 1 if group.size else 0
    if groups < FEWEST_GROUPS:  # too few to draw from: each value for itself
        group, groups = np.arange(values.size), values.size
    totals, sizes = np.bincount(group, weights=values, minlength=groups), np.bincount(group, minlength=groups)
    rng = np.random.default_rng(0)
    means: list[Floats] = []
    at_once = max(1, min(DRAWS, _AT_ONCE // max(1, groups)))
    for begin in range(0, DRAWS, at_once):
        drawn = rng.multinomial(groups, np.full(groups, 1 / groups), size=min(at_once, DRAWS - begin))  # (draw, group)
        means.append((drawn @ totals) / np.maximum(drawn @ sizes, 1))
    low, high = np.quantile(np.concatenate(means), [(1 - level) / 2, (1 + level) / 2])
    return Difference(float(values.mean()), float(low), float(high))


def worse_groups(
    values: Floats, names: Sequence[str] | NDArray[Any], block: NDArray[np.int64], *, fewest: int
) -> tuple[list[str], int]:
    """The groups of `fewest` values or more that the challenger is worse for, beyond noise; and how many large ones there are.

    As many intervals are looked at as there are groups: each is so much wider.
    """
    names = np.asarray(names)
    large = [str(name) for name, count in zip(*np.unique(names, return_counts=True), strict=True) if count >= fewest]
    level = level_for(len(large))
    worse = []
    for name in large:
        rows = names == name
        dense = np.unique(block[rows], return_inverse=True)[1]
        if difference_of(values[rows], dense, level=level).worse:
            worse.append(name)
    return worse, len(large)


@dataclass(frozen=True, slots=True)
class Compute:
    """What a training took: seconds of the clock, of the processors, and the most memory that the process ever held."""

    seconds: float = 0.0
    cpu_s: float = 0.0
    peak_bytes: int = 0

    def as_dict(self) -> dict[str, Any]:
        """As a plain dictionary, for JSON and the registry."""
        return {"seconds": round(self.seconds, 2), "cpu_s": round(self.cpu_s, 2), "peak_bytes": self.peak_bytes}

    def words(self) -> str:
        """As people read it: `12 s, 20 s of CPU, 310 MB`."""
        return f"{self.seconds:,.0f} s, {self.cpu_s:,.0f} s of CPU, {self.peak_bytes / 1e6:,.0f} MB"


class Stopwatch:
    """Measures what has been used since it was made."""

    def __init__(self) -> None:
        self._began, self._cpu_s = time.monotonic(), _cpu_s()

    def read(self) -> Compute:
        """What was used so far."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return Compute(time.monotonic() - self._began, _cpu_s() - self._cpu_s, peak)


def _cpu_s() -> float:
    used = (resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


@dataclass(frozen=True, slots=True)
class FamilyNight:
    """What a night came to for one family."""

    family: str
    promoted: bool
    why: str  # one sentence for people
    training: str | None = None  # what was entered in the registry, current or not
    previous: str | None = None  # what was in use before
    challengers: tuple[Mapping[str, Any], ...] = ()  # figures of each on the same data, the champion's under `champion`
    compute: Compute = field(default_factory=Compute)

    def sentence(self) -> str:
        """What happened, as one sentence."""
        why = self.why.rstrip(".")
        if self.promoted:
            return f"{self.training} is in use now{f' in place of {self.previous}' if self.previous else ''}: {why}."
        if self.training:
            return f"{self.previous or 'What is in use'} stays in use. {self.training} is kept, not in use: {why}."
        return f"{self.previous + ' stays in use' if self.previous else 'There is no model in use'}; {why}."

    def with_compute(self, compute: Compute) -> FamilyNight:
        """The same with what it took."""
        return replace(self, compute=compute)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread, where it is installed: a training beside the watch takes no more than that."""
    if find_spec("torch") is None:
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def spans_of(days: Sequence[float], until: datetime) -> Iterator[tuple[float, datetime | None]]:
    """The days of each span and when it begins, None where it is everything; each once, the longest last."""
    for number in sorted(set(days), key=lambda span: span or float("inf")):
        yield number, until - timedelta(days=number) if number else None


def span_name(days: float) -> str:
    """What a span is called: `1 day`, `7 days`, `everything`."""
    return "everything" if not days else f"{days:g} day{'' if days == 1 else 's'}"


def night_engine(site: Site) -> Engine:
    """Where challengers are trained: as engine.place of the site says; one after the other here, or on the CPUs of a cluster."""
    section = site.settings.engine
    return engine_at(section.place, section.workers or None)
