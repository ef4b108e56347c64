"""`stormpetrel exporter`: the exporter of a compute node; the same program as `python -m stormpetrel.exporter`."""

from __future__ import annotations

from typing import Annotated

import typer

from stormpetrel.exporter.command import Options, run
from stormpetrel.faces.cli.options import Json


def exporter(
    address: Annotated[str, typer.Option("--address", help="Where it answers, HOST:PORT.")] = "127.0.0.1:9643",
    cgroup: Annotated[
        list[str] | None,
        typer.Option("--cgroup", help="Cgroups that are jobs, such as 'batch.slice/*.scope'; repeatable.", show_default=False),
    ] = None,
    threads_file: Annotated[
        str, typer.Option("--threads-file", help="File of our own with 'cpu jobid' lines, where cgroups do not show it.")
    ] = "",
    no_usernames: Annotated[bool, typer.Option("--no-usernames", help="User ids only.")] = False,
    root: Annotated[str, typer.Option("--root", help="Folder that contains /proc and /sys.")] = "/",
    check: Annotated[bool, typer.Option("--check", help="Report what this node provides and what is missing, and stop.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Print one sample, and stop.")] = False,
    write_file: Annotated[
        str, typer.Option("--write-file", help="Write the exporter as one file that needs only Python 3.9, and stop.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Export CPU modes of every thread, the use of each job, and which job has which thread to Prometheus."""
    options = Options(
        address=address,
        cgroup=tuple(cgroup or ()),
        threads_file=threads_file,
        usernames=not no_usernames,
        root=root,
        check=check,
        once=once,
        json=as_json,
        write_file=write_file,
    )
    code = run(options)
    if code:
        raise typer.Exit(code)
