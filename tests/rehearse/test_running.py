"""Jobs that really run, and programs that are ended whatever happens."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stormpetrel.rehearse import running
from stormpetrel.rehearse.placed import CANNOT_PLACE
from stormpetrel.rehearse.placing import JobPlaces
from stormpetrel.rehearse.plan import JobKind, PlannedJob, Slot
from stormpetrel.rehearse.processes import interruptions_end_in_order, start, stop
from stormpetrel.rehearse.running import Workshop, run_slot
from tests.parts import wait_until

CPU = min(os.sched_getaffinity(0))
LONG = "import time; time.sleep(600)"


@pytest.fixture
def workshop(tmp_path):
    return Workshop(JobPlaces(tmp_path / "threads", top=tmp_path / "no-cgroups"), tmp_path)


def fit(job_id="c.1"):
    return PlannedJob(job_id, JobKind.NP, (CPU,), 7)


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_job_runs_on_its_cpu_for_its_time_and_says_what_it_did(workshop):
    began = time.time()
    seen = []

    def tick():
        seen.append(workshop.places.threads_file.read_text())

    [record] = run_slot(Slot((fit(),)), 1.0, workshop, tick)
    assert record.exit_codes == (0,) and not record.died_early
    assert record.did[0]["kind"] == "np" and record.did[0]["evaluations"] > 0
    assert began <= record.started_s <= record.ended_s - 1.0
    assert set(seen) == {f"{CPU} c.1\n"}
    assert workshop.places.threads_file.read_text() == ""


def test_a_job_that_dies_is_noticed_and_the_slot_lasts_as_long_as_planned(workshop, monkeypatch):
    monkeypatch.setitem(running._MODULES, JobKind.NP, "stormpetrel.rehearse.workloads.nothing_of_that_name")
    began = time.monotonic()
    [record] = run_slot(Slot((fit(),)), 2.5, workshop, lambda: None)
    assert time.monotonic() - began >= 2.5
    assert record.died_early and record.exit_codes == (1,) and record.did == ()
    assert "nothing_of_that_name" in record.complaint


def test_an_idle_slot_takes_its_time_and_runs_nothing(workshop):
    ticks = []
    began = time.monotonic()
    assert run_slot(Slot(()), 0.3, workshop, lambda: ticks.append(1)) == []
    assert time.monotonic() - began >= 0.3 and ticks


def test_an_interruption_ends_the_jobs_of_the_slot(workshop):
    def tick():
        if any(workshop.folder.glob("job_c.1_*/events_*")):  # the fit is at work
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_slot(Slot((fit(),)), 600.0, workshop, tick)
    assert workshop.places.threads_file.read_text() == ""
    assert not list(workshop.folder.glob("job_c.1_*/*"))  # it took its files away


def test_a_job_that_does_not_end_is_killed(workshop, monkeypatch):
    monkeypatch.setattr(running, "_GRACE_S", 0.2)
    monkeypatch.setattr(running, "_start_job", _start_sleeper)
    [record] = run_slot(Slot((fit(),)), 0.2, workshop, lambda: None)
    assert record.exit_codes == (-signal.SIGTERM,)


def _start_sleeper(job, _seconds, workshop, programs):
    programs.append(start("sleeper", [sys.executable, "-c", LONG], folder=workshop.folder, cpus=job.cpus))


def test_a_program_is_where_it_was_put_before_it_starts(tmp_path):
    code = "import os; print(sorted(os.sched_getaffinity(0)), os.getsid(0) == os.getpid())"
    program = start("where", [sys.executable, "-c", code], folder=tmp_path, cpus=(CPU,))
    wait_until(program.ended, "it ends", limit_s=30)
    assert program.words() == f"[{CPU}] True\n"


def test_a_cpu_that_is_not_there_is_one_line(tmp_path):
    program = start("nowhere", ["true"], folder=tmp_path, cpus=(60_000,))
    wait_until(program.ended, "it ends", limit_s=30)
    assert program.exit_code == CANNOT_PLACE
    assert "cannot be started on CPUs 60000" in program.last_complaint()


def test_what_a_program_left_running_is_killed_when_its_end_is_seen(tmp_path):
    code = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {LONG!r}]).pid, flush=True)"
    program = start("parent", [sys.executable, "-c", code], folder=tmp_path)
    wait_until(program.ended, "it ends", limit_s=30)
    left = int(program.words())
    wait_until(lambda: not is_running(left) or _is_zombie(left), "its child is killed", limit_s=10)


def _is_zombie(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_program_that_does_not_listen_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("stormpetrel.rehearse.processes._STOP_LIMIT_S", 0.3)
    code = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); {LONG}"
    program = start("deaf", [sys.executable, "-c", code], folder=tmp_path)
    wait_until(lambda: program.words() == "deaf\n", "it is deaf", limit_s=30)
    stop([program])
    assert program.exit_code == -signal.SIGKILL


def test_programs_end_with_a_campaign_that_is_killed_outright(tmp_path):
    campaign = (
        "import sys, time; from pathlib import Path; from stormpetrel.rehearse.processes import start\n"
        f"print(start('job', [sys.executable, '-c', {LONG!r}], folder=Path(sys.argv[1])).process.pid, flush=True)\n"
        "time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", campaign, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        job = int(process.stdout.readline())
        wait_until(lambda: _became(job, LONG), "the job has taken its place", limit_s=30)
        process.kill()
        process.wait(30)
    wait_until(lambda: not is_running(job) or _is_zombie(job), "the job ends as well", limit_s=10)


def _became(pid, words):
    said = Path(f"/proc/{pid}/cmdline").read_text()
    return "placed" not in said and words in said


def test_a_polite_kill_counts_as_a_ctrl_c():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), interruptions_end_in_order():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
