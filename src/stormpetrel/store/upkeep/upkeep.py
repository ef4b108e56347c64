"""Upkeep of a site: compaction, retention, and forgetting a user."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import polars as pl

from stormpetrel.errors import UsageError
from stormpetrel.records.events import OTHER_VALUES
from stormpetrel.records.jobs import KEY
from stormpetrel.records.traces import LIVE, UNKNOWN
from stormpetrel.store.identity import Standing, follow_state, standing_of
from stormpetrel.store.incidents.incidents import NEWEST_INCIDENTS
from stormpetrel.store.jobs import last_sightings
from stormpetrel.store.site import Site
from stormpetrel.store.tables import Table
from stormpetrel.store.upkeep.forgetting import count_forgetting, names_user
from stormpetrel.store.upkeep.scrub import scrub

_JOB_IDS: Final = ("job_id", "job_id_raw")  # what a cgroup may be called after
_BEFORE_SUBMIT: Final = timedelta(minutes=5)  # a window begins before the job it ends with


@dataclass(frozen=True, slots=True)
class Compacted:
    """What compaction did to one table."""

    table: str
    files_before: int
    files_after: int
    removed: int


def compact(site: Site) -> list[Compacted]:
    """Merge small files, keep only the last sighting of each record, and delete files unused for a week."""
    done = []
    with site.state.writer_lock():
        before = site.jobs.sightings.file_count()
        newest = last_sightings(site.jobs.sightings.scan())
        site.jobs.sightings.overwrite(newest.collect())
        removed = site.jobs.sightings.vacuum()
        done.append(Compacted("sightings", before, site.jobs.sightings.file_count(), removed))
        incidents = site.incident_history.table
        for table in (
            site.jobs.table,
            site.quarantine.table,
            site.predictions.table,
            site.shadow_scores.table,
            incidents,
            *_telemetry(site),
            *_event_tables(site),
        ):
            before = table.file_count()
            table.compact()
            done.append(Compacted(table.spec.name, before, table.file_count(), table.vacuum()))
        for table in site.all_tables:
            table.adopt_files()
    return done


_MANY_FILES: Final = 60
_OLD_HOURS: Final = 2
_LIVE_FILE_BYTES: Final = 2 * 1024 * 1024  # a job that changes rewrites the file it is in: live tables keep to small ones


def tidy(site: Site) -> int:
    """Keep the tables of a watched site in few files: merge what the last looks have left behind; how many files are gone.

    Old versions of a file are deleted after two hours: a loop that commits every few seconds would fill the disk in a week.
    """
    gone = 0
    for table in (
        site.jobs.table,
        site.jobs.sightings,
        site.predictions.table,
        *_telemetry(site),
        *_of_nodes(site),
        site.trace_coverage.table,
        *_event_tables(site),
    ):
        before = table.file_count()
        if before < _MANY_FILES:
            continue
        with site.state.writer_lock():
            if table is site.jobs.sightings:
                table.overwrite(last_sightings(table.scan()).collect())
            else:
                table.compact(target_bytes=_LIVE_FILE_BYTES)
            table.vacuum(keep_hours=_OLD_HOURS)
            table.shorten_log()
        gone += before - table.file_count()
    return gone


def tidy_incidents(site: Site) -> None:
    """Let the state store go of incidents that are long over and in their table, and of old messages; keep the table small.

    The table's rows are replaced every minute while an incident goes on: it has few files, and many that were such.
    """
    now = site.now()
    site.incidents.prune(now - timedelta(days=site.settings.alarms.keep_days), keep=NEWEST_INCIDENTS)
    site.messages.prune(now - timedelta(days=site.settings.notify.keep_days))
    site.mails.prune(now - timedelta(days=site.settings.mail.keep_days))
    site.actions.prune(now - timedelta(days=site.settings.actions.keep_days))
    table = site.incident_history.table
    with site.state.writer_lock():
        if table.file_count() > 1:
            table.compact()
        table.vacuum(keep_hours=_OLD_HOURS)
        table.shorten_log()


def retain(site: Site, days: int) -> int:
    """Delete the jobs submitted more than `days` days ago, from the disk as well; how many.

    Windows that a server reported go with them, counts of events of that time, and incidents that were over then; campaigns stay,
    however old: somebody recorded them to learn from.
    """
    if days < 1:
        raise UsageError("Nothing says how long jobs are to be kept.", hint="Add --days N or set store.keep_days in site.toml.")
    limit = site.now() - timedelta(days=days)
    kept, months = pl.col("submit_time") >= limit, pl.col("month") <= f"{limit:%Y-%m}"
    with site.state.writer_lock():
        site.incidents.prune(limit, keep=0)
        _keep_where(site.incident_history.table, pl.col("resolved_at").is_null() | (pl.col("resolved_at") >= limit), months)
        _keep_where(site.predictions.table, kept, months)
        _keep_where(site.shadow_scores.table, pl.col("time") >= limit, months)
        for table in (*_telemetry(site), *_of_nodes(site)):
            _keep_where(table, (pl.col("trace") != LIVE) | (pl.col("window_start") >= limit), months)
        _keep_where(site.trace_coverage.table, pl.col("window_start") >= limit, months)
        for table in _event_tables(site):
            if table.spec.partition_by:  # reasons of gaps are few, and go when their gap is filled
                _keep_where(table, pl.col("bucket_start") >= limit, months)
        shutil.rmtree(site.snapshots, ignore_errors=True)  # worked out of jobs that go now
        return _keep_where(site.jobs.table, kept, months)


def forget(site: Site, user: str, *, past_only: bool = False) -> int:
    """Delete everything about a user: jobs, refused records, reports; and take in nothing more (unless `past_only`).

    No file of the tables and no entry of their logs holds the name afterwards; backups made before still do.
    """
    if not user.strip():
        raise UsageError("No user was named.", hint="Name one: stormpetrel store forget USER.")
    privacy, together = site.privacy, standing_of(site) is Standing.TOGETHER
    if not past_only:
        site.state.forget(privacy.digest(user))
        site.forgotten.add([privacy.digest(user)])
    with site.state.writer_lock():
        # Under both forms of the name: the setting may have changed since the rows were taken in.
        theirs = pl.col("user").is_in([user, privacy.pseudonym(user)]).fill_null(False)
        jobs = site.jobs.table.scan().filter(theirs).collect()
        for table in (site.predictions.table, site.shadow_scores.table):
            _forget_predictions(table, jobs.select(KEY))
        for table in _telemetry(site):
            _forget_whose(table, jobs)
        _forget_regions(site, jobs, [user, privacy.pseudonym(user)])
        _forget_place(site.event_counts.table, [user, privacy.pseudonym(user)])
        _forget_findings(site.event_scores.table, [user, privacy.pseudonym(user)])
        gone = _keep_where(site.jobs.table, ~theirs, pl.lit(True))
        _forget_refused(site.quarantine.table, user)
        shutil.rmtree(site.snapshots, ignore_errors=True)  # keys in there hold names
        count_forgetting(site.state)  # before the lock is free: whoever commits next knows
    scrub(site.state, user, privacy.pseudonym(user))
    site.incident_history.forget(user, privacy.pseudonym(user))  # after the state, out of which its rows are written
    if together:
        follow_state(site)  # last: until then the tables count as older, since rows may be left in them
    return gone


def _keep_where(table: Table, kept: pl.Expr, months: pl.Expr) -> int:
    """Rewrite the months that hold other rows than those to be kept, and delete the old files at once.

    By rewriting, not by a delete with a predicate: Delta would write the predicate, and with it the user's name, into its log.
    """
    concerned = table.scan().filter(months, ~kept).group_by("month").len().sort("month").collect()
    for month, _ in concerned.iter_rows():
        rows = table.scan().filter(pl.col("month") == month, kept).collect()
        table.overwrite(rows, where=f"month = '{month}'")
    if concerned.height:
        table.vacuum(keep_hours=0)
    return int(concerned["len"].sum())


def _forget_predictions(table: Table, keys: pl.DataFrame) -> None:
    for month in keys["submit_time"].dt.strftime("%Y-%m").unique().sort():
        rows = table.scan().filter(pl.col("month") == month).collect()
        kept = rows.join(keys, on=list(KEY), how="anti", nulls_equal=True)
        if kept.height < rows.height:
            table.overwrite(kept, where=f"month = '{month}'")
            table.vacuum(keep_hours=0)


def _telemetry(site: Site) -> tuple[Table, ...]:
    scores = (site.trace_scores.table, site.sliding_scores.table, site.job_start_scores.table)
    return site.cpu_windows.table, site.job_starts.table, *scores


def _of_nodes(site: Site) -> tuple[Table, Table]:
    """What is known of nodes as a whole: nobody's job is named there."""
    return site.node_metrics.table, site.node_scores.table


