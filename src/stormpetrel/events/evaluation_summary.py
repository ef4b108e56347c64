"""Evaluation in figures: what was found on each data set and seed -> mean and spread over seeds, as `events evaluate` prints it.

A run is what one model came to on one data set with one seed, as plain values: runs made at different times can be put together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from stormpetrel.events.baselines import BASELINES
from stormpetrel.events.evaluation import Judged
from stormpetrel.events.event_metrics import FIGURES, Caught, by_outage


@dataclass(frozen=True, slots=True)
class Run:
    """One model, one data set, one seed."""

    dataset: str
    seed: int
    model: str
    figures: Mapping[str, float | None]  # by FIGURES; empty where it failed
    caught: tuple[Caught, ...] = ()
    error: str = ""
    fit_s: float = 0.0
    score_s: float = 0.0

    @classmethod
    def of(cls, dataset: str, seed: int, model: str, judged: Judged) -> Self:
        """A run as it was just measured."""
        found = judged.figures
        return cls(
            dataset,
            seed,
            model,
            found.as_dict() if found else {},
            found.caught if found else (),
            judged.error,
            judged.fit_s,
            judged.score_s,
        )

    def as_json(self) -> dict[str, Any]:
        """As it is kept in a file."""
        outages = [[one.outage_type, one.severity, one.delay_hours] for one in self.caught]
        record = {"dataset": self.dataset, "seed": self.seed, "model": self.model, "figures": dict(self.figures)}
        return {**record, "outages": outages, "error": self.error, "fit_s": self.fit_s, "score_s": self.score_s}

    @classmethod
    def of_json(cls, kept: Mapping[str, Any]) -> Self:
        """As it was kept in a file."""
        return cls(
            str(kept["dataset"]),
            int(kept["seed"]),
            str(kept["model"]),
            dict(kept["figures"]),
            tuple(Caught(*outage) for outage in kept["outages"]),
            str(kept["error"]),
            float(kept["fit_s"]),
            float(kept["score_s"]),
        )


def merged(older: Iterable[Run], newer: Iterable[Run]) -> list[Run]:
    """All runs, sorted; of the same data set, seed and model the newer one counts."""
    found = {(run.dataset, run.seed, run.model): run for run in (*older, *newer)}
    return [found[key] for key in sorted(found)]


def summary(runs: Sequence[Run], *, order: Sequence[str] = ()) -> dict[str, Any]:
    """`{"datasets": {name: {"models", "baselines", "by_outage", …}}}`; figures over seeds are mean, std and n."""
    names = list(dict.fromkeys(run.dataset for run in runs))
    return {"datasets": {name: _of_dataset([run for run in runs if run.dataset == name], order) for name in names}}


def _of_dataset(runs: Sequence[Run], order: Sequence[str]) -> dict[str, Any]:
    those = sorted({run.model for run in runs}, key=lambda name: (order.index(name) if name in order else len(order), name))
    found = {name: _of_model([run for run in runs if run.model == name]) for name in those}
    outages: dict[str, dict[str, dict[str, Any]]] = {}
    for name in those:
        caught = [one for run in runs if run.model == name for one in run.caught]
        for outage_type, severities in by_outage(caught).items():
            for severity, figures in severities.items():
                outages.setdefault(outage_type, {}).setdefault(severity, {})[name] = figures
    return {
        "models": {name: figures for name, figures in found.items() if name not in BASELINES},
        "baselines": {name: figures for name, figures in found.items() if name in BASELINES},
        "by_outage": outages,
        "seeds": sorted({run.seed for run in runs}),
    }


def _of_model(runs: Sequence[Run]) -> dict[str, Any]:
    measured = [run for run in runs if not run.error]
    figures = {name: spread([run.figures.get(name) for run in measured]) for name in FIGURES}
    errors = {str(run.seed): run.error for run in runs if run.error}
    seconds = {"fit_s": spread([run.fit_s for run in measured]), "score_s": spread([run.score_s for run in measured])}
    return {**figures, **seconds, **({"errors": errors} if errors else {})}


def spread(values: Sequence[float | None]) -> dict[str, float | int | None]:
    """Mean, (population) standard deviation and number of what is known."""
    known = [value for value in values if value is not None]
    if not known:
        return {"mean": None, "std": None, "n": 0}
    return {"mean": float(np.mean(known)), "std": float(np.std(known)), "n": len(known)}
