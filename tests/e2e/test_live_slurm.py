"""A running Slurm, read live: through sacct and slurmrestd, with real jobs of every kind, and with everything going wrong."""

import json
import shutil
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from stormpetrel.records.cursor import Cursor
from stormpetrel.records.jobs import FIELD_BIT, JOB_SCHEMA, KEY, VALUES
from stormpetrel.store.site import open_site
from tests.builders import make_site, table_of
from tests.parts import find_program, wait_until
from tests.parts.command_line import change_settings, complaint_of, report_of, run, run_here, start

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]

LIVE = ("ingest", "jobs", "--live", "--json")
MIB = 1024 * 1024
NEWLINES = "echo one\n\necho 'two|three'\n"
FORGED_ID = 999_999


def forged_record() -> str:
    """A line as sacct prints it for stormpetrel, with the delimiter that anyone can read in the source."""
    from stormpetrel.sources.slurm.live import WANTED

    known = {
        "JobID": FORGED_ID, "JobIDRaw": FORGED_ID, "Cluster": "petrel", "JobName": "forged", "User": "mallory", "State": "FAILED",
        "Submit": 1_794_700_000, "Start": 1_794_700_000, "End": 1_794_700_001, "Elapsed": "00:00:01", "ExitCode": "1:0",
    }  # fmt: skip
    return "\x1f".join(str(known.get(name, "")) for name in WANTED if name != "Restarts")  # which 22.05 does not know


@pytest.fixture(scope="session")
def played(slurm, overdue):
    """Jobs of every kind, all at their end: name -> job id."""
    submit = lambda name, *words: slurm.submit(f"--job-name={name}", "--time=10", *words)  # noqa: E731
    work = slurm.folder / "work"
    once = "test -e once && exit 0; touch once; sleep 300"
    memory = """python3 -c 'import time; x = bytearray(60_000_000); time.sleep(2.5)'"""
    steps = slurm.script("steps.sh", "srun true\nsrun sh -c 'exit 7'")
    forgiving = slurm.script("forgiving.sh", "srun sh -c 'exit 4'\nsrun true")
    het = slurm.script("het.sh", "#SBATCH --ntasks=1\n#SBATCH hetjob\n#SBATCH --ntasks=2\nsrun --het-group=0,1 true")
    jobs = {
        "times out": overdue,
        "is cancelled": submit("is cancelled", "--wrap=touch doomed; sleep 300"),
        "is requeued": submit("is requeued", "--requeue", f"--wrap={once}"),
    }
    wait_until(lambda: all((work / name).exists() for name in ("doomed", "once")), "the long jobs run", limit_s=30)
    for name in ("is cancelled", "is requeued"):
        slurm.wait_for_state(jobs[name], "RUNNING")
    slurm.command("scancel", str(jobs["is cancelled"]))
    slurm.command("scontrol", "requeue", str(jobs["is requeued"]))
    jobs |= {
        "completes": submit("completes", "--comment=first", f"--wrap={memory}"),
        "fails": submit("fails", "--wrap=exit 3"),
        "fails in a step": submit("fails in a step", steps),
        "forgives a step": submit("forgives a step", forgiving),
        "is killed": submit("is killed", "--wrap=ulimit -c 0; kill -SEGV $$"),
        "array": submit("array", "--array=0-2", "--wrap=[ $SLURM_ARRAY_TASK_ID = 1 ] && exit 5; exit 0"),
        "het": submit("het", het),
        "a|b": submit("a|b", "--wrap=true"),
        "newlines": submit("newlines", f"--wrap={NEWLINES}"),
        "two\nlines": submit("two\nlines", "--comment=of\nwords", "--wrap=true"),
        "a\x1fb": submit("a\x1fb", "--wrap=true"),
        "forger": submit("forger", f"--wrap=true\n{forged_record()}"),
        "JobID JobIDRaw Cluster JobName": submit("JobID JobIDRaw Cluster JobName", "--wrap=true"),
    }
    # A requeued job waits two minutes before it starts again, unless it is told otherwise; in the second of the requeue itself
    # slurmd would refuse it ("already killed, do not launch batch job").
    requeued = jobs["is requeued"]
    wait_until(lambda: "PENDING" in slurm.command("squeue", "-h", "-o", "%T", "-j", str(requeued)), "it waits again", limit_s=30)
    slurm.command("scontrol", "update", f"jobid={requeued}", "StartTime=now+3")
    ends = {"fails": "FAILED", "fails in a step": "FAILED", "is killed": "FAILED", "forger": "FAILED", "times out": "TIMEOUT"}
    counts = {"array": 2, "het": 2}
    for name, job_id in jobs.items():
        end = "CANCELLED" if name == "is cancelled" else ends.get(name, "COMPLETED")
        slurm.wait_for_state(job_id, end, count=counts.get(name, 1), limit_s=90)
    slurm.wait_for_state(jobs["array"], "FAILED")
    slurm.wait_for_steps(jobs["fails in a step"], 3)
    slurm.wait_for_steps(jobs["forgives a step"], 3)
    return jobs


