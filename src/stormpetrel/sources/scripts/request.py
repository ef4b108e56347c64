"""What a person is about to submit, as far as the script says it: the request, its directives, and how they are gathered.

lines of a script -> Reading -> JobRequest -> one row of the job frame.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Final, TypeVar

import polars as pl

from stormpetrel.errors import UsageError
from stormpetrel.records import units
from stormpetrel.records.jobs import job_frame
from stormpetrel.records.states import JobState
from stormpetrel.sources.job_rows import text, times, whole
from stormpetrel.sources.lines import shown

T = TypeVar("T")

SOURCE: Final = "job-script"
KIBIBYTE: Final = 1024
MAX_COUNT: Final = 2**31 - 1
MAX_SECONDS: Final = 1e9  # 31 years: beyond it, a limit is a slip of the pen
_MAX_WARNINGS: Final = 40
_SHOWN_LETTERS: Final = 80
_UNITS: Final = (("T", 4), ("G", 3), ("M", 2))
_PLAIN_WORD: Final = re.compile(r"[\w.,:/@%+=~^!*?\[\]{}()<>-]+")  # whatever is not in it is written in quotes
# What the scheduler itself puts where the script says nothing. Limits and memory are the site's choice, and stay unknown.
_DEFAULTS: Final[dict[str, dict[str, object]]] = {
    "slurm": {"req_nodes": 1, "req_cpus": 1},
    "pbs": {"req_nodes": 1, "req_cpus": 1},
    "lsf": {"req_cpus": 1},
    "condor": {"req_cpus": 1},
}


@dataclass(frozen=True, slots=True)
class Directive:
    """One option of a script: its line, the option and value as written, and the column it speaks of (None: no column)."""

    line: int
    option: str
    value: str
    column: str | None


COMMAND_LINE: Final = 0  # the line of options that stand before the script, as for sbatch


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What a script asks for, in the columns of the job frame (of the whole job), and what is odd about how it asks.

    A column that the script does not speak of is not in `columns`; neither is one whose value cannot be known from the text.
    In addition to the job frame's: `array_tasks`, `exclusive`, `req_disk_bytes` and `reason` (what it will wait for besides its
    turn, as the scheduler calls it), which go to `extra`.
    """

    kind: str
    name: str
    columns: dict[str, object]
    directives: tuple[Directive, ...] = ()
    warnings: tuple[str, ...] = ()
    signature: str | None = None  # of what the script runs (`scripts.signature`), of shell scripts
    components: tuple[JobRequest, ...] = ()  # the second and later ones of a heterogeneous job

    def as_frame(self, *, user: str | None, submit_time: datetime, cluster: str) -> pl.DataFrame:
        """The job as one row of the job frame, pending and without an id, as if it were submitted at this time (UTC)."""
        moment = submit_time.astimezone(UTC) if submit_time.tzinfo else submit_time.replace(tzinfo=UTC)
        named = (
            {} if self.kind in ("condor", "lsf") else {"job_name": PurePath(self.name).name or None}
        )  # as sbatch and qsub name it
        row: dict[str, object] = {
            "cluster": cluster,
            "submit_time": moment,
            "restart": 0,
            "user": text(user),
            "state": JobState.PENDING.value,
            "state_raw": JobState.PENDING.value,
            "source": SOURCE,
        }
        return job_frame([{**row, **named, **_DEFAULTS[self.kind], **self.columns}])

    def last(self, column: str) -> Directive | None:
        """The directive that decides a column: the last one that speaks of it."""
        return next((directive for directive in reversed(self.directives) if directive.column == column), None)

    def count(self, column: str) -> int:
        """A count the script asks for; 1 where it does not say."""
        number = whole(self.columns.get(column))
        return number if number else 1


