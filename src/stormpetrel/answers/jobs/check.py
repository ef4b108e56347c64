"""Check of a job script before it is submitted: whether it can run, its risk, why, and what to change.

LiveSite + Viewer + ScriptRequest -> check_script -> ScriptAnswer; Site + Viewer + JobRequest -> check_request -> the same, from
a site whose history is not in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.answers.jobs.components import whole_answer
from stormpetrel.answers.jobs.judging import user_for
from stormpetrel.answers.jobs.one_job import (
    ENOUGH_REASONS,
    NOT_KNOWN,
    PRIOR_SPEAKS,
    advice_answer,
    line_in,
    useful_advice,
    verdict_answer,
)
from stormpetrel.answers.jobs.outlook import RiskNow, site_outlook, with_outlook
from stormpetrel.answers.schemas.predictions import ClusterFit, ClusterProblem, ScriptAnswer, ScriptRequest, SubmitRequest
from stormpetrel.answers.viewer import PREDICT, Viewer
from stormpetrel.errors import ModelError, SourceError, UsageError
from stormpetrel.jobs.advice.advice import advise_from
from stormpetrel.jobs.advice.kinds import Kind, find_kind, longest_limits
from stormpetrel.jobs.advice.prescription import Prescribed
from stormpetrel.jobs.moments import Moment
from stormpetrel.records.jobs import SCRIPT_SIGNATURE

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.jobs.advice.fit_to_cluster import Misfit
    from stormpetrel.jobs.advice.outlook import JobOutlook
    from stormpetrel.jobs.predictor import Verdict
    from stormpetrel.sources.scripts.job_script import JobRequest
    from stormpetrel.store.site import Site


def fit_to_site(site: Site, request: JobRequest, *, user: str | None) -> ClusterFit | None:
    """Compare a script with the partitions, nodes and QOS of the site's cluster; a hung scheduler costs a second at most."""
    from stormpetrel.ingest.cluster import associations, current_cluster
    from stormpetrel.jobs.advice.fit_to_cluster import misfits
    from stormpetrel.sources.scripts.slurm import resource_request

    if request.kind != "slurm":
        return None
    known = current_cluster(site)
    if known is None:
        problem = site.cluster.problem
        if problem is None:
            return None
        return ClusterFit(can_run=None, problems=[], read_at=None, age_s=None, note=f"Not compared with the cluster: {problem}")
    problem_list = misfits(resource_request(request), known.cluster, associations(site, user))
    age_s = round(known.age_s(datetime.now(UTC)), 1)
    note = None if known.problem is None else f"The cluster is as it was {_ago(age_s)}: {known.problem}"
    can_run = not any(misfit.never for misfit in problem_list)
    problems = [_problem(request, misfit) for misfit in problem_list]
    return ClusterFit(can_run=can_run, problems=problems, read_at=known.read_at, age_s=age_s, note=note)


def _problem(request: JobRequest, misfit: Misfit) -> ClusterProblem:
    return ClusterProblem(
        rule=misfit.rule,
        never_runs=misfit.never,
        words=misfit.words,
        change=misfit.change,
        column=misfit.column,
        proposed=misfit.proposed,
        line=_line(request, misfit),
    )


def _line(request: JobRequest, misfit: Misfit) -> str | None:
    """How the change is written in the script."""
    from stormpetrel.sources.scripts.job_script import change_line

    if misfit.column is None or misfit.proposed is None:
        return None
    try:
        return change_line(request, misfit.column, misfit.proposed)
    except UsageError:
        return None


def _ago(seconds: float) -> str:
    from stormpetrel.jobs.advice.text import format_duration

    return f"{format_duration(seconds)} ago"


_NOT_OF_THE_REQUEST = frozenset({"argv", "wrap", "type", "comment", "export"})
_FLAT = ("risk", "flagged", "threshold", "known", "outcomes", "likeliest", "base_risk", "profile", "reasons")


