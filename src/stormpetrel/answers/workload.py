"""The workload of a site and its generator: which one is in use, how good it is, and jobs of both to be drawn side by side.

LiveSite + Viewer -> workload_state -> WorkloadState; WORKLOAD_BOARDS.look -> WorkloadBoard. A generator has learnt from
everybody's jobs: all of it is for administrators.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from stormpetrel.answers.background import Background
from stormpetrel.answers.overview import again
from stormpetrel.answers.viewer import READ
from stormpetrel.answers.workload_fit import FitState, fit_state

if TYPE_CHECKING:
    from stormpetrel.answers.background import Made
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.models import Training
    from stormpetrel.synth.workload import Workload

DRAWN_JOBS: Final = 50_000  # of each kind: curves do not change with more
_FAMILY: Final = "synth"
_REST_S: Final = 3.0  # looking which generator is in use is cheap; jobs are made anew only where it is another one
_SEED: Final = 1


@dataclass(frozen=True, slots=True)
class FittedGenerator:
    """What is known of a generator without loading it."""

    training: str  # such as synth-3
    generator: str  # such as sessions
    fitted_at: datetime
    jobs: int  # learnt from
    since: datetime | None  # submission of the first of them
    until: datetime  # up to when jobs were known
    table_version: int | None  # of the job table that it has seen
    columns: tuple[str, ...]
    groups: Mapping[str, str]  # name -> what they are
    scorecard: Mapping[str, Any] | None
    scored_jobs: int | None
    not_scored: str  # why there is no scorecard


@dataclass(frozen=True, slots=True)
class WorkloadState:
    """The generator in use (None: there is none), and how far the fitting of another one is."""

    fitted: FittedGenerator | None
    fitting: FitState
    as_of: datetime


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadBoard:
    """Jobs that a generator has learnt from and as many new ones; both None where there is no generator."""

    training: str
    real: Workload | None = None
    synthetic: Workload | None = None


def workload_state(live: LiveSite, viewer: Viewer) -> WorkloadState:
    """Which generator is in use, how good it is, and whether another one is being fitted; for administrators."""
    viewer.require(READ)
    viewer.require_admin()
    training = live.site.models.current_training(_FAMILY)
    return WorkloadState(None if training is None else _fitted(training), fit_state(live), live.now())


def make_workload_board(live: LiveSite, key: str, before: WorkloadBoard | None) -> WorkloadBoard:
    """The jobs to be drawn; those before where the same generator is in use."""
    del key
    training = live.site.models.current_training(_FAMILY)
    if training is None:
        return WorkloadBoard("")
    if before is not None and before.training == training.name:
        return before
    return again(lambda: _drawn_jobs(live, training))


WORKLOAD_BOARDS: Final = Background(make_workload_board, rest_s=_REST_S, most=1, always=True)


def workload_board(live: LiveSite, viewer: Viewer) -> Made[WorkloadBoard]:
    """The jobs to be drawn, however old; only the very first are waited for. For administrators."""
    viewer.require(READ)
    viewer.require_admin()
    return WORKLOAD_BOARDS.latest(live)


def _drawn_jobs(live: LiveSite, training: Training) -> WorkloadBoard:
    """The first jobs of those that it has learnt from, and new ones from the same moment on."""
    from stormpetrel.lifecycle.workload_models import loaded_generator, site_workload
    from stormpetrel.synth.contract import Wanted, sample

    in_use = loaded_generator(live.site, training)
    real = site_workload(live.site, until=training.trained_until).between(0, DRAWN_JOBS)
    made = sample(in_use.generator, Wanted(jobs=real.height, seed=_SEED, start=real.start()))
    return WorkloadBoard(training.name, real, replace(made, has_clock=real.has_clock))


def _fitted(training: Training) -> FittedGenerator:
    entry = training.models[0]
    about = entry.about
    since, version, scored = about.get("since"), about.get("table_version"), about.get("scored_jobs")
    return FittedGenerator(
        training=training.name,
        generator=str(about.get("generator") or entry.name.partition("-")[2]),
        fitted_at=_utc(training.created),
        jobs=int(about.get("n_train") or 0),
        since=_utc(str(since)) if since else None,
        until=training.trained_until,
        table_version=int(version) if isinstance(version, int) else None,
        columns=tuple(map(str, about.get("columns") or ())),
        groups={str(name): str(words) for name, words in dict(about.get("groups") or {}).items()},
        scorecard=about.get("scorecard"),
        scored_jobs=int(scored) if isinstance(scored, int) else None,
        not_scored=str(about.get("not_scored") or ""),
    )


def _utc(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
