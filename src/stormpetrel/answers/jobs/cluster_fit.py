"""Whether the cluster can run a script at all, before anything is said about its risk.

Site + JobRequest + user -> fit_to_site -> ClusterFit; None where the site has no Slurm, or the script is for something else.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from stormpetrel.answers.schemas.predictions import ClusterFit, ClusterProblem
from stormpetrel.errors import UsageError

if TYPE_CHECKING:
    from stormpetrel.jobs.fit_to_cluster import Misfit
    from stormpetrel.sources.job_script import JobRequest
    from stormpetrel.store.site import Site


def fit_to_site(site: Site, request: JobRequest, *, user: str | None) -> ClusterFit | None:
    """Compare a script with the partitions, nodes and QOS of the site's cluster; a hung scheduler costs a second at most."""
    from stormpetrel.ingest.cluster import associations, current_cluster
    from stormpetrel.jobs.fit_to_cluster import misfits
    from stormpetrel.sources.job_script_resources import resource_request

    if request.kind != "slurm":
        return None
    known = current_cluster(site)
    if known is None:
        problem = site.cluster.problem
        if problem is None:
            return None
        return ClusterFit(can_run=None, problems=[], read_at=None, age_s=None, note=f"Not compared with the cluster: {problem}")
    found = misfits(resource_request(request), known.cluster, associations(site, user))
    age_s = round(known.age_s(datetime.now(UTC)), 1)
    note = None if known.problem is None else f"The cluster is as it was {_ago(age_s)}: {known.problem}"
    can_run = not any(misfit.never for misfit in found)
    problems = [_problem(request, misfit) for misfit in found]
    return ClusterFit(can_run=can_run, problems=problems, read_at=known.read_at, age_s=age_s, note=note)


def _problem(request: JobRequest, misfit: Misfit) -> ClusterProblem:
    return ClusterProblem(
        rule=misfit.rule,
        never_runs=misfit.never,
        words=misfit.words,
        change=misfit.change,
        column=misfit.column,
        proposed=misfit.proposed,
        line=_line(request, misfit),
    )


def _line(request: JobRequest, misfit: Misfit) -> str | None:
    """How the change is written in the script."""
    from stormpetrel.sources.job_script import change_line

    if misfit.column is None or misfit.proposed is None:
        return None
    try:
        return change_line(request, misfit.column, misfit.proposed)
    except UsageError:
        return None


def _ago(seconds: float) -> str:
    from stormpetrel.jobs.advice_words import time_words

    return f"{time_words(seconds)} ago"
