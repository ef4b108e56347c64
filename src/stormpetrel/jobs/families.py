"""Application families: which jobs do the same work, as far as their names and paths tell.

job frame -> `family`: the stem of the job's name, else of its script, else its work directory, else the log's application number.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import polars as pl

# Names that say nothing: Slurm's and PBS's defaults.
_EMPTY_NAMES: Final = ("", "wrap", "bash", "sh", "interactive", "stdin", "job", "sbatch", "allocation", "script", "run", "submit")
_LONGEST: Final = 80
TOLD_BY: Final = ("job_name", "script_path", "work_dir", "extra")  # in this order
# `stem` for texts of ASCII letters, one at a time.
_ENDING: Final = re.compile(r"\.(sh|slurm|sbatch|job|pbs|sub|py|csh|bash)\Z")
_HASH: Final = re.compile(r"[0-9a-f]{8,}")
_DIGITS: Final = re.compile(r"[0-9]+")
_NO_LETTERS: Final = re.compile(r"[^a-z]+")


@lru_cache
def family(told: tuple[str, ...] = TOLD_BY) -> pl.Expr:
    """The application family of each job, null where the log tells nothing about it; `told`: the columns that are not empty."""
    number = pl.col("extra").map.get("executable")
    ways = {
        "job_name": stem(pl.col("job_name")),
        "script_path": stem(pl.col("script_path").str.extract(r"([^/]+)$")),
        "work_dir": stem(pl.col("work_dir").str.extract(r"([^/]+)/*$")),
        "extra": pl.when(number.is_not_null()).then(pl.concat_str(pl.lit("application "), number)),
    }
    return pl.coalesce(pl.lit(None, dtype=pl.String), *(ways[column] for column in told)).alias("family")


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


def families_of_few(jobs: pl.DataFrame) -> list[str | None] | None:
    """The families of a few jobs, as `family` tells them, in a tenth of the time; None where a text needs more than ASCII."""
    if jobs["extra"].null_count() < jobs.height:
        return None
    names, scripts, folders = (jobs[column].to_list() for column in TOLD_BY[:3])
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
