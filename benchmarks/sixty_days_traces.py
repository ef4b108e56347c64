"""The CPU windows of the sixty days: an ensemble trained every night from yesterday's weights, against one trained once.

days, drift -> live_with_traces -> a row a day; part of benchmarks/sixty_days.py. Each day 40 minutes of three simulated nodes of
eight threads; from the day of the drift on 15 % of what was user time is system time, as after a change of the kernel. A night
learns from the last three days; it is judged on the day after it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stormpetrel.learn.metrics import roc_auc
from stormpetrel.records.windows import Windows, cut_windows, join_windows
from stormpetrel.simulate.telemetry.campaigns import CampaignSpec, simulate_campaign
from stormpetrel.traces.faults.bench import BENCH
from stormpetrel.traces.faults.contract import inject
from stormpetrel.traces.networks.architecture import Architecture, AutoencoderSettings
from stormpetrel.traces.networks.autoencoder import TraceAutoencoder

MODELS, LARGE = 3, 10  # of an ensemble
LEARNT_DAYS: Final = 3
_COLD_EPOCHS, _WARM_EPOCHS = 30, 4
_NODES, _THREADS, _MINUTES = 3, 8, 40
_SHIFT: Final = 0.15
Ensemble = list[TraceAutoencoder]


def live_with_traces(days: int, drift: int, seed: int) -> list[dict[str, Any]]:
    """Each day: the error on normal windows and the ROC area over the bench of faults, of the nightly ensemble and the first."""
    past = [_windows(day, drift, seed) for day in range(-LEARNT_DAYS, 0)]
    once = nightly = _trained(past, None, MODELS)
    rows: list[dict[str, Any]] = []
    for day in range(days):
        today = _windows(day, drift, seed)
        row: dict[str, Any] = {"day": day, "nightly": _judged(nightly, today), "once": _judged(once, today)}
        past = [*past, today][-LEARNT_DAYS:]
        began = time.process_time()
        nightly = _trained(past, nightly, MODELS)
        row["cpu_s"] = round(time.process_time() - began, 2)
        rows.append(row)
    began = time.process_time()
    large = _trained(past, None, LARGE)
    after = _windows(days, drift, seed)
    ten = {"models": LARGE, "cold": True, "cpu_s": round(time.process_time() - began, 2), **_judged(large, after)}
    rows.append({"day": days, "ensemble_of_ten": ten, "nightly": _judged(nightly, after), "once": _judged(once, after)})
    return rows


def _windows(day: int, drift: int, seed: int) -> Windows:
    spec = CampaignSpec(
        name=f"day{day}", nodes=_NODES, threads_per_node=_THREADS, minutes=_MINUTES, seed=seed * 1000 + day + LEARNT_DAYS,
        mpi_sizes=(2, 8), start_s=1_767_571_200.0 + 86_400 * day,
    )  # fmt: skip
    windows = cut_windows(simulate_campaign(spec))
    if day < drift:
        return windows
    rates = windows.rates.copy()
    moved = _SHIFT * rates[:, :, 0]
    rates[:, :, 0] -= moved
    rates[:, :, 1] += moved
    return replace(windows, rates=rates)


def _trained(days: Sequence[Windows], before: Ensemble | None, models: int) -> Ensemble:
    train, validation = join_windows(list(days[:-1])), days[-1]
    epochs = _COLD_EPOCHS if before is None else _WARM_EPOCHS
    ensemble = []
    for number in range(models):
        settings = AutoencoderSettings(
            architecture=Architecture.FAST, steps=train.steps, seed=number, max_epochs=epochs, patience=4
        )
        warm = None if before is None else before[number]
        ensemble.append(TraceAutoencoder(settings).fit(train, validation, device="cpu", warm_from=warm))
    return ensemble


def _judged(ensemble: Ensemble, windows: Windows) -> dict[str, Any]:
    """The mean error on normal windows, and the mean ROC area over the moderate faults of the bench, in every second moment."""
    normal = windows.of_normal()
    calm = _scores(ensemble, normal)
    areas = []
    for place, fault in enumerate(BENCH):
        rates, hit = _with_fault(normal, fault, place)
        area = roc_auc(hit, _scores(ensemble, replace(normal, rates=rates)))
        areas.append(0.5 if area is None else area)
    return {"re_normal": round(float(calm.mean()), 6), "faults_roc_auc": round(float(np.mean(areas)), 4)}


def _scores(ensemble: Ensemble, windows: Windows) -> npt.NDArray[np.float64]:
    return np.asarray(np.mean([model.score(windows) for model in ensemble], axis=0), dtype=np.float64)


def _with_fault(windows: Windows, fault: Any, seed: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    rates, hit = windows.rates.copy(), np.zeros(len(windows), dtype=np.bool_)
    moments = np.unique(windows.start_s)
    for place, start in enumerate(moments[::2]):
        for node in range(len(windows.nodes)):
            rows = np.flatnonzero((windows.start_s == start) & (windows.node == node))
            if rows.size >= 2:
                changed = inject(fault, rates[rows].transpose(1, 0, 2), "moderate", seed * 997 + place)
                rates[rows] = changed.transpose(1, 0, 2)
                hit[rows] = True
    return rates, hit
