"""Models of an earlier version whose format is not read any more: trained again, by `nightly` and so by the watch.

Site -> retrain_outdated -> a sentence for each. Models of jobs and of events have their own retraining, which looks for this
itself; here are the families that nothing else trains by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from stormpetrel.errors import ModelError, StormpetrelError
from stormpetrel.lifecycle.readable import outdated_trainings
from stormpetrel.store.models import Training, family_of
from stormpetrel.store.site import Site

WHY: Final = "the one in use was saved by an earlier version, in a format that is not read any more"
Progress = Callable[[str], None]


def retrain_outdated(site: Site, *, progress: Progress = lambda _words: None) -> list[str]:
    """Train again what an earlier version saved of traces and workloads; what came of each."""
    return [_retrain(site, one, progress) for one in outdated_trainings(site) if family_of(one.name) in _TRAIN]


def _retrain(site: Site, training: Training, progress: Progress) -> str:
    family = family_of(training.name)
    try:
        made = _TRAIN[family](site, training, progress)
    except StormpetrelError as error:  # too little is left to learn from, an extra is missing, or a person has to decide
        return f"{training.name} was saved by an earlier version and could not be trained again: {error}"
    return f"{made} is in use now in place of {training.name}: {WHY}"


def _train_traces(site: Site, training: Training, progress: Progress) -> str:
    from stormpetrel.lifecycle.trace_models import FAMILY, train_trace_model
    from stormpetrel.traces.architecture import Architecture

    architecture = Architecture(training.models[0].name.removeprefix(f"{FAMILY}-"))
    train_trace_model(site, architecture, why=WHY, progress=lambda _share, words: progress(f"traces: {words}"))
    made = site.models.current_training(FAMILY)
    return made.name if made else FAMILY


def _fit_generator(site: Site, training: Training, progress: Progress) -> str:
    from stormpetrel.lifecycle.workload_models import FAMILY, fit_site_generator

    name = training.models[0].name.removeprefix(f"{FAMILY}-")
    if name == "private":
        raise ModelError(
            "A private generator is not fitted again by itself: each fit tells a little more about the same people.",
            hint="Decide yourself: stormpetrel synth fit --model private",
        )
    return fit_site_generator(site, name, why=WHY, progress=lambda _share, words: progress(f"workload: {words}")).name


_TRAIN: Final[Mapping[str, Callable[[Site, Training, Progress], str]]] = {"traces": _train_traces, "synth": _fit_generator}
