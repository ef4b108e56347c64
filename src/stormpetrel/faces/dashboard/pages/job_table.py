"""The table of jobs, and the live figures above it: what the grid asks for -> TableQuery -> Overview.page -> rows to be shown.

A link's view, search, sort and filters reach the server with each request; the server sorts, filters and pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import polars as pl

from stormpetrel.answers.jobs.details import find_jobs
from stormpetrel.answers.overview.overview import TableFilter, TableQuery
from stormpetrel.errors import UsageError
from stormpetrel.jobs.outcomes import NEVER_STARTED, OUTCOME_LABELS
from stormpetrel.jobs.prediction_text import percent
from stormpetrel.records.jobs import is_job_id
from stormpetrel.records.states import UNFINISHED, JobState

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.schemas.jobs import JobRow
    from stormpetrel.answers.viewer import Viewer

MOST_ROWS: Final = 200  # that one request may ask for
_LONGEST_TEXT: Final = 200
_OPEN: Final = tuple(str(state) for state in UNFINISHED)
_RUNNING: Final = (str(JobState.RUNNING), str(JobState.SUSPENDED), str(JobState.RESIZING))
_WAITING: Final = (str(JobState.PENDING), str(JobState.HELD))
STATE_LABELS: Final = {
    **{str(state): str(state).replace("_", " ").capitalize() for state in JobState},
    "PENDING": "Waiting",
    "TIMEOUT": "Timed out",
    "NODE_FAIL": "Node failed",
    "BOOT_FAIL": "Node failed to boot",
    NEVER_STARTED: "Never started",
}
MOMENT_LABELS: Final = {"submit": "at submission", "start": "at start", "2min": "2 min in"}
FLAG_LABELS: Final = {"Fail": "Flagged", "Complete": "Not flagged"}
_VALUE_LABELS: Final[Mapping[str, Mapping[str, str]]] = {
    "state": STATE_LABELS,
    "prediction": FLAG_LABELS,
    "likeliest": OUTCOME_LABELS,
    "moment": MOMENT_LABELS,
}
_KINDS: Final = {  # AG Grid's words -> ours
    "equals": "equals",
    "notEqual": "not_equal",
    "contains": "contains",
    "notContains": "not_contains",
    "startsWith": "starts_with",
    "endsWith": "ends_with",
    "lessThan": "less",
    "lessThanOrEqual": "less_equal",
    "greaterThan": "greater",
    "greaterThanOrEqual": "greater_equal",
    "inRange": "between",
    "blank": "blank",
    "notBlank": "not_blank",
}
_TIMES: Final = ("submit_time", "start_time")
_SHOWN: Final = (
    "ref", "job", "user", "job_name", "state", "submit_time", "start_time", "prediction", "risk", "likeliest", "moment",
    "account", "partition", "known", "never_started", "waiting", "waiting_words", "never_runs",
)  # fmt: skip
_SORTS: Final = {"prediction": "risk"}  # by prediction means: the likeliest to fail first


@dataclass(frozen=True, slots=True)
class View:
    """A named selection of jobs, with the order it is shown in."""

    name: str
    words: str
    order: str  # in words
    sort: tuple[tuple[str, bool], ...]


# What the scheduler knows comes before any forecast: jobs that cannot run as they stand are first.
_STUCK_FIRST: Final = "what cannot run first, then riskiest first"
VIEWS: Final = (
    View("now", "Now", _STUCK_FIRST, (("never_runs", True), ("risk", True), ("submit_time", True))),
    View("stuck", "Cannot run", "newest first", (("submit_time", True),)),
    View("risk", "At risk now", "riskiest first", (("risk", True), ("submit_time", True))),
    View("running", "Running", "riskiest first", (("risk", True), ("start_time", True))),
    View("waiting", "Waiting", _STUCK_FIRST, (("never_runs", True), ("risk", True), ("submit_time", True))),
    View("failed", "Failed today", "latest first", (("end_time", True),)),
    View("mine", "My jobs", "newest first", (("submit_time", True),)),
    View("all", "All", "newest first", (("submit_time", True),)),
)


def table_rows(live: LiveSite, viewer: Viewer, request: Mapping[str, Any]) -> dict[str, Any]:
    """What the grid requested: rows, how many there are in all, and the order they are in, in words."""
    query = table_query(request, viewer, today=_midnight(live))
    page = live.overview.page(viewer, query)
    view = _view(request)
    sorted_by = request.get("sortModel")
    return {
        "id": request.get("id"),
        "rows": shown(page.rows, live.settings.site.time_zone),
        "total": page.total,
        "order": "" if sorted_by else view.order,
    }


def table_query(request: Mapping[str, Any], viewer: Viewer, *, today: datetime) -> TableQuery:
    """The question behind a request of the grid; UsageError where it makes none."""
    view = _view(request)
    start = _whole(request.get("startRow"))
    end = min(_whole(request.get("endRow"), start + 100), start + MOST_ROWS)
    sort = tuple(
        (_SORTS.get(str(sorted_by["colId"]), str(sorted_by["colId"])), sorted_by["sort"] == "desc")
        for sorted_by in request.get("sortModel") or ()
    )
    zone = str(request.get("time_zone") or "UTC")
    filters = [_filter(str(column), model, zone) for column, model in (request.get("filterModel") or {}).items()]
    return TableQuery(
        sort=sort or view.sort,
        filters=(*_of_view(view.name, viewer, today), *filters),
        search=str(request.get("search") or "").strip()[:_LONGEST_TEXT],
        offset=start,
        limit=max(0, end - start),
    )


def _view(request: Mapping[str, Any]) -> View:
    return next((view for view in VIEWS if view.name == request.get("view")), VIEWS[0])


def _of_view(name: str, viewer: Viewer, today: datetime) -> tuple[TableFilter, ...]:
    unfinished = TableFilter("state", "is_in", _OPEN)
    return {
        "now": (unfinished,),
        "stuck": (TableFilter("never_runs", "equals", True),),
        "risk": (unfinished, TableFilter("flagged", "equals", True)),
        "running": (TableFilter("state", "is_in", _RUNNING),),
        "waiting": (TableFilter("state", "is_in", _WAITING),),
        "failed": (TableFilter("failed", "equals", True), TableFilter("end_time", "greater_equal", today)),
        "mine": (TableFilter("user", "equals", viewer.user),),
    }.get(name, ())


def _filter(column: str, model: Mapping[str, Any], zone: str) -> TableFilter:
    kind = _KINDS.get(str(model.get("type")))
    if kind is None:
        raise UsageError(
            f"Unknown filter {str(model.get('type'))[:40]!r} on {column[:40]!r}.", hint="Clear it, and set it again."
        )
    if kind in ("blank", "not_blank"):
        return TableFilter(column, kind)
    if column in _TIMES:
        return _time_filter(column, kind, model, ZoneInfo(zone))
    value = model.get("filter")
    if column == "risk":  # the table shows it in percent
        return TableFilter(column, kind, _share(value), _share(model.get("filterTo")))
    if isinstance(value, str):
        value = _stored(column, value.strip()[:_LONGEST_TEXT])
    if (column, value) == ("state", NEVER_STARTED):  # what the table calls so is CANCELLED, or the like, to the scheduler
        return TableFilter("never_started", "equals", kind not in ("not_equal", "not_contains"))
    return TableFilter(column, kind, value, model.get("filterTo"))


def _share(percent: object) -> float | None:
    return percent / 100 if isinstance(percent, int | float) else None


def _time_filter(column: str, kind: str, model: Mapping[str, Any], zone: ZoneInfo) -> TableFilter:
    """Days of the site's time zone; a day is all of it."""
    first, last = _day(model.get("dateFrom"), zone), _day(model.get("dateTo") or model.get("dateFrom"), zone)
    end = last + timedelta(days=1) - timedelta(microseconds=1)
    if kind in ("equals", "between"):
        return TableFilter(column, "between", first, end)
    return TableFilter(column, kind, end if kind in ("greater", "less_equal") else first)


