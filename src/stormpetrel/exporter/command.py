"""The command line of the exporter: words -> Options -> run.

`stormpetrel exporter`, `python -m stormpetrel.exporter` and the one file are the same program.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from stormpetrel import __version__
from stormpetrel.exporter.check import as_json, as_table_text, check
from stormpetrel.exporter.exporter import Exporter
from stormpetrel.exporter.job_groups import plain_pattern
from stormpetrel.exporter.one_file import write_one_file
from stormpetrel.exporter.proc_stat import ExporterError
from stormpetrel.exporter.sampler import Node

ADDRESS: Final = "127.0.0.1:9643"


class Options(NamedTuple):
    """What was requested."""

    address: str = ADDRESS
    cgroup: Sequence[str] = ()
    threads_file: str = ""
    usernames: bool = True
    root: str = "/"
    check: bool = False
    once: bool = False
    json: bool = False
    write_file: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    return run(Options(**vars(_parser().parse_args(arguments))))


def run(options: Options) -> int:
    """Do what was requested; an error is one sentence and exit code 1."""
    try:
        _run(options)
    except ExporterError as error:
        sys.stderr.write(f"stormpetrel: {error}\n")
        return 1
    return 0


def _run(options: Options) -> None:
    if options.write_file:
        size = write_one_file(Path(options.write_file))
        summary = {"file": options.write_file, "bytes": size, "version": __version__}
        sys.stdout.write(
            f"{json.dumps(summary)}\n" if options.json else f"{options.write_file}: {size:,} bytes. Try: {_try(options)}\n"
        )
        return
    exporter = Exporter(_node(options))
    if options.check:
        lines = check(exporter.sampler, exporter.first)
        sys.stdout.write(json.dumps(as_json(lines), ensure_ascii=False) + "\n" if options.json else as_table_text(lines))
    elif options.once:
        sys.stdout.write(exporter.text(exporter.first).decode())
    else:
        _serve(exporter, options.address)


def _serve(exporter: Exporter, address: str) -> None:
    """Answer until SIGTERM or Ctrl-C."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with exporter.serving(address) as where:
        sys.stderr.write(f"stormpetrel exporter on {where}; {exporter.summary()}\n")
        sys.stderr.flush()
        stop.wait()


def _node(options: Options) -> Node:
    try:
        for glob in options.cgroup:
            plain_pattern(glob)
    except ValueError as error:
        raise ExporterError(str(error)) from None
    return Node(options.root, tuple(options.cgroup), options.threads_file, options.usernames)


def _try(options: Options) -> str:
    path = options.write_file if "/" in options.write_file else f"./{options.write_file}"
    return f"{path} --check"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="stormpetrel-exporter",
        description="CPU modes per thread and what each job uses, for Prometheus.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--address", default=ADDRESS, metavar="HOST:PORT", help="where it answers (%(default)s)")
    add(
        "--cgroup",
        action="append",
        default=[],
        metavar="GLOB",
        help="cgroups that are jobs, such as 'batch.slice/*.scope'; repeatable",
    )
    add("--threads-file", default="", metavar="FILE", help="file of our own with 'cpu jobid' lines, where cgroups cannot tell")
    add("--no-usernames", dest="usernames", action="store_false", help="user ids only")
    add("--root", default="/", metavar="DIR", help="folder under which /proc and /sys lie")
    add("--check", action="store_true", help="say what this node offers and what is missing, and stop")
    add("--once", action="store_true", help="print one sample, and stop")
    add("--json", action="store_true", help="with --check or --write-file: JSON for other programs")
    add("--write-file", default="", metavar="FILE", help="write the exporter as one file that needs only Python 3.9, and stop")
    parser.add_argument("--version", action="version", version=f"stormpetrel-exporter {__version__}")
    return parser
