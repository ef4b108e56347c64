"""Job scripts of LSF: limits, slots and requirements, and changes in the form the script uses."""

from __future__ import annotations

import pytest

from stormpetrel.errors import UsageError
from stormpetrel.sources.scripts.job_script import JobRequest, change_line, parse_job_script
from tests.builders import T0
from tests.sources.scripts.test_job_script import GIB, HOUR, asked

MINUTE = 60.0


def lsf(*lines: str) -> JobRequest:
    return parse_job_script(
        "\n".join(["#!/bin/bash", *(f"#BSUB {line}" for line in lines), "./fit", ""]), name="job.sh", kind="lsf"
    )


def named(columns: dict[str, object]) -> dict[str, object]:
    """The columns with the name that a job without one is given."""
    return {"job_name": "fit", **columns}


@pytest.mark.parametrize(
    ("lines", "columns"),
    [
        (["-n 32", '-R "span[ptile=16] rusage[mem=4GB]"', "-W 12:00"],
         {"req_cpus": 32, "req_nodes": 2, "req_mem_bytes": 8 * GIB, "time_limit_s": 12 * HOUR}),
        (["-n 4", '-R "rusage[mem=2048]"', '-R "span[hosts=1]"'], {"req_cpus": 4, "req_nodes": 1, "req_mem_bytes": 2 * GIB}),
        (["-n 8 -R 'rusage[mem=1G/task]'"], {"req_cpus": 8, "req_mem_bytes": 8 * GIB}),
        (["-W 90"], {"time_limit_s": 90 * MINUTE}),
        (["-W 1:30/hostA"], {"time_limit_s": 90 * MINUTE}),
        (["-W 10", "-W 20"], {"time_limit_s": 20 * MINUTE}),
        (["-n 4,16"], {"req_cpus": 4}),
        (["-n4 -W30"], {"req_cpus": 4, "time_limit_s": 30 * MINUTE}),
        (["-nnodes 3"], {"req_nodes": 3}),
        (["-M 4GB"], {"req_mem_bytes": 4 * GIB}),
        (["-M 8GB", '-R "rusage[mem=2GB]"'], {"req_mem_bytes": 2 * GIB}),
        (['-gpu "num=2:mode=exclusive_process"', '-R "span[hosts=1]"'], {"req_gpus": 2, "req_nodes": 1}),
        (["-gpu num=1/task -n 4"], {"req_gpus": 4, "req_cpus": 4}),
        (['-R "rusage[ngpus_excl_p=2]"'], {"req_gpus": 2}),
        (["-gpu -"], {"req_gpus": 1}),
        (["-J align -q normal -P lab -sla gold -cwd /scratch"],
         {"job_name": "align", "partition": "normal", "account": "lab", "qos": "gold", "work_dir": "/scratch"}),
        (['-J "align[1-10:2]%3"'], {"job_name": "align", "array_tasks": 5}),
        (['-q "short long"'], {"partition": "short"}),
        (["-x -N -B -u ada@example.org -o %J.out -w done(12)"], {"exclusive": True}),
        (["-W 12:00               # wall-clock time (hrs:mins)"], {"time_limit_s": 12 * HOUR}),
        (['-R "select[mem>8000] order[mem]"'], {}),
    ],
)  # fmt: skip
def test_bsub_lines_are_read(lines: list[str], columns: dict[str, object]) -> None:
    request = lsf(*lines)
    assert (request.kind, asked(request), request.warnings) == ("lsf", named(columns), ())


@pytest.mark.parametrize(
    ("lines", "columns", "words"),
    [
        (["-W long -q a"], {"partition": "a"}, "-W long cannot be read"),
        (["-W $HOURS"], {}, "variables are not expanded"),
        (["-n 0"], {}, "cannot be read"),
        (["-M 4000"], {}, "LSF_UNIT_FOR_LIMITS"),
        (["-M much"], {}, "cannot be read"),
        (['-R "rusage[mem=much]"'], {}, "cannot be read"),
        (["-gpu num=many"], {}, "cannot be read"),
        (["-Y -q a"], {"partition": "a"}, "unknown option -Y"),
        (["junk"], {}, "'junk' is no option"),
        (["-q"], {}, "-q has no value"),
        (["-J 'open"], {}, "is not closed"),
        (['-J "a[one-two]"'], {"job_name": "a"}, "cannot be read"),
    ],
)
def test_what_bsub_would_stumble_over_is_said_with_its_line(lines: list[str], columns: dict[str, object], words: str) -> None:
    request = lsf(*lines)
    assert asked(request) == named(columns)
    assert any(words in warning and warning.startswith("Line 2: ") for warning in request.warnings), request.warnings


