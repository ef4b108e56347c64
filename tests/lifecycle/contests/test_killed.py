"""A night that is killed while its winner is put in use (traces, events, generator): the champion stays, the next night wins.

Jobs: tests/lifecycle/test_retraining.py. The process is killed inside the transaction, after files and rows were written.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from stormpetrel.lifecycle.contests import events, workloads
from stormpetrel.lifecycle.contests.decision import FamilyNight
from stormpetrel.lifecycle.contests.events import Watched, contest_events
from stormpetrel.lifecycle.contests.traces import contest_traces
from stormpetrel.lifecycle.contests.workloads import Distances, contest_workloads
from stormpetrel.lifecycle.event_models import train_event_model
from stormpetrel.lifecycle.workload_models import fit_site_generator
from stormpetrel.store.registry import models
from stormpetrel.store.site import Site, open_site
from tests.answers.cluster_sites import put_counts, sample_grid
from tests.answers.live_sites import put_jobs
from tests.answers.workload_sites import GENERATOR, NOW
from tests.builders import make_site
from tests.lifecycle.traced_site import put_windows, traced_site, train
from tests.parts import need
from tests.parts.watched_site import simulated_jobs
from tests.traces.small import STEPS, one_torch_thread, small_windows, tiny

_OUTAGES = 40
Patch = Callable[[object, str, object], None]


def events_site(folder: Path) -> None:
    with make_site(folder) as site:
        put_counts(site, sample_grid(1000))
        train_event_model(site, "unsupervised")


def events_night(site: Site, patch: Patch) -> FamilyNight:
    """The only challenger catches all outages, the champion a third of them."""
    shares = iter((0.3, 1.0))
    patch(events, "_watched", lambda *_: Watched(np.arange(_OUTAGES) < next(shares) * _OUTAGES, 0))
    patch(events._Contest, "_challengers", lambda *_: [("unsupervised, everything", "unsupervised", 0)])
    return contest_events(site, now=site.now() + timedelta(days=2))


def generator_site(folder: Path) -> None:
    jobs = simulated_jobs().sort("submit_time")
    half = jobs.height // 2
    with make_site(folder, nightly={"learn_days": [0.0]}) as site:
        site.now = lambda: jobs["submit_time"][half]
        put_jobs(site, jobs.head(half))
        fit_site_generator(site, GENERATOR)
        put_jobs(site, jobs.tail(jobs.height - half).with_columns(pl.col("elapsed_s") * 4))


def generator_night(site: Site, patch: Patch) -> FamilyNight:
    """The copies of the only challenger are nearer to the latest jobs."""
    results = iter(Distances(("runtime_s",), np.full((5, 1), value)) for value in (0.4, 0.1))
    patch(workloads, "FEWEST_JOBS", 100)
    patch(workloads, "_distances", lambda *_: next(results))
    patch(site, "now", lambda: NOW)
    return contest_workloads(site, now=NOW)


def traces_site(folder: Path) -> None:
    need("torch")
    with one_torch_thread(), traced_site(folder, splits=False, nightly={"trace_models": ["fast"], "group_rows": 1000}) as site:
        train(site, settings={"max_epochs": 1, "learning_rate": 1e-5})
        put_windows(site, small_windows(7, steps=60 * STEPS, name="live"))


def traces_night(site: Site, patch: Patch) -> FamilyNight:
    """The champion has hardly learnt: any challenger is better."""
    del patch
    with one_torch_thread():
        return contest_traces(site, settings=tiny(max_epochs=6))


FAMILIES = {
    "events": (events_site, events_night),
    "synth": (generator_site, generator_night),
    "traces": (traces_site, traces_night),
}


def halt_while_entering(family: str, folder: str) -> None:
    """In a process of its own: live the night up to where the winner is made current, say so, and wait to be killed."""

    def halt(*_args: object, **_more: object) -> None:
        sys.stdout.write("now\n")
        sys.stdout.flush()
        signal.pause()

    models.ModelRegistry._make_current = halt
    with open_site(Path(folder)) as site:
        FAMILIES[family][1](site, setattr)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_night_that_is_killed_leaves_the_champion_and_the_next_one_wins(family, tmp_path, monkeypatch):
    make, night = FAMILIES[family]
    make(tmp_path / "site")
    with open_site(tmp_path / "site") as site:
        before = site.models.in_use()
        program = f"from {__name__} import halt_while_entering; halt_while_entering({family!r}, {str(site.folder)!r})"
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "now\n"
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        champion = site.models.current_training(family)
        assert site.models.in_use() == before and champion.name == f"{family}-1"
        assert all(site.models.verified_folder(entry.name, entry.version) for entry in champion.models)
        after = night(site, monkeypatch.setattr)
        assert after.promoted, "the next night is not hindered by what is left"
        assert site.models.current_training(family).name == after.training != champion.name
