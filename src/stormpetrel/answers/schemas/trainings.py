"""Models that were trained together, and which are in use."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field, JsonValue

from stormpetrel.answers.schemas.base import Answer


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


class TrainingInFull(Training):
    """A training with its models."""

    models: list[Model]


class Trainings(Answer):
    """Every training that is kept, newest first."""

    trainings: list[Training]