def yesterday():
    return f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}"


def live_site(folder, **slurm_settings):
    """A site that asks for yesterday and today."""
    settings = {"since": yesterday(), "pause_s": 0.0, "timeout_s": 60.0, **slurm_settings}
    make_site(folder, slurm=settings).close()
    return folder


@pytest.fixture(scope="session")
def taken_in(slurm, played, tmp_path_factory):
    """A site that has read the played jobs once, and the report of that; tests use copies of it."""
    folder = live_site(tmp_path_factory.mktemp("live") / "site")
    return folder, report_of(run(folder, *LIVE, env=slurm.env))


@pytest.fixture
def site(taken_in, tmp_path):
    """A copy of that site, to do with as one likes."""
    return Path(shutil.copytree(taken_in[0], tmp_path / "site"))


def rows_of(folder, job_id=None):
    with open_site(folder) as opened:
        rows = table_of(opened)
    return rows if job_id is None else rows.filter(pl.col("job_id") == job_id)


def cursor_of(folder, name="slurm:local"):
    with open_site(folder) as opened:
        return opened.jobs.cursor(name)


def of_ours(rows, played):
    """The rows of the jobs that this file submitted: the Slurm is shared, and jobs of other files may be under way in it."""
    ids = list(played.values())
    return rows.filter(pl.col("job_id").is_in(ids) | pl.col("het_job_id").is_in(ids))


def one_row(folder, job_id):
    (row,) = rows_of(folder, job_id).to_dicts()
    return row


# Every kind of job


def test_each_job_is_taken_in_once_with_its_state(taken_in, played):
    rows = rows_of(taken_in[0])
    assert rows.height == rows.select(KEY).n_unique()
    single = {name: one_row(taken_in[0], played[name])["state"] for name in ("completes", "fails", "times out", "is cancelled")}
    assert single == {"completes": "COMPLETED", "fails": "FAILED", "times out": "TIMEOUT", "is cancelled": "CANCELLED"}


def test_report_adds_up(taken_in, played):
    report = taken_in[1]
    assert report["kept"] == rows_of(taken_in[0]).height
    taken = sum(report[name] for name in ("kept", "known", "changed", "folded"))  # others' jobs may change between two windows
    assert report["read"] == taken + sum(report["quarantined"].values())
    doubted = of_ours(rows_of(taken_in[0]), played).filter(pl.col("quality").is_not_null())
    assert sum(report["warnings"].values()) >= doubted.height
    both_parts = {(played["het"] + offset, "rss_of_one_task") for offset in (0, 1)}  # their step of several tasks may be sampled
    assert set(doubted.select("job_id", "quality").rows()) <= both_parts


def test_exit_code_and_signal_are_those_of_the_job(taken_in, played):
    codes = {
        name: (row["exit_code"], row["exit_signal"])
        for name in ("completes", "fails", "fails in a step", "is killed")
        for row in [one_row(taken_in[0], played[name])]
    }
    assert codes == {"completes": (0, 0), "fails": (3, 0), "fails in a step": (7, 0), "is killed": (0, 11)}


