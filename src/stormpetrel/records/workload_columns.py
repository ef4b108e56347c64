"""The columns of a workload: what a synthetic job may have, and what becomes of a column that no vocabulary knows.

A source gives frames with these names, a generator learns and makes them, a writer writes them.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from stormpetrel.records.times import UTC_TIME

SUBMIT: Final = "submit_time"
# What a workload may have next to the time of submission. A column that a log lacks, or that is null in every row, is not there.
WHO: Final = {"user": pl.String, "group": pl.String, "account": pl.String}
WHERE: Final = {"partition": pl.String, "qos": pl.String}
SIZES: Final = {"cores": pl.Int64, "nodes": pl.Int64, "gpus": pl.Int64, "mem_bytes": pl.Int64}
TIMES: Final = {"time_limit_s": pl.Float64, "runtime_s": pl.Float64}
STATE: Final = "state"
ARRAY: Final = "array"  # number of the array a job belongs to; null for other jobs
WAIT: Final = "wait_s"  # measured, or given by a scheduler: never learnt
KNOWN: Final[dict[str, pl.DataType | type[pl.DataType]]] = {
    SUBMIT: UTC_TIME,
    **WHO,
    **WHERE,
    **SIZES,
    **TIMES,
    STATE: pl.String,
    ARRAY: pl.Int64,
    WAIT: pl.Float64,
}
IDENTIFIERS: Final = (
    "u_id",
    "job",
    "id",
    "index",
    "job_id",
    "record",
    "id_array_job",
    "kill_requid",
    "uid",
    "gid",
    "user_id",
    "owner",
)
# Columns of public logs that follow from others: learnt on their own they would contradict them.
DERIVED: Final = frozenset(
    """wait_time node_hour interval interval_s interarrival_time interarrival_time_norm service_time_norm timelimit_clean mem_req
    eligible_time start_time end_time""".split()
)

_MOST_CATEGORIES: Final = 1000
_NUMBER_SHARE: Final = 0.99  # of the values of an unknown column that must read as numbers for it to be one
_IDENTIFIER_SHARE: Final = 0.95  # of distinct values from which on text is an identifier and not a category


def as_column(text: pl.Series) -> tuple[pl.Series | None, str]:
    """An unknown column as numbers or as categories; None and the reason where it is neither."""
    filled = len(text) - text.null_count()
    if not filled:
        return None, "it is empty"
    if text.name.lower() in IDENTIFIERS or not text.name.strip():
        return None, "it is a number of the row"
    if text.name.lower() in DERIVED:
        return None, "it follows from other columns"
    numbers = text.cast(pl.Float64, strict=False)
    numbers = numbers.set(numbers.is_infinite() | numbers.is_nan(), None)
    if len(numbers) - numbers.null_count() >= _NUMBER_SHARE * filled:
        whole = numbers.drop_nulls()
        return (numbers.cast(pl.Int64) if bool((whole == whole.round()).all()) and whole.abs().max() < 2**53 else numbers), ""  # type: ignore[operator]
    distinct = text.n_unique()
    if distinct > _MOST_CATEGORIES or (filled >= 50 and distinct > _IDENTIFIER_SHARE * filled):
        return None, f"it has {distinct:,} different texts, and names are never learnt"
    return text, ""
