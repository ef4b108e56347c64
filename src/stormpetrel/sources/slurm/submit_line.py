"""Submit lines: the script that an `sbatch` command line names.

command line as Slurm keeps it -> script_of -> path of the script, or None.
"""

from __future__ import annotations

import shlex
from typing import Final

import polars as pl

# Options of sbatch that are followed by a value in the next word (sbatch(1)); long ones may use `=` instead.
_SHORT_WITH_VALUE: Final = frozenset("ABbCcDdEeFGgiJLMmNnopqStwx")
_LONG_FLAGS: Final = frozenset(
    [
        "--contiguous",
        "--exclusive",
        "--get-user-env",
        "--help",
        "--hold",
        "--ignore-pbs",
        "--no-requeue",
        "--overcommit",
        "--oversubscribe",
        "--parsable",
        "--quiet",
        "--reboot",
        "--requeue",
        "--spread-job",
        "--test-only",
        "--use-min-nodes",
        "--verbose",
        "--version",
        "--wait",
        "--no-kill",
        "--nohup",
    ]
)


def script_paths(submit_lines: pl.Series) -> pl.Series:
    """The scripts in a column of `sbatch` command lines."""
    return pl.Series([script_of(line) for line in submit_lines], dtype=pl.String)


def script_of(submit_line: str | None) -> str | None:
    """The script in an `sbatch` command line; None for srun, salloc, --wrap and lines that cannot be split.

    >>> script_of("sbatch -N 2 --time=1:00 --mem 4G run/fit.sh --fast")
    'run/fit.sh'
    """
    # Slurm joins the words with spaces and drops the quotes, so what a --wrap contains cannot be told from options.
    if not submit_line or "sbatch" not in submit_line or "--wrap" in submit_line:
        return None
    try:
        words = shlex.split(submit_line)
    except ValueError:
        return None
    position = 1
    while position < len(words):
        word = words[position]
        if word == "--":
            return words[position + 1] if position + 1 < len(words) else None
        if not word.startswith("-") or word == "-":
            return word if word != ":" else None
        if word.startswith("--"):
            position += 1 if "=" in word or word in _LONG_FLAGS else 2
        else:
            position += 2 if len(word) == 2 and word[1] in _SHORT_WITH_VALUE else 1
    return None
