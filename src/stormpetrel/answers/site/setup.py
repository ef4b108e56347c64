"""Making a site: acts that begin with a folder, since there is no site yet.

folder + Viewer + NewSite -> make_site -> SiteReceipt; + Restoration -> restore_site -> RestoreReceipt.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from stormpetrel.answers.schemas.administration import NamedOutside, RestoreReceipt, SiteReceipt
from stormpetrel.answers.viewer import MANAGE

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.administration import NewSite, Restoration
    from stormpetrel.answers.viewer import Viewer


def make_site(folder: Path, viewer: Viewer, act: NewSite) -> SiteReceipt:
    """Make a folder a site with the settings that fit this machine: Slurm, HTCondor and Prometheus are looked for."""
    from stormpetrel.config import settings_from
    from stormpetrel.sources.discover import discover
    from stormpetrel.store.site import create_site

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
    from stormpetrel.store.outside_settings import outside_settings
    from stormpetrel.store.upkeep.backup import restore

    viewer.require(MANAGE)
    with restore(backup, folder, state_url=act.state_url, state_dir=act.state_dir) as site:
        return RestoreReceipt(
            site=str(folder),
            jobs=site.jobs.read_jobs().select("job_id").collect().height,
            outside=[NamedOutside(**asdict(entry)) for entry in outside_settings(site.settings)],
        )
