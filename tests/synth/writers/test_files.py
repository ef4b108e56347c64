"""A workload written in any format is read back as it was, in bounded memory, whole or not at all."""

from __future__ import annotations

import gzip
import weakref
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from stormpetrel.errors import StoreNotWritableError, UsageError
from stormpetrel.simulate.replay import machine_of, replay
from stormpetrel.sources.formats import ReadOptions
from stormpetrel.sources.reading import read_log
from stormpetrel.sources.tables.workload_table import read_workload_table
from stormpetrel.synth.writers.files import format_of, write_workload
from tests.synth.writers.sample_workload import START, made_workload, pieces

JOBS = made_workload(1_000)
REPLAYED = replay(JOBS, machine_of(JOBS))
FORMATS = [".swf", ".sacct", ".csv", ".parquet"]


def read_back(path: Path, format_name: str) -> pl.DataFrame:
    log = read_log([str(path)], format_name, ReadOptions())
    assert log.refused == {}
    return log.jobs.sort("job_id_raw" if format_name == "sacct" else "job_id")


@pytest.mark.parametrize("name", ["jobs.csv", "jobs.csv.gz", "jobs.parquet"])
@pytest.mark.parametrize("jobs", [JOBS, REPLAYED], ids=["no waits", "waits"])
def test_a_table_is_read_back_as_the_same_workload(tmp_path, name, jobs):
    assert write_workload(pieces(jobs, 300), tmp_path / name) == jobs.height
    table = read_workload_table(tmp_path / name)
    assert table.has_clock and table.notes == ()
    assert table.jobs.select(jobs.columns).equals(jobs)


def test_columns_of_the_log_with_names_like_ours_are_read_back_as_its_own(tmp_path):
    jobs = REPLAYED.with_columns(wait_hours=pl.col("cores") * 3, requested_memory=pl.lit("much"), array=pl.lit(2**50))
    write_workload([jobs], tmp_path / "jobs.csv")
    table = read_workload_table(tmp_path / "jobs.csv")
    assert table.notes == () and table.jobs.select(jobs.columns).equals(jobs)


def test_no_cell_and_no_heading_of_a_csv_file_is_a_formula(tmp_path):
    jobs = JOBS[:3].with_columns(pl.Series("=cmd()", ["=HYPERLINK(1)", "@SUM(1)", "-5"]))
    write_workload([jobs], tmp_path / "jobs.csv")
    shown = pl.read_csv(tmp_path / "jobs.csv", infer_schema=False)
    assert shown["'=cmd()"].to_list() == ["'=HYPERLINK(1)", "'@SUM(1)", "-5"]


@pytest.mark.parametrize("name", ["jobs.csv", "jobs.parquet"])
def test_a_table_numbers_jobs_and_tells_intervals_across_frames(tmp_path, name):
    write_workload(pieces(REPLAYED, 300), tmp_path / name)
    read = pl.read_csv if name.endswith("csv") else pl.read_parquet
    shown = read(tmp_path / name)
    assert shown.columns[:3] == ["job_id", "submit_time", "interval_s"] and shown.columns[-2:] == ["start_time", "wait_s"]
    assert shown["job_id"].to_list() == list(range(1, 1_001))
    expected = (JOBS["submit_time"].diff().dt.total_microseconds() / 1e6).fill_null(0.0)
    assert shown["interval_s"].to_list() == pytest.approx(expected.to_list())


