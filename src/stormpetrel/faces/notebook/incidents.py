"""Incidents in a notebook: a table of them, one in full, what you do to them, and the past replayed.

site -> alarms -> Incidents, which has a table and shows itself; site + number -> incident -> IncidentView; site + number + act
-> act_on_alarm -> IncidentView as it is then; site -> replay_alarms -> Incidents.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, get_args
from zoneinfo import ZoneInfo

import polars as pl
from polars.datatypes import DataType, DataTypeClass

from stormpetrel.answers.alarms import acts
from stormpetrel.answers.alarms.cases import answer_case, ask_cases
from stormpetrel.answers.alarms.incidents import list_incidents, show_incident
from stormpetrel.answers.alarms.replay import replay_alarms as replayed
from stormpetrel.answers.jobs.selection import SiteLike, opened
from stormpetrel.answers.schemas.alarms import CaseQuestion, IncidentQuestion, NewCaseAnswer, ReplayQuestion
from stormpetrel.answers.schemas.incident import Act, MutedKind, NewMute
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.errors import UsageError
from stormpetrel.faces.notebook import markup
from stormpetrel.records.times import UTC_TIME

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.alarms import IncidentLine, IncidentList
    from stormpetrel.answers.schemas.incident import IncidentAnswer, IncidentFinding, SimilarIncident

_SHOWN_JOBS: Final = 20
_MOST: Final = 1000
_COLUMNS: Final[dict[str, DataType | DataTypeClass]] = {
    "Number": pl.Int64, "Severity": pl.String, "State": pl.String, "Raised": UTC_TIME, "What": pl.String,
    "Suspected": pl.String, "Verdict": pl.String, "Sent": pl.Boolean,
}  # fmt: skip

_CASE_COLUMNS: Final[dict[str, DataType | DataTypeClass]] = {
    "case": pl.String, "at": UTC_TIME, "family": pl.String, "about": pl.String, "words": pl.String, "chance": pl.Float64,
    "density": pl.Float64, "worth": pl.Float64,
}  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class Incidents:
    """Incidents, the newest first; times of the table are in the site's zone."""

    answer: IncidentList
    zone: str

    def __len__(self) -> int:
        return len(self.answer.incidents)

    @property
    def table(self) -> pl.DataFrame:
        """One row per incident, what it is in one line."""
        rows = [_row(line) for line in self.answer.incidents]
        return pl.DataFrame(rows, schema=_COLUMNS).with_columns(pl.col("Raised").dt.convert_time_zone(self.zone))

    def summary(self) -> str:
        """How many there are, and how many pages a week that makes."""
        count = "1 incident" if len(self) == 1 else f"{len(self):,} incidents"
        rate = self.answer.rate_text
        return f"{count}; {rate}." if rate else f"{count}."

    def __repr__(self) -> str:
        return "\n".join(
            [f"{line.id}: {line.severity}, {line.state}: {line.title}" for line in self.answer.incidents] + [self.summary()]
        )

    def _repr_html_(self) -> str:
        if not len(self):
            return markup.page(markup.message("There is no such incident."))
        lines = [
            f"{line.id}: {line.severity}, {line.state}{f', {line.verdict}' if line.verdict else ''}: {line.title}"
            for line in self.answer.incidents
        ]
        return markup.page(markup.bullets(lines), markup.sentence(self.summary(), quiet=True))


@dataclass(frozen=True, slots=True, repr=False)
class IncidentView:
    """One incident in full."""

    answer: IncidentAnswer
    zone: str

    def summary(self) -> str:
        """Its number, how loud it is, where it stands, and the line that says it all."""
        verdict = f", {self.answer.verdict}" if self.answer.verdict else ""
        return f"Incident {self.answer.id}, {self.answer.severity}, {self.answer.state}{verdict}: {self.answer.title}"

    def parts(self) -> dict[str, list[str]]:
        """Everything else as lines, by heading; without headings that have none."""
        answer = self.answer
        parts = {
            f"Suspected: {answer.blame}": [f"{figure.label}: {figure.text}" for figure in answer.reasons],
            **{f"Seen by {part.family}: {part.kind.replace('_', ' ')}": self._finding(part) for part in answer.findings},
            "What happened": [f"{self._time(entry.time)} {entry.words}" for entry in answer.timeline],
            f"Lost jobs ({answer.jobs_total:,})": [", ".join(job.job for job in answer.jobs[:_SHOWN_JOBS])]
            if answer.jobs
            else [],
            "Like it before": [self._similar(entry) for entry in answer.similar],
        }
        return {heading: lines for heading, lines in parts.items() if lines}

    def __repr__(self) -> str:
        lines = [line for heading, part in self.parts().items() for line in (heading, *(f"  {text}" for text in part))]
        return "\n".join([self.summary(), *self._held_back(), *lines])

    def _repr_html_(self) -> str:
        parts = [markup.heading(heading) + markup.bullets(lines) for heading, lines in self.parts().items()]
        return markup.page(*(markup.sentence(line) for line in (self.summary(), *self._held_back())), *parts)

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        return {"text/html": self._repr_html_(), "text/plain": repr(self)}

    def _held_back(self) -> list[str]:
        return [f"Not sent. {self.answer.held_back_words}"] if self.answer.held_back_words else []

    def _finding(self, finding: IncidentFinding) -> list[str]:
        subjects = ", ".join(f"{subject.kind} {subject.name}" for subject in finding.subjects)
        span = f"{self._time(finding.since)} to {self._time(finding.until)}"
        return [f"{subjects}, {span}", *(f"{figure.label}: {figure.text}" for figure in finding.evidence)]

    def _similar(self, similar: SimilarIncident) -> str:
        notes = "; ".join(f"{act.user}: {act.note}" for act in similar.acts if act.note)
        verdict = f", {similar.verdict}" if similar.verdict else ""
        return f"{similar.id}{verdict}: {similar.title}{f' ({notes})' if notes else ''}"

    def _time(self, moment: datetime) -> str:
        return f"{moment.astimezone(ZoneInfo(self.zone)):%Y-%m-%d %H:%M}"


