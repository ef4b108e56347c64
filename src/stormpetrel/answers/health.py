"""How the site itself is: the watch and its lag, sources, tables, disk, models, versions, and what the doctor finds.

LiveSite + Viewer -> health -> HealthAnswer: one line per thing, each with a level, words and advice. What names users, hosts or
paths is for administrators; others get a short version.
"""

from __future__ import annotations

import platform
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final, Literal

import polars as pl

from stormpetrel import __version__
from stormpetrel.answers.background import Background
from stormpetrel.answers.doctor import examine
from stormpetrel.answers.overview import again
from stormpetrel.answers.viewer import READ
from stormpetrel.errors import ModelOutdatedError
from stormpetrel.lifecycle.job_models import lacking_moments
from stormpetrel.records.checks import Finding
from stormpetrel.records.sizes import size_words
from stormpetrel.store.source_health import SourceHealth, span_words
from stormpetrel.store.watch_status import WatchReport, WatchStatus, read_watch

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.tables import Table

Level = Literal["ok", "warning", "problem"]
LEVELS: Final = ("problem", "warning", "ok")
_REST_S: Final = 60.0  # the doctor asks the scheduler
_START: Final = "Start it: stormpetrel watch"
_SLOW_ADVICE: Final = "Does the watch run, does the scheduler answer?"
_LAG_S: Final = 60.0
_LONG_LAG_S: Final = 600.0
_OLD_MODEL: Final = timedelta(days=30)
_LATE: Final = 0.05
_LOW_SPACE: Final = 2 * 1024**3
_LOOK_BACK: Final = 200  # ingests
_SPAN: Final = re.compile(r"\s+\d{4}-\d\d-\d\d.*$")  # a live source is called after the span it was asked for
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
class HealthLine:
    """One thing that was looked at."""

    part: str
    name: str
    level: Level
    words: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class LiveSource:
    """One of the watch's own reads, as it is at the moment of asking; `problem` is empty where nothing is wrong."""

    name: str
    watcher: str
    last_good_look: datetime | None
    lag_s: float | None
    records: int  # of that look
    problem: str

    def as_json(self) -> dict[str, Any]:
        """For other programs."""
        return {**asdict(self), "last_good_look": self.last_good_look.isoformat() if self.last_good_look else None}


@dataclass(frozen=True, slots=True)
class Inspection:
    """What is looked at off the request: the doctor's findings, tables, quarantine."""

    findings: tuple[Finding, ...]
    tables: pl.DataFrame
    quarantine: pl.DataFrame


@dataclass(frozen=True, slots=True)
class HealthAnswer:
    """The lines, and for administrators `tables` (table, rows, files, bytes, version) and `quarantine` (rule, records, examples).

    Both are None, and the doctor's lines are missing, while they are looked at for the first time. `sources` are what the watch
    reads by itself.
    """

    lines: tuple[HealthLine, ...]
    tables: pl.DataFrame | None
    quarantine: pl.DataFrame | None
    versions: dict[str, str]
    as_of: datetime
    checked: datetime | None
    is_short: bool
    read_only: bool = False
    sources: tuple[LiveSource, ...] = ()

    @property
    def worst(self) -> Level:
        """The gravest level among the lines."""
        found = {line.level for line in self.lines}
        return "problem" if "problem" in found else "warning" if "warning" in found else "ok"

    def as_json(self) -> dict[str, Any]:
        """For other programs."""
        return {
            "worst": self.worst,
            "as_of": self.as_of.isoformat(),
            "read_only": self.read_only,
            "lines": [asdict(line) for line in self.lines],
            "sources": [source.as_json() for source in self.sources],
            "versions": dict(self.versions),
        }


