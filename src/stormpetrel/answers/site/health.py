"""How the site itself is: the watch and its lag, sources, tables, disk, models, versions, and what the doctor finds.

LiveSite + Viewer -> health -> Health: one line per thing, each with a level, words and advice. What names users, hosts or
paths is for administrators; others get a short version.
"""

from __future__ import annotations

import platform
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from stormpetrel import __version__
from stormpetrel.answers.background import Background
from stormpetrel.answers.overview.overview import again
from stormpetrel.answers.schemas.health import Health, HealthLine, HealthSource, HealthTable, Level, RefusedRecords
from stormpetrel.answers.site.doctor import examine
from stormpetrel.answers.viewer import READ
from stormpetrel.errors import ModelOutdatedError
from stormpetrel.lifecycle.job_models import lacking_moments
from stormpetrel.records.checks import Finding
from stormpetrel.records.trace_coverage import MORE_TIME
from stormpetrel.records.units import format_size
from stormpetrel.store.source_health import EVENTS, SourceHealth, format_span
from stormpetrel.store.watch_status import WatchReport, WatchStatus, read_watch

if TYPE_CHECKING:
    from stormpetrel.answers.background import Snapshot
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.site import Site
    from stormpetrel.store.tables import Table

LEVELS: Final[tuple[Level, ...]] = ("problem", "warning", "ok")
_REST_S: Final = 60.0  # the doctor asks the scheduler
_START: Final = "Start it: stormpetrel watch"
_SLOW_ADVICE: Final = "Does the watch run, does the scheduler answer?"
_LAG_S: Final = 60.0
_LONG_LAG_S: Final = 600.0
_OLD_MODEL: Final = timedelta(days=30)
_LATE: Final = 0.05
_LOW_SPACE: Final = 2 * 1024**3
_RECENT: Final = 200  # ingests
_SPAN: Final = re.compile(r"\s+\d{4}-\d\d-\d\d.*$")  # a live source is called after the span that was requested
_EXAMPLES: Final = 3
_LONGEST: Final = 300
_OWN_CHECKS: Final = {
    "ports",
    "disk",
    "quarantine",
    "read-only",
    "watch",
}  # the port is taken by this very server; the others have lines of their own
_PACKAGES: Final = (
    "polars", "deltalake", "numpy", "xgboost", "xgboost-cpu", "scikit-learn", "sqlalchemy", "dash", "dash-ag-grid", "fastapi",
    "uvicorn", "plotly",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Inspection:
    """What is examined off the request: the doctor's findings, tables, quarantine."""

    findings: tuple[Finding, ...]
    tables: tuple[HealthTable, ...]
    quarantine: tuple[RefusedRecords, ...]  # most records first


def health(live: LiveSite, viewer: Viewer) -> Health:
    """Return how the site is now; the slow part as it was at the last look, at most a minute ago while somebody looks."""
    viewer.require(READ)
    watch = read_watch(live.site.state)
    if not viewer.is_admin:
        lines = [*_watch_lines(live, watch, in_full=False), *_read_only_lines(live, in_full=False)]
        return _answer(live, lines, None, versions={"Stormpetrel": __version__}, is_short=True)
    latest = live.boards.inspections.peek(live)
    lines = [
        *_watch_lines(live, watch, in_full=True),
        *_live_source_lines(watch),
        *_ingest_lines(live, {source.name for source in watch.sources}),
        *_read_only_lines(live, in_full=True),
        *_disk_lines(live),
        *(() if latest is None else _quarantine_lines(latest.value.quarantine)),
        *(() if latest is None else _doctor_lines(latest.value.findings)),
    ]
    return _answer(live, lines, latest, versions=_versions(), is_short=False, sources=list(_live_sources(watch)))


def source_lags(site: Site, viewer: Viewer) -> list[HealthSource]:
    """Return what the watch reads by itself, and how long ago each was read well; for administrators, none for others."""
    viewer.require(READ)
    return list(_live_sources(read_watch(site.state))) if viewer.is_admin else []


def _answer(
    live: LiveSite,
    lines: list[HealthLine],
    inspected: Snapshot[Inspection] | None,
    *,
    versions: dict[str, str],
    is_short: bool,
    sources: Sequence[HealthSource] = (),
) -> Health:
    """The answer; tables and quarantine are None, and the doctor's lines missing, while they are examined for the first time."""
    levels = {line.level for line in lines}
    return Health(
        worst=next((level for level in LEVELS if level in levels), "ok"),
        as_of=live.now(),
        read_only=bool(live.site.read_only),
        lines=lines,
        sources=list(sources),
        versions=versions,
        tables=None if inspected is None else list(inspected.value.tables),
        quarantine=None if inspected is None else list(inspected.value.quarantine),
        checked=None if inspected is None else inspected.at,
        is_short=is_short,
    )


def inspect(live: LiveSite, key: str, before: Inspection | None) -> Inspection:
    """What takes long: the doctor, the sizes of the tables, the examples of the quarantine."""
    del key, before
    site = live.site
    tables = (site.jobs.table, site.predictions.table, site.quarantine.table, site.jobs.sightings)
    refused = again(lambda: site.quarantine.read().select("rule", "reason", "raw").collect())
    return Inspection(
        findings=tuple(examine(site)),
        tables=again(lambda: tuple(_table(table) for table in tables)),
        quarantine=_refused(refused),
    )


def inspection_background() -> Background[Inspection]:
    """Return what keeps the last inspection of one site."""
    return Background(inspect, rest_s=_REST_S, most=1, always=True)


def _watch_lines(live: LiveSite, watch: WatchReport, *, in_full: bool) -> Iterator[HealthLine]:
    part = "Watching"
    yield _sign_of_life(watch, in_full=in_full)
    if watch.reads_jobs:
        yield _forecast_line(live, watch.status)
        if watch.status is not None and watch.status.predictions:
            yield _on_time_line(watch.status)
        yield _model_line(live, watch.status)
    else:
        yield _event_model_line(live)
    if live.problem:
        text = live.problem if in_full else "This server could not read the site's tables at its last read."
        yield _line(part, "This server", "problem", text, "What you see may be old. It tries again by itself.")
    else:
        yield _line(part, "This server", "ok", "It has read everything that the watch has written.")


def _sign_of_life(watch: WatchReport, *, in_full: bool) -> HealthLine:
    part, name, now = "Watching", "Watch", datetime.now(UTC)
    if watch.status is None:
        return _line(part, name, "warning", "Nobody watches this site yet.", _START)
    state, silent = watch.state(now), format_span(watch.silent_s(now))
    where = f" (process {watch.status.pid} on {watch.status.host})" if in_full else ""
    if state == "stopped":
        return _line(part, name, "problem", f"The watch was stopped {silent} ago{where}.", _START)
    if state == "silent":
        return _line(part, name, "problem", f"The watch was last heard of {silent} ago{where}.", _START)
    if state == "trouble" and watch.is_new(now):
        return _line(part, name, "warning", f"The watch follows the jobs, and judges none yet. {watch.problem(now)}")
    if state == "trouble":
        text = watch.problem(now) if in_full else "The watch cannot read a source, or has no model that it can use."
        return _line(part, name, "problem", text, "It tries again by itself; its log says more.")
    jobs = f"; {watch.status.open_jobs:,} jobs wait or run" if watch.reads_jobs else "; it reads events, and no jobs"
    return _line(part, name, "ok", f"Heard of {silent} ago{where}{jobs}.")


def _forecast_line(live: LiveSite, status: WatchStatus | None) -> HealthLine:
    """Up to when every job is judged: the table knows when something was last said, on a quiet cluster the watch knows more."""
    part, name = "Watching", "Forecasts"
    reported = datetime.fromisoformat(status.horizon) if status and status.horizon else None
    horizon = max(filter(None, (live.site.predictions.horizon(), reported)), default=None)
    if horizon is None:
        return _line(part, name, "warning", "Nothing has been forecast yet.", _START)
    lag_s = (live.now() - horizon).total_seconds() / live.site.pace()
    level: Level = "ok" if lag_s <= _LAG_S else "warning" if lag_s <= _LONG_LAG_S else "problem"
    text = f"Every job is judged as of {horizon:%Y-%m-%d %H:%M:%S} UTC, {format_span(lag_s)} ago."
    return _line(part, name, level, text, "" if level == "ok" else _SLOW_ADVICE)


def _on_time_line(status: WatchStatus) -> HealthLine:
    late = status.late > _LATE * status.predictions
    text = f"{status.late:,} of {status.predictions:,} forecasts of this watch came more than 10 s after their moment."
    advice = "Lower watch.poll_s in site.toml." if late else ""
    return _line("Watching", "On time", "warning" if late else "ok", text, advice)


def _model_line(live: LiveSite, status: WatchStatus | None) -> HealthLine:
    part, name = "Watching", "Model"
    training = live.site.models.current_training("jobs")
    waits_for = status.waits_for if status else None
    if training is None:
        if live.settings.jobs.prior:
            text = waits_for or "There is no job model of this site yet: general experience (prior-1) speaks."
            return _line(part, name, "warning", text, "" if waits_for else "Train one: stormpetrel jobs train")
        text = f"There are no risks. {waits_for}" if waits_for else "There is no model yet, so no risks."
        return _line(part, name, "warning", text, "" if waits_for else "Train one: stormpetrel jobs train")
    if isinstance(live.model_problem, ModelOutdatedError):
        text = (
            f"{training.name} was saved by an earlier version: it is to be trained again, and until then there are no new risks."
        )
        return _line(part, name, "warning", text, "The watch does so by itself; at once: stormpetrel nightly")
    if live.model_problem is not None:
        text = f"{training.name} was saved by a newer version than this one, which cannot read it: there are no new risks."
        return _line(part, name, "problem", text, "Run: pip install --upgrade stormpetrel")
    age = live.now() - training.trained_until
    text = f"{training.name} is in use, learnt from jobs up to {training.trained_until:%Y-%m-%d %H:%M} UTC."
    if age > _OLD_MODEL:
        return _line(part, name, "warning", f"{text} That is {age.days} days ago.", "Train again: stormpetrel jobs train")
    return _line(part, name, "ok", f"{text} {waits_for}" if waits_for and lacking_moments(training) else text)


def _event_model_line(live: LiveSite) -> HealthLine:
    training = live.site.models.current_training("events")
    if training is None:
        text = "There is no model of events yet, so no alarms: they are counted."
        return _line("Watching", "Model", "warning", text, "The watch trains one by itself, or: stormpetrel events train")
    return _line("Watching", "Model", "ok", f"{training.name} is in use.")


def _live_sources(watch: WatchReport) -> Iterator[HealthSource]:
    """What the watch reads by itself, with ages as of now."""
    now = datetime.now(UTC)
    problems = {trouble.source: trouble.what for trouble in watch.troubles(now)}
    for source in watch.sources:
        yield HealthSource(
            name=source.name,
            watcher="events" if source.watcher == EVENTS else "jobs",
            last_good_look=source.last_good,
            lag_s=source.lag_s(now),
            records=source.records,
            problem=problems.get(source.name, ""),
        )


def _live_source_lines(watch: WatchReport) -> Iterator[HealthLine]:
    """One line for each of the watch's own reads."""
    now = datetime.now(UTC)
    is_watched = watch.state(now) in ("live", "trouble")
    problems = {trouble.source: trouble for trouble in watch.troubles(now)}
    for source in watch.sources:
        good = (
            f"{source.last_read_text(now)[:-1]}: {source.records:,} records." if source.last_good else source.last_read_text(now)
        )
        trouble = problems.get(source.name)
        if not is_watched:
            yield _line("Sources", source.name, "warning", f"{good} Nobody reads it now.", _START)
        elif trouble is not None and trouble.kind == "behind":
            yield _line("Sources", source.name, "warning", f"{trouble.what} {good}", MORE_TIME)
        elif trouble is not None:
            text = trouble.what if trouble.kind != "failed" else f"{trouble.what} {good}"
            yield _line("Sources", source.name, "problem", text, "The watch tries again by itself.")
        else:
            yield _line("Sources", source.name, "ok", f"{good} {_rhythm(source)}")


def _rhythm(source: SourceHealth) -> str:
    return f"Looked at every {format_span(source.every_s)}."


def _ingest_lines(live: LiveSite, watched: set[str]) -> Iterator[HealthLine]:
    """The last ingest of each source that the watch does not read by itself."""
    part = "Sources"
    newest: dict[str, dict[str, Any]] = {}
    for report in live.site.state.past_ingests(_RECENT):
        newest.setdefault(_SPAN.sub("", str(report["source"])), report)
    if not newest and not watched:
        advice = "Run: stormpetrel ingest jobs FILE, or stormpetrel watch"
        yield _line(part, "Jobs", "warning", "Nothing has been taken in yet.", advice)
    for source, report in newest.items():
        if source in watched:
            continue
        finished = datetime.fromisoformat(str(report["finished"]))
        refused = sum(report.get("quarantined", {}).values())
        unread = sum(report.get("unread", {}).values())
        text = (
            f"Last ingest {format_span((datetime.now(UTC) - finished).total_seconds())} ago: {report.get('read', 0):,} records, "
            f"{report.get('kept', 0):,} new, {report.get('changed', 0):,} changed, {refused:,} refused"
            f"{f'; {unread:,} values could not be read' if unread else ''}."
        )
        advice = "See below what was refused, and why." if refused else ""
        yield _line(part, source[:_LONGEST], "warning" if refused else "ok", text, advice)


def _read_only_lines(live: LiveSite, *, in_full: bool) -> Iterator[HealthLine]:
    if live.site.read_only:
        why = f": {live.site.read_only}" if in_full else ""
        text = f"This server only reads the site{why}. What is saved here is not kept."
        yield _line("Store", "Read-only", "warning", text)


def _disk_lines(live: LiveSite) -> Iterator[HealthLine]:
    usage = shutil.disk_usage(live.site.folder)
    low = usage.free < _LOW_SPACE
    text = f"{format_size(usage.free)} of {format_size(usage.total)} are free where the site lies."
    advice = "Free some space: stormpetrel store compact, stormpetrel store retain." if low else ""
    yield _line("Store", "Disk", "problem" if low else "ok", text, advice)


def _quarantine_lines(refused: Sequence[RefusedRecords]) -> Iterator[HealthLine]:
    if not refused:
        yield _line("Store", "Quarantine", "ok", "Empty: every record could be read.")
        return
    reasons = f"{len(refused)} {'reason' if len(refused) == 1 else 'reasons'}"
    text = f"{sum(rule.records for rule in refused):,} records were refused, for {reasons}."
    yield _line("Store", "Quarantine", "warning", text, 'See below, or: stormpetrel sql "select * from quarantine"')


def _doctor_lines(findings: tuple[Finding, ...]) -> Iterator[HealthLine]:
    for finding in sorted(findings, key=lambda finding: LEVELS.index(finding.level)):
        if finding.check not in _OWN_CHECKS:
            name = finding.check[:1].upper() + finding.check[1:]
            yield _line("Doctor", name, finding.level, f"{finding.what[:1].upper()}{finding.what[1:]}", finding.hint)


def _line(part: str, name: str, level: Level, text: str, advice: str = "") -> HealthLine:
    return HealthLine(part=part, name=name, level=level, words=text, advice=advice)


def _table(table: Table) -> HealthTable:
    files = table.files()
    return HealthTable(
        table=table.spec.name,
        rows=int(table.scan(files).select(pl.len()).collect().item()),
        files=len(files),
        bytes=sum(path.stat().st_size for path in files),
        version=table.version(),
    )


def _refused(rows: pl.DataFrame) -> tuple[RefusedRecords, ...]:
    """The refused records by rule, most first, each with up to three reasons and the record they are about, as text."""
    example = pl.concat_str(pl.col("reason"), pl.concat_str(pl.lit(" · "), pl.col("raw")).fill_null("")).str.slice(0, _LONGEST)
    counted = rows.group_by("rule").agg(pl.len().cast(pl.Int64).alias("records"), example.head(_EXAMPLES).alias("examples"))
    ordered = counted.sort("records", "rule", descending=[True, False])
    return tuple(RefusedRecords(**row) for row in ordered.iter_rows(named=True))


def _versions() -> dict[str, str]:
    versions = {"Stormpetrel": __version__, "Python": platform.python_version()}
    versions["System"] = f"{platform.system()} {platform.release()}"
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:  # an extra that is not installed
            continue
    return versions
