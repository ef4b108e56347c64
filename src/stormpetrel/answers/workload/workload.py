"""The workload of a site and its generator: which one is in use, how good it is, and jobs of both to be drawn side by side.

LiveSite + Viewer -> workload_answer -> WorkloadAnswer, workload_board -> WorkloadBoard. A generator has learnt from everybody's
jobs: all of it is for administrators.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from stormpetrel.answers.background import Background
from stormpetrel.answers.overview.overview import again
from stormpetrel.answers.schemas.workload import WorkloadAnswer, WorkloadGenerator, WorkloadGroup
from stormpetrel.answers.viewer import READ
from stormpetrel.answers.workload.fit import Fitting
from stormpetrel.answers.workload.scores import scores_of
from stormpetrel.lifecycle.workload_models import loaded_generator, site_workload
from stormpetrel.synth.contract import Wanted, sample

if TYPE_CHECKING:
    from stormpetrel.answers.background import Snapshot
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.registry.models import Training
    from stormpetrel.synth.workload import Workload

DRAWN_JOBS: Final = 50_000  # of each kind: curves do not change with more
_FAMILY: Final = "synth"
_REST_S: Final = 3.0  # looking which generator is in use is cheap; jobs are made anew only where it is another one
_SEED: Final = 1


class LiveWorkload:
    """What a live site keeps of its workload: the jobs to be drawn, the fitting under way, whose turn it is to sample."""

    def __init__(self) -> None:
        self.board: Background[WorkloadBoard] = Background(make_workload_board, rest_s=_REST_S, most=1, always=True)
        self.fitting = Fitting()
        self.sampling = threading.Lock()


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadBoard:
    """Jobs that a generator has learnt from and as many new ones; both None where there is no generator.

    They stay frames next to the answer: up to 50,000 jobs each, which are only drawn.
    """

    training: str
    real: Workload | None = None
    synthetic: Workload | None = None


def workload_answer(live: LiveSite, viewer: Viewer) -> WorkloadAnswer:
    """Return which generator is in use, how good it is, and how far the fitting of another one is; for administrators."""
    viewer.require(READ)
    viewer.require_admin()
    training = live.site.models.current_training(_FAMILY)
    generator = None if training is None else _generator(training)
    return WorkloadAnswer(as_of=live.now(), generator=generator, fitting=live.workload.fitting.state)


def workload_board(live: LiveSite, viewer: Viewer) -> Snapshot[WorkloadBoard]:
    """Return the jobs to be drawn, however old; only the very first are waited for. For administrators."""
    viewer.require(READ)
    viewer.require_admin()
    return live.workload.board.latest(live)


def current_board(live: LiveSite, viewer: Viewer) -> WorkloadBoard | None:
    """Return the jobs to be drawn at once; None where those of the generator in use are still being made."""
    viewer.require(READ)
    viewer.require_admin()
    latest = live.workload.board.peek(live)
    training = live.site.models.current_training(_FAMILY)
    return None if latest is None or latest.value.training != (training.name if training else "") else latest.value


def make_workload_board(live: LiveSite, key: str, before: WorkloadBoard | None) -> WorkloadBoard:
    """Return the jobs to be drawn; those before where the same generator is in use."""
    del key
    training = live.site.models.current_training(_FAMILY)
    if training is None:
        return WorkloadBoard("")
    if before is not None and before.training == training.name:
        return before
    return again(lambda: _drawn_jobs(live, training))


def _drawn_jobs(live: LiveSite, training: Training) -> WorkloadBoard:
    """The first jobs of those that it has learnt from, and new ones from the same moment on."""
    in_use = loaded_generator(live.site, training)
    real = site_workload(live.site, until=training.trained_until).between(0, DRAWN_JOBS)
    synthetic = sample(in_use.generator, Wanted(jobs=real.height, seed=_SEED, start=real.start()))
    return WorkloadBoard(training.name, real, replace(synthetic, has_clock=real.has_clock))


def _generator(training: Training) -> WorkloadGenerator:
    """What the registry knows of a generator, without loading it."""
    entry = training.models[0]
    about = entry.about
    since, version, scored = about.get("since"), about.get("table_version"), about.get("scored_jobs")
    card = about.get("scorecard")
    return WorkloadGenerator(
        training=training.name,
        generator=str(about.get("generator") or entry.name.partition("-")[2]),
        fitted_at=_utc(training.created),
        jobs=int(about.get("n_train") or 0),
        since=_utc(str(since)) if since else None,
        until=training.trained_until,
        table_version=int(version) if isinstance(version, int) else None,
        columns=[str(column) for column in about.get("columns") or ()],
        groups=[WorkloadGroup(name=str(name), words=str(words)) for name, words in dict(about.get("groups") or {}).items()],
        scorecard=card,
        scored_jobs=int(scored) if isinstance(scored, int) else None,
        not_scored=str(about.get("not_scored") or ""),
        scores=scores_of(card) if card else [],
    )


def _utc(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
