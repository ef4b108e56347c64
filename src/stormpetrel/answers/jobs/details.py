"""One job in full: its record, its predictions and their reasons, what to change, its kind, its user's history, its other tries.

LiveSite + Viewer + JobRef -> job_details -> JobInFull; text of a search -> find_jobs -> rows of the overview.

The profile of a job: what kind of job it is, in words, and where its figures stand among jobs of that kind.

LiveSite + one-row job frame -> profile_of -> ProfileComparison.

Resubmissions: the same work tried again after it went wrong, with what was changed and the risk before and after.

one row of the overview + its user's rows -> find_tries -> earlier and later tries.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import polars as pl

from stormpetrel.answers.jobs.causes import cause_of, remedies_for
from stormpetrel.answers.jobs.check import LiveJudge
from stormpetrel.answers.jobs.one_job import (
    PRIOR_SPEAKS,
    advice_answer,
    advice_for,
    fitting_advice,
    notes_about,
    script_line,
    useful_advice,
    waiting_answer,
)
from stormpetrel.answers.jobs.outlook import RiskNow, with_outlook
from stormpetrel.answers.json_values import json_value
from stormpetrel.answers.overview.job_table import job_rows
from stormpetrel.answers.overview.overview import OVERVIEW_SCHEMA, not_there
from stormpetrel.answers.overview.query import TableQuery
from stormpetrel.answers.schemas.job import (
    Change,
    JobInFull,
    ProfileComparison,
    ProfileFigure,
    StoredPrediction,
    StoredReason,
    Try,
    UserHistory,
    Waiting,
)
from stormpetrel.answers.viewer import READ, Viewer
from stormpetrel.errors import ModelError, UsageError
from stormpetrel.jobs.advice.kinds import find_kind
from stormpetrel.jobs.advice.prescription import Prescribed
from stormpetrel.jobs.advice.waiting import why_waiting
from stormpetrel.jobs.causes.cause import NEAR
from stormpetrel.jobs.history.keys import family
from stormpetrel.jobs.moments import MOMENTS
from stormpetrel.jobs.reasons import points_of_risk, risk_at
from stormpetrel.records.doubts import trusted
from stormpetrel.records.jobs import JobRef, is_job_id, job_frame, ref_text
from stormpetrel.records.states import JobState

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite, SiteMemory
    from stormpetrel.jobs.profiles import JobProfiles

_RECENT: Final = 20
_MAX_MATCHES: Final = 50
_OTHERS_LOOK_BACK: Final = timedelta(days=7)  # submissions that say whether a job or its host is to blame
FIGURES: Final = ("cpus", "nodes", "req_mem_bytes", "max_rss_bytes", "time_limit_s", "elapsed_s", "wait_s")
_LATEST: Final = 50_000  # submissions that a job is compared with
_FEWEST: Final = 5  # jobs below which quartiles would tell of single ones
_KEEP_S: Final = 300.0
_GIB: Final = 2**30
REQUEST: Final = ("time_limit_s", "req_mem_bytes", "req_cpus", "req_nodes", "partition")
_CANCELLED: Final = "CANCELLED"
_WITHIN: Final = timedelta(days=14)
_NEAREST_JOBS: Final = 500  # jobs of the user before, and after
_MOST: Final = 5  # tries that are shown each way


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
    cause = cause_of(live.site, record, _around(live, record))
    return JobInFull(
        ref=str(ref),
        job={name: json_value(value) for name, value in record.items() if value is not None},
        overview=job_rows(row)[0],
        waiting=_waiting(live, record),
        predictions=predictions,
        next=None if following is None else advice_answer(following, script_line(record, following)),
        advice=[
            advice_answer(piece, script_line(record, piece), mem_update=more.mem_update)
            for piece in fitting_advice(more.advice, cause, following)
        ],
        cause=cause,
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
        matches = live.overview.rows_with_id(viewer, text)
    elif (ref := _reference(text)) is not None:
        matches = live.overview.rows_at(ref).filter(viewer.sees())
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


def profile_of(live: LiveSite, job: pl.DataFrame) -> ProfileComparison | None:
    """The profile of one job (a frame of one row); None where its request says too little. Needs a model."""
    predictor = live.predictor()
    stand_in = dict(predictor.history.stand_in or {})
    number = _assigned(job, predictor.profiles, stand_in).item()
    if number is None:
        return None
    table = _QUARTILES.table(live, predictor.profiles, stand_in).filter(pl.col("profile") == number)
    like = table.row(0, named=True) if table.height else {}
    values = job.select(_figures()).row(0, named=True)
    quartiles = {name: {part: _number(like.get(f"{name}_{part}")) for part in ("low", "median", "high")} for name in FIGURES}
    return ProfileComparison(
        profile=int(number),
        words=predictor.profiles.describe(int(number)),
        jobs=like.get("jobs", 0),
        failed_share=like.get("failed_share"),
        figures={name: ProfileFigure(value=_number(values[name]), **quartiles[name]) for name in FIGURES},
    )


class _Quartiles:
    """The figures of each profile, out of the latest jobs that ended; counted anew every five minutes."""

    def __init__(self) -> None:
        self._kept: WeakKeyDictionary[SiteMemory, tuple[JobProfiles, float, pl.DataFrame]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def table(self, live: LiveSite, profiles: JobProfiles, stand_in: Mapping[str, str]) -> pl.DataFrame:
        with self._lock:
            known = self._kept.get(live.memory)
            if known is None or known[0] is not profiles or time.monotonic() - known[1] > _KEEP_S:
                jobs = live.overview.latest(_LATEST).filter(pl.col("failed").is_not_null())
                known = profiles, time.monotonic(), _quartiles(jobs.with_columns(profile=_assigned(jobs, profiles, stand_in)))
                self._kept[live.memory] = known
            return known[2]


_QUARTILES: Final = _Quartiles()


def _quartiles(jobs: pl.DataFrame) -> pl.DataFrame:
    parts = {"low": 0.25, "median": 0.5, "high": 0.75}
    quantiles = [
        pl.when(pl.col(name).count() >= _FEWEST).then(pl.col(name).quantile(share, "linear")).alias(f"{name}_{part}")
        for name in FIGURES
        for part, share in parts.items()
    ]
    rows = trusted(jobs).select("profile", "failed", *_figures())
    counts = (pl.len().alias("jobs"), pl.when(pl.len() >= _FEWEST).then(pl.col("failed").mean()).alias("failed_share"))
    return rows.group_by("profile").agg(*counts, *quantiles)


def _figures() -> list[pl.Expr]:
    wait = (pl.col("start_time") - pl.col("submit_time")).dt.total_microseconds() / 1e6
    sizes = [pl.coalesce("cpus", "req_cpus").alias("cpus"), pl.coalesce("nodes", "req_nodes").alias("nodes")]
    return [
        *(size.cast(pl.Float64) for size in sizes),
        pl.col("req_mem_bytes", "max_rss_bytes", "time_limit_s", "elapsed_s").cast(pl.Float64),
        wait.alias("wait_s"),
    ]


def _assigned(jobs: pl.DataFrame, profiles: JobProfiles, stand_in: Mapping[str, str]) -> pl.Series:
    """The profile of each request, as `jobs.request_profiles` assigns it."""
    request = jobs.select(
        req_cpu=pl.col(stand_in.get("asked_cpus", "req_cpus")).cast(pl.Float64),
        req_node=pl.col(stand_in.get("asked_nodes", "req_nodes")).cast(pl.Float64),
        req_mem_gb=pl.col("req_mem_bytes") / _GIB,
        time_limit_s="time_limit_s",
    )
    return profiles.assign(request)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def find_tries(job: pl.DataFrame, own: pl.DataFrame) -> tuple[tuple[Try, ...], tuple[Try, ...]]:
    """Earlier tries, the last one first, and later tries, the first one first; `own` are the user's rows.

    The same work is the same task of the same application in the same directory, under the same name where there is one. An
    earlier try went wrong (it failed, or somebody cancelled it) before this job was submitted; a later one came after this job
    had gone wrong. A run that went well ends the row of tries; one that the scheduler took back says nothing.
    """
    this = job.with_columns(family()).row(0, named=True)
    return tuple(_earlier(this, own)), tuple(_later(this, own))


def _earlier(this: dict[str, Any], own: pl.DataFrame) -> list[Try]:
    submitted = this["submit_time"]
    before = own.filter((pl.col("submit_time") >= submitted - _WITHIN) & (pl.col("end_time") <= submitted))
    tries: list[Try] = []
    after = this
    for row in _same_work(this, before.sort("submit_time", descending=True, maintain_order=True)):
        if not _went_wrong(row) or len(tries) == _MOST:
            break
        tries.append(_try(row, before=row, after=after))
        after = row
    return tries


def _later(this: dict[str, Any], own: pl.DataFrame) -> list[Try]:
    ended = this["end_time"]
    if ended is None or not _went_wrong(this):
        return []
    since = own.filter(pl.col("submit_time").is_between(ended, ended + _WITHIN))
    tries: list[Try] = []
    before = this
    for row in _same_work(this, since.sort("submit_time", maintain_order=True)):
        if len(tries) == _MOST:
            break
        if row["submit_time"] < before["end_time"]:  # sent off while the last try still ran
            continue
        tries.append(_try(row, before=before, after=row))
        if row["end_time"] is None or not _went_wrong(row):
            break
        before = row
    return tries


def _same_work(this: dict[str, Any], jobs: pl.DataFrame) -> list[dict[str, Any]]:
    task = pl.col("array_task").eq_missing(pl.lit(this["array_task"], dtype=pl.Int64))
    taken_back = pl.col("failed").is_null() & pl.col("end_time").is_not_null() & (pl.col("state") != _CANCELLED)
    near = jobs.filter(task & ~taken_back).head(_NEAREST_JOBS).with_columns(family())
    directory = pl.lit(this["work_dir"], dtype=pl.String)
    same_directory = (pl.col("work_dir") == directory).fill_null(True)  # where both are known
    application = pl.col("family") == pl.lit(this["family"], dtype=pl.String)
    if this["family"] is None:
        application, same_directory = pl.col("family").is_null(), (pl.col("work_dir") == directory).fill_null(False)
    relatives = near.filter(application & same_directory)
    namesakes = relatives.filter(pl.col("job_name") == pl.lit(this["job_name"], dtype=pl.String))
    return (relatives if namesakes.is_empty() else namesakes).to_dicts()


def _went_wrong(row: dict[str, Any]) -> bool:
    return bool(row["failed"]) or row["state"] == _CANCELLED


def _try(other: dict[str, Any], *, before: dict[str, Any], after: dict[str, Any]) -> Try:
    changes = [
        Change(column=name, before=json_value(before[name]), after=json_value(after[name]))
        for name in REQUEST
        if before[name] != after[name]
    ]
    ref = JobRef.of(other)
    return Try(
        ref=str(ref),
        job=ref.job,
        state=other["state"],
        failed=other["failed"],
        submit_time=other["submit_time"],
        changes=changes,
        risk_before=_risk(before),
        risk_after=_risk(after),
    )


def _risk(row: dict[str, Any]) -> float | None:
    risk = row["first_risk"] if row["first_risk"] is not None else row["risk"]
    return None if risk is None else float(risk)
