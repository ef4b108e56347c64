"""The command line as a person or a program uses it: what it prints, how it ends; each group of commands once as a process."""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.builders import SACCT_FIELDS, Job, make_jobs, sacct_line, write_sacct
from tests.parts.command_line import call_main


def run(*arguments, stdin=b"", cwd=None, **environment):
    """A command in this process."""
    return call_main([str(word) for word in arguments], stdin=stdin, cwd=cwd, env=without_ours() | environment)


def run_process(*arguments, stdin=b"", cwd=None, **environment):
    """A command in a process of its own."""
    command = [sys.executable, "-c", "from stormpetrel.faces.cli.main import main; main()", *map(str, arguments)]
    env = without_ours() | environment
    return subprocess.run(command, input=stdin, capture_output=True, env=env, cwd=cwd, timeout=120)


def without_ours():
    """The environment without what names a site."""
    return {key: value for key, value in os.environ.items() if not key.startswith("STORMPETREL")}


def output(*arguments, by=run, **options):
    done = by(*arguments, **options)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def complaint(*arguments, by=run, code=1, **options):
    """The one line that a command ends with; there is never a traceback."""
    done = by(*arguments, **options)
    text = done.stderr.decode()
    assert done.returncode == code, text
    assert "Traceback" not in text
    assert len(text.strip().splitlines()) == 1, text
    return text


@pytest.fixture(scope="module")
def fresh_site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fresh") / "site"
    output("init", folder, "--time-zone", "UTC")
    return folder


@pytest.fixture
def site(fresh_site, tmp_path):
    return shutil.copytree(fresh_site, tmp_path / "site")


def test_init_writes_a_commented_site_and_names_the_next_command(tmp_path):
    text = output("init", tmp_path / "mysite", "--time-zone", "Europe/Berlin", by=run_process)
    assert f"stormpetrel --site {tmp_path / 'mysite'} ingest jobs" in text
    settings = (tmp_path / "mysite" / "site.toml").read_text()
    assert 'time_zone = "Europe/Berlin"' in settings
    assert settings.count("#") > 15


def test_ingest_prints_the_counts_as_json(site, tmp_path):
    path = write_sacct(tmp_path / "a", make_jobs(20, failed=4))
    report = json.loads(output("--site", site, "ingest", "jobs", path, "--json", by=run_process))
    assert {key: report[key] for key in ("read", "kept", "known", "changed", "folded", "quarantined")} == {
        "read": 20,
        "kept": 20,
        "known": 0,
        "changed": 0,
        "folded": 0,
        "quarantined": {},
    }
    assert report["states"] == {"COMPLETED": 16, "FAILED": 4}
    assert report["first"].startswith("2024-03-04T08:00:00")
    assert report["seconds"] > 0
    again = json.loads(output("--site", site, "ingest", "jobs", path, "--json"))
    assert (again["kept"], again["known"], again["states"]) == (0, 20, report["states"])


def test_ingest_prints_a_report_that_a_person_reads(site, tmp_path):
    path = write_sacct(tmp_path / "a", make_jobs(3))
    path.write_text(path.read_text() + "1|2\n")
    text = output("ingest", "jobs", path, STORMPETREL_SITE=str(site))
    assert "4 records read" in text and "3 new" in text
    assert "quarantine: wrong_column_count (1)" in text
    assert "line 5: the line has 2 columns, not 17" in text


def test_ingest_tells_what_it_could_not_read_and_kept_the_jobs_without(site, tmp_path):
    path = write_sacct(tmp_path / "a", make_jobs(3))
    path.write_text(path.read_text().replace("01:00:00", "\x1b[31mone hour"))
    text = output("--site", site, "ingest", "jobs", path)
    assert "3 new" in text and "0 in quarantine" in text
    assert "not read, kept without it: time_limit_s (3 of 3)" in text
    assert "line 2: job 1000, ?[31mone hour" in text


