"""The words of a person who would type them after `sbatch`: options, the script, its arguments -> what is sent to the service.

words -> own_options_first -> ours, sbatch's -> split_words -> (options, script or None, `--wrap`, the script's arguments). Which
options take a value is all that has to be known here; what they mean, the service says.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice
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
    arguments: tuple[str, ...] = ()  # what stands after the script, which sbatch hands to it


def own_options_first(
    words: Sequence[str], *, flags: Collection[str], with_value: Collection[str]
) -> tuple[list[str], list[str]]:
    """Part the words after `check` into our own options and what sbatch would get, with or without `--` between them.

    >>> own_options_first(["-t", "5", "job.sh", "--json"], flags={"--json"}, with_value={"--kind"})
    (['--json'], ['-t', '5', 'job.sh'])
    """
    own: list[str] = []
    others: list[str] = []
    waiting = iter(words)
    is_before_script = True
    for word in waiting:
        if word == "--":
            return own, [*others, *(["--"] if others else []), *waiting] if is_before_script else [*waiting, *others]
        if word in flags or (word.startswith("--") and word.partition("=")[0] in with_value):
            own.append(word)
            if word in with_value:
                own += islice(waiting, 1)
            continue
        others.append(word)
        if is_before_script and word.startswith("-") and word != "-" and _takes_next(word):
            others += islice(waiting, 1)
        elif word == "-" or not word.startswith("-"):
            is_before_script = word == ":"
    return own, others


def split_words(words: Sequence[str]) -> Words:
    """Find the script among the words: the first that is neither an option nor the value of one."""
    options: list[str] = []
    wrap = None
    waiting = iter(words)
    word: str | None
    for word in waiting:
        if word == ":":  # the next component of a heterogeneous job
            options.append(word)
            continue
        if word == "--":
            word = next(waiting, None)
            return Words(options, word, wrap, tuple(waiting))
        if not word.startswith("-") or word == "-":
            return Words(options, word, wrap, tuple(waiting))
        name, has_value, value = word.partition("=")
        if name == "--wrap":
            wrap = value if has_value else next(waiting, None)
            options += [] if wrap is not None else [word]  # without a value: the service says so
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
