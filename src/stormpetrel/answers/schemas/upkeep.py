"""What looking after a site's memory came to, as `stormpetrel store … --json` and `doctor --repair --json` print it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stormpetrel.answers.schemas.base import Answer
from stormpetrel.answers.schemas.registry import CompactedTable


class CompactReceipt(Answer):
    """What compaction did to each table."""

    tables: list[CompactedTable]


class RetainReceipt(Answer):
    """What was too old to be kept."""

    deleted: int = Field(description="jobs")


class BackupReceipt(Answer):
    """A whole site in one file."""

    file: str
    bytes: int


class ForgetReceipt(Answer):
    """What was deleted about a user."""

    deleted: int = Field(description="jobs")
    future: Literal["kept", "refused"] = Field(description="what becomes of jobs to come")


class RepairReceipt(Answer):
    """What a repair came to, in sentences."""

    rebuilt: bool = Field(description="whether there is a new state")
    done: list[str]
    gone: list[str] = Field(description="what is lost")
