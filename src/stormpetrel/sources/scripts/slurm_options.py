"""The options of sbatch: which there are, and which of them the words of a script mean.

`#SBATCH` lines -> words -> directives, as getopt reads them: `--opt=value`, `--opt value`, `-N2`, clear abbreviations.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from stormpetrel.sources.scripts.request import Directive, Reading, arguments_of, shown_word

PREFIX: Final = "#SBATCH"
COLUMNS: Final = {
    "job-name": "job_name", "account": "account", "partition": "partition", "qos": "qos", "chdir": "work_dir",
    "time": "time_limit_s", "nodes": "req_nodes", "array": "array_tasks", "exclusive": "exclusive",
    **dict.fromkeys(("ntasks", "cpus-per-task", "ntasks-per-node", "cpus-per-gpu", "ntasks-per-gpu"), "req_cpus"),
    **dict.fromkeys(("mem", "mem-per-cpu", "mem-per-gpu"), "req_mem_bytes"),
    **dict.fromkeys(("gres", "gpus", "gpus-per-node", "gpus-per-task"), "req_gpus"),
}  # fmt: skip
_WITHOUT_VALUE: Final = frozenset(
    "contiguous disable-stdout-job-summary help hold ignore-pbs no-requeue overcommit oversubscribe parsable quiet reboot "
    "requeue spread-job stepmgr test-only usage use-min-nodes verbose version wait".split()
)
_MAYBE_VALUE: Final = frozenset("exclusive get-user-env nice no-kill propagate resv-ports".split())  # only as --opt=value
_OTHERS_WITH_VALUE: Final = frozenset(
    "batch bb bbf begin cluster-constraint clusters comment consolidate-segments constraint container container-id "
    "core-spec cores-per-socket cpu-freq deadline delay-boot dependency distribution error exclude export export-file extra "
    "extra-node-info gid gpu-bind gpu-freq gpus-per-socket gres-flags hint input kill-on-invalid-dep licenses mail-type "
    "mail-user mcs-label mem-bind mincpus network nodefile nodelist ntasks-per-core ntasks-per-socket oom-kill-step "
    "open-mode output power prefer priority profile reservation segment signal sockets-per-node switches thread-spec "
    "threads-per-core time-min tmp tres-bind tres-per-task uid wait-all-nodes wckey wrap".split()
)
_LONG: Final = frozenset(COLUMNS) | _WITHOUT_VALUE | _MAYBE_VALUE | _OTHERS_WITH_VALUE
_SHORT: Final = {
    "a": "array", "A": "account", "b": "begin", "B": "extra-node-info", "c": "cpus-per-task", "C": "constraint",
    "d": "dependency", "D": "chdir", "e": "error", "F": "nodefile", "G": "gpus", "h": "help", "H": "hold", "i": "input",
    "J": "job-name", "k": "no-kill", "L": "licenses", "m": "distribution", "M": "clusters", "n": "ntasks", "N": "nodes",
    "o": "output", "O": "overcommit", "p": "partition", "q": "qos", "Q": "quiet", "s": "oversubscribe", "S": "core-spec",
    "t": "time", "v": "verbose", "V": "version", "w": "nodelist", "W": "wait", "x": "exclude",
}  # fmt: skip
_HET_SEPARATORS: Final = ("hetjob", "packjob")

Word = tuple[int, str]  # line, word
Option = tuple[str, str | None, str | None]  # as written, full name, value
Options = dict[str, Directive]  # the option's full name -> the directive that decides it


def components_of(reading: Reading, lines: Iterable[tuple[int, str]]) -> list[list[Word]]:
    """The words of the `#SBATCH` lines with their line numbers, a list for each component of a heterogeneous job."""
    components: list[list[Word]] = [[]]
    for number, line in lines:
        try:
            words = arguments_of(line, as_sbatch=True)
        except ValueError as error:
            reading.warn(f"{error}, and sbatch refuses the script: {shown_word(PREFIX + line)}", number)
            continue
        if words and words[0].lower() in _HET_SEPARATORS:
            components.append([])
            continue
        components[-1] += [(number, word) for word in words]
    return components


def options_in(reading: Reading, words: list[Word]) -> Iterator[Directive]:
    """Options and their values; a value may also stand on the next `#SBATCH` line, since sbatch joins them all."""
    waiting = iter(words)
    for line, word in waiting:
        if not word.startswith("-") or word in ("-", "--"):
            reading.warn(f"{shown_word(word)!r} is no option, and sbatch refuses the script.", line)
            continue
        for written, name, value in [_long_option(word)] if word.startswith("--") else _short_options(word):
            if name is None:
                _warn_of_unknown(reading, line, written)
                continue
            if value is None and name not in _WITHOUT_VALUE | _MAYBE_VALUE:
                _, value = next(waiting, (line, None))
                if value is None:
                    reading.warn(f"{shown_word(written)} has no value, and sbatch refuses the script.", line)
                    continue
            yield Directive(line, written, value or "", COLUMNS.get(name))


def needs_next_word(word: str) -> bool:
    """Whether an option, as it is written (`-n`, `--time`, not `-n4`), has its value in the word behind it."""
    options = [_long_option(word)] if word.startswith("--") else _short_options(word)
    return any(name and value is None and name not in _WITHOUT_VALUE | _MAYBE_VALUE for _, name, value in options)


def _long_option(word: str) -> Option:
    written, has_value, value = word.partition("=")
    return written, _long_name(written[2:]), value if has_value else None


@lru_cache(maxsize=1024)
def _long_name(written: str) -> str | None:
    """The option that a long name means: itself, or the only one that begins so."""
    if written in _LONG:
        return written
    candidates = [name for name in _LONG if name.startswith(written)]
    return candidates[0] if len(candidates) == 1 else None


def _short_options(word: str) -> Iterator[Option]:
    """The options in `-N2`, `-t` or `-HQ`: letters without a value, up to one that takes the rest of the word."""
    for position, letter in enumerate(word[1:], start=1):
        name = _SHORT.get(letter)
        if name is None or name not in _WITHOUT_VALUE | _MAYBE_VALUE:
            yield f"-{letter}", name, word[position + 1 :] or None
            return
        yield f"-{letter}", name, None


def _warn_of_unknown(reading: Reading, line: int, written: str) -> None:
    close: list[str] = []
    if written.startswith("--") and not reading.is_full:  # to look for it takes a while
        close = difflib.get_close_matches(written[2:40], _LONG, n=1, cutoff=0.8)
    meant = f" (did you mean --{close[0]}?)" if close else ""
    reading.warn(f"unknown option {shown_word(written)}{meant}; the rest is read without it.", line)


def full_name(directive: Directive) -> str:
    """The long name of a directive's option: `time` for `-t` and for `--ti`."""
    written = directive.option
    name = _long_name(written[2:]) if written.startswith("--") else _SHORT.get(written[1:2])
    return name or ""


def deciding(directives: Iterable[Directive]) -> Options:
    """The directive that decides each option, in the order of their last mention."""
    options: Options = {}
    for directive in directives:
        name = full_name(directive)
        options.pop(name, None)
        options[name] = directive
    return options
