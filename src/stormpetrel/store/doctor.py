"""The doctor: what is wrong with a site, and what to do about it.

Site -> examine -> findings. Each check is one function; none of them changes anything but a probe file it removes again.
"""

from __future__ import annotations

import getpass
import importlib.util
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

import polars as pl

from stormpetrel.errors import StormpetrelError
from stormpetrel.sources.discover import answer_of
from stormpetrel.store.agreement import REPAIR, disagreement
from stormpetrel.store.filesystem import filesystem_type, is_network
from stormpetrel.store.site import Site
from stormpetrel.store.source_health import span_words
from stormpetrel.store.watch_status import read_watch

Level = Literal["ok", "warning", "problem"]
PORTS: Final = {8050: "dashboard and API"}
EXTRAS: Final = {  # extra: (module that tells, what is missing without it)
    "postgres": ("psycopg", "a PostgreSQL state store"),
    "htcondor": ("htcondor2", "HTCondor's own library"),
    "traces": ("torch", "models over CPU traces"),
    "dashboard": ("dash", "the dashboard"),
    "notebook": ("ipywidgets", "the notebook"),
    "elastic": ("elasticsearch", "reading Elasticsearch"),
    "cluster": ("ray", "training on several machines"),
}
_LOW_SPACE: Final = 2 * 1024**3
_SLACK: Final = timedelta(minutes=10)
_MANY_FILES: Final = 500
_PATIENCE_S: Final = 5.0
_GAPS_BACK: Final = timedelta(days=7)
_MOST_GAPS: Final = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing the doctor looked at."""

    level: Level
    check: str
    what: str
    hint: str = ""


def examine(site: Site) -> list[Finding]:
    """Look at everything; a check that fails itself is a problem, not a crash."""
    findings: list[Finding] = []
    for check in _CHECKS:
        try:
            findings += check(site)
        except StormpetrelError as error:
            findings.append(Finding("problem", check.__name__.strip("_"), error.what, error.hint))
        except OSError as error:
            findings.append(Finding("problem", check.__name__.strip("_"), str(error), "Check the site's folder."))
    return findings


def _folder(site: Site) -> Iterator[Finding]:
    mode = site.folder.stat().st_mode & 0o777
    if mode & 0o077:
        yield Finding(
            "warning", "folder", f"{site.folder} can be read by others (mode {mode:o}).", f"Run: chmod 700 {site.folder}"
        )
    else:
        yield Finding("ok", "folder", f"{site.folder} is private")


def _file_system(site: Site) -> Iterator[Finding]:
    kind = filesystem_type(site.folder)
    shared = is_network(kind)
    note = ": the tables may lie there, the state must not" if shared else ""
    yield Finding("ok", "file system", f"{kind or 'unknown'}{note}")
    free = shutil.disk_usage(site.folder).free
    if free < _LOW_SPACE:
        yield Finding(
            "problem", "disk", f"only {free / 1e9:.1f} GB are free.", "Free some space; `store compact` and `store retain` help."
        )
    else:
        yield Finding("ok", "disk", f"{free / 1e9:.0f} GB free")


def _writable(site: Site) -> Iterator[Finding]:
    probe = site.folder / f".doctor-{os.getpid()}"
    try:
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        yield Finding("problem", "folder", f"{site.folder} cannot be written: {error.strerror}.", "Check owner and permissions.")


def _agreement(site: Site) -> Iterator[Finding]:
    """Whether state and tables were left behind together."""
    wrong = disagreement(site)
    if wrong:
        yield Finding("problem", "state", wrong, REPAIR)
    else:
        yield Finding("ok", "state", "belongs to the tables")


def _tables(site: Site) -> Iterator[Finding]:
    jobs = site.jobs.read_jobs().select(
        pl.len(), last=pl.col("submit_time").max(), latest=pl.max_horizontal("start_time", "end_time").max()
    )
    count, last, latest = jobs.collect().row(0)
    if not count:
        yield Finding("warning", "jobs", "there are no jobs yet.", "Run: stormpetrel ingest jobs FILE, or --live.")
        return
    yield Finding("ok", "jobs", f"{count:,} jobs, the last submitted {last:%Y-%m-%d %H:%M} UTC")
    files = site.jobs.table.file_count()
    if files > _MANY_FILES:
        yield Finding("warning", "jobs", f"the table is in {files} small files.", "Run: stormpetrel store compact")
    if max(filter(None, (last, latest))) > site.now() + _SLACK:
        yield Finding(
            "problem",
            "clock",
            "jobs were submitted or ended in the future of this machine's clock.",
            "Check site.time_zone and the clocks (timedatectl); then read the files again into a new site.",
        )
    else:
        yield Finding("ok", "clock", f"agrees with the jobs; it is {site.now():%Y-%m-%d %H:%M} UTC")


_EVENTS_LATE = timedelta(hours=6)


def _events(site: Site) -> Iterator[Finding]:
    """Whether events are counted, up to now and without gaps; a site that counts none is not ill."""
    bucket_s = site.settings.events.bucket_minutes * 60
    seen = site.event_counts.seen().filter(pl.col("bucket_s") == bucket_s)
    if not seen.height:
        named = site.settings.elastic.url or site.settings.htcondor.event_log
        hint = "Run: stormpetrel ingest events --live." if named else ""
        yield Finding("warning" if named else "ok", "events", "no events of the grid are counted yet", hint)
        return
    last: datetime = seen["last"].max() + timedelta(seconds=bucket_s)  # type: ignore[operator, assignment]
    late = site.now() - last > _EVENTS_LATE + timedelta(seconds=2 * bucket_s)
    yield Finding(
        "warning" if late else "ok",
        "events",
        f"counted by {seen.height} source(s), the last seen up to {last:%Y-%m-%d %H:%M} UTC",
        "Nothing has come since. Run: stormpetrel ingest events --live, or keep stormpetrel watch running." if late else "",
    )
    for one in site.event_counts.gaps(bucket_s=bucket_s, since=site.now() - _GAPS_BACK)[-_MOST_GAPS:]:
        yield Finding(
            "warning",
            "events",
            f"not seen from {one.start:%Y-%m-%d %H:%M} to {one.end:%Y-%m-%d %H:%M} UTC: {one.why}.",
            "Run: stormpetrel ingest events --live, which fills what can still be read.",
        )


def _quarantine(site: Site) -> Iterator[Finding]:
    refused = site.quarantine.read().group_by("rule").len().sort("len", descending=True).collect()
    if refused.height:
        most = ", ".join(f"{rule} {count:,}" for rule, count in refused.head(3).iter_rows())
        yield Finding(
            "warning",
            "quarantine",
            f"{refused['len'].sum():,} records were refused ({most}).",
            'Look: sql "select * from quarantine"',
        )
    else:
        yield Finding("ok", "quarantine", "empty")


def _sacct(site: Site) -> Iterator[Finding]:
    """Whether sacct is there, answers, and shows the jobs of others, too."""
    slurm = site.settings.slurm
    if slurm.rest_url:
        yield from _slurmrestd(site)
        return
    command = shutil.which(slurm.sacct)
    if not command:
        yield Finding(
            "warning",
            "sacct",
            f"'{slurm.sacct}' is not on this machine: --live will not work.",
            "Set slurm.sacct or slurm.rest_url.",
        )
        return
    wanted = [command, "--allusers", "--noheader", "--parsable2", "--allocations", "--format=User", "--starttime=now-7days"]
    if not answer_of([command, "--version"]):
        yield Finding("problem", "sacct", f"{command} does not answer.", "Try it by hand: sacct --version.")
        return
    users = set(answer_of(wanted).split())
    if users == {getpass.getuser()} and os.geteuid() != 0:
        yield Finding(
            "problem",
            "sacct",
            f"sacct shows only the jobs of {getpass.getuser()}: PrivateData hides the others.",
            "Ask for the right to see all jobs: sacctmgr modify user NAME set AdminLevel=Operator.",
        )
    else:
        yield Finding("ok", "sacct", f"{command} shows jobs of {len(users)} users in the last week")


def _slurmrestd(site: Site) -> Iterator[Finding]:
    from stormpetrel.sources.slurm_rest import connect, newest_version

    with connect(site.settings.slurm) as client:
        version = site.settings.slurm.rest_version or newest_version(client, site.settings.slurm)
    yield Finding("ok", "slurmrestd", f"{site.settings.slurm.rest_url} speaks {version}")


def _prometheus(site: Site) -> Iterator[Finding]:
    """Whether the server answers, has the counters of each CPU, and gets them as often as the settings say."""
    from stormpetrel.sources.prometheus import PrometheusTraces
    from stormpetrel.sources.prometheus_traces import CPU_COUNTERS, NEEDED_MODES

    settings = site.settings.prometheus
    if not settings.url:
        yield Finding("ok", "prometheus", "prometheus.url is not set: no CPU traces")
        return
    patient = settings.model_copy(update={"timeout_s": min(settings.timeout_s, _PATIENCE_S)})
    with PrometheusTraces(patient, window_s=site.settings.traces.window_s) as server:
        now_s = datetime.now(UTC).timestamp()
        intervals, modes = server.scrape_intervals(now_s), server.modes(now_s)
        name = server.name
    if not intervals:
        yield Finding(
            "problem",
            "prometheus",
            f"{name} has had no {CPU_COUNTERS} in the last minutes.",
            "Start stormpetrel exporter (or node_exporter) on the nodes and let Prometheus scrape it; check prometheus.select.",
        )
        return
    missing = [mode for mode in NEEDED_MODES if mode not in modes]
    if missing:
        yield Finding("problem", "prometheus", f"{name} has no CPU mode {' or '.join(missing)}.", "Choose another exporter.")
    yield _scrape_interval(name, intervals, settings.step_s)


def _scrape_interval(name: str, intervals: dict[str, float], step_s: float) -> Finding:
    off = {node: every for node, every in intervals.items() if not 0.8 < every / step_s < 1.25}
    if not off:
        return Finding("ok", "prometheus", f"{name} sees the CPUs of {len(intervals):,} nodes every {step_s:g} s")
    node, every = max(off.items(), key=lambda item: item[1])
    return Finding(
        "warning",
        "prometheus",
        f"{name} sees {node} every {every:.3g} s, and prometheus.step_s is {step_s:g} ({len(off)} of {len(intervals)} nodes).",
        "Set prometheus.step_s to the scrape interval, or scrape as often as it says.",
    )


def _cursor(site: Site) -> Iterator[Finding]:
    for cluster in site.settings.slurm.clusters or ["local"]:
        position = site.jobs.cursor(f"slurm:{cluster}")
        if position is not None:
            age = site.now() - datetime.fromtimestamp(position, UTC)
            level: Level = "warning" if age > timedelta(days=1) else "ok"
            hint = "Run: stormpetrel ingest jobs --live, by a timer." if level == "warning" else ""
            yield Finding(level, "live", f"read up to {age.total_seconds() / 3600:.1f} h ago ({cluster})", hint)
    position = site.cpu_windows.cursor("prometheus")
    if position is not None:
        age = site.now() - datetime.fromtimestamp(position / 1e6, UTC)
        late = age > timedelta(hours=1)
        hint = "Run: stormpetrel ingest traces --live, by a timer." if late else ""
        what = f"CPU traces were read up to {age.total_seconds() / 60:.0f} min ago"
        yield Finding("warning" if late else "ok", "live", what, hint)


def _watch(site: Site) -> Iterator[Finding]:
    """Whether somebody watches, and how the watch's own reads go; a site that nobody has watched yet is not ill."""
    now = datetime.now(UTC)
    watch = read_watch(site.state)
    state = watch.state(now)
    if state in ("stopped", "silent"):
        what = f"the watch was last heard of {span_words(watch.silent_s(now))} ago."
        yield Finding("warning", "watch", what, "Start it: stormpetrel watch")
        return
    problems = {trouble.source: trouble.what for trouble in watch.troubles(now)}
    for source in watch.sources:
        what = problems.get(source.name) or f"{source.last_words(now)[:-1]} ({source.records:,} records)"
        yield Finding("problem" if source.name in problems else "ok", "watch", f"{source.name}: {what}")
    own = watch.problem(now)
    if own and own not in problems.values():
        yield Finding("warning", "watch", own)