class Judge(Protocol):
    """What says how likely jobs are to fail: a JobPredictor, or one that several share."""

    @property
    def is_prior(self) -> bool:
        """Whether general experience speaks, and no model of this site."""

    def judge(self, job: pl.DataFrame, moment: Moment, now: datetime, *, top: int | None = None) -> Verdict:
        """Everything about one job (a frame of one row); with `top` so many reasons only."""

    def risk(self, jobs: pl.DataFrame, moment: Moment, now: datetime) -> NDArray[np.float64]:
        """The probability that each of these jobs fails."""


class LiveJudge:
    """The predictor of a live site; ModelError where it has none."""

    def __init__(self, live: LiveSite) -> None:
        self._lock = live.lock
        self._predictor = live.predictor()  # outside the lock: it may wait for a refresh, which takes the lock

    @property
    def is_prior(self) -> bool:
        """Whether general experience speaks, and no model of this site."""
        return self._predictor.is_prior

    def judge(self, job: pl.DataFrame, moment: Moment, now: datetime, *, top: int | None = None) -> Verdict:
        """Everything about one job (a frame of one row); with `top` so many reasons only."""
        with self._lock:
            return self._predictor.judge(job, moment, now, top=top)

    def risk(self, jobs: pl.DataFrame, moment: Moment, now: datetime) -> NDArray[np.float64]:
        """The probability that each of these jobs fails."""
        with self._lock:
            return self._predictor.risk(jobs, moment, now)


def check_script(live: LiveSite, viewer: Viewer, script: ScriptRequest) -> ScriptAnswer:
    """Judge a script from the history in memory; UsageError where the text is no job script."""
    from stormpetrel.sources.scripts.job_script import parse_job_script

    viewer.require(PREDICT)
    user = user_for(viewer, script.user)
    try:
        request = parse_job_script(script.text, name=script.name, kind=script.kind, arguments=script.arguments)
    except SourceError as error:
        raise UsageError(error.what, hint=error.hint) from error
    now, outlook = live.now(), live.outlook()

    def comparable(row: pl.DataFrame) -> tuple[Kind, dict[str, float]]:
        return live.overview.comparable(row, now=now)

    def answer(component: JobRequest) -> ScriptAnswer:
        row = _row(live.site, component, user=user, folder=script.folder, now=now)
        fit = fit_to_site(live.site, component, user=user)
        return _answer(live.site, lambda: LiveJudge(live), comparable, component, row, now=now, fit=fit, outlook=outlook)

    return whole_answer([answer(component) for component in (request, *request.components)])


def check_submission(live: LiveSite, viewer: Viewer, submitted: SubmitRequest) -> tuple[str, ScriptAnswer]:
    """Judge a job while it is being submitted: `silent`, `show` or `refuse`, as the site has set it, and why."""
    viewer.require(PREDICT)
    answer = check_script(live, viewer, submitted.script or _script_of(submitted))
    limits, risk = live.settings.submit, answer.risk or 0.0
    impossible = answer.cluster is not None and answer.cluster.can_run is False
    if (limits.refuse_above < 1.0 and risk > limits.refuse_above) or (impossible and limits.refuse_impossible):
        return "refuse", answer
    return ("show" if impossible or risk >= limits.show_above else "silent"), answer


def _script_of(submitted: SubmitRequest) -> ScriptRequest:
    """A script without lines of its own, with the options that Slurm says."""
    options = {name: value for name, value in submitted.options.items() if name not in _NOT_OF_THE_REQUEST}
    arguments = [f"--{name}={value}" for name, value in options.items() if isinstance(value, str)]
    argv = submitted.options.get("argv")
    name = argv[0] if isinstance(argv, list) and argv and argv[0] else "sbatch"
    folder = submitted.options.get("chdir")
    return ScriptRequest(
        text="#!/bin/sh\n",
        name=name,
        kind="slurm",
        user=None,
        folder=folder if isinstance(folder, str) and folder else None,
        arguments=arguments,
    )


