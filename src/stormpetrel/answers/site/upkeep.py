"""Looking after a site's memory: acts of who manages it, each with a receipt.

Site + Viewer -> compact_tables, delete_old_jobs, back_up, forget_user; folder of a site + Viewer -> repair_site.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from stormpetrel.answers.schemas.administration import BackupReceipt, CompactReceipt, ForgetReceipt, RepairReceipt, RetainReceipt
from stormpetrel.answers.schemas.registry import CompactedTable
from stormpetrel.answers.viewer import MANAGE

if TYPE_CHECKING:
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.site import Site


def compact_tables(site: Site, viewer: Viewer) -> CompactReceipt:
    """Merge small files of every table, and delete those unused for a week."""
    from stormpetrel.store.upkeep.upkeep import compact

    viewer.require(MANAGE)
    return CompactReceipt(tables=[CompactedTable(**asdict(table)) for table in compact(site)])


def delete_old_jobs(site: Site, viewer: Viewer, *, days: int | None = None) -> RetainReceipt:
    """Delete jobs and events older than so many days, or than store.keep_days; UsageError where nothing says how many."""
    from stormpetrel.store.upkeep.upkeep import retain

    viewer.require(MANAGE)
    return RetainReceipt(deleted=retain(site, site.settings.store.keep_days if days is None else days))


def back_up(site: Site, viewer: Viewer, target: Path) -> BackupReceipt:
    """Write the whole site, with its key and its users' names, to one new file."""
    from stormpetrel.store.upkeep.backup import backup

    viewer.require(MANAGE)
    return BackupReceipt(file=str(target), bytes=backup(site, target))


def forget_user(site: Site, viewer: Viewer, user: str, *, past_only: bool = False) -> ForgetReceipt:
    """Delete everything about a user for good, and take in nothing more unless `past_only`."""
    from stormpetrel.store.upkeep.upkeep import forget

    viewer.require(MANAGE)
    return ForgetReceipt(deleted=forget(site, user, past_only=past_only), future="kept" if past_only else "refused")


def repair_site(folder: Path, viewer: Viewer) -> RepairReceipt:
    """Make state and tables of a site fit again, also of one that does not open; it stands in the audit trail."""
    from stormpetrel.lifecycle.families import problem_of
    from stormpetrel.lifecycle.family import operator
    from stormpetrel.store.upkeep.repair import repair

    viewer.require(MANAGE)
    return RepairReceipt(**asdict(repair(folder, problem_of=problem_of, user=viewer.user or operator())))
