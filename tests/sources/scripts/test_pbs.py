"""Job scripts of PBS and Torque: chunks, nodes and totals, and changes in the form the script uses."""

from __future__ import annotations

import pytest

from stormpetrel.sources.scripts.job_script import JobRequest, change_line, parse_job_script
from tests.sources.scripts.test_job_script import GIB, HOUR, asked, pbs


@pytest.mark.parametrize(
    ("lines", "columns"),
    [
        (["-l select=2:ncpus=16:mem=32gb,walltime=04:00:00"],
         {"req_nodes": 2, "req_cpus": 32, "req_mem_bytes": 64 * GIB, "time_limit_s": 4 * HOUR}),
        (["-l select=2:ncpus=4:ngpus=1+1:ncpus=8:mem=1gb"],
         {"req_nodes": 3, "req_cpus": 16, "req_gpus": 2, "req_mem_bytes": GIB}),
        (["-l select=ncpus=4"], {"req_nodes": 1, "req_cpus": 4}),
        (["-l nodes=2:ppn=16"], {"req_nodes": 2, "req_cpus": 32}),
        (["-l nodes=n7:ppn=4+2:fast:ppn=8:gpus=1"], {"req_nodes": 3, "req_cpus": 20, "req_gpus": 2}),
        (["-l nodes=2:ppn=4", "-l pmem=2gb"], {"req_nodes": 2, "req_cpus": 8, "req_mem_bytes": 16 * GIB}),
        (["-l ncpus=8,mem=4gb"], {"req_cpus": 8, "req_mem_bytes": 4 * GIB}),
        (["-lwalltime=3600"], {"time_limit_s": HOUR}),
        (["-l walltime=1:00:00", "-l walltime=2:00:00"], {"time_limit_s": 2 * HOUR}),
        (["-N fit -q work@server -A lab"], {"job_name": "fit", "partition": "work", "account": "lab"}),
        (["-P project"], {"account": "project"}),
        (["-J 1-10:2"], {"array_tasks": 5}),
        (["-t 0-9%2"], {"array_tasks": 10}),
        ([r"-j oe -V -m abe -N a\ b"], {"job_name": "a b"}),
        (["-l walltime=1:00:00 # an hour"], {"time_limit_s": HOUR}),
    ],
)  # fmt: skip
def test_pbs_lines_are_read(lines: list[str], columns: dict[str, object]) -> None:
    request = pbs(*lines)
    assert (request.kind, asked(request), request.warnings) == ("pbs", columns, ())


@pytest.mark.parametrize(
    ("lines", "columns", "words"),
    [
        (["-l walltime=long -q a"], {"partition": "a"}, "-l walltime long cannot be read"),
        (["-l select=$N:ncpus=4"], {}, "variables are not expanded"),
        (["-l select=2:ncpus=4:mem=much"], {"req_nodes": 2, "req_cpus": 8}, "cannot be read"),
        (["-l warp=9,ncpus=2"], {"req_cpus": 2}, "unknown resource warp"),
        (["-l ncpus"], {}, "has no value"),
        (["-Y -q a"], {"partition": "a"}, "unknown option -Y"),
        (["junk"], {}, "'junk' is no option"),
        (["-q"], {}, "-q has no value"),
        (["-N 'open"], {}, "is not closed"),
    ],
)
def test_what_pbs_would_stumble_over_is_said_with_its_line(lines: list[str], columns: dict[str, object], words: str) -> None:
    request = pbs(*lines)
    assert asked(request) == columns
    assert any(words in warning and warning.startswith("Line 2: ") for warning in request.warnings), request.warnings


def test_pbs_directives_after_the_first_command_are_called_ignored() -> None:
    request = parse_job_script("#PBS -q a\ncd work\n#PBS -l ncpus=4\n", name="job.pbs")
    assert asked(request) == {"partition": "a"}
    assert "IGNORED by PBS" in request.warnings[0]


@pytest.mark.parametrize(
    ("request_", "column", "value", "line"),
    [
        (pbs("-l select=2:ncpus=16:mem=32gb,walltime=1:00:00"), "time_limit_s", 4 * HOUR, "#PBS -l walltime=04:00:00"),
        (pbs("-l select=2:ncpus=16:mem=32gb"), "req_mem_bytes", 32 * GIB, "#PBS -l select=2:ncpus=16:mem=16gb"),
        (pbs("-l select=2:ncpus=16"), "req_mem_bytes", 32 * GIB, "#PBS -l select=2:ncpus=16:mem=16gb"),
        (pbs("-l select=1:ncpus=4:mem=1gb+2:ncpus=2:mem=2gb"), "req_mem_bytes", 10 * GIB,
         "#PBS -l select=1:ncpus=4:mem=2gb+2:ncpus=2:mem=4gb"),
        (pbs("-l nodes=2:ppn=16"), "req_mem_bytes", 16 * GIB, "#PBS -l mem=16gb"),
        (pbs("-l nodes=2:ppn=4,pmem=1gb"), "req_mem_bytes", 16 * GIB, "#PBS -l pmem=2gb"),
        (pbs("-l select=2:ncpus=16:mem=1gb"), "req_cpus", 64, "#PBS -l select=2:ncpus=32:mem=1gb"),
        (pbs("-l nodes=n7:ppn=4+2:fast:ppn=8"), "req_cpus", 40, "#PBS -l nodes=n7:ppn=8+2:fast:ppn=16"),
        (pbs("-l nodes=2:ppn=4"), "req_gpus", 2, "#PBS -l nodes=2:ppn=4:gpus=1"),
        (pbs("-l ncpus=4"), "req_cpus", 8, "#PBS -l ncpus=8"),
        (pbs("-l select=2:ncpus=4"), "req_nodes", 4, "#PBS -l select=4:ncpus=4"),
        (pbs(), "req_nodes", 4, "#PBS -l select=4"),
        (pbs("-P x"), "account", "lab", "#PBS -P lab"),
    ],
)  # fmt: skip
def test_a_change_is_written_in_the_script_s_own_form(request_: JobRequest, column: str, value: object, line: str) -> None:
    assert change_line(request_, column, value) == line
