"""Models of an earlier version whose format is not read any more: trained again, by `nightly` and so by the watch.

Site -> retrain_outdated -> a sentence for each. Models of jobs and of events have their own retraining, which looks for this
itself; here are the families that nothing else trains by itself.
"""

from __future__ import annotations

from typing import Final

from stormpetrel.engine import Progress, no_progress
from stormpetrel.errors import StormpetrelError
from stormpetrel.lifecycle.families import FAMILIES
from stormpetrel.lifecycle.readable import outdated_trainings
from stormpetrel.records.model_families import ModelFamily
from stormpetrel.store.models import Training
from stormpetrel.store.site import Site

WHY: Final = "the one in use was saved by an earlier version, in a format that is not read any more"
_HERE: Final = (ModelFamily.TRACES, ModelFamily.SYNTH)


def retrain_outdated(site: Site, *, progress: Progress = no_progress) -> list[str]:
    """Train again what an earlier version saved of traces and workloads; what came of each."""
    return [_retrain(site, training, progress) for training in outdated_trainings(site) if training.family in _HERE]


def _retrain(site: Site, training: Training, progress: Progress) -> str:
    try:
        made = FAMILIES[training.family].train_again(site, training, why=WHY, progress=progress)
    except StormpetrelError as error:  # too little is left to learn from, an extra is missing, or a person has to decide
        return f"{training.name} was saved by an earlier version and could not be trained again: {error}"
    return f"{made.name} is in use now in place of {training.name}: {WHY}"
