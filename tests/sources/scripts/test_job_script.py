"""Job scripts of every kind: as a row, as a file, and whatever else may come in."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stormpetrel.errors import SourceError, SourceFormatError, StormpetrelError, UsageError
from stormpetrel.records.jobs import JOB_SCHEMA
from stormpetrel.sources.scripts import job_script
from stormpetrel.sources.scripts.job_script import JobRequest, change_line, parse_job_script, read_job_script
from tests.builders import T0

GIB = 1024**3
HOUR = 3600.0


def slurm(*lines: str, name: str = "job.sh") -> JobRequest:
    """A batch script with these #SBATCH lines and one command."""
    return parse_job_script("\n".join(["#!/bin/bash", *(f"#SBATCH {line}" for line in lines), "srun ./fit", ""]), name=name)


def pbs(*lines: str) -> JobRequest:
    return parse_job_script("\n".join(["#!/bin/bash", *(f"#PBS {line}" for line in lines), "./fit", ""]), name="job.pbs")


def condor(*lines: str, queue: str = "queue") -> JobRequest:
    return parse_job_script("\n".join(["executable = fit.sh", *lines, queue, ""]), name="fit.sub")


def asked(request: JobRequest) -> dict[str, object]:
    """The columns without the script's own path."""
    return {name: value for name, value in request.columns.items() if name != "script_path"}


# As a row of the job frame


