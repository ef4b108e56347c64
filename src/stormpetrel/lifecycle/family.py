"""What the families have in common on a site: reading before anything changes, putting in use, going back, telling what there is.

SiteFamily + registry -> train, load, describe, promote, roll_back. A family adds how it trains (`train_and_enter`), how its
models are read (`read`), which formats they have (`formats`), and how one is described (`rows_of`, `summary_of`).
"""

from __future__ import annotations

import getpass
import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from stormpetrel.engine import Progress, no_progress
from stormpetrel.errors import ModelError, ModelFormatError, ModelOutdatedError, StormpetrelError
from stormpetrel.learn.family import BY_HAND, DataWindow, Family, ModelRecord, Promotion, Role, TrainingRecord, Unit
from stormpetrel.learn.saving import format_problem, saved_format
from stormpetrel.records.model_families import how_to_train
from stormpetrel.records.times import moment_of
from stormpetrel.store.registry.models import ModelVersion, Training
from stormpetrel.store.site import Site

ModelT = TypeVar("ModelT")


def operator() -> str:
    """Who runs this process, for the audit trail."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container whose user has no name
        return f"uid {os.getuid()}"


def incomplete_entry(training: Training) -> ModelFormatError:
    """The error of a training whose registry entry lacks something, or has something else in its place."""
    return ModelFormatError(f"What the registry knows of {training.name} is not whole.", hint=how_to_train(training.family))


@dataclass(frozen=True, slots=True)
class TrainingRequest:
    """What is to be trained, why, and who asked for it; `sort` is one of the family's sorts of models, None the usual one."""

    sort: str | None
    why: str
    user: str
    progress: Progress


