"""Tokens: whose they are, what they may do, and until when. The token itself is told once, to who makes it."""

from __future__ import annotations

from pydantic import Field

from stormpetrel.answers.schemas.base import Answer, IsoTime, Request


class NewToken(Request):
    """A token to be made."""

    name: str = Field(examples=["grafana"])
    user: str = Field(description="whose jobs it shows; all, if an administrator's")
    scopes: list[str] = Field(default=["read"], description="read, predict, write or manage")
    days: int = Field(default=90, ge=1, le=36_500, description="for which it is valid")


class NewTokenReceipt(Answer):
    """A token that was made; this is the only time that it can be read."""

    name: str
    user: str
    scopes: list[str]
    days: int
    token: str = Field(repr=False)


class TokenLine(Answer):
    """What is kept of a token."""

    name: str
    user: str
    scopes: list[str]
    created: IsoTime
    expires: IsoTime | None = Field(description="null: never")
    expired: bool


class Tokens(Answer):
    """Every token, also those past their time, by name."""

    tokens: list[TokenLine]


class RevokedToken(Answer):
    """A token that is worthless now."""

    revoked: str
