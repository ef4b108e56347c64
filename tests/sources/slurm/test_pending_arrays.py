"""Tasks of an array that wait are told one by one, as they will be known once they start."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from stormpetrel.sources.contract import Chunk
from stormpetrel.sources.slurm.json_jobs import SlurmJson
from stormpetrel.sources.slurm.pending_arrays import MOST_TASKS, split_arrays, tasks_of


def chunk_of(*job_ids: str) -> Chunk:
    records = pl.DataFrame(
        {"record": range(1, len(job_ids) + 1), "line": range(len(job_ids)), "jobid": job_ids, "jobidraw": ["7"] * len(job_ids)},
        schema={"record": pl.UInt32, "line": pl.Int64, "jobid": pl.String, "jobidraw": pl.String},
    )
    return Chunk(records=records, translate=lambda records, _: (records, records), read=len(job_ids))


@pytest.mark.parametrize(
    ("text", "tasks"),
    [
        ("0-2", [0, 1, 2]),
        ("5", [5]),
        ("1-9:4%2", [1, 5, 9]),
        ("1,3-4", [1, 3, 4]),
        ("", []),
        ("2-1", []),
        ("x,4", [4]),
        ("1-3,...", [1, 2, 3]),
        ("0x1F", [0, 1, 2, 3, 4]),
        ("0x120%2", [5, 8]),
        ("0x0", []),
    ],
)
def test_task_lists_are_read_as_slurm_writes_them(text, tasks):
    assert tasks_of(text).tolist() == tasks


def test_a_hostile_list_is_bounded():
    assert len(tasks_of("0-999999999,0-999999999")) == MOST_TASKS
    assert len(tasks_of("0x" + "F" * 1_000_000)) == MOST_TASKS


def test_each_waiting_task_is_a_record_of_its_own_and_the_others_stay():
    split = split_arrays(chunk_of("12", "40_[0-2%1]", "41_3"))
    assert split.records["jobid"].to_list() == ["12", "41_3", "40_0", "40_1", "40_2"]
    assert split.records["record"].is_unique().all()
    assert split.records["jobidraw"].to_list() == ["7", "7", None, None, None]
    assert split.read == 5


def test_a_chunk_without_arrays_is_left_as_it_is():
    chunk = chunk_of("12", "41_3")
    assert split_arrays(chunk) is chunk


def test_json_of_a_real_slurm_is_split_as_well():
    recording = Path(__file__).parents[2] / "recordings" / "squeue-24.11-v0.0.42.json.gz"
    chunks = list(SlurmJson(recording).chunks())
    before = pl.concat(chunk.records for chunk in chunks)
    waiting = [dict(extra or {}).get("pending_tasks") for extra in before["extra"].to_list()]
    after = pl.concat(split_arrays(chunk).records for chunk in chunks)
    more = sum(len(tasks_of(text)) - 1 for text in waiting if text)
    assert after.height == before.height + more
    assert not after.filter(pl.col("array_task").is_null(), pl.col("job_id_raw").is_null()).height
