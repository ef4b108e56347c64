"""One job in full: its record, its predictions and their reasons, what to change, its kind, its user's history, its other tries.

LiveSite + Viewer + JobRef -> job_details -> JobInFull; text of a search -> find_jobs -> rows of the overview.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from stormpetrel.answers.jobs.causes import cause_of, remedies_for
from stormpetrel.answers.jobs.check import LiveJudge
from stormpetrel.answers.jobs.one_job import (
    PRIOR_SPEAKS,
    advice_answer,
    advice_for,
    notes_about,
    script_line,
    useful_advice,
    waiting_answer,
)
from stormpetrel.answers.jobs.outlook import RiskNow, with_outlook
from stormpetrel.answers.jobs.profile import profile_of
from stormpetrel.answers.jobs.resubmission import find_tries
from stormpetrel.answers.json_values import json_value
from stormpetrel.answers.overview.job_table import job_rows
from stormpetrel.answers.overview.overview import OVERVIEW_SCHEMA, not_there
from stormpetrel.answers.overview.query import TableQuery
from stormpetrel.answers.schemas.job import JobInFull, ProfileComparison, StoredPrediction, StoredReason, UserHistory, Waiting
from stormpetrel.answers.viewer import READ, Viewer
from stormpetrel.errors import ModelError, UsageError
from stormpetrel.jobs.advice.kinds import find_kind
from stormpetrel.jobs.advice.prescription import Prescribed
from stormpetrel.jobs.advice.waiting import why_waiting
from stormpetrel.jobs.causes.cause import NEAR
from stormpetrel.jobs.moments import MOMENTS
from stormpetrel.jobs.reasons import points_of_risk, risk_at
from stormpetrel.records.jobs import JobRef, is_job_id, job_frame, jobs_with_id, ref_text
from stormpetrel.records.states import JobState

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite

_RECENT: Final = 20
_MAX_MATCHES: Final = 50
_OTHERS_LOOK_BACK: Final = timedelta(days=7)  # submissions that say whether a job or its host is to blame


def job_details(live: LiveSite, viewer: Viewer, ref: JobRef) -> JobInFull:
    """Look into one job; NotThereError where it does not exist or is not the viewer's, without telling which."""
    viewer.require(READ)
    row = live.overview.find(viewer, ref)
    job = live.overview.whole_rows(live.site, row).filter(viewer.sees())
    if job.is_empty():  # gone since the last refresh
        raise not_there(ref)
    record = job.row(0, named=True)
    own = live.overview.rows_of(record["user"])
    predictions = _predictions(live.overview.predictions(live.site, row))
    now = live.now()
    past = live.overview.past(job, now=now, own=own)
    kind = find_kind(job, past, now=now)
    following, proposed = advice_for(job, past, now=now, kind=kind)
    advice, left_out = useful_advice(live.site, proposed)
    risk, flagged = RiskNow(lambda: LiveJudge(live), now), bool(predictions and predictions[-1].flagged)
    prescribed = Prescribed(advice, lambda: following is None and (flagged or risk.flagged(job)), now, kind)
    more = with_outlook(live.site, live.outlook(), job, prescribed, risk)
    profile, trouble = _profile(live, job)
    earlier, later = find_tries(job.hstack(row.select("failed", "risk", "first_risk")), own)
    return JobInFull(
        ref=str(ref),
        job={name: json_value(value) for name, value in record.items() if value is not None},
        overview=job_rows(row)[0],
        waiting=_waiting(live, record),
        predictions=predictions,
        next=None if following is None else advice_answer(following, script_line(record, following)),
        advice=[advice_answer(piece, script_line(record, piece), mem_update=more.mem_update) for piece in more.advice],
        cause=cause_of(live.site, record, _around(live, record)),
        remedies=remedies_for(job, past, now=now),
        needs=more.needs,
        wait=more.wait,
        profile=profile,
        history=_history(record, own),
        earlier=list(earlier),
        later=list(later),
        notes=[*_notes(live, record, predictions), *trouble, *left_out, *more.notes],
    )


