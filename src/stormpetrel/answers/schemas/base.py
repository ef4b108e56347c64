"""What every question and answer is: a frozen model with known fields.

pydantic builds a model when it is first used: a command that answers one question need not build those of all others. A service
builds all of them before it makes its routes (`build_models`): its first requests do not wait, and no two threads build one.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

IsoTime = Annotated[datetime, PlainSerializer(datetime.isoformat, return_type=str)]  # with its offset: +00:00, never Z


class Request(BaseModel):
    """What a program sends to have something judged or done: exactly the fields that are known, in their own types."""

    model_config = ConfigDict(defer_build=True, extra="forbid", strict=True, frozen=True)


class Question(BaseModel):
    """The parameters of a question: a misspelt one is an error, not ignored."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True)


class Answer(BaseModel):
    """What a program gets: every field, always. What a later version adds is left out by an older client.

    A field that is added after a release has a default, so that a newer client understands an older server: null, where nothing
    can be said in its place.
    """

    model_config = ConfigDict(defer_build=True, extra="ignore", frozen=True)

    def __getitem__(self, name: str) -> Any:
        """A field by its name in the JSON, as in `answer["risk"]`."""
        if name not in type(self).model_fields:
            raise KeyError(name)
        return getattr(self, name)


class FlatAnswer(Answer):
    """An answer with a part whose keys are not known beforehand; in JSON they stand next to the known ones, and win over them."""

    flat: ClassVar[str]  # the field with that part

    @model_serializer(mode="wrap")
    def _flatten(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        free: dict[str, Any] = fields.pop(self.flat, {})
        return fields | free

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, values: Any) -> Any:
        """Read what `_flatten` wrote: what is no field of its own belongs to the free part."""
        if not isinstance(values, dict) or cls.flat in values:
            return values
        own = {name: value for name, value in values.items() if name in cls.model_fields}
        return own | {cls.flat: {name: value for name, value in values.items() if name not in own}}


class SparseAnswer(Answer):
    """An answer of which some fields are in JSON only where somebody has requested them; null means that nobody has."""

    where_asked: ClassVar[frozenset[str]]

    @model_serializer(mode="wrap")
    def _leave_out(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        return {name: value for name, value in fields.items() if value is not None or name not in self.where_asked}


class Problem(Answer):
    """What went wrong, and what to do about it."""

    what: str = Field(description="what happened", examples=["There is no job 12345 that you may see."])
    hint: str = Field(description="what to do next; may be empty", examples=["Look for it in the table of jobs."])


class ErrorAnswer(Answer):
    """The answer of every request that was not done."""

    error: Problem


def build_models() -> None:
    """Build every model of the modules that are imported, and let what is made of them be built at once."""
    waiting: list[type[BaseModel]] = [Request, Question, Answer]
    while waiting:
        model = waiting.pop()
        model.model_config["defer_build"] = False
        model.model_rebuild()
        waiting += model.__subclasses__()
