"""Predictions for requests, as if they were submitted now: many at once, and by several threads.

PredictionRequest -> judge_requests -> Prediction. The live site's lock is held only while its history is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from stormpetrel.answers.schemas.predictions import Prediction, PredictionRequest, Reason
from stormpetrel.answers.viewer import PREDICT, Viewer
from stormpetrel.errors import AccessError
from stormpetrel.jobs.moments import Moment
from stormpetrel.records.jobs import JOB_SCHEMA

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.jobs.predictor import Verdict

# A log that never says what was requested learns from what was given (`jobs.keys.stand_ins`): a request then stands in for that.
_COLUMNS: Final = {
    "user": "user",
    "job_name": "job_name",
    "account": "account",
    "partition": "partition",
    "qos": "qos",
    "req_cpus": "cpus",
    "cpus": "cpus",
    "req_nodes": "nodes",
    "nodes": "nodes",
    "req_gpus": "gpus",
    "gpus": "gpus",
    "req_mem_bytes": "memory_bytes",
    "time_limit_s": "time_limit_s",
    "work_dir": "work_dir",
    "script_path": "script_path",
    "array_task": "array_task",
}
_NEEDED: Final = (*_COLUMNS, "cluster", "job_id", "submit_time", "restart", "extra", "node_list")
_SCHEMA: Final = {name: JOB_SCHEMA[name] for name in _NEEDED}
_AT_ONCE: Final = 1024  # rows per hold of the lock: single predictions get their turn in between


def for_viewer(request: PredictionRequest, viewer: Viewer) -> PredictionRequest:
    """The request with its user: administrators may ask for anybody, others only for themselves."""
    return request.model_copy(update={"user": user_for(viewer, request.user)})


def user_for(viewer: Viewer, requested: str | None) -> str | None:
    """Whose job a request is about; AccessError where that is somebody else."""
    if requested is not None and requested != viewer.user and not viewer.is_admin:
        raise AccessError("You may ask for your own jobs only.", hint=f"Leave the user out, or write {viewer.user}.")
    return requested or viewer.user or None


def request_frame(requests: Sequence[PredictionRequest], *, now: datetime, cluster: str) -> pl.DataFrame:
    """The requests as rows of a job frame, submitted now; of its columns only those that a forecast at submission reads."""
    rows = [request.__dict__ for request in requests]
    columns: dict[str, list[Any]] = {column: [row[field] for row in rows] for column, field in _COLUMNS.items()}
    height = len(rows)
    nothing = [None] * height
    columns |= {"cluster": [cluster] * height, "job_id": nothing, "submit_time": [now] * height, "restart": [0] * height}
    return pl.DataFrame({**columns, "extra": nothing, "node_list": nothing}, schema=_SCHEMA)


def judge_requests(
    live: LiveSite, viewer: Viewer, requests: Sequence[PredictionRequest], *, explain: bool = False
) -> list[Prediction]:
    """Return the prediction for each request if it were submitted now, in the same order."""
    viewer.require(PREDICT)
    own = [for_viewer(request, viewer) for request in requests]
    return predictions(live, own, explain=explain)


def predictions(live: LiveSite, requests: Sequence[PredictionRequest], *, explain: bool = False) -> list[Prediction]:
    """Return the same for requests whose users have been checked already."""
    cluster = live.settings.site.cluster or "cluster"
    results: list[Prediction] = []
    for first in range(0, len(requests), _AT_ONCE):
        now = live.now()
        frame = request_frame(requests[first : first + _AT_ONCE], now=now, cluster=cluster)
        predictor = live.predictor()
        with live.lock:
            verdicts = predictor.judge_many(frame, Moment.SUBMIT, now, explain=explain)
        version = predictor.versions.get(Moment.SUBMIT, 0)
        results += [_prediction(verdict, version, explain=explain) for verdict in verdicts]
    return results


def _prediction(verdict: Verdict, version: int, *, explain: bool) -> Prediction:
    return Prediction.model_construct(
        risk=verdict.risk,
        flagged=verdict.flagged,
        threshold=verdict.threshold,
        known=verdict.known,
        outcomes=dict(verdict.outcomes),
        likeliest=verdict.likeliest,
        profile=verdict.profile,
        model_version=version,
        base=verdict.base if explain else None,
        base_risk=verdict.base_risk if explain else None,
        reasons=[_reason(reason) for reason in verdict.reasons] if explain else None,
    )


def _reason(reason: Any) -> Reason:
    value = None if np.isnan(reason.value) else reason.value
    return Reason.model_construct(
        feature=reason.feature, words=reason.words, contribution=reason.contribution, value=value, points=reason.points
    )
