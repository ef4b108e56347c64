"""Needs, waits and prescriptions on a site: what `check`, `why` and the API say of them."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.answers.jobs.check import check_request, check_script
from stormpetrel.answers.jobs.outlook import contradicts_advice
from stormpetrel.answers.jobs.why import explain_job
from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.schemas.predictions import ScriptRequest
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.jobs.advice.advice import Advice
from stormpetrel.jobs.advice.outlook import NeedEstimate
from stormpetrel.records.cluster import Cluster, Partition
from stormpetrel.records.jobs import job_frame
from stormpetrel.sources.scripts.job_script import parse_job_script
from stormpetrel.store.cluster_cache import CachedCluster
from tests.builders import make_site
from tests.jobs.logs import one_thread
from tests.lifecycle.sites import day, few_trees, put_jobs, train

GIB = 1 << 30
UNTIL = 30
NOW = day(UNTIL) + timedelta(hours=1)
SCRIPT = "#!/bin/bash\n#SBATCH --job-name=align\n#SBATCH --mem=64G\n#SBATCH --cpus-per-task=4\n#SBATCH --time=08:00:00\nrun\n"


def jobs() -> pl.DataFrame:
    """Months of ada's `align`, which asks for 64 GB and uses 5, bob's `fit`, which often fails, and what waits now."""
    rng = np.random.default_rng(2)
    rows: list[dict[str, object]] = []
    for k in range(360):
        ada = k % 2 == 0
        submit = day(UNTIL * k / 360)
        start = submit + timedelta(seconds=float(rng.uniform(60, 120) * (10 if ada else 1)))
        run_s = float(rng.uniform(3000, 4000) if ada else rng.uniform(100, 200))
        fails = not ada and rng.random() < 0.5
        rows.append(
            {
                "cluster": "cluster", "job_id": k + 1, "submit_time": submit, "restart": 0, "user": "ada" if ada else "bob",
                "job_name": "align" if ada else "fit", "start_time": start, "end_time": start + timedelta(seconds=run_s),
                "state": "FAILED" if fails else "COMPLETED", "exit_code": int(fails), "elapsed_s": run_s, "partition": "batch",
                "req_cpus": 4, "cpus": 4, "req_nodes": 1, "nodes": 1, "time_limit_s": 28800.0 if ada else 3600.0,
                "req_mem_bytes": (64 if ada else 4) * GIB, "mem_bytes": (64 if ada else 4) * GIB,
                "max_rss_bytes": int((5 if ada else 1) * GIB * rng.uniform(0.9, 1.0)), "cpu_time_s": run_s * 1.2,
            }
        )  # fmt: skip
    held = {"cluster": "cluster", "submit_time": day(UNTIL), "restart": 0, "user": "ada", "job_name": "align", "state": "PENDING"}
    asks = {"req_cpus": 4, "req_mem_bytes": 64 * GIB, "time_limit_s": 28800.0, "partition": "batch"}
    rows.append(held | asks | {"job_id": 1001, "extra": {"reason": "JobHeldUser"}})
    rows.append(held | asks | {"job_id": 1002, "extra": {"reason": "Priority"}})
    return job_frame(rows)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with one_thread(), few_trees(), make_site(tmp_path_factory.mktemp("outlook") / "site", jobs={"outlook": True}) as site:
        put_jobs(site, jobs())
        train(site, until=day(UNTIL))
        yield site


@pytest.fixture
def answer(site):
    return check_request(site, LOCAL, parse_job_script(SCRIPT, name="align.sh"), user="ada", folder="/home/ada", now=NOW)


def test_check_tells_needs_and_start(answer):
    assert set(answer.needs) == {"memory", "time", "cpus"}
    assert 4 * GIB < answer.needs["memory"].p50 < 6 * GIB and answer.needs["memory"].request == 64 * GIB
    assert answer.needs["cpus"].p50 == pytest.approx(1.2, rel=0.1)
    assert 500 < answer.wait.p50_s <= answer.wait.p90_s < 3000 and answer.wait.reason is None


def numbers_in(value, path=""):
    """Every number of an answer by its place, and everything else as text."""
    if isinstance(value, dict):
        return {key: number for name, part in value.items() for key, number in numbers_in(part, f"{path}.{name}").items()}
    if isinstance(value, list):
        return {key: number for at, part in enumerate(value) for key, number in numbers_in(part, f"{path}.{at}").items()}
    return {path: float(value) if isinstance(value, int | float) else str(value)}


def test_a_cold_check_says_what_a_service_says_to_a_millionth(site, answer, monkeypatch):
    live = LiveSite(site)
    monkeypatch.setattr(live, "now", lambda: NOW)
    live.refresh()
    script = ScriptRequest(text=SCRIPT, name="align.sh", user="ada", folder="/home/ada", kind=None, arguments=[])
    warm = numbers_in(check_script(live, LOCAL, script).model_dump(mode="json"))
    cold = numbers_in(answer.model_dump(mode="json"))
    assert {".risk", ".wait.p50_s", ".needs.memory.p50"} < set(warm) == set(cold)
    texts = {key for key, value in warm.items() if isinstance(value, str)}
    assert {key: cold[key] for key in texts} == {key: warm[key] for key in texts}
    numbers = sorted(set(warm) - texts)
    np.testing.assert_allclose([cold[key] for key in numbers], [warm[key] for key in numbers], rtol=1e-6, atol=1e-6)


def test_the_smallest_change_has_line_risk_wait_hours_and_evidence(answer):
    memory = next(piece for piece in answer.advice if piece.column == "req_mem_bytes")
    assert memory.saves and memory.proposed <= 32 * GIB and memory.line.startswith("#SBATCH --mem=") and memory.evidence
    assert None not in (memory.risk_before, memory.risk_after, memory.wait_before_s, memory.wait_after_s)
    assert memory.core_hours_saved > 1.0 and memory.mem_update is None  # no cluster has said that it can do it


def test_the_json_of_an_advice_is_stable(answer):
    dumped = answer.model_dump(mode="json")
    assert set(dumped["advice"][0]) == {
        "column", "now", "proposed", "sentence", "evidence", "support", "kind", "saves", "risk_before", "risk_after", "line",
        "experiment", "wait_before_s", "wait_after_s", "core_hours_saved", "mem_update",
    }  # fmt: skip
    assert set(dumped["wait"]) == {"p50_s", "p90_s", "waited_s", "reason"}
    assert set(dumped["needs"]["memory"]) == {"request", "p50", "p90", "p99", "short", "similar", "group"}


def test_memory_is_given_back_on_the_way_where_the_cluster_can(site, monkeypatch):
    known = CachedCluster(Cluster((Partition("batch", is_default=True),), updates_memory=True), NOW)
    monkeypatch.setattr(site.cluster, "known", lambda: known)
    answer = check_request(site, LOCAL, parse_job_script(SCRIPT, name="align.sh"), user="ada", folder="/home/ada", now=NOW)
    memory = next(piece for piece in answer.advice if piece.column == "req_mem_bytes")
    assert memory.mem_update in {f"#SBATCH --mem-update=50@{minutes}" for minutes in range(25, 34)}


def test_a_held_job_gets_a_reason_and_one_that_waits_gets_what_is_left(site):
    held, waits = (explain_job(site, LOCAL, str(number), now=NOW) for number in (1001, 1002))
    assert held.wait.p50_s is None and held.wait.reason == "No estimate of the start: it is held."
    assert waits.wait.reason is None and waits.wait.waited_s == 3600.0 and waits.wait.p50_s >= 3600.0
    assert any(piece.column == "req_mem_bytes" and piece.risk_after is not None for piece in waits.advice)


@pytest.mark.parametrize(("asked_gib", "contradicts"), [(48, True), (32, False)])
def test_a_forecast_far_below_what_past_jobs_speak_for_contradicts_them(asked_gib: int, contradicts: bool) -> None:
    need = NeedEstimate("memory", 24.0 * GIB, 19.0 * GIB, 25.0 * GIB, 30.0 * GIB, 0.12, 32.0 * GIB, 50, "this user's jobs")
    piece = Advice("req_mem_bytes", 24 * GIB, asked_gib * GIB, "Ask for more.", (), 50, "user")
    assert contradicts_advice(need, [piece]) is contradicts
