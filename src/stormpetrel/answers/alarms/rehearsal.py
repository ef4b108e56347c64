"""What this site would see: faults rehearsed in a copy of its own history, and what the last rehearsals came to.

Site + Viewer + RehearsalQuestion -> rehearse_site -> RehearsalAnswer, kept beside the tables for the page; -> last_rehearsal;
-> rehearse_live: the same beside the live stream, until it is stopped.

What the last rehearsals of a site came to: small files beside its tables and state, which no rehearsal touches.

report (plain values) -> save_report -> mysite/rehearsal/<name>.json; load_report -> report.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter, ValidationError

from stormpetrel.answers.schemas.alarms import RehearsalAnswer, RehearsedFault
from stormpetrel.answers.viewer import MANAGE, READ
from stormpetrel.engine import ONE_PROCESS, Engine
from stormpetrel.errors import NotThereError
from stormpetrel.private_files import write_private
from stormpetrel.rehearse.site.coverage import PHRASES, Coverage, Trial, coverage_of, holes_of
from stormpetrel.rehearse.site.injection import SEVERITIES
from stormpetrel.rehearse.site.rehearsal import RehearsalPlan, rehearse
from stormpetrel.rehearse.site.shadow import Shadow, ShadowPace, run_shadow

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.alarms import RehearsalQuestion
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.site import Site

_TRIAL: Final = TypeAdapter(Trial)
_MOST_TRIALS: Final = 5000  # of the live stream that are counted: the newest
_NOT_KEPT: Final = "The report could not be kept beside the site: the page shows the one before."
FOLDER: Final = "rehearsal"
HISTORY: Final = "history"  # faults in a copy of the past
LIVE: Final = "live"  # faults in a copy of the live stream
LIVE_TRIALS: Final = "live-trials"  # each of them, so that the next run goes on counting
_LONGEST: Final = 4_000_000  # bytes of a report that is read


def rehearse_site(
    site: Site,
    viewer: Viewer,
    question: RehearsalQuestion,
    *,
    progress: Callable[[float, str], None] = lambda _share, _text: None,
    engine: Engine = ONE_PROCESS,
    keep: Path | None = None,
) -> RehearsalAnswer:
    """Rehearse, and keep what it came to for the page; tables, state, incidents and messages of the site stay as they are."""
    viewer.require(MANAGE)
    began = time.perf_counter()
    plan = plan_of(question)
    done = rehearse(site, plan, progress=progress, engine=engine, keep=keep)
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


def rehearse_live(
    site: Site,
    viewer: Viewer,
    question: RehearsalQuestion,
    pace: ShadowPace,
    *,
    stop: threading.Event,
    note: Callable[[RehearsalAnswer], None] = lambda _answer: None,
) -> RehearsalAnswer:
    """Rehearse beside the live stream until `stop`, or so many looks; `note` hears of each fault that was judged.

    Faults are put into a copy of what the watch reads, in a folder and state of its own. Faults of earlier runs count as well.
    """
    viewer.require(MANAGE)
    began, plan = time.perf_counter(), plan_of(question)
    trials = _earlier_trials(site)
    since = min((trial.injection.since for trial in trials), default=site.now())
    answer = _live_answer(site, trials, plan, (since, site.now()), None, ())

    def judged(shadow: Shadow, new: Sequence[Trial], now: datetime) -> None:
        nonlocal answer
        trials.extend(new)
        answer = _live_answer(site, trials, plan, (since, now), shadow.false_pages_per_week(now), shadow.missing)
        answer = answer.model_copy(update={"seconds": round(time.perf_counter() - began, 1)})
        save_report(site.folder, LIVE, answer.model_dump(mode="json"))
        if new:
            kept = [_TRIAL.dump_python(trial, mode="json") for trial in trials[-_MOST_TRIALS:]]
            save_report(site.folder, LIVE_TRIALS, {"trials": kept})
            note(answer)

    run_shadow(site, plan, pace, judged, stop=stop)
    return answer


def _live_answer(
    site: Site,
    trials: Sequence[Trial],
    plan: RehearsalPlan,
    span: tuple[datetime, datetime],
    false_pages: float | None,
    missing: Sequence[str],
) -> RehearsalAnswer:
    coverage = coverage_of(trials)
    return RehearsalAnswer(
        faults=faults_of(coverage),
        false_pages_per_week=false_pages,
        holes=holes_of(coverage, missing),
        labels={kind: PHRASES[kind] for kind in coverage},
        promised_pages_per_week=site.settings.alarms.pages_per_week,
        since=span[0],
        until=span[1],
        done_at=span[1],
        seed=plan.seed,
        live=True,
    )


def _earlier_trials(site: Site) -> list[Trial]:
    report = load_report(site.folder, LIVE_TRIALS) or {}
    try:
        return [_TRIAL.validate_python(trial) for trial in report.get("trials", [])][-_MOST_TRIALS:]
    except ValidationError:  # of another version
        return []


def plan_of(question: RehearsalQuestion) -> RehearsalPlan:
    """Return what is rehearsed; UsageError where a kind or severity is unknown."""
    plan = RehearsalPlan(
        kinds=tuple(question.kinds),
        severities=tuple(question.severities) or SEVERITIES,
        n=question.n,
        seed=question.seed,
        since=question.since,
        until=question.until,
        models=question.models,
    )
    plan.check()
    return plan


def faults_of(coverage: Coverage) -> dict[str, dict[str, RehearsedFault]]:
    """Return figures by kind and severity as programs get them."""
    return {
        kind: {severity: RehearsedFault(**asdict(figures)) for severity, figures in by_severity.items()}
        for kind, by_severity in coverage.items()
    }


def delay_text(seconds: float | None) -> str:
    """Return how long something took, in a few letters; a dash where it did not happen."""
    if seconds is None:
        return "–"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def last_rehearsal(site: Site, viewer: Viewer, *, live: bool = False) -> RehearsalAnswer | None:
    """Return what the last rehearsal in the past (or beside the live stream) came to; None where there was none."""
    viewer.require(READ)
    viewer.require_admin()
    report = load_report(site.folder, LIVE if live else HISTORY)
    try:
        return None if report is None else RehearsalAnswer.model_validate(report)
    except ValidationError:  # of another version
        return None


def rehearsal_folder(site_folder: Path) -> Path:
    """Return the folder of a site's rehearsals; it may be missing."""
    return site_folder / FOLDER


def save_report(site_folder: Path, name: str, report: dict[str, Any]) -> bool:
    """Keep a report in place of the last one of this name; False where the folder cannot be written."""
    folder = rehearsal_folder(site_folder)
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        write_private(folder / f"{name}.json", json.dumps(report))
        return True
    return False


def load_report(site_folder: Path, name: str) -> dict[str, Any] | None:
    """Return the last report of this name; None where there is none that can be read."""
    path = rehearsal_folder(site_folder) / f"{name}.json"
    with suppress(OSError, ValueError):
        if path.stat().st_size <= _LONGEST:
            report = json.loads(path.read_text(encoding="utf-8"))
            return report if isinstance(report, dict) else None
    return None


def show_rehearsal(site: Site, viewer: Viewer, *, live: bool = False) -> RehearsalAnswer:
    """Return the same; NotThereError where there was none."""
    answer = last_rehearsal(site, viewer, live=live)
    if answer is None:
        where = " beside the live stream" if live else ""
        hint = f"Run on the server: stormpetrel rehearse{' --live' if live else ''}"
        raise NotThereError(f"Nothing has been rehearsed{where} yet.", hint=hint)
    return answer
