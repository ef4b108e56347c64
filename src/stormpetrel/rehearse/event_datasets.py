"""Data sets to judge the alarm of the grid by: a simulated grid, or recorded counts with outages injected into the later half.

seed -> simulated_dataset; EventSeries, seed -> injected_dataset; labelled EventSeries -> labelled_dataset. All keep the order of
time: a part to learn from, a part for the threshold, and the part to be judged on. Needs numpy only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.errors import UsageError
from stormpetrel.events.evaluation import Dataset
from stormpetrel.events.event_metrics import AFTERMATH_HOURS, TestOutage, outages_in
from stormpetrel.records.event_series import ANOMALY, HOUR_S, MAINTENANCE, NORMAL, UNLABELLED, WEEK_S, EventSeries
from stormpetrel.simulate.grid_outages import OUTAGES, OutageFunction, load_outage
from stormpetrel.simulate.outage_plan import PlannedOutage, inject, plan_outages

SIMULATED: Final = "simulated"
SIMULATED_HOURS: Final = 4368  # half a year, as the published study had
OUTAGES_PER_WEEK: Final = 1.5
TRAIN_SHARE: Final = 0.50  # of a series with outages in all parts; the calm part ends at CALM_UNTIL, the rest is judged
CALM_UNTIL: Final = 0.65
INJECTED_TRAIN_SHARE: Final = 0.35  # of a recorded series: the last 30 % of its first half are for the threshold
INJECTED_CALM_UNTIL: Final = 0.50
LEAST_WEEKS: Final = 8  # a shorter series holds neither a rhythm to learn nor outages enough to be judged by
Mask = npt.NDArray[np.bool_]
_OTHER_PLAN: Final = 1_000_003  # outages to learn from come of other seeds than outages to be judged by


def simulated_dataset(seed: int, *, hours: int = SIMULATED_HOURS, plug_ins: Sequence[str] = ()) -> Dataset:
    """A simulated grid with outages in all parts; for models without labels, they are there but not told."""
    from stormpetrel.simulate.grid import GridSpec, simulate_grid

    _long_enough(hours * HOUR_S)
    grid = simulate_grid(GridSpec(hours=hours, seed=seed, outages_per_week=OUTAGES_PER_WEEK))
    series, plan = grid.series, grid.plan
    if plug_ins:  # the same grid with other outages; what they do to queue and slots in the background, nobody knows
        announced = grid.calm.label == MAINTENANCE
        series, plan = _with_outages(grid.calm, seed, outage_functions(plug_ins), avoid=announced)
    return _in_three(SIMULATED, seed, series, _as_test_outages(plan))


def injected_dataset(name: str, series: EventSeries, seed: int, *, plug_ins: Sequence[str] = ()) -> Dataset:
    """Recorded counts: as they are in the first half, with outages injected into the second, of which every seed has others.

    Models that learn from labels get the same training span with outages of other seeds injected and labelled. What went wrong
    while the counts were recorded is labelled nowhere: alarms about it count as false.
    """
    _long_enough(len(series) * series.bucket_s)
    outages = outage_functions(plug_ins)
    cut, half = round(len(series) * INJECTED_TRAIN_SHARE), round(len(series) * INJECTED_CALM_UNTIL)
    recorded = series.with_labels(np.full(len(series), NORMAL))
    early, late = recorded.take(0, cut), recorded.take(half, len(series))
    train, _ = _with_outages(early, seed + _OTHER_PLAN, outages, avoid=early.is_gap)  # nobody would see them in a gap
    test, plan = _with_outages(late, seed, outages, avoid=late.is_gap)
    return Dataset(
        name=name,
        seed=seed,
        train=train,
        train_unlabelled=early.unlabelled(),
        calm=recorded.take(cut, half),
        test=test,
        outages=tuple(_as_test_outages(plan)),
    )


def labelled_dataset(name: str, series: EventSeries, seed: int) -> Dataset:
    """Recorded counts with the outages that somebody has labelled; the seed is that of the models."""
    _long_enough(len(series) * series.bucket_s)
    label = np.where(series.label == UNLABELLED, NORMAL, series.label)
    found = _in_three(name, seed, series.with_labels(label), outages_in(series))
    if not found.outages:
        raise UsageError(
            f"No labelled outage of {name} lies in the last {100 * (1 - CALM_UNTIL):.0f} % of the time.",
            hint="Label later outages, or leave out --outages: some are then injected.",
        )
    return found


def outage_functions(plug_ins: Sequence[str]) -> Mapping[str, OutageFunction]:
    """Our outages and those of others (MODULE:FUNCTION), by name."""
    return {**OUTAGES, **{name: load_outage(name) for name in plug_ins}}


def _with_outages(
    series: EventSeries, seed: int, outages: Mapping[str, OutageFunction], *, avoid: Mask
) -> tuple[EventSeries, list[PlannedOutage]]:
    plan = plan_outages(len(series), per_week=OUTAGES_PER_WEEK, seed=seed, types=tuple(outages), avoid=avoid)
    return inject(series, plan, outages), plan


def _as_test_outages(plan: Sequence[PlannedOutage]) -> list[TestOutage]:
    return [TestOutage(one.first, one.last - 1, one.outage_type, one.severity) for one in plan]


def _in_three(name: str, seed: int, series: EventSeries, outages: Sequence[TestOutage]) -> Dataset:
    """Cut a labelled series; a cut that would fall into an outage or its aftermath is moved behind it."""
    cut, half = (_behind_outage(series, round(len(series) * share)) for share in (TRAIN_SHARE, CALM_UNTIL))
    train = series.take(0, cut)
    later = (one for one in outages if one.first >= half)
    return Dataset(
        name=name,
        seed=seed,
        train=train,
        train_unlabelled=train.unlabelled(),
        calm=series.take(cut, half),
        test=series.take(half, len(series)),
        outages=tuple(TestOutage(one.first - half, one.last - half, one.outage_type, one.severity) for one in later),
    )


def _behind_outage(series: EventSeries, place: int) -> int:
    """The first place from this one on that lies neither inside an outage nor in its aftermath."""
    reach = round(AFTERMATH_HOURS * HOUR_S / series.bucket_s)
    while place < len(series) and (series.label[max(0, place - max(1, reach)) : place] == ANOMALY).any():
        place += 1
    return place


def _long_enough(seconds: int) -> None:
    if seconds < LEAST_WEEKS * WEEK_S:
        raise UsageError(
            f"{seconds / WEEK_S:.1f} weeks are too few to judge models by.", hint=f"Use a series of {LEAST_WEEKS} weeks or more."
        )
