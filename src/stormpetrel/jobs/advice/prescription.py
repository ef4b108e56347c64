"""Prescriptions: the smallest change that past jobs and the forecast of a job's need speak for, or the smallest experiment.

advice + kind of past jobs + NeedEstimate + WaitEstimate -> prescribe -> Advice: new value, risk and wait before and after,
core-hours saved, evidence. Where the same work has never run, it says what one small run would tell; where the last runs ended
in an error, what one short test would cost; where the request is tight already, it says so and advises nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import numpy as np
import polars as pl

from stormpetrel.jobs.advice.advice import MOST, Advice, RiskOf
from stormpetrel.jobs.advice.kinds import ANY_APPLICATION, Kind, prepared_request
from stormpetrel.jobs.advice.outlook import OF_APPLICATION, JobOutlook, NeedEstimate
from stormpetrel.jobs.advice.text import COUNTED, GPUS, MEMORY, NEEDED, TIME, Resource, format_duration, last_jobs_text
from stormpetrel.jobs.causes.remedies import FEWEST_TRIES, Remedy, remedies, retries
from stormpetrel.jobs.outcomes import COMPLETED

SHORT: Final = 0.15  # probability of needing more than is asked for, from which more is prescribed
WORTH: Final = 0.67  # of the request: less than that must do, for less to be prescribed
TIGHT: Final = 0.6  # of the request: a p90 above it is tight
FEWEST: Final = 3  # ended runs of the same work, below which an experiment comes first
_HEAD_ROOM: Final = 1.1
_EXPERIMENT: Final = "an experiment"
_NEAR: Final = 0.8  # of the request: a run that used as much came near it
_AMPLY: Final = 2.0  # times the request: an experiment with more must not run out again
_SLURM_RECORD: Final = "sacct -j JOBID -o MaxRSS,Elapsed"
# What shows what a job used, by the scheduler that its record comes from.
_RECORDS: Final = {
    "condor": "condor_history JOBID -limit 1 -af MemoryUsage RemoteWallClockTime",
    "pbs": "qstat -xf JOBID | grep resources_used",
    "lsf": "bacct -l JOBID",
}
_ERRORS_MET: Final = 0.75  # share of past errors that a short test would have met
_TEST_HEAD_ROOM: Final = 1.1
_TEST_SHARE: Final = 0.5  # of the limit at most: a longer test is no test
# Failure -> the resource that was short, what people call more of it, and how much more where nobody has tried.
_SHORTAGES: Final = {"OUT_OF_MEMORY": (MEMORY, "more memory", 2.0), "TIMEOUT": (TIME, "more time", 1.5)}


@dataclass(frozen=True, slots=True)
class Prescribed:
    """What past jobs say about a job: advice, the past jobs of its kind, and whether it is flagged (asked where that matters)."""

    advice: Sequence[Advice]
    flagged: Callable[[], bool]
    now: datetime
    kind: Kind


def prescribe(job: pl.DataFrame, outlook: JobOutlook | None, past: Prescribed) -> tuple[list[Advice], list[str]]:
    """The advice on a job (a frame of one row) with what its forecast adds, best first, and notes on what is tight already.

    Where nothing but savings is left for a flagged job, it gets what helped after its last failure, or an experiment.
    """
    needs = outlook.needs(job) if outlook is not None else {}
    changes = [piece for piece in past.advice if piece.proposed is not None and not _is_too_little(piece, needs)]
    others = [piece for piece in past.advice if piece.proposed is None]
    notes: list[str] = []
    covered = {piece.column for piece in changes}
    for resource, need in needs.items():
        column = NEEDED[resource].column
        piece = None if column in covered else _change(need, past.kind)
        if piece is not None:
            changes.append(piece)
        elif column not in covered and _is_tight(need):
            amount = f"{NEEDED[resource].words(need.p90)} of {NEEDED[resource].what}"
            notes.append(f"One in ten such jobs need {amount} or more: there is little to save.")
    unknown = [NEEDED[resource].what for resource, need in needs.items() if not need.is_known]
    if unknown:
        notes.append(f"Nothing like this job has run here yet: its need of {' and '.join(unknown)} is not known.")
    tried = _Tried(past)
    changes = [_with_pairs(piece, job, tried) for piece in changes]
    if all(piece.saves for piece in changes) and past.flagged():
        changes = [*_tries(job, past, needs, tried), *changes]
    if not changes and not past.kind.known and (measurement := _measurement(job, needs)) is not None:
        changes = [measurement]
    return [*changes, *others][:MOST], notes


def _is_too_little(piece: Advice, needs: Mapping[str, NeedEstimate]) -> bool:
    """Whether a saving would by the forecast leave more than one in ten such jobs short."""
    need = next((each for resource, each in needs.items() if NEEDED[resource].column == piece.column), None)
    amount = piece.proposed if isinstance(piece.proposed, int | float) else None
    return piece.saves and need is not None and need.is_known and amount is not None and amount < need.p90


def _is_tight(need: NeedEstimate) -> bool:
    """Whether runs of the same work show that a request of memory or time leaves nothing to save."""
    known = need.request is not None and need.similar >= FEWEST and need.resource in ("memory", "time")
    return known and need.p90 >= TIGHT * (need.request or 0.0)


class _Tried:
    """What was tried after failures of this kind of job, looked for once and only where somebody wants to know."""

    def __init__(self, past: Prescribed) -> None:
        self._relatives, self._now = past.kind.relatives, past.now
        self._pairs: pl.DataFrame | None = None

    def remedy(self, job: pl.DataFrame, failure: str, change: str) -> Remedy | None:
        """What a change did after such a failure; None where too few tried it."""
        if self._relatives["outcome"].to_list().count(failure) < FEWEST_TRIES:
            return None
        if self._pairs is None:
            self._pairs = retries(self._relatives, now=self._now)
        row = prepared_request(job)
        return next((each for each in remedies(row, str(row["family"]), failure, self._pairs) if each.change == change), None)


def _tries(job: pl.DataFrame, past: Prescribed, needs: Mapping[str, NeedEstimate], tried: _Tried) -> list[Advice]:
    """What a flagged job can try where no past job shows the value: what helped after its last failure, or one small run."""
    again = _after_failure(job, past, tried)
    if again is not None:
        return [again]
    test = _short_test(job, past)
    if test is not None:
        return [test]
    experiments = [piece for need in needs.values() if (piece := _experiment(need)) is not None]
    measurement = None if experiments else _measurement(job, needs)
    return experiments if measurement is None else [measurement]


def _after_failure(job: pl.DataFrame, past: Prescribed, tried: _Tried) -> Advice | None:
    """More of what the latest run of the same work was short of, by as much as helped before; None where it lacked nothing."""
    if past.kind.jobs.is_empty() or past.kind.name == ANY_APPLICATION:
        return None
    latest, row = past.kind.jobs.row(0, named=True), prepared_request(job)
    if latest["outcome"] not in _SHORTAGES:
        return None
    resource, change, thumb = _SHORTAGES[latest["outcome"]]
    had, request = (each["asked_mem"] if resource is MEMORY else each["time_limit_s"] for each in (latest, row))
    if not had or not request or request > 1.05 * had:
        return None
    helped = tried.remedy(job, str(latest["outcome"]), change)
    value = _on_ladder(resource, (helped.factor if helped and helped.factor else thumb) * had, request)
    sentence = f"Ask for {resource.words(value)} of {resource.what} instead of {resource.words(request)}."
    fact = f"the latest run of this work {resource.shortage} with {resource.words(had)}"
    outcome = helped.sentence if helped else "nobody has tried more of it yet: by how much is a rule of thumb"
    now, proposed = _as_column(resource, request), _as_column(resource, value)
    support = helped.tries if helped else 1
    return Advice(resource.column, now, proposed, sentence, (fact, outcome), support, past.kind.name, experiment=helped is None)


def _with_pairs(piece: Advice, job: pl.DataFrame, tried: _Tried) -> Advice:
    """Advice to ask for more, with what more of it did for those who tried it after such a failure."""
    shortage = next((name for name, (resource, *_) in _SHORTAGES.items() if resource.column == piece.column), None)
    if shortage is None or piece.saves or piece.experiment:
        return piece
    helped = tried.remedy(job, shortage, _SHORTAGES[shortage][1])
    return piece if helped is None else replace(piece, evidence=(*piece.evidence, helped.sentence))


def _short_test(job: pl.DataFrame, past: Prescribed) -> Advice | None:
    """One short run before the others, where such jobs ended in an error early on: it meets the error at a small cost."""
    kind, limit, started = past.kind, job["time_limit_s"].item(), job["start_time"].item()
    if kind.name == ANY_APPLICATION or not limit:
        return None
    errors = kind.jobs.filter(pl.col("outcome") == "FAILED", pl.col("elapsed_s") > 0)
    judged = kind.jobs.filter(pl.col("outcome").is_in([COMPLETED, "FAILED", *_SHORTAGES]))
    if errors.height < FEWEST:
        return None
    soon = float(np.quantile(errors["elapsed_s"].to_numpy(), _ERRORS_MET, method="higher"))
    value = _on_ladder(TIME, _TEST_HEAD_ROOM * soon, 0.0)
    if value > _TEST_SHARE * limit:
        return None
    trial = "one task of it" if job["array_task"].item() is not None else "it once"
    when = "first" if started is None else "before the next try"
    sentence = f"Run {trial} with a limit of {format_duration(value)} {when}: most errors show by then."
    fact = (
        f"{errors.height} of {last_jobs_text(kind.name, judged.height)} ended in an error, "
        f"three in four of these within {format_duration(max(1.0, soon))}"
    )
    evidence = [fact]
    ended = job["end_time"].item()
    is_running = ended is None or ended > past.now
    if started is not None and is_running and (ran_s := (past.now - started).total_seconds()) > soon:
        evidence.append(f"this one has run for {format_duration(ran_s)}, longer than those")
    if started is None and not str(job["source"].item() or "").startswith(("condor", "pbs", "lsf")):
        evidence.append("what else is submitted can wait for its success: --dependency=afterok:JOBID")
    return Advice(TIME.column, float(limit), value, sentence, tuple(evidence), errors.height, kind.name, experiment=True)


def _change(need: NeedEstimate, kind: Kind) -> Advice | None:
    """More where it is likely to be too little, less where much less does; None where runs of the same work show neither.

    More only if one of these runs came near the request: else it is a forecast that nothing of this work speaks for. Less only
    if runs completed: what ended in an error early on says nothing about what it needs once it works.
    """
    resource = NEEDED[need.resource]
    if need.request is None or need.similar < FEWEST:
        return None
    verb = "kept up to {} busy" if resource in COUNTED else "used up to {}"
    typical, most = (need.p50, need.p90) if need.most is None or need.typical is None else (need.typical, need.most)
    what = "nine in ten" if need.most is None else "the largest"
    half, largest = verb.format(resource.words(typical)), verb.format(resource.words(most))
    runs = f"{need.similar} ended runs ({need.group}): half {half}, {what} {largest}"
    now = _as_column(resource, need.request)
    is_short = resource not in COUNTED and need.short is not None and need.short >= SHORT and need.p90 > need.request
    if is_short and most >= _NEAR * need.request:
        value = _on_ladder(resource, _HEAD_ROOM * need.p90, need.request)
        sentence = f"Ask for {resource.words(value)} of {resource.what} instead of {resource.words(need.request)}."
        chance = f"by the forecast {resource.words(need.request)} is too little with {need.short:.0%}"
        return Advice(resource.column, now, _as_column(resource, value), sentence, (runs, chance), need.similar, need.group)
    enough = max(need.granted, need.p99 if resource is GPUS else need.p90, 0.0 if need.most is None else need.most)
    value = _on_ladder(resource, enough, 0.0)
    completed = int((kind.jobs["outcome"] == COMPLETED).sum())
    if value > WORTH * need.request or (need.short or 0.0) >= SHORT or completed < FEWEST:
        return None
    of_what = "" if resource in COUNTED else f" of {resource.what}"
    sentence = f"{resource.words(value)}{of_what} would do instead of {resource.words(need.request)}."
    return Advice(resource.column, now, _as_column(resource, value), sentence, (runs,), need.similar, need.group, saves=True)


def _experiment(need: NeedEstimate) -> Advice | None:
    """One run with another amount, where the same work has hardly ever run; None where the amount would be the same.

    With less, where jobs that look alike need much less; with more, where they often need more than is asked for.
    """
    resource = NEEDED[need.resource]
    if need.similar >= FEWEST or resource not in (MEMORY, TIME) or need.request is None:
        return None
    what, short = resource.what, need.short or 0.0
    if need.is_known and _on_ladder(resource, need.p90, 0.0) <= WORTH * need.request:
        value = _on_ladder(resource, need.p90, 0.0)
        reason = f"nine in ten {_alike(need)} used up to {resource.words(need.p90)}"
    elif short >= SHORT:
        value = _on_ladder(resource, _AMPLY * need.request, need.request)
        reason = f"{short:.0%} of {_alike(need)} needed more than {resource.words(need.request)}"
    else:
        return None
    sentence = (
        f"Run one with {resource.words(value)} of {what} instead of {resource.words(need.request)} first: "
        "its record tells what the others need."
    )
    now, proposed = _as_column(resource, need.request), _as_column(resource, value)
    return Advice(
        resource.column, now, proposed, sentence, (_runs_so_far(need), reason), need.similar, _EXPERIMENT, experiment=True
    )


def _measurement(job: pl.DataFrame, needs: Mapping[str, NeedEstimate]) -> Advice | None:
    """What to read of one run, where nothing is known that another amount could be taken from; None where enough is."""
    unknown = [need for need in needs.values() if need.similar < FEWEST and need.resource in ("memory", "time")]
    if not unknown:
        return None
    what = " and ".join(NEEDED[need.resource].what for need in unknown)
    source = str(job["source"].item() or "")
    command = next((text for start, text in _RECORDS.items() if source.startswith(start)), _SLURM_RECORD)
    sentence = f"Run one of them as it is first and read what it used of {what}: {command}"
    return Advice(None, None, None, sentence, (_runs_so_far(unknown[0]),), unknown[0].similar, _EXPERIMENT, experiment=True)


def _alike(need: NeedEstimate) -> str:
    return OF_APPLICATION if need.group == OF_APPLICATION else "jobs that look alike"


def _runs_so_far(need: NeedEstimate) -> str:
    runs = "run" if need.similar == 1 else "runs"
    return f"{need.similar or 'no'} ended {runs} of the same work so far"


def with_effects(pieces: Sequence[Advice], job: pl.DataFrame, outlook: JobOutlook | None, risk_of: RiskOf | None) -> list[Advice]:
    """Advice on a job (a frame of one row) with risk, wait and core-hours before and after, as far as they can be told."""
    changed = {
        at: _changed(job, piece) for at, piece in enumerate(pieces) if piece.proposed is not None and piece.column in job.columns
    }
    results = list(pieces)
    unjudged = [at for at in changed if results[at].risk_before is None and not _is_short_test(results[at], job)]
    if risk_of is not None and unjudged:  # of all at once: a forecast of three jobs costs what one of one does
        before, *after = risk_of(pl.concat([job, *(changed[at] for at in unjudged)])).tolist()
        for at, risk in zip(unjudged, after, strict=True):
            results[at] = replace(results[at], risk_before=before, risk_after=risk)
    if outlook is None or not changed:
        return results
    needs, now = outlook.needs(job), outlook.wait(job)
    for at, request in changed.items():
        wait = outlook.wait(request)
        if now is not None and wait is not None and now.p50_s is not None and wait.p50_s is not None:
            results[at] = replace(results[at], wait_before_s=now.p50_s, wait_after_s=wait.p50_s)
        if not results[at].experiment:
            results[at] = replace(results[at], core_hours_saved=_core_hours(results[at], job, needs))
    return results


def _changed(job: pl.DataFrame, piece: Advice) -> pl.DataFrame:
    """The job as a piece of advice would have it."""
    assert piece.column is not None
    value = pl.Series(piece.column, [piece.proposed]).cast(job.schema[piece.column])
    return job.clone().replace_column(job.get_column_index(piece.column), value)


def _is_short_test(piece: Advice, job: pl.DataFrame) -> bool:
    """Whether a piece is one run with less: it shows something, and is not meant to end well itself."""
    now = job[piece.column].item() if piece.column in job.columns else None
    return piece.experiment and isinstance(piece.proposed, int | float) and now is not None and piece.proposed < now


def _core_hours(piece: Advice, job: pl.DataFrame, needs: Mapping[str, NeedEstimate]) -> float | None:
    """Core-hours that are not lost to a shortage, or not kept from others for nothing; None where nobody can say."""
    cores = float(next((job[name].item() for name in ("req_cpus", "cpus") if job[name].item() is not None), 1) or 1)
    run = needs.get("time")
    if run is None or not isinstance(piece.proposed, int | float):
        return None
    hours = run.p50 / 3600.0
    if piece.column == "req_gpus":
        return None  # counted in GPU-hours, if at all
    if piece.column == "req_cpus":
        return round(max(0.0, (cores - piece.proposed) * hours), 3)
    need = next((each for name, each in needs.items() if NEEDED[name].column == piece.column), None)
    if need is None or need.request is None:
        return None
    if piece.saves:
        # A shorter limit is not charged: it lets others plan. Memory that others cannot use is a share of the node's cores.
        held = 0.0 if piece.column == TIME.column else hours * (1.0 - piece.proposed / need.request)
        return round(max(0.0, cores * held), 3)
    return None if need.short is None else round(cores * hours * need.short, 3)


def _on_ladder(resource: Resource, wanted: float, above: float) -> float:
    """The smallest friendly value that is at least what is wanted and more than `above`."""
    return next((step for step in resource.ladder if step >= wanted and step > above), max(wanted, 2.0 * above))


def _as_column(resource: Resource, value: float) -> int | float:
    return float(value) if resource is TIME else int(value)
