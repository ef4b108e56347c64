"""Which tests run in which worker, and in which order: files in one piece, the longest first, so that no worker is left alone.

The seconds are those of `pytest --durations=0` on two quiet cores, by file; tests/README.md says how they are measured.
"""

from __future__ import annotations

from typing import Final

import pytest
from xdist.scheduler import LoadScopeScheduling

SECONDS: Final = {
    "tests/e2e/test_journey.py": 61,
    "tests/faces/dashboard/test_other_pages.py": 52,
    "tests/e2e/test_live_slurm.py": 44,
    "tests/engine/test_on_ray.py": 42,
    "tests/faces/dashboard/test_jobs_page.py": 38,
    "tests/faces/dashboard/test_nodes_page.py": 38,
    "tests/e2e/test_open_jobs_slurm.py": 38,
    "tests/rehearse/test_campaign.py": 35,
    "tests/e2e/test_demo.py": 33,
    "tests/e2e/test_watch_slurm.py": 32,
    "tests/e2e/test_postgres_state.py": 24,
    "tests/e2e/test_watch_health.py": 24,
    "tests/faces/dashboard/test_cluster_page.py": 22,
    "tests/faces/api/test_schema.py": 21,
    "tests/faces/cli/test_main.py": 20,
    "tests/traces/networks/test_training.py": 20,
    "tests/e2e/test_actions_slurm.py": 18,
    "tests/faces/dashboard/test_generator_page.py": 17,
    "tests/test_model_contract.py": 15,
    "tests/faces/notebook/test_example.py": 14,
    "tests/watch/test_running.py": 14,
    "tests/faces/cli/jobs/test_forecasts.py": 13,
    "tests/faces/dashboard/test_console.py": 13,
    "tests/watch/test_loop.py": 12,
    "tests/watch/test_slurm_poll.py": 12,
    "tests/e2e/test_scheduler_says.py": 12,
    "tests/simulate/test_feed.py": 12,
    "tests/answers/test_live_site.py": 12,
    "tests/watch/test_training.py": 11,
    "tests/jobs/test_evaluation.py": 11,
    "tests/answers/jobs/test_details.py": 11,
    "tests/simulate/test_cluster.py": 11,
    "tests/e2e/test_exporter_slurm.py": 10,
    "tests/lifecycle/test_retraining.py": 10,
    "tests/simulate/test_submitting.py": 10,
    "tests/rehearse/test_workload_usefulness.py": 10,
    "tests/e2e/test_prometheus.py": 10,
    "tests/lifecycle/test_recorded_models.py": 9,
    "tests/sources/test_hostile_files.py": 9,
    "tests/ingest/test_restart.py": 9,
    "tests/store/upkeep/test_repair.py": 8,
    "tests/faces/cli/synth/test_fit_and_sample.py": 8,
    "tests/traces/networks/test_ensemble.py": 8,
    "tests/faces/web/test_connections.py": 8,
    "tests/jobs/test_stream.py": 8,
    "tests/faces/cli/jobs/test_studies.py": 8,
    "tests/faces/test_report.py": 8,
}


# Files that share something dear run one after the other in one worker: a real Slurm that is started once. The live one comes
# last: it needs a job beyond its limit, which Slurm finds out every 30 s, and which was submitted when the first one began.
_SLURM: Final = tuple(
    f"tests/e2e/test_{name}.py"
    for name in ("watch_slurm", "open_jobs_slurm", "actions_slurm", "never_started_slurm", "watch_health", "live_slurm")
)
TOGETHER: Final = dict.fromkeys(_SLURM, "one Slurm")


def file_of(nodeid: str) -> str:
    """Return the file that a test is in."""
    return nodeid.split("::", 1)[0]


def longest_first(items: list[pytest.Item]) -> None:
    """Order the tests by the seconds of their files, the others as they were; files that go together by their sum."""
    together = sum(SECONDS.get(file, 0) for file in _SLURM)

    def place(item: pytest.Item) -> tuple[float, int]:
        file = file_of(item.nodeid)
        return (-together, _SLURM.index(file)) if file in TOGETHER else (-SECONDS.get(file, 0), 0)

    items.sort(key=place)


class WholeFiles(LoadScopeScheduling):
    """Gives a worker whole files, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        file = file_of(nodeid)
        return TOGETHER.get(file, file)