def test_memory_of_a_step_is_folded_into_its_job(taken_in, played):
    row = one_row(taken_in[0], played["completes"])
    assert 50 * MIB < row["max_rss_bytes"] < 500 * MIB
    assert row["cpu_time_s"] > 0 and row["elapsed_s"] >= 2


def test_job_names_the_step_that_failed(taken_in, played):
    failed = one_row(taken_in[0], played["fails in a step"])
    assert (failed["failed_step"], failed["failed_step_exit_code"]) == ("1", 7)
    forgiven = one_row(taken_in[0], played["forgives a step"])
    assert (forgiven["state"], forgiven["failed_step"], forgiven["failed_step_exit_code"]) == ("COMPLETED", "0", 4)


def test_requeued_job_has_a_row_for_each_run(taken_in, played):
    rows = rows_of(taken_in[0], played["is requeued"]).sort("submit_time")
    assert rows["state"].to_list() == ["REQUEUED", "COMPLETED"]
    assert rows["submit_time"].n_unique() == 2


def test_array_has_a_row_for_each_task(taken_in, played):
    rows = rows_of(taken_in[0], played["array"]).sort("array_task")
    assert rows.select("array_task", "state", "exit_code").rows() == [(0, "COMPLETED", 0), (1, "FAILED", 5), (2, "COMPLETED", 0)]


def test_heterogeneous_job_has_a_row_for_each_component(taken_in, played):
    rows = rows_of(taken_in[0]).filter(pl.col("het_job_id") == played["het"]).sort("het_offset")
    assert rows.select("job_id", "het_offset", "cpus").rows() == [(played["het"], 0, 1), (played["het"] + 1, 1, 2)]


def test_who_cancelled_a_job_is_known(taken_in, played):
    row = one_row(taken_in[0], played["is cancelled"])
    assert row["state_raw"] == f"CANCELLED by {row['cancelled_by']}"


def test_cluster_account_limit_and_times_are_kept(taken_in, played):
    row = one_row(taken_in[0], played["completes"])
    assert (row["cluster"], row["account"], row["time_limit_s"]) == ("petrel", "science", 600.0)
    assert row["submit_time"] <= row["start_time"] < row["end_time"]


@pytest.mark.parametrize("name", ["a|b", "two\nlines", "a\x1fb", "JobID JobIDRaw Cluster JobName"])
def test_name_of_a_job_may_hold_anything(taken_in, played, name):
    row = one_row(taken_in[0], played[name])
    assert (row["job_name"], row["state"]) == (name, "COMPLETED")


def test_command_line_with_newlines_is_kept_whole(taken_in, played):
    assert one_row(taken_in[0], played["newlines"])["submit_line"].endswith(NEWLINES)


def test_user_cannot_forge_a_record_through_the_command_line(taken_in):
    assert rows_of(taken_in[0], FORGED_ID).is_empty()
    assert rows_of(taken_in[0]).filter(pl.col("user") == "mallory").is_empty()


def test_nothing_that_sacct_prints_is_refused(taken_in):
    assert taken_in[1]["quarantined"] == {}, taken_in[1]["examples"]


@pytest.mark.parametrize("name", ["two\nlines", "a\x1fb", "newlines", "JobID JobIDRaw Cluster JobName"])
def test_job_with_an_odd_name_is_read_when_it_is_the_only_one(slurm, played, tmp_path, name):
    folder = live_site(tmp_path / "site", sacct=sacct_that_shows_only(tmp_path, played[name]))
    report = report_of(run_here(folder, *LIVE, env=slurm.env))
    assert (report["kept"], report["quarantined"]) == (1, {})


def sacct_that_shows_only(folder, job_id):
    """The real sacct, asked for a single job."""
    return script(folder / "one-job", f'case "$*" in *helpformat*) exec sacct "$@";; *) exec sacct "$@" --jobs={job_id};; esac')


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


