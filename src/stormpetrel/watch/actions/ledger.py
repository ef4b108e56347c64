"""The ledger of a dry run: what an act that was not done would have saved and lost, once its jobs have ended.

Act + records of jobs that ended by `now` -> settle_jobs, settle_drain -> Act with its outcome. Nothing here decides anything.

core-seconds | it failed (right) | it completed (wrong)
cancel       | saved: what it still held after the act | lost: its work after the act; redo: its work until then, to be done again
hold         | saved: all that it held | lost: all its work, late until somebody releases it
requeue      | saved: what it still held after the act | redo: its work until the act, which is done again elsewhere
drain        | saved: jobs that started there within a day and failed, whole | lost: this node's part of those that completed
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

import polars as pl

from stormpetrel.jobs.held.core_seconds import core_seconds, elapsed_seconds
from stormpetrel.records.actions.acts import Act, Outcome
from stormpetrel.records.actions.policies import Action
from stormpetrel.records.jobs import KEY, ref_text
from stormpetrel.records.nodes import expand_nodes
from stormpetrel.records.states import JobState

DRAINED_FOR: Final = timedelta(days=1)  # so long after a dry drain its node is looked at
LONGEST_UNKNOWN: Final = timedelta(days=60)  # a job of which nothing more is heard
NEEDED: Final = (
    *KEY, "state", "start_time", "end_time", "elapsed_s", "cpus", "req_cpus", "nodes", "cpu_limit_s", "node_list", "quality",
)  # fmt: skip


def with_costs(jobs: pl.DataFrame, failure_states: Collection[str]) -> pl.DataFrame:
    """Return jobs (the columns NEEDED) with `ref`, `core_s`, `run_s`, and whether each failed, completed, or neither."""
    states = sorted(failure_states)
    return jobs.with_columns(
        ref_text(),
        core_s=core_seconds().fill_null(0).cast(pl.Float64),
        run_s=elapsed_seconds().fill_null(0).cast(pl.Float64),
        has_failed=pl.col("state").is_in(states),
        has_completed=(pl.col("state") == JobState.COMPLETED.value) & ~pl.lit(JobState.COMPLETED.value in states),
    )


def settle_jobs(acts: Sequence[Act], jobs: pl.DataFrame, now: datetime) -> list[Act]:
    """Return those of the acts on jobs that are settled by jobs (`with_costs`) which ended by `now`."""
    ended = jobs.filter(pl.col("end_time").is_not_null(), pl.col("end_time") <= now)
    rows = {row["ref"]: row for row in ended.iter_rows(named=True)}
    settled = [_settled(act, rows[act.subject], now) for act in acts if act.subject in rows]
    lost = [act for act in acts if act.subject not in rows and now - act.decided > LONGEST_UNKNOWN]
    return [*settled, *(replace(act, settled=now, outcome=Outcome.NEITHER) for act in lost)]


def _settled(act: Act, row: Mapping[str, Any], now: datetime) -> Act:
    after = _share_after(act, row)
    held = row["core_s"]
    if row["has_failed"]:
        saved = 0.0 if act.action == Action.NOTIFY else held * after
        return replace(act, settled=now, outcome=Outcome.RIGHT, saved_core_s=saved, right_jobs=1)
    if not row["has_completed"]:
        return replace(act, settled=now, outcome=Outcome.NEITHER)
    lost = held * after if act.action in (Action.CANCEL, Action.HOLD) else 0.0
    redo = held * (1 - after) if act.action in (Action.CANCEL, Action.REQUEUE) else 0.0
    return replace(act, settled=now, outcome=Outcome.WRONG, lost_core_s=lost, redo_core_s=redo, wrong_jobs=1)


def _share_after(act: Act, row: Mapping[str, Any]) -> float:
    """The part of the job's run that came after the act."""
    if row["start_time"] is None or row["run_s"] <= 0:
        return 1.0 if act.action == Action.HOLD else 0.0
    until_s = (act.decided - row["start_time"]).total_seconds()
    return float(min(1.0, max(0.0, 1.0 - until_s / row["run_s"])))


def is_drain_due(act: Act, now: datetime) -> bool:
    """Whether the day after a dry drain is over."""
    return now - act.decided >= DRAINED_FOR


def settle_drain(act: Act, jobs: pl.DataFrame, now: datetime) -> Act:
    """Return a drain that was not done with what its node did on the day after: jobs that started there and ended within it."""
    until = act.decided + DRAINED_FOR
    later = jobs.filter(pl.col("start_time") > act.decided, pl.col("start_time") <= until, pl.col("end_time") <= min(until, now))
    there = [row for row in later.iter_rows(named=True) if act.node in expand_nodes(row["node_list"])]
    failed = [row for row in there if row["has_failed"]]
    completed = [row for row in there if row["has_completed"]]
    saved = sum(row["core_s"] for row in failed)
    lost = sum(row["core_s"] / max(1, len(expand_nodes(row["node_list"]))) for row in completed)
    is_right = len(failed) > len(completed)
    outcome = Outcome.RIGHT if is_right else Outcome.WRONG if completed else Outcome.NEITHER
    return replace(
        act, settled=now, outcome=outcome, saved_core_s=saved, lost_core_s=lost, right_jobs=len(failed), wrong_jobs=len(completed)
    )
