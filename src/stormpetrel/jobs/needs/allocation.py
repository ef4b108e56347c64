"""Allocation: how much to give a job, out of the forecast of its use; judged by what is wasted and how often it is too little.

UseForecast + request -> allocate -> Allocation. `judge` is the definition of the frontier: under_share, waste_ratio. `tune` finds
the policy with which past jobs waste least while no more of them than allowed are given too little.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from stormpetrel.jobs.needs.features import narrowest
from stormpetrel.jobs.needs.forecast import UseForecast
from stormpetrel.jobs.needs.past_use import GPUS, TIME
from stormpetrel.records.arrays import Floats, Matrix

MOST_RISK: Final = 0.1  # of being too little: never more, however much it would save
MOST_RISK_OF_TIME: Final = 0.5
# More jobs than the users' own requests leave short may be given too little, by so much; of all but time up to 3 %.
TIME_ROOM: Final = 0.015
MEMORY_ROOM: Final = 0.030
_PRICES: Final = np.concatenate([[0.0], np.geomspace(1.0, 1e7, 29)])  # times the median use × weight
_SCALES: Final = (1.0, 1.1, 1.25)
_FACTORS: Final = (1.05, 1.1, 1.2, 1.5, 2.0)
_HIGHEST_PRICE: Final = 1e30
_HARDLY: Final = 1e-3  # more than a whole number: not worth another one
FEWEST_TUNED: Final = 20
_MOST_EXCESS: Final = 0.02  # more is chance or another log


@dataclass(frozen=True, slots=True)
class Allocation:
    """What each job is granted, and the probability that it is too little."""

    granted: Floats
    risk: Floats


@dataclass(frozen=True, slots=True)
class Frontier:
    """A place between waste and failures: the share of jobs given less than they used, and wasted over used amounts."""

    under_share: float | None
    waste_ratio: float | None
    n: int

    def as_json(self) -> dict[str, float | int | None]:
        """The figures as `jobs evaluate --needs` prints them."""
        return {"under_share": self.under_share, "waste_ratio": self.waste_ratio, "n": self.n}


def judge(granted: Floats, used: Floats, weight: Floats) -> Frontier:
    """How good amounts were: attempts that failed count whole and are repeated with double."""
    from stormpetrel.jobs.needs.allocation_kernel import waste

    known = ~np.isnan(granted) & (used > 0)
    granted, used, weight = granted[known], used[known], weight[known]
    whole = float((used * weight).sum())
    if not used.size or whole <= 0:
        return Frontier(None, None, int(used.size))
    return Frontier(float((granted < used).mean()), float((waste(granted, used) * weight).sum()) / whole, int(used.size))


def allocate(
    forecast: UseForecast,
    request: Floats,
    weight: Floats,
    price: float,
    *,
    scale: float = 1.0,
    most_risk: float = 0.5,
    whole: bool = False,
) -> Allocation:
    """The amounts with the least expected waste + price × probability of too little; never more than the request.

    `scale` stretches the forecast: the correction for one that was too low lately. `whole`: only whole numbers are granted.
    """
    from stormpetrel.jobs.needs.allocation_kernel import choose

    granted, risk = np.empty(len(request)), np.empty(len(request))
    steps = forecast.amounts * np.float32(scale)
    steps = np.ceil(steps - _HARDLY) if whole else steps
    choose(forecast.chance, steps, request, price / np.maximum(weight, 1e-9), most_risk, granted, risk)
    return Allocation(granted, risk)


@dataclass(frozen=True, slots=True)
class Policy:
    """How amounts are chosen: out of the forecast, or by the most that the same work used × `factor` where it ran `fewest` times.

    `price` is what one job that is given too little counts as, in bytes × seconds or seconds × cores; infinite: as requested.
    """

    price: float
    scale: float = 1.0
    most_risk: float = 0.5
    factor: float | None = None
    fewest: int = 1
    whole: bool = False  # only whole numbers can be had, of GPUs

    def as_json(self) -> dict[str, float | int | None]:
        """The policy as plain values; an infinite price is null."""
        return {**asdict(self), "price": None if np.isinf(self.price) else self.price}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Self:
        """The policy out of `as_json`; ValueError where it makes no sense."""
        price = np.inf if saved["price"] is None else float(saved["price"])
        factor = None if saved["factor"] is None else float(saved["factor"])
        scale, most_risk = float(saved["scale"]), float(saved["most_risk"])
        policy = cls(price, scale, most_risk, factor, int(saved["fewest"]), bool(saved.get("whole", False)))
        if not (price >= 0.0 and 0.5 <= policy.scale <= 10.0 and 0.0 < policy.most_risk <= 1.0 and policy.fewest >= 1):
            raise ValueError("its policy makes no sense")
        return policy

    def apply(self, forecast: UseForecast, readings: Matrix, request: Floats, weight: Floats) -> Allocation:
        """What each job is granted."""
        price = min(self.price, _HIGHEST_PRICE)
        chosen = allocate(forecast, request, weight, price, scale=self.scale, most_risk=self.most_risk, whole=self.whole)
        if self.factor is None:
            return chosen
        granted = _by_rule(chosen.granted, readings, request, self.factor, self.fewest)
        granted = np.fmin(np.ceil(granted - _HARDLY), request) if self.whole else granted
        return Allocation(granted, forecast.chance_of_more(granted / self.scale))


def _by_rule(otherwise: Floats, readings: Matrix, request: Floats, factor: float, fewest: int) -> Floats:
    most = factor * np.exp(narrowest(readings, "max", fewest=fewest, down_to="user_family"))
    return np.where(np.isnan(most), otherwise, np.fmin(most, request))


@dataclass(frozen=True, slots=True)
class PastForecasts:
    """Jobs that were forecast before they ran, and what they used then: what a policy is tuned on."""

    forecast: UseForecast
    readings: Matrix
    request: Floats
    used: Floats
    weight: Floats
    expected_weight: Floats  # as it was known when they were submitted

    def rows(self, which: NDArray[np.bool_]) -> PastForecasts:
        """The same of some jobs."""
        part = UseForecast(self.forecast.amounts[which], self.forecast.chance[which])
        amounts = (self.request, self.used, self.weight, self.expected_weight)
        return PastForecasts(part, self.readings[which], *(each[which] for each in amounts))


def room_of(resource: str, request_under: float, jobs: int) -> float:
    """The share of past jobs that may be given too little, where the requests leave `request_under` of them short.

    Of few jobs fewer: one standard deviation less, so that what holds by chance on them is not taken for granted.
    """
    room = request_under + TIME_ROOM if resource == TIME else max(request_under, MEMORY_ROOM)
    return max(request_under, room - float(np.sqrt(room * (1.0 - room) / max(jobs, 1))))


def tune(past: PastForecasts, resource: str, *, excess: float = 0.0) -> Policy:
    """The policy that wasted least on past jobs, of those that gave no more of them too little than `room_of` allows.

    `excess` is by how much more were given too little than allowed when earlier policies were in use: half of it is taken off.
    """
    past = past.rows(~np.isnan(past.request) & (past.used > 0))
    most_risk, whole = MOST_RISK_OF_TIME if resource == TIME else MOST_RISK, resource == GPUS
    unit = float(np.median(past.used * past.weight)) if past.used.size else 1.0
    if past.used.size < FEWEST_TUNED:
        return Policy(unit * 1e4, most_risk=most_risk, whole=whole)
    own = judge(past.request, past.used, past.weight)
    allowed = room_of(resource, own.under_share or 0.0, past.used.size)
    room = max(own.under_share or 0.0, allowed - 0.5 * min(max(excess, 0.0), _MOST_EXCESS))
    best, least = Policy(np.inf, most_risk=most_risk, whole=whole), own.waste_ratio if own.waste_ratio is not None else np.inf
    for scale in _SCALES:
        reached = _cheapest(past, _PRICES * unit, replace(best, scale=scale), room)
        if reached is not None and reached[1] < least:
            best, least = replace(best, price=reached[0], scale=scale), reached[1]
    basis = best.apply(past.forecast, past.readings, past.request, past.expected_weight).granted
    for factor in _FACTORS:
        for fewest in (3, 8):
            figures = judge(_by_rule(basis, past.readings, past.request, factor, fewest), past.used, past.weight)
            if (figures.under_share or 0.0) <= room and figures.waste_ratio is not None and figures.waste_ratio < least:
                best, least = replace(best, factor=factor, fewest=fewest), figures.waste_ratio
    return best


def _cheapest(past: PastForecasts, prices: Floats, policy: Policy, room: float) -> tuple[float, float] | None:
    """The lowest price at which no more jobs than allowed are given too little, and what is wasted then."""
    low, high = 0, len(prices) - 1  # the higher the price, the fewer are given too little and the more is wasted
    figures: dict[int, Frontier] = {}
    while low <= high:
        middle = (low + high) // 2
        tried = replace(policy, price=float(prices[middle]))
        granted = tried.apply(past.forecast, past.readings, past.request, past.expected_weight).granted
        figures[middle] = judge(granted, past.used, past.weight)
        low, high = (low, middle - 1) if (figures[middle].under_share or 0.0) <= room else (middle + 1, high)
    reached = figures.get(low)
    return None if reached is None or reached.waste_ratio is None else (float(prices[low]), reached.waste_ratio)
