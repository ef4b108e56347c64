import gzip
from datetime import timedelta

import pytest

from stormpetrel.errors import SourceFormatError
from stormpetrel.records.jobs import JOB_SCHEMA
from stormpetrel.sources.slurm.sacct_text import SacctText
from stormpetrel.sources.swf import SwfLog, write_swf
from tests.builders import T0, make_jobs, read_all, swf_document, unread_in, write_sacct

LINE = "1 100 10 60 4 -1 -1 4 120 -1 1 5 2 7 1 2 -1 -1"


def read(path, **options):
    source = SwfLog(path, **options)
    return (*read_all(source), source.notes)


def test_jobs_are_read_with_the_clock_of_the_header(tmp_path):
    jobs, rejects, _, _, notes = read(swf_document(make_jobs(5, failed=1)).write(tmp_path / "a.swf"))
    assert (jobs.height, rejects.height, notes) == (5, 0, [])
    assert jobs["submit_time"].to_list() == [T0 + timedelta(minutes=k) for k in range(5)]
    assert (jobs["end_time"][0] - jobs["start_time"][0]).total_seconds() == 600
    assert jobs["state"].to_list() == ["FAILED"] + ["COMPLETED"] * 4


def test_queues_and_partitions_take_their_names_from_the_header(tmp_path):
    (tmp_path / "a.swf").write_text(f"; UnixStartTime: 1700000000\n; Queue: 1 short\n; Partition: 2  large, old\n{LINE}\n")
    jobs, _, _, _, _ = read(tmp_path / "a.swf")
    assert jobs.select("qos", "partition", "user", "group").row(0) == ("short", "large, old", "5", "2")
    assert jobs["extra"][0] == {"executable": "7"}


def test_minus_one_means_not_known(tmp_path):
    (tmp_path / "a.swf").write_text("; UnixStartTime: 1700000000\n1 100 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1\n")
    jobs, rejects, _, _, _ = read(tmp_path / "a.swf")
    assert rejects.height == 0
    row = jobs.row(0, named=True)
    assert row["state"] == "UNKNOWN"
    assert all(row[name] is None for name in ("start_time", "end_time", "cpus", "user", "partition", "elapsed_s"))


def test_logs_put_one_after_the_other_keep_their_own_clocks(tmp_path):
    (tmp_path / "a.swf").write_text(f"; UnixStartTime: 1000000000\n{LINE}\n; UnixStartTime: 1500000000\n{LINE}\n")
    jobs, *_ = read(tmp_path / "a.swf")
    assert [moment.year for moment in jobs["submit_time"]] == [2001, 2017]


def test_large_ids_are_not_rounded(tmp_path):
    ids = [9007199254740992, 9007199254740993]
    (tmp_path / "a.swf").write_text("; UnixStartTime: 1700000000\n" + "".join(LINE.replace("1 ", f"{n} ", 1) + "\n" for n in ids))
    jobs, *_ = read(tmp_path / "a.swf")
    assert jobs["job_id"].to_list() == ids


def test_a_job_cancelled_in_the_queue_never_started(tmp_path):
    (tmp_path / "a.swf").write_text("; UnixStartTime: 1700000000\n1 100 50 0 0 -1 -1 4 120 -1 5 5 2 7 1 2 -1 -1\n")
    jobs, _, _, _, _ = read(tmp_path / "a.swf")
    assert jobs["start_time"].to_list() == [None]
    assert jobs["end_time"][0] is not None


def test_bursts_of_a_job_are_folded_into_its_summary(tmp_path):
    bursts = [LINE.replace(" 1 5 2", f" {status} 5 2") for status in (2, 3)]
    (tmp_path / "a.swf").write_text("; UnixStartTime: 1700000000\n" + "\n".join([LINE, *bursts]) + "\n")
    jobs, rejects, read_count, folded, _ = read(tmp_path / "a.swf")
    assert (jobs.height, rejects.height, read_count, folded) == (1, 0, 3, 2)


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ("; UnixStartTime: 99999999999999", "is no time"),
        ("; UnixStartTime: yesterday", "is no time"),
        ("; MaxJobs: 10", "does not say when the log begins"),
        ("; UnixStartTime: 1700000000\n; MaxJobs: 1", "at most 1 jobs"),
    ],
)
def test_a_header_that_lies_is_told_and_the_jobs_are_kept(tmp_path, header, says):
    (tmp_path / "a.swf").write_text(f"{header}\n{LINE}\n{LINE.replace('1 100', '2 200', 1)}\n")
    jobs, rejects, _, _, notes = read(tmp_path / "a.swf")
    assert (jobs.height, rejects.height) == (2, 0)
    assert any(says in note for note in notes)


