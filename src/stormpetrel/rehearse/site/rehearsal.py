"""The rehearsal: faults put into a copy of a site's own history, which is then walked through as `alarms replay` does.

Site + RehearsalPlan -> rehearse -> Rehearsal. Some faults are put into one copy, far enough apart; the same walk without them
says what would have been found anyway. What was sent in that walk, and belongs to no outage that somebody has labelled and
to no incident that somebody has confirmed, is a false page.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel import __version__
from stormpetrel.alarms.acts import with_acts
from stormpetrel.alarms.budget import SHORTEST as BEFORE_BUDGET
from stormpetrel.engine import ONE_PROCESS, Engine, KeptResults, Work
from stormpetrel.engine.codecs import JsonCodec
from stormpetrel.errors import UsageError
from stormpetrel.records.incidents import Incident, Verdict
from stormpetrel.records.outages import OutageKind
from stormpetrel.rehearse.site.coverage import PHRASES, Coverage, Trial, coverage_of, holes_of
from stormpetrel.rehearse.site.injection import SEVERITIES, Injection, key_of, paged_at, seen_at
from stormpetrel.rehearse.site.stages import HistoryStage, Progress, Records, Stage, Walk, WindowStage
from stormpetrel.store.site import Site
from stormpetrel.watch.past.replay import recorded_span

KINDS: Final = (*HistoryStage.kinds, *WindowStage.kinds)
LONGEST: Final = timedelta(weeks=10)  # of the history that is walked through, unless a beginning is named
_TRIES: Final = 6  # to find somebody to hit
_WEEK: Final = timedelta(weeks=1)
Cell = tuple[str, str]  # kind, severity


@dataclass(frozen=True, slots=True)
class RehearsalPlan:
    """What is rehearsed: all kinds and severities where none is named, `n` faults of each."""

    kinds: tuple[str, ...] = ()
    severities: tuple[str, ...] = SEVERITIES
    n: int = 3
    seed: int = 0
    since: datetime | None = None
    until: datetime | None = None
    models: bool = True  # of events, trained on the way

    def check(self) -> None:
        """UsageError where a kind or severity is unknown."""
        for name, values, known in (("kind of fault", self.kinds, KINDS), ("severity", self.severities, SEVERITIES)):
            unknown = [value for value in values if value not in known]
            if unknown:
                raise UsageError(f"Unknown {name} '{unknown[0][:80]}'. Known: {', '.join(known)}.")


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What a site would have seen of faults in its own history."""

    since: datetime
    until: datetime
    trials: tuple[Trial, ...]
    false_pages_per_week: float | None
    missing: tuple[str, ...]  # what could not be rehearsed, and why, in sentences
    notes: tuple[str, ...] = ()
    walks: int = 1

    @property
    def coverage(self) -> Coverage:
        """By kind and severity."""
        return coverage_of(self.trials)

    @property
    def holes(self) -> list[str]:
        """What would not be seen here, in sentences."""
        return holes_of(self.coverage, self.missing)

    @property
    def weeks(self) -> float:
        """How long the history was in which false pages were counted."""
        return (self.until - self.since) / _WEEK


def rehearse(
    site: Site,
    plan: RehearsalPlan,
    *,
    progress: Progress = lambda _share, _text: None,
    engine: Engine = ONE_PROCESS,
    keep: Path | None = None,
) -> Rehearsal:
    """Put faults into copies of a site's history and walk through each; the site is only read.

    Each walk is an item of the engine. Where faults go is drawn here, before any walk: the same trials wherever they are walked.
    With `keep` what each walk came to is kept in that folder, and a run that was killed goes on after the walks that were done.
    """
    plan.check()
    since, until = _span(site, plan)
    kept = None if keep is None else KeptResults(keep, _identity(site, plan, (since, until)), JsonCodec[Walk](Walk))
    history, windows = HistoryStage(site, (since, until), models=plan.models), WindowStage(site)
    progress(0.0, "the history as it is")
    of_history = _run(history, plan, engine, partial(_part, progress, 0.0, 0.65), kept, calm_anyway=True)
    of_windows = _run(windows, plan, engine, partial(_part, progress, 0.65, 1.0), kept)
    calm = of_history.calm
    assert calm is not None
    trials = (*of_history.trials, *of_windows.trials)
    missing = (*of_history.missing, *of_windows.missing)
    if not trials and not any(kind in plan.kinds for kind in KINDS) and missing:
        raise UsageError(missing[0], hint="Read records first: stormpetrel ingest jobs FILE, or name an earlier --since.")
    walks = of_history.walks + of_windows.walks
    return Rehearsal(
        since, until, trials, _false_pages(site, calm, since), missing, windows.notes if of_windows.trials else (), walks
    )


