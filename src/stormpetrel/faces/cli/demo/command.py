"""`stormpetrel demo`: a simulated site, read through the same door as a real one, trained, watched, and in the browser."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated

import polars as pl
import typer
from rich.console import Console

from stormpetrel.answers.jobs.predictions import predict_jobs
from stormpetrel.answers.schemas.ingest import JobIngest
from stormpetrel.answers.site.ingest import ingest_live_jobs
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.config import SITE_FILE, settings_from
from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.demo.inbox import ROUTE, close_inbox, inbox_settings, open_inbox
from stormpetrel.faces.cli.demo.models import add_events, add_traces
from stormpetrel.faces.cli.demo.text import (
    print_alarms,
    print_coming,
    print_next,
    print_risks,
    print_summary,
    print_traces,
    summary_json,
)
from stormpetrel.faces.cli.ingest.jobs import print_receipt
from stormpetrel.faces.cli.options import Json
from stormpetrel.faces.cli.output import console, emit
from stormpetrel.faces.cli.progress import byte_bar, step_spinner
from stormpetrel.faces.cli.site import refuse_site_of_others
from stormpetrel.faces.web.serving import serve as serve_site
from stormpetrel.lifecycle.job_models import FAMILY, train_job_models
from stormpetrel.private_files import write_private
from stormpetrel.records.times import fixed_clock, running_clock
from stormpetrel.simulate.demo_site import CLUSTER, demo_now, demo_spec, record_demo, write_commands
from stormpetrel.simulate.feed import Feed, set_clock
from stormpetrel.store.site import Site, create_site, open_site
from stormpetrel.store.summary import summarise
from stormpetrel.watch.loop import Watch

_EXAMPLE = "job.sh"
_LAST = 200
_FEED = "feed"
_BROUGHT = (_FEED, "traces", "events.log")  # what `synth sample -o FOLDER/` may have put there
_LEARNT_DAYS_AGO = 7  # the model knows nothing of the last week: its forecasts of that week can be checked
_SPEED = 60.0
_UNTIL_KNOWN = timedelta(minutes=40)  # after a node has fallen sick, by the simulated clock


def demo(
    folder: Annotated[Path, typer.Argument(help="Folder of the demo site.")] = Path("stormpetrel-demo"),
    serve: Annotated[bool, typer.Option("--serve/--no-serve", help="Watch it and show it in the browser, or stop there.")] = True,
    speed: Annotated[
        float, typer.Option("--speed", min=1.0, max=3600.0, help="How much faster its clock runs than real time.")
    ] = _SPEED,
    address: Annotated[str, typer.Option("--address", help="Where the dashboard answers.")] = "127.0.0.1:8050",
    as_json: Json = False,
) -> None:
    """Simulate a small cluster, learn from it, and watch it live in the browser. Run it again to continue."""
    with _open_or_create(folder, address) as site:
        _stop_clock(site, quiet=as_json)
        receipt = _ingest_live(site, quiet=as_json)
        summary = summarise(site.jobs.read_jobs(), site.settings.jobs.failure_states)
        _train(site, quiet=as_json)
        _judge(site, quiet=as_json)
        scored = add_traces(site, quiet=as_json)
        alarms = add_events(site, quiet=as_json)
        at_risk = predict_jobs(site, LOCAL, moment=None, last=_LAST, now=site.now()).forecasts
        owner = _write_example(site, folder / _EXAMPLE)
        _start_clock(site, speed)
        answer = {
            "site": str(folder),
            "ingest": receipt.model_dump(mode="json", by_alias=True),
            "summary": summary_json(summary),
            "judged": len(at_risk),
            "windows_scored": scored.scored if scored else None,
            "alarms": [alarm.model_dump(mode="json", by_alias=True) for alarm in alarms.episodes] if alarms else None,
        }

        def text(out: Console) -> None:
            print_receipt(out, "the simulated cluster", receipt)
            print_summary(out, summary)
            print_risks(out, at_risk)
            print_traces(out, scored)
            print_alarms(out, alarms)
            print_next(out, folder, at_risk, folder / _EXAMPLE, owner)

        emit(answer, text, as_json=as_json)
        if serve and not as_json:
            _show(site, folder, address, speed)


def _show(site: Site, folder: Path, address: str, speed: float) -> None:
    """Watch the site in a process of its own, serve its pages and take its messages in this one, until Ctrl-C."""
    out = console()
    out.print(
        f"\nThe cluster lives by a clock of its own, {speed:g} times as fast as ours ({site.now():%A %Y-%m-%d %H:%M} UTC now): "
        f"jobs come, start, fail and complete on http://{address}"
    )
    out.print("Ctrl-C stops it; run the same command again to go on.")
    has_inbox = any(route.name == ROUTE for route in site.settings.notify.routes)  # not that of an earlier version
    if has_inbox and _falls_sick_soon(site, speed):
        print_coming(out, folder)
    with open_inbox(site.folder, out.print) if has_inbox else nullcontext(), _watching(site):
        serve_site(site, address=address)


def _falls_sick_soon(site: Site, speed: float) -> bool:
    """Whether a node of the simulated cluster falls sick so soon that it is known within two minutes."""
    spec, now = Feed(site.folder / _FEED).spec, site.now()
    begins = [spec.start + timedelta(seconds=fault.start_s) - now for fault in spec.faults] if spec else []
    return any(timedelta(0) < until and until + _UNTIL_KNOWN < timedelta(seconds=120 * speed) for until in begins)


@contextmanager
def _watching(site: Site) -> Iterator[None]:
    """A watcher that ends with us, however we end: it listens for the end of its standard input."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "stormpetrel",
        "--site",
        str(site.folder.resolve()),
        "watch",
        "--address",
        "",
        "--json",
    ]
    with (site.folder / "watch.log").open("a") as log:
        watcher = subprocess.Popen(
            [*command, "--stop-with-stdin"], stdin=subprocess.PIPE, stdout=log, stderr=log, process_group=0
        )
        try:
            yield
        finally:
            watcher.communicate(timeout=60)


