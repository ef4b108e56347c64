"""Answers: what is said about a script before it is submitted, and about a job afterwards. Every face shows the same ones.

Site + script -> check_request -> CheckAnswer; Site + job id -> explain_job -> WhyAnswer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from stormpetrel.errors import ModelError, NotThereError, UsageError

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from stormpetrel.answers.cluster_fit import ClusterFit
    from stormpetrel.jobs.advice import Advice
    from stormpetrel.jobs.moments import Moment
    from stormpetrel.jobs.predictor import Verdict
    from stormpetrel.jobs.waiting import Waiting
    from stormpetrel.sources.job_script import JobRequest
    from stormpetrel.store.site import Site

_ENOUGH_REASONS = 12


@dataclass(frozen=True, slots=True)
class CheckAnswer:
    """What is to be said about a script: its risk (None without a model), reasons and advice, and the lines to write."""

    request: JobRequest
    verdict: Verdict | None
    advice: tuple[Advice, ...]
    lines: tuple[str | None, ...]  # how each advice is written in the script
    notes: tuple[str, ...]
    cluster: ClusterFit | None = None  # whether it can run at all; None where there is no Slurm to compare with

    def as_json(self) -> dict[str, Any]:
        """For other programs."""
        return {
            "script": self.request.name,
            "kind": self.request.kind,
            "request": {name: _plain(value) for name, value in self.request.columns.items()},
            "warnings": list(self.request.warnings),
            "cluster": None if self.cluster is None else self.cluster.as_json(),
            **verdict_json(self.verdict),
            "advice": [advice_json(advice, line) for advice, line in zip(self.advice, self.lines, strict=True)],
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class WhyAnswer:
    """What happened to a job, what would have been said at each moment, and what to ask for next."""

    job: dict[str, Any]
    verdicts: tuple[Verdict, ...]
    next_request: Advice | None
    advice: tuple[Advice, ...]
    notes: tuple[str, ...]
    waiting: Waiting | None = None  # what the scheduler says of a job that has not started

    def as_json(self) -> dict[str, Any]:
        """For other programs."""
        from stormpetrel.records.jobs import was_never_started

        return {
            "job": {name: _plain(value) for name, value in self.job.items() if value is not None},
            "never_started": was_never_started(self.job),
            "waiting": None if self.waiting is None else self.waiting.as_json(),
            "at": {str(verdict.moment): verdict_json(verdict) for verdict in self.verdicts},
            "next": None if self.next_request is None else advice_json(self.next_request, None),
            "advice": [advice_json(advice, None) for advice in self.advice],
            "notes": list(self.notes),
        }


class Judge(Protocol):
    """What says how likely jobs are to fail: a JobPredictor, or one that several share."""

    def judge(self, job: pl.DataFrame, moment: Moment, now: datetime) -> Verdict:
        """Everything that is to be said about one job (a frame of one row)."""

    def risk(self, jobs: pl.DataFrame, moment: Moment, now: datetime) -> NDArray[np.float64]:
        """The probability that each of these jobs fails."""


def check_request(site: Site, request: JobRequest, *, user: str | None, folder: str | None, now: datetime) -> CheckAnswer:
    """Judge a request as if it were submitted now, from `folder`; without a trained model the past still gives advice."""
    from stormpetrel.answers.cluster_fit import fit_to_site
    from stormpetrel.jobs.moments import Moment
    from stormpetrel.lifecycle.job_models import load_predictor

    fit = fit_to_site(site, request, user=user)
    past = site.jobs.read_jobs(until=now).collect()

    def load() -> Judge:
        return load_predictor(site, now=now, past=past, moments=[Moment.SUBMIT])

    return check_with(load, lambda _row: past, request, user=user, folder=folder, now=now, cluster=_cluster_of(site), fit=fit)


def check_with(
    load: Callable[[], Judge],
    past_of: Callable[[pl.DataFrame], pl.DataFrame | pl.LazyFrame],
    request: JobRequest,
    *,
    user: str | None,
    folder: str | None,
    now: datetime,
    cluster: str,
    fit: ClusterFit | None = None,
) -> CheckAnswer:
    """The same with a judge that is there already (`load` raises ModelError where there is none), and the past of a row."""
    import polars as pl

    from stormpetrel.jobs.advice import advise
    from stormpetrel.jobs.moments import Moment

    row = request.as_frame(user=user, submit_time=now, cluster=cluster)
    row = row.with_columns(pl.col("work_dir").fill_null(pl.lit(folder, dtype=pl.String)))
    notes: list[str] = []
    judge: Judge | None = None
    try:
        judge = load()
    except ModelError as error:
        notes.append(f"No risk can be given: {error}")
    verdict = judge.judge(row, Moment.SUBMIT, now) if judge else None
    if verdict is not None and not verdict.known:
        notes.append(NOT_KNOWN)
    advice = tuple(advise(row, past_of(row), now=now, risk_of=_risk_of(judge, now)))
    return CheckAnswer(request, verdict, advice, tuple(_line(request, piece) for piece in advice), tuple(notes), fit)


NOT_KNOWN = "I do not know this user or this application yet: the risk is the habit of jobs that look alike."


def explain_job(site: Site, job_id: str, *, now: datetime) -> WhyAnswer:
    """Look into one job of the site."""
    from stormpetrel.ingest.cluster import current_cluster
    from stormpetrel.jobs.advice import advise, next_request
    from stormpetrel.jobs.moments import MOMENT_WORDS, MOMENTS, Moment
    from stormpetrel.jobs.outcomes import never_started_words
    from stormpetrel.jobs.predictor import moment_of, time_of
    from stormpetrel.jobs.waiting import why_waiting
    from stormpetrel.lifecycle.job_models import FAMILY, lacking_moments
    from stormpetrel.records.jobs import was_never_started

    past = site.jobs.read_jobs(until=now).collect()
    row = find_job(past, job_id)
    job = row.row(0, named=True)
    notes: list[str] = []
    verdicts: list[Verdict] = []
    reached = MOMENTS[: MOMENTS.index(moment_of(job, now)) + 1]
    lacking = lacking_moments(current) if (current := site.models.current_training(FAMILY)) else ()
    for moment in (moment for moment in reached if moment not in lacking):
        try:
            verdicts.append(_verdict_then(site, row, moment, time_of(job, Moment(moment)), past))
        except ModelError as error:
            notes.append(f"No risk can be given: {error}")
            break
    notes += [f"There is no model {MOMENT_WORDS[moment]} yet." for moment in reached if moment in lacking]
    if verdicts and not verdicts[-1].known:
        notes.append(NOT_KNOWN)
    if job["array_task"] is not None and "_" not in job_id:
        notes.append(f"This is the latest task of the array; name another one as {job['job_id']}_TASK.")
    if was_never_started(job):
        notes.append(never_started_words(job))
    if job["state"] in ("NODE_FAIL", "BOOT_FAIL"):
        notes.append("A node failed under the job: its request is not the problem. Submit it again as it is.")
    ended = job["end_time"] is not None and job["end_time"] <= now
    following = next_request(row, past, now=now) if ended else None
    told = (following.column, following.proposed) if following else None
    advice = tuple(piece for piece in advise(row, past, now=now) if (piece.column, piece.proposed) != told)
    known = current_cluster(site) if job["state"] in ("PENDING", "HELD") else None
    waiting = why_waiting(job, known.cluster if known else None)
    return WhyAnswer(job, tuple(verdicts), following, advice, tuple(notes), waiting)


def _verdict_then(site: Site, row: pl.DataFrame, moment: Any, then: datetime, past: pl.DataFrame) -> Verdict:
    """What the current model would have said at that moment, from what was known then."""
    from stormpetrel.lifecycle.job_models import load_predictor
    from stormpetrel.records.jobs import KEY

    if moment == "submit":  # later on the job itself is among those that wait or run
        past = past.join(row, on=list(KEY), how="anti", nulls_equal=True)
    return load_predictor(site, now=then, past=past, moments=[moment]).judge(row, moment, then)


def find_job(jobs: pl.DataFrame, job_id: str) -> pl.DataFrame:
    """The latest job of that id (`12345`, or `12345_7` for a task of an array)."""
    from stormpetrel.records.job_ref import is_job_id, jobs_with_id

    if not is_job_id(job_id.strip()):
        raise UsageError(f"{job_id!r} is not a job id.", hint="Write it as 12345, or 12345_7 for a task of an array.")
    matches = jobs_with_id(jobs, job_id.strip())
    if matches.is_empty():
        raise NotThereError(f"There is no job {job_id} in this site.", hint="Take in the latest: stormpetrel ingest jobs --live")
    return matches.sort("submit_time", "restart").tail(1)


def verdict_json(verdict: Verdict | None) -> dict[str, Any]:
    """A verdict for other programs."""
    if verdict is None:
        return {"risk": None}
    return {
        "risk": verdict.risk,
        "flagged": verdict.flagged,
        "threshold": verdict.threshold,
        "known": verdict.known,
        "outcomes": dict(verdict.outcomes),
        "likeliest": verdict.likeliest,
        "base_risk": _plain(verdict.base_risk),
        "profile": verdict.profile,
        "reasons": [asdict(reason) | {"value": _plain(reason.value)} for reason in verdict.reasons[:_ENOUGH_REASONS]],
    }


def advice_json(advice: Advice, line: str | None) -> dict[str, Any]:
    """A piece of advice for other programs."""
    return {**asdict(advice), "evidence": list(advice.evidence), "line": line}


def _risk_of(judge: Judge | None, now: datetime) -> Callable[[pl.DataFrame], NDArray[np.float64]] | None:
    from stormpetrel.jobs.moments import Moment

    return None if judge is None else lambda candidates: judge.risk(candidates, Moment.SUBMIT, now)


def _line(request: JobRequest, advice: Advice) -> str | None:
    from stormpetrel.sources.job_script import change_line

    if advice.column is None or advice.proposed is None:
        return None
    try:
        return change_line(request, advice.column, advice.proposed)
    except UsageError:
        return None


def _cluster_of(site: Site) -> str:
    return site.settings.site.cluster or "cluster"


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value != value:
        return None
    return value.isoformat() if isinstance(value, datetime) else value