@pytest.mark.parametrize("name", ["jobs.swf", "jobs.swf.gz"])
def test_swf_is_read_back_without_a_word_of_complaint(tmp_path, name):
    write_workload(pieces(REPLAYED, 300), tmp_path / name)
    log = read_log([str(tmp_path / name)], "swf", ReadOptions())
    assert log.refused == {} and log.notes == ()
    jobs = log.jobs.sort("job_id")
    assert jobs.height == 1_000
    assert (jobs["submit_time"] == REPLAYED["submit_time"].dt.truncate("1s")).all()
    assert jobs["cpus"].equals(REPLAYED["cores"].rename("cpus"))
    assert jobs["partition"].to_list() == REPLAYED["partition"].to_list()
    assert jobs["elapsed_s"].to_list() == REPLAYED["runtime_s"].round().to_list()
    waits = (jobs["start_time"] - jobs["submit_time"]).dt.total_seconds()
    assert waits.to_list() == REPLAYED["wait_s"].round().to_list()
    assert jobs["user"].n_unique() == 20 and jobs["user"][0] == "1"
    assert set(jobs.filter(REPLAYED["state"] == "TIMEOUT")["state"]) == {"FAILED"}, "SWF has no word for a time-out"


def test_swf_has_a_header_that_says_what_it_is(tmp_path):
    path = tmp_path / "jobs.swf"
    write_workload(pieces(JOBS, 300), path, name="thing\nMaxJobs: 3")
    lines = path.read_text().splitlines()
    header = dict(line[2:].split(": ", 1) for line in lines if line.startswith("; "))
    assert header["Version"] == "2.2" and header["MaxJobs"] == header["MaxRecords"] == "1000"
    assert int(header["UnixStartTime"]) == int(JOBS["submit_time"][0].timestamp())
    assert int(header["MaxProcs"]) == JOBS["cores"].max() == 32
    assert "Synthetic" in path.read_text() and header["Computer"] == "thing?MaxJobs: 3"
    first = lines[len([line for line in lines if line.startswith(";")])].split()
    assert len(first) == 18 and first[0] == "1" and first[2] == "-1", "no scheduler was asked"


def test_a_log_that_knows_little_makes_valid_swf(tmp_path):
    path = tmp_path / "jobs.swf"
    write_workload([JOBS.select("submit_time", executable=pl.lit("a.out"))], path)
    log = read_log([str(path)], "swf", ReadOptions())
    assert log.refused == {} and log.jobs.height == 1_000
    assert log.jobs["cpus"].null_count() == log.jobs["user"].null_count() == 1_000
    assert log.jobs["extra"].map.get("executable").unique().to_list() == ["1"]


@pytest.mark.parametrize("name", ["jobs.sacct", "jobs.txt.gz"])
def test_sacct_text_is_read_back_with_arrays_and_memory(tmp_path, name):
    write_workload(pieces(REPLAYED, 333), tmp_path / name, name="petrel")
    jobs = read_back(tmp_path / name, "sacct")
    assert jobs.height == 1_000 and set(jobs["cluster"]) == {"petrel"}
    for ours, theirs in (
        ("user", "user"),
        ("account", "account"),
        ("req_cpus", "cores"),
        ("req_gpus", "gpus"),
        ("state", "state"),
    ):
        assert jobs[ours].to_list() == REPLAYED[theirs].to_list()
    assert jobs["req_mem_bytes"].to_list() == REPLAYED["mem_bytes"].to_list()
    ran = jobs.filter(pl.col("start_time").is_not_null())
    assert (ran["end_time"] - ran["start_time"]).dt.total_seconds().to_list() == ran["elapsed_s"].to_list()
    arrays = jobs.filter(pl.col("array_task").is_not_null()).group_by("job_id").agg(pl.col("array_task").sort())
    assert arrays.height == 20 and set(map(tuple, arrays["array_task"])) == {(0, 1, 2, 3, 4)}, "also across frames"


def test_jobs_that_ask_for_the_same_have_the_same_new_name(tmp_path):
    write_workload([JOBS], tmp_path / "jobs.sacct")
    jobs = read_back(tmp_path / "jobs.sacct", "sacct")
    named = jobs.group_by("job_name").agg(pl.struct("req_cpus", "time_limit_s").n_unique())
    assert jobs["job_name"].str.contains(r"^work-\d{4}$").all()
    assert named.height > 100