@dataclass(slots=True)
class Reading:
    """A script while it is being read."""

    kind: str
    name: str
    columns: dict[str, object] = field(default_factory=dict)
    directives: list[Directive] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    unsaid: int = 0
    signature: str | None = None
    others: list[Reading] = field(default_factory=list)  # of a heterogeneous job

    def warn(self, sentence: str, line: int | None = None) -> None:
        """Keep a warning for the person; a script full of nonsense gets a count instead of a flood."""
        if self.is_full:
            self.unsaid += 1
        else:
            self.warnings.append(sentence if line is None else f"{_place(line)}: {sentence}")

    @property
    def is_full(self) -> bool:
        """Whether further warnings are only counted."""
        return len(self.warnings) >= _MAX_WARNINGS

    def put(self, column: str, value: object) -> None:
        """Set a column, where there is a value."""
        if value is not None:
            self.columns[column] = value

    def checked(self, directive: Directive, value: T | None) -> T | None:
        """The value that was made out of a directive; a warning where there is none."""
        if value is None:
            why = " (variables are not expanded in it)" if "$" in directive.value else ""
            what = shown_word(f"{directive.option} {directive.value}")
            self.warn(f"the value of {what} cannot be read{why}; it is left out.", directive.line)
        return value

    def request(self) -> JobRequest:
        """The finished request."""
        more = [f"{self.unsaid} more warnings are not shown."] if self.unsaid else []
        components = tuple(other.request() for other in self.others)
        warnings = (*self.warnings, *more)
        return JobRequest(self.kind, self.name, self.columns, tuple(self.directives), warnings, self.signature, components)


def _place(line: int) -> str:
    return "On the command line" if line == COMMAND_LINE else f"Line {line}"


@dataclass(frozen=True, slots=True)
class DirectiveLines:
    """The directive lines of a shell script without their prefix: those that count, and those after the first command."""

    early: tuple[tuple[int, str], ...]
    late: tuple[tuple[int, str], ...]
    first_command: int | None


def directive_lines(lines: Iterable[str], prefix: str) -> DirectiveLines:
    """Find the lines that begin with `#SBATCH` or `#PBS`; both schedulers stop looking at the first command."""
    early: list[tuple[int, str]] = []
    late: list[tuple[int, str]] = []
    first_command = None
    for number, line in enumerate(lines, start=1):
        if line.startswith(prefix):
            (early if first_command is None else late).append((number, line[len(prefix) :]))
        elif first_command is None and line.strip() and not line.lstrip().startswith("#"):
            first_command = number
    return DirectiveLines(tuple(early), tuple(late), first_command)


def warn_of_ignored_lines(reading: Reading, lines: list[str], directives: DirectiveLines, prefix: str, scheduler: str) -> None:
    """Say loudly which directives will have no effect: those after the first command, and those that only look like one."""
    for number, rest in directives.late:
        reading.warn(
            f"IGNORED by {scheduler}: {shown_word(prefix + rest)} stands after the first command "
            f"(line {directives.first_command}); move it above.",
            number,
        )
    alike = re.compile(rf"\s*#\s*{prefix[1:]}\s+-", re.IGNORECASE)
    for number, line in enumerate(lines[: directives.first_command], start=1):
        if not line.startswith(prefix) and alike.match(line[:_SHOWN_LETTERS]):
            reading.warn(
                f"{shown_word(line)} is only a comment to {scheduler}; a directive begins with {prefix}, at the line's start.",
                number,
            )


def arguments_of(line: str, *, as_sbatch: bool) -> list[str]:
    """The words of a directive line, without quotes, backslashes and comments; ValueError for an open quote.

    To sbatch a bare `#` begins a comment inside a word, too, and a backslash does not hold a space; others do as a shell does.
    """
    words: list[str] = []
    word: list[str] | None = None
    quote, escaped = "", False
    for letter in line:
        is_space = letter.isspace() and (as_sbatch or not escaped)
        is_comment = letter == "#" and not escaped and (as_sbatch or word is None)
        if not quote and (is_space or is_comment):
            if word is not None:
                words.append("".join(word))
            word, escaped = None, False
            if is_comment:
                return words
            continue
        word = [] if word is None else word
        if escaped:
            word.append(letter)
            escaped = False
        elif letter == "\\":
            escaped = True
        elif quote and letter == quote:
            quote = ""
        elif not quote and letter in "\"'":
            quote = letter
        else:
            word.append(letter)
    if quote:
        raise ValueError(f"the quote {quote} is not closed")
    return words if word is None else [*words, "".join(word)]


