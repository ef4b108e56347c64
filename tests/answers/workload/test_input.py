"""Workloads to work on: read from files, cut, and what a generator has learnt from one."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from stormpetrel.answers.workload.input import WorkloadInput, learnt_workload, make_generator, read_files, synthetic_workload
from stormpetrel.errors import NotEnoughJobsError, UsageError
from tests.synth.made_workloads import made_workload


def nobody(_share, _words):
    """Nobody watches."""


def test_a_cut_leaves_out_earlier_jobs_and_then_the_first_ones():
    source = WorkloadInput(made_workload(300, weeks=2))
    since = source.workload.start() + timedelta(days=7)
    later = source.cut(since, 0).workload
    assert later.start() >= since and source.cut(since, 10).workload.height == later.height - 10
    with pytest.raises(NotEnoughJobsError):
        source.cut(None, 300)


def test_a_table_is_read_and_a_hostile_name_is_escaped(tmp_path):
    made_workload(50).jobs.write_csv(tmp_path / "jobs.csv")
    assert read_files([str(tmp_path / "jobs.csv")]).workload.height == 50
    with pytest.raises(UsageError, match=r"\\x1b") as caught:
        synthetic_workload("no\x1bsuch", made_workload(50), progress=nobody)
    assert "\x1b" not in str(caught.value)


def test_a_generator_by_name_makes_as_many_jobs_as_the_real_workload_has():
    assert synthetic_workload("rows", made_workload(80), progress=nobody).height == 80
    with pytest.raises(UsageError, match="has no --epochs"):
        make_generator("rows", epochs=3)


def test_what_was_learnt_is_told_in_figures():
    workload = made_workload(80)
    generator = make_generator("rows").fit(workload)
    learnt = learnt_workload(workload, generator, name="rows", model=Path("model"), seed=0)
    assert (learnt.jobs, learnt.generator, learnt.model) == (80, "rows", "model")
    assert "runtime_s" in learnt.columns and "submit_time" not in learnt.columns and learnt.first == workload.start()