def find_jobs(live: LiveSite, viewer: Viewer, text: str, *, limit: int = _MAX_MATCHES) -> pl.DataFrame:
    """Jobs by their id (`12345`, `12345_7`, a reference), the latest first; of another text, what the search of the table finds.

    An id is met exactly or not at all: whoever asks for job 3 wants neither 34 nor a job called `run3`.
    """
    viewer.require(READ)
    text = text.strip()
    if not text:
        raise UsageError("There is nothing to search for.", hint="Write a job id such as 12345 or 12345_7.")
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


def _predictions(rows: pl.DataFrame) -> list[StoredPrediction]:
    """The stored predictions in the order of a job's life."""
    order = {str(moment): place for place, moment in enumerate(MOMENTS)}
    ordered = sorted(rows.iter_rows(named=True), key=lambda row: (order.get(row["moment"], len(order)), row["predicted_at"]))
    return [_prediction(row) for row in ordered]


def _prediction(row: Mapping[str, Any]) -> StoredPrediction:
    points = points_of_risk(row["reason_contributions"], row["base"], row["risk"]).tolist()
    reasons = zip(row["reason_features"], row["reason_words"], row["reason_contributions"], points, strict=True)
    stored = {name: json_value(row[name]) for name in StoredPrediction.model_fields if name in row}
    return StoredPrediction(
        **stored,
        base_risk=json_value(risk_at(row["base"])),
        reasons=[
            StoredReason(feature=feature, words=phrase, contribution=contribution, points=effect)
            for feature, phrase, contribution, effect in reasons
        ],
    )


def _profile(live: LiveSite, job: pl.DataFrame) -> tuple[ProfileComparison | None, tuple[str, ...]]:
    try:
        return (None, (PRIOR_SPEAKS,)) if live.predictor().is_prior else (profile_of(live, job), ())
    except ModelError as error:
        return None, (f"Its profile is not known: {error}",)


def _around(live: LiveSite, job: dict[str, Any]) -> pl.DataFrame:
    """The jobs that may have ended near a job, on its nodes: those submitted in the week before its end."""
    end = job["end_time"]
    if end is None or job["state"] not in live.settings.jobs.failure_states:
        return job_frame([])
    return (
        live.site.jobs.read_jobs(since=end - _OTHERS_LOOK_BACK, until=end + NEAR)
        .filter(pl.col("end_time") >= end - NEAR)
        .collect()
    )


def _waiting(live: LiveSite, job: dict[str, Any]) -> Waiting | None:
    known = live.site.cluster.known()
    past = None
    if job["state"] == JobState.HELD:  # others on its host and of its cluster id tell whose fault a hold is
        past = live.site.jobs.read_jobs(since=live.site.now() - _OTHERS_LOOK_BACK).collect()
    return waiting_answer(why_waiting(job, known.cluster if known else None, past))


def _history(job: dict[str, Any], own: pl.DataFrame) -> UserHistory:
    before = own.filter(pl.col("submit_time") < job["submit_time"])
    recent = before.head(_RECENT).select(*OVERVIEW_SCHEMA, ref_text())
    ended, failed = before["failed"].count(), before["failed"].sum()
    return UserHistory(
        user=job["user"],
        jobs=before.height,
        ended=int(ended),
        failed=int(failed),
        never_started=int(before["never_started"].sum()),
        recent=job_rows(recent),
    )


def _notes(live: LiveSite, job: dict[str, Any], predictions: list[StoredPrediction]) -> list[str]:
    nothing = [] if predictions else [_why_nothing(live.site.predictions.began(), job["submit_time"])]
    return [*nothing, *notes_about(job, known=predictions[-1].known if predictions else None)]


def _why_nothing(began: datetime | None, submitted: datetime) -> str:
    if began is None:
        return "Nothing was predicted for this job: nobody watches this site yet. Start it: stormpetrel watch"
    if submitted <= began:
        return f"Nothing was predicted for this job: it came before watching began, on {began:%Y-%m-%d at %H:%M} UTC."
    return "Nothing was predicted for this job yet: the watch has not heard of it, or was told of it more than a day late."
