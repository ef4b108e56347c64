"""The table of trace scores: every window once per version of a model."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from stormpetrel.records.window_frames import TRACE_SCORE_SCHEMA
from tests.builders import make_site

START = datetime(2026, 1, 31, 23, 50, tzinfo=UTC)


def scores(n=6, *, version=1, model="traces-vanilla", node="n1"):
    return pl.DataFrame(
        {
            "cluster": "c", "trace": "live", "node": node, "cpu": range(n), "split": None, "job_id": "7", "job_type": "NP",
            "window_start": [START + timedelta(minutes=5 * k) for k in range(n)], "window_s": 100.0, "model": model,
            "model_version": version, "score": [k / 10 for k in range(n)], "flagged": False, "x": 0.0, "y": 0.0,
            "max_iowait": 0.1, "bad_io_distance": None, "stands_for": None,
            "region": None, "embedding": [[0.5, float(k)] for k in range(n)],
        },
        schema_overrides=TRACE_SCORE_SCHEMA,
    )  # fmt: skip


@pytest.fixture
def store(tmp_path):
    with make_site(tmp_path / "site") as site:
        yield site.trace_scores


def test_scores_come_back_as_they_went_in(store):
    assert store.append(scores()) == 6
    back = store.read().collect().sort("window_start")
    assert back.schema == TRACE_SCORE_SCHEMA
    assert back.equals(scores().select(list(TRACE_SCORE_SCHEMA)).cast(TRACE_SCORE_SCHEMA))


def test_a_window_is_kept_once_per_version(store):
    store.append(scores(4))
    assert store.append(scores(6)) == 2 and store.append(scores(6)) == 0
    assert store.append(pl.concat([scores(6, version=2)] * 2)) == 6
    assert store.read().collect().height == 12


def test_nothing_new_makes_no_commit(store):
    store.append(scores())
    version = store.table.version()
    store.append(scores())
    store.append(scores().clear())
    assert store.table.version() == version


def test_spans_models_and_versions_are_read_apart(store):
    store.append(pl.concat([scores(), scores(version=2), scores(model="traces-node_gnn")]))
    assert store.read(model="traces-vanilla", version=2).collect().height == 6
    february = datetime(2026, 2, 1, tzinfo=UTC)
    assert store.read(since=february, version=2).collect()["cpu"].sort().to_list() == [2, 3, 4, 5]
    assert store.read(until=february, model="traces-node_gnn").collect()["cpu"].sort().to_list() == [0, 1]
