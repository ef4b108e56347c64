"""Figures of how good the alarm of the cluster is: model next to model, and which outages each of them raises.

EventDataset -> Plotly figures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import plotly.graph_objects as go

from stormpetrel.figures.palette import BLUE, GREY, layout
from stormpetrel.figures.waste import label

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from stormpetrel.answers.schemas.events import EventDataset

SEVERITY_ORDER: Final = ("mild", "moderate", "severe")
_SHADES: Final = ((0.0, "#FFFFFF"), (1.0, BLUE))


def outage_cells(dataset: EventDataset) -> list[tuple[str, str]]:
    """(type, severity) of all outages of a data set, from mild to severe."""
    cells = [(kind, severity) for kind, severities in dataset.by_outage.items() for severity in severities]
    return sorted(cells, key=lambda cell: (cell[0], _rank(cell[1]), cell[1]))


def model_comparison(name: str, dataset: EventDataset) -> Figure:
    """The area under the precision-recall curve of each model (blue) and baseline (grey), with its spread over seeds."""
    figure = go.Figure(layout=layout(f"Models and baselines, {label(name)}", "", "area under the precision-recall curve"))
    for part, qualities, colour in (("models", dataset.models, BLUE), ("baselines", dataset.baselines, GREY)):
        areas = {model: quality.pr_auc for model, quality in qualities.items() if quality.pr_auc.n}
        figure.add_bar(
            x=[label(model) for model in areas], y=[area.mean for area in areas.values()], name=part, marker_color=colour,
            error_y={"type": "data", "array": [area.std for area in areas.values()]},
        )  # fmt: skip
    return figure.update_yaxes(range=[0, 1])


def recall_by_outage(name: str, dataset: EventDataset) -> Figure:
    """The share of outages that each model raised, by type and severity, as a map; figures are written into it."""
    models = [*dataset.models, *dataset.baselines]
    cells = outage_cells(dataset)
    shares = [[_recall(dataset, cell, model) for model in models] for cell in cells]  # (cells, models)
    figure = go.Figure(layout=layout(f"Outages raised, {label(name)}", "", ""))
    figure.add_heatmap(
        x=[label(model) for model in models], y=[label(f"{kind}, {severity}".replace("_", " ")) for kind, severity in cells],
        z=shares, zmin=0, zmax=1, colorscale=_SHADES, xgap=1, ygap=1, colorbar={"title": {"text": "share raised"}},
        text=[["" if share is None else f"{share:.0%}" for share in row] for row in shares], texttemplate="%{text}",
        hovertemplate="%{y}<br>%{x}: %{text}<extra></extra>",
    )  # fmt: skip
    return figure.update_yaxes(autorange="reversed")


def _recall(dataset: EventDataset, cell: tuple[str, str], model: str) -> float | None:
    recall = dataset.by_outage[cell[0]][cell[1]].get(model)
    return recall.recall if recall else None


def _rank(severity: str) -> int:
    return SEVERITY_ORDER.index(severity) if severity in SEVERITY_ORDER else len(SEVERITY_ORDER)
