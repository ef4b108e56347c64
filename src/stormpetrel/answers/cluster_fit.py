"""Whether the cluster can run a script at all, before anything is said about its risk.

Site + JobRequest + user -> fit_to_site -> ClusterFit; None where the site has no Slurm, or the script is for something else.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from stormpetrel.errors import UsageError

if TYPE_CHECKING:
    from stormpetrel.jobs.fit_to_cluster import Misfit
    from stormpetrel.sources.job_script import JobRequest
    from stormpetrel.store.site import Site


@dataclass(frozen=True, slots=True)
class ClusterFit:
    """What of a script does not fit the cluster, how each change is written, and how old what is known of the cluster is.

    `read_at` is None where the cluster could never be asked; `note` then says why.
    """

    misfits: tuple[Misfit, ...]
    lines: tuple[str | None, ...]
    read_at: datetime | None
    age_s: float | None = None
    note: str | None = None

    @property
    def can_run(self) -> bool | None:
        """False where it can never run as it stands; None where nobody could say."""
        return None if self.read_at is None else not any(one.never for one in self.misfits)

    def as_json(self) -> dict[str, Any]:
        """For other programs."""
        problems = [
            {
                "rule": one.rule,
                "never_runs": one.never,
                "words": one.words,
                "change": one.change,
                "column": one.column,
                "proposed": one.proposed,
                "line": line,
            }
            for one, line in zip(self.misfits, self.lines, strict=True)
        ]
        read_at = None if self.read_at is None else self.read_at.isoformat()
        return {"can_run": self.can_run, "problems": problems, "read_at": read_at, "age_s": self.age_s, "note": self.note}


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
        return None if problem is None else ClusterFit((), (), None, note=f"Not compared with the cluster: {problem}")
    found = misfits(resource_request(request), known.cluster, associations(site, user))
    age_s = round(known.age_s(datetime.now(UTC)), 1)
    note = None if known.problem is None else f"The cluster is as it was {_ago(age_s)}: {known.problem}"
    return ClusterFit(found, tuple(_line(request, one) for one in found), known.read_at, age_s, note)


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
