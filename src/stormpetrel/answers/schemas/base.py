"""What every question and answer is: a frozen model with known fields."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

IsoTime = Annotated[datetime, PlainSerializer(datetime.isoformat, return_type=str)]  # with its offset: +00:00, never Z


class Request(BaseModel):
    """What a program sends to have something judged or done: exactly the fields that are known, in their own types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Question(BaseModel):
    """The parameters of a question: a misspelt one is an error, not ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Answer(BaseModel):
    """What a program gets: every field, always. What a later version adds is left out by an older client.

    A field that is added after a release has a default, so that a newer client understands an older server: null, where nothing
    can be said in its place.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    def __getitem__(self, name: str) -> Any:
        """A field by its name in the JSON, as in `answer["risk"]`."""
        if name not in type(self).model_fields:
            raise KeyError(name)
        return getattr(self, name)


class Problem(Answer):
    """What went wrong, and what to do about it."""

    what: str = Field(description="what happened", examples=["There is no job 12345 that you may see."])
    hint: str = Field(description="what to do next; may be empty", examples=["Look for it in the table of jobs."])


class ErrorAnswer(Answer):
    """The answer of every request that was not done."""

    error: Problem