@pytest.mark.parametrize(
    "bad",
    [
        "1 2 3",
        LINE + " 9",
        LINE.replace("1 100", "one 100", 1),
        LINE.replace("100", "1e400", 1),
        LINE.replace(" 1 5 2", " 77 5 2"),
    ],
)
def test_a_line_of_other_than_eighteen_fields_or_without_job_time_or_status_is_refused(tmp_path, bad):
    (tmp_path / "a.swf").write_text(f"; UnixStartTime: 1700000000\n{LINE}\n{bad}\n")
    jobs, rejects, read_count, _, _ = read(tmp_path / "a.swf")
    assert (jobs.height, rejects.height, read_count) == (1, 1, 2)


@pytest.mark.parametrize("text", ["sixty", "1e400", "nan", "?"])
def test_a_field_that_is_no_number_costs_itself_and_not_its_line(tmp_path, text):
    (tmp_path / "a.swf").write_text(f"; UnixStartTime: 1700000000\n{LINE.replace(' 60 4 ', f' {text} {text} ')}\n")
    jobs, rejects, *_ = read(tmp_path / "a.swf")
    job = jobs.row(0, named=True)
    assert (rejects.height, job["elapsed_s"], job["cpus"], job["end_time"]) == (0, None, None, None)
    assert unread_in(job) == {"elapsed_s": text, "cpus": text}


@pytest.mark.parametrize("name", ["out.swf", "out.swf.gz"])
def test_what_is_written_reads_back(tmp_path, name):
    jobs, *_ = read_all(SacctText(write_sacct(tmp_path / "a", make_jobs(20, failed=5))))
    frame = jobs.select(list(JOB_SCHEMA))
    assert write_swf(frame, tmp_path / name, header={"Computer": "test\n; UnixStartTime: 1"}) == 20
    again, rejects, *_ = read(tmp_path / name)
    assert rejects.height == 0
    for column in ("job_id", "submit_time", "start_time", "end_time", "state", "elapsed_s", "time_limit_s", "cpus", "partition"):
        assert again[column].to_list() == frame[column].to_list(), column


def test_the_same_jobs_make_the_same_file(tmp_path):
    jobs, *_ = read_all(SacctText(write_sacct(tmp_path / "a", make_jobs(5))))
    for name in ("one.swf.gz", "two.swf.gz"):
        write_swf(jobs.select(list(JOB_SCHEMA)), tmp_path / name)
    assert (tmp_path / "one.swf.gz").read_bytes() == (tmp_path / "two.swf.gz").read_bytes()
    assert gzip.decompress((tmp_path / "one.swf.gz").read_bytes()).startswith(b"; Version: 2.2")


def test_writing_no_jobs_is_one_sentence(tmp_path):
    jobs, *_ = read_all(SacctText(write_sacct(tmp_path / "a", make_jobs(1))))
    with pytest.raises(SourceFormatError, match="no jobs to write"):
        write_swf(jobs.head(0), tmp_path / "x.swf")


def without_waits(tmp_path, lines):
    (tmp_path / "a.swf").write_text("; UnixStartTime: 1700000000\n" + "\n".join(lines) + "\n")
    return read(tmp_path / "a.swf")


def test_a_run_time_without_a_wait_gives_the_earliest_end_and_says_so(tmp_path):
    jobs, rejects, _, _, notes = without_waits(tmp_path, ["1 100 -1 60 4 -1 -1 4 120 -1 1 5 2 7 1 2 -1 -1", LINE])
    assert rejects.height == 0
    row = jobs.row(0, named=True)
    assert (row["end_time"] - row["submit_time"]).total_seconds() == 60
    assert (row["start_time"], row["quality"]) == (None, "end_without_wait")
    assert jobs["quality"][1] is None
    assert notes == [
        "1 of 2 jobs have a run time and no wait time: their end is taken as submission + run time, the earliest it can have been"
    ]


def test_a_job_cancelled_in_the_queue_has_no_end_where_nobody_tells_its_wait(tmp_path):
    jobs, *_ = without_waits(tmp_path, ["1 100 -1 0 0 -1 -1 4 120 -1 5 5 2 7 1 2 -1 -1"])
    assert jobs.select("start_time", "end_time", "quality").row(0) == (None, None, None)


def test_a_wait_that_is_not_known_is_written_as_such(tmp_path):
    jobs, *_ = without_waits(tmp_path, ["1 100 -1 60 4 -1 -1 4 120 -1 1 5 2 7 1 2 -1 -1"])
    write_swf(jobs.select(list(JOB_SCHEMA)), tmp_path / "b.swf")
    again, *_ = read(tmp_path / "b.swf")
    assert again["quality"].to_list() == ["end_without_wait"]
    assert "1 0 -1 60 4" in (tmp_path / "b.swf").read_text()
