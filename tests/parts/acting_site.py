"""A site with one running job of ada's, policies, and a Slurm that agrees to everything.

`with acting_site(folder, policies=[…]) as (site, slurm): …`; `flag(site)` feeds a prediction that the job will fail.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.records.jobs import JobRef
from stormpetrel.records.predictions import PREDICTION_SCHEMA
from stormpetrel.sources.slurm.sacct_text import SacctText
from stormpetrel.store.site import Site
from stormpetrel.watch.actions.acting import Acting
from stormpetrel.watch.logs import Log
from tests.builders import make_site
from tests.parts.acting_slurm import ActingSlurm

CANCEL = {"name": "cancel", "action": "cancel", "tau": 0.9, "users": ["*"], "per_hour": 2}
_FIELDS = (
    "JobID JobIDRaw Cluster JobName User Account Partition Submit Start End State ExitCode ReqCPUS AllocCPUS NodeList".split()
)


@contextmanager
def acting_site(
    folder: Path, *, policies: Sequence[dict[str, Any]] = (CANCEL,), cancel_by: str = "owners", **sections: dict[str, Any]
) -> Iterator[tuple[Site, ActingSlurm]]:
    """The site, and the Slurm that it acts on."""
    slurm = ActingSlurm(folder / "slurm")
    actions = {"policies": list(policies), "cancel_by": cancel_by}
    settings = {"slurm": slurm.settings, "actions": actions, "serve": {"login": "token", "admins": ["root"]}, **sections}
    with make_site(folder / "site", **settings) as site:
        submitted = site.now().replace(microsecond=0) - timedelta(minutes=3)
        tell(site, "RUNNING", submitted)
        slurm.lists("RUNNING", submitted)
        yield site, slurm


def tell(site: Site, state: str, submitted: datetime, *, hours: float = 1.0) -> None:
    """Take in a record of the job: running, or ended after so many hours on four CPUs."""
    start = submitted + timedelta(seconds=10)
    end = "Unknown" if state == "RUNNING" else f"{start + timedelta(hours=hours):%Y-%m-%dT%H:%M:%S}"
    times = [f"{moment:%Y-%m-%dT%H:%M:%S}" for moment in (submitted, start)]
    row = ["7", "7", "petrel", "fit", "ada", "science", "debug", *times, end, state, "0:0", "4", "4", "n017"]
    path = site.folder.parent / "record.txt"
    path.write_text("|".join(_FIELDS) + "\n" + "|".join(row) + "\n")
    ingest_jobs(site, SacctText(path))


def job_ref(site: Site) -> JobRef:
    """The reference of the job."""
    return JobRef.of(site.jobs.read_jobs().collect().row(0, named=True))


def flag(site: Site, *, moment: str = "2min", risk: float = 0.95) -> None:
    """Feed what a model says of the job now."""
    feed_prediction(site, job_ref(site), moment, risk)


def feed_prediction(site: Site, ref: JobRef, moment: str, risk: float) -> None:
    """Put a prediction for a job into the table, as the watch would have at this moment."""
    now = site.now()
    row = {name: getattr(ref, name) for name in ("cluster", "job_id", "array_task", "submit_time", "restart")}
    values = {
        "moment": moment, "moment_time": now, "as_of": now, "predicted_at": now, "late": False, "model_version": 1, "risk": risk,
        "threshold": 0.5, "flagged": risk >= 0.5, "known": True, "likeliest": "FAILED", "likeliest_probability": risk,
        "base": 0.0, "reason_features": [], "reason_words": [], "reason_contributions": [],
    }  # fmt: skip
    whole = {name: [(row | values).get(name)] for name in PREDICTION_SCHEMA}
    site.predictions.append(pl.DataFrame(whole, schema=PREDICTION_SCHEMA), horizon=now)


def turn(site: Site) -> None:
    """One turn of the thread of the watch that acts."""
    Acting(site, Log(io.StringIO()), every_s=1.0).step()
