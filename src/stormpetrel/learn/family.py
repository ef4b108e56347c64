"""The contract that every family of models keeps on a site: train, load, describe, promote, roll back.

Here stands what can be asked of a family; `lifecycle/` has one implementation per family, and knows what a site is. Whoever
lists, replaces or repairs models asks a `Family`, and need not know which one it is. A TrainingRecord is all that is known of
a training: data window and table version, code version, seed, settings, figures, digests, and who promoted it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, Final, Generic, TypeVar

from stormpetrel.engine import Progress, no_progress
from stormpetrel.records.model_families import ModelFamily


class Unit(StrEnum):
    """What the rows are that a model learns from."""

    JOBS = "jobs"
    WINDOWS = "windows"
    BUCKETS = "buckets"


class Role(StrEnum):
    """What a model does within its training."""

    MODEL = "model"  # the one that is asked
    BESIDE = "beside"  # one that the others need: profiles of requests, the forecast next to a score


@dataclass(frozen=True, slots=True)
class DataWindow:
    """What a model learnt from: how many rows, of which span, of which version of the site's table."""

    rows: int
    unit: Unit
    since: datetime | None  # None: from the first row on, or nobody noted it
    until: datetime  # nothing that came later was known
    table_version: int | None  # None: not learnt from a table of the site

    def words(self) -> str:
        """How much it was: `12,000 jobs`."""
        return f"{self.rows:,} {self.unit}"


@dataclass(frozen=True, slots=True)
class SavedFormat:
    """What a model's folder says of its files: the kind of model, its format, its settings, a digest of everything."""

    kind: str
    format_version: int
    digest: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Promotion:
    """When a training was last put in use, by what command, and by whom."""

    time: str  # ISO
    action: str  # such as `models promote`
    user: str | None  # None: nobody noted it, the user was forgotten, or the audit trail was not looked at


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """One version of one model."""

    family: str
    name: str  # jobs-submit
    version: int
    created: str  # ISO
    current: bool
    role: Role
    data: DataWindow
    code_version: str  # of Stormpetrel; empty: nobody noted it
    seed: int | None
    metrics: Mapping[str, Any]
    saved: SavedFormat | None  # None where the folder is missing, damaged, or was not looked at
    summary: str  # what it learnt from and what it does, in a few words
    about: Mapping[str, Any]  # everything that the registry keeps of it, as it is kept

    @property
    def sort(self) -> str:
        """Which sort of model of its family: `submit`, `vanilla`, `combined`, `sessions`."""
        return self.name.removeprefix(f"{self.family}-")


@dataclass(frozen=True, slots=True)
class TrainingRecord:
    """Models that were trained together and are used together, under a name such as `jobs-7`."""

    family: str
    name: str
    models: tuple[ModelRecord, ...]  # in the order in which people read them
    created: str  # ISO
    trained_until: datetime
    why: str  # it was put in use, or was not: one sentence for people
    previous: str | None  # what was in use before it
    promotion: Promotion | None  # None where it never was in use, or nobody noted it
    problem: str | None  # why this version of Stormpetrel cannot read it, in a few words; None also where nobody looked

    @property
    def current(self) -> bool:
        """Whether these are the models in use."""
        return all(model.current for model in self.models)

    @property
    def main(self) -> ModelRecord:
        """The model that is used; the others support it."""
        return next((model for model in self.models if model.role is Role.MODEL), self.models[0])

    @property
    def data(self) -> DataWindow:
        """What the model learnt from that learnt from most."""
        return max((model.data for model in self.models), key=lambda data: data.rows)

    @property
    def comparisons(self) -> dict[str, Mapping[str, Any]]:
        """By model: its figures and those of the model that was in use, on the same rows; empty where it was not compared."""
        return {model.name: model.about["comparison"] for model in self.models if "comparison" in model.about}


SiteT = TypeVar("SiteT")
ModelT = TypeVar("ModelT")

BY_HAND: Final = "trained by hand"


class Family(ABC, Generic[SiteT, ModelT]):
    """One family: jobs, traces, events or synth. It has no state of its own."""

    name: ClassVar[ModelFamily]

    @abstractmethod
    def train(
        self,
        site: SiteT,
        sort: str | None = None,
        *,
        why: str = BY_HAND,
        user: str | None = None,
        progress: Progress = no_progress,
    ) -> TrainingRecord:
        """Train on what the site has, save it and make it current; a training that is killed changes nothing.

        `sort` is one of the family's sorts of models; None is what the site's settings say. ModelError where there is too little
        to learn from. `user` is for the audit trail; None is who runs this process.
        """

    @abstractmethod
    def load(self, site: SiteT, training: str | None = None) -> ModelT:
        """The models of a training, read and checked, or those in use; ModelError says what is wrong or how to make one."""

    @abstractmethod
    def describe(self, site: SiteT, training: str) -> TrainingRecord:
        """Everything that is known about a training; its files need not be readable."""

    @abstractmethod
    def promote(self, site: SiteT, training: str, *, user: str | None = None) -> TrainingRecord:
        """Make a training current; one whose models cannot be read is refused before anything changes."""

    @abstractmethod
    def roll_back(self, site: SiteT, *, user: str | None = None) -> TrainingRecord:
        """Go back to the training that was in use before, unless its models cannot be read; which."""
