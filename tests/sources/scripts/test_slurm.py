"""Batch scripts of Slurm: `#SBATCH` lines as sbatch reads them, and changes in its words."""

from __future__ import annotations

import pytest

from stormpetrel.errors import UsageError
from stormpetrel.sources.scripts.job_script import JobRequest, change_line, parse_job_script
from tests.sources.scripts.test_job_script import GIB, HOUR, asked, pbs, slurm


@pytest.mark.parametrize(
    ("lines", "columns"),
    [
        (["--time=10"], {"time_limit_s": 600.0}),
        (["-t 10:30"], {"time_limit_s": 660.0}),  # Slurm counts in minutes
        (["-t 1:00:00"], {"time_limit_s": HOUR}),
        (["-t1-2"], {"time_limit_s": 26 * HOUR}),
        (["--time 1-02:30"], {"time_limit_s": 26.5 * HOUR}),
        (["--time=1-02:30:00"], {"time_limit_s": 26.5 * HOUR}),
        (["--time=UNLIMITED"], {}),
        (["--time=0"], {}),
        (["--part=long"], {"partition": "long"}),
        (["-t 5", "-t 10"], {"time_limit_s": 600.0}),
        (["--time", "10"], {"time_limit_s": 600.0}),  # sbatch joins the lines
        (["-N2"], {"req_nodes": 2, "req_cpus": 2}),
        (["-N 2-4"], {"req_nodes": 2, "req_cpus": 2}),
        (["--nodes=1k"], {"req_nodes": 1024, "req_cpus": 1024}),
        (["-n 4"], {"req_cpus": 4}),
        (["-N 2 --ntasks-per-node=8 -c 4"], {"req_nodes": 2, "req_cpus": 64}),
        (["-N 2 -n 6 --ntasks-per-node=8"], {"req_nodes": 2, "req_cpus": 6}),
        (["--cpus-per-task=8"], {"req_cpus": 8}),
        (["--mem=4000"], {"req_mem_bytes": 4000 * 1024**2}),
        (["--mem=16G -N 2"], {"req_nodes": 2, "req_cpus": 2, "req_mem_bytes": 32 * GIB}),
        (["--mem=4gb"], {"req_mem_bytes": 4 * GIB}),
        (["--mem-per-cpu=2G -n 8"], {"req_cpus": 8, "req_mem_bytes": 16 * GIB}),
        (["--mem-per-cpu=2G"], {"req_mem_bytes": 2 * GIB}),
        (["--mem-per-gpu=10G --gpus=3"], {"req_gpus": 3, "req_mem_bytes": 30 * GIB}),
        (["--gres=gpu:a100:2"], {"req_gpus": 2}),
        (["--gres=gpu"], {"req_gpus": 1}),
        (["--gres=nvme:100,gpu:2 -N 2"], {"req_nodes": 2, "req_cpus": 2, "req_gpus": 4}),
        (["--gres=gpu:a100:2(S:0-1)"], {"req_gpus": 2}),
        (["--gres=nvme:100"], {}),
        (["-G a100:1,v100:2"], {"req_gpus": 3}),
        (["--gpus-per-node=4 -N 2"], {"req_nodes": 2, "req_cpus": 2, "req_gpus": 8}),
        (["--gpus-per-task=1 -n 4"], {"req_cpus": 4, "req_gpus": 4}),
        (["--gpus=2 --cpus-per-gpu=6"], {"req_gpus": 2, "req_cpus": 12}),
        (["--gpus=2 --ntasks-per-gpu=3"], {"req_gpus": 2, "req_cpus": 6}),
        (["--array=0-15"], {"array_tasks": 16}),
        (["-a 1-10:3,20%2"], {"array_tasks": 5}),
        (["-J 'my fit' -A lab -p gpu -q high -D /scratch/a"],
         {"job_name": "my fit", "account": "lab", "partition": "gpu", "qos": "high", "work_dir": "/scratch/a"}),
        (['--job-name="a # b" # why'], {"job_name": "a # b"}),
        (["--exclusive=user"], {}),
        (["-J fit#2 -t 10"], {"job_name": "fit"}),  # sbatch ends the line at any bare #
        (["-HQt 10"], {"time_limit_s": 600.0, "reason": "JobHeldUser"}),
        (["--export ALL -t 10"], {"time_limit_s": 600.0}),
        (["--nice --requeue -t 10"], {"time_limit_s": 600.0}),
        (["--output=%x.%j --mail-type=END"], {}),
    ],
)  # fmt: skip
def test_sbatch_lines_are_read_as_sbatch_reads_them(lines: list[str], columns: dict[str, object]) -> None:
    request = slurm(*lines)
    assert (request.kind, asked(request), request.warnings) == ("slurm", columns, ())


