"""What a job may be called by somebody who means harm, and how to tell that it stayed text."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import polars as pl

from tests.builders import Job, write_sacct

HOSTILE = "<img src=x onerror=alert(1)>"
_TAGS = {"style", "div", "table", "thead", "tbody", "tr", "th", "td", "span", "h4", "ul", "li", "strong"}


def made_hostile(jobs: pl.DataFrame) -> pl.DataFrame:
    """The jobs, every word in them that a user chooses replaced."""
    chosen = ("job_name", "user", "account", "partition", "work_dir", "node_list", "state_raw", "submit_line")
    return jobs.with_columns(pl.lit(HOSTILE).alias(name) for name in chosen)


def write_hostile_log(path: Path, jobs: int = 12) -> Path:
    """A log of sacct in which the names of jobs and users are hostile."""
    start = Job().submit
    rows = [
        Job(
            job_id=500 + n,
            name=HOSTILE,
            user=HOSTILE,
            submit=start + timedelta(hours=n),
            state="FAILED" if n % 2 else "COMPLETED",
        )
        for n in range(jobs)
    ]
    return write_sacct(path, rows)


def assert_is_text(html: str) -> None:
    """Nothing but our own tags, and none of them with a handler."""
    assert set(re.findall(r"<\s*/?\s*([a-zA-Z0-9!?]+)", html)) <= _TAGS
    assert not re.search(r"<[^>]*\son\w+\s*=", html)