def alarms(
    site: SiteLike,
    *,
    state: Literal["open", "all", "quiet"] = "open",
    since: datetime | None = None,
    severity: Literal["info", "warning", "page"] | None = None,
    limit: int = 100,
) -> Incidents:
    """Incidents of a site, the newest first: those that are not over, or all; so loud, or louder. `since` has its zone."""
    _require_zone("since", since)
    if not 1 <= limit <= _MOST:
        raise UsageError(f"limit is {limit}.", hint=f"Choose 1 to {_MOST:,}.")
    question = IncidentQuestion(state=state, since=since, severity=severity, limit=limit)
    with opened(site) as open_one:
        return Incidents(list_incidents(open_one, LOCAL, question), open_one.settings.site.time_zone)


def cases(site: SiteLike, limit: int = 10) -> pl.DataFrame:
    """The cases whose answer teaches most, also from below the threshold, as a table; `judge_case` answers one."""
    with opened(site) as open_one:
        answer = ask_cases(open_one, LOCAL, CaseQuestion(limit=limit))
    rows = [[getattr(line, name) for name in _CASE_COLUMNS] for line in answer.cases]
    return pl.DataFrame(rows, schema=_CASE_COLUMNS, orient="row")


def judge_case(site: SiteLike, case: str, answer: Literal["confirm", "dismiss", "withdraw"], note: str = "") -> str:
    """Answer a case as `cases` names it; what that changes, in a sentence."""
    with opened(site) as open_one:
        return answer_case(open_one, LOCAL, NewCaseAnswer(case=case, answer=answer, note=note)).words


def incident(site: SiteLike, number: int) -> IncidentView:
    """One incident in full: evidence, time line, what people did, lost jobs, similar past incidents."""
    with opened(site) as open_one:
        return IncidentView(show_incident(open_one, LOCAL, number), open_one.settings.site.time_zone)


def act_on_alarm(site: SiteLike, number: int, kind: Act, note: str = "") -> IncidentView:
    """Acknowledge, confirm or dismiss an incident, withdraw the verdict, or note something; return it as it is then."""
    _require_one_of("kind", kind, get_args(Act))
    with opened(site) as open_one:
        acts.act_on_incident(open_one, LOCAL, number, kind, note)
        return IncidentView(show_incident(open_one, LOCAL, number), open_one.settings.site.time_zone)


def mute(
    site: SiteLike, kind: MutedKind, name: str, *, hours: float | None = None, until: datetime | None = None, reason: str = ""
) -> str:
    """Send nothing about a subject (`mute("mysite", "node", "n017", hours=8)`) for a time; what is muted until when."""
    _require_one_of("kind", kind, get_args(MutedKind))
    _require_zone("until", until)
    wanted = NewMute.model_validate({"kind": kind, "name": name, "hours": hours, "until": until, "reason": reason})
    with opened(site) as open_one:
        kept = acts.mute_subject(open_one, LOCAL, wanted).mute
    return f"{kept.kind} {kept.name} is muted until {kept.until:%Y-%m-%d %H:%M %Z}"


def unmute(site: SiteLike, kind: MutedKind, name: str) -> None:
    """End the mute of a subject at once."""
    _require_one_of("kind", kind, get_args(MutedKind))
    with opened(site) as open_one:
        acts.unmute_subject(open_one, LOCAL, kind, name)


def replay_alarms(
    site: SiteLike, *, since: datetime | None = None, until: datetime | None = None, models: bool = True
) -> Incidents:
    """What a watch would have raised in a part of the past, and when; nothing is kept. Without `models` it is faster."""
    _require_zone("since", since)
    _require_zone("until", until)
    with opened(site) as open_one:
        answer = replayed(open_one, LOCAL, ReplayQuestion(since=since, until=until, models=models))
    return Incidents(answer, answer.zone)


def _require_one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(f"{name} is {value[:40]!r}.", hint=f"Choose one of {', '.join(known)}.")


def _require_zone(name: str, moment: datetime | None) -> None:
    if moment is not None and moment.tzinfo is None:
        raise UsageError(f"`{name}` has no zone.", hint="Write datetime(2026, 1, 31, 14, tzinfo=UTC).")


def _row(line: IncidentLine) -> dict[str, Any]:
    return {
        "Number": line.id,
        "Severity": line.severity,
        "State": line.state,
        "Raised": line.raised_at,
        "What": line.title,
        "Suspected": line.blame,
        "Verdict": line.verdict,
        "Sent": line.page,
    }