def health(live: LiveSite, viewer: Viewer) -> HealthAnswer:
    """How the site is now; the slow part as it was at the last look, at most a minute ago while somebody looks."""
    viewer.require(READ)
    watch = read_watch(live.site.state)
    if not viewer.is_admin:
        lines = (*_watch_lines(live, watch, in_full=False), *_read_only_lines(live, in_full=False))
        versions, read_only = {"Stormpetrel": __version__}, bool(live.site.read_only)
        return HealthAnswer(lines, None, None, versions, live.now(), None, is_short=True, read_only=read_only)
    made = INSPECTIONS.look(live)
    lines = (
        *_watch_lines(live, watch, in_full=True),
        *_live_source_lines(watch),
        *_ingest_lines(live, {source.name for source in watch.sources}),
        *_read_only_lines(live, in_full=True),
        *_disk_lines(live),
        *(() if made is None else _quarantine_lines(made.value.quarantine)),
        *(() if made is None else _doctor_lines(made.value.findings)),
    )
    return HealthAnswer(
        lines=lines,
        tables=None if made is None else made.value.tables,
        quarantine=None if made is None else made.value.quarantine,
        versions=_versions(),
        as_of=live.now(),
        checked=None if made is None else made.at,
        is_short=False,
        read_only=bool(live.site.read_only),
        sources=tuple(_live_sources(watch)),
    )


def inspect(live: LiveSite, key: str, before: Inspection | None) -> Inspection:
    """What takes long: the doctor, the sizes of the tables, the examples of the quarantine."""
    del key, before
    site = live.site
    tables = (site.jobs.table, site.predictions.table, site.quarantine.table, site.jobs.sightings)
    refused = again(lambda: site.quarantine.read().select("rule", "reason", "raw").collect())
    return Inspection(
        findings=tuple(examine(site)),
        tables=again(lambda: pl.DataFrame([_table_row(table) for table in tables])),
        quarantine=_refused(refused),
    )


INSPECTIONS: Final = Background(inspect, rest_s=_REST_S, most=1, always=True)


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
        words = live.problem if in_full else "This server could not read the site's tables at its last look."
        yield HealthLine(part, "This server", "problem", words, "What you see may be old. It tries again by itself.")
    else:
        yield HealthLine(part, "This server", "ok", "It has read everything that the watch has written.")


def _sign_of_life(watch: WatchReport, *, in_full: bool) -> HealthLine:
    part, name, now = "Watching", "Watch", datetime.now(UTC)
    if watch.status is None:
        return HealthLine(part, name, "warning", "Nobody watches this site yet.", _START)
    state, silent = watch.state(now), span_words(watch.silent_s(now))
    where = f" (process {watch.status.pid} on {watch.status.host})" if in_full else ""
    if state == "stopped":
        return HealthLine(part, name, "problem", f"The watch was stopped {silent} ago{where}.", _START)
    if state == "silent":
        return HealthLine(part, name, "problem", f"The watch was last heard of {silent} ago{where}.", _START)
    if state == "trouble" and watch.is_new(now):
        return HealthLine(part, name, "warning", f"The watch follows the jobs, and judges none yet. {watch.problem(now)}")
    if state == "trouble":
        words = watch.problem(now) if in_full else "The watch cannot read a source, or has no model that it can use."
        return HealthLine(part, name, "problem", words, "It tries again by itself; its log says more.")
    jobs = f"; {watch.status.open_jobs:,} jobs wait or run" if watch.reads_jobs else "; it reads events, and no jobs"
    return HealthLine(part, name, "ok", f"Heard of {silent} ago{where}{jobs}.")


def _forecast_line(live: LiveSite, status: WatchStatus | None) -> HealthLine:
    """Up to when every job is judged: the table knows when something was last said, on a quiet cluster the watch knows more."""
    part, name = "Watching", "Forecasts"
    told = datetime.fromisoformat(status.horizon) if status and status.horizon else None
    horizon = max(filter(None, (live.site.predictions.horizon(), told)), default=None)
    if horizon is None:
        return HealthLine(part, name, "warning", "Nothing has been forecast yet.", _START)
    lag_s = (live.now() - horizon).total_seconds() / live.site.pace()
    level: Level = "ok" if lag_s <= _LAG_S else "warning" if lag_s <= _LONG_LAG_S else "problem"
    words = f"Every job is judged as of {horizon:%Y-%m-%d %H:%M:%S} UTC, {span_words(lag_s)} ago."
    return HealthLine(part, name, level, words, "" if level == "ok" else _SLOW_ADVICE)


