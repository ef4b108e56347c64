"""The four families of a site's models, by name: the one way to whatever can be done with any of them.

name of a family or of a training -> SiteFamily -> train, load, describe, promote, roll back. Nothing here imports what is heavy.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from stormpetrel.errors import UsageError
from stormpetrel.learn.model_record import TrainingRecord
from stormpetrel.lifecycle.event_models import EVENTS
from stormpetrel.lifecycle.family import SiteFamily
from stormpetrel.lifecycle.job_models import JOBS
from stormpetrel.lifecycle.trace_models import TRACES
from stormpetrel.lifecycle.workload_models import SYNTH
from stormpetrel.store.site import Site

FAMILIES: Final[Mapping[str, SiteFamily[Any]]] = MappingProxyType(
    {str(family.name): family for family in (JOBS, TRACES, EVENTS, SYNTH)}
)


def family_named(name: str) -> SiteFamily[Any]:
    """The family of this name; UsageError names the known ones."""
    if name not in FAMILIES:
        close = difflib.get_close_matches(name, FAMILIES, n=1)
        hint = f"Known: {', '.join(FAMILIES)}." + (f" Did you mean '{close[0]}'?" if close else "")
        raise UsageError(f"Unknown model family {name[:80]!r}.", hint=hint)
    return FAMILIES[name]


def describe_all(site: Site) -> list[TrainingRecord]:
    """Every training of every family, oldest first within its family."""
    return [family_named(training.family).described(site, training) for training in site.models.trainings()]


def describe_training(site: Site, name: str) -> TrainingRecord:
    """A training by its name; NotThereError where there is none."""
    training = site.models.training(name)
    return family_named(training.family).described(site, training)


def promote_training(site: Site, name: str, *, user: str | None = None) -> TrainingRecord:
    """Make a training of whatever family current, once its models have been read."""
    return family_named(site.models.training(name).family).promote(site, name, user=user)
