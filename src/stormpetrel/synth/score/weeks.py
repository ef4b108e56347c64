"""Odd and even weeks of a log: one part to learn from, another of the same time to be judged on.

Workload -> odd_even_split -> odd weeks, even weeks.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from stormpetrel.synth.workload import SUBMIT, Workload

WEEK_S: Final = 7 * 24 * 3600


def odd_even_split(workload: Workload) -> tuple[Workload, Workload]:
    """The 1st, 3rd, … week of a workload, and the 2nd, 4th, …, each closed up.

    Weeks are counted from the first submission. The weeks of a part follow each other without a hole: their times are shifted
    by whole weeks, so the hour of the week stays what it was. A week without jobs counts as a week. The even part of a log of one
    week is empty.
    """
    submit_s = workload.submit_s()
    week = np.floor((submit_s - submit_s.min(initial=np.inf)) / WEEK_S).astype(np.int64)  # (jobs,) from 0
    # The week of number w becomes that of number w // 2 of its part.
    earlier = pl.duration(weeks=pl.lit(pl.Series(week - week // 2)))
    closed = workload.jobs.with_columns(pl.col(SUBMIT) - earlier)
    odd, even = (closed.filter(pl.Series(week % 2 == rest)) for rest in (0, 1))
    return Workload(odd, workload.has_clock, workload.notes), Workload(even, workload.has_clock, workload.notes)