def _on_time_line(status: WatchStatus) -> HealthLine:
    late = status.late > _LATE * status.predictions
    words = f"{status.late:,} of {status.predictions:,} forecasts of this watch came more than 10 s after their moment."
    advice = "Lower watch.poll_s in site.toml." if late else ""
    return HealthLine("Watching", "On time", "warning" if late else "ok", words, advice)


def _model_line(live: LiveSite, status: WatchStatus | None) -> HealthLine:
    part, name = "Watching", "Model"
    training = live.site.models.current_training("jobs")
    waits_for = status.waits_for if status else None
    if training is None:
        words = f"There are no risks. {waits_for}" if waits_for else "There is no model yet, so no risks."
        return HealthLine(part, name, "warning", words, "" if waits_for else "Train one: stormpetrel jobs train")
    if isinstance(live.model_problem, ModelOutdatedError):
        words = (
            f"{training.name} was saved by an earlier version: it is to be trained again, and until then there are no new risks."
        )
        return HealthLine(part, name, "warning", words, "The watch does so by itself; at once: stormpetrel nightly")
    if live.model_problem is not None:
        words = f"{training.name} was saved by a newer version than this one, which cannot read it: there are no new risks."
        return HealthLine(part, name, "problem", words, "Run: pip install --upgrade stormpetrel")
    age = live.now() - training.trained_until
    words = f"{training.name} is in use, learnt from jobs up to {training.trained_until:%Y-%m-%d %H:%M} UTC."
    if age > _OLD_MODEL:
        return HealthLine(part, name, "warning", f"{words} That is {age.days} days ago.", "Train again: stormpetrel jobs train")
    return HealthLine(part, name, "ok", f"{words} {waits_for}" if waits_for and lacking_moments(training) else words)


def _event_model_line(live: LiveSite) -> HealthLine:
    training = live.site.models.current_training("events")
    if training is None:
        words = "There is no model of events yet, so no alarms: they are counted."
        return HealthLine("Watching", "Model", "warning", words, "The watch trains one by itself, or: stormpetrel events train")
    return HealthLine("Watching", "Model", "ok", f"{training.name} is in use.")


def _live_sources(watch: WatchReport) -> Iterator[LiveSource]:
    """What the watch reads by itself, with ages as of now."""
    now = datetime.now(UTC)
    problems = {trouble.source: trouble.what for trouble in watch.troubles(now)}
    for source in watch.sources:
        yield LiveSource(
            name=source.name, watcher=source.watcher, last_good_look=source.last_good, lag_s=source.lag_s(now),
            records=source.records, problem=problems.get(source.name, ""),
        )  # fmt: skip


def _live_source_lines(watch: WatchReport) -> Iterator[HealthLine]:
    """One line for each of the watch's own reads."""
    now = datetime.now(UTC)
    is_watched = watch.state(now) in ("live", "trouble")
    problems = {trouble.source: trouble for trouble in watch.troubles(now)}
    for source in watch.sources:
        good = f"{source.last_words(now)[:-1]}: {source.records:,} records." if source.last_good else source.last_words(now)
        trouble = problems.get(source.name)
        if not is_watched:
            yield HealthLine("Sources", source.name, "warning", f"{good} Nobody reads it now.", _START)
        elif trouble is not None:
            words = trouble.what if trouble.kind != "failed" else f"{trouble.what} {good}"
            yield HealthLine("Sources", source.name, "problem", words, "The watch tries again by itself.")
        else:
            yield HealthLine("Sources", source.name, "ok", f"{good} {_rhythm(source)}")


def _rhythm(source: SourceHealth) -> str:
    return f"Looked at every {span_words(source.every_s)}."