def _event_tables(site: Site) -> tuple[Table, ...]:
    counts = site.event_counts
    return counts.table, counts.reasons.table, site.event_background.table, site.event_scores.table


def _forget_place(table: Table, names: list[str]) -> None:
    """Counts hold no users; but an account may be called after its only member: it becomes one of the others."""
    named = pl.col("value").is_in(names)
    for month in table.scan().filter(named).select(pl.col("month").unique().sort()).collect().to_series():
        rows = table.scan().filter(pl.col("month") == month).collect()
        replaced = rows.with_columns(value=pl.when(named).then(pl.lit(OTHER_VALUES)).otherwise("value"))
        key = [name for name in rows.columns if name != "count"]
        together = replaced.group_by(key, maintain_order=True).agg(pl.col("count").sum())
        table.overwrite(together, where=f"month = '{month}'")
        table.vacuum(keep_hours=0)


def _forget_findings(table: Table, names: list[str]) -> None:
    """Remove such a name from the stored findings of the cluster, too."""
    pattern = rf"\b({'|'.join(re.escape(name) for name in names)})\b"
    for month in table.scan().filter(pl.col("why").str.contains(pattern)).select(pl.col("month").unique()).collect().to_series():
        rows = table.scan().filter(pl.col("month") == month).collect()
        table.overwrite(rows.with_columns(pl.col("why").str.replace_all(pattern, OTHER_VALUES)), where=f"month = '{month}'")
        table.vacuum(keep_hours=0)


