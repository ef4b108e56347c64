"""Checks of what a site holds: its folder, its disk, its jobs and events, what was refused, what is installed, and whether
its state belongs to its tables and its registry to the folders of models.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

import polars as pl

from stormpetrel.records.checks import Finding
from stormpetrel.records.units import format_size
from stormpetrel.records.unread import PREFIX
from stormpetrel.store.filesystem import filesystem_type, format_disk, is_network
from stormpetrel.store.identity import REPAIR, disagreement
from stormpetrel.store.site import Site

EXTRAS: Final = {  # extra: (module that tells, what is missing without it)
    "postgres": ("psycopg", "a PostgreSQL state store"),
    "htcondor": ("htcondor2", "HTCondor's own library"),
    "scoring": ("onnxruntime", "scores of CPU traces"),
    "traces": ("torch", "training models over CPU traces"),
    "dashboard": ("dash", "the dashboard"),
    "notebook": ("ipywidgets", "the notebook"),
    "cluster": ("ray", "training on several machines"),
}
_LOW_SPACE: Final = 2 * 1024**3
_SLACK: Final = timedelta(minutes=10)
_MANY_FILES: Final = 500
_GAPS_BACK: Final = timedelta(days=7)
_MOST_GAPS: Final = 3
_NAMES_SHOWN: Final = 3


def check_folder(site: Site) -> Iterator[Finding]:
    """Whether others can look into the site's folder."""
    mode = site.folder.stat().st_mode & 0o777
    if mode & 0o077:
        yield Finding(
            "warning", "folder", f"{site.folder} can be read by others (mode {mode:o}).", f"Run: chmod 700 {site.folder}"
        )
    else:
        yield Finding("ok", "folder", f"{site.folder} is private")


def check_disk(site: Site) -> Iterator[Finding]:
    """On which file system the site lies, and how much of it is free."""
    kind = filesystem_type(site.folder)
    shared = is_network(kind)
    note = ": the tables may lie there, the state must not" if shared else ""
    yield Finding("ok", "file system", f"{kind or 'unknown'}{note}")
    free = shutil.disk_usage(site.folder).free
    if free < _LOW_SPACE:
        what = f"only {format_size(free)} are free on {format_disk(site.folder)}."
        yield Finding("problem", "disk", what, "Free some space; `store compact` and `store retain` help.")
    else:
        yield Finding("ok", "disk", f"{format_size(free)} free")


def check_writable(site: Site) -> Iterator[Finding]:
    """Whether the site can be written; one that is mounted read-only can be read, which is all that some are for."""
    if site.read_only:
        what = f"the site is read-only: {site.read_only}. It can be read; whatever writes is refused."
        yield Finding("warning", "read-only", what)
        return
    try:
        tempfile.TemporaryFile(dir=site.folder).close()
    except OSError as error:
        yield Finding("problem", "folder", f"{site.folder} cannot be written: {error.strerror}.", "Check owner and permissions.")


def check_jobs(site: Site) -> Iterator[Finding]:
    """How many jobs there are, in how many files, and whether they agree with the clock."""
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


def check_events(site: Site) -> Iterator[Finding]:
    """Whether events are counted, up to now and without gaps; a site that counts none is not ill."""
    bucket_s = site.settings.events.bucket_minutes * 60
    seen = site.event_counts.seen().filter(pl.col("bucket_s") == bucket_s)
    if not seen.height:
        named = site.settings.elastic.url or site.settings.htcondor.event_log
        hint = "Run: stormpetrel ingest events --live." if named else ""
        yield Finding("warning" if named else "ok", "events", "no events of the cluster are counted yet", hint)
        return
    last: datetime = seen["last"].max() + timedelta(seconds=bucket_s)  # type: ignore[operator, assignment]
    late = site.now() - last > _EVENTS_LATE + timedelta(seconds=2 * bucket_s)
    yield Finding(
        "warning" if late else "ok",
        "events",
        f"counted by {seen.height} source(s), the last seen up to {last:%Y-%m-%d %H:%M} UTC",
        "Nothing has come since. Run: stormpetrel ingest events --live, or keep stormpetrel watch running." if late else "",
    )
    for gap in site.event_counts.gaps(bucket_s=bucket_s, since=site.now() - _GAPS_BACK)[-_MOST_GAPS:]:
        yield Finding(
            "warning",
            "events",
            f"not seen from {gap.start:%Y-%m-%d %H:%M} to {gap.end:%Y-%m-%d %H:%M} UTC: {gap.why}.",
            "Run: stormpetrel ingest events --live, which fills what can still be read.",
        )


