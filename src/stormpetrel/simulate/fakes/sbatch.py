"""An `sbatch` that is not there: `python -m stormpetrel.simulate.fakes.sbatch --feed FOLDER [options] job.sh` submits to a feed.

It reads scripts and options as the job script reader does, and refuses what sbatch refuses, in its words and with its status.
`--user NAME` (or `--uid`) says which simulated user submits; without it, the user of this machine.
"""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from stormpetrel.errors import NotThereError, StormpetrelError, UsageError
from stormpetrel.simulate.submitting import submit_job
from stormpetrel.sources.scripts.request import Directive, JobRequest, Reading, directive_lines, written_word
from stormpetrel.sources.scripts.slurm import read_slurm
from stormpetrel.sources.scripts.slurm_options import PREFIX, components_of, deciding, full_name, options_in

T = TypeVar("T")

VERSION: Final = "slurm (simulated by Stormpetrel)"
MAX_SCRIPT_BYTES: Final = 4 * 1024 * 1024  # Slurm's own limit
_USAGE: Final = "Usage: sbatch [OPTIONS(0)...] [--user NAME] [script [args...]]"
_WRONG_USAGE: Final = 255  # sbatch's exit status where options cannot be understood
_NEXT: Final = "\0"  # stands for the word after an option, which no real word can be
_MEMORY: Final = ("mem", "mem-per-cpu", "mem-per-gpu")
# What would have to change what happens, and does not here: better no than a job that does something else.
_NOT_SIMULATED: Final = (
    "begin", "clusters", "constraint", "deadline", "dependency", "hold", "licenses", "nodelist", "reservation", "test-only",
    "wait",
)  # fmt: skip


class RefusedError(UsageError):
    """sbatch says no: what it prints, and its exit status."""

    def __init__(self, message: str, status: int) -> None:
        self.message, self.status = message, status
        super().__init__(message)


class CommandLine(NamedTuple):
    """A command line of sbatch: its options, and the script with its arguments."""

    options: list[str]
    script: list[str]


def main(arguments: list[str] | None = None) -> int:
    """Answer one call; the exit status of sbatch."""
    arguments_read = [_sound(word) for word in (sys.argv[1:] if arguments is None else arguments)]
    try:
        _, folder, *arguments_read = arguments_read  # the command in the feed's folder begins with --feed FOLDER
        message = _submit(Path(folder), arguments_read)
    except (StormpetrelError, OSError) as error:
        refused = _refusal_of(error)
        sys.stderr.write(refused.message)
        return refused.status
    sys.stdout.write(message)
    return 0


def this_user() -> str:
    """The login name of who runs this; the number where there is no name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _refusal_of(error: StormpetrelError | OSError) -> RefusedError:
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, NotThereError):  # there is no such user
        return _error("Invalid --uid specification", _WRONG_USAGE)
    return _error(error.what if isinstance(error, StormpetrelError) else f"Batch job submission failed: {error.strerror}")


def _error(message: str, status: int = 1) -> RefusedError:
    """An error in sbatch's form: its name before every line."""
    return RefusedError("".join(f"sbatch: error: {line}\n" for line in message.split("\n")), status)


def _wrong_usage(message: str) -> RefusedError:
    """What getopt says about an option."""
    return RefusedError(f'sbatch: {message}\nTry "sbatch --help" for more information\n', _WRONG_USAGE)


def _submit(folder: Path, arguments: list[str]) -> str:
    """Submit, and what sbatch prints then."""
    line = split_line(arguments)
    options = deciding(options_in(Reading("slurm", ""), [(0, word) for word in line.options]))
    if "version" in options:
        return f"{VERSION}\n"
    if "help" in options or "usage" in options:
        return f"{_USAGE}\n"
    request = read_request(line)
    who = deciding(request.directives).get("uid")
    submit_line = " ".join(["sbatch", *_without_user(line.options), *line.script])
    job_id = submit_job(
        folder, request, user=who.value if who else this_user(), work_dir=_sound(str(Path.cwd())), submit_line=submit_line
    )
    if "quiet" in options:
        return ""
    return f"{job_id}\n" if "parsable" in options else f"Submitted batch job {job_id}\n"


def split_line(arguments: list[str]) -> CommandLine:
    """Options up to the first word that is none; the rest is the script and its arguments."""
    options: list[str] = []
    at = 0
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] != "-":
        if arguments[at] == "--":
            at += 1
            break
        word = arguments[at].replace("--user", "--uid", 1) if arguments[at].split("=")[0] == "--user" else arguments[at]
        taken = _checked(word, arguments[at + 1 : at + 2])
        options += taken
        at += len(taken)
    return CommandLine(options, arguments[at:])


def read_request(line: CommandLine) -> JobRequest:
    """What the script and the command line ask for together; the command line has the last word."""
    name, text = _script(line)
    reading = _StrictReading("slurm", name)
    if line.script:
        reading.columns["script_path"] = name
    lines = text.split("\n")
    in_script = [word for _, word in components_of(reading, directive_lines(lines, PREFIX).early)[0]]
    written = split_line(in_script)
    if written.script:
        raise _error(f"Invalid argument: {written.script[0]}", _WRONG_USAGE)
    chosen = [*_memory_decided(written.options, line.options), *line.options]
    # One directive line for each word, in quotes where it needs them: sbatch, too, joins them all.
    read_slurm(reading, ["#!/bin/sh", *(f"{PREFIX} {written_word(word)}" for word in chosen)])
    not_simulated = [option for option in deciding(reading.directives) if option in _NOT_SIMULATED]
    if not_simulated:
        raise _error(f"--{not_simulated[0]} is not simulated")
    return reading.request()


