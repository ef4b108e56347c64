"""Tables of tasks: Nextflow's trace as it is, and other CSVs with requested and used memory."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from stormpetrel.sources.formats import ReadOptions, sniff_format
from stormpetrel.sources.reading import read_log


def read(path: Path, text: str) -> pl.DataFrame:
    path.write_text(text)
    return read_log([str(path)], None, ReadOptions()).jobs


RAW = (
    "task_id,process,tag,name,status,exit,cpus,time,memory,submit,start,complete,realtime,peak_rss\n"
    "3,ALIGN,s1,ALIGN (s1),COMPLETED,0,4,14400000,1073741824,1674490103249,1674490105000,1674490115000,9500,52428800\n"
    "4,ALIGN,s2,ALIGN (s2),FAILED,1,4,-,1073741824,1674490103249,1674490105000,1674490115000,9500,-\n"
)


def test_a_nextflow_trace_is_recognised(tmp_path):
    (tmp_path / "trace.csv").write_text(RAW)
    assert sniff_format(str(tmp_path / "trace.csv")) == "tasks"


def test_raw_values_are_milliseconds_and_bytes(tmp_path):
    job = read(tmp_path / "t.csv", RAW).row(0, named=True)
    assert (job["elapsed_s"], job["time_limit_s"], job["req_mem_bytes"], job["max_rss_bytes"]) == (
        9.5,
        14400.0,
        1 << 30,
        50 << 20,
    )
    assert (job["job_name"], job["state"], job["submit_time"].year) == ("ALIGN", "COMPLETED", 2023)


def test_what_was_not_measured_is_unknown(tmp_path):
    job = read(tmp_path / "t.csv", RAW).row(1, named=True)
    assert job["max_rss_bytes"] is None and job["time_limit_s"] is None and job["state"] == "FAILED"


def test_a_trace_for_people_reads_the_same(tmp_path):
    text = (
        "task_id\tname\tstatus\texit\tsubmit\trealtime\tpeak_rss\tmemory\n"
        "3\tALIGN (s1)\tCOMPLETED\t0\t2023-01-23 16:08:23.249\t1m 30s\t50 MB\t1 GB\n"
    )
    job = read(tmp_path / "trace.txt", text).row(0, named=True)
    assert (job["elapsed_s"], job["req_mem_bytes"], job["max_rss_bytes"], job["job_name"]) == (90.0, 1 << 30, 50 << 20, "ALIGN")


def test_two_columns_of_memory_are_enough(tmp_path):
    jobs = read(tmp_path / "t.csv", "requested_memory_mb,used_memory_mb\n4096,1000\n4096,2000\n")
    assert jobs["req_mem_bytes"].to_list() == [4 << 30, 4 << 30] and jobs["max_rss_bytes"].to_list() == [1000 << 20, 2000 << 20]
    assert jobs["submit_time"].is_sorted() and jobs["submit_time"].n_unique() == 2


@pytest.mark.parametrize(
    "header", ["task,requested_mem_gb,used_mem_gb", "task,mem_request_gb,peak_mem_gb", "task,memory_request_gb,max_memory_gb"]
)
def test_a_table_that_calls_memory_by_a_common_name_is_recognised(tmp_path, header):
    path = tmp_path / "t.csv"
    path.write_text(f"{header}\n1,4,1\n", encoding="utf-8")
    jobs = read_log([str(path)], None, ReadOptions()).jobs
    assert jobs["req_mem_bytes"].item() == 4 << 30 and jobs["max_rss_bytes"].item() == 1 << 30


@pytest.mark.parametrize("numbers", ["4096,1000", "4294967296,1048576000"])
def test_numbers_without_a_unit_are_mebibytes_or_bytes_by_their_size(tmp_path, numbers):
    jobs = read(tmp_path / "t.csv", f"task,memory,peak_rss\n1,{numbers}\n")
    assert jobs["req_mem_bytes"].item() == 4 << 30 and jobs["max_rss_bytes"].item() == 1000 << 20
