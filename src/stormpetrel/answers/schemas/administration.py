"""Administration as JSON: setup, SQL, tokens, upkeep, the report."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer

from stormpetrel.answers.schemas.base import Answer, IsoTime, Question, Request
from stormpetrel.answers.schemas.registry import CompactedTable


class NewSite(Question):
    """What is said about a new site; what is left out is found on this machine."""

    time_zone: str = Field(default="", description="of the times that the scheduler prints; empty: that of this machine")
    cluster: str = Field(default="", description="of records that do not name theirs; empty: as Slurm says")
    state_dir: str = Field(default="", description="a local folder for the state; empty: the site's own")


class SiteReceipt(Answer):
    """A new site, and what there is around it."""

    site: str = Field(description="its folder")
    time_zone: str
    cluster: str
    found: list[str] = Field(description="a line about each thing that was looked for on this machine")
    machine_time_zone: str = Field(default="", exclude=True)
    has_slurm: bool = Field(default=False, exclude=True)
    event_log: str = Field(default="", exclude=True, description="of HTCondor; empty: none was found")


class Restoration(Question):
    """Where the state of a restored site goes; into its own folder, where neither is said."""

    state_url: str = Field(default="", description="a PostgreSQL, postgresql://…")
    state_dir: str = Field(default="", description="a folder on a local disk")


class NamedOutside(Answer):
    """A setting that names something outside of the site; nothing of it was run, opened or queried."""

    kind: str = Field(description="command, server, file or trust")
    name: str = Field(examples=["slurm.sacct"])
    value: str


class RestoreReceipt(Answer):
    """A site that was made out of a backup."""

    site: str = Field(description="its folder")
    jobs: int
    outside: list[NamedOutside] = Field(description="what its settings reach: to be looked at before anything is started")


def json_cell(value: Any) -> str | int | float | bool | None:
    """A value of a table as JSON has it: times and lists as text, null for a number that is none."""
    if isinstance(value, float) and not isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)


Cell = Annotated[Any, PlainSerializer(json_cell)]


class SqlQuestion(Question):
    """One query, which can only read."""

    query: str = Field(examples=["select state, count(*) n from jobs group by state"])
    limit: int | None = Field(default=None, ge=1, description="rows at most; null: all")
    files: bool = Field(default=False, description="whether it may read files of this machine")


class SqlAnswer(Answer):
    """Rows of a query, or the tables with their columns."""

    columns: list[str]
    rows: list[dict[str, Cell]]
    is_cut: bool = Field(default=False, description="whether there are more rows than were asked for")


class NewToken(Request):
    """A token to be made."""

    name: str = Field(examples=["grafana"])
    user: str = Field(description="whose jobs it shows; all, if an administrator's")
    scopes: list[str] = Field(default=["read"], description="read, predict, write, ingest, act or manage")
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


class ReportOrder(Question):
    """What a report is about, and where it goes."""

    target: Path = Field(description="the HTML file")
    title: str = Field(default="", description="empty: made of what it is about")
    files: list[str] = Field(default=[], description="the logs that its jobs were read from; empty: those of the site")
    quick: bool = Field(default=False, description="the latest 20,000 jobs and fewer models")
    complete: bool = Field(default=False, description="also what is in no published study and takes long: ablation, cancelling")
    campaigns: list[Path] = Field(default=[], description="trace campaigns of which the study is told as well")
    trace_models: Path | None = Field(default=None, description="folder of the models that were judged on them")


class ReportReceipt(Answer):
    """The file that was written."""

    file: str
    bytes: int
    jobs: int = Field(description="0: it is not about jobs")
    sections: list[str] = Field(description="their titles, in order, without the inventory before them")
    seconds: float = Field(description="of wall time, from the first section to the file")