def _day(text: object, zone: ZoneInfo) -> datetime:
    try:
        return datetime.fromisoformat(str(text)[:10]).replace(tzinfo=zone).astimezone(UTC)
    except ValueError as error:
        raise UsageError(f"{str(text)[:40]!r} is not a day.", hint="Write it as 2026-11-15.") from error


def _stored(column: str, text: str) -> str:
    """What the table writes, as stored: `waiting` is PENDING. A part of several words is looked for in the scheduler's own."""
    labels = _VALUE_LABELS.get(column)
    if labels is None:
        return text
    exact = [raw for raw, shown in labels.items() if text.lower() in (shown.lower(), raw.lower())]
    part = exact or [raw for raw, shown in labels.items() if text.lower() in shown.lower()]
    return part[0] if len(part) == 1 else text.upper().replace(" ", "_")


def shown(rows: pl.DataFrame, zone: str) -> list[dict[str, Any]]:
    """Rows as the grid shows them: times in the site's zone, states and outcomes in words."""
    times = [pl.col(name).dt.convert_time_zone(zone).dt.strftime("%d %b %H:%M").alias(name) for name in _TIMES]
    labelled = rows.select(_SHOWN).with_columns(
        *times,
        state_text=pl.when("never_started").then(pl.lit(NEVER_STARTED)).otherwise("state").replace(STATE_LABELS),
        likeliest=pl.col("likeliest").replace(OUTCOME_LABELS),
        moment=pl.col("moment").replace(MOMENT_LABELS),
        flag_text=pl.col("prediction").replace(FLAG_LABELS),
        format_risk=pl.col("risk").map_elements(percent, return_dtype=pl.String, skip_nulls=True),
    )
    return labelled.to_dicts()


