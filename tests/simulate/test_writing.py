"""What the simulated cluster writes reads back as the same jobs."""

from __future__ import annotations

import gzip
from dataclasses import replace

import polars as pl
import pytest

from stormpetrel.errors import UsageError
from stormpetrel.records.jobs import JOB_SCHEMA
from stormpetrel.simulate.cluster import simulate
from stormpetrel.simulate.writing import sacct_text, write_sacct
from stormpetrel.sources.slurm.live import WANTED
from stormpetrel.sources.slurm.sacct_text import SacctText
from tests.builders import read_all
from tests.simulate.made import SMALL


@pytest.fixture(scope="module")
def frames() -> list[pl.DataFrame]:
    return list(simulate(SMALL, chunk=700))


@pytest.fixture(scope="module")
def jobs(frames) -> pl.DataFrame:
    return pl.concat(frames)


def test_sacct_text_reads_back_as_the_same_jobs_in_every_column(frames, jobs, tmp_path):
    assert write_sacct(frames, tmp_path / "log.txt") == jobs.height
    read, refused, lines, folded = read_all(SacctText(tmp_path / "log.txt"))
    assert (read.height, refused.height, folded) == (jobs.height, 0, lines - jobs.height)
    same = [name for name in JOB_SCHEMA if name not in ("extra", "source", "quality")]
    different = [name for name in same if not read[name].equals(jobs[name])]
    assert different == []
    # sacct tells the memory of one task: of a job on several nodes that is not all.
    doubted = read.filter(pl.col("quality").is_not_null())
    assert (set(doubted["quality"]), doubted["nodes"].min() > 1) == ({"rss_of_one_task"}, True)


def test_the_log_has_every_state_that_it_should_test(jobs):
    assert {"COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "CANCELLED"} <= set(jobs["state"])
    assert jobs["array_task"].max() > 0 and jobs["nodes"].max() > 1 and jobs["start_time"].null_count() > 0


def test_a_packed_log_is_the_same_log_and_the_same_file_twice(frames, tmp_path):
    write_sacct(frames, tmp_path / "log.txt")
    for name in ("a.gz", "b.gz"):
        write_sacct(frames, tmp_path / name)
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()) == (tmp_path / "log.txt").read_bytes()
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_a_job_on_several_nodes_has_a_step_of_its_own_and_one_that_never_ran_has_none(jobs):
    def ids(job: pl.DataFrame) -> list[str]:
        return [line.split("|")[0].partition(".")[2] for line in sacct_text(job.head(1)).splitlines()]

    assert ids(jobs.filter(pl.col("nodes") > 1)) == ["", "batch", "extern", "0"]
    assert ids(jobs.filter(pl.col("nodes") == 1)) == ["", "batch", "extern"]
    assert ids(jobs.filter(pl.col("start_time").is_null())) == [""]


def test_every_field_that_live_ingest_wants_can_be_printed(jobs):
    (line, *_) = sacct_text(jobs.head(1), fields=WANTED, delimiter="\x1f").splitlines()
    assert line.count("\x1f") == len(WANTED) - 1


def test_a_field_that_does_not_exist_is_refused_by_name(jobs):
    with pytest.raises(UsageError, match="NoSuchField"):
        sacct_text(jobs.head(1), fields=["JobID", "NoSuchField"])


def test_a_frame_in_pieces_of_which_the_first_has_nothing_to_tell_is_written():
    whole = pl.concat(simulate(replace(SMALL, days=4)))
    wide = whole.filter(pl.col("nodes") > 1)
    narrow = whole.filter(pl.col("nodes") == 1).head(5)
    pieces = pl.concat([narrow, wide], rechunk=False)
    text = sacct_text(pieces, fields=["JobID", "State", "MaxRSS"], delimiter="|")
    assert text == sacct_text(pieces.rechunk(), fields=["JobID", "State", "MaxRSS"], delimiter="|")