def _forget_whose(table: Table, jobs: pl.DataFrame) -> None:
    """Windows of somebody's jobs stay, as the machine's; whose job it was is forgotten."""
    ids = pl.concat([jobs.select(pl.col(name).cast(pl.String).alias("job_id"), "submit_time", "end_time") for name in _JOB_IDS])
    spans = ids.drop_nulls("job_id").unique()
    months = table.scan().filter(pl.col("job_id").is_in(spans["job_id"].to_list())).select(pl.col("month").unique()).collect()
    for month in months["month"].sort():
        rows = table.scan().filter(pl.col("month") == month).collect().with_row_index("_row")
        met = rows.select("_row", "job_id", "window_start").join(spans, on="job_id")
        # Ids come again after years: only windows from the time of the job.
        ended = pl.col("end_time").is_not_null() & (pl.col("window_start") > pl.col("end_time"))
        theirs = met.filter(~ended, pl.col("window_start") >= pl.col("submit_time") - _BEFORE_SUBMIT)["_row"].unique()
        if not theirs.len():
            continue
        unknown = pl.col("_row").is_in(theirs.to_list())
        columns = pl.when(~unknown).then("job_id").alias("job_id"), pl.when(unknown).then(pl.lit(UNKNOWN)).otherwise("job_type")
        table.overwrite(rows.with_columns(*columns).drop("_row"), where=f"month = '{month}'")
        table.vacuum(keep_hours=0)


def _forget_regions(site: Site, jobs: pl.DataFrame, names: list[str]) -> None:
    """Regions of somebody's jobs are taken back; of the others, whose windows they were and who added them is forgotten."""
    ids = {str(number) for column in _JOB_IDS for number in jobs[column].drop_nulls().to_list()}
    table = site.trace_regions.table
    for region in site.trace_regions.list():
        if region.scope.job_id in ids:
            table.delete("region_id", region.id)
    _forget_whose(table, jobs)
    by_them = pl.col("added_by").is_in(names)
    for month in table.scan().filter(by_them).select(pl.col("month").unique()).collect()["month"].sort():
        rows = table.scan().filter(pl.col("month") == month).collect()
        nobody = pl.when(by_them).then(pl.lit("")).otherwise("added_by").alias("added_by")
        table.overwrite(rows.with_columns(nobody), where=f"month = '{month}'")
    table.vacuum(keep_hours=0)


def _forget_refused(table: Table, user: str) -> None:
    rows = table.scan().collect()
    kept = rows.filter(~names_user(user))
    if kept.height < rows.height:
        table.overwrite(kept)
        table.vacuum(keep_hours=0)
