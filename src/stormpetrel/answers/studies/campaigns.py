"""Recording labelled campaigns on this machine, or simulating them: acts that need a folder, and no site.

folder + Viewer + CampaignRun -> run_campaigns -> CampaignReceipt; + CampaignSimulation -> simulate_campaigns -> the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from stormpetrel.answers.schemas.campaigns import CampaignReceipt, WrittenCampaign
from stormpetrel.answers.viewer import MANAGE
from stormpetrel.engine import Progress, no_progress

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.campaigns import CampaignRun, CampaignSimulation
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.rehearse.campaign_files import Campaign


def run_campaigns(folder: Path, viewer: Viewer, act: CampaignRun, *, progress: Progress = no_progress) -> CampaignReceipt:
    """Run jobs of known types here, record what the CPUs do, and write it down with labels; interrupted, nothing is written."""
    viewer.require(MANAGE)
    from stormpetrel.records.traces import Split
    from stormpetrel.rehearse.campaign import CampaignRequest, cpus_of, run_campaign, run_set
    from stormpetrel.rehearse.plan import kinds_of

    request = CampaignRequest(
        folder=folder,
        split=Split(act.split),
        name=act.name,
        kinds=tuple(kinds_of(act.types)),
        cpus=cpus_of(act.cpus) if act.cpus else (),
        seconds_per_job=act.seconds_per_job,
        repeat=act.repeat,
        seed=act.seed,
        prometheus_url=act.prometheus,
        node=act.node,
        scratch=act.scratch,
    )
    return _receipt(run_set(request, progress) if act.whole_set else [run_campaign(request, progress)])


def simulate_campaigns(
    folder: Path, viewer: Viewer, act: CampaignSimulation, *, progress: Progress = no_progress
) -> CampaignReceipt:
    """Write simulated campaigns in the layout of recorded ones."""
    viewer.require(MANAGE)
    from stormpetrel.rehearse.simulated_campaigns import SimulationRequest, write_simulated

    request = SimulationRequest(folder, act.train, act.validation, act.test, act.nodes, act.threads, act.minutes, act.seed)
    total = max(1, act.train + act.validation + act.test)
    written: list[Campaign] = []
    for campaign in write_simulated(request):
        written.append(campaign)
        progress(len(written) / total, campaign.path.name)
    return _receipt(written)


def _receipt(campaigns: Iterable[Campaign]) -> CampaignReceipt:
    return CampaignReceipt(campaigns=[WrittenCampaign(path=str(campaign.path), facts=campaign.facts) for campaign in campaigns])
