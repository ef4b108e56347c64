"""Whole pieces of work on a real Ray: the same results as in one process, also where workers and drivers are killed meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

import pytest

from stormpetrel.answers.workload.fits import fit_generators
from stormpetrel.answers.workload.input import WorkloadInput
from stormpetrel.config import EngineSection
from stormpetrel.engine import ONE_PROCESS, Engine, no_progress, on_ray
from stormpetrel.lifecycle import history_snapshot
from stormpetrel.lifecycle.feature_table import write_feature_table
from stormpetrel.lifecycle.retraining import retrain
from stormpetrel.rehearse.site.rehearsal import RehearsalPlan, rehearse
from stormpetrel.store.site import open_site
from tests.jobs.logs import make_log, one_thread
from tests.lifecycle.sites import DAYS, QUICK, changing_log, day, make_site, put_jobs, trained_site
from tests.parts import need, wait_until
from tests.parts.ray import ROOT, RealRay
from tests.synth.made_workloads import made_workload

need("ray")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]
UNTIL = day(DAYS - 3)
ON_RAY = Engine(2, "ray")


@pytest.fixture(scope="module")
def ray():
    with RealRay() as real, pytest.MonkeyPatch.context() as patch, one_thread():
        for name, value in real.environment().items():
            patch.setenv(name, value)
        yield real
        on_ray.leave_cluster()


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_night_of_job_models_comes_to_the_same(ray, tmp_path):
    folder = trained_site(tmp_path / "here", changing_log(changes_on=12), until=12)
    shutil.copytree(folder, tmp_path / "there")
    with open_site(folder) as here, open_site(tmp_path / "there") as there:
        there.settings = there.settings.model_copy(update={"engine": EngineSection(place="ray", workers=2)})
        nights = [retrain(site, now=day(DAYS + 1), settings=QUICK) for site in (here, there)]
    assert nights[0] == nights[1] and nights[0].promoted


def test_walks_of_a_rehearsal_come_to_the_same(ray, tmp_path):
    with make_site(tmp_path / "site", site={"time_zone": "UTC"}) as site:
        put_jobs(site, make_log(900, 3, days=DAYS))
        plan = RehearsalPlan(kinds=("node_down",), severities=("severe",), n=2, models=False, since=day(DAYS - 18))
        assert rehearse(site, plan, engine=ON_RAY) == rehearse(site, plan)


def test_generators_that_are_fitted_there_are_the_same_files(ray, tmp_path):
    source = WorkloadInput(made_workload(600, weeks=4))
    for name, engine in (("here", ONE_PROCESS), ("there", ON_RAY)):
        kinds = ("sessions", "gaussian-copula")
        fit_generators(source, kinds, range(2), tmp_path / name, {}, engine=engine, progress=no_progress)
    assert files_of(tmp_path / "here") == files_of(tmp_path / "there") != {}


_DRIVER = """
import sys
from datetime import datetime
from pathlib import Path
from stormpetrel.engine import Engine
from stormpetrel.jobs.training import TrainingSettings
from stormpetrel.lifecycle import history_snapshot
from stormpetrel.lifecycle.feature_table import write_feature_table
from stormpetrel.store.site import open_site
if __name__ == "__main__":
    history_snapshot.PIECE_ROWS = 250
    site, folder, until = sys.argv[1:]
    with open_site(Path(site)) as opened:
        settings, engine = TrainingSettings(rounds=12), Engine(2, "ray")
        write_feature_table(opened, Path(folder), settings, until=datetime.fromisoformat(until), parts=12, engine=engine)
"""


def test_a_feature_table_is_the_same_although_workers_and_the_driver_are_killed(ray, tmp_path, monkeypatch):
    on_ray.leave_cluster()
    monkeypatch.setattr(history_snapshot, "PIECE_ROWS", 250)
    with make_site(tmp_path / "site") as site:
        put_jobs(site, make_log(4_000, 3, days=DAYS, unfinished=0.05))
        write_feature_table(site, tmp_path / "here", QUICK, until=UNTIL, parts=12)
    there, killed = tmp_path / "there", set()
    env = {**os.environ, **ray.environment(), "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, "-c", _DRIVER, str(tmp_path / "site"), str(there), UNTIL.isoformat()]

    def swept():
        return len(list((there / ".work" / "shards").glob("*.result")))

    def kill_a_worker_that_works():
        for process in ray.processes():
            with_it = " ".join(process.cmdline()) if process.is_running() else ""
            if "ray::_Worker.work" in with_it and process.pid not in killed:
                killed.add(process.pid)
                os.kill(process.pid, signal.SIGKILL)
                return True
        return False

    def kill_two_workers(first):
        """Kill two workers, one after the other, each as soon as another shard is swept."""
        for number in (1, 2):
            wait_until(lambda number=number: swept() >= first + number, "another shard is swept", limit_s=600)
            wait_until(kill_a_worker_that_works, "a worker works", limit_s=300)

    for times in (1, 2):  # two drivers die, too
        first = swept()
        driver = subprocess.Popen(command, env=env, start_new_session=True)
        kill_two_workers(first)
        driver.kill()
        driver.wait(10)
        assert not (there / "manifest.json").exists() and len(killed) == 2 * times
    done = swept()
    subprocess.run(command, env=env, timeout=1_200, check=True)
    assert done >= 4 and len(killed) == 4
    assert files_of(there) == files_of(tmp_path / "here")
