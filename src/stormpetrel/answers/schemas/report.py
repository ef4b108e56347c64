"""A report that was written, as `stormpetrel report --json` prints it."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from stormpetrel.answers.schemas.base import Answer, Question


class ReportOrder(Question):
    """What a report is about, and where it goes."""

    target: Path = Field(description="the HTML file")
    title: str = Field(default="", description="empty: made of what it is about")
    files: list[str] = Field(default=[], description="the logs that its jobs were read from; empty: those of the site")
    quick: bool = Field(default=False, description="the latest 20,000 jobs, fewer models, no ablation, no policy")
    campaigns: list[Path] = Field(default=[], description="trace campaigns of which the study is told as well")
    trace_models: Path | None = Field(default=None, description="folder of the models that were judged on them")


class ReportReceipt(Answer):
    """The file that was written."""

    file: str
    bytes: int
    jobs: int = Field(description="0: it is not about jobs")
    sections: list[str] = Field(description="their titles, in order")
