"""Jobs that a real Slurm cancels while they wait: whichever way they are read, they have never started."""

from __future__ import annotations

import polars as pl
import pytest

from stormpetrel.records.jobs import never_started
from stormpetrel.sources.slurm.json_jobs import SlurmJson
from tests.builders import read_all
from tests.e2e.test_live_slurm import LIVE, live_site, rows_of
from tests.parts import wait_until
from tests.parts.command_line import report_of, run_here

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]

TASKS = 5


@pytest.fixture(scope="module")
def cancelled(slurm, overdue):
    """Job ids: one that ran and three that waited (for a node, as an array, to begin later), all of them cancelled."""
    node = f"--nodelist={slurm.nodes[-1]}"
    ran = slurm.submit("--exclusive", node, "--time=10", "--wrap=sleep 300")
    wait_until(lambda: "RUNNING" in slurm.command("squeue", "-h", "-o", "%T", "-j", str(ran)), "the first runs", limit_s=60)
    waited = {
        "one": slurm.submit(node, "--time=10", "--wrap=true"),
        "array": slurm.submit(node, "--time=10", f"--array=0-{TASKS - 1}", "--wrap=true"),
        "later": slurm.submit(node, "--time=10", "--begin=now+1hour", "--wrap=true"),
    }
    slurm.wait_for_state(ran, "RUNNING")
    for name in ("one", "array"):  # before that, lists of a span of time do not have it
        wait_until(lambda job=waited[name]: eligible(slurm, job), f"accounting knows since when '{name}' could start", limit_s=60)
    slurm.command("scancel", *map(str, waited.values()))
    for job_id in waited.values():
        slurm.wait_for_state(job_id, "CANCELLED")
    slurm.command("scancel", str(ran))
    slurm.wait_for_state(ran, "CANCELLED")
    return {"ran": ran, **waited}


def eligible(slurm, job_id):
    told = slurm.command("sacct", "-n", "-P", "-X", "-j", str(job_id), "-o", "Eligible").split()
    return bool(told) and "Unknown" not in told


def verdicts(rows, cancelled):
    """Whether each of the cancelled jobs never started, by name; None where some of its rows did."""
    told = rows.filter(pl.col("job_id").is_in(list(cancelled.values())), pl.col("state") == "CANCELLED")
    by_id = dict(told.group_by("job_id").agg(never_started().unique()).iter_rows())
    return {name: by_id[number][0] for name, number in cancelled.items() if len(by_id.get(number, [])) == 1}


@pytest.mark.parametrize("through", ["sacct", "slurmrestd"])
def test_the_table_of_a_live_site_tells_who_never_started(slurm, cancelled, tmp_path, through):
    address = {"rest_url": slurm.rest_socket()} if through == "slurmrestd" else {}
    site = live_site(tmp_path / "site", **address)
    report_of(run_here(site, *LIVE, env=slurm.env))
    rows = rows_of(site)
    told = verdicts(rows, cancelled)
    assert told["ran"] is False
    assert told["one"] is True and told["array"] is True
    assert rows.filter(job_id=cancelled["array"])["start_time"].null_count() > 0


@pytest.mark.parametrize("words", [("sacct", "-a", "-D", "--json"), ("squeue", "-a", "--json")], ids=lambda words: words[0])
def test_json_of_slurm_tells_who_never_started(slurm, cancelled, tmp_path, words):
    (tmp_path / "jobs.json").write_text(slurm.command(*words))
    jobs, *_ = read_all(SlurmJson(tmp_path / "jobs.json"))
    told = verdicts(jobs, cancelled)
    assert told["ran"] is False
    assert {name: told[name] for name in ("one", "array")} == {"one": True, "array": True}
