"""The feature table of a site: to the last bit one sweep in memory, whatever it is divided into, and it goes on where it was."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.engine import ONE_PROCESS, Engine
from stormpetrel.errors import NotEnoughJobsError, UsageError
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.jobs.history.keys import SPACES
from stormpetrel.jobs.history.shards import ShardSweep, shards_of
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.predictor import known_by
from stormpetrel.jobs.training import label_jobs
from stormpetrel.lifecycle import history_snapshot
from stormpetrel.lifecycle.feature_table import write_feature_table
from stormpetrel.lifecycle.training_pieces import label_site
from stormpetrel.records.jobs import KEY
from stormpetrel.sources.swf import SwfLog
from tests.jobs.logs import make_log, one_thread
from tests.lifecycle.sites import DAYS, QUICK, day, make_site, put_jobs

UNTIL = day(DAYS - 3)  # some jobs still wait or run


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_thread():
        yield


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.setattr(history_snapshot, "PIECE_ROWS", 70)
    with make_site(tmp_path / "site") as opened:
        nobody = pl.when(pl.int_range(pl.len()) % 11 == 0).then(None).otherwise("user").alias("user")
        put_jobs(opened, make_log(900, 3, days=DAYS, unfinished=0.05).with_columns(nobody))
        yield opened


def written(folder, moment):
    return pl.concat([pl.read_parquet(path) for path in sorted(folder.glob(f"{moment}-*.parquet"))])


def assert_same_as_one_sweep(site, folder, until=UNTIL):
    whole = label_jobs(known_by(site.jobs.read_jobs(until=until).collect(), until), QUICK)
    for moment in MOMENTS:
        table, matrix = written(folder, moment), whole.features[moment]
        came = ~np.isnan(matrix.values[:, matrix.names.index("site.failed_rate_1h")])
        assert table.columns == [*KEY, "failed", "outcome", *matrix.names]
        values = table.select(matrix.names).to_numpy()
        np.testing.assert_array_equal(values.view(np.uint32), matrix.values[came].view(np.uint32))
        assert table.select(KEY).equals(whole.jobs.select(KEY).filter(came))
        reached = table["failed"].is_not_null().to_numpy()
        np.testing.assert_array_equal(reached, whole.usable[came])
        assert table["failed"].drop_nulls().to_list() == whole.failed[came & whole.usable].tolist()


@pytest.mark.parametrize("parts", [1, 3])
def test_features_of_shards_and_pieces_are_those_of_one_sweep_to_the_last_bit(site, tmp_path, parts):
    table = write_feature_table(site, tmp_path / "table", QUICK, until=UNTIL, parts=parts)
    assert table.pieces > 5 and table.shards == parts + 6 and table.rows["submit"] > table.rows["2min"] > 0
    assert_same_as_one_sweep(site, tmp_path / "table")
    manifest = json.loads((tmp_path / "table" / "manifest.json").read_text())
    assert manifest["rows"] == table.rows and len(manifest["features"]["start"]) == table.features["start"]
    assert not [path for path in (tmp_path / "table").iterdir() if path.name.startswith(".")]


@pytest.mark.realdata
def test_a_public_log_has_the_features_of_one_sweep_to_the_last_bit(tmp_path, monkeypatch, public_logs):
    monkeypatch.setattr(history_snapshot, "PIECE_ROWS", 4_000)
    with make_site(tmp_path / "site") as site:
        ingest_jobs(site, SwfLog(public_logs / "jobs" / "KTH-SP2-1996-2.1-cln.swf.gz"))
        last = site.jobs.read_jobs().select(pl.col("end_time").max()).collect().item() + timedelta(days=1)
        table = write_feature_table(site, tmp_path / "table", QUICK, until=last, parts=3)
        assert table.jobs == 27_992 and table.pieces > 5
        assert_same_as_one_sweep(site, tmp_path / "table", last)


def test_workers_write_the_same_files(site, tmp_path):
    for name, engine in (("here", ONE_PROCESS), ("there", Engine(2))):
        write_feature_table(site, tmp_path / name, QUICK, [Moment.START], until=UNTIL, parts=2, engine=engine)
    here, there = ({path.name: path.read_bytes() for path in (tmp_path / name).glob("*.parquet")} for name in ("here", "there"))
    assert here == there and len(here) > 5 and all(name.startswith("start-") for name in here)


def test_a_run_that_is_killed_goes_on_where_it_was(site, tmp_path, monkeypatch):
    swept: list[str] = []
    step = ShardSweep.step

    def counted(self, *args, **kwargs):
        if len(swept) == 40:
            raise KeyboardInterrupt
        swept.append(self.shard.name)
        return step(self, *args, **kwargs)

    monkeypatch.setattr(ShardSweep, "step", counted)
    with pytest.raises(KeyboardInterrupt):
        write_feature_table(site, tmp_path / "table", QUICK, until=UNTIL, parts=2)
    before = list(dict.fromkeys(swept))
    swept.clear()
    monkeypatch.setattr(ShardSweep, "step", lambda self, *a, **k: swept.append(self.shard.name) or step(self, *a, **k))
    write_feature_table(site, tmp_path / "table", QUICK, parts=2)  # until the same moment: that of the run that was killed
    assert len(before) > 2 and not set(before[:-1]) & set(swept)
    assert_same_as_one_sweep(site, tmp_path / "table")


def test_a_folder_that_holds_something_and_a_site_without_jobs_are_refused(site, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    with pytest.raises(UsageError, match="holds something already"):
        write_feature_table(site, tmp_path / "full", QUICK)
    with make_site(tmp_path / "empty") as empty, pytest.raises(NotEnoughJobsError):
        write_feature_table(empty, tmp_path / "table", QUICK)


def test_every_space_is_read_by_one_shard_and_those_that_lean_on_each_other_together():
    shards = shards_of(1)
    read = [space for shard in shards for space in shard.spaces]
    assert sorted(read) == sorted(space.name for space in SPACES)
    for shard in shards:
        parents = {space.parent for space in SPACES if space.name in shard.spaces}
        assert parents <= {*shard.spaces, "site", None}


def test_groups_of_similar_names_are_not_divided(site, tmp_path):
    with pytest.raises(UsageError, match="one sweep over all jobs"):
        write_feature_table(site, tmp_path / "out", replace(QUICK, similar_names=True), until=UNTIL)
    whole = label_site(site, replace(QUICK, similar_names=True), MOMENTS, until=UNTIL, answers=False, engine=Engine(2))
    assert whole.history.similar_names  # swept here, whatever the engine
