"""A campaign that really runs, recorded through the real exporter and a real Prometheus."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from stormpetrel.errors import SourceUnavailableError, StoreBusyError, UsageError
from stormpetrel.records.traces import NO_JOB, Split
from stormpetrel.rehearse import campaign, recording, running
from stormpetrel.rehearse.campaign import CampaignRequest, cpus_of, record_plan, run_campaign, run_set, usable_cpus
from stormpetrel.rehearse.campaign_files import free_name
from stormpetrel.rehearse.placing import JobPlaces
from stormpetrel.rehearse.plan import CampaignPlan, JobKind, PlannedJob, Slot, plan_campaign
from stormpetrel.sources.trace_files import read_trace
from tests.parts import require, wait_until

CPUS = tuple(sorted(os.sched_getaffinity(0)))[:2]
SECONDS = 6.0
RUN = "import sys; from stormpetrel.faces.cli.main import app; app(['campaign', *sys.argv[1:]])"


def short_plan(name):
    """All five types in three slots."""
    one, two = CPUS
    beside = Slot((PlannedJob(f"{name}.1", JobKind.NP, (one,), 1), PlannedJob(f"{name}.2", JobKind.BAD_IO, (two,), 2)))
    together = Slot((PlannedJob(f"{name}.3", JobKind.MPI, CPUS, 3),))
    half = Slot((PlannedJob(f"{name}.4", JobKind.GOOD_IO, (one,), 4),))
    return CampaignPlan(name, (beside, together, half), CPUS, SECONDS, 0)


def left_behind(campaign_name):
    """Processes and cgroups of a campaign that are still there."""
    groups = [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/stormpetrel/job_{campaign_name}.*")]
    processes = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_text().replace("\0", " ")
        except OSError:
            continue
        if f"{campaign_name}." in words:  # its jobs, and all that works in its scratch folder
            processes.append(words)
    return groups + processes


@pytest.fixture(scope="module")
def disk():
    """A folder that is not in memory: Bad IO needs a disk to wait for."""
    with tempfile.TemporaryDirectory(prefix="stormpetrel-campaign-") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, disk):
    """One campaign for all the claims about it."""
    require("prometheus", install="prometheus")
    require("mpicc", "mpiexec", install="mpich libmpich-dev gcc")
    if len(CPUS) < 2:
        pytest.skip("needs two CPUs")
    folder = tmp_path_factory.mktemp("campaigns")
    scratch = disk / "short-7.scratch"
    scratch.mkdir()
    heard = []
    request = CampaignRequest(folder, Split.VALIDATION, scratch=scratch)
    done = record_plan(short_plan("short-7"), request, lambda share, words: heard.append((share, words)))
    return done, scratch, heard


@pytest.mark.prometheus
@pytest.mark.mpi
def test_a_campaign_is_written_with_the_labels_of_what_ran(recorded):
    done, _, _ = recorded
    trace = read_trace(done.path)
    assert (trace.name, trace.split, trace.cpus) == ("short-7", Split.VALIDATION, CPUS)
    assert [job.job_type for job in trace.jobs] == ["NP", "Bad IO", "MPI 2", "Good IO"]
    where = [{trace.cpus[thread] for thread in np.flatnonzero((trace.job == number).any(axis=0))} for number in range(4)]
    assert where == [{CPUS[0]}, {CPUS[1]}, set(CPUS), {CPUS[0]}]
    assert (trace.job[:, 1] == NO_JOB).any()  # idle beside Good IO
    assert trace.steps >= 3 * SECONDS


@pytest.mark.prometheus
@pytest.mark.mpi
def test_every_job_of_a_campaign_did_its_work(recorded):
    done, _, _ = recorded
    said = {job["job_type"]: job["did"] for job in done.facts["jobs"]}
    assert said["NP"][0]["evaluations"] > 0
    assert said["Bad IO"][0]["flushes"] > 0
    assert said["Good IO"][0]["bytes"] > 0
    assert said["MPI 2"][0]["allreduces"] > 0 and said["MPI 2"][0]["ranks"] == 2
    assert all(job["exit_codes"] == [0] and not job["died_early"] for job in done.facts["jobs"])


@pytest.mark.prometheus
@pytest.mark.mpi
def test_a_thread_with_a_fit_is_never_idle(recorded):
    done, _, _ = recorded
    types = done.facts["types"]
    assert types["NP"]["user"] > 0.4  # other programs may be on this CPU too, but it has always something to do
    assert types["NP"]["other"] + types["NP"]["iowait"] < 0.3
    assert types["MPI 2"]["other"] < 0.3


@pytest.mark.prometheus
@pytest.mark.mpi
def test_the_exporter_saw_the_same_jobs(recorded):
    done, _, _ = recorded
    check = done.facts["recording"]["exporter_check"]
    assert check["agree"] > 0 and check["disagree"] == 0
    assert done.facts["recording"]["by"] == "own"


@pytest.mark.prometheus
@pytest.mark.mpi
def test_what_is_known_about_a_campaign_lies_beside_it(recorded):
    done, _, _ = recorded
    facts = json.loads(done.path.with_suffix(".json").read_text())
    assert facts == json.loads(json.dumps(done.facts))
    assert facts["machine"]["cpus"] == os.cpu_count() and facts["machine"]["kernel"]
    assert facts["machine"]["scratch"]["filesystem"] and facts["machine"]["load_before"] >= 0
    assert facts["slots"] == [["short-7.1", "short-7.2"], ["short-7.3"], ["short-7.4"]]


@pytest.mark.prometheus
@pytest.mark.mpi
def test_a_campaign_leaves_nothing_behind_but_its_files(recorded):
    done, scratch, _ = recorded
    assert sorted(path.name for path in done.path.parent.iterdir()) == ["short-7.json", "short-7.npz"]
    assert not list(scratch.iterdir())
    assert not left_behind("short-7")


@pytest.mark.prometheus
@pytest.mark.mpi
def test_progress_rises_and_says_what_is_running(recorded):
    _, _, heard = recorded
    shares = [share for share, _ in heard]
    assert shares == sorted(shares) and shares[-1] > 0.5
    assert f"2 of 3: MPI 2 on CPU {CPUS[0]},{CPUS[1]}" in {words for _, words in heard}


@pytest.mark.prometheus
def test_ctrl_c_ends_everything_and_writes_nothing(tmp_path, disk):
    require("prometheus", install="prometheus")
    scratch = disk / "stopped-9.scratch"
    scratch.mkdir()
    words = ["run", str(tmp_path / "out"), "--name", "stopped-9", "--types", "bad_io,np", "--seconds-per-job", "600"]
    words += ["--scratch", str(scratch)]
    # As from a terminal: what a shell starts in the background ignores Ctrl-C, and so would these tests' children there.
    listening = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {RUN}"
    process = subprocess.Popen([sys.executable, "-c", listening, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    wait_until(lambda: any(scratch.glob("*/job_*/*")), "a job is at work", limit_s=60)
    assert left_behind("stopped-9")  # the check below can fail
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=30)
    assert process.returncode not in (0, None), said
    assert not (tmp_path / "out").exists()
    assert not list(scratch.iterdir())
    wait_until(lambda: not left_behind("stopped-9"), "nothing is left", limit_s=5)


@pytest.mark.slow
@pytest.mark.prometheus
def test_a_server_that_records_this_machine_already_is_used(tmp_path):
    require("prometheus", install="prometheus")
    (tmp_path / "own").mkdir()
    with recording.own_recorder(tmp_path / "own", None) as server:
        request = CampaignRequest(
            tmp_path / "out",
            kinds=(JobKind.IDLE,),
            cpus=CPUS[:1],
            seconds_per_job=5,
            prometheus_url=server.settings.url,
            node=server.node,
        )
        done = run_campaign(request)
        assert done.facts["recording"]["by"] == "server"
        assert done.facts["types"]["Idle"]["thread_steps"] >= 4
        with pytest.raises(SourceUnavailableError, match="No samples of the CPUs of 'elsewhere'"):
            _wait_briefly(server.settings.url, "elsewhere")


@pytest.mark.slow
@pytest.mark.prometheus
def test_where_no_cgroup_can_be_made_the_threads_file_tells_the_exporter(tmp_path, monkeypatch):
    require("prometheus", install="prometheus")
    monkeypatch.setattr(campaign, "JobPlaces", lambda file: JobPlaces(file, top=tmp_path / "no-cgroups"))
    request = CampaignRequest(tmp_path / "out", kinds=(JobKind.NP,), cpus=CPUS[:1], seconds_per_job=7)
    done = run_campaign(request)
    assert done.facts["recording"]["jobs_told_by"] == "threads_file"
    check = done.facts["recording"]["exporter_check"]
    assert check["agree"] == check["steps_compared"] > 0
    assert done.facts["types"]["NP"]["thread_steps"] > 0


def _wait_briefly(url, node):
    before = recording._LAST_SAMPLE_LIMIT_S
    recording._LAST_SAMPLE_LIMIT_S = 0.5
    try:
        with recording.other_recorder(url, node):
            pass
    finally:
        recording._LAST_SAMPLE_LIMIT_S = before


def test_a_campaign_stops_when_what_records_it_has_ended(tmp_path):
    ended = recording.start("exporter", [sys.executable, "-c", "raise SystemExit('no such port')"], folder=tmp_path)
    wait_until(ended.ended, "it ends", limit_s=30)
    recorder = recording.Recorder(recording.PrometheusSection(), "n1", (ended,))
    with pytest.raises(
        SourceUnavailableError, match=r"The exporter ended during the campaign: no such port\..*Nothing was written"
    ):
        recorder.check()


def test_without_prometheus_the_way_out_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(recording.shutil, "which", lambda _name: None)
    with pytest.raises(UsageError, match=r"apt-get install prometheus.*--prometheus URL"), recording.own_recorder(tmp_path, None):
        pass


def test_without_mpich_the_way_out_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(running.shutil, "which", lambda _name: None)
    with pytest.raises(UsageError, match=r"there is no mpiexec here.*apt-get install mpich.*leave mpi out of --types"):
        running.build_mpi_program(tmp_path)


def test_another_mpi_is_not_taken_for_mpich(tmp_path, monkeypatch):
    other = tmp_path / "mpiexec"
    other.write_text("#!/bin/sh\necho 'mpiexec (OpenRTE) 4.1.4'\n")
    other.chmod(0o755)
    monkeypatch.setattr(running.shutil, "which", lambda name: str(other) if name == "mpiexec" else None)
    with pytest.raises(UsageError, match="is not MPICH's"):
        running.build_mpi_program(tmp_path)


@pytest.mark.parametrize("suffix", [".npz", ".json"])
def test_a_name_that_exists_is_refused_before_anything_runs(tmp_path, suffix):
    (tmp_path / f"mine{suffix}").touch()
    with pytest.raises(UsageError, match="There is a campaign mine"):
        run_campaign(CampaignRequest(tmp_path, name="mine"))


def test_the_names_of_a_set_are_looked_at_before_the_first_runs(tmp_path, monkeypatch):
    (tmp_path / "week3-test.npz").touch()
    monkeypatch.setattr(campaign, "run_campaign", lambda *_: pytest.fail("it ran"))
    with pytest.raises(UsageError, match="week3-test"):
        list(run_set(CampaignRequest(tmp_path, name="week3")))


def test_a_set_is_one_campaign_per_split_with_seeds_of_their_own(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(campaign, "run_campaign", lambda request, say: ran.append(request) or say(0.5, "half"))
    heard = []
    list(run_set(CampaignRequest(tmp_path, seed=5), lambda share, _words: heard.append(round(share, 3))))
    assert [(request.split, request.seed) for request in ran] == [(Split.TRAIN, 5), (Split.VALIDATION, 6), (Split.TEST, 7)]
    assert heard == [0.167, 0.5, 0.833]


def test_campaigns_without_a_name_are_numbered(tmp_path):
    assert free_name(tmp_path, "train", numbered=True) == "train-1"
    (tmp_path / "train-1.npz").touch()
    (tmp_path / "train-2.json").touch()
    assert free_name(tmp_path, "train", numbered=True) == "train-3"


@pytest.mark.parametrize("name", ["../up", "a/b", "", ".hidden", "x" * 81, "a b", "tab\t"])
def test_a_name_that_is_no_file_name_is_refused(tmp_path, name):
    with pytest.raises(UsageError, match="no name for a campaign"):
        free_name(tmp_path, name, numbered=False)


def test_two_campaigns_at_once_are_refused(tmp_path):
    plan = plan_campaign("c", [JobKind.IDLE], CPUS[:1], seconds_per_job=5)
    with campaign._only_campaign_here(), pytest.raises(StoreBusyError, match="Another campaign runs"):
        record_plan(plan, CampaignRequest(tmp_path))


def test_a_cpu_that_cannot_be_used_is_named():
    with pytest.raises(UsageError, match="CPU 60000 cannot be used here"):
        usable_cpus((60000,))
    assert usable_cpus(()) == tuple(sorted(os.sched_getaffinity(0)))


@pytest.mark.parametrize(("text", "cpus"), [("0", (0,)), ("0,2-4", (0, 2, 3, 4)), (" 1 , 3", (1, 3))])
def test_cpus_are_read_from_a_list(text, cpus):
    assert cpus_of(text) == cpus


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "0,,1", "1-99999999", "0x1"])
def test_a_list_of_cpus_that_is_none_is_refused(text):
    with pytest.raises(UsageError, match="no list of CPUs"):
        cpus_of(text)


def test_a_clock_that_was_set_spoils_a_campaign():
    campaign._refuse_set_clock(campaign._clock())
    with pytest.raises(campaign.SourceError, match=r"set by \+3\.0 s during the campaign"):
        campaign._refuse_set_clock(campaign._clock() - 3)
