"""What administrators answered on single cases, as learning uses it.

Site + job frame -> with_answers -> the same jobs, with what administrators said in place of what accounting says;
Site -> cleared_hours -> the hours of nodes that somebody found calm. Answers on buckets of events are labels (`store/events`),
and a confirmed hour of a node is a known region: both are used where these are.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import polars as pl

from stormpetrel.records.incidents import VERDICTS, Verdict
from stormpetrel.records.jobs import ref_text
from stormpetrel.records.states import JobState
from stormpetrel.store.site import Site

JOB, NODE, BUCKET = "job", "node", "bucket"
HOUR: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class NodeHour:
    """An hour of a node, from `since` on (UTC)."""

    node: str
    since: datetime

    @property
    def case(self) -> str:
        """What names it."""
        return f"{NODE}:{self.node}@{int(self.since.timestamp())}"


def node_hour(case: str) -> NodeHour | None:
    """Return the hour of a node that a case is about; None where it is about something else."""
    kind, _, rest = case.partition(":")
    node, _, second = rest.rpartition("@")
    if kind != NODE or not node or not (second.isascii() and second.isdecimal() and len(second) <= 10):
        return None
    return NodeHour(node, datetime.fromtimestamp(int(second), UTC))


def answered_jobs(site: Site) -> dict[str, bool]:
    """Return which jobs administrators have judged, by reference: whether each is a failure."""
    answers = site.case_answers.standing().values()
    return {
        answer.case.partition(":")[2]: VERDICTS[answer.kind] == Verdict.CONFIRMED
        for answer in answers
        if answer.case.startswith(f"{JOB}:")
    }


def with_answers(site: Site, jobs: pl.DataFrame) -> pl.DataFrame:
    """Return the jobs with the outcome that administrators gave those that they were asked about; the others as they are."""
    answered = answered_jobs(site)
    if not answered or not jobs.height:
        return jobs
    is_failure = pl.Series([answered.get(ref) for ref in jobs.select(ref_text()).to_series()], dtype=pl.Boolean)
    was_failure = pl.col("state").is_in(list(site.settings.jobs.failure_states))
    state = (
        pl.when(is_failure & ~was_failure)
        .then(pl.lit(JobState.FAILED.value))
        .when(~is_failure & was_failure)
        .then(pl.lit(JobState.COMPLETED.value))
        .otherwise(pl.col("state"))
    )
    return jobs.with_columns(state.alias("state"))


def cleared_hours(site: Site) -> list[NodeHour]:
    """Return the hours of nodes that administrators were asked about and found calm."""
    answers = site.case_answers.standing().values()
    hours = (node_hour(answer.case) for answer in answers if VERDICTS[answer.kind] == Verdict.DISMISSED)
    return [hour for hour in hours if hour is not None]
