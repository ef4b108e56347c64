"""Acting as JSON: policies with their ledgers, acts with their commands and answers, the switch, and receipts."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from stormpetrel.answers.schemas.base import Answer, IsoTime, Question, Request

LONGEST_WHY: Final = 500
MOST_ACTS: Final = 1000

ActMode = Literal["dry", "live", "person"]


class SwitchLine(Answer):
    """Whether anything may be done at all."""

    on: bool = Field(description="false: nothing is done, for policies and people alike")
    by: str = Field(description="who turned it last; empty: nobody has, or the file alone says off")
    at: IsoTime | None
    why: str


class LedgerLine(Answer):
    """What the cases of a policy came to. Core-hours are settled when jobs end; a dry run has them, what was done has not."""

    cases: int
    settled: int = Field(description="cases of which it is known what became of the job, or of the node on the day after")
    right: int = Field(description="settled cases whose job failed, or whose node lost more jobs than it completed")
    wrong: int = Field(description="settled cases whose job completed, or whose node went on well")
    saved_core_hours: float = Field(description="that failed jobs held after the act, and would not have")
    lost_core_hours: float = Field(description="of jobs that completed, and would not have; of a node's healthy capacity")
    redo_core_hours: float = Field(description="that completed jobs held until the act, and would have held again")
    right_jobs: int = Field(description="jobs that failed")
    wrong_jobs: int = Field(description="jobs that completed")


class PolicyLine(Answer):
    """One policy: what it does, to whom, whether it may, and its ledger."""

    name: str
    action: Literal["notify", "hold", "cancel", "requeue", "drain"]
    when: str = Field(description="when it acts, in words", examples=["at 2min, risk 0.9 or more"])
    allow_list: str = Field(description="on whom, in words", examples=["partitions debug; users *"])
    per_hour: int
    in_last_hour: int = Field(description="acts that count against its cap now")
    armed: bool = Field(description="whether it acts; otherwise it runs dry")
    armed_at: IsoTime | None
    armed_by: str
    without_dry_run: bool = Field(description="whether it was armed before its dry run was over")
    listed: IsoTime = Field(description="since when the watch knows it as it is: its dry run began then")
    to_arm: str = Field(description="what is missing before it can be armed; empty: nothing")
    needs: str = Field(description="the right that it needs at the scheduler", examples=["Slurm: AdminLevel=Operator"])
    missing_right: str | None = Field(description="why it could do nothing, in a sentence; empty: it may; null: nobody looked")
    dry: LedgerLine
    live: LedgerLine


class ActionsStatus(Answer):
    """The switch, the caps, and every policy."""

    switch: SwitchLine
    cancel_by: Literal["nobody", "admins", "owners"] = Field(description="who may cancel jobs from dashboard and API")
    per_hour: int = Field(description="acts of all policies together in any hour")
    in_last_hour: int
    policies: list[PolicyLine]


class ActStep(Answer):
    """One command of an act, and what the scheduler answered."""

    command: list[str]
    begun: IsoTime | None
    ended: IsoTime | None = Field(description="null: its answer is not known")
    code: int | None
    answer: str


class ActLine(Answer):
    """What was decided about one job or node, and what became of it."""

    key: str
    policy: str = Field(description="empty: a person's own act")
    mode: ActMode
    action: Literal["notify", "hold", "cancel", "requeue", "drain"]
    job: str | None = Field(description="its id as people write it", examples=["12345_7"])
    ref: str | None = Field(description="what names the job in links")
    node: str | None
    user: str = Field(description="whose job it is")
    by: str = Field(description="who decided: policy:NAME, or a person")
    decided: IsoTime
    evidence: dict[str, float | int | str] = Field(description="what was known then: risk and threshold, or the incident")
    state: str = Field(description="dry, held_back, intended, running, done, failed, refused, off, expired or interrupted")
    why: str = Field(description="why it is so, in a sentence; may be empty")
    steps: list[ActStep]
    settled: IsoTime | None
    outcome: Literal["right", "wrong", "neither"] | None
    saved_core_hours: float
    lost_core_hours: float
    redo_core_hours: float
    undo: str = Field(default="", description="the command that takes it back; empty: there is none")


class ActList(Answer):
    """Acts, the newest first."""

    acts: list[ActLine]


class ActQuestion(Question):
    """Which acts."""

    policy: str | None = Field(default=None, max_length=64, description="of this policy only")
    mode: ActMode | None = Field(default=None, description="dry: decided and not done; live: of armed policies; person")
    limit: int = Field(default=100, ge=1, le=MOST_ACTS, description="how many, the newest")


class SwitchAct(Request):
    """Turn acting off, at once and for everybody, or on again."""

    on: bool = Field(description="false: nothing is done from the next command on")
    why: str = Field(default="", max_length=LONGEST_WHY, description="for those who come after you")


class CancelAct(Request):
    """Cancel one job."""

    confirm: str = Field(max_length=40, description="the id of the job once more, as people write it", examples=["12345"])


class PlannedCase(Answer):
    """What a policy would do now about one job or node."""

    subject: str = Field(description="the id of a job, or the name of a node")
    commands: list[list[str]]
    refusal: str = Field(description="why it would not be done; empty: it would")


class PolicyTest(Answer):
    """What a policy would do now, without doing it."""

    policy: PolicyLine
    cases: list[PlannedCase]
    more: int = Field(description="cases that are not shown")
