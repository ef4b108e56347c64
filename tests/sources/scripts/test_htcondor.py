"""Submit descriptions of HTCondor: commands, macros and queue statements, and changes under their names."""

from __future__ import annotations

import time

import pytest

from stormpetrel.sources.scripts.job_script import JobRequest, change_line, parse_job_script
from tests.sources.scripts.test_job_script import GIB, HOUR, asked, condor


@pytest.mark.parametrize(
    ("lines", "columns"),
    [
        (["request_cpus = 4", "request_memory = 8 GB", "request_gpus=1"],
         {"req_cpus": 4, "req_mem_bytes": 8 * GIB, "req_gpus": 1}),
        (["Request_Memory = 2048"], {"req_mem_bytes": 2 * GIB}),
        (["RequestMemory = 1.5G"], {"req_mem_bytes": GIB * 3 // 2}),
        (["request_gpus = 0"], {"req_gpus": 0}),
        (["request_disk = 1024"], {"req_disk_bytes": 1024**2}),
        (["+MaxRuntime = 4 * 60 * 60"], {"time_limit_s": 4 * HOUR}),
        (["+MaxWallTime = 90"], {"time_limit_s": 1.5 * HOUR}),
        (["My.MaxRuntime = 60"], {"time_limit_s": 60.0}),
        (['+JobFlavour = "longlunch"'], {"time_limit_s": 2 * HOUR}),
        (["allowed_job_duration = 3600"], {"time_limit_s": HOUR}),
        (["initialdir = runs/a", "accounting_group = physics", "batch_name = scan"],
         {"work_dir": "runs/a", "account": "physics", "job_name": "scan"}),
        (["gb = 4", "request_memory = $(gb) GB"], {"req_mem_bytes": 4 * GIB}),
        (["request_memory = $(GB:2) GB"], {"req_mem_bytes": 2 * GIB}),
        (["base = /data", "dir = $(base)/run", "initialdir = $(dir)"], {"work_dir": "/data/run"}),
        (["d = /a", "d = $(d)/b", "initialdir = $(d)"], {"work_dir": "/a/b"}),
        (["request_memory = \\", "  4 GB"], {"req_mem_bytes": 4 * GIB}),
        (["# request_cpus = 9", "request_cpus = 2"], {"req_cpus": 2}),
        (["universe = vanilla", "log = a.log", "transfer_input_files = x"], {}),
    ],
)  # fmt: skip
def test_submit_commands_are_read(lines: list[str], columns: dict[str, object]) -> None:
    request = condor(*lines)
    assert (request.kind, asked(request), request.warnings) == ("condor", columns, ())
    assert request.columns["script_path"] == "fit.sh"


@pytest.mark.parametrize(
    ("queue", "tasks"),
    [
        ("queue 50", 50),
        ("Queue", None),
        ("queue 1", None),
        ("queue x in (a, b c)", 3),
        ("queue 2 in (a b)", 4),
        ("queue $(n)", 7),
    ],
)
def test_queue_says_how_many_jobs(queue: str, tasks: int | None) -> None:
    assert condor("n = 7", "arguments = $(n)", queue=queue).columns.get("array_tasks") == tasks


@pytest.mark.parametrize(
    ("lines", "columns", "words"),
    [
        (["batch_name = run_$(Cluster)"], {}, "its macros are not simple"),
        (["initialdir = $ENV(HOME)"], {}, "its macros are not simple"),
        (["a = $(b)", "b = $(a)", "initialdir = $(a)"], {}, "its macros are not simple"),
        (["request_memory = ifThenElse(x, 1, 2)"], {}, "cannot be read"),
        (["request_memry = 4 GB"], {}, "unknown option request_memry"),
        (["include : other.sub"], {}, "other files are not read"),
        (["if version > 8", "request_cpus = 64", "endif"], {}, "not looked at"),
        (["what is this"], {}, "is no assignment"),
    ],
)
def test_what_cannot_be_known_of_a_submit_file_is_left_out_and_said(
    lines: list[str], columns: dict[str, object], words: str
) -> None:
    request = condor(*lines)
    assert asked(request) == columns
    assert any(words in warning for warning in request.warnings), request.warnings


@pytest.mark.parametrize("queue", ["queue files from list.txt", "queue a from (\n1\n2\n)", "queue matching *.dat"])
def test_a_queue_that_depends_on_other_things_is_said_to_be_unknown(queue: str) -> None:
    request = condor(queue=queue)
    assert "array_tasks" not in request.columns
    assert len(request.warnings) == 1 and "not known from the file" in request.warnings[0]


def test_only_the_first_queue_counts() -> None:
    request = condor("request_cpus = 2", queue="queue 3\nrequest_cpus = 8\nqueue 5")
    assert asked(request) == {"req_cpus": 2, "array_tasks": 3}
    assert "another queue" in request.warnings[0]


def test_a_submit_file_without_queue_is_warned_of() -> None:
    request = parse_job_script("executable = a\nrequest_cpus = 2\n", name="a.sub")
    assert request.kind == "condor" and "no queue" in request.warnings[0]


def test_macros_that_multiply_do_not_fill_the_memory() -> None:
    doubling = [f"x{n} = $(x{n - 1})$(x{n - 1})" for n in range(1, 40)]
    begun = time.monotonic()
    request = condor("x0 = lol", *doubling, "initialdir = $(x39)")
    assert time.monotonic() - begun < 5
    assert "work_dir" not in request.columns


@pytest.mark.parametrize(
    ("request_", "column", "value", "line"),
    [
        (condor("request_memory = 8 GB"), "req_mem_bytes", 16 * GIB, "request_memory = 16 GB"),
        (condor("RequestMemory = 100"), "req_mem_bytes", 1536 * 1024**2, "RequestMemory = 1536 MB"),
        (condor("+MaxRuntime = 60"), "time_limit_s", 4 * HOUR, "+MaxRuntime = 14400"),
        (condor("+MaxWallTime = 60"), "time_limit_s", 4 * HOUR, "+MaxWallTime = 240"),
        (condor('+JobFlavour = "espresso"'), "time_limit_s", 4 * HOUR, '+JobFlavour = "workday"'),
        (condor(), "time_limit_s", 60, "allowed_job_duration = 60"),
        (condor(), "req_cpus", 2, "request_cpus = 2"),
        (condor(queue="queue 10"), "array_tasks", 5, "queue 5"),
        (condor('+ProjectName = "a"'), "account", "lab", '+ProjectName = "lab"'),
    ],
)  # fmt: skip
def test_a_change_is_written_in_the_script_s_own_form(request_: JobRequest, column: str, value: object, line: str) -> None:
    assert change_line(request_, column, value) == line
