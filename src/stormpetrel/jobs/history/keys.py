"""Keys: whose history a job belongs to, out of what is known when it is submitted; application families by name and path.

job frame -> one text key per space (null where the log does not say), and the size that was requested. READINGS_OF: what the
history of each space gives to the features.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, Final

import polars as pl

# Names that say nothing: Slurm's and PBS's defaults.
_EMPTY_NAMES: Final = ("", "wrap", "bash", "sh", "interactive", "stdin", "job", "sbatch", "allocation", "script", "run", "submit")
_LONGEST: Final = 80
APPLICATION_COLUMNS: Final = ("job_name", "script_path", "work_dir", "extra")  # in this order
# `stem` for texts of ASCII letters, one at a time.
_ENDING: Final = re.compile(r"\.(sh|slurm|sbatch|job|pbs|sub|py|csh|bash)\Z")
_HASH: Final = re.compile(r"[0-9a-f]{8,}")
_DIGITS: Final = re.compile(r"[0-9]+")
_NO_LETTERS: Final = re.compile(r"[^a-z]+")


@lru_cache
def family(columns: tuple[str, ...] = APPLICATION_COLUMNS) -> pl.Expr:
    """The application family of each job, null where the log records nothing about it; `columns`: those that are not empty."""
    number = pl.col("extra").map.get("executable")
    ways = {
        "job_name": stem(pl.col("job_name")),
        "script_path": stem(pl.col("script_path").str.extract(r"([^/]+)$")),
        "work_dir": stem(pl.col("work_dir").str.extract(r"([^/]+)/*$")),
        "extra": pl.when(number.is_not_null()).then(pl.concat_str(pl.lit("application "), number)),
    }
    return pl.coalesce(pl.lit(None, dtype=pl.String), *(ways[column] for column in columns)).alias("family")


def families(jobs: pl.DataFrame) -> pl.Series:
    """The application family of each job, as `family` tells it: each distinct text is looked at once, and names repeat."""
    few = families_of_few(jobs) if jobs.height <= FEW else None
    if few is not None:
        return pl.Series("family", few, dtype=pl.String)
    columns = tuple(column for column in APPLICATION_COLUMNS if jobs[column].null_count() < jobs.height)
    if not columns or "extra" in columns:  # a map has no distinct values
        return jobs.with_columns(family(columns))["family"]
    frame = jobs.select(columns)
    for column in columns:
        stems = pl.DataFrame({column: jobs[column].unique()}).with_columns(family((column,)).alias(f"family.{column}"))
        frame = frame.join(stems, on=column, how="left", maintain_order="left")
    return frame.select(family=pl.coalesce(f"family.{column}" for column in columns)).to_series()


def stem(name: pl.Expr) -> pl.Expr:
    """A name without what changes from run to run: counters, dates, hashes, endings; null where nothing is left."""
    plain = (
        name.str.slice(0, 4 * _LONGEST)
        .str.to_lowercase()
        .str.replace(r"\.(sh|slurm|sbatch|job|pbs|sub|py|csh|bash)$", "")
        .str.replace_all(r"[0-9a-f]{8,}", "")  # hashes and long counters
        .str.replace_all(r"\d+", "")
        .str.replace_all(r"[^\p{L}]+", "-")
        .str.strip_chars("-")
        .str.slice(0, _LONGEST)
    )
    return pl.when(plain.is_in(list(_EMPTY_NAMES)).not_()).then(plain)


def request_of_few(jobs: pl.DataFrame, stand_in: Mapping[str, str], names: Sequence[str]) -> dict[str, list[Any]]:
    """The values of some columns of a few jobs, of `with_request` too: as lists, and without a query where texts are plain."""
    families = families_of_few(jobs) if "family" in names and "limit_key" not in jobs.columns else []
    if families is None:
        jobs, families = with_request(jobs, stand_in), []
    if "limit_key" in jobs.columns:
        return {name: jobs[name].to_list() for name in names}
    values: dict[str, list[Any]] = {"family": families, "profile": [None] * jobs.height}
    for name in names:
        if name == "limit_key":
            values[name] = whole_numbers(jobs["time_limit_s"].to_list())
        elif name not in values:
            column = stand_in.get(name, SIZES[name][0]) if name in SIZES else name
            values[name] = jobs[column].to_list()
    return values


def whole_numbers(values: Sequence[float | None]) -> list[int | None]:
    """The nearest whole number of each; None where there is none."""
    return [None if value is None or not math.isfinite(value) else round(value) for value in values]


def families_of_few(jobs: pl.DataFrame) -> list[str | None] | None:
    """The families of a few jobs, as `family` tells them, in a tenth of the time; None where a text needs more than ASCII."""
    if jobs["extra"].null_count() < jobs.height:
        return None
    names, scripts, folders = (jobs[column].to_list() for column in APPLICATION_COLUMNS[:3])
    if not all(text is None or text.isascii() for texts in (names, scripts, folders) for text in texts):
        return None
    return [
        _ascii_stem(name) or _ascii_stem(_last_part(script)) or _ascii_stem(_last_part(folder and folder.rstrip("/")))
        for name, script, folder in zip(names, scripts, folders, strict=True)
    ]


def _last_part(path: str | None) -> str | None:
    return None if path is None else path.rpartition("/")[2] or None


def _ascii_stem(name: str | None) -> str | None:
    if name is None:
        return None
    plain = _ENDING.sub("", name[: 4 * _LONGEST].lower())
    plain = _DIGITS.sub("", _HASH.sub("", plain))
    plain = _NO_LETTERS.sub("-", plain).strip("-")[:_LONGEST]
    return None if plain in _EMPTY_NAMES else plain


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
# Where the site allows it (`jobs.similar_names`): the rates of an application lean on those of similar scripts, where scripts are
# known, else of similar names; those of a user's application on the same of the user. What a script does says more than a name.
SIMILAR: Final = (
    Space("similar_name", "jobs with similar names", ("similar_name",), "site"),
    Space("similar_script", "jobs with similar scripts", ("similar_script",), "similar_name"),
    Space("user_similar", "this user's jobs with similar scripts or names", ("user", "similar"), "user"),
)
_LEANING: Final = {"family": "similar_script", "user_family": "user_similar"}
SPACES_WITH_SIMILAR: Final = tuple(
    replace(space, parent=_LEANING.get(space.name, space.parent)) for space in (*SPACES[:2], *SIMILAR, *SPACES[2:])
)
# What `history_kernel.read_entity` writes, in order.
READINGS: Final = (
    *(f"failed_rate_{name}" for name in ("1h", "12h", "4d", "30d")),
    *(f"failed_rate_{name}" for name in ("2jobs", "12jobs")),
    "failed_rate_ever",
    "ended_12h",
    "ended_30d",
    "ended_total",
    "failure_streak",
    "since_end",
    "since_failure",
    "since_success",
    "crash_share",
    "timeout_share",
    "oom_share",
    "cancelled_share",
    "typical_run",
    "run_to_limit",
    "quick_share",
    "running",
    "pending",
    "since_submit",
    "burst",
)

# Which readings each space gives: all of them would be three hundred columns, most of them copies of each other.
_SLOW: Final = ("failed_rate_1h", "failed_rate_12h", "failed_rate_4d", "failed_rate_30d")
_OWN: Final = tuple(name for name in READINGS if name != "ended_30d")
_NOT_NARROW: Final = (
    "failed_rate_1h", "failed_rate_ever", "ended_12h", "ended_total", "since_end", "crash_share", "cancelled_share",
)  # fmt: skip
_NARROW: Final = tuple(name for name in READINGS if name not in _NOT_NARROW)
_WIDE: Final = (*_SLOW, "failed_rate_12jobs", "ended_12h", "since_failure")
READINGS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "site": (*_SLOW, "ended_12h", "running", "pending", "since_failure"),
    "user": _OWN,
    "account": _WIDE,
    "partition": (*_WIDE, "running", "pending"),
    "family": (*_WIDE, "ended_30d", "timeout_share", "oom_share", "typical_run", "run_to_limit"),
    "similar_name": (*_WIDE, "ended_30d", "timeout_share", "oom_share", "typical_run", "run_to_limit"),
    "similar_script": (*_WIDE, "ended_30d", "timeout_share", "oom_share", "typical_run", "run_to_limit"),
    "shape": (*_WIDE, "ended_30d", "timeout_share", "typical_run", "run_to_limit"),
    "profile": _WIDE,
    "user_similar": _NARROW,
    "user_family": _NARROW,
    "user_directory": _NARROW,
    "user_limit": _NARROW,
    "user_shape": _NARROW,
    "retry": _NARROW,
}

FEW: Final = 256  # jobs up to which Python is faster than the plan of a query
# Of these columns one must be there for the key to mean anything; the others may be missing.
_ESSENTIAL: Final = {"account", "family", "partition", "similar", "similar_name", "similar_script"}
_ALWAYS: Final = {"cluster", "user"}  # jobs without a user share one history: masked users come in runs, too
SIZES: Final = {"asked_cpus": ("req_cpus", "cpus"), "asked_nodes": ("req_nodes", "nodes"), "asked_gpus": ("req_gpus", "gpus")}

SIZE_COLUMNS: Final = tuple(column for pair in SIZES.values() for column in pair)  # what `stand_ins` looks at


def stand_ins(jobs: pl.DataFrame) -> dict[str, str]:
    """Which allocated column stands in for a request that this log does not have at all: rigid jobs get what they ask for.

    Where even one job says what it requested, nothing stands in: a missing request stays missing.
    """
    chosen = {}
    for size, (requested, allocated) in SIZES.items():
        if jobs.height and jobs[requested].null_count() == jobs.height and jobs[allocated].null_count() < jobs.height:
            chosen[size] = allocated
    return chosen


def with_request(jobs: pl.DataFrame, stand_in: Mapping[str, str]) -> pl.DataFrame:
    """The frame with `asked_cpus`, `asked_nodes`, `asked_gpus`, `family`, `limit_key` and `profile`."""
    if "limit_key" in jobs.columns:  # it has them already
        return jobs
    sizes = [pl.col(stand_in.get(size, requested)).alias(size) for size, (requested, _) in SIZES.items()]
    profile = [] if "profile" in jobs.columns else [pl.lit(None, dtype=pl.Int64).alias("profile")]
    limit = pl.col("time_limit_s").round().cast(pl.Int64, strict=False)
    return jobs.with_columns(*profile, *sizes, families(jobs), limit_key=limit)


@lru_cache
def key(space: Space) -> pl.Expr:
    """The key of a space as text; null where what it is about is unknown."""
    # Each part with its length before it: whatever stands in a name, two different jobs never share a key by accident.
    texts = [pl.col(column).cast(pl.String) for column in space.columns]
    parts = [pl.concat_str(text.str.len_bytes(), pl.lit(":"), text).fill_null("-") for text in texts]
    needs_all, needs_any = _needs(space)
    all_told, any_told = ([pl.col(column).is_not_null() for column in columns] for columns in (needs_all, needs_any))
    known = pl.all_horizontal(all_told) if all_told else pl.any_horizontal(any_told) if any_told else pl.lit(True)
    return pl.when(known).then(pl.concat_str(parts)).alias(space.name)


def key_columns(spaces: tuple[Space, ...] = SPACES) -> tuple[str, ...]:
    """The columns that the keys of these spaces are made of."""
    return _layout(spaces)[0]


def keys_of_few(columns: Mapping[str, Sequence[object]], spaces: tuple[Space, ...] = SPACES) -> Iterator[list[str | None]]:
    """The keys of each job, one per space, as `key` makes them: for a few jobs in a sixth of the time.

    `columns` holds the values of `key_columns`, whole numbers and texts.
    """
    names, layout = _layout(spaces)
    for row in zip(*(columns[name] for name in names), strict=True):
        parts = ["-" if value is None else f"{len(str(value).encode())}:{value}" for value in row]
        yield [
            "".join([parts[place] for place in places])
            if all(row[place] is not None for place in needs_all)
            and (not needs_any or any(row[place] is not None for place in needs_any))
            else None
            for places, needs_all, needs_any in layout
        ]


def _needs(space: Space) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns that must all be told for a key to mean anything; where there are none, those of which one must be."""
    essential = tuple(column for column in space.columns if column in _ESSENTIAL and space.name != "retry")
    sizes = tuple(column for column in space.columns if column not in _ESSENTIAL | _ALWAYS)
    return essential, () if essential else sizes


@cache
def _layout(spaces: tuple[Space, ...]) -> tuple[tuple[str, ...], tuple[tuple[tuple[int, ...], ...], ...]]:
    """The columns of some spaces; of each space the places of its columns, of those it needs, and of those it needs one of."""
    names = tuple(dict.fromkeys(column for space in spaces for column in space.columns))
    places = (
        tuple(tuple(names.index(column) for column in columns) for columns in (space.columns, *_needs(space))) for space in spaces
    )
    return names, tuple(places)