def _identity(site: Site, plan: RehearsalPlan, span: tuple[datetime, datetime]) -> dict[str, Any]:
    """What a walk depends on besides its number: plan, records, settings, outages and models of the site, and the code."""
    tables = (site.jobs.table, site.event_counts.table, site.cpu_windows.table, site.trace_scores.table)
    settings = site.settings.model_dump_json()
    return {
        "study": "rehearse",
        "version": __version__,
        "plan": [plan.kinds, plan.severities, plan.n, plan.seed, plan.models],
        "span": [moment.isoformat() for moment in span],
        "tables": [table.version() for table in tables],
        "models": {name: entry.version for name, entry in site.models.in_use().items()},
        "settings": hashlib.sha256(settings.encode()).hexdigest(),
        "outages": [repr(outage) for outage in site.outages.list()],
    }


@dataclass(frozen=True, slots=True, eq=False)
class _NumberedWalk:
    """Walks through records that bear the number of their walk."""

    walk: Work[Records, Walk]

    def __call__(self, item: tuple[int, Records], progress: Progress) -> Walk:
        return self.walk(item[1], progress)


@dataclass(frozen=True, slots=True)
class _Run:
    trials: tuple[Trial, ...]
    missing: tuple[str, ...]
    walks: int
    calm: Walk | None  # the walk without faults


def _part(progress: Progress, first: float, last: float, share: float, text: str) -> None:
    progress(first + (last - first) * min(1.0, share), text)


def _span(site: Site, plan: RehearsalPlan) -> tuple[datetime, datetime]:
    first, last = recorded_span(site)
    if first is None or last is None:
        first, last = _kept_windows(site)
    if first is None or last is None:
        raise UsageError("There is no history to rehearse on.", hint="Read records first: stormpetrel ingest jobs FILE")
    until = min(last, plan.until) if plan.until else last
    since = max(first, plan.since) if plan.since else max(first, until - LONGEST)
    if since >= until:
        raise UsageError("The end of the rehearsal is not after its beginning.", hint="Name an earlier --since.")
    return since, until


def _kept_windows(site: Site) -> tuple[datetime | None, datetime | None]:
    """From when to when there are CPU windows, scored or not."""
    starts = site.cpu_windows.read().select(first=pl.col("window_start").min(), last=pl.col("window_start").max())
    first, last = starts.collect().row(0)
    return (None, None) if first is None else (first.astimezone(UTC), last.astimezone(UTC))