def test_what_a_log_says_cannot_command_the_terminal(site, tmp_path):
    evil = "\x1b]0;owned\x07\x1b[2J[bold]x[/bold]"
    path = tmp_path / "a"
    path.write_text(f"{SACCT_FIELDS}\n{sacct_line(Job(name=evil))}\n{evil}|damaged\n")
    text = output("--site", site, "ingest", "jobs", path)
    rows = output("--site", site, "sql", "select job_name from jobs")
    for printed in (text, rows):
        assert "\x1b" not in printed and "\x07" not in printed
    assert "\\x1b" in text and "[bold]" in rows


def test_standard_input_is_a_source(site, tmp_path):
    text = write_sacct(tmp_path / "a", make_jobs(7)).read_bytes()
    report = json.loads(output("--site", site, "ingest", "jobs", "-", "--format", "sacct", "--json", stdin=text, by=run_process))
    assert report["kept"] == 7


def test_several_files_of_several_formats_in_one_go(site, tmp_path):
    from tests.builders import DOCUMENTS

    names = ["sacct", "swf", "sacct-json", "pbs", "lsf", "condor-history", "condor-events", "lumos"]
    paths = [DOCUMENTS[name](make_jobs(5, first_id=100 * n + 1)).write(tmp_path / name) for n, name in enumerate(names)]
    report = json.loads(output("--site", site, "ingest", "jobs", *paths, "--json"))
    assert report["kept"] == 40
    assert report["quarantined"] == {}


def test_sql_answers_in_a_table_and_in_json(site, tmp_path):
    output("--site", site, "ingest", "jobs", write_sacct(tmp_path / "a", make_jobs(20, failed=4)))
    query = "select state, count(*) n from jobs group by state order by n desc"
    assert json.loads(output("--site", site, "sql", query, "--json", by=run_process)) == [
        {"state": "COMPLETED", "n": 16},
        {"state": "FAILED", "n": 4},
    ]
    assert "COMPLETED" in output("--site", site, "sql", query)


def test_the_store_is_looked_after(site, tmp_path):
    output("--site", site, "ingest", "jobs", write_sacct(tmp_path / "a", make_jobs(20)))
    assert "files became" in output("--site", site, "store", "compact", by=run_process)
    output("--site", site, "store", "backup", tmp_path / "b.tar")
    assert "20 jobs" in output("--site", tmp_path / "copy", "store", "restore", tmp_path / "b.tar")
    assert json.loads(output("--site", site, "store", "forget", "user1", "--yes", "--json"))["deleted"] == 4
    assert json.loads(output("--site", site, "store", "retain", "--days", "1", "--json")) == {"deleted": 16}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["ingest", "jobs", "{missing}"], "There is no file"),
        (["ingest", "jobs", "{empty}"], "is empty"),
        (["ingest", "jobs", "{binary}"], "was not recognised"),
        (["ingest", "jobs", "{log}", "--format", "sacct", "--fields", "JobID,State"], "2 fields were named"),
        (["ingest", "jobs", "{folder}"], "is a folder"),
        (["ingest", "jobs", "{log}", "--format", "{missing}.toml"], "There is no column map"),
        (["store", "restore", "{log}"], "is not empty"),
        (["store", "retain"], "how long"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_one_or_two(site, tmp_path, arguments, says):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 100)
    (tmp_path / "folder").mkdir()
    write_sacct(tmp_path / "log", make_jobs(2))
    filled = [
        word.format(
            missing=tmp_path / "missing",
            empty=tmp_path / "empty",
            binary=tmp_path / "binary",
            log=tmp_path / "log",
            folder=tmp_path / "folder",
        )
        for word in arguments
    ]
    done = run("--site", site, *filled)
    text = done.stderr.decode()
    assert done.returncode in (1, 2)
    assert says in text and "Traceback" not in text
    assert len(text.strip().splitlines()) == 1


