"""A site that was made, anew or out of a backup, as `stormpetrel init --json` and `store restore --json` print it."""

from __future__ import annotations

from pydantic import Field

from stormpetrel.answers.schemas.base import Answer, Question


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
    """A setting that names something outside of the site; nothing of it was run, opened or asked."""

    kind: str = Field(description="command, server, file or trust")
    name: str = Field(examples=["slurm.sacct"])
    value: str


class RestoreReceipt(Answer):
    """A site that was made out of a backup."""

    site: str = Field(description="its folder")
    jobs: int
    outside: list[NamedOutside] = Field(description="what its settings reach: to be looked at before anything is started")
