"""Upkeep of a site: compaction, retention, and forgetting a user."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import polars as pl

from stormpetrel.errors import UsageError
from stormpetrel.records.jobs import KEY
from stormpetrel.store.known import last_sightings
from stormpetrel.store.scrub import scrub
from stormpetrel.store.site import Site
from stormpetrel.store.tables import Table


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
        for table in (site.jobs.table, site.quarantine.table, site.predictions.table):
            before = table.file_count()
            table.compact()
            done.append(Compacted(table.spec.name, before, table.file_count(), table.vacuum()))
    return done


_MANY_FILES: Final = 60
_OLD_HOURS: Final = 2
_LIVE_FILE_BYTES: Final = 2 * 1024 * 1024  # a job that changes rewrites the file it is in: live tables keep to small ones


def tidy(site: Site) -> int:
    """Keep the tables of a watched site in few files: merge what the last looks have left behind; how many files are gone.

    Old versions of a file are deleted after two hours: a loop that commits every few seconds would fill the disk in a week.
    """
    gone = 0
    for table in (site.jobs.table, site.jobs.sightings, site.predictions.table):
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


def retain(site: Site, days: int) -> int:
    """Delete the jobs submitted more than `days` days ago, from the disk as well; how many."""
    if days < 1:
        raise UsageError("Nothing says how long jobs are to be kept.", hint="Add --days N or set store.keep_days in site.toml.")
    limit = site.now() - timedelta(days=days)
    kept, months = pl.col("submit_time") >= limit, pl.col("month") <= f"{limit:%Y-%m}"
    with site.state.writer_lock():
        _keep_where(site.predictions.table, kept, months)
        return _keep_where(site.jobs.table, kept, months)


def forget(site: Site, user: str, *, past_only: bool = False) -> int:
    """Delete everything about a user: jobs, refused records, reports; and take in nothing more (unless `past_only`).

    No file of the tables and no entry of their logs holds the name afterwards; backups made before still do.
    """
    if not user.strip():
        raise UsageError("No user was named.", hint="Name one: stormpetrel store forget USER.")
    privacy = site.privacy
    if not past_only:
        site.state.forget(privacy.digest(user))
    with site.state.writer_lock():
        # Under both forms of the name: the setting may have changed since the rows were taken in.
        theirs = pl.col("user").is_in([user, privacy.pseudonym(user)]).fill_null(False)
        _forget_predictions(site, site.jobs.table.scan().filter(theirs).select(KEY).collect())
        gone = _keep_where(site.jobs.table, ~theirs, pl.lit(True))
        _forget_refused(site.quarantine.table, user)
    scrub(site.state, user, privacy.pseudonym(user))
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


def _forget_predictions(site: Site, keys: pl.DataFrame) -> None:
    table = site.predictions.table
    for month in keys["submit_time"].dt.strftime("%Y-%m").unique().sort():
        rows = table.scan().filter(pl.col("month") == month).collect()
        kept = rows.join(keys, on=list(KEY), how="anti", nulls_equal=True)
        if kept.height < rows.height:
            table.overwrite(kept, where=f"month = '{month}'")
            table.vacuum(keep_hours=0)


def _forget_refused(table: Table, user: str) -> None:
    word = rf"(^|\W){re.escape(user)}(\W|$)"
    names_user = pl.any_horizontal([pl.col(name).fill_null("").str.contains(word) for name in ("raw", "reason", "source")])
    rows = table.scan().collect()
    kept = rows.filter(~names_user)
    if kept.height < rows.height:
        table.overwrite(kept)
        table.vacuum(keep_hours=0)