def test_on_a_machine_with_nothing_but_a_sacct_file_what_init_prints_leads_to_an_ingested_site(tmp_path):
    log = write_sacct(tmp_path / "jobs.txt", make_jobs(40, failed=5))
    bare = {"PATH": str(tmp_path / "nothing")}  # no sacct, no scontrol, no HTCondor
    printed = output("init", tmp_path / "mysite", **bare)
    commands = [line.strip().partition("#")[0] for line in printed.splitlines() if line.strip().startswith("stormpetrel ")]
    assert not any("--live" in command for command in commands), "there is no Slurm here to read from"
    read = next(command for command in commands if "ingest jobs FILE" in command).replace("FILE", str(log))
    assert "40 new" in output(*shlex.split(read)[1:], **bare)
    check = next(command for command in commands if command.rstrip().endswith("doctor"))
    assert "40 jobs" in output(*shlex.split(check)[1:], **bare)
    fields = next(line for line in printed.splitlines() if "sacct -a" in line).split("-o ")[1].split(" ")[0].split(",")
    assert {"JobID", "Submit", "State", "MaxRSS"} <= set(fields)


def test_wrong_usage_says_what_to_do_and_ends_with_two(site, tmp_path):
    assert "Did you mean 'sacct'" in complaint(
        "--site", site, "ingest", "jobs", write_sacct(tmp_path / "a", make_jobs(1)), "--format", "sact", code=2, by=run_process
    )
    assert "Add --site DIR" in complaint("ingest", "jobs", "x", code=2)
    assert "and not both" in complaint("--site", site, "ingest", "jobs", code=2)
    assert "does not work" in complaint("--site", site, "sql", "select nothing from nowhere", code=2)
    assert "did you mean 'Europe/Berlin'" in complaint("init", tmp_path / "new", "--time-zone", "Europe/Berln")
    assert not (tmp_path / "new").exists()


def test_a_pipe_that_closes_early_is_no_error(site, tmp_path):
    output("--site", site, "ingest", "jobs", write_sacct(tmp_path / "a", make_jobs(500)))
    program = f"{sys.executable} -c 'from stormpetrel.faces.cli.main import main; main()'"
    command = f"{program} --site {site} sql 'select job_name from jobs' | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, timeout=60)
    assert b"Traceback" not in done.stderr


def test_the_site_may_be_named_before_or_after_the_command(site, tmp_path):
    path = write_sacct(tmp_path / "a", make_jobs(3))
    assert json.loads(output("ingest", "jobs", path, "--json", "--site", site))["kept"] == 3
    assert json.loads(output("ingest", "jobs", f"--site={site}", path, "--json"))["known"] == 3
    assert run("sql", "select 1", "--site").returncode == 2


def test_inside_a_site_it_need_not_be_named(site):
    done = run("sql", "select count(*) n from jobs", "--json", cwd=site)
    assert json.loads(done.stdout) == [{"n": 0}]