def _run(
    stage: Stage,
    plan: RehearsalPlan,
    engine: Engine,
    progress: Progress,
    kept: KeptResults[Walk] | None,
    *,
    calm_anyway: bool = False,
) -> _Run:
    """Put in every fault of a plan that a stage can have, walk after walk; `calm_anyway`: also where there is none to put in."""
    wanted = [kind for kind in stage.kinds if not plan.kinds or kind in plan.kinds]
    missing = list(dict.fromkeys(why for kind in wanted if (why := stage.missing(kind))))
    cells = [
        (kind, severity) for kind in wanted if not stage.missing(kind) for severity in plan.severities for _ in range(plan.n)
    ]
    if not cells and not calm_anyway:
        return _Run((), tuple(missing), 0, None)
    rng = np.random.default_rng([plan.seed, 2203])
    waiting: deque[tuple[Cell, int]] = deque((cells[place], 0) for place in rng.permutation(len(cells)))
    placements: deque[list[Injection]] = deque()  # of walks that are not judged yet

    def copies() -> Iterator[Records]:
        stage.begin()
        yield stage.records
        while waiting:
            if placed := _put(stage, waiting, rng):
                placements.append(placed)
                yield stage.records

    trials: list[Trial] = []
    text = partial(_text, cells, trials)
    walks = engine.map(
        _NumberedWalk(stage.walker()),
        enumerate(copies()),
        name=lambda item: f"{type(stage).__name__}, walk {item[0]}",
        progress=lambda _share, _text: progress(*text()),
        kept=kept,
    )
    calm = next(walks)
    count = 1
    for walk in walks:
        trials += _judged(placements.popleft(), walk, calm)
        count += 1
    tried = {trial.injection.kind for trial in trials}
    missing += [_untried(kind) for kind in dict.fromkeys(kind for kind, _ in cells) if kind not in tried]
    return _Run(tuple(trials), tuple(missing), count if cells else 0, calm)


def _text(cells: Sequence[Cell], trials: Sequence[Trial]) -> tuple[float, str]:
    """How far the walks are: as a share, and in words."""
    return len(trials) / max(1, len(cells)), f"{len(trials)} of {len(cells)} faults" if trials else "the history as it is"


def _put(stage: Stage, waiting: deque[tuple[Cell, int]], rng: np.random.Generator) -> list[Injection]:
    """Put a fault in at each slot, as long as some wait; those that hit nobody wait for another one."""
    stage.begin()
    placed = []
    for slot in stage.slots:
        if not waiting:
            break
        (kind, severity), tries = waiting.popleft()
        fault = stage.put(kind, severity, slot, rng)
        if fault is not None:
            placed.append(fault)
        elif tries + 1 < _TRIES:
            waiting.append(((kind, severity), tries + 1))
    return placed


def _judged(placed: Iterable[Injection], walk: Walk, calm: Walk) -> list[Trial]:
    """When each fault was seen and sent, in seconds after its beginning."""
    known = {key_of(finding) for finding in calm.findings}
    sent = {moment for incident in calm.past.incidents for moment in incident.paged_at}
    trials = []
    for fault in placed:
        seen = seen_at(fault, walk.findings, known)
        paged = paged_at(fault, seen, walk.past.incidents, sent)
        may_page = walk.past.since is not None and fault.since - walk.past.since >= BEFORE_BUDGET
        trials.append(Trial(fault, _after(fault, seen), _after(fault, paged), may_page=may_page))
    return trials


def _after(fault: Injection, moment: datetime | None) -> float | None:
    return None if moment is None else (moment - fault.since).total_seconds()


def _untried(kind: str) -> str:
    phrase = PHRASES[kind]
    return f"{phrase[0].upper()}{phrase[1:]} could not be rehearsed: nothing in the history could be hit by it."


def _false_pages(site: Site, calm: Walk, since: datetime) -> float | None:
    """What was sent a week in the walk without faults, beside what somebody has labelled or confirmed."""
    if not calm.past.weeks:
        return None
    outages = [outage for outage in site.outages.list() if outage.kind is OutageKind.OUTAGE]
    confirmed = _confirmed(site, since)
    false = [
        moment
        for incident in calm.past.incidents
        for moment in incident.paged_at
        if not any(outage.start <= incident.until and (outage.end is None or outage.end >= incident.since) for outage in outages)
        and not any(_is_same(incident, other) for other in confirmed)
    ]
    return len(false) / calm.past.weeks


def _confirmed(site: Site, since: datetime) -> Sequence[Incident]:
    incidents = site.incidents.list(resolved_after=since)
    acts = site.incidents.acts(incident.id for incident in incidents)
    judged = [with_acts(incident, acts[incident.id]) for incident in incidents]
    return [judgement for judgement in judged if judgement.verdict is Verdict.CONFIRMED]


def _is_same(first: Incident, second: Incident) -> bool:
    together = first.since <= second.until and second.since <= first.until
    return together and bool({subject.name for subject in first.subjects} & {subject.name for subject in second.subjects})
