"""Application families: which jobs do the same work, as far as their names and paths tell.

job frame -> `family`: the stem of the job's name, else of its script, else its work directory, else the log's application number.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import polars as pl

# Names that say nothing: Slurm's and PBS's defaults.
_EMPTY_NAMES: Final = ("", "wrap", "bash", "sh", "interactive", "stdin", "job", "sbatch", "allocation", "script", "run", "submit")
_LONGEST: Final = 80


@lru_cache
def family() -> pl.Expr:
    """The application family of each job, null where the log tells nothing about it."""
    script = pl.col("script_path").str.extract(r"([^/]+)$")
    number = pl.col("extra").map.get("executable")
    return pl.coalesce(
        stem(pl.col("job_name")),
        stem(script),
        stem(pl.col("work_dir").str.extract(r"([^/]+)/*$")),
        pl.when(number.is_not_null()).then(pl.concat_str(pl.lit("application "), number)),
    ).alias("family")


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
