"""The page of `stormpetrel top` as text: what stands on it, and that it fits."""

from __future__ import annotations

from typing import Any

import pytest
from stormpetrel_client.page import Question, fitted, head_line, once_lines, sections_of, width_of

INCIDENT = {
    "id": 7, "severity": "page", "state": "open", "raised_at": "2026-11-18T04:57:00Z",
    "title": "n017 fails every job; suspected: node",
}  # fmt: skip
RISKY = {
    "ref": "12-1-0-c", "job": "12", "user": "ada", "job_name": "fit_3", "state": "RUNNING", "risk": 0.61, "likeliest": "TIMEOUT",
    "flagged": True,
}  # fmt: skip
ENDED = {
    **RISKY,
    "ref": "11-1-0-c",
    "job": "11",
    "state": "FAILED",
    "failed": True,
    "elapsed_s": 90.0,
    "end_time": "2026-11-18T05:00:00Z",
}
SOURCE = {"name": "sacct", "watcher": "jobs", "lag_s": 8.0, "problem": ""}
LOOK: dict[str, Any] = {
    "as_of": "2026-11-18T07:33:35Z", "level": "problem", "headline": "1 open incident, a page.", "incidents": [INCIDENT],
    "incidents_total": 1, "at_risk": [RISKY], "at_risk_total": 1, "jobs": [RISKY, ENDED], "jobs_total": 4711, "sources": [],
}  # fmt: skip


def text_of(look: dict[str, Any], question: Question = Question(), width: int = 100) -> str:
    return "\n".join(once_lines(look, question, width))


def test_it_says_what_is_wrong_who_is_at_risk_and_how_the_own_jobs_are() -> None:
    text = text_of(LOOK)
    assert text.startswith("1 open incident, a page.  2026-11-18 07:33:35 UTC\n\nIncidents (1)\n")
    assert "7    page      open   11-18 04:57  n017 fails every job; suspected: node" in text
    assert "12   fit_3  RUNNING  61 %  TIMEOUT" in text
    assert "My jobs (2 of 4,711)" in text and "Sources" not in text


def test_users_are_named_where_there_are_several_and_sources_stand_where_somebody_may_see_them() -> None:
    text = text_of(
        {**LOOK, "jobs": [RISKY, {**ENDED, "user": "eve"}], "sources": [SOURCE, {"name": "queue", "problem": "no answer"}]}
    )
    assert "job  user  name" in text and "\nJobs (2 of 4,711)" in text
    assert "sacct   jobs  8 s ago  fine" in text and "queue         never    no answer" in text


@pytest.mark.parametrize(
    "look", [{}, {"headline": None, "jobs": None}, {"jobs": [{}], "incidents": [{}], "sources": [{}], "at_risk": [{}]}]
)
def test_what_an_older_service_leaves_out_is_left_out(look: dict[str, Any]) -> None:
    assert "Incidents" in text_of(look)


def test_a_text_narrows_incidents_and_jobs_at_risk_and_the_service_has_narrowed_the_jobs() -> None:
    sections = {section.name: len(section.rows) for section in sections_of(LOOK, Question(text="FIT"))}
    assert sections == {"incidents": 0, "at_risk": 1, "jobs": 2}
    assert Question("risk", True, "fit").query() == {
        "limit": 100, "sort": ["-risk", "-submit_time"], "search": "fit", "state": ["PENDING", "RUNNING", "SUSPENDED", "HELD"],
    }  # fmt: skip


def test_names_of_jobs_do_nothing_to_the_terminal_and_every_line_has_the_width() -> None:
    look = {**LOOK, "jobs": [{**RISKY, "job_name": "\x1b[2Jé漢字漢字"}], "headline": "a\x07b"}
    assert "\x1b" not in text_of(look) and head_line(look).startswith("a?b")
    for width in (20, 41, 77, 200):
        assert all(width_of(line) <= width for line in once_lines(look, Question(), width)[2:])


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [("abc", 5, "abc  "), ("abcdef", 4, "abc…"), ("漢字漢", 4, "漢… "), ("e\u0301x", 3, "e\u0301x "), ("ab", 0, "")],
)
def test_a_text_is_cut_or_filled_to_its_width(text: str, width: int, shown: str) -> None:
    assert fitted(text, width) == shown