def test_script_without_directives_says_so() -> None:
    assert parse_job_script("./fit\n", name="job.lsf").warnings == ("no #BSUB lines: the site's defaults apply",)


def test_kind_is_told_from_the_lines_the_ending_or_by_hand() -> None:
    kinds = [
        parse_job_script("#!/bin/sh\n#BSUB -n 4\n", name="a.sh").kind,
        parse_job_script("./fit\n", name="a.bsub").kind,
        parse_job_script("#!/bin/sh\n", name="a.sh", kind="lsf").kind,
    ]
    assert kinds == ["lsf"] * 3


def test_row_has_one_slot_by_default_and_the_name_of_its_program() -> None:
    row = lsf().as_frame(user="ada", submit_time=T0, cluster="c").row(0, named=True)
    assert (row["req_cpus"], row["req_nodes"], row["job_name"]) == (1, None, "fit")


@pytest.mark.parametrize(
    ("lines", "column", "value", "line"),
    [
        ([], "time_limit_s", 5 * HOUR + 1, "#BSUB -W 5:01"),
        ([], "req_mem_bytes", 8 * GIB, '#BSUB -R "rusage[mem=8GB]"'),
        (['-R "span[ptile=2] rusage[mem=4GB]"', "-n 4"], "req_mem_bytes", 16 * GIB, '#BSUB -R "span[ptile=2] rusage[mem=8GB]"'),
        (["-n 4 -R 'rusage[mem=1G/task:tmp=5]'"], "req_mem_bytes", 8 * GIB, '#BSUB -R "rusage[mem=2GB/task:tmp=5]"'),
        (["-R rusage[mem=100/job]"], "req_mem_bytes", GIB, '#BSUB -R "rusage[mem=1GB/job]"'),
        (["-M 4GB"], "req_mem_bytes", 8 * GIB, "#BSUB -M 8GB"),
        (["-M 4GB", '-R "rusage[mem=4GB]"'], "req_mem_bytes", 8 * GIB, '#BSUB -M 8GB -R "rusage[mem=8GB]"'),
        (["-n 2"], "req_cpus", 8, "#BSUB -n 8"),
        (["-n 32"], "req_nodes", 2, '#BSUB -R "span[ptile=16]"'),
        (["-n 32"], "req_nodes", 1, '#BSUB -R "span[hosts=1]"'),
        (["-n 4"], "req_gpus", 2, '#BSUB -gpu "num=2"'),
        ([], "partition", "long", "#BSUB -q long"),
        ([], "job_name", "two words", '#BSUB -J "two words"'),
    ],
)
def test_change_is_written_in_the_form_of_the_script(lines: list[str], column: str, value: object, line: str) -> None:
    assert change_line(lsf(*lines), column, value) == line


@pytest.mark.parametrize(
    ("kept", "changed", "column", "value"),
    [
        ("-n 4", '-R "span[ptile=2] rusage[mem=4GB]"', "req_mem_bytes", 16 * GIB),
        ("-n 4", "-R 'rusage[mem=1G/task]'", "req_mem_bytes", 12 * GIB),
        ("-n 4", "-W 10", "time_limit_s", 3 * HOUR),
        ("-n 32", "-x", "req_nodes", 4),
        ('-R "span[hosts=1]"', "-gpu num=1", "req_gpus", 4),
    ],
)
def test_written_change_is_read_back_as_the_value(kept: str, changed: str, column: str, value: object) -> None:
    written = change_line(lsf(kept, changed), column, value).removeprefix("#BSUB ")
    assert lsf(kept, written).columns[column] == value


def test_column_that_no_line_sets_is_refused() -> None:
    with pytest.raises(UsageError, match="lsf script"):
        change_line(lsf(), "max_rss_bytes", 5)


def test_hostile_requirement_is_read_in_linear_time() -> None:
    assert lsf("-R " + "rusage[mem=" * 20_000, "-J " + "[" * 100_000, "-gpu " + "num=" * 20_000).kind == "lsf"