def _ports(site: Site) -> Iterator[Finding]:
    del site
    for port, purpose in PORTS.items():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                yield Finding("ok", "ports", f"{port} is free ({purpose})")
            except OSError:
                yield Finding(
                    "warning", "ports", f"port {port} is taken ({purpose}).", f"Find out by whom: ss -ltnp 'sport = :{port}'"
                )


def _extras(site: Site) -> Iterator[Finding]:
    missing = [extra for extra, (module, _) in EXTRAS.items() if importlib.util.find_spec(module) is None]
    if site.settings.store.state_url and "postgres" in missing:
        yield Finding(
            "problem", "extras", "store.state_url needs the extra 'postgres'.", "Run: pip install 'stormpetrel[postgres]'"
        )
    there = [extra for extra in EXTRAS if extra not in missing]
    yield Finding("ok", "extras", f"installed: {', '.join(there) or 'none'}; not installed: {', '.join(missing) or 'none'}")


_CHECKS: Final[tuple[Callable[[Site], Iterator[Finding]], ...]] = (
    _folder,
    _writable,
    _file_system,
    _agreement,
    _tables,
    _events,
    _quarantine,
    _sacct,
    _prometheus,
    _cursor,
    _watch,
    _ports,
    _extras,
)


def worst(findings: list[Finding]) -> Level:
    """The gravest level among the findings."""
    levels = {finding.level for finding in findings}
    return "problem" if "problem" in levels else "warning" if "warning" in levels else "ok"
