"""What is to be said about a job script before it is submitted: whether it can run, its risk, why, and what to change.

LiveSite + Viewer + ScriptRequest -> check_script -> ScriptAnswer; Site + Viewer + JobRequest -> check_request -> the same, from
a site whose history is not in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.answers.jobs.cluster_fit import fit_to_site
from stormpetrel.answers.jobs.judging import user_for
from stormpetrel.answers.jobs.one_job import NOT_KNOWN, advice_answer, line_in, verdict_answer
from stormpetrel.answers.schemas.predictions import ClusterFit, ScriptAnswer, ScriptRequest
from stormpetrel.answers.viewer import PREDICT, Viewer
from stormpetrel.errors import ModelError, SourceError, UsageError
from stormpetrel.jobs.advice import advise
from stormpetrel.jobs.moments import Moment

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.jobs.predictor import Verdict
    from stormpetrel.sources.job_script import JobRequest
    from stormpetrel.store.site import Site

_FLAT = ("risk", "flagged", "threshold", "known", "outcomes", "likeliest", "base_risk", "profile", "reasons")


class Judge(Protocol):
    """What says how likely jobs are to fail: a JobPredictor, or one that several share."""

    def judge(self, job: pl.DataFrame, moment: Moment, now: datetime) -> Verdict:
        """Everything that is to be said about one job (a frame of one row)."""

    def risk(self, jobs: pl.DataFrame, moment: Moment, now: datetime) -> NDArray[np.float64]:
        """The probability that each of these jobs fails."""


class LiveJudge:
    """The predictor of a live site; ModelError where it has none."""

    def __init__(self, live: LiveSite) -> None:
        self._lock = live.lock
        self._predictor = live.predictor()  # outside the lock: it may wait for a refresh, which takes the lock

    def judge(self, job: pl.DataFrame, moment: Moment, now: datetime) -> Verdict:
        """Everything that is to be said about one job (a frame of one row)."""
        with self._lock:
            return self._predictor.judge(job, moment, now)

    def risk(self, jobs: pl.DataFrame, moment: Moment, now: datetime) -> NDArray[np.float64]:
        """The probability that each of these jobs fails."""
        with self._lock:
            return self._predictor.risk(jobs, moment, now)


def check_script(live: LiveSite, viewer: Viewer, script: ScriptRequest) -> ScriptAnswer:
    """Judge a script from the history in memory; UsageError where the text is no job script."""
    from stormpetrel.sources.job_script import parse_job_script

    viewer.require(PREDICT)
    user = user_for(viewer, script.user)
    try:
        request = parse_job_script(script.text, name=script.name, kind=script.kind)
    except SourceError as error:
        raise UsageError(error.what, hint=error.hint) from error
    return _answer(
        lambda: LiveJudge(live),
        live.past,
        request,
        _row(live.site, request, user=user, folder=script.folder, now=live.now()),
        now=live.now(),
        fit=fit_to_site(live.site, request, user=user),
    )


def check_request(
    site: Site, viewer: Viewer, request: JobRequest, *, user: str | None, folder: str | None, now: datetime
) -> ScriptAnswer:
    """Judge a request as if it were submitted now, from `folder`; without a trained model the past still gives advice."""
    from stormpetrel.lifecycle.job_models import load_predictor

    viewer.require(PREDICT)
    user = user_for(viewer, user)
    past = site.jobs.read_jobs(until=now).collect()

    def load() -> Judge:
        return load_predictor(site, now=now, past=past, moments=[Moment.SUBMIT])

    row = _row(site, request, user=user, folder=folder, now=now)
    return _answer(load, lambda _row: past, request, row, now=now, fit=fit_to_site(site, request, user=user))


def _row(site: Site, request: JobRequest, *, user: str | None, folder: str | None, now: datetime) -> pl.DataFrame:
    """The request as a row of a job frame, submitted now."""
    row = request.as_frame(user=user, submit_time=now, cluster=site.settings.site.cluster or "cluster")
    return row.with_columns(pl.col("work_dir").fill_null(pl.lit(folder, dtype=pl.String)))


def _answer(
    load: Callable[[], Judge],
    past_of: Callable[[pl.DataFrame], pl.DataFrame | pl.LazyFrame],
    request: JobRequest,
    row: pl.DataFrame,
    *,
    now: datetime,
    fit: ClusterFit | None,
) -> ScriptAnswer:
    """The answer with a judge (`load` raises ModelError where there is none) and the past of a row."""
    notes: list[str] = []
    judge: Judge | None = None
    try:
        judge = load()
    except ModelError as error:
        notes.append(f"No risk can be given: {error}")
    verdict = verdict_answer(judge.judge(row, Moment.SUBMIT, now)) if judge else None
    if verdict is not None and not verdict.known:
        notes.append(NOT_KNOWN)
    risk_of = None if judge is None else lambda candidates: judge.risk(candidates, Moment.SUBMIT, now)
    advice = advise(row, past_of(row), now=now, risk_of=risk_of)
    flat: dict[str, Any] = {"risk": None} if verdict is None else {name: getattr(verdict, name) for name in _FLAT}
    return ScriptAnswer(
        script=request.name,
        kind=request.kind,
        request={name: _plain(value) for name, value in request.columns.items()},
        warnings=list(request.warnings),
        cluster=fit,
        **flat,
        verdict=verdict,
        advice=[advice_answer(piece, line_in(request, piece)) for piece in advice],
        notes=notes,
    )


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value != value:
        return None
    return value.isoformat() if isinstance(value, datetime) else value