def check_request(
    site: Site, viewer: Viewer, request: JobRequest, *, user: str | None, folder: str | None, now: datetime
) -> ScriptAnswer:
    """Judge a request as if it were submitted now, from `folder`; without a trained model the past still gives advice."""
    from stormpetrel.lifecycle.job_models import load_predictor

    viewer.require(PREDICT)
    user = user_for(viewer, user)
    past = site.jobs.read_jobs(until=now)

    outlook = site_outlook(site, now)

    @cache
    def load() -> Judge:
        return load_predictor(site, now=now, moments=[Moment.SUBMIT], few=True)

    def comparable(row: pl.DataFrame) -> tuple[Kind, dict[str, float]]:
        return find_kind(row, past, now=now), longest_limits(past, now=now)

    def answer(component: JobRequest) -> ScriptAnswer:
        row = _row(site, component, user=user, folder=folder, now=now)
        fit = fit_to_site(site, component, user=user)
        return _answer(site, load, comparable, component, row, now=now, fit=fit, outlook=outlook)

    return whole_answer([answer(component) for component in (request, *request.components)])


def _row(site: Site, request: JobRequest, *, user: str | None, folder: str | None, now: datetime) -> pl.DataFrame:
    """The request as a row of a job frame, submitted now."""
    if request.signature is not None and site.settings.allows_similar_names:
        request = replace(request, columns={**request.columns, SCRIPT_SIGNATURE: request.signature})
    if request.columns.get("work_dir") is None:
        request = replace(request, columns={**request.columns, "work_dir": folder})
    return request.as_frame(user=user, submit_time=now, cluster=site.settings.site.cluster or "cluster")


def _answer(
    site: Site,
    load: Callable[[], Judge],
    comparable: Callable[[pl.DataFrame], tuple[Kind, dict[str, float]]],
    request: JobRequest,
    row: pl.DataFrame,
    *,
    now: datetime,
    fit: ClusterFit | None,
    outlook: JobOutlook | None,
) -> ScriptAnswer:
    """The answer with a judge (`load` raises ModelError where there is none), the kind of a row and the longest limits."""
    notes: list[str] = []
    judge: Judge | None = None
    try:
        judge = load()
    except ModelError as error:
        notes.append(f"No risk can be given: {error}")
    risk = RiskNow(load if judge is None else lambda: judge, now)
    verdict = verdict_answer(judge.judge(row, Moment.SUBMIT, now, top=ENOUGH_REASONS)) if judge else None
    if judge is not None and judge.is_prior:
        notes.append(PRIOR_SPEAKS)
    if verdict is not None and not verdict.known:
        notes.append(NOT_KNOWN)
    risk_of = None if judge is None else lambda candidates: judge.risk(candidates, Moment.SUBMIT, now)
    kind, limits = comparable(row)
    advice, left_out = useful_advice(site, advise_from(kind, lambda: limits, row, risk_of=risk_of))
    notes += left_out
    prescribed = Prescribed(advice, lambda: bool(verdict and verdict.flagged), now, kind)
    more = with_outlook(site, outlook, row, prescribed, risk)
    flat: dict[str, Any] = {"risk": None} if verdict is None else {name: getattr(verdict, name) for name in _FLAT}
    return ScriptAnswer(
        script=request.name,
        kind=request.kind,
        request={name: _plain(value) for name, value in request.columns.items()},
        warnings=list(request.warnings),
        cluster=fit,
        **flat,
        verdict=verdict,
        advice=[advice_answer(piece, line_in(request, piece), mem_update=more.mem_update) for piece in more.advice],
        needs=more.needs,
        wait=more.wait,
        notes=[*notes, *more.notes],
    )


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value != value:
        return None
    return value.isoformat() if isinstance(value, datetime) else value
