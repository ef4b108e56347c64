"""Making a site and looking after its memory: acts of who manages it, each with a receipt.

folder + Viewer + NewSite -> make_site; + Restoration -> restore_site; Site + Viewer -> compact_tables, delete_old_jobs, back_up,
forget_user; folder of a site + Viewer -> repair_site.

A site's tables in SQL: for who manages the site, since a query sees everything that the tables hold.

Site + Viewer + SqlQuestion -> query_tables -> SqlAnswer; list_tables -> the same, of names and columns. Nothing can be changed.

Tokens of a site: made, listed and revoked by those who manage it; each act stands in the audit trail.

Site + Viewer + NewToken -> make_token -> NewTokenReceipt; tokens -> Tokens; revoke_token -> RevokedToken.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import polars as pl

from stormpetrel.answers.schemas.administration import (
    BackupReceipt,
    CompactReceipt,
    ForgetReceipt,
    NamedOutside,
    NewToken,
    NewTokenReceipt,
    RepairReceipt,
    RestoreReceipt,
    RetainReceipt,
    RevokedToken,
    SiteReceipt,
    SqlAnswer,
    TokenLine,
    Tokens,
)
from stormpetrel.answers.schemas.registry import CompactedTable
from stormpetrel.answers.viewer import MANAGE, SCOPES
from stormpetrel.config import settings_from
from stormpetrel.errors import UsageError
from stormpetrel.lifecycle.families import problem_of
from stormpetrel.lifecycle.family import operator
from stormpetrel.sources.discover import discover
from stormpetrel.store.site import create_site
from stormpetrel.store.sql_tables import sql_tables
from stormpetrel.store.upkeep.backup import backup, outside_settings, restore
from stormpetrel.store.upkeep.repair import repair
from stormpetrel.store.upkeep.upkeep import compact, forget, retain

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.administration import NewSite, Restoration, SqlQuestion
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.site import Site

_QUESTION: Final = re.compile(r"\s*(\(|select\b|with\b|from\b|show\b|explain\b|values\b)", re.IGNORECASE)
_READERS: Final = re.compile(r"\b(read|scan)_\w+", re.IGNORECASE)
# Columns of the site's tables that SQL takes for something else unless they stand in quotes; a test holds this to be all.
_UNQUOTED: Final = re.compile(r"\b(user)\b(?!\s*\()", re.IGNORECASE)
_QUOTED: Final = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`""")


def compact_tables(site: Site, viewer: Viewer) -> CompactReceipt:
    """Merge small files of every table, and delete those unused for a week."""
    viewer.require(MANAGE)
    return CompactReceipt(tables=[CompactedTable(**asdict(table)) for table in compact(site)])


def delete_old_jobs(site: Site, viewer: Viewer, *, days: int | None = None) -> RetainReceipt:
    """Delete jobs and events older than so many days, or than store.keep_days; UsageError where nothing says how many."""
    viewer.require(MANAGE)
    return RetainReceipt(deleted=retain(site, site.settings.store.keep_days if days is None else days))


def back_up(site: Site, viewer: Viewer, target: Path) -> BackupReceipt:
    """Write the whole site, with its key and its users' names, to one new file."""
    viewer.require(MANAGE)
    return BackupReceipt(file=str(target), bytes=backup(site, target))


def forget_user(site: Site, viewer: Viewer, user: str, *, past_only: bool = False) -> ForgetReceipt:
    """Delete everything about a user for good, and take in nothing more unless `past_only`."""
    viewer.require(MANAGE)
    return ForgetReceipt(deleted=forget(site, user, past_only=past_only), future="kept" if past_only else "refused")


def repair_site(folder: Path, viewer: Viewer) -> RepairReceipt:
    """Make state and tables of a site fit again, also of one that does not open; it stands in the audit trail."""
    viewer.require(MANAGE)
    return RepairReceipt(**asdict(repair(folder, problem_of=problem_of, user=viewer.user or operator())))


def make_site(folder: Path, viewer: Viewer, act: NewSite) -> SiteReceipt:
    """Make a folder a site with the settings that fit this machine: Slurm, HTCondor, LSF and Prometheus are looked for."""
    viewer.require(MANAGE)
    machine = discover()
    values: dict[str, object] = {
        "site": {"name": folder.name, "time_zone": act.time_zone or machine.time_zone, "cluster": act.cluster or machine.cluster},
        "store": {"state_dir": str(Path(act.state_dir).expanduser().resolve()) if act.state_dir else ""},
        # sacct shows more than slurmrestd: it is used where both are there.
        "slurm": {"sacct": machine.sacct or "sacct", "rest_url": "" if machine.sacct else machine.rest_url},
        "prometheus": {"url": machine.prometheus_url},
        "htcondor": {"event_log": machine.event_log},
    }
    settings = settings_from(values, where="the command line")
    create_site(folder, settings).close()
    return SiteReceipt(
        site=str(folder),
        time_zone=settings.site.time_zone,
        cluster=settings.site.cluster,
        found=list(machine.lines),
        machine_time_zone=machine.time_zone,
        has_slurm=bool(machine.sacct or machine.rest_url),
        event_log=machine.event_log,
    )


