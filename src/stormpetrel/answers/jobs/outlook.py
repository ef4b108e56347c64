"""What a job will need and when it will start, for whoever shows one job: the outlook of a site, and its advice.

Site + past jobs -> site_outlook -> JobOutlook; JobOutlook + job + advice -> with_outlook -> OutlookAnswer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

from stormpetrel.answers.schemas.predictions import NeedOutlook, WaitOutlook
from stormpetrel.errors import ModelError
from stormpetrel.jobs.advice.outlook import JobOutlook
from stormpetrel.jobs.advice.prescription import prescribe
from stormpetrel.jobs.predictor import known_by

if TYPE_CHECKING:
    import polars as pl

    from stormpetrel.jobs.advice.advice import Advice, RiskOf
    from stormpetrel.store.site import Site

MOST_PAST: Final = 200_000  # jobs, the latest: what an outlook remembers


@dataclass(frozen=True, slots=True)
class OutlookAnswer:
    """What the outlook adds to an answer about one job."""

    needs: dict[str, NeedOutlook] | None = None
    wait: WaitOutlook | None = None
    advice: tuple[Advice, ...] = ()
    notes: list[str] = field(default_factory=list)


def site_outlook(site: Site, past: pl.DataFrame, now: datetime) -> JobOutlook | None:
    """The outlook over a site's past as it was known at `now`; None where no models of it are in use."""
    from stormpetrel.lifecycle.job_models import load_outlook

    try:
        trained = load_outlook(site)
    except ModelError:
        return None  # `models list` and `doctor` say what is wrong with it; everything else is answered without
    if not trained.needs and trained.wait is None:
        return None
    return JobOutlook(trained.needs, trained.wait, known_by(past, now).sort("submit_time").tail(MOST_PAST), now=now)


def with_outlook(
    outlook: JobOutlook | None, job: pl.DataFrame, advice: Sequence[Advice], *, flagged: bool, risk_of: RiskOf | None = None
) -> OutlookAnswer:
    """The advice on a job with what its outlook adds, and the outlook itself; the advice as it is where there is none."""
    if outlook is None:
        return OutlookAnswer(advice=tuple(advice))
    pieces, notes = prescribe(job, outlook, advice, flagged=flagged, risk_of=risk_of)
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
    }
    wait = outlook.wait(job)
    start = None if wait is None else WaitOutlook(p50_s=wait.p50_s, p90_s=wait.p90_s, waited_s=wait.waited_s, reason=wait.reason)
    return OutlookAnswer(needs, start, tuple(pieces), notes)
