"""The families of models: what they are called in the registry and on the command line.

`jobs-submit` (a model), `jobs-7` (a training) -> family_of -> `jobs` -> train_command -> `stormpetrel jobs train`.
"""

from __future__ import annotations

from enum import StrEnum


class ModelFamily(StrEnum):
    """Whose models: of jobs, of CPU traces, of event counts, of whole workloads."""

    JOBS = "jobs"
    TRACES = "traces"
    EVENTS = "events"
    SYNTH = "synth"


def family_of(name: str) -> str:
    """The family that the registry keeps a model or a training under: what its name begins with."""
    return name.partition("-")[0]


def train_command(family: str) -> str:
    """The command that makes a model of a family."""
    return f"stormpetrel {family} {'fit' if family == ModelFamily.SYNTH else 'train'}"


def how_to_train(family: str) -> str:
    """The same as a sentence, for errors."""
    return f"{'Fit' if family == ModelFamily.SYNTH else 'Train'} one: {train_command(family)}"
