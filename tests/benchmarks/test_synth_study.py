"""The study of synthetic workloads: its parts, and what each of them finds."""

from __future__ import annotations

import json
from functools import lru_cache

import polars as pl
import pytest
from benchmarks.synth_study import (
    LOGS,
    PUBLISHED,
    Kind,
    Part,
    StudyPlan,
    read_jobs,
    read_workload,
    run_part,
    study_parts,
)

from benchmarks import synth_study
from stormpetrel.errors import UsageError
from stormpetrel.simulate.cluster import ClusterSpec, simulate
from stormpetrel.synth.workload import workload_of


@lru_cache
def simulated():
    return pl.concat(simulate(ClusterSpec(nodes=4, cores_per_node=8, users=12, days=28, seed=3)))


@pytest.fixture
def plan(tmp_path, monkeypatch):
    """A plan whose logs are simulated."""
    monkeypatch.setattr(synth_study, "read_jobs", lambda _folder, _log: simulated())
    return StudyPlan(tmp_path, seeds=(0, 1))


def test_every_generator_meets_every_log_of_a_kind_and_the_published_files_their_own():
    parts = study_parts(("published", "odd-even"), ("rows",))
    assert [part.generator for part in parts if part.kind == Kind.PUBLISHED] == [*PUBLISHED, "rows"]
    assert [part.log for part in parts if part.kind == Kind.ODD_EVEN] == ["theta", "kth", "hpc2n", "thetagpu", "supercloud"]
    assert study_parts(("training",), ("rows",), ("mira",)) == [Part(Kind.TRAINING, "mira", "rows")]


def test_what_cannot_work_is_said_before_the_work_begins(tmp_path):
    for arguments, said in (
        ((("prose",),), "Unknown kind 'prose'"),
        ((("odd-even",), ("nobody",)), "Unknown generator 'nobody'"),
        ((("odd-even",), ("rows",), ("nowhere",)), "Unknown log 'nowhere'"),
    ):
        with pytest.raises(UsageError, match=said):
            study_parts(*arguments)
    with pytest.raises(UsageError, match="No seed"):
        run_part(Part(Kind.ODD_EVEN, "kth", "rows"), StudyPlan(tmp_path, seeds=()))


def test_odd_weeks_are_learnt_and_even_ones_judged_over_the_seeds(plan):
    found = run_part(Part(Kind.ODD_EVEN, "kth", "rows"), plan)
    assert found["columns"]["interval_s"]["ks"]["n"] == 2
    assert abs(found["lag1"]["synthetic"]["mean"]) < abs(found["floor"]["lag1"]["synthetic"])  # rows know no order
    assert found["seeds"] == [0, 1] and found["seconds"]["wall"] > 0
    json.dumps(found, allow_nan=False)


def test_a_scheduler_is_fed_with_each_seed(plan):
    found = run_part(Part(Kind.SCHEDULE, "curie", "rows"), plan)
    assert found["synthetic"]["mean_wait_s"]["n"] == found["wait_ratio"]["n"] == 2
    assert found["real"]["utilisation"] == pytest.approx(found["synthetic"]["utilisation"]["mean"], rel=0.5)


def test_a_failure_model_is_trained_with_the_states_of_the_log(plan, monkeypatch):
    asked = []
    monkeypatch.setattr(
        synth_study, "usefulness", lambda _jobs, make, settings, **options: asked.append((make, settings, options)) or {}
    )
    run_part(Part(Kind.TRAINING, "curie", "rows"), plan)
    ((make, settings, options),) = asked
    assert (settings.failure_states, settings.dropped_states) == (("FAILED",), ("CANCELLED",))
    assert options["seeds"] == (0, 1) and make(3).seed == 3


def test_a_published_file_has_every_figure_and_no_seeds_of_its_own(plan, monkeypatch):
    whole = workload_of(simulated())
    monkeypatch.setattr(synth_study, "read_workload", lambda _folder, log: whole.between(log.skip))
    found = run_part(Part(Kind.PUBLISHED, "theta-intervals", "published-ctgan"), plan)
    assert found["columns"]["interval_s"]["ks"] < 0.05  # the same jobs, but for the first ones
    assert found["schedule"]["wait_ratio"] == pytest.approx(1.0, abs=0.2)
    assert found["tstr"]["pr_auc_synthetic"] > 0.9 * found["tstr"]["pr_auc_real"]  # it has seen the jobs that are to be forecast
    assert found["floor"]["c2st_row"] > 0
    json.dumps(found, allow_nan=False)


def test_settings_reach_the_generator_of_that_name():
    plan = StudyPlan(None, settings={"ctgan": {"epochs": 7}})
    assert plan.make("ctgan")(2).epochs == 7 and plan.make("ctgan")(2).seed == 2
    assert plan.make("tvae")(2).epochs != 7


@pytest.mark.realdata
def test_the_public_logs_of_the_study_have_the_jobs_that_are_known_of_them(public_logs):
    assert read_workload(public_logs, LOGS["theta-intervals"]).height == 15_000 - 50
    assert read_jobs(public_logs, LOGS["theta"]).height == 14_374 - 46
    assert read_jobs(public_logs, LOGS["thetagpu"]).height == 22_606 - 17
    assert {read_workload(public_logs, log).height for log in PUBLISHED.values()} == {15_000}