def check_quarantine(site: Site) -> Iterator[Finding]:
    """How many records were refused, and by which rules."""
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


_MOSTLY: Final = 0.5
_ENOUGH: Final = 20  # values of a column, before its share says something


def check_unread(site: Site) -> Iterator[Finding]:
    """Whether a column of some format could mostly not be read: its jobs are kept, and lack it."""
    for field in site.unread_fields.shares():
        if field.share >= _MOSTLY and field.filled >= _ENOUGH:
            records = f"{field.unread:,} of the last {field.filled:,} {field.format} records with it"
            yield Finding(
                "warning",
                "unread values",
                f"{field.column} could not be read in {records}.",
                f"What stood there is in `extra` of the jobs under {PREFIX}{field.column}; check what writes it "
                "(for sacct: --noconvert; for a table: its column map).",
            )


def check_extras(site: Site) -> Iterator[Finding]:
    """Which extras are installed, and whether one is missing that the settings need."""
    missing = [extra for extra, (module, _) in EXTRAS.items() if importlib.util.find_spec(module) is None]
    if site.settings.store.state_url and "postgres" in missing:
        yield Finding(
            "problem", "extras", "store.state_url needs the extra 'postgres'.", "Run: pip install 'stormpetrel[postgres]'"
        )
    there = [extra for extra in EXTRAS if extra not in missing]
    yield Finding("ok", "extras", f"installed: {', '.join(there) or 'none'}; not installed: {', '.join(missing) or 'none'}")


def check_state(site: Site) -> Iterator[Finding]:
    """Whether state and tables were left behind together; one that is missing, or of another site, keeps a site from opening."""
    wrong = disagreement(site)
    if wrong:
        yield Finding("problem", "state", wrong, REPAIR)
    else:
        yield Finding("ok", "state", "belongs to the tables")


def check_registry(site: Site) -> Iterator[Finding]:
    """Folders of models that are not entered, and entries whose folder is gone."""
    entered = {(entry.name, entry.version): entry for entry in site.models.versions()}
    there = site.models.folders()
    for key, entry in entered.items():
        if key not in there:
            used = ", which is in use," if entry.current else ""
            what = f"{entry.name} version {entry.version}{used} has no folder: {site.models.folder_of(*key)} is missing."
            hint = f"Take it from a backup: tar -xf BACKUP -C {site.folder} {_inside(site, key)}; or train again."
            yield Finding("problem" if entry.current else "warning", "models", what, hint)
    unknown = sorted(key for key in there if key not in entered)
    if unknown:
        names = ", ".join(f"{name} version {version}" for name, version in unknown[:_NAMES_SHOWN])
        more = f" and {len(unknown) - _NAMES_SHOWN} more" if len(unknown) > _NAMES_SHOWN else ""
        what = f"the registry does not know {names}{more}, whose {'folder lies' if len(unknown) == 1 else 'folders lie'} there."
        if entered:
            hint = "A training that died has left it behind, or one is under way; stormpetrel nightly deletes what is old."
            yield Finding("warning", "models", what, hint)
        else:
            yield Finding("problem", "models", f"{what} It knows no model at all.", REPAIR)
    if not unknown and there.keys() == entered.keys():
        yield Finding("ok", "models", f"{len(entered)} versions, each with its folder" if entered else "none yet")


def _inside(site: Site, key: tuple[str, int]) -> str:
    return str(site.models.folder_of(*key).relative_to(site.folder))
