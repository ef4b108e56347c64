"""One job in full: its record, what was said about it and why, what to change, its kind, its user's history, its other tries.

LiveSite + Viewer + JobRef -> job_details -> JobDetails; text of a search -> find_jobs -> rows of the overview.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from stormpetrel.answers.check_and_why import NOT_KNOWN, advice_json
from stormpetrel.answers.job_profile import ProfileComparison, profile_of
from stormpetrel.answers.json_values import json_rows, json_value
from stormpetrel.answers.overview import OVERVIEW_SCHEMA, not_there
from stormpetrel.answers.resubmission import Try, find_tries
from stormpetrel.answers.table_query import TableQuery
from stormpetrel.answers.viewer import READ, Viewer
from stormpetrel.errors import ModelError, UsageError
from stormpetrel.jobs.moments import MOMENTS
from stormpetrel.jobs.outcomes import never_started_words
from stormpetrel.jobs.reasons import points_of_risk, risk_at
from stormpetrel.jobs.waiting import Waiting, why_waiting
from stormpetrel.records.job_ref import JobRef, is_job_id, jobs_with_id, ref_text
from stormpetrel.records.jobs import was_never_started

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.jobs.advice import Advice

_RECENT: Final = 20
_MOST_FOUND: Final = 50
_NODE_FAILED: Final = ("NODE_FAIL", "BOOT_FAIL")


@dataclass(frozen=True, slots=True)
class StoredReason:
    """One reason for a risk: its feature, the same in words, and what it adds, to the log-odds and in points of risk."""

    feature: str
    words: str
    contribution: float
    points: float


@dataclass(frozen=True, slots=True)
class StoredPrediction:
    """What was said about a job at one of its moments, as it was stored then; the strongest reasons come first."""

    moment: str
    moment_time: datetime
    as_of: datetime
    predicted_at: datetime
    late: bool
    model_version: int
    risk: float
    threshold: float
    flagged: bool
    known: bool
    likeliest: str | None
    likeliest_probability: float | None
    base: float
    reasons: tuple[StoredReason, ...]

    def as_json(self) -> dict[str, Any]:
        """For other programs."""
        plain = {name: json_value(getattr(self, name)) for name in self.__dataclass_fields__ if name != "reasons"}
        reasons = [json_value(asdict(one)) for one in self.reasons]
        return {**plain, "base_risk": json_value(self.base_risk), "reasons": reasons}

    @property
    def base_risk(self) -> float:
        """The risk before anything is known about the job: that of the average job."""
        return risk_at(self.base)


@dataclass(frozen=True, slots=True)
class UserHistory:
    """The jobs that a user had submitted before: how many, how many of them have ended and failed, and the latest ones.

    `ended` are those that count; `never_started` were over before they ran, and do not.
    """

    user: str | None
    jobs: int
    ended: int
    failed: int
    never_started: int
    recent: pl.DataFrame  # rows of the overview, the latest submission first

    def as_json(self) -> dict[str, Any]:
        """For other programs."""
        counts = {"user": self.user, "jobs": self.jobs, "ended": self.ended, "failed": self.failed}
        return {**counts, "never_started": self.never_started, "recent": json_rows(self.recent)}


@dataclass(frozen=True, slots=True)
class JobDetails:
    """Everything there is to say about one job.

    `job` is its record, `row` its line in the overview; predictions in the order of its life; `next_request` what to ask for
    after it ran out of memory or time; `earlier` and `later` are other tries of the same work, the nearest first.
    """

    ref: JobRef
    job: dict[str, Any]
    row: dict[str, Any]
    predictions: tuple[StoredPrediction, ...]
    next_request: Advice | None
    advice: tuple[Advice, ...]
    profile: ProfileComparison | None
    history: UserHistory
    earlier: tuple[Try, ...]
    later: tuple[Try, ...]
    notes: tuple[str, ...]
    waiting: Waiting | None = None  # what the scheduler says of a job that has not started

    def as_json(self) -> dict[str, Any]:
        """For other programs."""
        return {
            "ref": str(self.ref),
            "job": {name: json_value(value) for name, value in self.job.items() if value is not None},
            "overview": json_value(self.row),
            "waiting": None if self.waiting is None else self.waiting.as_json(),
            "predictions": [one.as_json() for one in self.predictions],
            "next": None if self.next_request is None else advice_json(self.next_request, None),
            "advice": [advice_json(one, None) for one in self.advice],
            "profile": None if self.profile is None else self.profile.as_json(),
            "history": self.history.as_json(),
            "earlier": [one.as_json() for one in self.earlier],
            "later": [one.as_json() for one in self.later],
            "notes": list(self.notes),
        }


def job_details(live: LiveSite, viewer: Viewer, ref: JobRef) -> JobDetails:
    """Look into one job; NotThereError where it does not exist or is not the viewer's, without telling which."""
    viewer.require(READ)
    row = live.overview.find(viewer, ref)
    job = live.overview.whole_rows(live.site, row).filter(viewer.sees())
    if job.is_empty():  # gone since the last refresh
        raise not_there(ref)
    record = job.row(0, named=True)
    own = live.overview.rows_of(record["user"])
    predictions = _predictions(live.overview.predictions(live.site, row))
    following, advice = _advice(live, job, own)
    profile, trouble = _profile(live, job)
    earlier, later = find_tries(job.hstack(row.select("failed", "risk", "first_risk")), own)
    return JobDetails(
        ref=ref,
        job=record,
        row=row.row(0, named=True),
        predictions=predictions,
        next_request=following,
        advice=advice,
        profile=profile,
        history=_history(record, own),
        earlier=earlier,
        later=later,
        notes=(*_notes(live, record, predictions), *trouble),
        waiting=_waiting(live, record),
    )


