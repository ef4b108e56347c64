"""Moments: when a prediction is made, and what is known then.

The guard looks at the columns that a feature is computed from and refuses one that is known only later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

import numpy as np
import polars as pl

from stormpetrel.errors import LeakError
from stormpetrel.records.jobs import JOB_SCHEMA

TWO_MINUTES_S: Final = 120.0


class Moment(StrEnum):
    """When a prediction is made."""

    SUBMIT = "submit"
    START = "start"
    TWO_MINUTES = "2min"  # two minutes after the start, among jobs that still run


MOMENTS: Final = tuple(Moment)
MOMENT_LABELS: Final = {Moment.SUBMIT: "at submission", Moment.START: "at the start", Moment.TWO_MINUTES: "two minutes in"}
_END: Final = "end"
_ORDER: Final = (*MOMENTS, _END)

_AT_SUBMIT: Final = frozenset(
    """cluster job_id array_task submit_time restart job_id_raw het_job_id het_offset job_name user uid group gid account
    partition qos time_limit_s req_cpus req_nodes req_gpus req_mem_bytes work_dir script_path submit_line req_tres
    source""".split()
)
_AT_START: Final = frozenset("eligible_time start_time cpus nodes gpus mem_bytes node_list alloc_tres".split())
# Made by `keys.with_request` out of what is known at submission, and of a log's own `executable` number.
_PREPARED: Final = frozenset("asked_cpus asked_nodes asked_gpus limit_key family profile".split())
TELEMETRY_PREFIX: Final = "telemetry_"  # columns that the first two minutes of telemetry may add


def known_from(column: str) -> str:
    """The moment from which a column of the job frame is known; `end` for what only the finished record tells."""
    if column in _AT_SUBMIT or column in _PREPARED:
        return Moment.SUBMIT
    if column in _AT_START:
        return Moment.START
    if column.startswith(TELEMETRY_PREFIX):
        return Moment.TWO_MINUTES
    if column in JOB_SCHEMA:
        return _END
    raise LeakError(
        f"Nobody has said when column '{column}' is known, so no feature may be made of it.",
        hint=f"Use columns of the job frame, or name telemetry of the first two minutes '{TELEMETRY_PREFIX}…'.",
    )


def refuse_leaks(features: Iterable[pl.Expr], moment: Moment) -> None:
    """Raise LeakError for the first feature that is computed from something known only after `moment`."""
    for feature in features:
        if feature.meta.has_multiple_outputs():
            raise LeakError(
                "A feature is one column, and this one may be several.", hint="Name each column: pl.col('a'), then pl.col('b')."
            )
        for column in feature.meta.root_names():
            since = known_from(column)
            if _ORDER.index(since) > _ORDER.index(moment):
                raise LeakError(
                    f"Feature '{feature.meta.output_name()}' is made of '{column}', which is known only at the {since}; "
                    f"a prediction at '{moment}' may not see it.",
                    hint="Use it at a later moment, or use the history of ended jobs instead.",
                )


def refuse_other_rows(features: Sequence[pl.Expr], jobs: pl.DataFrame) -> None:
    """Raise LeakError for a feature that looks at other jobs than its own: a mean over the log sees jobs to come."""
    if not features or not jobs.height:
        return
    whole = jobs.select(features)
    half = np.random.default_rng(0).permutation(jobs.height)[: (jobs.height + 1) // 2]
    for rows in (half, half[:1]):  # half of the jobs in another order, and one of them alone: nothing may change
        again = jobs[rows].select(features)
        for name in whole.columns:
            if whole.height != jobs.height or not again[name].equals(whole[name].gather(rows), null_equal=True):
                raise LeakError(
                    f"Feature '{name}' of a job is made of other jobs, too; some of them may come later.",
                    hint="Use the history of ended jobs instead.",
                )