class SiteFamily(Family[Site, ModelT]):
    """A family on a site, with its models in the site's registry."""

    unit: ClassVar[Unit]
    metrics: ClassVar[tuple[str, ...]]  # those entries of the registry that tell how good a model is
    taken_up_by_watch: ClassVar[bool] = False  # whether a running watch takes up another training by itself

    @abstractmethod
    def train_and_enter(self, site: Site, request: TrainingRequest) -> str:
        """Train on what the site has, save it and make it current; the name of the training."""

    @abstractmethod
    def formats(self) -> Mapping[str, int]:
        """The format that each kind of its models is read in."""

    @abstractmethod
    def read(self, site: Site, training: Training) -> ModelT:
        """The models of a training out of their folders, checked; ModelError where one is missing or damaged."""

    @abstractmethod
    def rows_of(self, about: Mapping[str, Any]) -> int:
        """How many rows a model learnt from; 0 where the registry does not say."""

    def since_of(self, about: Mapping[str, Any]) -> object:
        """When the first of them was, as ISO text; None where the registry does not say."""
        return about.get("since")

    @abstractmethod
    def summary_of(self, model: ModelVersion) -> str:
        """What a model learnt from and what it does, in a few words."""

    def without_model(self, site: Site) -> ModelT:
        """What a site without a model of its own uses; ModelError where there is nothing."""
        raise ModelError(f"The site has no model of its {self.name} yet.", hint=how_to_train(self.name))

    def role_of(self, model: ModelVersion) -> Role:
        """Whether it is the model that is asked."""
        return Role.BESIDE if model.about.get("role") else Role.MODEL

    def in_order(self, training: Training) -> Sequence[ModelVersion]:
        """The models of a training in the order in which people read them."""
        return training.models

    def train(
        self,
        site: Site,
        sort: str | None = None,
        *,
        why: str = BY_HAND,
        user: str | None = None,
        progress: Progress = no_progress,
    ) -> TrainingRecord:
        """Train what `sort` names, save it and make it current."""
        return self.describe(site, self.train_and_enter(site, TrainingRequest(sort, why, user or operator(), progress)))

    def load(self, site: Site, training: str | None = None) -> ModelT:
        """The models of a training, or those in use."""
        chosen = site.models.current_training(self.name) if training is None else self._own(site, training)
        return self.without_model(site) if chosen is None else self.read(site, chosen)

    def promote(self, site: Site, training: str, *, user: str | None = None) -> TrainingRecord:
        """Read the models of a training, then make them current."""
        self.read(site, self._own(site, training))
        site.models.promote_training(training, user=user or operator())
        return self.describe(site, training)

    def roll_back(self, site: Site, *, user: str | None = None) -> TrainingRecord:
        """Read the models that were in use before, then make them current again."""
        self.read(site, site.models.before_current(self.name))
        return self.describe(site, site.models.rollback(self.name, user=user or operator()).name)

    def train_again(self, site: Site, training: Training, *, why: str, progress: Progress = no_progress) -> TrainingRecord:
        """Train the same sort of model as a training has, on what the site has now; nothing of the old one is read."""
        return self.train(
            site, self.sort_of(training), why=why, progress=lambda share, message: progress(share, f"{self.name}: {message}")
        )

    def sort_of(self, training: Training) -> str:
        """The sort of the model that is asked."""
        entry = next((model for model in training.models if self.role_of(model) is Role.MODEL), training.models[0])
        return entry.name.removeprefix(f"{self.name}-")

    def describe(self, site: Site, training: str) -> TrainingRecord:
        """Everything that registry, folders and audit trail know about a training."""
        return self.described(site, self._own(site, training))

    def described(self, site: Site, training: Training, *, in_full: bool = True) -> TrainingRecord:
        """The same of an entry that is there already; without folders and audit trail (`in_full`) it takes no time."""
        put = training.promoted
        user = site.models.promoted_by(training.name) if put and in_full else None
        return TrainingRecord(
            family=str(self.name),
            name=training.name,
            models=tuple(self._model(site, training, model, in_full) for model in self.in_order(training)),
            created=training.created,
            trained_until=training.trained_until,
            why=training.why,
            previous=training.previous,
            promotion=None if put is None else Promotion(put["time"], put["action"], user),
            problem=_as_text(self.format_problem(site, training)) if in_full else None,
        )

    def problem(self, site: Site, training: Training) -> str | None:
        """Why a training cannot be used; None where all of its models can be read."""
        try:
            self.read(site, training)
        except StormpetrelError as error:
            return error.what
        return None

    def format_problem(self, site: Site, training: Training) -> ModelError | None:
        """Why the format of one of a training's models is not read; None where all are, or a folder cannot be looked at."""
        for model in training.models:
            try:
                problem = format_problem(site.models.folder_of(model.name, model.version), self.formats())
            except ModelError:  # missing or damaged: whoever loads it says so
                continue
            if problem is not None:
                return problem
        return None

    def _own(self, site: Site, name: str) -> Training:
        training = site.models.training(name)
        if training.family != self.name:
            raise ModelError(f"{name} is no training of {self.name}.", hint="See which there are: stormpetrel models list")
        return training

    def _model(self, site: Site, training: Training, model: ModelVersion, in_full: bool) -> ModelRecord:
        about = model.about
        seed, code = about.get("seed"), about.get("code_version")
        return ModelRecord(
            family=str(self.name),
            name=model.name,
            version=model.version,
            created=model.created,
            current=model.current,
            role=self.role_of(model),
            data=self._data(training, about),
            code_version="" if code is None else str(code),
            seed=seed if isinstance(seed, int) else None,
            metrics={name: about[name] for name in self.metrics if name in about},
            saved=saved_format(site.models.folder_of(model.name, model.version)) if in_full else None,
            summary=self.summary_of(model),
            about=about,
        )

    def _data(self, training: Training, about: Mapping[str, Any]) -> DataWindow:
        until, since, version = about.get("trained_until"), self.since_of(about), about.get("table_version")
        return DataWindow(
            rows=self.rows_of(about),
            unit=self.unit,
            since=None if since is None else moment_of(str(since)),
            until=training.trained_until if until is None else moment_of(str(until)),
            table_version=version if isinstance(version, int) else None,
        )


def _as_text(problem: ModelError | None) -> str | None:
    if problem is None:
        return None
    outdated = isinstance(problem, ModelOutdatedError)
    return "saved by an earlier version: to be trained again" if outdated else "saved by a newer version: cannot be used"