def test_hostile_names_stay_in_their_fields(tmp_path):
    jobs = JOBS.head(3).with_columns(user=pl.lit("a|b\nc"), partition=pl.lit("x\r\ny"), colour=pl.lit('"quoted",\n'))
    write_workload([jobs], tmp_path / "jobs.sacct")
    assert read_back(tmp_path / "jobs.sacct", "sacct")["user"].to_list() == ["a_b_c"] * 3
    write_workload([jobs], tmp_path / "jobs.csv")
    assert read_workload_table(tmp_path / "jobs.csv").jobs["colour"].to_list() == ['"quoted",'] * 3
    write_workload([jobs], tmp_path / "jobs.swf")
    assert read_back(tmp_path / "jobs.swf", "swf")["partition"].to_list() == ["x??y"] * 3


@pytest.mark.parametrize("suffix", FORMATS)
def test_frames_are_let_go_as_soon_as_they_are_written(tmp_path, suffix):
    made: list[weakref.ref[pl.DataFrame]] = []
    alive = [0]

    def frames() -> Iterator[pl.DataFrame]:
        for piece in pieces(JOBS, 20):
            made.append(weakref.ref(piece))
            yield piece
            alive.append(sum(one() is not None for one in made))

    assert write_workload(frames(), tmp_path / f"jobs{suffix}") == 1_000
    assert len(alive) == 51 and max(alive) <= 4


@pytest.mark.parametrize("suffix", [*FORMATS, ".csv.gz", ".swf.gz"])
@pytest.mark.parametrize("problem", [UsageError("The generator gave up."), KeyboardInterrupt()], ids=["error", "ctrl-c"])
def test_what_goes_wrong_leaves_the_file_that_was_there(tmp_path, suffix, problem):
    path = tmp_path / f"jobs{suffix}"
    path.write_text("before")

    def frames() -> Iterator[pl.DataFrame]:
        yield from pieces(JOBS, 400)
        raise problem

    with pytest.raises(type(problem)) as caught:
        write_workload(frames(), path)
    assert caught.value is problem
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_workload_of_no_jobs_is_a_file_all_the_same(tmp_path, suffix):
    path = tmp_path / f"jobs{suffix}"
    assert write_workload(iter(()), path) == 0
    assert path.stat().st_size > 0


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_folder_that_is_not_there_is_said(tmp_path, suffix):
    with pytest.raises(StoreNotWritableError, match="cannot be written"):
        write_workload([JOBS], tmp_path / "none" / f"jobs{suffix}")


def test_the_name_says_the_format_unless_it_is_asked_for(tmp_path):
    assert format_of(Path("a.SWF")) == "swf" and format_of(Path("a.csv.gz")) == "csv" and format_of(Path("a"), "sacct") == "sacct"
    for name, words in (("jobs", "which format"), ("jobs.parquet.gz", "compressed already")):
        with pytest.raises(UsageError, match=words):
            format_of(Path(name))
    with pytest.raises(UsageError, match="no format 'xml'"):
        format_of(Path("a"), "xml")
    with pytest.raises(UsageError, match="is a folder"):
        write_workload([JOBS], tmp_path, format_name="csv")


def test_progress_is_told_and_the_same_jobs_make_the_same_file(tmp_path):
    told: list[int] = []
    for name in ("a.swf.gz", "b.swf.gz"):
        write_workload(pieces(JOBS, 400), tmp_path / name, progress=told.append)
    assert told == [400, 800, 1000] * 2
    assert (tmp_path / "a.swf.gz").read_bytes() == (tmp_path / "b.swf.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.swf.gz").read_bytes()).startswith(b"; Version: 2.2")


def test_a_later_frame_with_other_columns_fits_into_the_first(tmp_path):
    write_workload([JOBS[:10], JOBS[10:20].drop("gpus").with_columns(new=1)], tmp_path / "jobs.csv")
    table = read_workload_table(tmp_path / "jobs.csv").jobs
    assert table["gpus"].null_count() == 10 and "new" not in table.columns
    assert table["submit_time"][0] >= START
