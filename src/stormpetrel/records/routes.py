"""Routes: who is notified of incidents, of which kind, when, and what may be named.

[[notify.routes]] of site.toml -> Route, checked: what cannot work is refused with the key that is wrong.
"""

from __future__ import annotations

import re
from datetime import datetime, time
from typing import Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

ALERTMANAGER: Final = "alertmanager"
WEBHOOK: Final = "webhook"
EMAIL: Final = "email"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,23}")
_HOURS: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
_MAILBOX: Final = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*")
_HOST: Final = re.compile(r"[A-Za-z0-9._:-]+")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_OF_EMAIL: Final = ("host", "sender", "recipients")
_OF_HTTP: Final = ("url", "url_file", "template")


class Route(BaseModel):
    """One way to people: a receiver, and what it is sent."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: str = Field(description="how the route is called: small letters, digits and hyphens, at most 24")
    kind: Literal["alertmanager", "webhook", "email"] = Field(
        description="what receives: an Alertmanager, a URL, or people by mail"
    )
    severity: Literal["info", "warning", "page"] = Field(
        default="page", description="incidents of at least this severity are told"
    )
    families: list[Literal["jobs", "traces", "events", "system"]] = Field(
        default=[], description="which watchers' incidents are told; empty: all"
    )
    quiet_hours: str = Field(
        default="", description='hours in which nothing is sent, in the site\'s zone, such as "22:00-07:00"; empty: none'
    )
    quiet_pages: bool = Field(default=True, description="whether incidents of severity page are sent in quiet hours as well")
    per_hour: int = Field(
        default=20, ge=0, le=1000, description="deliveries in any hour; what is above waits for a digest; 0: no limit"
    )
    digest_minutes: float = Field(
        default=30.0,
        ge=0,
        le=1440,
        description="of several messages that wait, all go out as one once the oldest has waited so long",
    )
    names: bool = Field(
        default=True, description="whether names of users, jobs and applications may leave the site; else they are left out"
    )
    url: str = Field(default="", description="alertmanager: https://host:9093, webhook: where to post to")
    url_file: str = Field(
        default="", description="file (mode 0600) with that address, where it is itself a secret, as Slack's is"
    )
    host: str = Field(default="", description="email: the mail server")
    port: int = Field(default=25, ge=1, le=65535, description="email: its port")
    tls: Literal["starttls", "tls", "none"] = Field(
        default="starttls", description="email: how the connection is encrypted; none is for a mail server without a password"
    )
    sender: str = Field(default="", description="email: the address that it comes from")
    recipients: list[str] = Field(default=[], description="email: the addresses that it goes to")
    user: str = Field(default="", description="user name that goes with a password; empty: the secret is a bearer token")
    secret_file: str = Field(default="", description="file (mode 0600) with the token or password; never the secret itself")
    ca_file: str = Field(default="", description="certificate authority of a receiver that the system does not know")
    template: str = Field(default="", description="webhook: JSON file of the body; empty: what Slack and Mattermost understand")
    timeout_s: float = Field(default=10.0, gt=0, le=120, description="an attempt that takes longer has failed, and is made again")

    @field_validator("name")
    @classmethod
    def _plain_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise ValueError("expected small letters, digits and hyphens, at most 24, such as ops-mail")
        return name

    @field_validator("quiet_hours")
    @classmethod
    def _two_times(cls, hours: str) -> str:
        if hours and (not _HOURS.fullmatch(hours) or hours[:5] == hours[6:]):
            raise ValueError("expected two times of a day, such as 22:00-07:00")
        return hours

    @field_validator("url")
    @classmethod
    def _address(cls, url: str) -> str:
        if url:
            check_address(url)
        return url

    @field_validator("sender", "recipients")
    @classmethod
    def _mailboxes(cls, boxes: str | list[str]) -> str | list[str]:
        for box in [boxes] if isinstance(boxes, str) else boxes:
            if box and not is_mailbox(box):
                raise ValueError("expected plain addresses, such as ops@example.org")
        return boxes

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        is_mail = self.kind == EMAIL
        foreign = [key for key in (_OF_HTTP if is_mail else _OF_EMAIL) if getattr(self, key)]
        if self.kind == ALERTMANAGER and self.template:
            foreign.append("template")
        if foreign:
            raise ValueError(f"route '{self.name}' is of kind {self.kind}, which has no {foreign[0]}; leave it out")
        missing = [key for key in _OF_EMAIL if is_mail and not getattr(self, key)]
        if missing:
            raise ValueError(f"route '{self.name}' is of kind email and has no {missing[0]}; expected host, sender, recipients")
        if not is_mail and bool(self.url) == bool(self.url_file):
            raise ValueError(f"route '{self.name}' needs an address; expected either url or url_file")
        self._check_mail()
        if self.user and not self.secret_file:
            raise ValueError(f"route '{self.name}' has a user and no password; expected a secret_file")
        return self

    def _check_mail(self) -> None:
        if self.kind != EMAIL:
            return
        if not _HOST.fullmatch(self.host):
            raise ValueError(f"route '{self.name}': host is no name of a server; expected such as mail.example.org")
        if self.secret_file and not self.user:
            raise ValueError(f"route '{self.name}' has a password and no user; expected both")
        if self.secret_file and self.tls == "none" and self.host not in _LOOPBACK:
            raise ValueError(f"route '{self.name}' would send its password unencrypted; expected tls = starttls or tls")

    def is_quiet(self, local: datetime) -> bool:
        """Whether a moment, in the site's zone, lies in the quiet hours; their end does not."""
        if not self.quiet_hours:
            return False
        begin, end = (time.fromisoformat(part) for part in self.quiet_hours.split("-"))
        now = local.time().replace(tzinfo=None)
        return begin <= now < end if begin < end else now >= begin or now < end


def is_mailbox(text: str) -> bool:
    """Whether a text is one plain address of mail."""
    return _MAILBOX.fullmatch(text) is not None


def check_address(url: str) -> None:
    """ValueError where a text is no address of a web server that can be posted to, or has a password in it."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable() or " " in url:
        raise ValueError("expected an address such as https://host:9093")
    if parts.username or parts.password:
        raise ValueError("a user or password in an address ends in logs; expected user and secret_file beside it")


def shown_address(url: str) -> str:
    """The part of an address that is no secret: the path of a webhook often is one."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