@pytest.mark.parametrize(
    ("lines", "columns", "words"),
    [
        (["--mem=0 -t 10"], {"time_limit_s": 600.0}, "all the memory of a node"),
        (["--mem=1.5G -t 10"], {"time_limit_s": 600.0}, "--mem 1.5G cannot be read"),
        (["--mem=$MEM"], {}, "variables are not expanded"),
        (["-t soon"], {}, "-t soon cannot be read"),
        (["-t " + "9" * 30], {}, "cannot be read"),
        (["-n 0"], {}, "cannot be read"),
        (["-n " + "9" * 30], {}, "cannot be read"),
        (["-N 2,4"], {}, "cannot be read"),
        (["--array=5-1"], {}, "cannot be read"),
        (["--tme=5 -n 2"], {"req_cpus": 2}, "unknown option --tme (did you mean --time?)"),
        (["--gpu=1"], {}, "unknown option --gpu"),  # could be several
        (["-Z 3", "-n 2"], {"req_cpus": 2}, "unknown option -Z"),
        (["junk -n 2"], {"req_cpus": 2}, "'junk' is no option"),
        ([r"-J a\ b -n 2"], {"job_name": "a", "req_cpus": 2}, "'b' is no option"),  # a backslash holds no space
        (["-n 2", "-t"], {"req_cpus": 2}, "-t has no value"),
        (["--comment='open", "-n 2"], {"req_cpus": 2}, "the quote ' is not closed"),
        (["--mem=4G", "--mem-per-cpu=2G"], {"req_mem_bytes": 2 * GIB}, "exclude each other"),
        (["--mem-per-gpu=4G"], {}, "without a number of GPUs"),
        (["--exclusive"], {"exclusive": True}, "whole nodes"),
        (["--tres-per-task=cpu=4"], {}, "--tres-per-task is not counted"),
    ],
)
def test_what_slurm_would_stumble_over_is_said_with_its_line(lines: list[str], columns: dict[str, object], words: str) -> None:
    request = slurm(*lines)
    assert asked(request) == columns
    assert any(words in warning and warning.startswith("Line ") for warning in request.warnings), request.warnings


def test_each_component_of_a_heterogeneous_job_is_read() -> None:
    request = slurm("-J fit -n 2 --mem=4G", "hetjob", "-n 64 -p gpu", "packjob", "-J last -t soon")
    assert asked(request) == {"job_name": "fit", "req_cpus": 2, "req_mem_bytes": 4 * GIB} and request.warnings == ()
    second, third = request.components
    assert asked(second) == {"job_name": "fit", "req_cpus": 64, "partition": "gpu"} and second.warnings == ()
    assert asked(third) == {"job_name": "last"} and "Line 6: the value of -t soon" in third.warnings[0]


def test_a_colon_on_the_command_line_begins_the_next_component_and_its_options_win() -> None:
    text = "#!/bin/sh\n#SBATCH -n 2\n#SBATCH hetjob\n#SBATCH -n 3 -c 2\n"
    request = parse_job_script(text, name="j.sh", arguments=["-n4", ":", "-c", "8", ":", "--mem=1G"])
    assert [asked(one) for one in (request, *request.components)] == [
        {"req_cpus": 4}, {"req_cpus": 24}, {"req_mem_bytes": GIB},
    ]  # fmt: skip
    assert change_line(request.components[0], "req_cpus", 12) == "-c 4"


def test_so_many_components_are_judged_and_the_others_are_counted() -> None:
    request = slurm(*["-n 2", "hetjob"] * 20)
    assert len(request.components) == 15 and "21 components: those after the first 16" in request.warnings[0]


def test_directives_after_the_first_command_are_called_ignored() -> None:
    request = parse_job_script("#!/bin/bash\n#SBATCH -n 2\n\n# note\nmodule load x\n#SBATCH --mem=64G\n", name="job.sh")
    assert asked(request) == {"req_cpus": 2}
    (warning,) = request.warnings
    assert warning.startswith("Line 6: IGNORED by Slurm: #SBATCH --mem=64G") and "line 5" in warning


def test_a_comment_that_looks_like_a_directive_is_pointed_out() -> None:
    request = parse_job_script("#!/bin/bash\n# SBATCH --mem=64G\n##SBATCH -n 3\n#SBATCH -n 2\nrun\n", name="job.sh")
    assert asked(request) == {"req_cpus": 2}
    assert len(request.warnings) == 1 and "only a comment to Slurm" in request.warnings[0]


def test_a_plain_shell_script_is_an_empty_request() -> None:
    request = parse_job_script("#!/bin/sh\n./fit\n", name="job.sh")
    assert (request.kind, asked(request), request.directives) == ("slurm", {}, ())
    assert request.warnings == ("no #SBATCH lines: the site's defaults apply",)


def test_a_plain_script_with_the_ending_of_pbs_is_one_of_pbs() -> None:
    assert pbs().kind == "pbs" and pbs().warnings == ("no #PBS lines: the site's defaults apply",)


def test_a_script_without_an_interpreter_is_warned_of() -> None:
    assert "sbatch refuses" in parse_job_script("./fit\n", name="job.sh").warnings[0]


