"""Documents of the jobcomp plug-ins, on what a real jobcomp/elasticsearch sent."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from stormpetrel.sources.formats import sniff_format
from stormpetrel.sources.slurm.jobcomp import JobCompletions
from tests.builders import Job, jobcomp_record, read_all

RECORDED = Path(__file__).parents[2] / "recordings/jobcomp-22.05.jsonl.gz"
# The same run of the same cluster, as `sacct -a -P -D -X` printed it; jobs that never started were not in it.
SACCT = """\
1|COMPLETED|0:0|n001
2|FAILED|3:0|n001
4|CANCELLED|0:0|n002
6|FAILED|0:9|n[001-002]
8+0|COMPLETED|0:0|n002
8+1|COMPLETED|0:0|n001
10|REQUEUED|0:0|n001
11|FAILED|1:0|n001
3_1|COMPLETED|0:0|n001
3_2|FAILED|1:0|n001
3_3|FAILED|2:0|n002"""


@pytest.fixture(scope="module")
def recorded() -> pl.DataFrame:
    jobs, rejects, read, merged = read_all(JobCompletions(RECORDED))
    assert (rejects.height, read, merged) == (0, 13, 0)
    return jobs


def written(folder: Path, *documents: dict[str, object]) -> Path:
    path = folder / "jobcomp.jsonl"
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))
    return path


def only(folder: Path, **changes: object) -> dict[str, object]:
    jobs, *_ = read_all(JobCompletions(written(folder, {**jobcomp_record(Job(job_id=7)), **changes})))
    (row,) = jobs.iter_rows(named=True)
    return row


def test_every_run_is_as_accounting_has_it(recorded: pl.DataFrame) -> None:
    def number(row: dict[str, object]) -> str:
        if row["het_job_id"] is not None:
            return f"{row['het_job_id']}+{row['het_offset']}"
        return f"{row['job_id']}" if row["array_task"] is None else f"{row['job_id']}_{row['array_task']}"

    runs = {number(row): row for row in recorded.filter(pl.col("start_time").is_not_null()).iter_rows(named=True)}
    assert runs.keys() == {line.split("|")[0] for line in SACCT.splitlines()}
    for line in SACCT.splitlines():
        name, state, codes, nodes = line.split("|")
        run = runs[name]
        assert (run["state"], f"{run['exit_code']}:{run['exit_signal']}", run["node_list"]) == (state, codes, nodes), name


def test_what_never_started_has_no_start_and_nothing_allocated(recorded: pl.DataFrame) -> None:
    waiting = recorded.filter(pl.col("start_time").is_null())
    assert waiting.select("job_id", "state", "cpus", "nodes").rows() == [
        (7, "CANCELLED", None, None),
        (10, "CANCELLED", None, None),
    ]


def test_names_requests_and_times(recorded: pl.DataFrame) -> None:
    first, killed = (recorded.row(by_predicate=pl.col("job_id") == number, named=True) for number in (1, 4))
    assert (first["job_name"], first["user"], first["cluster"]) == ('ok job "quote" ünicode', "root", "petrel")
    assert first["time_limit_s"] is None and killed["time_limit_s"] == 60.0
    assert (killed["req_mem_bytes"], killed["elapsed_s"]) == (200 * 2**20, 6.0)
    assert killed["start_time"] == datetime(2026, 11, 18, 11, 34, 52, tzinfo=UTC)


def test_the_batch_script_is_not_kept(recorded: pl.DataFrame) -> None:
    assert "SLURM_ARRAY_TASK_ID" not in recorded.write_json()


def test_a_start_is_a_running_job_without_an_end(tmp_path: Path) -> None:
    row = only(tmp_path, state="RUNNING")
    assert (row["state"], row["end_time"], row["elapsed_s"], row["exit_code"]) == ("RUNNING", None, None, None)
    assert row["start_time"] is not None


def test_a_part_of_a_run_up_to_a_resize_is_merged_into_nothing(tmp_path: Path) -> None:
    documents = ({**jobcomp_record(Job(job_id=7)), "state": state} for state in ("RESIZING", "COMPLETED"))
    jobs, rejects, read, merged = read_all(JobCompletions(written(tmp_path, *documents)))
    assert (jobs["state"].to_list(), rejects.height, read, merged) == (["COMPLETED"], 0, 2, 1)


def test_an_export_of_an_index_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, {"_index": "slurm", "_id": "a", "_source": jobcomp_record(Job(job_id=7))})
    assert sniff_format(str(path)) == "jobcomp"
    assert read_all(JobCompletions(path))[0]["job_id"].to_list() == [7]


def test_a_task_without_a_number_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, {**jobcomp_record(Job(job_id=7)), "array_job_id": 7, "array_task_id": None})
    jobs, rejects, *_ = read_all(JobCompletions(path))
    assert (jobs.height, rejects["rule"].to_list()) == (0, ["bad_value"])
