"""The grid as a whole: how it is, its counts of events, its outages and alarms; the dashboard shows the same."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from fastapi import APIRouter, Query
from starlette.responses import Response

from stormpetrel.answers.grid import GridAnswer, GridQuestion, grid
from stormpetrel.answers.schemas.grid import CountsQuestion, GridCounts, GridNow, GridOutages, SpanQuestion
from stormpetrel.faces.api.asking import Reader, answered, errors
from stormpetrel.records.times import EARLIEST, LATEST

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer

_DAY = timedelta(days=1)


def grid_router(live: LiveSite) -> APIRouter:
    """The endpoints about the grid."""
    api = APIRouter(prefix="/grid", tags=["grid"])

    @api.get("", operation_id="grid", summary="How the grid is", response_model=GridNow, responses=errors())
    def get_grid(viewer: Reader) -> Response:
        """Whether the grid is in normal operation now, since when not, and what is wrong."""
        answer = grid(live, viewer)
        board, head = answer.board, answer.head
        told = {"state": head.state, "headline": head.words, "hint": head.hint, "since": head.since, "lack": board.lack}
        of_board = {name: getattr(board, name) for name in ("latest", "model", "model_version")}
        return answered(
            GridNow.model_validate(
                {**told, **of_board, "as_of": answer.as_of, "findings": answer.findings, "bucket_s": board.series.bucket_s}
            )
        )

    @api.get("/counts", operation_id="grid_counts", summary="Events over time", response_model=GridCounts, responses=errors())
    def get_counts(viewer: Reader, asked: Annotated[CountsQuestion, Query()]) -> Response:
        """How many events of each kind there were in each bucket of time, what was expected, and what the model says."""
        answer = _asked(live, viewer, asked, "day")
        last = min(answer.last, answer.first + asked.limit)
        board = answer.board
        told = {
            "bucket_s": board.series.bucket_s,
            "kinds": board.series.kinds,
            "background_names": board.series.background_names,
            "buckets": [_bucket(answer, place) for place in range(answer.first, last)],
            "gaps": [{"start": gap.start, "end": gap.end, "why": gap.why} for gap in answer.gaps],
            "next": board.series.moment(last) if last < answer.last else None,
        }
        return answered(GridCounts.model_validate(told))

    @api.get(
        "/outages", operation_id="grid_outages", summary="Outages and alarms", response_model=GridOutages, responses=errors()
    )
    def get_outages(viewer: Reader, asked: Annotated[SpanQuestion, Query()]) -> Response:
        """Outages and maintenance that people and calendars told of, whether an alarm was raised, and every alarm."""
        answer = _asked(live, viewer, asked, "all")
        return answered(GridOutages.model_validate({"outages": _outages(answer), "alarms": _alarms(answer)}))

    return api


def _asked(live: LiveSite, viewer: Viewer, asked: SpanQuestion, span: str) -> GridAnswer:
    since, until = (None if edge is None else max(EARLIEST, min(edge, LATEST)) for edge in (asked.since, asked.until))
    if since is None and until is not None and span == "day":
        since = until - _DAY
    return grid(live, viewer, GridQuestion(span, since, until))


def _bucket(answer: GridAnswer, place: int) -> dict[str, Any]:
    board = answer.board
    forecast = not np.isnan(board.expected[place]).all()
    return {
        "start": board.series.moment(place),
        "counts": None if board.series.is_gap[place] else board.series.counts[place].tolist(),
        **{name: _values(getattr(board, name)[place]) if forecast else None for name in ("expected", "low", "high")},
        "background": _values(board.series.background[place]),
        "score": _value(board.score[place]),
        "threshold": _value(board.threshold[place]),
        "alarm": bool(board.alarm[place]),
    }


def _outages(answer: GridAnswer) -> list[dict[str, Any]]:
    return [
        {
            **{name: getattr(seen.outage, name) for name in ("start", "end", "kind", "title")},
            "source": seen.outage.source.partition(":")[0],
            "raised": seen.raised,
            "delay_s": None if seen.delay is None else seen.delay.total_seconds(),
        }
        for seen in answer.outages
    ]


def _alarms(answer: GridAnswer) -> list[dict[str, Any]]:
    return [
        {
            **{name: getattr(alarm, name) for name in ("start", "end", "findings", "outages")},
            "score": _value(alarm.score),
            "threshold": _value(alarm.threshold),
        }
        for alarm in answer.alarms
    ]


def _values(row: Any) -> list[float | None]:
    return [_value(value) for value in row]


def _value(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
