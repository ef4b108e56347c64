"""How the site is now: open incidents, jobs at risk, nodes, the cluster's hour against its expectation, sources.

LiveSite + Viewer -> now_page -> NowAnswer; Site + Overview -> top_page -> TopAnswer; + a time -> news_since -> NewsAnswer.
Composed of the answers of other pages: who may see what is decided there. Nothing is waited for: what is still being worked out
is named as pending.
"""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar
from zoneinfo import ZoneInfo

import polars as pl

from stormpetrel.alarms.acts import with_acts
from stormpetrel.alarms.titles import title
from stormpetrel.answers.alarms.incidents import list_incidents
from stormpetrel.answers.alarms.replay import visible
from stormpetrel.answers.alarms.timeline import timeline
from stormpetrel.answers.background import scope_of
from stormpetrel.answers.cluster.bucket import cluster_bucket
from stormpetrel.answers.cluster.cluster import ClusterState, cluster_now
from stormpetrel.answers.nodes.nodes import node_answer
from stormpetrel.answers.overview.job_table import job_rows, table_query
from stormpetrel.answers.overview.query import TableFilter, TableQuery
from stormpetrel.answers.schemas.alarms import MOST_INCIDENTS, IncidentLine, IncidentQuestion
from stormpetrel.answers.schemas.cluster import BucketQuestion, ClusterNow
from stormpetrel.answers.schemas.health import NewsAnswer, NewsLine, NowAnswer, NowHour, NowNode, TopAnswer
from stormpetrel.answers.schemas.nodes import NodesQuestion
from stormpetrel.answers.site.health import source_lags
from stormpetrel.answers.viewer import READ
from stormpetrel.errors import StormpetrelError
from stormpetrel.records.findings import SubjectKind
from stormpetrel.records.incidents import SEVERITIES, Severity
from stormpetrel.records.states import UNFINISHED

if TYPE_CHECKING:
    from stormpetrel.answers.background import Background, Snapshot
    from stormpetrel.answers.cluster.board import ClusterBoard
    from stormpetrel.answers.history.day_book import DayBook
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.overview.overview import Overview
    from stormpetrel.answers.schemas.jobs import JobsQuestion
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.site import Site

T = TypeVar("T")
MOST_SHOWN: Final = 10  # incidents and jobs
MOST_NEWS: Final = 20
_RECENT_INCIDENTS: Final = 200  # incidents in which something may have happened, the newest
_FAILURES: Final = timedelta(days=7)
_DIGITS: Final = re.compile(r"(\d+)")


def now_page(live: LiveSite, viewer: Viewer) -> NowAnswer:
    """Return how the site is now, for what this viewer may see."""
    viewer.require(READ)
    lines = _open_incidents(live.site, viewer)
    board = _snapshot(live.boards.cluster, live)
    sources = source_lags(live.site, viewer)
    broken = sum(bool(source.problem) for source in sources)
    at_risk = live.overview.page(viewer, _at_risk())
    how = None if board is None else cluster_now(live, viewer, board=board.value)
    return NowAnswer(
        as_of=live.now(),
        level=_level(lines, broken),
        headline=f"{incident_headline(lines)}{_broken_text(broken)}",
        incidents=lines[:MOST_SHOWN],
        incidents_total=len(lines),
        at_risk=job_rows(at_risk.rows),
        at_risk_total=at_risk.total,
        nodes=_nodes(live, viewer, lines),
        grid=how if how is not None and how.state != ClusterState.EMPTY.value else None,
        hour=None if board is None or how is None else _hour(live, viewer, board.value, how),
        sources=sources,
        pending=_pending(live),
    )


def top_page(site: Site, overview: Overview, viewer: Viewer, question: JobsQuestion) -> TopAnswer:
    """Return how a site is now that nobody serves, and a page of its jobs, out of an overview that was just refreshed."""
    viewer.require(READ)
    lines, sources = _open_incidents(site, viewer), source_lags(site, viewer)
    broken = sum(bool(source.problem) for source in sources)
    at_risk, jobs = overview.page(viewer, _at_risk()), overview.page(viewer, table_query(question))
    return TopAnswer(
        as_of=site.now(),
        level=_level(lines, broken),
        headline=f"{incident_headline(lines)}{_broken_text(broken)}",
        incidents=lines[:MOST_SHOWN],
        incidents_total=len(lines),
        at_risk=job_rows(at_risk.rows),
        at_risk_total=at_risk.total,
        jobs=job_rows(jobs.rows),
        jobs_total=jobs.total,
        sources=sources,
    )


def _open_incidents(site: Site, viewer: Viewer) -> list[IncidentLine]:
    """The open incidents, the most severe first, and of the same severity the newest first."""
    lines = list_incidents(site, viewer, IncidentQuestion(limit=MOST_INCIDENTS)).incidents
    return sorted(lines, key=lambda line: -SEVERITIES.index(Severity(line.severity)))


def incident_headline(lines: list[IncidentLine]) -> str:
    """Return whether to act, in a line: how many incidents are open, and how many of them are pages."""
    if not lines:
        return "No open incident."
    count, pages = len(lines), sum(line.severity == Severity.PAGE.value for line in lines)
    taken = sum(line.state == "acknowledged" for line in lines)
    sentence = f"{count:,} open {'incident' if count == 1 else 'incidents'}"
    loud = "" if not pages else ", a page" if count == 1 else f", {pages:,} of them {'a page' if pages == 1 else 'pages'}"
    known = "" if not taken else "; acknowledged" if count == 1 else f"; {taken:,} acknowledged"
    return f"{sentence}{loud}{known}."


