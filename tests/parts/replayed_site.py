"""A site made of one sacct file: two weeks of a small simulated cluster with a sick node at the end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.simulate.cluster import ClusterSpec, Fault, simulate
from stormpetrel.simulate.writing import write_sacct
from stormpetrel.sources.slurm.sacct_text import SacctText
from stormpetrel.store.site import Site
from tests.builders import make_site

START = datetime(2024, 1, 1, tzinfo=UTC)
SICK_NODE = "n007"
SICK_FROM = START + timedelta(days=14)


def replayed_site(folder: Path, *, start: datetime = START, **sections: dict[str, object]) -> Site:
    """Write the file, and a site that has read it; its zone is UTC unless told otherwise. The node is sick from day 14 on."""
    fault = Fault(6, 14 * 86_400, 17 * 86_400)
    spec = ClusterSpec(nodes=16, days=17, load=0.6, seed=2, start=start, faults=(fault,))
    path = folder.with_suffix(".txt")
    write_sacct(simulate(spec), path)
    site = make_site(folder, **{"site": {"time_zone": "UTC"}} | sections)
    ingest_jobs(site, SacctText(path))
    return site
