"""Tables of jobs become workloads: names are recognised, odd rows are told, nothing is made up."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from stormpetrel.errors import SourceError, SourceFormatError
from stormpetrel.records.workload_columns import KNOWN
from stormpetrel.sources.tables.column_names import COUNTS, DURATIONS, MEMORY, MOMENTS, TEXTS, workload_columns
from stormpetrel.sources.tables.workload_table import FIRST_MONDAY, WorkloadTable, read_workload_table

PUBLISHED = "u_id,user,gpu_num,cpu_num,node_num,interval,run_time,wall_time,new_status\n"
SEVEN = datetime(2024, 3, 4, 7, tzinfo=UTC)


@pytest.fixture
def read(tmp_path):
    def written(text: str | bytes, name: str = "jobs.csv", **options: str) -> WorkloadTable:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return read_workload_table(path, **options)

    return written


def seconds(table: WorkloadTable) -> list[float]:
    return [(moment - FIRST_MONDAY).total_seconds() for moment in table.jobs["submit_time"]]


def test_intervals_alone_count_from_a_monday(read):
    table = read(PUBLISHED + "0,1,0,64,1,0,50.5,3600,Pass\n1,2,0,128,2,90,10,3600,Failed\n2,1,1,64,1,0.5,3600,3600,Killed\n")
    assert not table.has_clock and FIRST_MONDAY.weekday() == 0
    assert seconds(table) == [0, 90, 90.5]
    assert table.jobs["user"].to_list() == ["1", "2", "1"]
    assert table.jobs["cores"].to_list() == [64, 128, 64]
    assert table.jobs["state"].to_list() == ["COMPLETED", "FAILED", "TIMEOUT"]
    assert table.jobs.columns == ["submit_time", "user", "cores", "nodes", "gpus", "time_limit_s", "runtime_s", "state"]
    assert any("no dates" in note for note in table.notes)


def test_a_killed_job_that_had_time_left_was_cancelled(read):
    table = read(PUBLISHED + "0,1,0,64,1,0,3596,3600,Killed\n1,1,0,64,1,1,3597,3600,Killed\n")
    assert table.jobs["state"].to_list() == ["CANCELLED", "TIMEOUT"]


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("submit_time", "2024-03-04T07:00:00Z"),
        ("Submit Time", "2024-03-04 07:00:00"),
        ("SUBMIT", "2024-03-04T07:00:00"),
        ("time_submit", "1709535600"),
        ("submit_s", "1709535600.0"),
        ("SubmitTime", "1709535600000"),
        ("submitted_at", "2024-03-04T08:00:00+01:00"),
    ],
)
def test_times_of_submission_are_read_as_people_write_them(read, header, value):
    table = read(f"{header},cores\n{value},4\n")
    assert table.jobs["submit_time"].to_list() == [SEVEN]
    assert table.has_clock


def test_local_times_are_in_the_zone_of_the_site(read):
    table = read("submit_time,cores\n2024-03-04 08:00:00,4\n", time_zone="Europe/Berlin")
    assert table.jobs["submit_time"].to_list() == [SEVEN]


def test_seconds_since_the_beginning_are_no_clock(read):
    table = read("submit,cores\n0,4\n3600,4\n")
    assert seconds(table) == [0, 3600]
    assert not table.has_clock


@pytest.mark.parametrize(
    ("header", "value", "name", "expected"),
    [
        ("NCPUS", "8", "cores", 8),
        ("procs", "8.0", "cores", 8),
        ("nodes", "-1", "nodes", None),
        ("walltime", "1-00:00:00", "time_limit_s", 86_400.0),
        ("req_time", "UNLIMITED", "time_limit_s", None),
        ("runtime_min", "2", "runtime_s", 120.0),
        ("Elapsed (s)", "7.5", "runtime_s", 7.5),
        ("mem", "4G", "mem_bytes", 4 << 30),
        ("memory", "100", "mem_bytes", 100 << 20),
        ("mem_gb", "2", "mem_bytes", 2 << 30),
        ("Queue", "long", "partition", "long"),
        ("project", "17.0", "account", "17"),
        ("uid", "1001", "user", "1001"),
        ("status", "CANCELLED by 1000", "state", "CANCELLED"),
        ("state", "exotic", "state", "exotic"),
        ("state", "0", "state", "0"),
        ("wait_time", "30", "wait_s", 30.0),
    ],
)
def test_columns_are_recognised_by_their_names(read, header, value, name, expected):
    table = read(f"submit_time,{header},colour\n{SEVEN.timestamp()},{value},1\n")
    assert table.jobs[name].to_list() == [expected]
    assert table.jobs.schema[name] == KNOWN[name]


def test_start_and_end_tell_wait_and_run_time(read):
    table = read("submit,start,end\n2024-03-04T07:00:00,2024-03-04T07:01:00,2024-03-04T07:03:00\n")
    assert table.jobs.select("wait_s", "runtime_s").row(0) == (60.0, 120.0)


def test_every_meaning_is_read_by_one_rule():
    names = (*MOMENTS, *DURATIONS, *COUNTS, MEMORY, *TEXTS)
    assert set(workload_columns(names)[0]) == set(names) >= set(KNOWN)


def test_unknown_columns_are_kept_as_numbers_or_categories(read):
    rows = "".join(f"{k},{k / 2},{'ab'[k % 2]},name-{k},{k}\n" for k in range(60))
    table = read("interval,my_number,colour,job_name,job_id\n" + rows)
    assert table.jobs.columns == ["submit_time", "my_number", "colour"]
    assert table.jobs.schema["my_number"] == pl.Float64 and table.jobs.schema["colour"] == pl.String
    assert any("job_name" in note and "never learnt" in note for note in table.notes)


def test_of_two_columns_that_mean_the_same_one_is_taken_and_the_other_told(read):
    table = read("interval,state,new_status\n0,1,Pass\n")
    assert table.jobs["state"].to_list() == ["COMPLETED"]
    assert "Column 'state' is left out: 'new_status' tells the same." in table.notes


def test_rows_whose_time_cannot_be_true_are_left_out_with_the_reason(read):
    table = read("interval,cores\n10,4\n-3,4\nx,4\n1e300,4\n5,4\n")
    assert seconds(table) == [0, 5]
    told = " ".join(table.notes)
    assert "'interval' is below zero (line 3 first)" in told and "'interval' is beyond reason" in told
    assert "1 rows are left out: 'interval' is no number (line 4 first)" in told


def test_other_values_that_cannot_be_true_are_empty_and_told_with_three_examples(read):
    rows = ["0,4,5", "5,4,1e308", "5,4,nan", "5,-2,5", "5,four,5", "5,five,5", "5,six,5", "5,\x1b[31m,5"]
    table = read("interval,cores,runtime\n" + "\n".join(rows) + "\n")
    assert seconds(table) == [0, 5, 10, 15, 20, 25, 30, 35]
    assert table.jobs["runtime_s"].to_list() == [5.0, None, None, 5.0, 5.0, 5.0, 5.0, 5.0], "NaN is not known"
    assert table.jobs["cores"].to_list() == [4, 4, 4, *[None] * 5]
    told = " ".join(table.notes)
    assert "1 values are left empty: 'runtime' is beyond reason (above 3.2e+08) (line 3: '1e308')." in told
    assert "1 values are left empty: 'cores' is below zero (line 5: '-2')." in told
    assert "4 values are left empty: 'cores' is no number (line 6: 'four', line 7: 'five', line 8: 'six')." in told


def test_unsorted_times_are_sorted_and_told(read):
    table = read("submit_time,cores\n1709535700,2\n1709535600,1\n")
    assert table.jobs["cores"].to_list() == [1, 2]
    assert any("sorted" in note for note in table.notes)


def test_lines_that_are_no_rows_are_told(read):
    table = read(b"interval,cores\n0,1\n1,2,3\n\xff\xfe,1\n2,2\n")
    assert table.jobs.height == 2
    assert any("2 lines cannot be read" in note for note in table.notes)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_any_delimiter_gzip_quotes_marks_and_line_ends_will_do(read, delimiter):
    text = '\ufeff"interval";cores;"colour"\r\n0;1;"dark; blue"\r\n1;2;red\r\n'.replace(";", delimiter)
    table = read(gzip.compress(text.encode()), "jobs.tsv.gz")
    assert table.jobs["cores"].to_list() == [1, 2]
    assert table.jobs["colour"].to_list() == [f"dark{delimiter} blue".replace("\t", " "), "red"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"\x7fELF\0\0\0", "neither text nor Parquet"),
        (b"\xff\xfe,b\n1,2\n", "no header"),
        (b"a,b,a\n1,2,3\n", "Two columns"),
        (b"PAR1 and no more", "no Parquet file"),
        (b"user,cores\n1,2\n", "neither times of submission nor intervals. Found: user, cores"),
        (b"interval,cores\n", "no job that can be read"),
        (b"interval,cores\n-1,1\n", "no job that can be read"),
        (b",".join(b"c%d" % k for k in range(600)) + b"\n", "600 columns"),
    ],
)
def test_what_is_no_table_of_jobs_is_refused_in_one_sentence(read, content, words):
    with pytest.raises(SourceFormatError, match=words) as caught:
        read(content)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_said(tmp_path):
    with pytest.raises(SourceError, match="no file"):
        read_workload_table(tmp_path / "none.csv")


def test_names_of_columns_are_shown_as_text(read):
    with pytest.raises(SourceFormatError) as caught:
        read("user\x1b[31m,b\n1,2\n")
    assert "\x1b" not in str(caught.value)
    table = read("interval,odd\x07name,line\n0,1,2\n1,2,3\n")
    assert table.jobs.columns == ["submit_time", "odd?name", "line_"]


def test_parquet_keeps_its_types(tmp_path):
    path = tmp_path / "jobs.parquet"
    frame = pl.DataFrame(
        {
            "submit_time": pl.Series([SEVEN, SEVEN + timedelta(microseconds=1)], dtype=pl.Datetime("us", "UTC")),
            "elapsed": [timedelta(minutes=1), None],
            "cpus": [4, None],
            "flag": [True, False],
            "nested": [[1], [2]],
        }
    )
    frame.write_parquet(path)
    table = read_workload_table(path)
    assert table.jobs["submit_time"].to_list() == frame["submit_time"].to_list()
    assert table.jobs["runtime_s"].to_list() == [60.0, None]
    assert table.jobs["cores"].to_list() == [4, None]
    assert table.jobs["flag"].to_list() == ["true", "false"]


@pytest.mark.realdata
@pytest.mark.parametrize("name", ["real", "cg", "ctgan", "tvae", "gc"])
def test_the_published_tables_are_read_whole(public_logs, name):
    table = read_workload_table(public_logs / "synthetic" / f"theta_{name}.csv.gz")
    assert table.jobs.height == 15_000
    assert not table.has_clock
    assert set(table.jobs["state"].unique()) == {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"}
