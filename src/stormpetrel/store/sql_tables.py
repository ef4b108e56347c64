"""Which tables SQL queries see: every table of records, and what people and models left in the state.

Site -> sql_tables -> {name: lazy frame}. Nothing is read before a query asks for it. What lets people in (tokens), what only they
see (saved views) and what the site needs for itself (marks, digests of the forgotten) is not among them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import polars as pl

if TYPE_CHECKING:
    from stormpetrel.store.site import Site

_TIME: Final = pl.Datetime("us", "UTC")
_OUTAGES: Final = pl.Schema(
    {
        "source": pl.String(),
        "uid": pl.String(),
        "start": _TIME,
        "end": _TIME,
        "kind": pl.String(),
        "title": pl.String(),
        "resource": pl.String(),
    }
)
_MODELS: Final = pl.Schema(
    {"name": pl.String(), "version": pl.Int64(), "created": pl.String(), "current": pl.Boolean(), "about": pl.String()}
)
_OPINIONS: Final = pl.Schema(
    {"time": _TIME, "user": pl.String(), "job": pl.String(), "advice": pl.String(), "useful": pl.Boolean()}
)
_AUDIT: Final = pl.Schema({"time": _TIME, "user": pl.String(), "action": pl.String(), "about": pl.String()})
_MOST: Final = 1_000_000  # rows of opinions and of the audit trail, the latest


def sql_tables(site: Site) -> dict[str, pl.LazyFrame]:
    """The tables by name, in the order in which they are listed."""
    return {
        "jobs": site.jobs.table.scan(),
        "predictions": site.predictions.read(),
        "shadow_scores": site.shadow_scores.read(),
        "quarantine": site.quarantine.read(),
        "cpu_windows": site.cpu_windows.read(),
        "trace_scores": site.trace_scores.read(),
        "sliding_scores": site.sliding_scores.read(),
        "job_starts": site.job_starts.read(),
        "job_start_scores": site.job_start_scores.read(),
        "trace_regions": site.trace_regions.read(),
        "node_metrics": site.node_metrics.read(),
        "node_scores": site.node_scores.read(),
        "trace_coverage": site.trace_coverage.read(),
        "event_counts": site.event_counts.read(places=True),
        "event_background": site.event_background.read(),
        "event_scores": site.event_scores.read(),
        "event_gaps": site.event_counts.reasons.read().lazy(),
        "incidents": site.incident_history.read(),
        "outages": _later(_OUTAGES, site.outages.list),
        "models": _later(_MODELS, site.models.versions),
        "opinions": _later(_OPINIONS, lambda: site.opinions.recent(_MOST)),
        "audit": _later(_AUDIT, lambda: site.audit.recent(_MOST)),
    }


def _later(schema: pl.Schema, read: Callable[[], Iterable[object]]) -> pl.LazyFrame:
    """Records of the state as a frame, read when a query comes to them."""

    def frame() -> pl.DataFrame:
        rows = [[_cell(getattr(record, name)) for name in schema] for record in read()]
        return pl.DataFrame(rows, schema=schema, orient="row")

    return pl.defer(frame, schema=schema)


def _cell(value: Any) -> Any:
    """What is neither text, number nor time as JSON; a kind as its text."""
    if isinstance(value, str):
        return str(value)
    return json.dumps(dict(value), ensure_ascii=False, default=str) if hasattr(value, "keys") else value