def news_since(live: LiveSite, viewer: Viewer, since: datetime) -> NewsAnswer:
    """Return what happened after a time to the incidents that this viewer may see, the newest first."""
    viewer.require(READ)
    zone = live.settings.site.time_zone
    news: list[NewsLine] = []
    past = live.site.incidents.list(limit=_RECENT_INCIDENTS)
    acts = live.site.incidents.acts(incident.id for incident in past)
    for incident in past:
        shown = visible(with_acts(incident, acts[incident.id]), viewer)
        if shown is None or shown.is_quiet:
            continue
        news += [
            NewsLine(incident=shown.id, time=moment.time, words=moment.words, title=title(shown, zone))
            for moment in timeline(shown, acts[incident.id], names=viewer.is_admin)
            if moment.time > since and moment.what != "began"
        ]
    news.sort(key=lambda line: line.time)  # of the same time in the order of the time line
    return NewsAnswer(since=since, news=news[: -MOST_NEWS - 1 : -1])


def _broken_text(broken: int) -> str:
    return "" if not broken else f" {broken} {'source has a problem' if broken == 1 else 'sources have problems'}."


def _level(lines: list[IncidentLine], broken: int) -> Any:
    if any(line.severity == Severity.PAGE.value and line.state == "open" for line in lines):
        return "problem"
    return "warning" if lines or broken else "ok"


def _at_risk() -> TableQuery:
    filters = (TableFilter("state", "is_in", [str(state) for state in UNFINISHED]), TableFilter("flagged", "equals", True))
    return TableQuery(sort=(("risk", True), ("submit_time", True)), filters=filters, limit=MOST_SHOWN)


def _hour(live: LiveSite, viewer: Viewer, board: Snapshot[ClusterBoard], how: ClusterNow) -> NowHour | None:
    if how.latest is None:
        return None
    start = how.latest - timedelta(seconds=how.bucket_s)
    bucket = cluster_bucket(live, viewer, BucketQuestion(at=start), board=board)
    return NowHour(start=bucket.start, bucket_s=how.bucket_s, alarm=bucket.alarm, kinds=bucket.kinds)


def _nodes(live: LiveSite, viewer: Viewer, lines: list[IncidentLine]) -> list[NowNode]:
    """Every node that job records, traces or open incidents name, n2 before n10."""
    known: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    book, scored = _snapshot(live.boards.books, live), _snapshot(live.boards.nodes, live)
    if book is None:  # the few that incidents name would look like all there are
        return []
    for node, jobs, failed in _failures(live, viewer, book):
        known[node] |= {"jobs": jobs, "failed": failed}
    for row in [] if scored is None else node_answer(scored.value, viewer, NodesQuestion(limit=1)).nodes:
        known[row.node] |= {"windows": row.windows, "flagged": row.flagged}
    for line in lines:
        for subject in line.subjects:
            if subject.kind == SubjectKind.NODE.value:
                known[subject.name].setdefault("incidents", []).append(line.id)
    nothing: dict[str, Any] = {"incidents": [], "jobs": None, "failed": None, "windows": None, "flagged": None}
    return [NowNode(node=name, **{**nothing, **known[name]}) for name in sorted(known, key=_by_number)]


def _failures(live: LiveSite, viewer: Viewer, book: Snapshot[DayBook]) -> list[tuple[str, int, int]]:
    """(node, jobs, failed jobs) of the last seven days."""
    first = (live.now() - _FAILURES).astimezone(ZoneInfo(live.settings.site.time_zone)).date()
    return book.answer(("nodes of now", scope_of(viewer), first), lambda: _sums(book.value.seen_by(viewer).nodes, first))


def _sums(days: pl.DataFrame, first: date) -> list[tuple[str, int, int]]:
    rows = days.filter((pl.col("day") >= first) & (pl.col("judged") > 0))
    sums = rows.group_by(pl.col("node").cast(pl.String)).agg(pl.col("judged", "judged_failed").sum())
    return list(sums.filter(pl.col("node") != "").select("node", "judged", "judged_failed").iter_rows())


def _pending(live: LiveSite) -> list[Literal["nodes", "hour"]]:
    """The parts that were never worked out yet, and can be."""
    waits: dict[Literal["nodes", "hour"], list[Background[Any]]] = {
        "nodes": [live.boards.books, live.boards.nodes],
        "hour": [live.boards.cluster],
    }
    return [part for part, boards in waits.items() if any(_is_waited_for(board, live) for board in boards)]


def _is_waited_for(board: Background[Any], live: LiveSite) -> bool:
    try:
        return board.peek(live) is None
    except StormpetrelError:
        return False


def _snapshot(board: Background[T], live: LiveSite) -> Snapshot[T] | None:
    """What is known of a topic; None while it is worked out for the first time, and where that fails: its own page says why."""
    try:
        return board.peek(live)
    except StormpetrelError:
        return None


def _by_number(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isascii() and part.isdecimal() else (-1, part) for part in _DIGITS.split(name)[:40]]