def state_text(row: Mapping[str, Any] | JobRow) -> str:
    """The state of a row of the overview, in words."""
    return STATE_LABELS[NEVER_STARTED] if row["never_started"] else STATE_LABELS.get(row["state"], row["state"])


def job_with_id(live: LiveSite, viewer: Viewer, text: str) -> str | None:
    """The reference of the latest job with exactly this id; None where there is none, or the text is no id."""
    if not is_job_id(text.strip()):
        return None
    matches = find_jobs(live, viewer, text, limit=1)
    return None if matches.is_empty() else str(matches["ref"].item())


def _whole(value: object, otherwise: int = 0) -> int:
    return value if isinstance(value, int) and 0 <= value <= 10**9 else otherwise


@dataclass(frozen=True, slots=True)
class LiveFigures:
    """How many jobs wait, cannot run as they stand, run, are at risk, and failed since midnight."""

    waiting: int
    stuck: int
    running: int
    at_risk: int
    failed_today: int
    jobs: int
    predicted: int


def live_figures(live: LiveSite, viewer: Viewer) -> LiveFigures:
    """The numbers above the table, for what a viewer may see."""
    return _figures(live, viewer, live.version, _midnight(live))


@lru_cache(64)
def _figures(live: LiveSite, viewer: Viewer, version: int, today: datetime) -> LiveFigures:
    state, unfinished = pl.col("state"), pl.col("state").is_in(_OPEN)
    sums = {
        "waiting": state.is_in(_WAITING).sum(),
        "stuck": pl.col("never_runs").sum(),
        "running": state.is_in(_RUNNING).sum(),
        "at_risk": (unfinished & pl.col("flagged")).fill_null(False).sum(),
        "failed_today": (pl.col("failed") & (pl.col("end_time") >= today)).fill_null(False).sum(),
        "jobs": pl.len(),
        "predicted": pl.col("risk").is_not_null().sum(),
    }  # fmt: skip
    return LiveFigures(**live.overview.sums(viewer, sums, of=today))


def _midnight(live: LiveSite) -> datetime:
    """When today began, in the site's time zone."""
    local = live.now().astimezone(ZoneInfo(live.settings.site.time_zone))
    return local.replace(hour=0, minute=0, second=0, microsecond=0).astimezone(UTC)
