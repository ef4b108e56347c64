"""Outages of a grid, as changes of its hourly counts: five kinds of trouble, each mild, moderate or severe.

calm counts (hours, kinds) -> an outage -> counts of the same shape: the first rows are the outage, the last AFTERMATH_HOURS what
it leaves behind. An outage acts through the kinds that it is given, and on nothing else. Numbers: docs/events-simulated.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stormpetrel.errors import UsageError

Floats = npt.NDArray[np.float64]
OutageFunction = Callable[[Floats, tuple[str, ...], str, int], Floats]

AFTERMATH_HOURS: Final = 6  # the backlog that follows an outage
# The share of an hour's jobs that an outage touches, drawn evenly between the two.
SEVERITIES: Final[dict[str, tuple[float, float]]] = {"mild": (0.15, 0.30), "moderate": (0.40, 0.65), "severe": (0.80, 0.97)}
# How many times the usual number of disconnected jobs a storm has.
_STORM: Final = {"mild": (5.0, 10.0), "moderate": (10.0, 25.0), "severe": (25.0, 50.0)}
# Of the jobs on nodes that collapse, those whose loss is told while it lasts; the others hang until somebody restarts the nodes.
_TOLD: Final = {"mild": (0.02, 0.10), "moderate": (0.10, 0.30), "severe": (0.30, 0.70)}
_BACKLOG: Final = np.array([0.38, 0.24, 0.16, 0.11, 0.07, 0.04])  # how what was held up comes back after the end, hour by hour
_PLUG_IN: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


def node_collapse(counts: Floats, kinds: tuple[str, ...], severity: str, seed: int) -> Floats:
    """Nodes collapse with what runs on them: fewer ends and starts, lost jobs, and a rush when they come back."""
    window = _Window(counts, kinds, severity, seed)
    rng, lost = window.rng, window.running_jobs() * window.share
    told = lost * rng.uniform(*_TOLD[severity])
    at_first = window.fading(rng.uniform(0.7, 2.0))  # leases run out one after the other
    later = np.concatenate([[0.0], at_first[:-1]]) * 0.6 + at_first * 0.4  # a lease is 40 minutes
    lines, exceptions = rng.uniform(0.3, 0.6), rng.uniform(0.15, 0.35)
    window.thin("JobTerminated", window.touched)
    window.thin("JobImageSize", window.touched)
    idle = window.thin("Execute", window.touched)
    window.add("JobDisconnected", told * lines * at_first)
    window.add("JobReconnectFailed", told * lines * later)
    window.add("ShadowException", told * exceptions * at_first)
    window.add("JobEvicted", told * (1 - lines - exceptions) * later)
    window.add("NodeFailed", told * 0.6 * at_first)
    window.add("JobFailed", told * 0.4 * at_first)
    hanging = (lost - told) * rng.uniform(0.05, 0.3)  # jobs thrown out by the restart of their node
    window.add("JobEvicted", hanging * rng.uniform(0.1, 0.5) * window.after(1))
    window.add("Execute", idle.sum() * rng.uniform(0.3, 0.8) * window.after(0) + hanging * window.after(1))
    return window.counts()


def submit_unresponsive(counts: Floats, kinds: tuple[str, ...], severity: str, seed: int) -> Floats:
    """A submit service stops to answer: nothing comes in, the queue runs dry, and afterwards everybody submits at once."""
    window = _Window(counts, kinds, severity, seed)
    rng = window.rng
    queue_h, run_h = rng.uniform(1.0, 6.0), rng.uniform(1.0, 4.0)
    held_back = window.thin("Submit", window.touched)
    for by_users in ("JobAborted", "JobRelease"):
        window.thin(by_users, window.touched * 0.9)
    window.thin("JobHeld", window.touched * 0.4)  # most are held by the system
    since = np.arange(len(window.touched))
    dry = window.touched * (1 - np.exp(-since / queue_h))
    window.thin("Execute", dry)
    fewer_ends = window.touched * (1 - np.exp(-since / (queue_h + run_h)))
    for kind in ("JobTerminated", "JobFailed", "JobFailedFast"):
        window.thin(kind, fewer_ends)
    window.thin("JobImageSize", fewer_ends * 0.7)
    back = held_back.sum() * rng.uniform(0.4, 0.9)
    window.add("Submit", back * window.after(0))
    window.add("Execute", back * rng.uniform(0.4, 0.8) * window.after(0))
    return window.counts()


def disconnect_storm(counts: Floats, kinds: tuple[str, ...], severity: str, seed: int) -> Floats:
    """Jobs lose the line to their submit host and find it again, over and over; some do not."""
    window = _Window(counts, kinds, severity, seed)
    rng, strength = window.rng, window.touched / window.share
    times, found = rng.uniform(*_STORM[severity]), rng.uniform(0.5, 0.92)
    if window.has("JobDisconnected"):
        cut = max(window.level("JobDisconnected"), 1.0) * (times - 1) * strength
        later = 0.7 * cut + 0.3 * np.concatenate([[0.0], cut[:-1]])
        window.add("JobDisconnected", cut)
        window.add("JobReconnected", later * found)
        window.add("JobReconnectFailed", later * (1 - found))
        window.add("ShadowException", window.level("ShadowException") * (times - 1) * rng.uniform(0.05, 0.25) * strength)
        window.add("Execute", later * (1 - found))  # they start again
    else:  # a job log does not tell of lines: what it sees are jobs that did not survive, and nodes that are given none
        died = window.level("JobTerminated") * window.touched * rng.uniform(0.08, 0.3)
        window.add("JobFailed", died)
        window.add("NodeFailed", died * rng.uniform(0.0, 0.1))
        window.thin("Execute", window.touched * rng.uniform(0.1, 0.4))
    window.thin("JobTerminated", window.touched * rng.uniform(0.05, 0.3))  # work waits for the line
    return window.counts()


def black_hole(counts: Floats, kinds: tuple[str, ...], severity: str, seed: int) -> Floats:
    """A node fails whatever it gets within seconds and is free again at once: it swallows the queue."""
    window = _Window(counts, kinds, severity, seed)
    rng, swallowed = window.rng, np.minimum(window.touched, 0.88)
    queue = np.exp(-np.arange(len(swallowed)) / rng.uniform(6.0, 30.0))  # what waits becomes less
    # Of (usual + extra) starts the node gets `swallowed`.
    extra = window.level("Execute", "JobTerminated") * swallowed / (1 - swallowed) * queue
    for kind in ("Execute", "JobTerminated"):
        window.add(kind, extra, same=True)
    for kind in ("JobFailed", "JobFailedFast"):
        window.add(kind, extra * rng.uniform(0.85, 1.0), same=True)
    given_up = extra * rng.uniform(0.01, 0.05)  # held after too many tries
    window.add("JobHeld", np.concatenate([[0.0], given_up[:-1]]))
    window.add("JobHeld", given_up.sum() * 0.3 * window.after(0))
    window.add("JobRelease", given_up.sum() * rng.uniform(0.2, 0.8) * window.after(1))
    return window.counts()


def slow_storage(counts: Floats, kinds: tuple[str, ...], severity: str, seed: int) -> Floats:
    """Storage answers slower and slower: jobs do not end, slots do not free, and time limits begin to strike."""
    window = _Window(counts, kinds, severity, seed)
    rng, since = window.rng, np.arange(len(window.touched))
    onset = 1 - np.exp(-(since + 0.5) / rng.uniform(0.7, 3.0))
    slow = window.touched * onset
    stuck = window.thin("JobTerminated", slow)
    window.thin("Execute", np.concatenate([[0.0], slow[:-1]]) * rng.uniform(0.7, 0.95))
    overdue = window.level("JobTerminated") * slow * (1 - np.exp(-since / 2.0)) * rng.uniform(0.02, 0.08)
    window.add("JobHeld", overdue * rng.uniform(0.4, 0.8))
    window.add("JobAborted", overdue * rng.uniform(0.2, 0.6))
    window.add("JobTimedOut", overdue)
    window.add("JobFailed", overdue * rng.uniform(0.2, 0.6))
    freed = stuck.sum() * rng.uniform(0.4, 0.9)
    window.add("JobTerminated", freed * window.after(0))
    window.add("Execute", freed * rng.uniform(0.5, 0.9) * window.after(0))
    return window.counts()


OUTAGES: Final[dict[str, OutageFunction]] = {
    "node_collapse": node_collapse,
    "submit_unresponsive": submit_unresponsive,
    "disconnect_storm": disconnect_storm,
    "black_hole": black_hole,
    "slow_storage": slow_storage,
}


def load_outage(name: str) -> OutageFunction:
    """An outage of others, named as MODULE:FUNCTION; whatever it returns is checked each time."""
    if not _PLUG_IN.fullmatch(name):
        raise UsageError(f"'{name[:80]}' names no outage.", hint="Write MODULE:FUNCTION, such as my_outages:cooling_failure.")
    module_name, function_name = name.split(":")
    try:
        function = getattr(import_module(module_name), function_name)
    except Exception as error:  # whatever a foreign module does while it is read
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(f"The outage {name} cannot be loaded ({reason}).", hint="Is its folder in PYTHONPATH?") from error
    if not callable(function):
        raise UsageError(f"The outage {name} is no function.")
    return _checked(name, function)


def _checked(name: str, function: Callable[..., Any]) -> OutageFunction:
    def outage(counts: Floats, kinds: tuple[str, ...], severity: str, seed: int) -> Floats:
        try:
            changed = np.asarray(function(counts.copy(), kinds, severity, seed), dtype=np.float64)
        except Exception as error:  # whatever a foreign function does
            raise UsageError(f"The outage {name} failed ({type(error).__name__}: {error}).") from error
        if changed.shape != counts.shape:
            raise UsageError(f"The outage {name} returned counts of shape {changed.shape}, not {counts.shape}.")
        if not np.isfinite(changed).all() or (changed < 0).any() or (changed != np.rint(changed)).any():
            raise UsageError(f"The outage {name} returned counts that are not whole numbers of zero or more.")
        return changed

    return outage


class _Window:
    """The counts while an outage lasts and after it, and how strongly each hour is touched."""

    def __init__(self, counts: Floats, kinds: tuple[str, ...], severity: str, seed: int) -> None:
        if severity not in SEVERITIES:
            raise UsageError(f"Unknown severity '{severity}'. Known: {', '.join(SEVERITIES)}.")
        if counts.ndim != 2 or counts.shape[1] != len(kinds) or len(counts) <= AFTERMATH_HOURS:
            raise UsageError(f"An outage needs counts of at least {AFTERMATH_HOURS + 1} hours, with one column per kind.")
        self.rng = np.random.default_rng([seed, list(SEVERITIES).index(severity)])
        self.hours = len(counts) - AFTERMATH_HOURS
        self.share = float(self.rng.uniform(*SEVERITIES[severity]))
        self._calm = np.rint(counts).astype(np.int64)  # (rows, kinds)
        self._counts = self._calm.copy()
        self._kinds = kinds
        # (rows,): no hour is touched like the next, and neither the beginning nor the end is at the full hour.
        uneven = np.exp(self.rng.normal(0, 0.15, self.hours))
        uneven[0] *= self.rng.uniform(0.3, 1.0)
        if self.hours > 1:
            uneven[-1] *= self.rng.uniform(0.3, 1.0)
        self.touched = np.concatenate([np.minimum(self.share * uneven, 0.98), np.zeros(AFTERMATH_HOURS)])

    def has(self, kind: str) -> bool:
        """Whether the counts have a column of this kind."""
        return kind in self._kinds

    def level(self, *kinds: str) -> float:
        """How many an hour there usually are of the first of these kinds that the counts have."""
        known = [kind for kind in kinds if kind in self._kinds]
        return float(self._calm[:, self._kinds.index(known[0])].mean()) if known else 0.0

    def running_jobs(self) -> float:
        """About how many jobs run: what ends in an hour, times how long a job runs (which counts do not tell: a guess)."""
        return self.level("JobTerminated", "Execute") * float(self.rng.uniform(1.5, 4.0))

    def fading(self, hours: float) -> Floats:
        """(rows,) weights that sum to one and fade from the beginning of the outage on, not much beyond its end."""
        weights = np.exp(-np.arange(len(self.touched)) / hours)
        weights[self.hours + 2 :] = 0
        faded: Floats = weights / weights.sum()
        return faded

    def after(self, delay_hours: int) -> Floats:
        """(rows,) weights that sum to one, from so many hours after the end on."""
        weights = np.zeros(len(self.touched))
        rest = AFTERMATH_HOURS - delay_hours
        weights[self.hours + delay_hours :] = _BACKLOG[:rest] / _BACKLOG[:rest].sum()
        return weights

    def thin(self, kind: str, gone: Floats) -> npt.NDArray[np.int64]:
        """Take each event away with the chance of its hour; returns how many went."""
        if kind not in self._kinds:
            return np.zeros(len(gone), dtype=np.int64)
        column = self._kinds.index(kind)
        kept = self.rng.binomial(self._counts[:, column], np.clip(1 - gone, 0, 1))
        went: npt.NDArray[np.int64] = self._counts[:, column] - kept
        self._counts[:, column] = kept
        return went

    def add(self, kind: str, more: Floats, *, same: bool = False) -> None:
        """Add about so many events an hour; counts of trouble scatter more than chance, unless they are the `same` jobs."""
        if kind in self._kinds:
            scatter = 1.0 if same else self.rng.gamma(6.0, 1 / 6.0, len(more))
            self._counts[:, self._kinds.index(kind)] += self.rng.poisson(np.maximum(more, 0) * scatter)

    def counts(self) -> Floats:
        """(rows, kinds) the counts as they have become."""
        return self._counts.astype(np.float64)
