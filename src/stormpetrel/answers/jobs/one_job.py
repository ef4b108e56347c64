"""What every account of one job is made of: its advice, its notes, and both as models of an answer.

`check`, `why`, the page of a job and the notebook put these together; none of them works anything out for itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from stormpetrel.answers.schemas import job as job_schemas
from stormpetrel.answers.schemas import predictions as schemas
from stormpetrel.errors import UsageError
from stormpetrel.jobs.advice.advice import Advice, AdviceUsefulness, advise, next_request
from stormpetrel.jobs.advice.waiting import Waiting
from stormpetrel.jobs.outcomes import never_started_text
from stormpetrel.jobs.predictor import Verdict
from stormpetrel.records.jobs import was_never_started
from stormpetrel.sources.scripts.job_script import JobRequest, change_line

if TYPE_CHECKING:
    import polars as pl

    from stormpetrel.answers.schemas.job import JobCause
    from stormpetrel.jobs.advice.advice import RiskOf
    from stormpetrel.jobs.advice.kinds import Kind
    from stormpetrel.store.site import Site

PRIOR_SPEAKS: Final = (
    "No history of this site yet: the risk is general experience from other sites (prior-1), and the site's own outcomes so far."
)
NOT_KNOWN: Final = "I do not know this user or this application yet: the risk is the habit of jobs that look alike."
NODE_FAILED: Final = "A node failed under the job: its request is not the problem. Submit it again as it is."
ENOUGH_REASONS: Final = 12
_REQUESTED: Final = ("req_cpus", "req_nodes", "req_gpus", "req_mem_bytes", "time_limit_s")
_OWN_FAULTS: Final = ("user", "unclear")
_NODE_STATES: Final = ("NODE_FAIL", "BOOT_FAIL")


def useful_advice(site: Site, pieces: Sequence[Advice]) -> tuple[tuple[Advice, ...], list[str]]:
    """Return the advice that people on this site do not reject, and a note on what is left out."""
    if not pieces:  # nobody's opinion matters, and reading them takes longer than much of a check
        return (), []
    shown, hidden = AdviceUsefulness(site.opinions.all_of_users()).chosen(pieces)
    left_out = "1 piece of advice is" if hidden == 1 else f"{hidden} pieces of advice are"
    return shown, [f"{left_out} not shown: people here found the like not useful."] if hidden else []


def advice_for(
    job: pl.DataFrame,
    past: pl.DataFrame | pl.LazyFrame,
    *,
    now: datetime,
    risk_of: RiskOf | None = None,
    kind: Kind | None = None,
) -> tuple[Advice | None, tuple[Advice, ...]]:
    """Return what to ask for next if a job ran out of something, and what else past jobs speak for, best first."""
    end = job["end_time"].item()
    following = next_request(job, past, now=now) if end is not None and end <= now else None
    first = (following.column, following.proposed) if following else None
    others = advise(job, past, now=now, risk_of=risk_of, kind=kind)
    return following, tuple(piece for piece in others if (piece.column, piece.proposed) != first)


def fitting_advice(pieces: Iterable[Advice], cause: JobCause | None, following: Advice | None = None) -> tuple[Advice, ...]:
    """Return the advice without looks at the script and trial runs, where the node or somebody else is likely at fault.

    What `following` asks for next time already, after a job ran out of it, is not advised once more.
    """
    if following is not None and following.column is not None:
        pieces = [piece for piece in pieces if piece.column != following.column]
    if cause is None or cause.fault in _OWN_FAULTS or cause.certainty == "possible":
        return tuple(pieces)
    return tuple(piece for piece in pieces if piece.column is not None and not piece.experiment)


def notes_about(job: Mapping[str, Any], *, known: bool | None, named: str = "") -> list[str]:
    """Return what else a reader should know: a newcomer, which task of an array, never started, a node that failed.

    `known` is whether the model knew user and application (None: nothing was predicted), `named` the id that was requested.
    """
    notes = [NOT_KNOWN] if known is False else []
    if named and job["array_task"] is not None and "_" not in named:
        notes.append(f"This is the latest task of the array; name another one as {job['job_id']}_TASK.")
    if was_never_started(job):
        notes.append(never_started_text(job))
    if job["state"] in _NODE_STATES:
        notes.append(NODE_FAILED)
    return notes


def verdict_answer(verdict: Verdict, *, most_reasons: int | None = ENOUGH_REASONS) -> schemas.Verdict:
    """Return a verdict as a model, with so many of its reasons; all where `most_reasons` is None."""
    shown = verdict.reasons[:most_reasons]
    return schemas.Verdict(
        moment=str(verdict.moment),
        risk=verdict.risk,
        flagged=verdict.flagged,
        threshold=verdict.threshold,
        known=verdict.known,
        outcomes=dict(verdict.outcomes),
        failures=list(verdict.failures),
        likeliest=verdict.likeliest,
        base=_number(verdict.base),
        base_risk=_number(verdict.base_risk),
        profile=verdict.profile,
        reasons=[schemas.Reason(**(asdict(reason) | {"value": _number(reason.value)})) for reason in shown],
        more_reasons=len(verdict.reasons) - len(shown) + verdict.more_reasons,
    )


def advice_answer(advice: Advice, line: str | None = None, *, mem_update: str | None = None) -> schemas.Advice:
    """Return a piece of advice as a model; `line` is how it is written in a script, `mem_update` what may stand with it."""
    update = mem_update if advice.column == "req_mem_bytes" and advice.saves and (line or "").startswith("#SBATCH") else None
    content = {**asdict(advice), "evidence": list(advice.evidence), "line": line, "mem_update": update}
    return schemas.Advice.model_validate(content)


def script_line(job: Mapping[str, Any], advice: Advice) -> str | None:
    """Return how a piece of advice is written in a script of the job's scheduler; None where that cannot be said."""
    if advice.column is None or advice.proposed is None:
        return None
    source = str(job.get("source", ""))
    kind = next((name for name in ("condor", "pbs", "lsf") if source.startswith(name)), "slurm")
    columns = {name: job[name] for name in _REQUESTED if job.get(name)}
    return line_in(JobRequest(kind, "job", columns), advice)


def line_in(request: JobRequest, advice: Advice) -> str | None:
    """Return how a piece of advice is written in the script of a request; None where it is no line of one."""
    if advice.column is None or advice.proposed is None:
        return None
    try:
        return change_line(request, advice.column, advice.proposed)
    except UsageError:
        return None


def waiting_answer(waiting: Waiting | None) -> job_schemas.Waiting | None:
    """Return what the scheduler says of a job that has not started as a model."""
    if waiting is None:
        return None
    return job_schemas.Waiting(
        kind=str(waiting.kind),
        reason=waiting.reason,
        never_runs=waiting.never_runs,
        sentence=waiting.sentence,
        change=waiting.change or None,
        command=waiting.command or None,
        waits_for=list(waiting.waits_for),
    )


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
