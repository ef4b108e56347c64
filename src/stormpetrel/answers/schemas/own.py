"""What a person keeps: opinions on advice, saved views, tokens."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from stormpetrel.answers.schemas.base import Answer, IsoTime, Request
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


_WORD = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


class OwnToken(Request):
    """A token of your own to be made."""

    name: str = Field(pattern=_WORD, description="what you call it", examples=["notebook"])
    scopes: list[Literal["read", "predict", "write", "ingest", "act", "manage"]] = Field(
        default=["predict", "read"], max_length=10, description="read, predict, write, act or manage: none that you do not have"
    )
    days: int = Field(default=30, ge=1, le=36_500, description="for which it is valid; the site sets the most")


class OwnTokenReceipt(Answer):
    """A token that was made; this is the only time that it can be read."""

    name: str
    scopes: list[str]
    days: int
    token: str = Field(repr=False)


class OwnTokenLine(Answer):
    """What is kept of a token."""

    name: str
    scopes: list[str]
    created: IsoTime
    expires: IsoTime | None = Field(description="null: never")
    expired: bool


class OwnTokens(Answer):
    """Your tokens, also those past their time, by name."""

    tokens: list[OwnTokenLine]


class RevokedOwnToken(Answer):
    """A token of yours that is worthless now."""

    revoked: str
