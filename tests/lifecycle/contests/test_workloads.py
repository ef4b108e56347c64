"""The nightly contest of the generator: whose copies are nearer to the jobs that came since."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.lifecycle.contests import workloads
from stormpetrel.lifecycle.contests.workloads import Distances, contest_workloads
from stormpetrel.lifecycle.workload_models import fit_site_generator
from tests.answers.live_sites import put_jobs
from tests.answers.workload_sites import GENERATOR, NOW
from tests.builders import make_site
from tests.parts.watched_site import simulated_jobs


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A generator that was fitted on slower days: afterwards jobs come twice as often and run four times as long."""
    monkeypatch.setattr(workloads, "FEWEST_JOBS", 100)
    jobs = simulated_jobs().sort("submit_time")
    half = jobs.height // 2
    with make_site(tmp_path / "site", nightly={"learn_days": [3.0, 0.0]}) as made:
        made.now = lambda: jobs["submit_time"][half]
        put_jobs(made, jobs.head(half))
        fit_site_generator(made, GENERATOR)
        put_jobs(made, jobs.tail(jobs.height - half).with_columns(pl.col("elapsed_s") * 4))
        made.now = lambda: NOW
        yield made


def test_a_fit_whose_copies_are_nearer_to_the_latest_jobs_takes_over(site, monkeypatch):
    near, far = (Distances(("runtime_s",), np.full((5, 1), value)) for value in (0.1, 0.4))
    results = iter([far, near, far])
    monkeypatch.setattr(workloads, "_distances", lambda *_: next(results))
    night = contest_workloads(site, now=NOW)
    assert night.promoted and site.models.current_training("synth").name == night.training == "synth-2"
    assert "0.100 against 0.400" in night.why


def test_every_fit_is_judged_by_copies_of_the_same_jobs(site):
    night = contest_workloads(site, now=NOW)
    assert all(set(challenger["columns"]) == set(challenger["champion"]["columns"]) for challenger in night.challengers)
    assert {"interval_s", "runtime_s"} <= set(night.challengers[0]["columns"])


def test_a_fit_that_is_further_off_in_a_column_does_not_take_over(site, monkeypatch):
    own = Distances(("runtime_s", "cores"), np.tile([0.4, 0.1], (5, 1)))
    other = Distances(("runtime_s", "cores"), np.tile([0.1, 0.2], (5, 1)))
    results = iter([own, other, other])
    monkeypatch.setattr(workloads, "_distances", lambda *_: next(results))
    night = contest_workloads(site, now=NOW)
    assert not night.promoted and "further off in cores" in night.why


def test_too_few_new_jobs_are_one_sentence(site):
    night = contest_workloads(site, now=site.models.current_training("synth").trained_until + timedelta(seconds=1))
    assert not night.promoted and "needed to judge by" in night.why


def test_a_site_without_a_generator_gets_none_by_itself(tmp_path):
    with make_site(tmp_path / "site") as site:
        assert contest_workloads(site, now=NOW) is None
