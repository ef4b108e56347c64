"""A site of several people whose week is to be told."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from stormpetrel.records.jobs import job_frame
from stormpetrel.store.site import Site
from tests.answers.live_sites import put_jobs
from tests.builders import T0, make_site

NOW = T0 + timedelta(days=20)
GIB = 1 << 30


def ended(
    job_id: int, *, user: str = "ada", name: str = "fit", state: str = "COMPLETED", days_ago: float = 1.0, **values: Any
) -> dict[str, Any]:
    """A job of ten minutes on four cores."""
    end = NOW - timedelta(days=days_ago)
    return {
        "cluster": "cluster", "job_id": job_id, "job_id_raw": job_id, "restart": 0, "submit_time": end - timedelta(hours=1),
        "job_name": name, "user": user, "account": "lab", "start_time": end - timedelta(minutes=10), "end_time": end,
        "state": state, "elapsed_s": 600.0, "time_limit_s": 3600.0, "req_cpus": 4, "cpus": 4, "nodes": 1,
        "req_mem_bytes": 4 * GIB, "max_rss_bytes": GIB, "cpu_time_s": 1200.0, "exit_code": int(state == "FAILED"),
        "source": "sacct",
    } | values  # fmt: skip


def people_site(folder: Path, **sections: dict[str, Any]) -> Site:
    """Ada, with ten jobs of fit, four of them out of memory; six others with ten jobs each, one of them failed."""
    site = make_site(folder, **sections)
    rows = [
        ended(100 + k, state="OUT_OF_MEMORY" if k < 4 else "COMPLETED", max_rss_bytes=4 * GIB if k < 4 else GIB)
        for k in range(10)
    ]
    for number in range(6):
        rows += [ended(1000 + 10 * number + k, user=f"bo{number}", state="FAILED" if k == 0 else "COMPLETED") for k in range(10)]
    rows += [ended(5000 + k, user="ada", name="old", days_ago=100.0) for k in range(3)]
    put_jobs(site, job_frame(rows), as_of=NOW)
    site.now = lambda: NOW  # type: ignore[method-assign]
    return site
