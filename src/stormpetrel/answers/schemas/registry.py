"""The registry of models as `stormpetrel models … --json` and `nightly --json` print it; times as ISO 8601 with their offset."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from pydantic import Field, JsonValue

from stormpetrel.answers.schemas.base import Answer, FlatAnswer, IsoTime
from stormpetrel.answers.schemas.history import WorkingPointLine


class PutInUse(Answer):
    """When a training was last put in use, and by what command; who did it stays in the audit trail."""

    time: str = Field(description="ISO 8601")
    action: str = Field(examples=["models promote"])


class RegisteredTraining(Answer):
    """Models of any family that were trained together and are used together."""

    training: str = Field(examples=["jobs-7"])
    created: str = Field(description="ISO 8601")
    trained_until: IsoTime = Field(description="nothing that came later was known")
    jobs: int = Field(description="how many jobs it learnt from; 0 where it learnt from something else")
    windows: int
    buckets: int
    current: bool = Field(description="whether these are the models in use")
    previous: str | None = Field(description="what was in use before it")
    why: str = Field(description="why it was put in use, or why not")
    promoted: PutInUse | None = Field(description="null where it never was in use, or nobody noted it")
    models: dict[str, int] = Field(description="version of each model")
    comparisons: dict[str, dict[str, Any]] = Field(description="by model: its figures beside those of the model in use then")
    family: str
    sort: str = Field(description="which sort of model of its family", examples=["submit"])
    learnt_from: str = Field(examples=["12,000 jobs"])
    shadow: str | None = Field(default=None, description="how it does beside the model in use; null where it is not in shadow")


class ListedTraining(RegisteredTraining):
    """A training in the list."""

    problem: str | None = Field(description="why this version of Stormpetrel cannot read it")


class RegisteredTrainings(Answer):
    """Every training of every family, oldest first within its family."""

    trainings: list[ListedTraining]


class ShownTraining(RegisteredTraining):
    """A training with everything that is kept of its models."""

    about: dict[str, dict[str, Any]] = Field(description="by model")
    summaries: dict[str, str] = Field(description="by model: what it learnt from and what it does")
    working_points: list[WorkingPointLine] = Field(default=[], description="where flags begin now, of models of jobs in use")


class ModelVersionLine(FlatAnswer):
    """One version of a model; what the registry keeps of it stands next to its name in JSON."""

    flat: ClassVar[str] = "about"
    name: str
    version: int
    created: str = Field(description="ISO 8601")
    current: bool
    about: dict[str, Any] = Field(description="everything that the registry keeps of it")
    summary: str = Field(default="", exclude=True, description="what it learnt from and what it does")


class ModelVersions(Answer):
    """Every version of one model, oldest first."""

    versions: list[ModelVersionLine]


class PromotionReceipt(RegisteredTraining):
    """The training that is in use now."""

    before: str | None = Field(description="what was in use before; null where nothing changed, or nothing was")
    changed: bool
    taken_up: bool = Field(description="whether a running watch takes it up by itself")


class TrainedModel(FlatAnswer):
    """A model that was trained and put in use; in JSON its figures stand next to its name."""

    flat: ClassVar[str] = "about"
    name: str
    version: int
    created: str = Field(description="ISO 8601")
    about: dict[str, Any] = Field(description="its figures, and what it was trained on")


class NewTraining(FlatAnswer):
    """A training that was put in use, and the model of it that answers; in JSON the model's figures stand next to its name."""

    flat: ClassVar[str] = "about"
    training: str = Field(examples=["events-3"])
    name: str
    version: int
    about: dict[str, Any] = Field(description="its figures, and what it was trained on")


class TrainingReceipt(Answer):
    """The models of one training; `jobs train --json` prints them as a list."""

    models: list[TrainedModel]
    missing: list[str] = Field(
        default=[], description="what the models lack that could not be trained, a part of a sentence each"
    )


