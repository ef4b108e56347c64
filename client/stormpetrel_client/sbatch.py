"""The words of a person who would type them after `sbatch`: options, the script, its arguments -> what is sent to the service.

words -> split_words -> (options, script or None, `--wrap`). Which options take a value is all that has to be known here; what
they mean, the service says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_LONG_WITHOUT_VALUE = frozenset(
    "contiguous disable-stdout-job-summary exclusive get-user-env help hold ignore-pbs nice no-kill no-requeue overcommit "
    "oversubscribe parsable propagate quiet reboot requeue resv-ports spread-job stepmgr test-only usage use-min-nodes verbose "
    "version wait".split()
)
_SHORT_WITHOUT_VALUE = frozenset("hHkOQsvVW")


class Words(NamedTuple):
    """A command line of sbatch, cut up."""

    options: list[str]
    script: str | None
    wrap: str | None


def split_words(words: Sequence[str]) -> Words:
    """Find the script among the words: the first that is neither an option nor the value of one."""
    options: list[str] = []
    wrap = None
    waiting = iter(words)
    for word in waiting:
        if word == ":":  # the next component of a heterogeneous job
            options.append(word)
            continue
        if not word.startswith("-") or word == "-":
            return Words(options, word, wrap)
        name, has_value, value = word.partition("=")
        if name == "--wrap":
            wrap = value if has_value else next(waiting, "")
            continue
        options.append(word)
        if _takes_next(word):
            options.append(next(waiting, ""))
    return Words(options, None, wrap)


def _takes_next(word: str) -> bool:
    """Whether the value of an option is the next word."""
    if word.startswith("--"):
        return "=" not in word and word[2:] not in _LONG_WITHOUT_VALUE
    for position, letter in enumerate(word[1:], 1):
        if letter not in _SHORT_WITHOUT_VALUE:
            return position == len(word) - 1
    return False
