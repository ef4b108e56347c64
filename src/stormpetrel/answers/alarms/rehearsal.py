"""What this site would see: faults rehearsed in a copy of its own history, and what the last rehearsals came to.

Site + Viewer + RehearsalQuestion -> rehearse_site -> RehearsalAnswer, kept beside the tables for the page; -> last_rehearsal.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from pydantic import ValidationError

from stormpetrel.answers.schemas.rehearsal import RehearsalAnswer, RehearsedFault
from stormpetrel.answers.viewer import MANAGE, READ
from stormpetrel.rehearse.site.coverage import PHRASES, Coverage
from stormpetrel.rehearse.site.injection import SEVERITIES
from stormpetrel.rehearse.site.rehearsal import RehearsalPlan, rehearse
from stormpetrel.store.rehearsal_reports import HISTORY, LIVE, load_report, save_report

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.rehearsal import RehearsalQuestion
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.site import Site

_NOT_KEPT = "The report could not be kept beside the site: the page shows the one before."


def rehearse_site(
    site: Site,
    viewer: Viewer,
    question: RehearsalQuestion,
    *,
    progress: Callable[[float, str], None] = lambda _share, _text: None,
) -> RehearsalAnswer:
    """Rehearse, and keep what it came to for the page; tables, state, incidents and messages of the site stay as they are."""
    viewer.require(MANAGE)
    began = time.perf_counter()
    plan = RehearsalPlan(
        kinds=tuple(question.kinds),
        severities=tuple(question.severities) or SEVERITIES,
        n=question.n,
        seed=question.seed,
        since=question.since,
        until=question.until,
        models=question.models,
    )
    done = rehearse(site, plan, progress=progress)
    answer = RehearsalAnswer(
        faults=faults_of(done.coverage),
        false_pages_per_week=done.false_pages_per_week,
        holes=done.holes,
        notes=list(done.notes),
        labels={kind: PHRASES[kind] for kind in done.coverage},
        promised_pages_per_week=site.settings.alarms.pages_per_week,
        since=done.since,
        until=done.until,
        done_at=site.now(),
        seed=plan.seed,
        walks=done.walks,
        seconds=round(time.perf_counter() - began, 1),
    )
    kept = save_report(site.folder, HISTORY, answer.model_dump(mode="json"))
    return answer if kept else answer.model_copy(update={"notes": [*answer.notes, _NOT_KEPT]})


def faults_of(coverage: Coverage) -> dict[str, dict[str, RehearsedFault]]:
    """Return figures by kind and severity as programs get them."""
    return {
        kind: {severity: RehearsedFault(**asdict(figures)) for severity, figures in by_severity.items()}
        for kind, by_severity in coverage.items()
    }


def last_rehearsal(site: Site, viewer: Viewer, *, live: bool = False) -> RehearsalAnswer | None:
    """Return what the last rehearsal in the past (or beside the live stream) came to; None where there was none."""
    viewer.require(READ)
    viewer.require_admin()
    report = load_report(site.folder, LIVE if live else HISTORY)
    try:
        return None if report is None else RehearsalAnswer.model_validate(report)
    except ValidationError:  # of another version
        return None