def test_directives_keep_line_option_value_and_column() -> None:
    first, second, third = slurm("-t 10 --mem=4G", "--output=x").directives
    assert (first.line, first.option, first.value, first.column) == (2, "-t", "10", "time_limit_s")
    assert (second.line, second.option, second.value, second.column) == (2, "--mem", "4G", "req_mem_bytes")
    assert (third.line, third.option, third.value, third.column) == (3, "--output", "x", None)


@pytest.mark.parametrize(
    ("request_", "column", "value", "line"),
    [
        (slurm("--mem=8G"), "req_mem_bytes", 16 * GIB, "#SBATCH --mem=16G"),
        (slurm("--mem=8G -N 2"), "req_mem_bytes", 64 * GIB, "#SBATCH --mem=32G"),
        (slurm("--mem-per-cpu=1G -n 4"), "req_mem_bytes", 6 * GIB, "#SBATCH --mem-per-cpu=1536M"),
        (slurm("--mem-per-gpu=1G -G 2"), "req_mem_bytes", 6 * GIB, "#SBATCH --mem-per-gpu=3G"),
        (slurm(), "req_mem_bytes", 16 * GIB, "#SBATCH --mem=16G"),
        (slurm("--time=10"), "time_limit_s", 4 * HOUR, "#SBATCH --time=04:00:00"),
        (slurm("-t 10"), "time_limit_s", 30 * HOUR, "#SBATCH -t 1-06:00:00"),
        (slurm(), "time_limit_s", 61.0, "#SBATCH --time=00:02:00"),
        (slurm("-n 4"), "req_cpus", 8, "#SBATCH -n 8"),
        (slurm("-n 4 -c 2"), "req_cpus", 16, "#SBATCH -c 4"),
        (slurm("-N 2 --ntasks-per-node=4"), "req_cpus", 16, "#SBATCH --ntasks-per-node=8"),
        (slurm("-G 2 --cpus-per-gpu=4"), "req_cpus", 16, "#SBATCH --cpus-per-gpu=8"),
        (slurm(), "req_cpus", 2, "#SBATCH --cpus-per-task=2"),
        (slurm("--gres=gpu:a100:2 -N 2"), "req_gpus", 8, "#SBATCH --gres=gpu:a100:4"),
        (slurm("--gres=nvme:1,gpu"), "req_gpus", 4, "#SBATCH --gres=nvme:1,gpu:4"),
        (slurm("--gpus=a100:1"), "req_gpus", 4, "#SBATCH --gpus=a100:4"),
        (slurm("--gpus-per-task=1 -n 2"), "req_gpus", 4, "#SBATCH --gpus-per-task=2"),
        (slurm(), "req_gpus", 1, "#SBATCH --gpus=1"),
        (slurm("-N2"), "req_nodes", 3, "#SBATCH -N 3"),
        (slurm("-p a"), "partition", "long", "#SBATCH -p long"),
        (slurm(), "job_name", 'a "b" #c', r'#SBATCH --job-name="a \"b\" #c"'),
    ],
)  # fmt: skip
def test_a_change_is_written_in_the_script_s_own_form(request_: JobRequest, column: str, value: object, line: str) -> None:
    assert change_line(request_, column, value) == line


def with_arguments(*words: str, lines: str = "#SBATCH -t 60 --mem=8G") -> JobRequest:
    return parse_job_script(f"#!/bin/sh\n{lines}\n./fit\n", name="fit.sh", arguments=words)


def test_options_before_the_script_win_as_for_sbatch() -> None:
    request = with_arguments("-t", "5", "-c8")
    assert (request.columns["time_limit_s"], request.columns["req_cpus"]) == (300.0, 8)
    assert request.columns["req_mem_bytes"] == 8 * GIB


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--hold"], "JobHeldUser"),
        (["-d", "afterok:5"], "Dependency"),
        (["--begin=now+1hour"], "BeginTime"),
        (["--begin=now"], None),
        (["--reservation=maint"], "Reservation"),
        ([], None),
    ],
)
def test_what_a_job_will_wait_for_besides_its_turn_is_known(words: list[str], reason: str | None) -> None:
    assert with_arguments(*words).columns.get("reason") == reason


def test_a_change_of_an_option_of_the_command_line_is_a_word_for_it() -> None:
    request = with_arguments("-t", "5", "--partition=long")
    assert change_line(request, "time_limit_s", 600.0) == "-t 00:10:00"
    assert change_line(request, "partition", "short") == "--partition=short"
    assert change_line(request, "req_mem_bytes", 4 * GIB) == "#SBATCH --mem=4G"


def test_what_is_odd_on_the_command_line_is_said_to_be_there() -> None:
    assert with_arguments("--partitoin=long").warnings == (
        "On the command line: unknown option --partitoin (did you mean --partition?); the rest is read without it.",
    )
    assert with_arguments("-n1", ":", "-n2").columns["req_cpus"] == 1


def test_options_before_a_script_of_another_scheduler_are_refused() -> None:
    with pytest.raises(UsageError, match="Slurm only"):
        parse_job_script("#!/bin/sh\n#PBS -l walltime=1:00:00\n", name="a.pbs", arguments=["-t", "5"])
