"""What a job will need and when it will start, for whoever shows one job: the outlook of a site, and its advice.

Site -> site_outlook -> JobOutlook; JobOutlook + job + advice -> with_outlook -> OutlookAnswer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

import polars as pl

from stormpetrel.answers.schemas.predictions import NeedOutlook, WaitOutlook
from stormpetrel.errors import ModelError
from stormpetrel.jobs.advice.outlook import JobOutlook, NeedEstimate, OneOutlook, follow_from
from stormpetrel.jobs.advice.prescription import Prescribed, prescribe, with_effects
from stormpetrel.jobs.advice.text import NEEDED
from stormpetrel.jobs.moments import Moment

if TYPE_CHECKING:
    from stormpetrel.answers.jobs.check import Judge
    from stormpetrel.jobs.advice.advice import Advice, RiskOf
    from stormpetrel.store.site import Site

MEMORY_MARGIN: Final = 50  # per cent above what it uses: the limit is moved once, and memory may still grow
_SHORTEST_DELAY_MIN: Final = 10
_FAR_BELOW: Final = 1.5  # times the p90 of a forecast: past jobs that speak for more than that contradict it


@dataclass(frozen=True, slots=True)
class OutlookAnswer:
    """What the outlook adds to an answer about one job."""

    needs: dict[str, NeedOutlook] | None = None
    wait: WaitOutlook | None = None
    advice: tuple[Advice, ...] = ()
    notes: list[str] = field(default_factory=list)
    mem_update: str | None = None  # how the script gives memory back while it runs, where the cluster can do it


def site_outlook(site: Site, now: datetime) -> JobOutlook | None:
    """The outlook over a site's latest jobs as they were known at `now`; None where no models of it are in use."""
    from stormpetrel.lifecycle.job_models import load_outlook
    from stormpetrel.lifecycle.outlook_snapshot import site_past

    try:
        trained = load_outlook(site)
    except ModelError:
        return None  # `models list` and `doctor` say what is wrong with it; everything else is answered without
    if not trained.needs and trained.wait is None:
        return None
    past = site_past(site, trained.needs, follow_from(trained.wait, now), now=now)
    return JobOutlook(trained.needs, trained.wait, past, now=now)


class RiskNow:
    """The risk of requests if they were submitted now, by a judge that is loaded when it is first asked for."""

    def __init__(self, load: Callable[[], Judge], now: datetime) -> None:
        self._load, self._now = load, now
        self._judge: Judge | None = None
        self._tried = False

    def judge(self) -> Judge | None:
        """Who judges; None where the site has no model, or its history is still being read."""
        if not self._tried:
            self._tried = True
            with suppress(ModelError):
                self._judge = self._load()
        return self._judge

    def flagged(self, job: pl.DataFrame) -> bool:
        """Whether a job (a frame of one row) would be flagged."""
        judge = self.judge()
        return judge is not None and judge.judge(self._submitted(job), Moment.SUBMIT, self._now, top=0).flagged

    def risk_of(self) -> RiskOf | None:
        """What says the risk of requests; None where nobody can."""
        judge = self.judge()
        return None if judge is None else lambda requests: judge.risk(self._submitted(requests), Moment.SUBMIT, self._now)

    def _submitted(self, jobs: pl.DataFrame) -> pl.DataFrame:
        if set(jobs["submit_time"].to_list()) == {self._now}:
            return jobs
        return jobs.with_columns(submit_time=pl.lit(self._now).cast(jobs.schema["submit_time"]))


def with_outlook(
    site: Site, outlook: JobOutlook | None, job: pl.DataFrame, prescribed: Prescribed, risk: RiskNow
) -> OutlookAnswer:
    """The advice on a job with what its outlook adds, and the outlook itself; the advice as it is where there is none.

    `prescribed` is what past jobs say: their advice, their kind, and whether the job is flagged.
    """
    outlook = None if outlook is None else OneOutlook(outlook)
    pieces, notes = prescribe(job, outlook, prescribed)
    needs_risk = any(piece.proposed is not None and piece.risk_before is None for piece in pieces)
    pieces = with_effects(pieces, job, outlook, risk.risk_of() if needs_risk else None)
    if outlook is None:
        return OutlookAnswer(advice=tuple(pieces), notes=notes)
    needs = {
        name: NeedOutlook(
            request=need.request,
            p50=need.p50,
            p90=need.p90,
            p99=need.p99,
            short=need.short,
            similar=need.similar,
            group=need.group,
        )
        for name, need in outlook.needs(job).items()
        if need.is_known and not contradicts_advice(need, pieces)
    }
    notes += [
        f"No forecast of its {NEEDED[name].what}: it stays far below what the past jobs of the advice needed."
        for name, need in outlook.needs(job).items()
        if need.is_known and name not in needs
    ]
    wait = outlook.wait(job)
    start = None if wait is None else WaitOutlook(p50_s=wait.p50_s, p90_s=wait.p90_s, waited_s=wait.waited_s, reason=wait.reason)
    return OutlookAnswer(needs, start, tuple(pieces), notes, memory_update(site, needs))


def contradicts_advice(need: NeedEstimate, pieces: Sequence[Advice]) -> bool:
    """Return whether a forecast is far below what past jobs show: they speak for far more than it says nine in ten need."""
    column = NEEDED[need.resource].column
    more = [piece for piece in pieces if piece.column == column and not piece.saves and not piece.experiment]
    return any(isinstance(piece.proposed, int | float) and piece.proposed > _FAR_BELOW * need.p90 for piece in more)


def memory_update(site: Site, needs: Mapping[str, NeedOutlook]) -> str | None:
    """How a script gives back memory half-way through a usual run; None where the cluster cannot, or the run is short."""
    known = site.cluster.known()
    delay_min = round(needs["time"].p50 / 120.0) if "time" in needs else 0
    if known is None or not known.cluster.updates_memory or delay_min < _SHORTEST_DELAY_MIN:
        return None
    return f"#SBATCH --mem-update={MEMORY_MARGIN}@{delay_min}"
