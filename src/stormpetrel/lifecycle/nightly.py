"""What is done once a day: every family trains challengers and compares, then old models and jobs go and tables are compacted.

Site -> run_nightly -> Nightly, of which people read one sentence per family. By cron, or by the watch in a process of its own.
Which family trains when, and what decides, stands in contests/ and retraining. A family that fails does not stop the others:
its sentence says why, and what is in use stays in use.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Final

from stormpetrel.errors import ModelError, StormpetrelError
from stormpetrel.ingest.jobcomp_inbox import reconcile
from stormpetrel.lifecycle.contests.decision import FamilyNight, Stopwatch
from stormpetrel.lifecycle.contests.events import contest_events
from stormpetrel.lifecycle.contests.shadow import run_shadows, shadow_names
from stormpetrel.lifecycle.contests.traces import contest_traces
from stormpetrel.lifecycle.contests.workloads import contest_workloads
from stormpetrel.lifecycle.families import retrain_outdated
from stormpetrel.lifecycle.frozen_spans import halting_incident
from stormpetrel.lifecycle.history_snapshot import carry_history
from stormpetrel.lifecycle.job_models import carry_outlook, load_models
from stormpetrel.lifecycle.retraining import Retrained, retrain
from stormpetrel.records.model_families import ModelFamily
from stormpetrel.records.outages import Outage
from stormpetrel.store.registry.models import Training
from stormpetrel.store.site import Site
from stormpetrel.store.upkeep.upkeep import Compacted, compact, retain

LAST_NIGHT: Final = "last_night"  # a fact of the state store: when the last one began, by the site's clock


@dataclass(frozen=True, slots=True)
class Nightly:
    """What a night came to."""

    jobs: Retrained
    families: tuple[FamilyNight, ...]  # of those that the site has data or a model of
    outdated: tuple[str, ...]  # a sentence for each model that an earlier version had saved
    shadows: tuple[str, ...]  # a sentence for each challenger in shadow
    deleted_jobs: int
    deleted_trainings: tuple[str, ...]
    compacted: tuple[Compacted, ...]
    reconciled: str | None = None  # what accounting says of what jobcomp sent


def run_nightly(site: Site, *, progress: Callable[[str], None]) -> Nightly:
    """Compare what was pushed with accounting → each family trains and compares → delete → compact, one after the other.

    Killed half-way, what is in use stays in use.
    With `alarms.halt_training` nothing is trained while a confirmed incident is open.
    """
    site.state.set_fact(LAST_NIGHT, site.now().isoformat())
    progress("accounting")
    reconciled = reconcile(site)
    halted = halting_incident(site)
    jobs, families, outdated = _halted(site, halted) if halted is not None else _trained(site, progress)
    progress("upkeep")
    keep_days = site.settings.store.keep_days
    deleted = retain(site, keep_days) if keep_days else 0
    shadows = tuple(run_shadows(site, now=site.now()))
    pruned = tuple(site.models.prune(site.settings.nightly.keep_trainings, spare=shadow_names(site)))
    compacted = tuple(compact(site))
    with suppress(ModelError):  # where there is none, nobody needs a history
        carry_history(site, load_models(site), until=site.now())
        carry_outlook(site, until=site.now())
    return Nightly(jobs, tuple(families), tuple(outdated), shadows, deleted, pruned, compacted, reconciled)


def _measured(site: Site, family: str, contest: Callable[[], FamilyNight | None]) -> FamilyNight | None:
    """What a contest came to and took; where it could not be held, why."""
    watch = Stopwatch()
    try:
        night = contest()
    except StormpetrelError as error:
        current = site.models.current_training(family)
        night = FamilyNight(family, False, f"not trained: {error.what}", previous=current.name if current else None)
    return None if night is None else night.with_compute(watch.read())


def last_night(site: Site) -> datetime | None:
    """When the last night began; None where there was none yet."""
    noted = site.state.fact(LAST_NIGHT)
    return datetime.fromisoformat(noted) if noted else None


def _trained(site: Site, progress: Callable[[str], None]) -> tuple[Retrained, list[FamilyNight], list[str]]:
    """What came of the contests of all families, and of models that an earlier version had saved."""
    watch = Stopwatch()
    jobs = retrain(site, now=site.now(), progress=progress)
    of_jobs = FamilyNight(
        ModelFamily.JOBS,
        jobs.promoted,
        jobs.why,
        jobs.training,
        jobs.previous,
        tuple(asdict(comparison) for comparison in jobs.comparisons),
        watch.read(),
    )
    outdated = retrain_outdated(site, progress=lambda _share, message: progress(message))
    contests: dict[str, Callable[[], FamilyNight | None]] = {
        ModelFamily.TRACES: lambda: contest_traces(site, progress=lambda _share, text: progress(f"traces: {text}")),
        ModelFamily.EVENTS: lambda: contest_events(
            site, now=site.now(), progress=lambda _share, text: progress(f"events: {text}")
        ),
        ModelFamily.SYNTH: lambda: contest_workloads(
            site, now=site.now(), progress=lambda _share, text: progress(f"generator: {text}")
        ),
    }
    others = [_measured(site, family, contest) for family, contest in contests.items()]
    return jobs, [of_jobs, *filter(None, others)], outdated


def _halted(site: Site, incident: int) -> tuple[Retrained, list[FamilyNight], list[str]]:
    """Nothing was trained, and why."""
    why = f"not trained: incident {incident} is confirmed and not over, and alarms.halt_training is set"
    current = ((family, site.models.current_training(family)) for family in ModelFamily)
    families = [FamilyNight(family, False, why, previous=training.name) for family, training in current if training]
    return Retrained(promoted=False, why=why), families, []


EVERY: Final = timedelta(days=7)


def reason_to_train(current: Training | None, outages: list[Outage], now: datetime) -> str | None:
    """Why the watch starts a night for events by its own clock; None where that can wait for the next one."""
    if current is None:
        return "the first model"
    created = datetime.fromisoformat(current.created)
    if now - created >= EVERY:
        return "a week has passed since the last training"
    known = int(current.models[0].about.get("labels", 0))
    ended = sum(1 for outage in outages if outage.end is not None)
    return f"{ended} spans are labelled, {known} were at the last training" if ended != known else None
