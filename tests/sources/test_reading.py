"""Whole logs read without a site."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from stormpetrel.errors import SourceFormatError
from stormpetrel.records.jobs import JOB_SCHEMA
from stormpetrel.sources.formats import ReadOptions
from stormpetrel.sources.reading import read_log
from tests.builders import DOCUMENTS, T0, Job, make_jobs, sacct_document, write_sacct

OPTIONS = ReadOptions()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_format_is_read_to_its_end_in_the_order_of_submission(tmp_path, name):
    jobs = make_jobs(12, failed=3)
    document = DOCUMENTS[name](list(reversed(jobs)))
    log = read_log([str(document.write(tmp_path / f"log{document.suffix}"))], name, OPTIONS)
    assert log.jobs.schema == JOB_SCHEMA
    assert log.jobs["job_id"].to_list() == [job.job_id for job in jobs]
    assert log.jobs["submit_time"].is_sorted()
    assert log.refused == {}


def test_of_several_records_of_one_job_the_last_one_counts(tmp_path):
    first = make_jobs(3)
    corrected = replace(first[1], state="FAILED", exit_code=1)
    one = write_sacct(tmp_path / "one.txt", [*first, first[0]])
    two = write_sacct(tmp_path / "two.txt", [corrected])
    log = read_log([str(one), str(two)], "sacct", OPTIONS)
    assert log.jobs.height == 3
    assert dict(log.jobs.select("job_id", "state").rows()) == {1000: "COMPLETED", 1001: "FAILED", 1002: "COMPLETED"}


def test_an_id_that_is_used_again_later_is_another_job(tmp_path):
    again = Job(job_id=1000, submit=T0 + timedelta(days=400))
    log = read_log([str(write_sacct(tmp_path / "log.txt", [Job(job_id=1000), again]))], "sacct", OPTIONS)
    assert log.jobs["job_id"].to_list() == [1000, 1000]


def test_refused_records_are_counted_by_rule(tmp_path):
    document = sacct_document(make_jobs(4))
    document.records[1] = document.records[1].replace(b"COMPLETED", b"EXPLODED")
    document.records[2] = b"rubble"
    log = read_log([str(document.write(tmp_path / "log.txt"))], "sacct", OPTIONS)
    assert log.jobs.height == 2
    assert log.refused == {"wrong_column_count": 1, "bad_value": 1}


def test_a_value_that_cannot_be_read_is_told_in_a_note(tmp_path):
    document = sacct_document(make_jobs(4))
    document.records[1] = document.records[1].replace(b"2024-03-04T08:12:00", b"2023-03-04T08:12:00")  # ends before it starts
    log = read_log([str(document.write(tmp_path / "log.txt"))], "sacct", OPTIONS)
    assert log.jobs.height == 4
    assert [note[:44] for note in log.notes] == ["end_time cannot be read in 1 of 4 records (l"]


def test_a_log_without_a_single_job_is_an_error_that_says_why(tmp_path):
    document = sacct_document(make_jobs(2))
    document.records = [b"rubble", b"rubble"]
    with pytest.raises(SourceFormatError, match=r"No job could be read from .*log\.txt \(2 × .*--format") as caught:
        read_log([str(document.write(tmp_path / "log.txt"))], "sacct", OPTIONS)
    assert "\n" not in str(caught.value)


def test_progress_tells_bytes_and_jobs(tmp_path):
    told = []
    path = write_sacct(tmp_path / "log.txt", make_jobs(5))
    read_log([str(path)], "sacct", OPTIONS, progress=lambda done, count: told.append((done, count)))
    assert told[-1] == (path.stat().st_size, 5)


@pytest.mark.realdata
def test_a_public_log_has_each_job_once(public_logs):
    log = read_log([str(public_logs / "jobs/mit_supercloud_sample.csv.gz")], "supercloud", OPTIONS)
    assert log.jobs.height > 9_000
    assert log.jobs.select("cluster", "job_id", "array_task", "submit_time", "restart").is_unique().all()
