"""The page of `stormpetrel top` as text: incidents, jobs at risk, jobs, sources -> sections -> lines that fit a width.

What a service or a site says of now (`look`) is a dict with as_of, level, headline, incidents, at_risk, jobs, sources; a key that
is missing is an empty section.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from stormpetrel_client.render import percent, plain, span

if TYPE_CHECKING:
    from stormpetrel_client.service import Service

SORTS = {
    "newest": ["-submit_time"],
    "risk": ["-risk", "-submit_time"],
    "name": ["job_name", "-submit_time"],
    "longest": ["-elapsed_s"],
}
MOST_JOBS = 100
_UNFINISHED = ("PENDING", "RUNNING", "SUSPENDED", "HELD")
_LEFT = "<"


class Question(NamedTuple):
    """What somebody looks for: the order of the jobs, only those that have not ended, a text that all rows must hold."""

    sort: str = "newest"
    is_open: bool = False
    text: str = ""

    def query(self) -> dict[str, Any]:
        """The same as parameters of the list of jobs."""
        state = list(_UNFINISHED) if self.is_open else None
        return {"limit": MOST_JOBS, "sort": SORTS[self.sort], "search": self.text or None, "state": state}


class Row(NamedTuple):
    """One line of a section: its cells, what it is about (kind and key, for more about it), and how urgent it is."""

    cells: tuple[str, ...]
    kind: str = ""
    key: str = ""
    tone: str = ""  # problem, warning, dim or nothing


class Section(NamedTuple):
    """A part of the page: its title, the names of its columns, its rows."""

    name: str
    title: str
    header: tuple[str, ...]
    rows: list[Row]
    nothing: str


def look_at_service(service: Service, question: Question) -> dict[str, Any]:
    """How it is now, for who asks: two questions to the service."""
    now = dict(service.ask("GET", "/now"))
    page = service.ask("GET", "/jobs", query=question.query())
    return {
        **{name: now.get(name) for name in ("as_of", "level", "headline")},
        **{name: now.get(name) or [] for name in ("incidents", "at_risk", "sources")},
        "incidents_total": now.get("incidents_total") or 0,
        "at_risk_total": now.get("at_risk_total") or 0,
        "jobs": page.get("items") or [],
        "jobs_total": page.get("total") or 0,
    }


def sections_of(look: Mapping[str, Any], question: Question) -> list[Section]:
    """The sections of the page; sources only where there are any, since they are for administrators."""
    jobs, at_risk = look.get("jobs") or [], look.get("at_risk") or []
    users = {str(row.get("user")) for row in [*jobs, *at_risk]}
    several = len(users) > 1
    owner = ("user",) if several else ()
    sections = [
        Section(
            "incidents", _counted("Incidents", look, "incidents"), ("no.", "severity", "state", "raised", "what"),
            [_incident(row) for row in look.get("incidents") or []], "No open incident.",
        ),
        Section(
            "at_risk", _counted("Jobs at risk", look, "at_risk"), ("job", *owner, "name", "state", "risk", "likeliest"),
            [_at_risk(row, several) for row in at_risk], "No job that waits or runs is flagged.",
        ),
        Section(
            "jobs", _counted("Jobs" if several else "My jobs", look, "jobs"),
            ("job", *owner, "name", "state", "submitted", "ran", "risk"),
            [_job(row, several) for row in jobs], "No jobs.",
        ),
    ]  # fmt: skip
    sources = look.get("sources") or []
    if sources:
        header = ("source", "of", "read", "problem")
        sections.append(Section("sources", "Sources", header, [_source(row) for row in sources], ""))
    return [section._replace(rows=[row for row in section.rows if _holds(row, section, question)]) for section in sections]


def _counted(title: str, look: Mapping[str, Any], name: str) -> str:
    total, shown = look.get(f"{name}_total") or 0, len(look.get(name) or [])
    return f"{title} ({shown} of {total:,})" if shown < total else f"{title} ({total:,})"


def _holds(row: Row, section: Section, question: Question) -> bool:
    """Whether a row holds the text; the service has looked for it among the jobs, also where this row does not show it."""
    if not question.text or section.name == "jobs":
        return True
    return question.text.casefold() in " ".join(row.cells).casefold()


def _incident(row: Mapping[str, Any]) -> Row:
    severity = str(row.get("severity", ""))
    tone = "dim" if row.get("state") != "open" else {"page": "problem", "warning": "warning"}.get(severity, "")
    number = str(row.get("id", "?"))
    cells = (number, severity, str(row.get("state", "")), _time(row.get("raised_at")), str(row.get("title", "")))
    return Row(tuple(map(plain, cells)), "incident", number, tone)


def _at_risk(row: Mapping[str, Any], several: bool) -> Row:
    cells = [*_who(row, several), str(row.get("state") or ""), percent(row.get("risk")), str(row.get("likeliest") or "")]
    return Row(tuple(map(plain, cells)), "job", str(row.get("ref", "")), "warning" if (row.get("risk") or 0) >= 0.5 else "")


def _job(row: Mapping[str, Any], several: bool) -> Row:
    ran, risk = row.get("elapsed_s"), row.get("risk")
    cells = [
        *_who(row, several),
        str(row.get("state") or ""),
        _time(row.get("submit_time")),
        span(ran) if ran else "",
        percent(risk) if risk is not None else "",
    ]
    tone = "problem" if row.get("failed") else "warning" if row.get("flagged") and row.get("end_time") is None else ""
    return Row(tuple(map(plain, cells)), "job", str(row.get("ref", "")), tone)


def _who(row: Mapping[str, Any], several: bool) -> list[str]:
    return [str(row.get("job", "?")), *([str(row.get("user") or "")] if several else []), (row.get("job_name") or "")[:24]]


def _source(row: Mapping[str, Any]) -> Row:
    lag, problem = row.get("lag_s"), str(row.get("problem") or "")
    cells = (
        str(row.get("name", "?")),
        str(row.get("watcher", "")),
        "never" if lag is None else f"{span(lag)} ago",
        problem or "fine",
    )
    return Row(tuple(map(plain, cells)), tone="problem" if problem else "")


def _time(text: object) -> str:
    return str(text or "")[5:16].replace("T", " ")


# Text that fits


def width_of(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text
    )


def fitted(text: str, width: int) -> str:
    """A text cut or filled up to a width; what was cut ends in an ellipsis."""
    missing = width - width_of(text)
    if missing >= 0:
        return text + " " * missing
    kept, taken = "", 0
    for letter in text:
        size = width_of(letter)
        if taken + size > width - 1:
            break
        kept, taken = kept + letter, taken + size
    return f"{kept}…{' ' * (width - 1 - taken)}" if width > 0 else ""


def table_lines(header: Sequence[str], rows: Iterable[Row], width: int) -> list[str]:
    """The header and the rows as lines of exactly this width; the last column gets what is left."""
    cells = [tuple(header), *(row.cells for row in rows)]
    widths = [max(width_of(row[place]) for row in cells) for place in range(len(header) - 1)]
    return [fitted("  ".join([*map(fitted, row, widths), row[-1]]), width) for row in cells]


def head_line(look: Mapping[str, Any]) -> str:
    """Whether to act, and when this was so."""
    as_of = str(look.get("as_of") or "")[:19].replace("T", " ")
    return (
        f"{plain(look.get('headline') or 'Stormpetrel')}  {as_of} UTC" if as_of else plain(look.get("headline") or "Stormpetrel")
    )


def once_lines(look: Mapping[str, Any], question: Question, width: int, most: int = 20) -> list[str]:
    """The whole page, once, for scripts and tests."""
    lines = [head_line(look)]
    for section in sections_of(look, question):
        lines += ["", section.title]
        rows = section.rows[:most]
        lines += [line.rstrip() for line in table_lines(section.header, rows, width)] if rows else [section.nothing]
    return lines