# Again and again


def test_second_run_adds_nothing(slurm, site):
    before = rows_of(site)
    report = report_of(run_here(site, *LIVE, env=slurm.env))
    assert (report["kept"], report["changed"]) == (0, 0)
    assert report["known"] >= before.height
    assert rows_of(site).equals(before)


def test_cursor_moves_to_the_time_of_the_run(slurm, site):
    before, asked = cursor_of(site), datetime.now(UTC).timestamp()
    report_of(run_here(site, *LIVE, env=slurm.env))
    assert before < int(asked) <= cursor_of(site) <= datetime.now(UTC).timestamp()


def test_cursor_is_in_the_commit_of_its_rows(taken_in):
    log = sorted((taken_in[0] / "tables" / "jobs" / "_delta_log").glob("*.json"))
    commits = [[json.loads(line) for line in path.read_text().splitlines()] for path in log]
    with_rows = [commit for commit in commits if any("add" in action for action in commit)]
    assert with_rows
    for commit in with_rows:
        (cursor,) = [action["txn"] for action in commit if "txn" in action]
        assert cursor["appId"] == "slurm:local"
    assert cursor["version"] == cursor_of(taken_in[0])


def test_job_that_ran_at_the_first_reading_has_ended_at_the_second(slurm, site):
    go = slurm.folder / "work" / "go"
    job = slurm.submit("--time=10", "--wrap=while [ ! -e go ]; do sleep 0.1; done; exit 6")
    slurm.wait_for_state(job, "RUNNING")
    read = lambda: report_of(run_here(site, *LIVE, env=slurm.env))  # noqa: E731
    wait_until(lambda: read()["kept"] == 1, "it is read; a window ends before the second that is not over", limit_s=60)
    row = one_row(site, job)
    assert (row["state"], row["end_time"]) == ("RUNNING", None)
    go.touch()
    slurm.wait_for_state(job, "FAILED")
    report = read()
    assert (report["kept"], report["changed"]) == (0, 1)
    row = one_row(site, job)
    assert (row["state"], row["exit_code"]) == ("FAILED", 6) and row["end_time"] is not None


def test_late_correction_in_accounting_is_picked_up(slurm, site, played):
    job = played["fails"]
    slurm.command("sacctmgr", "-i", "modify", "job", "where", f"jobid={job}", "set", "comment=disk was full")
    report = report_of(run_here(site, *LIVE, env=slurm.env))
    assert report["changed"] == 1
    assert one_row(site, job)["extra"]["comment"] == "disk was full"
    assert report_of(run_here(site, *LIVE, env=slurm.env))["changed"] == 0