@pytest.mark.parametrize("name", ["my site", "süß#1", "what?", "a:b", "it's"])
def test_a_site_may_be_called_anything_reasonable(tmp_path, name):
    path = write_sacct(tmp_path / "a", make_jobs(5))
    output("init", name, cwd=tmp_path)
    for _ in range(2):
        output("--site", name, "ingest", "jobs", path, cwd=tmp_path)
    assert json.loads(output("--site", name, "sql", "select count(*) n from jobs", "--json", cwd=tmp_path)) == [{"n": 5}]
    output("--site", name, "store", "compact", cwd=tmp_path)
    output("--site", name, "store", "backup", "b.tar", cwd=tmp_path)
    assert "5 jobs" in output("--site", "copy", "store", "restore", "b.tar", cwd=tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted({"a", "b.tar", "copy", name})


@pytest.mark.parametrize("name", ["z%20b", "z[x]"])
def test_a_site_that_delta_lake_could_not_open_is_refused_and_nothing_is_left(tmp_path, name):
    assert "choose another folder" in complaint("init", tmp_path / name)
    assert not (tmp_path / name).exists()


def test_one_bad_file_does_not_keep_the_others_out(site, tmp_path):
    good, empty = write_sacct(tmp_path / "a", make_jobs(5)), tmp_path / "empty"
    empty.write_bytes(b"")
    done = run("--site", site, "ingest", "jobs", empty, good, "--json")
    assert done.returncode == 1 and b"is empty" in done.stderr
    assert json.loads(done.stdout)["kept"] == 5


def test_a_pipe_is_a_file_that_is_read_once(site, tmp_path):
    path = write_sacct(tmp_path / "a", make_jobs(5))
    program = f"{sys.executable} -c 'from stormpetrel.faces.cli.main import main; main()' --site {site} ingest jobs --json"
    done = subprocess.run(["bash", "-c", f"{program} --format sacct <(cat {path})"], capture_output=True, timeout=60)
    assert json.loads(done.stdout)["kept"] == 5
    packed = subprocess.run(["bash", "-c", f"gzip -c {path} | {program} --format sacct -"], capture_output=True, timeout=60)
    assert json.loads(packed.stdout)["known"] == 5


def test_the_demo_never_pours_its_jobs_into_a_real_site(site):
    assert "is a real site" in complaint("demo", site, code=2, by=run_process)


def test_sql_changes_nothing_and_says_when_it_stops(site, tmp_path):
    output("--site", site, "ingest", "jobs", write_sacct(tmp_path / "a", make_jobs(30)))
    assert "Only SELECT and WITH queries" in complaint("--site", site, "sql", "delete from jobs", code=2)
    done = run("--site", site, "sql", "select job_id from jobs", "--limit", "7")
    assert len(done.stdout.splitlines()) == 8 and b"first 7 rows" in done.stderr
    assert len(json.loads(output("--site", site, "sql", "select * from jobs", "--json"))) == 30


def test_a_terminal_without_our_letters_is_no_reason_to_fail(site, tmp_path):
    path = write_sacct(tmp_path / "a", make_jobs(3))
    letters = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    assert "3 new" in output("--site", site, "ingest", "jobs", path, by=run_process, **letters)


def test_an_interrupt_says_that_nothing_is_lost(site, tmp_path):
    # What a shell starts in the background ignores Ctrl-C, and so would these tests' children there: this one listens.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "from stormpetrel.faces.cli.main import main; main()"
    words = [sys.executable, "-c", code, "--site", str(site), "ingest", "jobs"]
    with subprocess.Popen([*words, "-", "--format", "sacct"], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdin.write((SACCT_FIELDS + "\n" + sacct_line(Job()) + "\n").encode())
        process.stdin.flush()
        _wait_for(lambda: _has_open(process.pid, "state.db-wal"))  # it is at work, and listens
        process.send_signal(signal.SIGINT)
        process.stdin.close()
        text = process.stderr.read().decode()
        assert process.wait(timeout=60) == 130, text
    assert "run the same command again" in text and "Traceback" not in text


def test_an_interrupt_that_a_library_made_an_error_of_is_one_all_the_same():
    from stormpetrel.errors import StoreError
    from stormpetrel.faces.cli.main import _was_interrupted

    translated = StoreError("The table cannot be read.")
    translated.__context__ = KeyboardInterrupt()
    assert _was_interrupted(translated)
    assert _was_interrupted(RuntimeError("a callback raised KeyboardInterrupt"))
    assert not _was_interrupted(StoreError("The table cannot be read."))


def _has_open(pid: int, name: str) -> bool:
    """Whether a process holds a file of this name."""
    with contextlib.suppress(OSError):
        return any(str(link.readlink()).endswith(name) for link in Path(f"/proc/{pid}/fd").iterdir())
    return False


def _wait_for(condition, limit_s=30):
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_what_nobody_foresaw_is_one_line_too(site):
    (site / "state.db").write_bytes(b"this is no database" * 100)
    assert "stormpetrel:" in complaint("--site", site, "sql", "select 1", by=run_process)


def test_debug_shows_the_trace(tmp_path):
    done = run_process("--debug", "--site", tmp_path / "nothing", "sql", "select 1")
    assert b"Traceback" in done.stderr
