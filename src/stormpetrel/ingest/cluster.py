"""What the cluster has and allows, asked of the scheduler where the site's own record of it is too old.

Site -> current_cluster -> CachedCluster; Site, user -> associations.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from stormpetrel.records.cluster import Association
from stormpetrel.sources.slurm.cluster import read_associations, read_cluster
from stormpetrel.store.cluster_cache import CachedCluster
from stormpetrel.store.site import Site

PATIENCE_S: Final = 1.0  # how long somebody who waits for an answer waits for the scheduler


def current_cluster(site: Site, *, patience_s: float = PATIENCE_S) -> CachedCluster | None:
    """Return what is known of the cluster, read again if it is too old; None where there is no Slurm, or it never answered."""
    return site.cluster.current(partial(read_cluster, site.settings.slurm, patience_s=patience_s))


def associations(site: Site, user: str | None, *, patience_s: float = PATIENCE_S) -> tuple[Association, ...]:
    """Return what a user may do; nothing where nobody can say."""
    slurm = site.settings.slurm
    return site.cluster.associations(
        user, lambda name, cluster: read_associations(slurm, name, cluster=cluster, patience_s=patience_s)
    )