class _StrictReading(Reading):
    """A reading that refuses what sbatch refuses, in its words, where the reader of scripts only warns."""

    def checked(self, directive: Directive, value: T | None) -> T | None:
        """The value that was made out of a directive; no submission where there is none."""
        if value is None:
            option, written = full_name(directive), directive.value
            if directive.column == "req_cpus":
                raise _error(f'Invalid numeric value "{written}" for --{option}.')
            if option == "nodes":
                raise _error(f'"{written}" is not a valid node count', _WRONG_USAGE)
            if option == "array":
                raise _error("Batch job submission failed: Invalid job array specification")
            raise _error(f"Invalid --{option} specification", _WRONG_USAGE)
        return value

    def warn(self, sentence: str, line: int | None = None) -> None:
        """Refuse the script for an open quote, which sbatch does, too; other warnings are not for it."""
        if "is not closed" in sentence:
            raise _error(sentence.partition(",")[0].capitalize(), _WRONG_USAGE)


def _checked(word: str, following: list[str]) -> list[str]:
    """The word and, where its option takes a value that is not in it, the next one; refused if sbatch does not know it."""
    reading = Reading("slurm", "")
    options = list(options_in(reading, [(0, word), (0, _NEXT)]))
    takes_next = bool(options) and options[-1].value == _NEXT
    # A next word that no option takes is warned of; any other warning is about the word itself.
    is_long = word.startswith("--")
    if len(reading.warnings) > (0 if takes_next else 1):
        raise _wrong_usage(f"unrecognized option '{word}'" if is_long else f"invalid option -- '{word[len(options) + 1]}'")
    if takes_next and not following:
        raise _wrong_usage(f"option '{word}' requires an argument" if is_long else f"option requires an argument -- '{word[-1]}'")
    return [word, following[0]] if takes_next else [word]


def _script(line: CommandLine) -> tuple[str, str]:
    """The name and the text of what is submitted: a file, standard input, or the command after --wrap."""
    wrapped = deciding(options_in(Reading("slurm", ""), [(0, word) for word in line.options])).get("wrap")
    if wrapped:
        if line.script:
            raise _error("Script arguments not permitted with --wrap option")
        return "wrap", f"#!/bin/sh\n{wrapped.value}\n"
    if not line.script:
        return "sbatch", _checked_script(sys.stdin.buffer.read(MAX_SCRIPT_BYTES + 1))
    try:
        with Path(line.script[0]).open("rb") as file:
            data = file.read(MAX_SCRIPT_BYTES + 1)
    except (OSError, ValueError):  # ValueError: a NUL in the path
        raise _error(f"Unable to open file {line.script[0]}") from None
    return line.script[0], _checked_script(data)


def _checked_script(data: bytes) -> str:
    if not data:
        raise _error("Batch script is empty!")
    if len(data) > MAX_SCRIPT_BYTES:
        raise _error(f"Batch script is larger than {MAX_SCRIPT_BYTES} bytes")
    if not data.startswith(b"#!"):
        raise _error(
            "This does not look like a batch script.  The first\n"
            "line must start with #! followed by the path to an interpreter.\nFor instance: #!/bin/sh"
        )
    if b"\0" in data:
        raise _error("The Slurm controller does not allow scripts that\ncontain a NULL character '\\0'.")
    if b"\r\n" in data:
        raise _error("Batch script contains DOS line breaks (\\r\\n)\ninstead of expected UNIX line breaks (\\n).")
    return data.decode("utf-8", "replace")


def _memory_decided(in_script: list[str], on_line: list[str]) -> list[str]:
    """The script's words without those about memory where the command line says it in another way; one place may use one only."""
    decided = [deciding(options_in(Reading("slurm", ""), [(0, word) for word in options])) for options in (in_script, on_line)]
    ways = [[name for name in place if name in _MEMORY] for place in decided]
    if any(len(way) > 1 for way in ways):
        raise RefusedError("sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.\n", 1)
    if not ways[1]:
        return in_script
    return list(_arguments_of(directive for name, directive in decided[0].items() if name not in _MEMORY))


def _arguments_of(directives: Iterable[Directive]) -> Iterator[str]:
    for directive in directives:
        name = f"--{full_name(directive)}"
        yield f"{name}={directive.value}" if directive.value else name


def _without_user(options: list[str]) -> list[str]:
    """The options as accounting shows them: who submits is no part of the command."""
    kept: list[str] = []
    skip = False
    for word in options:
        skip_next = word == "--uid" and not skip
        if not skip and word.split("=")[0] != "--uid":
            kept.append(word)
        skip = skip_next
    return kept


def _sound(word: str) -> str:
    """A word as text that can be stored: bytes that are no UTF-8 are replaced."""
    return word.encode("utf-8", "replace").decode()


if __name__ == "__main__":
    sys.exit(main())
