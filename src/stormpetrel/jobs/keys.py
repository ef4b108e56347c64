"""Keys: whose history a job belongs to, out of what is known when it is submitted.

job frame -> one text key per space (null where the log does not say), and the size that was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import polars as pl

from stormpetrel.jobs.families import family


@dataclass(frozen=True, slots=True)
class Space:
    """One way of saying "jobs like this one": the columns that must agree, and the wider space that its rates lean on."""

    name: str
    words: str  # in a sentence: "jobs of this user with the same …"
    columns: tuple[str, ...]
    parent: str | None


SPACES: Final = (
    Space("site", "all jobs of the cluster", ("cluster",), None),
    Space("user", "this user's jobs", ("user",), "site"),
    Space("account", "jobs of this account", ("account",), "site"),
    Space("partition", "jobs in this partition", ("partition", "qos"), "site"),
    Space("family", "jobs of this application", ("family",), "site"),
    Space("shape", "jobs that ask for the same resources", ("asked_cpus", "asked_nodes", "asked_gpus", "limit_key"), "site"),
    Space("profile", "jobs of this profile", ("profile",), "site"),
    Space("user_family", "this user's jobs of this application", ("user", "family"), "user"),
    Space("user_directory", "this user's jobs in this directory", ("user", "work_dir"), "user"),
    Space("user_limit", "this user's jobs with this time limit", ("user", "limit_key"), "user"),
    Space(
        "user_shape",
        "this user's jobs that ask for the same resources",
        ("user", "asked_cpus", "asked_nodes", "asked_gpus", "limit_key"),
        "user",
    ),
    Space(
        "retry",
        "this user's runs of the same job",
        ("user", "family", "work_dir", "asked_cpus", "asked_nodes", "asked_gpus", "limit_key", "partition", "req_mem_bytes"),
        "user_shape",
    ),
)
SPACE_NAMES: Final = tuple(space.name for space in SPACES)
# Of these columns one must be there for the key to mean anything; the others may be missing.
_ESSENTIAL: Final = {"account", "family", "partition"}
_ALWAYS: Final = {"cluster", "user"}  # jobs without a user share one history: masked users come in runs, too
_SIZES: Final = {"asked_cpus": ("req_cpus", "cpus"), "asked_nodes": ("req_nodes", "nodes"), "asked_gpus": ("req_gpus", "gpus")}


def stand_ins(jobs: pl.DataFrame) -> dict[str, str]:
    """Which allocated column stands in for a request that this log does not have at all: rigid jobs get what they ask for.

    Where even one job says what it asked for, nothing stands in: a missing request stays missing.
    """
    chosen = {}
    for asked, (requested, allocated) in _SIZES.items():
        if jobs.height and jobs[requested].null_count() == jobs.height and jobs[allocated].null_count() < jobs.height:
            chosen[asked] = allocated
    return chosen


def with_request(jobs: pl.DataFrame, stand_in: Mapping[str, str]) -> pl.DataFrame:
    """The frame with `asked_cpus`, `asked_nodes`, `asked_gpus`, `family`, `limit_key` and `profile`."""
    sizes = [pl.col(stand_in.get(asked, requested)).alias(asked) for asked, (requested, _) in _SIZES.items()]
    if "limit_key" in jobs.columns:  # it has them already
        return jobs
    if "profile" not in jobs.columns:
        jobs = jobs.with_columns(profile=pl.lit(None, dtype=pl.Int64))
    return jobs.with_columns(*sizes, family(), limit_key=pl.col("time_limit_s").round().cast(pl.Int64, strict=False))


@lru_cache
def key(space: Space) -> pl.Expr:
    """The key of a space as text; null where what it is about is unknown."""
    # Each part with its length before it: whatever stands in a name, two different jobs never share a key by accident.
    texts = [pl.col(column).cast(pl.String) for column in space.columns]
    parts = [pl.concat_str(text.str.len_bytes(), pl.lit(":"), text).fill_null("-") for text in texts]
    essential = [pl.col(column).is_not_null() for column in space.columns if column in _ESSENTIAL]
    if space.name == "retry":
        essential = []
    text = pl.concat_str(parts)
    sizes = [pl.col(column).is_not_null() for column in space.columns if column not in _ESSENTIAL | _ALWAYS]
    known = pl.all_horizontal(essential) if essential else pl.any_horizontal(sizes) if sizes else pl.lit(True)
    return pl.when(known).then(text).alias(space.name)
