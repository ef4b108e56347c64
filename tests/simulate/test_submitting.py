"""People submit to a feed and cancel in it: more of what a job was short of helps it, and nothing else does."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stormpetrel.config import SiteSection, SlurmSection
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.records.nodes import expand_nodes
from stormpetrel.records.times import fixed_clock, running_clock
from stormpetrel.simulate.arrivals import NEVER
from stormpetrel.simulate.cluster import ClusterSpec, Fault, ended_jobs, simulate
from stormpetrel.simulate.fakes import sacct as fake_sacct
from stormpetrel.simulate.fakes import sbatch as fake_sbatch
from stormpetrel.simulate.fakes import scancel as fake_scancel
from stormpetrel.simulate.feed import Feed, record_feed, set_clock, write_fake_sacct
from stormpetrel.simulate.hidden_needs import HiddenNeeds
from stormpetrel.simulate.population import make_population
from stormpetrel.simulate.submitting import array_tasks, write_fake_sbatch, write_fake_scancel
from stormpetrel.sources.slurm.live import live_sources
from tests.builders import make_site, table_of

START = datetime(2024, 3, 4, tzinfo=UTC)
SPEC = ClusterSpec(nodes=6, cores_per_node=16, mem_per_node_gib=64, days=30, load=0.6, seed=11, start=START)
NOON = START + timedelta(days=28, hours=12)
GIB = 1 << 30
Submit = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def jobs() -> pl.DataFrame:
    return pl.concat(simulate(SPEC))


@pytest.fixture(scope="module")
def recorded(jobs, tmp_path_factory) -> dict[str, Path]:
    """The same cluster recorded with its spec, so that needs are known, and without, so that they are guessed."""
    folders = {}
    for name, spec in (("known", SPEC), ("guessed", None)):
        folders[name] = tmp_path_factory.mktemp(name) / "feed"
        record_feed([jobs], folders[name], fixed_clock(NOON), spec=spec)
    feed = Feed(folders["known"])
    HiddenNeeds(feed, feed.truth().collect(), make_population(SPEC, SPEC.seed), seed=1)  # once for all the copies
    return folders


@pytest.fixture
def feed(recorded, tmp_path) -> Path:
    return copy_of(recorded["known"], tmp_path)


def copy_of(recording: Path, folder: Path) -> Path:
    shutil.copytree(recording, folder / "feed")
    for write in (write_fake_sacct, write_fake_sbatch, write_fake_scancel):
        write(folder / "feed")
    return folder / "feed"


@pytest.fixture
def script(tmp_path) -> Path:
    path = tmp_path / "job.sh"
    path.write_text("#!/bin/bash\n#SBATCH --job-name=align-77\n#SBATCH --ntasks=2 --mem=2G\n#SBATCH -t 30\nsrun ./it\n")
    return path


@pytest.fixture
def sbatch(feed, script, capsys) -> Submit:
    """Submit within this process: the exit status, what was printed, and what was said on standard error."""

    def submit(*words: str | Path, into: Path = feed) -> tuple[int, str, str]:
        status = fake_sbatch.main(["--feed", str(into), *map(str, words)])
        return status, *capsys.readouterr()

    return submit


@pytest.fixture
def scancel(feed, capsys) -> Submit:
    def cancel(*words: str) -> tuple[int, str, str]:
        status = fake_scancel.main(["--feed", str(feed), *words])
        return status, *capsys.readouterr()

    return cancel


def truth_of(feed: Path, job_id: int) -> dict[str, Any]:
    """What will have become of a job."""
    return Feed(feed).truth().filter(pl.col("job_id") == job_id).collect().row(0, named=True)


def shown(feed: Path, job_id: int, now: datetime | None = None) -> dict[str, Any]:
    """A job as accounting shows it."""
    moment = now or Feed(feed).now()
    return Feed(feed).rows(START, moment + timedelta(days=99), now=moment).filter(pl.col("job_id") == job_id).row(0, named=True)


def again(job: dict[str, Any], **changed: Any) -> list[str]:
    """The options of sbatch that ask for what a recorded job asked for."""
    job = {**job, **changed}
    minutes, mib = int(job["time_limit_s"] // 60), job["req_mem_bytes"] // job["nodes"] // 2**20
    shape = ["--nodes", str(job["nodes"]), "--exclusive"] if job["nodes"] > 1 or job["cpus"] == 16 else ["-n", str(job["cpus"])]
    return [f"--user={job['user']}", "-J", job["job_name"], f"--time={minutes}", f"--mem={mib}M", *shape]


def failed_jobs(jobs: pl.DataFrame, state: str, count: int) -> list[dict[str, Any]]:
    """Some jobs that ended so, and had no later one of their user and name beside them that ended before."""
    ran = jobs.filter(pl.col("end_time") < NOON, pl.col("start_time").is_not_null(), pl.col("array_task").is_null())
    found = []
    for job in ran.filter(pl.col("state") == state).sort("submit_time").iter_rows(named=True):
        alike = ran.filter(pl.col("user") == job["user"], pl.col("job_name") == job["job_name"])
        if not alike.filter(pl.col("end_time") <= job["end_time"], pl.col("submit_time") >= job["submit_time"]).height > 1:
            found.append(job)
    assert len(found) >= count
    return found[-count:]


# What becomes of a job that is submitted again


@pytest.mark.parametrize("how", ["known", "guessed"])
def test_more_memory_helps_what_ran_out_of_memory_and_the_same_does_not(jobs, recorded, tmp_path, sbatch, script, how):
    feed = copy_of(recorded[how], tmp_path / how)
    for job in failed_jobs(jobs, "OUT_OF_MEMORY", 4):
        set_clock(feed, fixed_clock(job["end_time"]))
        patient = {"time_limit_s": 10 * 86_400}
        for changed, state in (({}, "OUT_OF_MEMORY"), ({**patient, "req_mem_bytes": 62 * GIB * job["nodes"]}, "COMPLETED")):
            status, printed, said = sbatch(*again(job, **changed), script, into=feed)
            assert (status, said) == (0, "")
            after = truth_of(feed, int(printed.split()[-1]))
            assert (after["state"], after["cpus"]) == (state, job["cpus"])
    assert after["max_rss_bytes"] > job["req_mem_bytes"] / job["nodes"], "it needed more than it had"


@pytest.mark.parametrize("how", ["known", "guessed"])
def test_more_time_helps_what_ran_out_of_time_and_the_same_does_not(jobs, recorded, tmp_path, sbatch, script, how):
    feed = copy_of(recorded[how], tmp_path / how)
    for job in failed_jobs(jobs, "TIMEOUT", 4):
        set_clock(feed, fixed_clock(job["end_time"]))
        more = {"req_mem_bytes": 62 * GIB * job["nodes"]}
        for changed, state in (({}, "TIMEOUT"), (more, "TIMEOUT"), ({**more, "time_limit_s": 10 * 86_400}, "COMPLETED")):
            _, printed, _ = sbatch(*again(job, **changed), script, into=feed)
            after = truth_of(feed, int(printed.split()[-1]))
            assert after["state"] == state
            assert (after["elapsed_s"] > job["time_limit_s"]) == bool(
                after["elapsed_s"] > after["time_limit_s"] or state == "COMPLETED"
            )


@pytest.mark.parametrize("how", ["known", "guessed"])
def test_a_crash_stays_likely_to_crash_whatever_is_asked_for(jobs, recorded, tmp_path, sbatch, script, how):
    feed = copy_of(recorded[how], tmp_path / how)
    (job,) = failed_jobs(jobs, "FAILED", 1)
    set_clock(feed, fixed_clock(job["end_time"]))
    more = {"req_mem_bytes": 62 * GIB * job["nodes"], "time_limit_s": 10 * 86_400}
    ids = [int(sbatch(*again(job, **changed), script, into=feed)[1].split()[-1]) for changed in ({}, more) * 8]
    states = [truth_of(feed, job_id)["state"] for job_id in ids]
    assert states.count("FAILED") >= 12, states


def test_what_a_sick_node_failed_completes_elsewhere(tmp_path, sbatch, script):
    spec = replace(SPEC, days=4, faults=(Fault(5, 0, 9 * 86_400),))
    ended = list(ended_jobs(spec))
    record_feed(simulate(spec), tmp_path / "sick", fixed_clock(START), spec=spec)
    feed = Feed(tmp_path / "sick")
    well = {job.raw_id for job in ended if job.submission.crash_s == NEVER and not job.submission.nodes and job.start_s >= 0}
    on_it = feed.truth().filter(pl.col("node_list") == "n006", pl.col("state") == "FAILED", pl.col("job_id_raw").is_in(well))
    job = on_it.sort("submit_time").collect().row(0, named=True)
    set_clock(feed.folder, fixed_clock(job["end_time"]))
    asked = again(job, time_limit_s=10 * 86_400, req_mem_bytes=62 * GIB)
    _, printed, _ = sbatch(*asked, "--exclude=n006", script, into=feed.folder)
    after = truth_of(feed.folder, int(printed.split()[-1]))
    assert (after["state"], after["node_list"] != "n006") == ("COMPLETED", True)


def test_a_name_that_nobody_has_used_is_the_same_work_each_time(feed, sbatch, script):
    """It draws what it needs once, out of jobs alike, and keeps it: more memory helps where that was the shortage."""
    asked = ["--user", "root", "--time=10-0", script]
    outcomes = []
    for name in (f"chem-new{number}" for number in range(8)):
        ids = []
        for words in (["--mem=100M"], ["--mem=60G"], ["--mem=60G"], ["--mem=100M"]):
            ids.append(int(sbatch("--job-name", name, *words, *asked)[1].split()[-1]))
            set_clock(feed, fixed_clock(Feed(feed).now() + timedelta(hours=1)))
        outcomes.append([truth_of(feed, job_id)["state"] for job_id in ids])
    assert ["OUT_OF_MEMORY", "COMPLETED", "COMPLETED", "OUT_OF_MEMORY"] in outcomes
    assert sum(first == last and second == third for first, second, third, last in outcomes) >= 6, outcomes


def test_the_same_submission_to_the_same_feed_has_the_same_fate(recorded, tmp_path, sbatch, script):
    frames = []
    for name in ("one", "two"):
        feed = copy_of(recorded["known"], tmp_path / name)
        assert sbatch("--array=0-5", script, into=feed)[0] == 0
        frames.append(pl.read_parquet(feed / "jobs-submitted-*.parquet"))
    assert frames[0].equals(frames[1])


# What is shown, and when


def test_accounting_shows_a_submission_waiting_running_and_over_as_the_clock_runs(feed, sbatch, script, capsys):
    job_id = next_id(feed)
    assert sbatch(script, "an argument", "--not-an-option") == (0, f"Submitted batch job {job_id}\n", "")
    fate = truth_of(feed, job_id)
    assert NOON < fate["start_time"] < fate["end_time"]
    seen = []
    for moment in (NOON, fate["start_time"], fate["end_time"] - timedelta(seconds=1), fate["end_time"]):
        set_clock(feed, fixed_clock(moment))
        fields = "JobID,State,Start,End,ReqMem,JobName"
        assert fake_sacct.main(["--feed", str(feed), "-X", "-P", "-n", "-S", "now-1day", "-o", fields]) == 0
        listed = capsys.readouterr().out.splitlines()
        seen.append(next(line for line in listed if line.startswith(f"{job_id}|")).split("|"))
    assert [state for _, state, *_ in seen] == ["PENDING", "RUNNING", "RUNNING", fate["state"]]
    assert seen[0][2:4] == ["Unknown", "Unknown"] and seen[1][3] == "Unknown" and "Unknown" not in seen[-1]
    assert seen[0][4:] == ["2G", "align-77"]
    assert job_id not in Feed(feed).rows(START, NOON, now=NOON - timedelta(seconds=1))["job_id"].to_list()


def test_a_submission_comes_in_through_live_ingest_like_any_other_job(feed, sbatch, script, tmp_path):
    _, printed, _ = sbatch("--user", "root", "--chdir=/data", "--parsable", script)
    fate = truth_of(feed, int(printed))
    slurm = SlurmSection(sacct=str(feed / "sacct"), since="2024-03-31", chunk_days=31.0, pause_s=0.0, overlap_hours=48.0)
    rows = []
    with make_site(tmp_path / "site") as site:
        for now in (NOON + timedelta(seconds=1), fate["end_time"] + timedelta(seconds=1)):
            set_clock(feed, fixed_clock(now))
            for source in live_sources(slurm, SiteSection(), site.jobs.cursor, now=now):
                assert not ingest_jobs(site, source).quarantined
            rows.append(table_of(site).filter(pl.col("job_id") == fate["job_id"]).row(0, named=True))
    assert [row["state"] for row in rows] == ["PENDING", fate["state"]]
    same = (
        "user",
        "uid",
        "job_name",
        "work_dir",
        "script_path",
        "submit_line",
        "req_mem_bytes",
        "time_limit_s",
        "req_cpus",
        "elapsed_s",
    )
    assert {name: rows[1][name] for name in same} == {name: fate[name] for name in same}
    assert fate["submit_line"] == f"sbatch --chdir=/data --parsable {script}", "who submits is not part of the command"


def next_id(feed: Path) -> int:
    known = Feed(feed).truth().select(pl.col("job_id_raw").max()).collect()
    return int(known.item()) + 1


def test_submissions_at_once_get_ids_of_their_own(feed, script):
    first = next_id(feed)
    words = [feed / "sbatch", "-n", "16", "--time=7-0", "--parsable", script]
    submitting = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    ids = sorted(int(process.communicate(timeout=60)[0]) for process in submitting)
    assert ids == list(range(first, first + 4))
    assert not [path for path in feed.iterdir() if path.name.startswith(".")], "nothing half-made is left"


def test_jobs_share_nodes_and_never_hold_more_than_there_is(feed, sbatch, script):
    for words in (
        ["--array=0-79", "-n", "3"],
        ["-N", "4"],
        ["-n", "16", "--mem=1G"],
        ["--mem=40G", "--array=1-9:2"],
        ["-n", "40"],
    ):
        assert sbatch(*words, "--time=7-0", script)[0] == 0
    held = Feed(feed).truth().filter(pl.col("start_time").is_not_null()).collect()
    nodes = pl.Series([expand_nodes(text) for text in held["node_list"]], dtype=pl.List(pl.String))
    each = held.select(node=nodes, start="start_time", end="end_time", cores=pl.col("cpus") // pl.col("nodes"),
                       mem=pl.col("mem_bytes") // pl.col("nodes")).explode("node")  # fmt: skip
    changes = pl.concat(
        [each.select("node", "cores", "mem", at="start"), each.select("node", -pl.col("cores"), -pl.col("mem"), at="end")]
    )
    used = changes.group_by("node", "at").sum().sort("at").with_columns(pl.col("cores", "mem").cum_sum().over("node"))
    assert set(used["node"]) <= {f"n{number:03d}" for number in range(1, 7)}
    assert (used["cores"].max(), used["mem"].max()) <= (16, 64 * GIB)
    wide = held.filter("submitted", pl.col("nodes") > 1)
    assert wide["nodes"].to_list() == [4, 3] and wide["cpus"].to_list() == [64, 48], "several nodes are given whole"


def test_a_submission_waits_until_there_is_room(feed, sbatch, script):
    first, second = (int(sbatch("-N", "6", "--exclusive", script)[1].split()[-1]) for _ in range(2))
    starts = [truth_of(feed, job_id)["start_time"] for job_id in (first, second)]
    assert starts[1] >= truth_of(feed, first)["end_time"] or starts[0] >= truth_of(feed, second)["end_time"]


# Who submits what


def test_a_simulated_user_submits_under_his_own_account_and_the_machine_s_user_by_default(jobs, feed, sbatch, script):
    person = jobs.filter(pl.col("end_time") < NOON).row(-1, named=True)
    own = ("user", "uid", "group", "gid", "account")
    for words in (["--user", person["user"]], [f"--uid={person['uid']}"], [f"--user={person['user']}"]):
        row = truth_of(feed, int(sbatch(*words, script)[1].split()[-1]))
        assert {name: row[name] for name in own} == {name: person[name] for name in own}
    row = truth_of(feed, int(sbatch("--account=else", script)[1].split()[-1]))
    assert (row["user"], row["uid"], row["account"]) == (fake_sbatch.this_user(), os.getuid(), "else")


def test_the_command_line_has_the_last_word_and_defaults_are_the_cluster_s(feed, sbatch, script, tmp_path):
    (tmp_path / "plain.sh").write_text("#!/bin/sh\ntrue\n")
    asked = ("job_name", "req_cpus", "req_mem_bytes", "time_limit_s")
    for words, expected in (
        ([script], ("align-77", 2, 2 * GIB, 1800)),
        (["-J", "x", "--mem=3G", "--time", "1:30:00", "-n4", script], ("x", 4, 3 * GIB, 5400)),
        (["--mem-per-cpu=1500M", script], ("align-77", 2, 3000 * 2**20, 1800)),  # another way than the script's
        ([tmp_path / "plain.sh"], ("plain.sh", 1, 4 * GIB, 86_400)),
        (["--mem=0", "--time=UNLIMITED", tmp_path / "plain.sh"], ("plain.sh", 1, 64 * GIB, 14 * 86_400)),
        (["--wrap", "echo 'hello'"], ("wrap", 1, 4 * GIB, 86_400)),
        (["--ntasks-per-node=8", "-N2", "--mem=5G", script], ("align-77", 32, 10 * GIB, 1800)),
    ):
        status, printed, said = sbatch(*words)
        assert (status, said) == (0, "")
        row = truth_of(feed, int(printed.split()[-1]))
        assert tuple(row[name] for name in asked) == expected


def test_an_array_has_one_id_and_a_row_for_each_task(feed, sbatch, script):
    first = next_id(feed)
    assert sbatch("--array=1-7:3,9%2", script)[1] == f"Submitted batch job {first}\n"
    rows = Feed(feed).rows(NOON, NOON + timedelta(days=1)).filter(pl.col("job_id") == first)
    assert rows["array_task"].to_list() == [1, 4, 7, 9]
    assert rows["job_id_raw"].to_list() == [first, first + 1, first + 2, first + 3]
    assert array_tasks("5,0-2") == (0, 1, 2, 5)
    assert next_id(feed) == first + 4


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["--bogus=3", "x"], 255, "sbatch: unrecognized option '--bogus=3'\nTry \"sbatch --help\" for more information\n"),
        (["-QZ", "x"], 255, "sbatch: invalid option -- 'Z'\nTry \"sbatch --help\" for more information\n"),
        (["--mem"], 255, "sbatch: option '--mem' requires an argument\nTry \"sbatch --help\" for more information\n"),
        (["--mem=1.5G", "SCRIPT"], 255, "sbatch: error: Invalid --mem specification\n"),
        (["--time=soon", "SCRIPT"], 255, "sbatch: error: Invalid --time specification\n"),
        (["--nodes=some", "SCRIPT"], 255, 'sbatch: error: "some" is not a valid node count\n'),
        (["--ntasks=abc", "SCRIPT"], 1, 'sbatch: error: Invalid numeric value "abc" for --ntasks.\n'),
        (["--array=x", "SCRIPT"], 1, "sbatch: error: Batch job submission failed: Invalid job array specification\n"),
        (["--array=0-5000", "SCRIPT"], 1, "sbatch: error: Batch job submission failed: Invalid job array specification\n"),
        (["--user=nobody-here", "SCRIPT"], 255, "sbatch: error: Invalid --uid specification\n"),
        (["no such.sh"], 1, "sbatch: error: Unable to open file no such.sh\n"),
        (["--hold", "SCRIPT"], 1, "sbatch: error: --hold is not simulated\n"),
        (["--mem=1G", "--mem-per-cpu=1G", "SCRIPT"], 1,
         "sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.\n"),
        (["--wrap=true", "SCRIPT"], 1, "sbatch: error: Script arguments not permitted with --wrap option\n"),
        (["--nodes=7", "SCRIPT"], 1,
         "sbatch: error: Batch job submission failed: Requested node configuration is not available\n"),
        (["--gpus=1", "SCRIPT"], 1,
         "sbatch: error: Batch job submission failed: Requested node configuration is not available\n"),
        (["--mem=65G", "SCRIPT"], 1,
         "sbatch: error: Memory specification can not be satisfied\n"
         "sbatch: error: Batch job submission failed: Requested node configuration is not available\n"),
        (["-p", "gpu", "SCRIPT"], 1,
         "sbatch: error: invalid partition specified: gpu\n"
         "sbatch: error: Batch job submission failed: Invalid partition name specified\n"),
        (["--time=20-0", "SCRIPT"], 1,
         "sbatch: error: Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)\n"),
    ],
)  # fmt: skip
def test_what_sbatch_refuses_is_refused_in_its_words_and_leaves_nothing(feed, sbatch, script, words, status, says):
    assert sbatch(*(script if word == "SCRIPT" else word for word in words)) == (status, "", says)
    assert not list(feed.glob("jobs-submitted-*"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "Batch script is empty!"),
        (b"echo\n", "This does not look like a batch script.  The first"),
        (b"#!/bin/sh\r\necho\r\n", "Batch script contains DOS line breaks"),
        (b"#!/bin/sh\n\0\n", "The Slurm controller does not allow scripts that"),
        (b"#!/bin/sh\n#SBATCH --bogus\n", "unrecognized option '--bogus'"),
        (b"#!/bin/sh\n#SBATCH words\n", "Invalid argument: words"),
        (b"#!/bin/sh\n#SBATCH -J 'open\n", "The quote ' is not closed"),
        (b"#!/bin/sh\n" + b"#" * fake_sbatch.MAX_SCRIPT_BYTES, "Batch script is larger than"),
    ],
)
def test_a_script_that_sbatch_refuses_is_refused(feed, sbatch, tmp_path, text, says):
    (tmp_path / "bad.sh").write_bytes(text)
    status, printed, said = sbatch(tmp_path / "bad.sh")
    assert status in (1, 255) and printed == "" and says in said and said.startswith("sbatch: ")


def test_hostile_text_is_text(feed, sbatch, tmp_path):
    name = "$(touch hacked)`id`\n|\x1f;--uid=0 \"'<b>\u202e\udcff"
    (tmp_path / "hostile.sh").write_text(
        '#!/bin/sh\n#SBATCH --job-name="$(touch hacked)" --comment="; rm -rf"\n', encoding="utf-8"
    )
    ids = [int(sbatch(*words)[1].split()[-1]) for words in ((tmp_path / "hostile.sh",), ("-J", name, tmp_path / "hostile.sh"))]
    assert [truth_of(feed, job_id)["job_name"] for job_id in ids] == ["$(touch hacked)", name.replace("\udcff", "?")]
    assert not (tmp_path / "hacked").exists() and not (feed / "hacked").exists()
    assert truth_of(feed, ids[1])["user"] == fake_sbatch.this_user()


def test_the_commands_say_who_they_are_without_a_feed_and_are_quiet_when_asked(feed, sbatch, script, tmp_path):
    assert "simulated" in sbatch("--version")[1] and "sbatch" in sbatch("--help")[1]
    assert sbatch("--quiet", script) == (0, "", "")
    assert sbatch(script, into=tmp_path) == (1, "", f"sbatch: error: {tmp_path} is no recorded feed.\n")
    done = subprocess.run([feed / "sbatch"], input="#!/bin/sh\n#SBATCH --mem=1G\n", capture_output=True, text=True, timeout=60)
    assert truth_of(feed, int(done.stdout.split()[-1]))["job_name"] == "sbatch", "a script may come through standard input"


# Cancelling


def test_a_job_can_be_cancelled_while_it_waits_and_while_it_runs_but_not_afterwards(feed, sbatch, scancel, script):
    ids = [int(sbatch("--user=root", script)[1].split()[-1]) for _ in range(3)]
    fates = [truth_of(feed, job_id) for job_id in ids]
    halfway = fates[1]["start_time"] + (fates[1]["end_time"] - fates[1]["start_time"]) / 2
    moments = [fates[0]["start_time"] - timedelta(seconds=5), halfway.replace(microsecond=0), fates[2]["end_time"]]
    for job_id, moment in zip(ids, moments, strict=True):
        set_clock(feed, fixed_clock(moment))
        assert scancel("--user=root", str(job_id)) == (0, "", "")
    late = moments[2] + timedelta(days=1)
    waited, ran, over = (shown(feed, job_id, late) for job_id in ids)
    assert (waited["state"], waited["state_raw"], waited["start_time"]) == ("CANCELLED", "CANCELLED by 0", None)
    assert (waited["end_time"], waited["elapsed_s"], waited["max_rss_bytes"]) == (moments[0], 0.0, None)
    assert (ran["state"], ran["cancelled_by"], ran["end_time"]) == ("CANCELLED", "0", moments[1])
    assert ran["elapsed_s"] == (moments[1] - ran["start_time"]).total_seconds()
    assert 0 < ran["cpu_time_s"] < fates[1]["cpu_time_s"] and ran["max_rss_bytes"] < fates[1]["max_rss_bytes"]
    assert ran["cpu_time_s"] == ran["user_cpu_s"] + ran["system_cpu_s"]
    assert (ran["exit_code"], ran["exit_signal"], ran["failed_step_exit_signal"]) == (0, 0, 15)
    assert over == shown(feed, ids[2], late) and over["state"] == fates[2]["state"]
    assert shown(feed, ids[1], moments[1] - timedelta(seconds=1))["state"] == "RUNNING", "before that it ran"


def test_scancel_says_what_slurm_says(feed, sbatch, scancel, script):
    job_id = int(sbatch("--user=root", script)[1].split()[-1])
    over = Feed(feed).truth().filter(pl.col("end_time") < NOON).collect()["job_id"][0]
    coming = Feed(feed).truth().filter(pl.col("submit_time") > NOON).collect()["job_id"][0]
    error = "scancel: error: Kill job error on job id"
    assert scancel() == (1, "", "scancel: error: No job identification provided\n")
    assert scancel("7x", str(job_id)) == (1, "", "scancel: error: Invalid job id 7x\n")
    assert scancel("999999") == scancel(str(over)) == (0, "", "")
    for missing in (999999, coming):
        said = f"scancel: Terminating job {missing}\n{error} {missing}: Invalid job id specified\n"
        assert scancel("-v", str(missing)) == (0, "", said)
    said = f"scancel: Terminating job {over}\n{error} {over}: Job/step already completing or completed\n"
    assert scancel("-v", str(over)) == (0, "", said)
    with pytest.raises(SystemExit, match="1"):
        scancel("--bogus", "1")
    assert shown(feed, job_id)["state"] == "PENDING"


def test_only_its_owner_and_administrators_cancel_a_job(jobs, feed, scancel):
    running, moment = pl.DataFrame(), NOON
    while running.height < 1 or running["user"].n_unique() < 2:
        moment -= timedelta(hours=1)
        running = jobs.filter(pl.col("start_time") <= moment, pl.col("end_time") > moment, pl.col("array_task").is_null())
    set_clock(feed, fixed_clock(moment))
    mine, other = running["job_id"][0], running.filter(pl.col("user") != running["user"][0])["job_id"][0]
    owner = running["user"][0]
    said = f"scancel: error: Kill job error on job id {other}: Access/permission denied\n"
    assert scancel("--user", owner, str(other)) == (210, "", said)
    assert scancel("--user", owner, str(mine)) == (0, "", "")
    uid = jobs.filter(pl.col("user") == owner)["uid"][0]
    assert shown(feed, mine)["state_raw"] == f"CANCELLED by {uid}", "a recorded job can be cancelled, too"
    assert shown(feed, other)["state"] == "RUNNING"
    assert scancel(str(other)) == (0, "", ""), "who owns the feed is its administrator"
    assert shown(feed, other)["state_raw"] == f"CANCELLED by {os.getuid()}"
    assert scancel("--user=nobody-here", "-v", str(other))[2].endswith("Invalid user name: nobody-here\n")


def test_an_array_is_cancelled_as_a_whole_or_task_by_task(feed, sbatch, scancel, script):
    job_id = int(sbatch("--array=0-5", script)[1].split()[-1])

    def left() -> list[int]:
        rows = Feed(feed).rows(START, NOON + timedelta(days=9), now=NOON).filter(pl.col("job_id") == job_id)
        return rows.filter(pl.col("state") == "PENDING")["array_task"].to_list()

    assert scancel(f"{job_id}_2")[0] == 0 and left() == [0, 1, 3, 4, 5]
    assert scancel(f"{job_id}_[0-1]")[0] == 0 and left() == [3, 4, 5]
    assert scancel(str(job_id + 5))[0] == 0 and left() == [3, 4], "a task has an id of its own"
    assert scancel(str(job_id))[0] == 0 and left() == []


def test_the_room_of_a_cancelled_job_is_free_again(feed, sbatch, scancel, script):
    wide = int(sbatch("-N", "6", "--exclusive", script)[1].split()[-1])
    begin = truth_of(feed, wide)["start_time"]
    assert scancel(str(wide))[0] == 0
    second = int(sbatch("-N", "6", "--exclusive", script)[1].split()[-1])
    assert truth_of(feed, second)["start_time"] <= begin + timedelta(minutes=2)


# The feed


def test_recording_anew_clears_what_was_submitted_and_cancelled(jobs, feed, sbatch, scancel, script):
    job_id = int(sbatch(script)[1].split()[-1])
    assert scancel(str(job_id))[0] == 0
    assert list(feed.glob("jobs-submitted-*")) and list(feed.glob("cancelled-*")) and (feed / "needs.parquet").exists()
    record_feed([jobs], feed, fixed_clock(NOON), spec=SPEC)
    assert not [*feed.glob("jobs-submitted-*"), *feed.glob("cancelled-*"), *feed.glob("needs*")]
    assert Feed(feed).truth().collect().height == jobs.height


def test_a_feed_knows_its_spec_its_speed_and_when_its_recording_ends(jobs, feed, recorded, sbatch, script):
    assert Feed(feed).spec == SPEC and Feed(recorded["guessed"]).spec is None
    assert Feed(feed).speed == 0.0
    set_clock(feed, running_clock(jobs["end_time"].max(), speed=60.0))
    assert Feed(feed).speed == 60.0
    assert sbatch("--time=10-0", script)[0] == 0
    assert Feed(feed).last == jobs["end_time"].max() < Feed(feed).truth().select("end_time").max().collect().item()


def test_reading_a_feed_changes_nothing(feed, sbatch, scancel, script):
    job_id = int(sbatch(script)[1].split()[-1])
    scancel(str(job_id))
    before = {path.name: path.stat().st_mtime_ns for path in feed.iterdir()}
    first, second = (Feed(feed).rows(START, NOON + timedelta(days=9)) for _ in range(2))
    assert first.equals(second) and {path.name: path.stat().st_mtime_ns for path in feed.iterdir()} == before
