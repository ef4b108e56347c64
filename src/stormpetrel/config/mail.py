"""The section [mail] of site.toml: mail about jobs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from stormpetrel.config.servers import Section
from stormpetrel.records.routes import is_mailbox


class MailSection(Section):
    """Mail to users about their jobs, in place of Slurm's own."""

    spool: str = Field(
        default="", description="folder in which Slurm's MailProg leaves its calls; empty: mail about jobs is not ours to send"
    )
    route: str = Field(default="", description="the email route of [notify] whose server and sender are used; empty: no mail")
    domain: str = Field(default="", description="domain of recipients who are named without one, such as example.org")
    domains: list[str] = Field(default=[], description="the only domains that mail is sent to; empty: any")
    templates: str = Field(
        default="", description="folder with job.txt, array.txt, several.txt, plain.txt or digest.txt in place of ours"
    )
    per_hour: int = Field(
        default=20, ge=1, description="mails about jobs that one recipient gets in an hour; the rest is collected"
    )
    collect_minutes: float = Field(default=30.0, gt=0, description="what has waited so long is sent as one collecting mail")
    array_minutes: float = Field(
        default=30.0, gt=0, description="an array is summed up when its last task has ended, or this long after the last call"
    )
    wait_minutes: float = Field(
        default=5.0, ge=0, description="how long a mail waits for the job's accounting; then it says what is known"
    )
    settle_s: float = Field(
        default=20.0, ge=0, description="how long a mail waits at least: accounting is whole only some seconds after a job's end"
    )
    digest_day: Literal["", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"] = Field(
        default="monday", description="weekday of the digest, for users who want it; empty: this site sends none"
    )
    digest_hour: int = Field(default=7, ge=0, le=23, description="hour of that day, in the site's time zone")
    keep_days: int = Field(default=30, ge=8, description="what was sent or given up is deleted so many days later")

    @field_validator("domain")
    @classmethod
    def _is_domain(cls, domain: str) -> str:
        if domain and not is_mailbox(f"ada@{domain}"):
            raise ValueError("expected a domain, such as example.org")
        return domain

    @field_validator("domains")
    @classmethod
    def _are_domains(cls, domains: list[str]) -> list[str]:
        for domain in domains:
            cls._is_domain(domain)
        return [domain.lower() for domain in domains]