def _stop_clock(site: Site, *, quiet: bool) -> None:
    """Record the feed unless it is there; let its clock stand where the site has read it up to."""
    folder = site.folder / _FEED
    if not (folder / "sacct").exists():
        _record(folder, demo_now(datetime.now(UTC)), quiet=quiet)
    else:
        write_commands(folder)  # those of an earlier version or of another environment may be gone
    cursor = site.jobs.cursor("slurm:local")
    if cursor is not None:
        set_clock(folder, fixed_clock(datetime.fromtimestamp(cursor, UTC)))


def _start_clock(site: Site, speed: float) -> None:
    set_clock(site.folder / _FEED, running_clock(site.now(), speed=speed))


def _open_or_create(folder: Path, address: str) -> Site:
    _put_back(folder)
    if (folder / SITE_FILE).exists():
        refuse_site_of_others(folder)
        site = open_site(folder)
        if (site.settings.site.name, site.settings.site.cluster) != (CLUSTER, CLUSTER):
            site.close()
            raise UsageError(f"{folder} is a real site, not the demo's.", hint="Name another folder: stormpetrel demo NEWDIR")
        return _with_public_url(site, address)
    slurm: dict[str, object] = {
        "sacct": str(folder.resolve() / _FEED / "sacct"),
        "since": f"{_first_day(folder):%Y-%m-%d}",
        "chunk_days": 31.0,
        "pause_s": 0.0,
    }
    about = {"name": CLUSTER, "cluster": CLUSTER, "feed": _FEED}
    notify = inbox_settings(folder, address)
    with _feed_aside(folder):
        energy = {"grams_co2_per_kwh": 300.0}  # of a grid that is as invented as the cluster: to show what a site may say
        chosen = {"site": about, "energy": energy, "slurm": slurm, "watch": {"poll_s": 2.0}, "notify": notify}
        site = create_site(folder, settings_from(chosen))
    close_inbox(site.folder)
    return site