def test_run_killed_between_windows_gives_the_same_table(slurm, taken_in, played, tmp_path):
    first = one_row(taken_in[0], played["is cancelled"])["submit_time"]
    folders = {name: short_windows(tmp_path / name, since=first) for name in ("whole", "killed")}
    report_of(run_here(folders["whole"], *LIVE, env=slurm.env))
    wanted = rows_of(folders["whole"])
    killed = folders["killed"]
    change_settings(killed, slurm={"sacct": sacct_that_stops_at_the_third_window(tmp_path)})
    process = start(killed, *LIVE, env=slurm.env)
    try:
        wait_until((tmp_path / "stopped").exists, "it asks for the third window", limit_s=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert rows_of(killed).height > 0 and cursor_of(killed) < cursor_of(folders["whole"])
    change_settings(killed, slurm={"sacct": "sacct"})
    report_of(run_here(killed, *LIVE, env=slurm.env))
    assert wanted.height > 15 and rows_of(killed).equals(wanted)


def short_windows(folder, *, since):
    """A site whose cursor stands just before the first job, and whose windows are so short that jobs fall into several."""
    window_s = max(3.0, (datetime.now(UTC) - since).total_seconds() / 5)
    live_site(folder, chunk_days=window_s / 86400, overlap_hours=0.0)
    with open_site(folder) as opened:
        rows = opened.jobs.table.scan().collect()
        opened.jobs.table.append(rows, cursor=Cursor("slurm:local", int(since.timestamp()) - 1))
    return folder


def sacct_that_stops_at_the_third_window(folder):
    """The real sacct, which answers twice; asked a third time it says so and waits for whoever asked to be gone."""
    answered, wait = f"[ $(wc -l < {folder}/asked) -lt 3 ]", "while kill -0 $PPID; do sleep 0.1; done"
    return script(
        folder / "two-windows", f'{_HELP}\necho >> {folder}/asked\n{answered} && exec sacct "$@"\ntouch {folder}/stopped\n{wait}'
    )


# Clusters


def test_clusters_can_be_named(slurm, played, tmp_path):
    slurm.command("sacctmgr", "-i", "add", "cluster", "tern")
    folder = live_site(tmp_path / "site", clusters=["petrel", "tern"])
    report_of(run_here(folder, *LIVE, env=slurm.env))
    assert one_row(folder, played["fails"])["cluster"] == "petrel"
    assert cursor_of(folder, "slurm:petrel") == cursor_of(folder, "slurm:tern")
    assert cursor_of(folder, "slurm:local") is None


@pytest.mark.parametrize("through", ["sacct", "slurmrestd"])
def test_cluster_that_does_not_exist_is_one_clear_line(slurm, played, tmp_path, through):
    address = {"rest_url": slurm.rest_socket()} if through == "slurmrestd" else {}
    folder = live_site(tmp_path / "site", clusters=["puffin"], **address)
    assert "puffin" in complaint_of(run_here(folder, *LIVE, env=slurm.env))
    assert cursor_of(folder, "slurm:puffin") is None


# Text, JSON, slurmrestd


def test_slurmrestd_says_what_sacct_json_says(slurm, played, tmp_path):
    ours = pl.col("job_id").is_in(list(played.values()))  # other files have jobs in the same cluster, which may go on
    rest, json_file = (frame.filter(ours) for frame in (through_rest(slurm, tmp_path), through_json(slurm, tmp_path)))
    assert rest.height and rest.drop("source").equals(json_file.drop("source"))


def test_sacct_text_says_what_slurmrestd_says(slurm, taken_in, played, tmp_path):
    text, rest = rows_of(text_site(slurm, tmp_path)), through_rest(slurm, tmp_path)
    # What a name holds must not matter here: sacct text that a user has made ambiguous is judged above.
    odd = [FORGED_ID, *(played[name] for name in ("two\nlines", "a\x1fb", "forger", "newlines"))]
    ours = pl.col("job_id").is_in([job_id for job_id in played.values() if job_id not in odd])
    text, rest = (comparable(frame.filter(ours)) for frame in (text, rest))
    assert text.select(KEY).equals(rest.select(KEY))
    text, rest = text.with_columns(in_milliseconds(text, cut=False)), rest.with_columns(in_milliseconds(rest, cut=True))
    pairs = ((name, *pair) for name in text.columns for pair in zip(text["job_id"], text[name], rest[name], strict=True))
    assert [(name, job_id, one, other) for name, job_id, one, other in pairs if one != other] == []


def in_milliseconds(frame, *, cut):
    """CPU seconds as whole milliseconds: slurmrestd tells microseconds, and the text of sacct has them cut off, not rounded."""
    thousands = [frame[name] * 1000 for name in _CPU_SECONDS]
    return [((each + 1e-6).floor() if cut else each.round()).cast(pl.Int64) for each in thousands]


# state_raw and cancelled_by: text says `CANCELLED by UID`, JSON names the user. disk_*, uid, gid, req_nodes: not in the JSON.
# exit_code and failed_step*: v0.0.38 says 0 whatever happened. extra and source: whatever else there was.
_DIFFERENT_BY_NATURE = {
    "state_raw", "cancelled_by", "disk_read_bytes", "disk_write_bytes", "uid", "gid", "req_nodes", "exit_code", "exit_signal",
    "failed_step", "failed_step_exit_code", "failed_step_exit_signal", "submit_line", "script_path", "extra", "source",
}  # fmt: skip
_CPU_SECONDS = ("cpu_time_s", "user_cpu_s", "system_cpu_s")


def comparable(frame):
    """The columns that text and JSON share, TRES in one order."""
    return frame.select(
        pl.col(name).str.split(",").list.sort().list.join(",") if name in ("req_tres", "alloc_tres") else pl.col(name)
        for name in JOB_SCHEMA
        if name not in _DIFFERENT_BY_NATURE
    )


def text_site(slurm, folder):
    site = live_site(folder / "text")
    report_of(run_here(site, *LIVE, env=slurm.env))
    return site


def through_rest(slurm, folder):
    site = live_site(folder / "rest", rest_url=slurm.rest_socket())
    report = report_of(run_here(site, *LIVE, env=slurm.env))
    assert report["quarantined"] == {}
    return rows_of(site)


def through_json(slurm, folder, site=None):
    site = site or live_site(folder / "json")
    file = folder / "sacct.json"
    file.write_text(slurm.command("sacct", "--allusers", "--duplicates", f"--starttime={yesterday()}", "--json"))
    report = report_of(run_here(site, "ingest", "jobs", str(file), "--json"))
    assert report["quarantined"] == {}
    return rows_of(site)


def test_json_that_cannot_tell_exit_codes_erases_nothing(slurm, site, played, tmp_path):
    before = one_row(site, played["fails in a step"])
    through_json(slurm, tmp_path, site=site)
    after = one_row(site, played["fails in a step"])
    assert {name for name in VALUES if "exit" in name or "failed" in name if before[name] != after[name]} == set()


def test_row_says_which_columns_its_source_provided(taken_in, played):
    with open_site(taken_in[0]) as opened:
        rows = of_ours(opened.jobs.table.scan().collect(), played)
    assert rows.height >= len(played)
    for row in rows.iter_rows(named=True):
        told = {name for name in VALUES if row["fields"] & FIELD_BIT[name]}
        assert {"submit_line", "extra", "state"} <= told
        # What only steps tell counts as told where it is there.
        assert ("max_rss_bytes" in told) == (row["max_rss_bytes"] is not None)
        assert ("failed_step" in told) == (row["failed_step"] is not None)


def test_slurmrestd_that_is_away_is_one_clear_line(slurm, site, tmp_path):
    before = cursor_of(site)
    change_settings(site, slurm={"rest_url": f"unix://{tmp_path}/nobody.socket"})
    assert "cannot be reached" in complaint_of(run(site, *LIVE, env=slurm.env))  # httpcore forgets to close its socket
    assert cursor_of(site) == before


@pytest.fixture
def token_file(slurm, tmp_path):
    slurm.rest_http()  # skips the test where there is no JWT
    path = tmp_path / "token"
    path.write_text(slurm.token() + "\n")
    path.chmod(0o600)
    return path


def over_http(slurm, folder, token_file):
    return live_site(folder, rest_url=slurm.rest_http(), rest_user="root", rest_token_file=str(token_file))


def test_slurmrestd_over_http_with_a_token_is_read(slurm, played, token_file, tmp_path):
    folder = over_http(slurm, tmp_path / "site", token_file)
    assert report_of(run_here(folder, *LIVE, env=slurm.env))["kept"] >= len(played)
    assert one_row(folder, played["times out"])["state"] == "TIMEOUT"


@pytest.mark.parametrize("damage", ["nonsense", "altered", "missing"])
def test_wrong_token_is_one_clear_line_and_nothing_is_written(slurm, played, token_file, tmp_path, damage):
    token = token_file.read_text().strip()
    token_file.write_text({"nonsense": "nonsense", "altered": token[:-6] + "AAAAAA", "missing": ""}[damage])
    folder = over_http(slurm, tmp_path / "site", token_file)
    line = complaint_of(run_here(folder, *LIVE, env=slurm.env))
    assert "token" in line and token not in line
    assert rows_of(folder).is_empty() and cursor_of(folder) is None


def test_token_file_that_others_can_read_is_refused(slurm, token_file, tmp_path):
    token_file.chmod(0o640)
    folder = over_http(slurm, tmp_path / "site", token_file)
    line = complaint_of(run_here(folder, *LIVE, env=slurm.env))
    assert "can be read by others" in line and "chmod 600" in line and token_file.read_text().strip() not in line
    assert cursor_of(folder) is None


# Everything going wrong: a stand-in for sacct, since the real one cannot be made to do this


_HELP = 'case "$*" in *helpformat*) exec sacct "$@";; esac'
_BROKEN = {
    "there is none": (None, "There is no command"),
    "it hangs": ("sleep 600", "did not answer within 1 s"),
    "it hangs with a child": (f"{_HELP}; sleep 600 & wait", "did not answer within 1 s"),
    "it breaks off": (f'{_HELP}; sacct "$@" | head -n 3; echo "error: slurmdbd: gone" >&2; exit 1', "error: slurmdbd: gone"),
    "it fails without a word": (f"{_HELP}; exit 3", "exit code 3"),
    "it is something else": ("echo Hello", "does not list the fields of sacct"),
}


@pytest.mark.parametrize("problem", _BROKEN)
def test_sacct_that_fails_is_one_clear_line_and_the_cursor_stays(slurm, site, tmp_path, problem):
    text, expected = _BROKEN[problem]
    rows, cursor = rows_of(site), cursor_of(site)
    sacct = script(tmp_path / "sacct", text) if text else str(tmp_path / "nothing")
    change_settings(site, slurm={"sacct": sacct, "timeout_s": 1.0})
    started = datetime.now(UTC)
    assert expected in complaint_of(run_here(site, *LIVE, env=slurm.env))
    assert datetime.now(UTC) - started < timedelta(seconds=30)
    assert cursor_of(site) == cursor and rows_of(site).equals(rows)


def test_sacct_that_may_not_be_run_is_one_clear_line(slurm, site, tmp_path):
    not_ours = tmp_path / "sacct"
    not_ours.write_bytes(b"\x7fELF of another machine")
    not_ours.chmod(0o755)
    change_settings(site, slurm={"sacct": str(not_ours)})
    assert str(not_ours) in complaint_of(run_here(site, *LIVE, env=slurm.env))


def with_wrong_port(slurm, wrong, folder):
    """A slurm.conf by which one of the daemons is away; Slurm's commands try for a second to reach it, not for ten."""
    lines = [*Path(slurm.env["SLURM_CONF"]).read_text().splitlines(), "MessageTimeout=1", ""]
    path = folder / f"{wrong}.conf"
    path.write_text("\n".join(f"{line.partition('=')[0]}=1" if wrong in line else line for line in lines))
    return path


def test_slurmdbd_that_is_away_is_one_clear_line(slurm, site, tmp_path):
    cursor = cursor_of(site)
    elsewhere = with_wrong_port(slurm, "StoragePort", tmp_path)
    assert "sacct failed" in complaint_of(run_here(site, *LIVE, env={**slurm.env, "SLURM_CONF": str(elsewhere)}))
    assert cursor_of(site) == cursor


def test_doctor_says_what_the_live_reader_would_meet(slurm, site, tmp_path):
    """A database that is dead and a controller that answers; it used to read: sacct shows jobs of 0 users."""
    for name, wrong in (("sacct", "StoragePort"), ("squeue", "SlurmctldPort")):
        elsewhere = with_wrong_port(slurm, wrong, tmp_path)
        done = run_here(site, "doctor", "--json", env={**slurm.env, "SLURM_CONF": str(elsewhere)})
        levels = {finding["check"]: finding["level"] for finding in json.loads(done.stdout)["findings"]}
        assert (done.returncode, levels[name]) == (1, "problem"), done.stdout
    healthy = run_here(site, "doctor", "--json", env=slurm.env)
    levels = {finding["check"]: finding["level"] for finding in json.loads(healthy.stdout)["findings"]}
    assert levels["sacct"] == levels["squeue"] == "ok", healthy.stdout


def test_after_a_failure_the_next_run_goes_on(slurm, site):
    change_settings(site, slurm={"sacct": "/nowhere/sacct"})
    complaint_of(run_here(site, *LIVE, env=slurm.env))
    change_settings(site, slurm={"sacct": "sacct"})
    assert report_of(run_here(site, *LIVE, env=slurm.env))["known"] > 0


def test_what_init_prints_on_a_machine_with_slurm_leads_to_an_ingested_site(slurm, played, tmp_path):
    folder = tmp_path / "mysite"
    printed = run_here(folder, "init", str(folder), "--time-zone", "UTC", env=slurm.env)
    assert printed.returncode == 0, printed.stderr
    assert "cluster petrel" in printed.stdout and 'cluster = "petrel"' in (folder / "site.toml").read_text()
    commands = [line.split() for line in printed.stdout.splitlines() if line.strip().startswith("stormpetrel --site")]
    live = next(words for words in commands if "--live" in words)
    change_settings(folder, slurm={"pause_s": 0.0})  # thirty empty days before today
    done = run_here(folder, *live[3:], "--json", env=slurm.env)
    assert report_of(done)["kept"] >= len(set(played.values())) - 1
    healthy = run_here(folder, "doctor", "--json", env=slurm.env)
    levels = {finding["check"]: finding["level"] for finding in json.loads(healthy.stdout)["findings"]}
    assert levels["sacct"] == levels["jobs"] == levels["live"] == "ok"


def test_doctor_tells_a_user_whose_sacct_hides_the_jobs_of_others(slurm, played, tmp_path, monkeypatch):
    """What PrivateData does: sacct, asked for all users, shows one's own."""
    own_only = 'for a in "$@"; do [ "$a" = --allusers ] && set -- "$@" --user=root; done'
    folder = live_site(tmp_path / "site", sacct=script(tmp_path / "sacct", f'{own_only}\nexec {find_program("sacct")} "$@"'))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("getpass.getuser", lambda: "root")
    done = run_here(folder, "doctor", env={**slurm.env, "LOGNAME": "root"})
    assert done.returncode == 1
    assert "PrivateData hides the others" in done.stdout


# --- what is said about real jobs ----------------------------------------------------------------------------------------------


def test_why_tells_what_a_real_job_did(taken_in, played):
    failed = run_here(taken_in[0], "why", str(played["fails"]))
    assert failed.returncode == 0, failed.stderr
    assert "FAILED" in failed.stdout and "exit code 3" in failed.stdout and "general experience" in failed.stdout
    late = report_of(run_here(taken_in[0], "why", str(played["times out"]), "--json"))
    assert late["job"]["state"] == "TIMEOUT" and late["next"]["column"] == "time_limit_s"
    assert late["next"]["proposed"] > late["job"]["time_limit_s"]


def test_a_script_is_read_as_slurm_reads_it(slurm, site):
    from stormpetrel.sources.scripts.job_script import read_job_script

    lines = "#SBATCH -J 'read me'\n#SBATCH --ntasks=2 -N1\n#SBATCH -t 10:30  # minutes\n#SBATCH --mem=100M\n#SBATCH -t 12\n"
    path = slurm.script("read-me.sh", f"{lines}true\n#SBATCH --time=99")
    job_id = slurm.submit(str(path))
    slurm.wait_for_state(job_id, "COMPLETED")

    def taken_in_now():
        report_of(run_here(site, *LIVE, env=slurm.env))
        return rows_of(site, job_id).height == 1

    wait_until(taken_in_now, "the job is taken in", limit_s=60)
    row = one_row(site, job_id)
    request = read_job_script(Path(path))
    for column in ("job_name", "req_cpus", "req_nodes", "time_limit_s", "req_mem_bytes"):
        assert request.columns[column] == row[column], column
    assert any("99" in warning or "after" in warning for warning in request.warnings)