def restore_site(folder: Path, viewer: Viewer, backup: Path, act: Restoration) -> RestoreReceipt:
    """Make a new site out of a backup; what its settings name is told, and neither run, opened nor asked."""
    viewer.require(MANAGE)
    with restore(backup, folder, state_url=act.state_url, state_dir=act.state_dir) as site:
        return RestoreReceipt(
            site=str(folder),
            jobs=site.jobs.read_jobs().select("job_id").collect().height,
            outside=[NamedOutside(**asdict(entry)) for entry in outside_settings(site.settings)],
        )


def query_tables(site: Site, viewer: Viewer, question: SqlQuestion) -> SqlAnswer:
    """Return the rows of a query; UsageError for anything but a question to the site's tables."""
    viewer.require(MANAGE)
    if not _QUESTION.match(question.query):
        raise UsageError("Only SELECT and WITH queries are allowed.", hint="Nothing was changed.")
    refuse_outside(question.query, files=question.files)
    most = question.limit
    rows = _rows(question.query, sql_tables(site), None if most is None else most + 1)
    shown = rows if most is None else rows.head(most)
    return SqlAnswer(columns=rows.columns, rows=shown.to_dicts(), is_cut=rows.height > shown.height)


def list_tables(site: Site, viewer: Viewer) -> SqlAnswer:
    """Return the tables that can be asked, each with its columns."""
    viewer.require(MANAGE)
    rows = [{"table": name, "columns": ", ".join(frame.collect_schema().names())} for name, frame in sql_tables(site).items()]
    return SqlAnswer(columns=["table", "columns"], rows=rows)


def refuse_outside(query: str, *, files: bool) -> None:
    """UsageError for a query that would read files without leave, or reach another machine.

    Polars has functions that read files and addresses (`read_csv`, `read_parquet`, …) as soon as the query is parsed. There
    is no way to switch them off, and guessing where a string or a comment ends is how such checks are got around: their names
    may stand nowhere in the query.
    """
    reader = _READERS.search(query)
    if reader is None:
        return
    if not files:
        raise UsageError(
            f"The query names {reader[0]}, which reads files, and only the site's tables are asked.",
            hint="Add --files to let it read files with your rights.",
        )
    if "://" in query:
        raise UsageError("A query reads files of this machine only, no addresses.", hint="Fetch the file first.")


def _rows(query: str, tables: dict[str, pl.LazyFrame], most: int | None) -> pl.DataFrame:
    """The rows of a query, at most so many."""
    try:
        rows = pl.SQLContext(tables, eager=False).execute(query)
        return (rows.head(most) if most else rows).collect()
    except (pl.exceptions.PolarsError, ValueError, TypeError, OSError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if "unsupported function" in first and (match := _UNQUOTED.search(_QUOTED.sub("", query))) is not None:
            raise UsageError(
                f"That query does not work: {match[0]} is a word of SQL itself, and wants quotes where it is a column.",
                hint="""Write "user", and the whole query in single quotes: sql 'select "user", state from jobs'.""",
            ) from error
        raise UsageError(f"That query does not work: {first}.", hint=f"Tables: {', '.join(tables)}.") from error


def make_token(site: Site, viewer: Viewer, act: NewToken) -> NewTokenReceipt:
    """Make a token and return it, once: only its digest is kept."""
    viewer.require(MANAGE)
    scopes = _known_scopes(act.scopes)
    if MANAGE in scopes and act.user not in site.settings.serve.admins:
        raise UsageError(
            f"{act.user!r} is no administrator, so the scope 'manage' would do nothing.",
            hint="Name the user in serve.admins in site.toml first.",
        )
    token = site.tokens.add(act.name, user=site.user_in_tables(act.user), scopes=scopes, days=act.days)
    site.audit.record(viewer.signature(site), "token added", {"token": act.name, "scopes": scopes, "days": act.days})
    return NewTokenReceipt(name=act.name, user=act.user, scopes=scopes, days=act.days, token=token)


def tokens(site: Site, viewer: Viewer) -> Tokens:
    """Return every token, also those past their time, by name."""
    viewer.require(MANAGE)
    return Tokens(
        tokens=[
            TokenLine(
                name=token.name,
                user=token.user,
                scopes=sorted(token.scopes),
                created=token.created,
                expires=token.expires,
                expired=site.tokens.is_over(token),
            )
            for token in site.tokens.all()
        ]
    )


def revoke_token(site: Site, viewer: Viewer, name: str, *, user: str | None = None) -> RevokedToken:
    """Make a token worthless; NotThereError where there is none of that name, UsageError where several users have one."""
    viewer.require(MANAGE)
    site.tokens.revoke(name, user=None if user is None else site.user_in_tables(user))
    site.audit.record(viewer.signature(site), "token revoked", {"token": name})
    return RevokedToken(revoked=name)


def _known_scopes(scopes: list[str]) -> list[str]:
    for scope in scopes:
        if scope not in SCOPES:
            raise UsageError(f"Unknown scope {scope!r}.", hint=f"Known: {', '.join(SCOPES)}.")
    return sorted(set(scopes))
