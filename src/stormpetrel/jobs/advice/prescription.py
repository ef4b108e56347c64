"""Prescriptions: the smallest change of memory or time that the forecast of a job's need speaks for, or the smallest experiment.

NeedEstimate + WaitEstimate -> prescribe -> Advice: new value, risk and wait before and after, core-hours saved, evidence.
Where the same work has never run, it says what one small run would tell; where the request is tight already, it says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import polars as pl

from stormpetrel.jobs.advice.advice import MOST, Advice, RiskOf
from stormpetrel.jobs.advice.outlook import JobOutlook, NeedEstimate
from stormpetrel.jobs.advice.text import MEMORY, TIME, Resource

RESOURCES: Final[Mapping[str, Resource]] = {"memory": MEMORY, "time": TIME}
SHORT: Final = 0.15  # probability of needing more than is asked for, from which more is prescribed
WORTH: Final = 0.67  # of the request: less than that must do, for less to be prescribed
TIGHT: Final = 0.6  # of the request: a p90 above it is tight
FEWEST: Final = 3  # ended runs of the same work, below which an experiment comes first
_HEAD_ROOM: Final = 1.1
_EXPERIMENT: Final = "an experiment"


def prescribe(
    job: pl.DataFrame,
    outlook: JobOutlook,
    advice: Sequence[Advice],
    *,
    flagged: bool,
    risk_of: RiskOf | None = None,
) -> tuple[list[Advice], list[str]]:
    """The advice on a job (a frame of one row) with what its forecast adds, best first, and notes on what is tight already."""
    needs = outlook.needs(job)
    covered = {piece.column for piece in advice if piece.proposed is not None}
    pieces, notes = [piece for piece in advice if piece.proposed is not None or piece.support >= FEWEST], []
    for resource, need in needs.items():
        if RESOURCES[resource].column in covered:
            continue
        piece = _change(need) or _experiment(need, flagged=flagged)
        if piece is not None:
            pieces.append(piece)
        elif flagged and need.request is not None and need.p90 >= TIGHT * need.request:
            notes.append(f"The {RESOURCES[resource].what} asked for is tight already: nothing to save there.")
    pieces = pieces or list(advice)
    return [_with_effects(piece, job, outlook, needs, risk_of) for piece in pieces][:MOST], notes


def _change(need: NeedEstimate) -> Advice | None:
    """More where it is likely to be too little, less where much less does; None where runs of the same work show neither."""
    resource = RESOURCES[need.resource]
    if need.request is None or need.similar < FEWEST:
        return None
    half, most = resource.words(need.p50), resource.words(need.p90)
    runs = f"{need.similar} ended runs ({need.group}): half used up to {half}, nine in ten up to {most}"
    now = _as_column(resource, need.request)
    if need.short is not None and need.short >= SHORT and need.p90 > need.request:
        value = _on_ladder(resource, _HEAD_ROOM * need.p90, need.request)
        sentence = f"Ask for {resource.words(value)} of {resource.what} instead of {resource.words(need.request)}."
        chance = f"with {resource.words(need.request)} it is too little in {need.short:.0%} of such runs"
        return Advice(resource.column, now, _as_column(resource, value), sentence, (runs, chance), need.similar, need.group)
    value = _on_ladder(resource, max(need.granted, need.p90), 0.0)
    if value > WORTH * need.request or (need.short or 0.0) >= SHORT:
        return None
    sentence = f"{resource.words(value)} of {resource.what} would do instead of {resource.words(need.request)}."
    return Advice(resource.column, now, _as_column(resource, value), sentence, (runs,), need.similar, need.group, saves=True)


def _experiment(need: NeedEstimate, *, flagged: bool) -> Advice | None:
    """One run that tells what the others need, where the same work has hardly ever run."""
    resource = RESOURCES[need.resource]
    if need.similar >= FEWEST or not flagged:
        return None
    wanted = need.p90 if need.request is None else min(need.p90, need.request)
    value = _on_ladder(resource, wanted, 0.0)
    value = value if need.request is None else min(value, need.request)
    sentence = f"Run one with {resource.words(value)} of {resource.what} first: its record tells what the others need."
    runs = "run" if need.similar == 1 else "runs"
    alike = f"nine in ten jobs that look alike used up to {resource.words(need.p90)}"
    known = f"{need.similar} ended {runs} of the same work so far; {alike}"
    now = None if need.request is None else _as_column(resource, need.request)
    return Advice(
        resource.column, now, _as_column(resource, value), sentence, (known,), need.similar, _EXPERIMENT, experiment=True
    )


def _with_effects(
    piece: Advice, job: pl.DataFrame, outlook: JobOutlook, needs: Mapping[str, NeedEstimate], risk_of: RiskOf | None
) -> Advice:
    """A piece of advice with the risk, the wait and the core-hours before and after, as far as they can be told."""
    if piece.column is None or piece.proposed is None or piece.column not in job.columns:
        return piece
    changed = job.with_columns(pl.lit(piece.proposed).cast(job.schema[piece.column]).alias(piece.column))
    if risk_of is not None and piece.risk_before is None:
        before, after = (float(risk) for risk in risk_of(pl.concat([job, changed])))
        piece = replace(piece, risk_before=before, risk_after=after)
    waits = [outlook.wait(each) for each in (job, changed)]
    if all(wait is not None and wait.p50_s is not None for wait in waits):
        first, second = (wait.p50_s for wait in waits if wait is not None)
        piece = replace(piece, wait_before_s=first, wait_after_s=second)
    return replace(piece, core_hours_saved=_core_hours(piece, job, outlook, needs))


def _core_hours(piece: Advice, job: pl.DataFrame, outlook: JobOutlook, needs: Mapping[str, NeedEstimate]) -> float | None:
    """Core-hours that are not lost to a shortage, or not kept from others for nothing; None where nobody can say."""
    cores = float(job.select(pl.coalesce("req_cpus", "cpus", pl.lit(1))).item() or 1)
    run = needs.get("time")
    need = next((each for name, each in needs.items() if RESOURCES[name].column == piece.column), None)
    if run is None or need is None or need.request is None or not isinstance(piece.proposed, int | float):
        return None
    hours = run.p50 / 3600.0
    if piece.saves:
        held = (
            (need.request - piece.proposed) / 3600.0
            if piece.column == TIME.column
            else hours * (1.0 - piece.proposed / need.request)
        )
        return round(max(0.0, cores * held), 3)
    return None if need.short is None else round(cores * hours * need.short, 3)


def _on_ladder(resource: Resource, wanted: float, above: float) -> float:
    """The smallest friendly value that is at least what is wanted and more than `above`."""
    return next((step for step in resource.ladder if step >= wanted and step > above), max(wanted, 2.0 * above))


def _as_column(resource: Resource, value: float) -> int | float:
    return int(value) if resource is MEMORY else float(value)
