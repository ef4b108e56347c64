"""Which tests run in which worker, and in which order: files in one piece, the longest first, so that no worker is left alone.

The seconds are those of `pytest --durations=0` on two quiet cores, by file; tests/README.md says how they are measured.
"""

from __future__ import annotations

from typing import Final

import pytest
from xdist.scheduler import LoadScopeScheduling

SECONDS: Final = {
    "tests/e2e/test_live_slurm.py": 90,
    "tests/faces/dashboard/test_other_pages.py": 80,
    "tests/e2e/test_journey.py": 80,
    "tests/e2e/test_demo.py": 80,
    "tests/faces/dashboard/test_nodes_page.py": 60,
    "tests/e2e/test_postgres_state.py": 60,
    "tests/faces/dashboard/test_jobs_page.py": 60,
    "tests/faces/test_cli.py": 40,
    "tests/e2e/test_watch_slurm.py": 40,
    "tests/faces/dashboard/test_grid_page.py": 40,
    "tests/faces/notebook/test_example.py": 30,
    "tests/e2e/test_open_jobs_slurm.py": 30,
    "tests/faces/dashboard/test_workload_page.py": 30,
    "tests/watch/test_running.py": 30,
    "tests/rehearse/test_campaign.py": 30,
    "tests/ingest/test_restart.py": 20,
    "tests/faces/test_synth_cli.py": 20,
    "tests/e2e/test_watch_health.py": 20,
    "tests/faces/dashboard/test_console.py": 20,
    "tests/faces/dashboard/test_capacity_page.py": 20,
    "tests/faces/test_jobs_cli.py": 20,
    "tests/e2e/test_prometheus.py": 20,
    "tests/test_model_contract.py": 20,
    "tests/faces/api/test_schema.py": 20,
}


# Files that share something dear run one after the other in one worker: a real Slurm that is started once.
_SLURM: Final = ("live_slurm", "watch_slurm", "open_jobs_slurm", "never_started_slurm", "watch_health")
TOGETHER: Final = {f"tests/e2e/test_{name}.py": "one Slurm" for name in _SLURM}


def file_of(nodeid: str) -> str:
    """Return the file that a test is in."""
    return nodeid.split("::", 1)[0]


def longest_first(items: list[pytest.Item]) -> None:
    """Order the tests by the seconds of their files, the others as they were."""
    items.sort(key=lambda item: -SECONDS.get(file_of(item.nodeid), 0))


class WholeFiles(LoadScopeScheduling):
    """Gives a worker whole files, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        file = file_of(nodeid)
        return TOGETHER.get(file, file)
