"""Tables of how good the alarm of the cluster is: EventDataset -> Table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stormpetrel.faces.report.blocks import NOTHING, Column, Table
from stormpetrel.figures.event_quality import outage_cells

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.events import EventDataset, EventModelQuality, OverSeeds

MODEL_LABELS: Final = {
    "supervised": "supervised LSTM",
    "unsupervised": "unsupervised",
    "combined": "combined",
    "seasonal": "seasonal z-score",
    "pca": "PCA",
    "iforest": "Isolation Forest",
    "xgboost": "XGBoost on lags",
}
# name, heading, form, and whether the spread over seeds is told too: all of it would not fit into a terminal.
_FIGURES: Final = (
    ("pr_auc", "PR area", ".3f", True),
    ("roc_auc", "ROC", ".3f", False),
    ("recall_at_one_per_week", "raised", ".2f", True),
    ("false_alarms_per_week", "false a week", ".2f", True),
    ("delay_hours", "delay, h", ".1f", True),
)
_NOTE: Final = (
    "Mean ± standard deviation over seeds. Raised: share of outages with at least one alarm while they lasted, at a threshold "
    "that allows one false alarm a week on calm hours before the test part. False a week: what that gave in the test part. "
    "Delay: median, to the end of the alarming hour. Indented: baselines."
)


def quality_table(name: str, dataset: EventDataset) -> Table:
    """Every model and baseline with its figures."""
    rows = [(MODEL_LABELS.get(model, model), *_cells(quality)) for model, quality in dataset.models.items()]
    rows += [("  " + MODEL_LABELS.get(model, model), *_cells(quality)) for model, quality in dataset.baselines.items()]
    seeds = len(dataset.seeds)
    title = f"{name}: {seeds} seed{'s' if seeds != 1 else ''}"
    columns = (Column("model"), *(Column(heading, "") for _, heading, _, _ in _FIGURES))
    return Table(title, columns, tuple(rows), f"{_NOTE} {_chance(dataset)}".strip())


def outages_table(name: str, dataset: EventDataset) -> Table:
    """The share of outages that each model raised, by type and severity."""
    models = [*dataset.models, *dataset.baselines]
    rows = []
    for kind, severity in outage_cells(dataset):
        recalls = dataset.by_outage[kind][severity]
        number = max(recall.n for recall in recalls.values())
        shares = (recalls[model].recall if model in recalls else None for model in models)
        rows.append((kind.replace("_", " "), severity, number, *shares))
    columns = [Column("outage"), Column("severity"), Column("n", "d")]
    columns += [Column(MODEL_LABELS.get(model, model), ".2f") for model in models]
    return Table(f"{name}: outages raised, by type and severity", tuple(columns), tuple(rows), "Over all seeds together.")


def failures(name: str, dataset: EventDataset) -> list[str]:
    """A line for each model that could not be judged, with the reason."""
    lines = []
    for model, quality in (dataset.models | dataset.baselines).items():
        if quality.errors:
            label, first = MODEL_LABELS.get(model, model), next(iter(quality.errors.values()))
            lines.append(f"{name}: {label} failed with {len(quality.errors)} of {len(dataset.seeds)} seeds: {first}")
    return lines


def _chance(dataset: EventDataset) -> str:
    shares = [quality.outage_share for quality in (dataset.models | dataset.baselines).values()]
    known = [share.mean for share in shares if share.n]
    return f"By chance, the PR area would be {known[0]:.3f}." if known else ""


def _cells(quality: EventModelQuality) -> list[str]:
    return [_written(getattr(quality, name), form, spread=spread) for name, _, form, spread in _FIGURES]


def _written(figure: OverSeeds, form: str, *, spread: bool) -> str:
    if not figure.n:
        return NOTHING
    return f"{figure.mean:{form}} ± {figure.std:{form}}" if spread and figure.n > 1 else f"{figure.mean:{form}}"