class MomentComparison(Answer):
    """A new model against the one in use at one moment, on the same jobs; lower log loss is better."""

    moment: str
    jobs: int
    failed: int
    log_loss: float
    log_loss_current: float
    difference_low: float
    difference_high: float
    pr_auc: float | None
    pr_auc_current: float | None
    ece: float
    ece_current: float
    large_groups: int = Field(description="users with many judged jobs")
    worse_groups: int = Field(description="those of them for whom the new model is worse beyond noise")
    learn_days: float = Field(description="days that the new model learnt from; 0: everything")


class CompactedTable(Answer):
    """What compaction did to one table."""

    table: str
    files_before: int
    files_after: int
    removed: int


class ShadowReceipt(Answer):
    """A training that runs in shadow now, or no longer."""

    training: str = Field(examples=["jobs-7"])
    family: str
    runs: bool


class RepeatReceipt(Answer):
    """A training that was repeated from its record, compared file by file; nothing was entered."""

    training: str = Field(examples=["jobs-7"])
    same: bool = Field(description="whether every file of every model came out the same")
    why: str = Field(description="what differs, or that nothing does")
    files: dict[str, dict[str, bool]] = Field(description="by model and file: whether it came out the same")
    skipped: list[str] = Field(description="models that had been copied from an earlier training")
    seconds: float
    cpu_s: float
    peak_bytes: int


class FamilyNightLine(Answer):
    """What a night came to for one family, and what that took."""

    family: str
    sentence: str = Field(description="what happened and why, for people")
    promoted: bool
    why: str
    training: str | None = Field(description="the new training, in use or not")
    previous: str | None = Field(description="what was in use before")
    challengers: list[dict[str, Any]] = Field(description="figures of each on the same data; of jobs, of each moment")
    seconds: float
    cpu_s: float = Field(description="seconds of the processors")
    peak_bytes: int = Field(description="the most memory that the process held until then")


class NightlyReceipt(Answer):
    """What a night came to."""

    promoted: bool = Field(description="whether a new training of job models is in use now")
    why: str
    training: str | None = Field(description="the new training, in use or not")
    previous: str | None = Field(description="what was in use before")
    comparisons: list[MomentComparison]
    events: str | None = Field(description="what became of the models of events; null where the site counts none")
    families: list[FamilyNightLine] = Field(description="of the families that the site has data or a model of")
    reconciled: str | None = Field(default=None, description="what accounting says of the jobs that jobcomp reported")
    outdated: list[str] = Field(description="a sentence for each model that an earlier version had saved")
    shadows: list[str] = Field(default=[], description="a sentence for each challenger in shadow")
    deleted_jobs: int
    deleted_trainings: list[str]
    compacted: list[CompactedTable]
    keep_days: int = Field(description="jobs that are older are deleted; 0: none are")


class Model(Answer):
    """One version of one model."""

    name: str = Field(examples=["jobs-submit"])
    version: int
    current: bool
    about: dict[str, JsonValue] = Field(description="its figures, and what it was trained on")


class Training(Answer):
    """Models that were trained together and are used together."""

    name: str = Field(examples=["jobs-7"])
    current: bool = Field(description="whether these are the models in use")
    created: datetime
    trained_until: datetime = Field(description="up to when the jobs were known that it learnt from")
    why: str = Field(description="why it was put in use, or why not")
    previous: str | None = Field(description="what was in use before it")
    versions: dict[str, int] = Field(description="version of the model of each moment", examples=[{"submit": 7, "start": 7}])
    jobs: int | None = Field(description="how many jobs it learnt from")
    code_version: str = Field(description="of Stormpetrel, when it was trained")
    shadow: str | None = Field(default=None, description="how it does beside the model in use; null where it is not in shadow")
    compute: str | None = Field(default=None, description="what the training took, in words")


class TrainingInFull(Training):
    """A training with its models."""

    models: list[Model]


class Trainings(Answer):
    """Every training that is kept, newest first."""

    trainings: list[Training]