def shown_word(word: str) -> str:
    """Text out of a script as it can be printed: short, and without control characters."""
    safe = shown(word.strip()[: 2 * _SHOWN_LETTERS].encode("utf-8", "replace"))
    return safe if len(safe) <= _SHOWN_LETTERS else f"{safe[:_SHOWN_LETTERS]}…"


def shown_path(path: str) -> str:
    """A path as it can be printed: of a long one the end, which names the file."""
    safe = shown(path.strip()[-2 * _SHOWN_LETTERS :].encode("utf-8", "replace"))
    return safe if len(safe) <= _SHOWN_LETTERS else f"…{safe[-_SHOWN_LETTERS:]}"


def count_of(word: str) -> int | None:
    """A count of one or more."""
    number = whole(word.strip())
    return number if number is not None and 0 < number <= MAX_COUNT else None


def product(number: int | None, factor: int | None) -> int | None:
    """The product of two counts, where both are known and it is still a count."""
    result = times(number, factor)
    return result if result is not None and 0 < result <= MAX_COUNT else None


def size_of(word: str, *, default_unit: str) -> int | None:
    """A size such as `16G`, `8 GB` or `2048` as bytes."""
    compact = word.replace(" ", "")
    if not compact or compact[-1] in "nc" or len(compact) > _SHOWN_LETTERS:  # the suffixes of sacct have no place here
        return None
    return units.bytes_of(compact, default_unit=default_unit)


def array_size(spec: str) -> int | None:
    """How many tasks `1-10:2,20%4` stands for."""
    total = 0
    for part in spec.partition("%")[0].split(","):
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", part.strip(), re.ASCII)
        if not match:
            return None
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or step == 0:
            return None
        total += (last - first) // step + 1
    return total if total <= MAX_COUNT else None


def written_size(size_bytes: int, *, units_called: str) -> str:
    """Bytes in the largest of `T G M` that holds them without a rest, rounded up to a mebibyte; `units_called` as in `{}gb`."""
    size_bytes = -(-size_bytes // KIBIBYTE**2) * KIBIBYTE**2
    unit, power = next((unit, power) for unit, power in _UNITS if size_bytes % KIBIBYTE**power == 0)
    number = f"{size_bytes // KIBIBYTE**power}"
    return number + units_called.format(unit.lower() if units_called.islower() else unit)


def written_clock(seconds: float, *, days: bool) -> str:
    """Seconds as `HH:MM:SS`, or `D-HH:MM:SS` where the scheduler writes days; rounded up to a second."""
    whole_s = math.ceil(seconds)
    day, rest = divmod(whole_s, 86400) if days else (0, whole_s)
    clock = f"{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{day}-{clock}" if day else clock


def written_word(word: str) -> str:
    """A word as a directive line takes it: in double quotes where it holds spaces, quotes or comment signs."""
    if _PLAIN_WORD.fullmatch(word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def share(value: float, parts: int) -> int:
    """What each of some parts must hold so that together they hold at least the value."""
    return max(1, -(-math.ceil(value) // max(1, parts)))


def wanted_number(column: str, value: object) -> float:
    """The value of a change that must be a number above zero."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and 0 < value < 2**62):
        raise UsageError(f"A change of {column} needs a number above zero, not {shown_word(repr(value))}.", hint="Pass a number.")
    return value


def wanted_word(column: str, value: object) -> str:
    """The value of a change that must be a text of one line."""
    if not isinstance(value, str) or not value or not value.isprintable():
        raise UsageError(f"A change of {column} needs one line of text, not {shown_word(repr(value))}.", hint="Pass a name.")
    return value


def no_such_change(kind: str, column: str, known: Iterable[str]) -> UsageError:
    """The error for a column that no line of such a script can set."""
    return UsageError(f"No line of a {kind} script sets {shown_word(column)!r}.", hint=f"Known: {', '.join(sorted(known))}.")