def find_jobs(live: LiveSite, viewer: Viewer, text: str, *, limit: int = _MOST_FOUND) -> pl.DataFrame:
    """Jobs by their id (`12345`, `12345_7`, a reference), the latest first; of another text, what the search of the table finds.

    An id is met exactly or not at all: whoever asks for job 3 wants neither 34 nor a job called `run3`.
    """
    viewer.require(READ)
    text = text.strip()
    if not text:
        raise UsageError("Nothing was looked for.", hint="Write a job id such as 12345 or 12345_7.")
    if is_job_id(text):
        matches = jobs_with_id(live.overview.frame.filter(viewer.sees()), text)
    elif (ref := _reference(text)) is not None:
        matches = live.overview.frame.filter(ref.is_row() & viewer.sees())
    else:
        return live.overview.page(viewer, TableQuery(search=text, limit=limit)).rows
    return matches.head(limit).select(*OVERVIEW_SCHEMA, ref_text())


def _reference(text: str) -> JobRef | None:
    try:
        return JobRef.parse(text)
    except UsageError:
        return None


def _predictions(rows: pl.DataFrame) -> tuple[StoredPrediction, ...]:
    """The stored predictions in the order of a job's life."""
    order = {str(moment): place for place, moment in enumerate(MOMENTS)}
    told = sorted(rows.iter_rows(named=True), key=lambda row: (order.get(row["moment"], len(order)), row["predicted_at"]))
    return tuple(
        StoredPrediction(
            **{name: row[name] for name in StoredPrediction.__dataclass_fields__ if name != "reasons"},
            reasons=_reasons(row),
        )
        for row in told
    )


def _reasons(row: Mapping[str, Any]) -> tuple[StoredReason, ...]:
    points = points_of_risk(row["reason_contributions"], row["base"], row["risk"]).tolist()
    return tuple(map(StoredReason, row["reason_features"], row["reason_words"], row["reason_contributions"], points))


def _advice(live: LiveSite, job: pl.DataFrame, own: pl.DataFrame) -> tuple[Advice | None, tuple[Advice, ...]]:
    """What to ask for next, and what else past jobs advise: the same as `stormpetrel why` says."""
    from stormpetrel.jobs.advice import advise, next_request

    now, end = live.now(), job["end_time"].item()
    past = live.overview.past(job, now=now, own=own)
    following = next_request(job, past, now=now) if end is not None and end <= now else None
    told = (following.column, following.proposed) if following else None
    return following, tuple(piece for piece in advise(job, past, now=now) if (piece.column, piece.proposed) != told)


def _profile(live: LiveSite, job: pl.DataFrame) -> tuple[ProfileComparison | None, tuple[str, ...]]:
    try:
        return profile_of(live, job), ()
    except ModelError as error:
        return None, (f"Its profile is not known: {error}",)


def _waiting(live: LiveSite, job: dict[str, Any]) -> Waiting | None:
    known = live.site.cluster.known()
    return why_waiting(job, known.cluster if known else None)


def _history(job: dict[str, Any], own: pl.DataFrame) -> UserHistory:
    before = own.filter(pl.col("submit_time") < job["submit_time"])
    recent = before.head(_RECENT).select(*OVERVIEW_SCHEMA, ref_text())
    ended, failed = before["failed"].count(), before["failed"].sum()
    return UserHistory(job["user"], before.height, int(ended), int(failed), int(before["never_started"].sum()), recent)


def _notes(live: LiveSite, job: dict[str, Any], predictions: tuple[StoredPrediction, ...]) -> list[str]:
    notes = []
    if not predictions:
        notes.append(_why_nothing(live.site.predictions.began(), job["submit_time"]))
    elif not predictions[-1].known:
        notes.append(NOT_KNOWN)
    if was_never_started(job):
        notes.append(never_started_words(job))
    if job["state"] in _NODE_FAILED:
        notes.append("A node failed under the job: its request is not the problem. Submit it again as it is.")
    return notes


def _why_nothing(began: datetime | None, submitted: datetime) -> str:
    if began is None:
        return "Nothing was predicted for this job: nobody watches this site yet. Start it: stormpetrel watch"
    if submitted <= began:
        return f"Nothing was predicted for this job: it came before watching began, on {began:%Y-%m-%d at %H:%M} UTC."
    return "Nothing was predicted for this job yet: the watch has not heard of it, or was told of it more than a day late."
