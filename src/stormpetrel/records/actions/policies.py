"""Policies: what may be done about a job or a node, when, to whom, and how often.

[actions] and [[actions.policies]] of site.toml -> ActionsSection, Policy, checked. A policy that is listed runs dry: it decides
and keeps a ledger, and does nothing until an administrator arms it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from stormpetrel.records.findings import FindingKind
from stormpetrel.records.routes import is_mailbox

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_PATTERN: Final = re.compile(r"[A-Za-z0-9_.@*?-]{1,64}")
MOST_PER_HOUR: Final = 1000


class Action(StrEnum):
    """What can be done."""

    NOTIFY = "notify"  # the user is told
    HOLD = "hold"  # a waiting job is held
    CANCEL = "cancel"
    REQUEUE = "requeue"  # a job leaves a sick node and starts again elsewhere
    DRAIN = "drain"  # nothing more starts on a node


OF_RISK: Final = frozenset({Action.NOTIFY, Action.HOLD, Action.CANCEL})  # decided by a prediction; the others by an incident
_MOMENTS: Final = {Action.NOTIFY: "start", Action.HOLD: "submit", Action.CANCEL: "2min"}
_MOMENTS_ALLOWED: Final = {
    Action.NOTIFY: ("submit", "start", "2min"),
    Action.HOLD: ("submit",),
    Action.CANCEL: ("start", "2min"),
}


class Policy(BaseModel):
    """One rule by which something is done without a person."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: str = Field(description="how the policy is called: small letters, digits and hyphens, at most 32")
    action: Literal["notify", "hold", "cancel", "requeue", "drain"] = Field(
        description="what is done: notify the user, hold a waiting job, cancel a job, requeue it elsewhere, drain a node"
    )
    moment: Literal["", "submit", "start", "2min"] = Field(
        default="", description="notify, hold, cancel: at which prediction; empty: notify start, hold submit, cancel 2min"
    )
    tau: float = Field(
        default=0.0, ge=0, le=1, description="notify, hold, cancel: the risk from which it is done; 0: that of the model's flag"
    )
    kinds: list[str] = Field(
        default=[FindingKind.NODE_EATS_JOBS.value],
        description="requeue, drain: kinds of findings about a node that it is done for, where the node is suspected",
    )
    partitions: list[str] = Field(default=[], description="allow-list: jobs of these partitions only, such as debug or gpu*")
    users: list[str] = Field(default=[], description="allow-list: jobs of these users only; * is everybody")
    accounts: list[str] = Field(default=[], description="allow-list: jobs of these accounts only")
    nodes: list[str] = Field(default=[], description="allow-list: these nodes only, such as n0*; drain needs it")
    through: Literal["scheduler", "mail"] = Field(
        default="scheduler", description="notify: how the owner is told: by a line in the job's output, or by mail"
    )
    per_hour: int = Field(default=2, ge=1, le=MOST_PER_HOUR, description="acts of this policy in any hour, over all processes")
    dry_hours: float = Field(default=168.0, ge=0, le=8760, description="hours that it must have run dry before it can be armed")
    dry_cases: int = Field(default=5, ge=0, le=100_000, description="settled cases of its dry run before it can be armed")

    @field_validator("name")
    @classmethod
    def _plain_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise ValueError("expected small letters, digits and hyphens, at most 32, such as drain-sick-nodes")
        return name

    @field_validator("kinds")
    @classmethod
    def _known_kinds(cls, kinds: list[str]) -> list[str]:
        known = [kind.value for kind in FindingKind]
        unknown = next((kind for kind in kinds if kind not in known), None)
        if unknown is not None or not kinds:
            raise ValueError(f"expected one or more of {', '.join(known)}")
        return kinds

    @field_validator("partitions", "users", "accounts", "nodes")
    @classmethod
    def _plain_patterns(cls, patterns: list[str]) -> list[str]:
        if not all(_PATTERN.fullmatch(pattern) for pattern in patterns):
            raise ValueError("expected names of letters, digits and _ . @ -, in which * and ? stand for others")
        return patterns

    @model_validator(mode="after")
    def _fits(self) -> Self:
        allowed = _MOMENTS_ALLOWED.get(Action(self.action), ())
        if self.moment and self.moment not in allowed:
            raise ValueError(f"'{self.action}' is not done at '{self.moment}'; expected {' or '.join(allowed) or 'no moment'}")
        if self.through != "scheduler" and self.kind != Action.NOTIFY:
            raise ValueError(f"'{self.action}' is done by the scheduler; expected no through = {self.through}")
        if self.kind == Action.DRAIN and (self.partitions or self.users or self.accounts):
            raise ValueError("'drain' is about nodes; expected no partitions, users or accounts")
        return self

    @property
    def kind(self) -> Action:
        """What is done."""
        return Action(self.action)

    @property
    def decided_at(self) -> str:
        """The moment of the prediction that decides; empty where an incident does."""
        return self.moment or _MOMENTS.get(self.kind, "")

    @property
    def names_nobody(self) -> bool:
        """Whether its allow-list is empty: then it can run dry, and cannot be armed."""
        return not self.nodes if self.kind == Action.DRAIN else not (self.partitions or self.users or self.accounts or self.nodes)

    @property
    def digest(self) -> str:
        """What changes with any setting of it: a policy that was changed is another one, which runs dry first."""
        of_later_releases = {"through"} if self.through == "scheduler" else set()  # an update of the program disarms nothing
        return hashlib.sha256(self.model_dump_json(exclude=of_later_releases).encode()).hexdigest()[:16]

    def allows_job(self, *, user: str, account: str, partition: str, nodes: Iterable[str]) -> bool:
        """Whether a job is on the allow-list: it has to fit every list that is not empty; with none, everything fits."""
        fits_nodes = not self.nodes or any(_fits(node, self.nodes) for node in nodes)
        values = ((user, self.users), (account, self.accounts), (partition, self.partitions))
        return fits_nodes and all(_fits(value, patterns) for value, patterns in values if patterns)

    def allows_node(self, node: str) -> bool:
        """Whether a node is on the allow-list; with none, every node is."""
        return not self.nodes or _fits(node, self.nodes)