def test_the_row_is_a_pending_job_of_the_schema() -> None:
    request = slurm("-n 4 -t 60 --mem=2G -a 0-9", name="runs/fit.sh")
    frame = request.as_frame(user="ada", submit_time=T0, cluster="petrel")
    assert frame.schema == JOB_SCHEMA and frame.height == 1
    row = frame.row(0, named=True)
    expected = {
        "cluster": "petrel", "job_id": None, "submit_time": T0, "restart": 0, "user": "ada", "state": "PENDING",
        "job_name": "fit.sh", "script_path": "runs/fit.sh", "req_cpus": 4, "req_nodes": 1, "req_mem_bytes": 2 * GIB,
        "time_limit_s": HOUR, "req_gpus": None, "source": "job-script",
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected
    assert frame["extra"].map.get("array_tasks")[0] == "10"


def test_the_row_has_the_scheduler_s_own_defaults_and_no_name_for_condor() -> None:
    assert slurm().as_frame(user=None, submit_time=T0, cluster="c").select("req_cpus", "req_nodes").row(0) == (1, 1)
    assert condor().as_frame(user=None, submit_time=T0, cluster="c").select("req_cpus", "req_nodes", "job_name").row(0) == (
        1, None, None,
    )  # fmt: skip


def test_the_submit_time_becomes_utc() -> None:
    local = datetime(2024, 3, 4, 9, 0, tzinfo=timezone(timedelta(hours=1)))
    assert slurm().as_frame(user=None, submit_time=local, cluster="c")["submit_time"][0] == T0
    assert slurm().as_frame(user=None, submit_time=T0.replace(tzinfo=None), cluster="c")["submit_time"][0] == T0
    assert T0.tzinfo is UTC


# How a change is written


@pytest.mark.parametrize("kind", ["slurm", "pbs", "condor"])
def test_a_change_that_cannot_be_written_is_a_usage_error(kind: str) -> None:
    request = {"slurm": slurm(), "pbs": pbs(), "condor": condor()}[kind]
    with pytest.raises(UsageError, match="No line of a"):
        change_line(request, "max_rss_bytes", 1)
    for value in (0, -1, float("nan"), float("inf"), True, "16G", None):
        with pytest.raises(UsageError, match="number above zero"):
            change_line(request, "req_mem_bytes", value)
    for value in ("", "a\nrm -rf /", 3):
        with pytest.raises(UsageError, match="one line of text"):
            change_line(request, "account", value)


CHANGES = st.one_of(
    st.tuples(st.just("req_mem_bytes"), st.integers(1, 2**45)),
    st.tuples(st.just("req_cpus"), st.integers(1, 10**5)),
    st.tuples(st.just("time_limit_s"), st.integers(1, 10**7)),
)


@settings(max_examples=60, deadline=None)
@given(
    script=st.sampled_from(
        [
            "#!/bin/sh\n#SBATCH -N 3 --ntasks-per-node=5 --mem=1G -t 5\n",
            "#!/bin/sh\n#SBATCH -n 7 -c 3 --mem-per-cpu=1G\n",
            "#!/bin/sh\n#PBS -l select=3:ncpus=5:mem=1gb\n",
            "#!/bin/sh\n#PBS -l nodes=3:ppn=5,walltime=1:00:00\n",
        ]
    ),
    change=CHANGES,
)
def test_a_changed_script_asks_for_at_least_what_was_wanted(script: str, change: tuple[str, int]) -> None:
    column, value = change
    line = change_line(parse_job_script(script, name="job.sh"), column, value)
    again = parse_job_script(f"{script}{line}\nrun\n", name="job.sh")
    assert not again.warnings
    got = again.columns[column]
    assert isinstance(got, int | float) and got >= value


# Files


def test_a_file_is_read_with_byte_order_mark_and_windows_lines(tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    path.write_bytes(b"\xef\xbb\xbf#!/bin/bash\r\n#SBATCH -n 4\r\n#SBATCH -J caf\xe9\r\nrun\r\n")
    request = read_job_script(path)
    assert (request.columns["req_cpus"], request.columns["job_name"]) == (4, "caf\ufffd")
    assert request.columns["script_path"] == request.name == str(path)
    assert any("byte order mark" in warning for warning in request.warnings)
    assert any("dos2unix" in warning for warning in request.warnings)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b" \n\t\n", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b"#!/bin/sh\n#SBATCH -n 2\n\0", "binary data"),
        (bytes(range(128, 256)) * 20, "binary data"),
        (b"\x7fELF\x02\x01\x01\0\0\0", "binary data"),
        (b"dear diary,\ntoday nothing\n", "is no job script"),
    ],
)
def test_what_is_no_script_is_one_clear_sentence(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "thing.dat"
    path.write_bytes(data)
    with pytest.raises(SourceFormatError, match=words) as caught:
        read_job_script(path)
    assert "\n" not in str(caught.value) and caught.value.hint


def test_folders_missing_files_and_devices_are_one_clear_sentence(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="is a folder"):
        read_job_script(tmp_path)
    with pytest.raises(SourceError, match="There is no file"):
        read_job_script(tmp_path / "none.sh")
    with pytest.raises(SourceError, match="no plain file"):
        read_job_script(Path(os.devnull))
    with pytest.raises(SourceError, match="cannot be read"):
        read_job_script(Path("a\0b"))


def test_a_file_that_may_not_be_read_is_one_clear_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "job.sh"
    path.write_text("#!/bin/sh\n")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # root may read everything
    with pytest.raises(SourceFormatError, match="Permission denied"):
        read_job_script(path)


def test_of_a_large_script_the_beginning_is_read_and_a_huge_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    head = b"#!/bin/bash\n#SBATCH -n 4\ncat <<END\n"
    path.write_bytes(head + b"data \xc3\xa9\n" * 300_000)
    request = read_job_script(path)
    assert request.columns["req_cpus"] == 4
    assert request.warnings == ("Only the first 1 MiB of the script was looked at.",)
    with path.open("r+b") as file:
        file.truncate(50 * 1024**2)
    with pytest.raises(SourceFormatError, match="too large for a job script"):
        read_job_script(path)


def test_a_kind_can_be_given_and_must_be_known() -> None:
    both = "#!/bin/sh\n#SBATCH -n 2\n#PBS -l ncpus=3\nrun\n"
    assert parse_job_script(both, name="a").columns["req_cpus"] == 2
    request = parse_job_script(both, name="a", kind="pbs")
    assert request.columns["req_cpus"] == 3 and "#SBATCH and #PBS" in request.warnings[0]
    assert parse_job_script("hello", name="a", kind="slurm").kind == "slurm"
    with pytest.raises(UsageError, match="Known: slurm, pbs, lsf, condor"):
        parse_job_script(both, name="a", kind="sge")


def test_warnings_of_a_hostile_script_are_few_and_printable() -> None:
    request = slurm(*(f"--evil{n}=\x1b[2J" for n in range(2000)), "--\x1b]0;owned\x07=1")
    assert len(request.warnings) <= 41 and "more warnings" in request.warnings[-1]
    assert all(warning.isprintable() for warning in slurm("--\x1b[2J=1", "-t \x1b[2J").warnings)


@pytest.mark.parametrize(
    "text",
    [
        "#!/bin/sh\n" + "#SBATCH --x\n" * 80_000,
        "#!/bin/sh\n#SBATCH " + "-HQ" * 300_000,
        "#!/bin/sh\n#SBATCH --gres=" + "gpu:1," * 150_000,
        "#!/bin/sh\n#PBS -l select=" + "1:ncpus=1+" * 90_000,
        "executable = a\n" + "x = $(x)$(x)\n" * 60_000 + "initialdir = $(x)\nqueue\n",
        "executable = a\nqueue " + "a " * 400_000 + "in (",
        "executable = a\n" + "\\\n" * 400_000 + "queue\n",
        " " * 900_000 + "queue\nexecutable = a\nlog = b",
    ],
    ids=["unknown", "short", "gres", "select", "macros", "items", "continued", "blank"],
)
def test_a_mebibyte_of_malice_takes_seconds_at_most(text: str) -> None:
    begun = time.process_time()
    request = parse_job_script(text, name="job.sh")
    assert time.process_time() - begun < 8
    assert request.as_frame(user="a", submit_time=T0, cluster="c").height == 1


WORDS = st.sampled_from(
    [*"#SBATCH #PBS --mem= --mem-per-cpu=2G -N -n2 -t 1-2:3 --gres=gpu:a: --array=1-9:0".split(),
     *"$(x) x = queue request_memory request_cpus in ( )".split(),
     *"-l select=2: ncpus=4 + mem=1gb nodes= ppn= walltime=1:1 +MaxRuntime".split(),
     *"9999999999999999999999 -1 0 NaN inf 1e9 @= if endif".split(),
     "\n", "\r\n", "\n#SBATCH ", "\n#PBS ", "\nexecutable = ", "\n+X = ",
     " ", "\\", '"', "'", "#", "\t", "\ufeff", "\u2028", "²", "٣", "\ud800"]
)  # fmt: skip
SCRIPTS = st.one_of(
    st.text(st.characters(exclude_categories=()), max_size=200),
    st.lists(st.one_of(WORDS, st.text(max_size=6)), max_size=40).map("".join),
    st.lists(WORDS, max_size=40).map(" ".join),
)


@settings(max_examples=400, deadline=None)
@given(text=SCRIPTS, kind=st.sampled_from([None, "slurm", "pbs", "condor"]), name=st.text(max_size=10))
@example(text="#!x\n#SBATCH -N ²", kind=None, name="a")
@example(text="executable=$(a)\nqueue ²", kind="condor", name="\ud800")
def test_no_text_raises_anything_but_our_errors(text: str, kind: str | None, name: str) -> None:
    try:
        request = parse_job_script(text, name=name, kind=kind)
    except StormpetrelError:
        return
    frame = request.as_frame(user="ada", submit_time=T0, cluster="c")
    assert frame.schema == JOB_SCHEMA and frame.height == 1
    for column, value in (("req_mem_bytes", GIB), ("req_cpus", 3), ("time_limit_s", 60.0), ("req_gpus", 2), ("account", "lab")):
        assert "\n" not in change_line(request, column, value)
    assert all("\n" not in warning for warning in request.warnings)


def test_the_public_names_are_there() -> None:
    assert set(job_script.__all__) <= set(vars(job_script))