def _with_public_url(site: Site, address: str) -> Site:
    """The site, its messages linking to where it is served this time; a line that somebody has changed is left alone."""
    before, after = (f'public_url = "{url}"' for url in (site.settings.notify.public_url, f"http://{address}"))
    text = (site.folder / SITE_FILE).read_text()
    if before == after or not site.settings.notify.public_url or before not in text:
        return site
    site.close()
    write_private(site.folder / SITE_FILE, text.replace(before, after))
    return open_site(site.folder)


@contextmanager
def _feed_aside(folder: Path) -> Iterator[None]:
    """Let a site be created around a feed that is there already: sites are created in empty folders only."""
    if (folder / _FEED / "sacct").exists() and {path.name for path in folder.iterdir()} <= set(_BROUGHT):
        for name in _BROUGHT:
            if (folder / name).exists():
                (folder / name).replace(_aside(folder, name))
    try:
        yield
    finally:
        _put_back(folder)


def _put_back(folder: Path) -> None:
    """Put a feed, and what came with it, back into its folder; also what a killed demo left next to it."""
    for name in _BROUGHT:
        aside = _aside(folder, name)
        if aside.exists() and not (folder / name).exists():
            folder.mkdir(exist_ok=True)
            aside.replace(folder / name)


def _aside(folder: Path, name: str) -> Path:
    whole = folder.resolve()  # the current folder has a name, too
    return whole.with_name(f".{whole.name}.{name}")


def _first_day(folder: Path) -> datetime:
    """Return when the cluster began: by the feed that is there already (`synth sample -o FOLDER/`), else by the demo's own."""
    feed = folder / _FEED
    return Feed(feed).first if (feed / "sacct").exists() else demo_spec(demo_now(datetime.now(UTC))).start


def _record(folder: Path, now: datetime, *, quiet: bool) -> None:
    with byte_bar("simulating three months", 0, quiet=quiet) as progress:
        record_demo(folder, now, lambda jobs: progress(0, jobs))


def _train(site: Site, *, quiet: bool) -> None:
    """Train once, on what was known a week ago; later runs use what is there."""
    if site.models.current_training(FAMILY) is None:
        with step_spinner(quiet=quiet) as progress:
            train_job_models(site, until=site.now() - timedelta(days=_LEARNT_DAYS_AGO), progress=progress)


def _judge(site: Site, *, quiet: bool) -> None:
    """Forecast the jobs of the last week and of now, so that the first screen shows them."""
    with step_spinner(quiet=quiet) as progress:
        progress("judging the jobs of the last week")
        Watch(site, alive=lambda horizon: progress(f"judging the jobs of the last week: {horizon:%A}")).step()


def _write_example(site: Site, path: Path) -> str:
    """Write a job script with the request of a past job; return whose job that was.

    The latest that ran out of memory; on a cluster where none did, the latest that failed, or the latest.
    """
    worst = pl.col("state").replace_strict({"OUT_OF_MEMORY": 2, "FAILED": 1, "TIMEOUT": 1}, default=0, return_dtype=pl.Int8)
    job = site.jobs.read_jobs().sort(worst, "submit_time").tail(1).collect().row(0, named=True)
    minutes, gib = (job["time_limit_s"] or 3600) // 60, job["req_mem_bytes"] and max(1, job["req_mem_bytes"] // 2**30)
    options = {
        "job-name": job["job_name"],
        "ntasks": job["req_cpus"],
        "mem": gib and f"{gib}G",
        "time": int(minutes),
        "chdir": job["work_dir"],
    }
    lines = [f"#SBATCH --{option}={value}" for option, value in options.items() if value is not None]
    write_private(path, "\n".join(["#!/bin/bash", *lines, "srun ./my-program"]) + "\n")
    return str(job["user"] or "")


def _ingest_live(site: Site, *, quiet: bool) -> JobIngest:
    ingested = ingest_live_jobs(site, LOCAL, bar=partial(byte_bar, quiet=quiet))
    if ingested.problems:
        raise ingested.problems[-1]
    return ingested.total
