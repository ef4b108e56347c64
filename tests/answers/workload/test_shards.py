"""Jobs in parts: the same files wherever they are made, one manifest, and a run that goes on where it was killed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from stormpetrel.answers.workload.input import make_generator
from stormpetrel.answers.workload.shards import MANIFEST, write_shards
from stormpetrel.engine import Engine
from stormpetrel.errors import UsageError
from stormpetrel.synth.contract import Wanted
from tests.synth.made_workloads import made_workload

WANTED = Wanted(days=12, start=datetime(2027, 3, 1, tzinfo=UTC), seed=4)


@pytest.fixture(scope="module", params=["sessions", "rows"])
def generator(request):
    return make_generator(request.param, seed=0).fit(made_workload(600, weeks=4))


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def test_two_workers_write_the_files_that_one_writes(generator, tmp_path):
    one = write_shards(generator, WANTED, 3, tmp_path / "one", Engine(1))
    two = write_shards(generator, WANTED, 3, tmp_path / "two", Engine(2))
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert one.model_copy(update={"seconds": 0.0, "output": ""}) == two.model_copy(update={"seconds": 0.0, "output": ""})


def test_parts_follow_each_other_and_the_manifest_names_them(generator, tmp_path):
    receipt = write_shards(generator, WANTED, 4, tmp_path, Engine(1))
    jobs = pl.concat([pl.read_parquet(file) for file in sorted(tmp_path.glob("part-*.parquet"))])
    assert jobs["submit_time"].is_sorted() and jobs.height == receipt.jobs > 0
    assert receipt.first == jobs["submit_time"][0] >= WANTED.start
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    assert [file["file"] for file in manifest["files"]] == [f"part-{number:05}.parquet" for number in range(4)]
    assert sum(file["jobs"] for file in manifest["files"]) == receipt.jobs


def test_a_second_run_makes_only_what_is_missing_and_refuses_what_was_changed(generator, tmp_path):
    write_shards(generator, WANTED, 3, tmp_path, Engine(1))
    before = {file.name: file.stat().st_mtime_ns for file in tmp_path.glob("part-*")}
    told: list[str] = []
    write_shards(generator, WANTED, 3, tmp_path, Engine(1), progress=lambda _share, text: told.append(text))
    assert {file.name: file.stat().st_mtime_ns for file in tmp_path.glob("part-*")} == before
    assert told == [f"part {number} of 3: was done before" for number in (1, 2, 3)]
    (tmp_path / "part-00001.parquet").write_bytes(b"other")
    with pytest.raises(UsageError, match="is not the file that was written"):
        write_shards(generator, WANTED, 3, tmp_path, Engine(1))
    assert not (tmp_path / MANIFEST).exists()


@pytest.mark.parametrize("wanted", [Wanted(jobs=100), Wanted(days=3), Wanted(start=WANTED.start)])
def test_parts_need_days_and_a_start(generator, wanted, tmp_path):
    with pytest.raises(UsageError, match="spans of the parts"):
        write_shards(generator, wanted, 2, tmp_path, Engine(1))