def _ingest_lines(live: LiveSite, watched: set[str]) -> Iterator[HealthLine]:
    """The last ingest of each source that the watch does not read by itself."""
    part = "Sources"
    newest: dict[str, dict[str, Any]] = {}
    for report in live.site.state.past_ingests(_LOOK_BACK):
        newest.setdefault(_SPAN.sub("", str(report["source"])), report)
    if not newest and not watched:
        advice = "Run: stormpetrel ingest jobs FILE, or stormpetrel watch"
        yield HealthLine(part, "Jobs", "warning", "Nothing has been taken in yet.", advice)
    for source, report in newest.items():
        if source in watched:
            continue
        finished = datetime.fromisoformat(str(report["finished"]))
        refused = sum(report.get("quarantined", {}).values())
        unread = sum(report.get("unread", {}).values())
        words = (
            f"Last taken in {span_words((datetime.now(UTC) - finished).total_seconds())} ago: {report.get('read', 0):,} records, "
            f"{report.get('kept', 0):,} new, {report.get('changed', 0):,} changed, {refused:,} refused"
            f"{f'; {unread:,} values could not be read' if unread else ''}."
        )
        advice = "See below what was refused, and why." if refused else ""
        yield HealthLine(part, source[:_LONGEST], "warning" if refused else "ok", words, advice)


def _read_only_lines(live: LiveSite, *, in_full: bool) -> Iterator[HealthLine]:
    if live.site.read_only:
        why = f": {live.site.read_only}" if in_full else ""
        words = f"This server only reads the site{why}. What is saved here is not kept."
        yield HealthLine("Store", "Read-only", "warning", words)


def _disk_lines(live: LiveSite) -> Iterator[HealthLine]:
    usage = shutil.disk_usage(live.site.folder)
    low = usage.free < _LOW_SPACE
    words = f"{size_words(usage.free)} of {size_words(usage.total)} are free where the site lies."
    advice = "Free some space: stormpetrel store compact, stormpetrel store retain." if low else ""
    yield HealthLine("Store", "Disk", "problem" if low else "ok", words, advice)


def _quarantine_lines(refused: pl.DataFrame) -> Iterator[HealthLine]:
    if refused.is_empty():
        yield HealthLine("Store", "Quarantine", "ok", "Empty: every record could be read.")
        return
    reasons = f"{refused.height} {'reason' if refused.height == 1 else 'reasons'}"
    words = f"{refused['records'].sum():,} records were refused, for {reasons}."
    yield HealthLine("Store", "Quarantine", "warning", words, 'See below, or: stormpetrel sql "select * from quarantine"')


def _doctor_lines(findings: tuple[Finding, ...]) -> Iterator[HealthLine]:
    for finding in sorted(findings, key=lambda found: LEVELS.index(found.level)):
        if finding.check not in _OWN_CHECKS:
            name = finding.check[:1].upper() + finding.check[1:]
            yield HealthLine("Doctor", name, finding.level, f"{finding.what[:1].upper()}{finding.what[1:]}", finding.hint)


def _table_row(table: Table) -> dict[str, Any]:
    files = table.files()
    return {
        "table": table.spec.name,
        "rows": int(table.scan(files).select(pl.len()).collect().item()),
        "files": len(files),
        "bytes": sum(path.stat().st_size for path in files),
        "version": table.version(),
    }


def _refused(rows: pl.DataFrame) -> pl.DataFrame:
    """rule, records, examples: up to three reasons with the record they are about, as text."""
    example = pl.concat_str(pl.col("reason"), pl.concat_str(pl.lit(" · "), pl.col("raw")).fill_null("")).str.slice(0, _LONGEST)
    counted = rows.group_by("rule").agg(pl.len().cast(pl.Int64).alias("records"), example.head(_EXAMPLES).alias("examples"))
    return counted.sort("records", "rule", descending=[True, False])


def _versions() -> dict[str, str]:
    found = {"Stormpetrel": __version__, "Python": platform.python_version()}
    found["System"] = f"{platform.system()} {platform.release()}"
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # an extra that is not installed
            continue
    return found
