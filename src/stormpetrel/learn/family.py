"""The contract that every family of models keeps on a site: train, load, describe, promote, roll back.

Here stands what can be asked of a family; `lifecycle/` has one implementation per family, and knows what a site is. Whoever
lists, replaces or repairs models asks a `Family`, and need not know which one it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Final, Generic, TypeVar

from stormpetrel.engine import Progress, no_progress
from stormpetrel.learn.model_record import TrainingRecord
from stormpetrel.records.model_families import ModelFamily

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
