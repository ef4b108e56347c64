"""What a person keeps: opinions on advice, saved views."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from stormpetrel.answers.schemas.base import Answer, Request
from stormpetrel.answers.schemas.jobs import REF_EXAMPLE, Ref


class OpinionAct(Request):
    """Whether a piece of advice was useful."""

    job: Ref = Field(description="the job's `ref`", examples=[REF_EXAMPLE])
    advice: str = Field(
        min_length=1,
        max_length=2000,
        pattern=r"\S",
        description="the sentence of the advice",
        examples=["Ask for 4 GB of memory next time."],
    )
    useful: bool


class OpinionReceipt(Answer):
    """The opinion as it was kept; a later one on the same advice replaces it."""

    job: str
    advice: str
    useful: bool


class ViewAct(Request):
    """Where a saved view leads."""

    # A path of our own pages in printable ASCII; `//host` and backslashes lead elsewhere.
    link: Annotated[str, StringConstraints(max_length=2000, pattern=r"^/([!-.0-\[\]-~][!-\[\]-~]*)?$")] = Field(
        description="a path of the dashboard with its query", examples=["/jobs?user=ada"]
    )


class View(Answer):
    """A link that you gave a name."""

    name: str
    link: str


class Views(Answer):
    """Your saved views, by name."""

    views: list[View]
