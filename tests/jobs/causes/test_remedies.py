"""What helped others: pairs of a failure and the next try, counted honestly."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from stormpetrel.jobs.causes.remedies import remedies, retries
from stormpetrel.records.jobs import job_frame

T = datetime(2026, 11, 1, tzinfo=UTC)
NOW = T + timedelta(days=10)
GB = 10**9


def run(
    number: int, hour: float, *, state: str = "COMPLETED", user: str = "wren", memory: float = 4, **values: Any
) -> dict[str, Any]:
    submit = T + timedelta(hours=hour)
    return {
        "cluster": "c", "job_id": number, "array_task": None, "submit_time": submit, "restart": 0, "state": state, "user": user,
        "job_name": "fit", "start_time": submit, "end_time": submit + timedelta(minutes=30), "elapsed_s": 1800.0,
        "req_mem_bytes": int(memory * GB), "partition": "batch", **values,
    }  # fmt: skip


def tried(user: str, *, memory: float, state: str = "COMPLETED") -> list[dict[str, Any]]:
    number = abs(hash(user)) % 10**6
    return [run(number, 0, state="OUT_OF_MEMORY", user=user), run(number + 1, 2, user=user, memory=memory, state=state)]


def test_a_failure_and_the_next_try_are_a_pair_with_its_change() -> None:
    pairs = retries(job_frame(tried("a", memory=8)), now=NOW)
    assert pairs.select("change", "factor", "succeeded").rows() == [("more memory", 2.0, True)]


def test_a_try_that_has_not_ended_by_now_is_not_known() -> None:
    assert retries(job_frame(tried("a", memory=8)), now=T + timedelta(hours=2)).is_empty()


def test_a_job_submitted_before_the_failure_is_no_try_after_it() -> None:
    rows = [run(1, 0, state="OUT_OF_MEMORY"), run(2, 0.2, memory=8)]
    assert retries(job_frame(rows), now=NOW).is_empty()


def test_what_helped_is_told_beside_what_no_change_came_to() -> None:
    rows = [row for user in "abcd" for row in tried(user, memory=8)]
    rows += [row for user in "efg" for row in tried(user, memory=4, state="OUT_OF_MEMORY")]
    (remedy,) = remedies({"user": "z"}, "fit", "OUT_OF_MEMORY", retries(job_frame(rows), now=NOW))
    assert (remedy.change, remedy.tries, remedy.succeeded, remedy.unchanged, remedy.whose) == (
        "more memory", 4, 4, 0.0, "this application's",
    )  # fmt: skip
    assert "without a change 0%" in remedy.sentence and "7.5 GB" in remedy.sentence


def test_ones_own_tries_go_before_those_of_others() -> None:
    own = [
        run(number, 10 * number + hour, state=state, memory=memory)
        for number in range(3)
        for hour, state, memory in ((0, "OUT_OF_MEMORY", 4), (2, "COMPLETED", 6))
    ]
    others = [row for user in "abcd" for row in tried(user, memory=16)]
    (remedy,) = remedies({"user": "wren"}, "fit", "OUT_OF_MEMORY", retries(job_frame(own + others), now=NOW))
    assert (remedy.whose, remedy.factor) == ("your", 1.5)


def test_a_change_that_helps_no_more_than_none_is_not_told() -> None:
    rows = [row for user in "abc" for row in tried(user, memory=8)]
    rows += [row for user in "efg" for row in tried(user, memory=4)]
    assert remedies({"user": "z"}, "fit", "OUT_OF_MEMORY", retries(job_frame(rows), now=NOW)) == ()


def test_too_few_pairs_say_nothing() -> None:
    assert remedies({"user": "z"}, "fit", "OUT_OF_MEMORY", retries(job_frame(tried("a", memory=8)), now=NOW)) == ()
    assert retries(job_frame([]), now=NOW).schema["succeeded"] == pl.Boolean