def _fits(value: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(value, pattern) for pattern in patterns)


class ActionsSection(BaseModel):
    """Acting on jobs and nodes, behind a safety catch; nothing is done unless a policy is armed."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    cancel_by: Literal["nobody", "admins", "owners"] = Field(
        default="nobody",
        description="who may cancel from dashboard and API, with a login: nobody, admins (any job), owners (their own as well)",
    )
    per_hour: int = Field(default=10, ge=0, le=MOST_PER_HOUR, description="acts of all policies together in any hour")
    timeout_s: float = Field(default=20.0, gt=0, le=600, description="a command of the scheduler that takes longer is given up")
    scheduler: Literal["auto", "slurm", "htcondor"] = Field(
        default="auto", description="whose nodes are drained, and who is asked about rights; auto: Slurm where its commands are"
    )
    mail_route: str = Field(
        default="", description="the email route of [notify] whose server sends mail to owners of jobs; empty: none is sent"
    )
    mail_address: str = Field(
        default="", description="the address of a user, {user} stands for the name, such as {user}@example.org; empty: not known"
    )
    keep_days: int = Field(default=180, ge=30, description="what was decided and done is deleted after so long")
    policies: list[Policy] = Field(default=[], description="what may be done by itself, each a table: [[actions.policies]]")

    @field_validator("policies")
    @classmethod
    def _one_name_each(cls, policies: list[Policy]) -> list[Policy]:
        names = [policy.name for policy in policies]
        twice = next((name for name in names if names.count(name) > 1), "")
        if twice:
            raise ValueError(f"two policies are called '{twice}'; expected a name of its own for each")
        return policies

    @field_validator("mail_address")
    @classmethod
    def _has_a_user(cls, address: str) -> str:
        if address and (address.count("{user}") != 1 or not is_mailbox(address.replace("{user}", "ada"))):
            raise ValueError("expected an address in which {user} stands for the name, such as {user}@example.org")
        return address

    @model_validator(mode="after")
    def _knows_addresses(self) -> Self:
        by_mail = next((policy.name for policy in self.policies if policy.through == "mail"), "")
        if by_mail and not (self.mail_route and self.mail_address):
            raise ValueError(f"policy '{by_mail}' sends mail; expected actions.mail_route and actions.mail_address")
        return self

    def policy(self, name: str) -> Policy | None:
        """The policy of a name; None where there is none."""
        return next((policy for policy in self.policies if policy.name == name), None)
