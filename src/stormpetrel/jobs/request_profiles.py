"""Profiles of requests: which kind of job this is, out of what it asks for; a feature, and something to tell its user.

job frame -> JobProfiles over the request -> the same frame with `profile`. Made of requests alone, so known at submission.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from stormpetrel.jobs.keys import stand_ins, with_request
from stormpetrel.jobs.preparation import PreparationSettings, prepare
from stormpetrel.jobs.profiles import SUBMIT, JobProfiles
from stormpetrel.records.states import DEFAULT_FAILURE_STATES

_GIB: Final = 2**30


def fit_request_profiles(
    jobs: pl.DataFrame, *, failure_states: tuple[str, ...] = tuple(DEFAULT_FAILURE_STATES), seed: int = 0
) -> JobProfiles:
    """The kinds of jobs by what they ask for; run times and outcomes only describe them."""
    settings = PreparationSettings(failure_states=failure_states, allocation_as_request=bool(stand_ins(jobs)))
    return JobProfiles(SUBMIT).fit(prepare(jobs, settings).frame, seed)


def with_profile(jobs: pl.DataFrame, profiles: JobProfiles, stand_in: dict[str, str] | None = None) -> pl.DataFrame:
    """The jobs with the columns of `with_request`, and `profile`: null where nothing is known of the request."""
    asked = with_request(jobs, stand_ins(jobs) if stand_in is None else stand_in)
    # Column by column: for a few jobs the plan of a query would cost more than the work.
    request = pl.DataFrame(
        {
            "req_cpu": asked["asked_cpus"].cast(pl.Float64),
            "req_node": asked["asked_nodes"].cast(pl.Float64),
            "req_mem_gb": asked["req_mem_bytes"] / _GIB,
            "time_limit_s": asked["time_limit_s"],
        }
    )
    profile = profiles.assign(request).cast(pl.Int64).alias("profile")
    return asked.clone().replace_column(asked.get_column_index("profile"), profile)
