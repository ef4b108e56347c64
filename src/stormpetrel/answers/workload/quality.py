"""How good synthetic jobs are: a scorecard of a log or a generator, and the figures of synthetic jobs compared with real ones.

WorkloadInput -> evaluate_log, evaluate_generator -> WorkloadEvaluation; Workloads -> compare_workloads -> WorkloadComparison;
Site + Viewer -> compare_site_workload -> SiteWorkload. The workloads themselves come with each answer as frames, up to
a million jobs: they are only drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stormpetrel.answers.schemas.workload import SiteWorkload, WorkloadComparison, WorkloadEvaluation, WorkloadFidelity
from stormpetrel.answers.viewer import READ
from stormpetrel.answers.workload.input import synthetic_workload
from stormpetrel.answers.workload.workload import scores_of
from stormpetrel.engine import ONE_PROCESS, Engine
from stormpetrel.errors import ModelError, NotEnoughJobsError
from stormpetrel.lifecycle.workload_models import load_site_generator, site_workload
from stormpetrel.rehearse.workload_usefulness import (
    Scheduling,
    cut_log,
    over_seeds,
    schedule,
    synthetic_jobs,
    train_on_synthetic,
    usefulness,
)
from stormpetrel.synth.choose import DEFAULT, new_generator
from stormpetrel.synth.contract import Wanted, sample
from stormpetrel.synth.score.fidelity import fidelity
from stormpetrel.synth.score.scorecard import evaluate_odd_even, floor_scorecard, odd_even_split, scorecard

if TYPE_CHECKING:
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.answers.workload.input import WorkloadInput
    from stormpetrel.engine import Progress
    from stormpetrel.jobs.training import TrainingSettings
    from stormpetrel.store.site import Site
    from stormpetrel.synth.contract import WorkloadGenerator
    from stormpetrel.synth.workload import Workload

    Workloads = dict[str, Workload]  # by name, the real one first
    MakeGenerator = Callable[[int], WorkloadGenerator]  # by seed

REAL: Final = "real"
SYNTHETIC: Final = "synthetic"
REPORT_JOBS: Final = 20_000  # the newest: a report should not wait longer for this than for the rest of it
_SAME_LOG: Final = (
    "A synthetic log that was made from this very log has seen the jobs that it is judged on, also those that the failure model "
    "is tested on: it can come closer than the floor. FILE --model NAME keeps them apart."
)
_SCORING: Final = 0.7  # of the time; the rest goes to the failure models


def evaluate_log(
    source: WorkloadInput,
    synthetic: str,
    held_out: Workload | None,
    training: TrainingSettings | None,
    progress: Progress,
) -> tuple[WorkloadEvaluation, Callable[[], Workloads]]:
    """Judge a synthetic log (a file, model folder or generator) against a real one; and both of them, to be drawn.

    `held_out` are real jobs that the generator has not seen: without them nobody knows what the log was learnt from. With the
    settings of a `training` usefulness is measured as well: a failure model and a scheduler fed with each.
    """
    real, name = source.workload, Path(synthetic).name
    workload = synthetic_workload(synthetic, real, progress=lambda share, message: progress(0.1 * share, message))
    progress(0.1, "two halves of the real log against each other")
    floor = floor_scorecard(*odd_even_split(real))
    progress(0.4, "synthetic against real")
    measured = scorecard(real, workload, train=real if held_out else None, held_out=held_out, floor=floor)
    card = replace(measured, notes=(*real.notes, *measured.notes, _SAME_LOG)).as_dict()
    if training is not None:
        progress(_SCORING, "a failure model and a scheduler")
        card |= _usefulness_of_log(source, workload, training, card["notes"])
    return _evaluation(f"{name} against the real log", card), lambda: {REAL: real, name: workload}


def evaluate_generator(
    source: WorkloadInput,
    name: str,
    make: MakeGenerator,
    seeds: int,
    training: TrainingSettings | None,
    progress: Progress,
    *,
    engine: Engine = ONE_PROCESS,
) -> tuple[WorkloadEvaluation, Callable[[], Workloads]]:
    """Judge a generator over seeds: it learns the odd weeks and is judged on the even ones; and jobs of one, to be drawn.

    Seeds are the items of the engine: where it has several workers, `make` must be fit to be sent to them.
    """
    make(0)  # wrong settings are refused before anything else
    real = source.workload
    scoring = _SCORING if training is not None else 1.0
    measured = evaluate_odd_even(
        real, make, range(seeds), lambda share, message: progress(scoring * share, message), engine=engine
    )
    card = measured.as_dict()
    card["notes"] = [*real.notes, *card.get("notes", ())]
    if training is not None:
        later = _after(progress, _SCORING)
        card |= _usefulness_of_generator(source, make, seeds, training, card["notes"], later, engine)

    def workloads() -> Workloads:
        odd, even = odd_even_split(real)
        return {"real (even weeks)": even, name: sample(make(0).fit(odd), Wanted(jobs=even.height))}

    title = f"{name}, fitted on odd and judged on even weeks, {seeds} seed{'s' if seeds > 1 else ''}"
    return _evaluation(title, card), workloads


def compare_workloads(real: Workload, synthetic: Mapping[str, Workload], *, output: str | None = None) -> WorkloadComparison:
    """Compare a real workload with synthetic ones, by their names."""
    return WorkloadComparison(
        jobs=real.height,
        synthetic={name: fidelity_answer(real, workload) for name, workload in synthetic.items()},
        output=output,
        notes=list(real.notes),
    )


def fidelity_answer(real: Workload, synthetic: Workload) -> WorkloadFidelity:
    """Return how alike two workloads are."""
    figures = fidelity(real, synthetic)
    return WorkloadFidelity.model_validate({**asdict(figures), "notes": list(figures.notes)})


def compare_site_workload(
    site: Site, viewer: Viewer, *, generator: str = DEFAULT, most: int = REPORT_JOBS
) -> tuple[SiteWorkload, Workloads]:
    """Compare the newest `most` jobs of a site with as many new ones of the generator in use; and both of them, to be drawn.

    Without one in use a `generator` of that kind is fitted now and not kept. NotEnoughJobsError where no job has ended. For
    administrators.
    """
    viewer.require(READ)
    viewer.require_admin()
    real = site_workload(site, most=most)
    training, learnt_from, card = None, real.height, None
    try:
        in_use = load_site_generator(site)
    except ModelError:
        maker = new_generator(generator).fit(real)
    else:
        maker, generator, training = in_use.generator, in_use.name, in_use.training
        learnt_from, card = in_use.about.get("n_train", 0), in_use.about.get("scorecard") or None
    synthetic = sample(maker, Wanted(jobs=real.height, start=real.start()))
    answer = SiteWorkload(
        jobs=real.height,
        generator=generator,
        training=training,
        learnt_from=learnt_from,
        scorecard=card,
        scores=scores_of(card or {}),
        fidelity=None if card else fidelity_answer(real, synthetic),
    )
    return answer, {REAL: real, SYNTHETIC: synthetic}


def _evaluation(title: str, card: dict[str, Any]) -> WorkloadEvaluation:
    return WorkloadEvaluation(title=title, scorecard=card, scores=scores_of(card), notes=card["notes"])


def _usefulness_of_log(
    source: WorkloadInput, synthetic: Workload, training: TrainingSettings, notes: list[str]
) -> dict[str, Any]:
    jobs = source.jobs if source.jobs is not None else synthetic_jobs(source.workload)
    return {
        "tstr": _or_note(lambda: train_on_synthetic(cut_log(jobs, training), synthetic, training), "tstr", notes),
        "schedule": _or_note(lambda: schedule(source.workload, synthetic), "schedule", notes),
    }


def _usefulness_of_generator(
    source: WorkloadInput,
    make: MakeGenerator,
    seeds: int,
    training: TrainingSettings,
    notes: list[str],
    progress: Progress,
    engine: Engine,
) -> dict[str, Any]:
    jobs = source.jobs if source.jobs is not None else synthetic_jobs(source.workload)
    odd, even = odd_even_split(source.workload)

    def scheduled() -> dict[str, Any]:
        return over_seeds(list(engine.map(Scheduling(even, odd, make), range(seeds), name=lambda seed: f"seed {seed}")))

    def learnt() -> dict[str, Any]:
        return usefulness(jobs, make, training, seeds=range(seeds), progress=progress, engine=engine)

    return {"tstr": _or_note(learnt, "tstr", notes), "schedule": _or_note(scheduled, "schedule", notes)}


def _or_note(measure: Callable[[], dict[str, Any]], name: str, notes: list[str]) -> dict[str, Any] | None:
    """What was measured, or None and a note where the log does not give it."""
    try:
        return measure()
    except NotEnoughJobsError as error:
        notes.append(f"{name}: {error}")
        return None


def _after(progress: Progress, share: float) -> Progress:
    return lambda done, message: progress(share + (1 - share) * done, message)
