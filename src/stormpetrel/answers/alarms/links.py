"""Where on the dashboard to look at what an incident is about.

subject, job, span of time -> a path of the dashboard, or None where no page shows it.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from stormpetrel.records.findings import SubjectKind

if TYPE_CHECKING:
    from stormpetrel.records.findings import Subject


def subject_link(subject: Subject, since: datetime, until: datetime, zone: str) -> str | None:
    """Return where a subject is shown as it was in a span of time: a node's windows, a user's jobs."""
    if subject.kind == SubjectKind.NODE:
        span = f"{int(since.timestamp())}..{int(until.timestamp()) + 1}"
        return f"/nodes?{urlencode({'node': subject.name, 'at': span})}"
    columns = {SubjectKind.USER: "user", SubjectKind.PARTITION: "partition"}
    column = columns.get(subject.kind)
    return None if column is None else jobs_link(since, until, zone, **{column: subject.name})


def jobs_link(since: datetime, until: datetime, zone: str, **equal: str) -> str:
    """Return the table of the jobs that started in the days of a span, with these values in their columns."""
    first, last = (f"{moment.astimezone(ZoneInfo(zone)):%Y-%m-%d}" for moment in (since, until))
    wanted = {name: f"equals:{value}" for name, value in equal.items()}
    query = {"view": "all", **wanted, "start_time": f"inRange:{first}..{last}", "sort": "-start_time"}
    return f"/jobs?{urlencode(query)}"


def job_link(ref: str) -> str:
    """Return where one job is shown."""
    return f"/jobs?{urlencode({'view': 'all', 'job': ref})}"
