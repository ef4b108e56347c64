"""The list of a controller is read as squeue prints it, whole or not at all."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import polars as pl
import pytest

from stormpetrel.errors import SourceFormatError
from stormpetrel.sources.record_filter import is_among, key_of
from stormpetrel.sources.slurm.json_jobs import job_row, listed_facts
from stormpetrel.sources.slurm.pending_arrays import MOST_TASKS, bounded, is_cut, tasks_of
from stormpetrel.sources.slurm.queue import make_list, parse_list
from stormpetrel.sources.slurm.unfinished import reason_class
from tests.parts.told_slurm import SUBMITTED, Job

RECORDINGS = Path(__file__).parents[2] / "recordings"


def listed(*jobs: Job, most: int = MOST_TASKS):
    return make_list("petrel", parse_list([job.line() for job in jobs]), most)


def open_of(*jobs: Job) -> set[tuple[int, int | None, str]]:
    return set(listed(*jobs).open.select("job_id", "array_task", "state").iter_rows())


def test_waiting_tasks_are_told_one_by_one_and_the_rest_as_it_is():
    found = open_of(Job(7), Job(20, tasks="0-1,5%2"), Job(20, "RUNNING", task=3), Job(9, "COMPLETED"))
    assert found == {
        (7, None, "PENDING"), (20, 0, "PENDING"), (20, 1, "PENDING"), (20, 5, "PENDING"), (20, 3, "RUNNING")
    }  # fmt: skip


@pytest.mark.parametrize(
    "state", ["COMPLETING", "CONFIGURING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "STAGE_OUT"]
)
def test_a_job_on_its_way_is_not_gone(state):
    assert len(open_of(Job(7, state))) == 1


@pytest.mark.parametrize("line", ["", "squeue: error: something", "7|7|N/A|PENDING", "7|7|N/A|NONSENSE|1|N/A|1:00|1|1|p|None"])
def test_a_line_that_is_none_makes_the_whole_list_one_in_vain(line):
    with pytest.raises(SourceFormatError):
        parse_list([Job(7).line(), line])


def test_an_empty_list_is_a_list():
    assert listed().open.is_empty() and listed().whole


def test_the_guessed_start_of_a_waiting_job_is_no_news():
    line = Job(7).line()
    assert parse_list([line])["line"].equals(parse_list([line.replace("|N/A|1:00:00", "|1794900000|1:00:00")])["line"])


def test_an_array_with_more_tasks_than_are_kept_is_known_to_be_cut():
    found = listed(Job(20, tasks="0-99"), Job(30, tasks="0-9"), most=50)
    assert found.cut == {20} and found.open.height == 60 and "array 20" in found.notes[0]


def test_a_list_of_tasks_that_slurm_broke_off_is_known_to_be_cut():
    assert is_cut("0,2,4,6...") and not is_cut("0,2,4,6%3")


def test_a_hundred_thousand_tasks_are_kept_and_a_million_are_bounded():
    assert len(tasks_of("0-99999")) == 100_000
    found, cut = bounded(["0-99999", "0-99999", "0-99999"], MOST_TASKS)
    assert [len(tasks) for tasks in found] == [100_000, 100_000, 50_000] and cut == [2]


@pytest.mark.parametrize("name", sorted(path.name for path in RECORDINGS.glob("squeue-*.json.gz")))
def test_what_slurmrestd_lists_has_the_keys_of_its_rows(name):
    records = json.loads(gzip.decompress((RECORDINGS / name).read_bytes()))["jobs"]
    for record in records:
        raw_id, job_id, tasks, _, submit_time, line = listed_facts(record, reason_class)
        row = job_row(record, default_cluster="petrel")
        assert (raw_id, job_id, submit_time) == (row["job_id_raw"], row["job_id"], row["submit_time"]) and line
        assert tasks is None or row["array_task"] is None or tasks == str(row["array_task"])


def test_records_of_sacct_are_known_by_task_and_component():
    records = pl.DataFrame({"jobid": ["7", "20_3", "30+1", "40_[0-3]"], "submit": [str(SUBMITTED)] * 4})
    assert key_of(records).select("job_id", "array_task").rows() == [(7, None), (20, 3), (31, None), (None, None)]
    assert is_among(records, listed(Job(7), Job(20, tasks="3"), Job(31)).open).to_list() == [True, True, True, False]
