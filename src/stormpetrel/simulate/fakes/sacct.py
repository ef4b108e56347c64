"""A `sacct` that is not there: `python -m stormpetrel.simulate.fakes.sacct --feed FOLDER …` answers from a recorded feed.

It knows the options that live ingest uses and those that people type, keeps SLURM_TIME_FORMAT, and says what Slurm says where
it is asked for something that does not exist.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NoReturn

from stormpetrel.errors import StormpetrelError
from stormpetrel.simulate.feed import Feed

_DEFAULT_FIELDS: Final = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode"
_UNITS: Final = {"minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_RELATIVE: Final = re.compile(r"^now(?:([+-])(\d+)(minute|hour|day|week)s?)?$")
_ISO: Final = "%Y-%m-%dT%H:%M:%S"
_WIDTH: Final = 14


def main(arguments: list[str] | None = None) -> int:
    """Answer one call; the exit status of sacct."""
    try:
        sys.stdout.write(answer(arguments, times=os.environ.get("SLURM_TIME_FORMAT", _ISO)))
        sys.stdout.flush()
    except StormpetrelError as error:
        sys.stderr.write(f"sacct: error: {error.what}\n")
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def answer(arguments: list[str] | None, *, times: str = _ISO) -> str:
    """Return what sacct prints for these arguments; `times` is SLURM_TIME_FORMAT."""
    options = _parser().parse_args(arguments)
    feed = Feed(Path(options.feed))
    return _field_list(feed.fields) if options.helpformat else _job_list(feed, options, times)


def _job_list(feed: Feed, options: argparse.Namespace, times: str) -> str:
    import polars as pl

    from stormpetrel.simulate.writing import sacct_text

    if options.clusters and feed.cluster not in options.clusters.split(","):
        raise StormpetrelError(f"'{options.clusters}' can't be reached now, or it is an invalid entry for --cluster.")
    now = feed.now()
    midnight = now.replace(hour=0, minute=0, second=0)
    since = _moment(options.starttime, now) if options.starttime else midnight
    until = _moment(options.endtime, now) if options.endtime else now + timedelta(seconds=1)
    jobs = feed.rows(since, until, now=now)
    names = [field.partition("%")[0] for field in options.format.split(",") if field]
    if options.user:
        jobs = jobs.filter(pl.col("user").is_in(options.user.split(",")))
    delimiter = options.delimiter if options.parsable or options.parsable2 else "\x1f"
    text = sacct_text(jobs, fields=names, delimiter=delimiter, times=times, steps=not options.allocations)
    if not options.noheader:
        text = delimiter.join(names) + "\n" + text
    if options.parsable:
        return text.replace("\n", delimiter + "\n")
    return text if options.parsable2 else _padded(text)


def _padded(text: str) -> str:
    """Columns of a fixed width, as sacct prints them for people; what is too long ends in a plus."""
    rows = (line.split("\x1f") for line in text.splitlines())
    return "".join(" ".join(_cell(word) for word in row) + "\n" for row in rows)


def _cell(word: str) -> str:
    return f"{word[: _WIDTH - 1]}+" if len(word) > _WIDTH else f"{word:>{_WIDTH}}"


def _moment(text: str, now: datetime) -> datetime:
    """A time as sacct takes it: ISO, a day, `now`, `now-2hours`; in UTC."""
    relative = _RELATIVE.match(text)
    if relative:
        sign, number, unit = relative.groups()
        return now + timedelta(seconds=int(number) * _UNITS[unit] * (1 if sign == "+" else -1)) if sign else now
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        raise StormpetrelError(f"Invalid time specification (pos=0): {text}") from None


def _field_list(fields: list[str]) -> str:
    rows = (fields[position : position + 4] for position in range(0, len(fields), 4))
    return "".join(" ".join(f"{name:<19}" for name in row).rstrip() + "\n" for row in rows)


def _parser() -> argparse.ArgumentParser:
    parser = SlurmParser("sacct", __doc__)
    parser.add_argument("-e", "--helpformat", action="store_true", help="list the fields")
    parser.add_argument("-V", "--version", action="version", version="slurm (simulated by Stormpetrel)")
    parser.add_argument("-S", "--starttime", help="jobs that were in the queue, running or ending after this time")
    parser.add_argument("-E", "--endtime", help="and before this one")
    parser.add_argument("-o", "--format", default=_DEFAULT_FIELDS, help="fields, separated by commas")
    parser.add_argument("-M", "--clusters", help="ask this cluster")
    parser.add_argument("-u", "--user", help="only jobs of these users")
    parser.add_argument("-P", "--parsable2", action="store_true", help="fields separated by the delimiter")
    parser.add_argument("-p", "--parsable", action="store_true", help="the same, with one more at the end")
    parser.add_argument("--delimiter", default="|", help="the delimiter")
    parser.add_argument("-n", "--noheader", action="store_true", help="no header")
    parser.add_argument("-a", "--allusers", action="store_true", help="jobs of all users (always)")
    parser.add_argument("-D", "--duplicates", action="store_true", help="every run of a requeued job (there are none)")
    parser.add_argument("-X", "--allocations", action="store_true", help="no steps")
    return parser


class SlurmParser(argparse.ArgumentParser):
    """A parser of one command; every command takes `--feed`, the folder of the recorded feed."""

    def __init__(self, prog: str, description: str | None) -> None:
        super().__init__(prog=prog, allow_abbrev=False, description=description)
        self.add_argument("--feed", required=True, help=argparse.SUPPRESS)

    def error(self, message: str) -> NoReturn:
        """Slurm exits 1 where argparse exits 2."""
        sys.stderr.write(f'{self.prog}: {message}\nTry "{self.prog} --help" for more information\n')
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(main())
