"""Making a site and looking after its memory: acts of who manages it, each with a receipt.

folder + Viewer + NewSite -> make_site; + Restoration -> restore_site; Site + Viewer -> compact_tables, delete_old_jobs, back_up,
forget_user; folder of a site + Viewer -> repair_site.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from stormpetrel.answers.schemas.administration import (
    BackupReceipt,
    CompactReceipt,
    ForgetReceipt,
    NamedOutside,
    RepairReceipt,
    RestoreReceipt,
    RetainReceipt,
    SiteReceipt,
)
from stormpetrel.answers.schemas.registry import CompactedTable
from stormpetrel.answers.viewer import MANAGE
from stormpetrel.config import settings_from
from stormpetrel.lifecycle.families import problem_of
from stormpetrel.lifecycle.family import operator
from stormpetrel.sources.discover import discover
from stormpetrel.store.site import create_site
from stormpetrel.store.upkeep.backup import backup, outside_settings, restore
from stormpetrel.store.upkeep.repair import repair
from stormpetrel.store.upkeep.upkeep import compact, forget, retain

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.administration import NewSite, Restoration
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.site import Site


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
    """Make a folder a site with the settings that fit this machine: Slurm, HTCondor and Prometheus are looked for."""
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
