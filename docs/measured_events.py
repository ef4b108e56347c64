"""Tables of docs/events.md, made from what the benchmarks measured: benchmarks/results/events*.json -> Markdown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from markdown_tables import table
from measured_traces import measured

_DATASETS: Final = {"simulated": "simulated grid", "curie": "Curie", "hpc2n": "HPC2N", "mira": "Mira"}
_MODELS: Final = {
    "combined": "combined",
    "unsupervised": "unsupervised",
    "supervised": "supervised (LSTM of the study)",
    "seasonal": "seasonal z-score",
    "pca": "PCA",
    "iforest": "isolation forest",
    "xgboost": "XGBoost on lagged counts",
}
_FIGURES: Final = {
    "pr_auc": "PR area",
    "roc_auc": "ROC area",
    "recall_at_one_per_week": "recall",
    "false_alarms_per_week": "false alarms a week",
    "delay_hours": "delay (h)",
}
_SEVERITIES: Final = ("mild", "moderate", "severe")


def _of_both(found: dict[str, Any]) -> dict[str, Any]:
    return {**found["models"], **found["baselines"]}


def quality() -> str:
    """Every model and baseline on every data set: mean and spread over the seeds."""
    parts = []
    datasets = measured("events_quality")["datasets"]
    for name, found in sorted(datasets.items(), key=lambda item: list(_DATASETS).index(item[0])):
        both = _of_both(found)
        rows = [
            (words, *(_spread(both[model].get(figure)) for figure in _FIGURES))
            for model, words in _MODELS.items()
            if model in both
        ]
        parts += [f"**{_DATASETS.get(name, name)}**, {len(found['seeds'])} seeds", table(("", *_FIGURES.values()), rows)]
    return "\n\n".join(parts)


def outages() -> str:
    """Which share of the outages of each type and severity the unsupervised and the combined model find, simulated."""
    found = measured("events_quality")["datasets"]["simulated"]["by_outage"]
    those = [name for name in ("combined", "unsupervised", "supervised", "xgboost") if name in next(iter(found.values()))["mild"]]
    rows = [
        (outage.replace("_", " "), severity, str(by_model[those[0]]["n"]), *(_caught(by_model[name]) for name in those))
        for outage, severities in found.items()
        for severity, by_model in sorted(severities.items(), key=lambda item: _SEVERITIES.index(item[0]))
    ]
    head = ("simulated outage", "severity", "number", *(f"found by {_MODELS[name]}" for name in those))
    return table(head, rows)


def places() -> str:
    """How often the findings of an outage name the place where it is."""
    rows = measured("events_why")["rows"]
    by_type: dict[str, dict[str, Any]] = {}
    for row in rows:
        by_type.setdefault(row["outage"], {})[row["severity"]] = row
    told = [
        (outage.replace("_", " "), *(f"{found[severity]['right']} of {found[severity]['outages']}" for severity in _SEVERITIES))
        for outage, found in by_type.items()
    ]
    return table(("place named rightly", *_SEVERITIES), told)


def speed() -> str:
    """How long training and scoring take, and how many events a second become counts."""
    found = measured("events")
    rows = [
        (
            row["what"],
            f"{_amount(row['value'])} {row['unit']}",
            row.get("peer", ""),
            f"{row['ratio']:,.3g}×" if row.get("ratio") else "",
        )
        for row in found["rows"]
    ]
    return table(("what", "measured", "peer in the same run", "ratio"), rows)


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _spread(figure: dict[str, Any] | None) -> str:
    if not figure or figure["mean"] is None:
        return "–"
    return f"{_number(figure['mean'])} ± {_number(figure['std'])}"


def _number(value: float) -> str:
    return f"{value:.2f}".removeprefix("0") if value < 1 else f"{value:.2f}"


def _caught(found: dict[str, Any]) -> str:
    recall = "–" if found["recall"] is None else f"{found['recall']:.0%}".replace("%", " %")
    delay = found["delay_hours"]
    return recall if delay is None else f"{recall}, {delay:.1f} h"


PARTS: Final[dict[str, Callable[[], str]]] = {
    "event-quality": quality,
    "event-outages": outages,
    "event-speed": speed,
    "event-places": places,
}
