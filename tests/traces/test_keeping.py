import subprocess
import sys
from datetime import UTC, datetime

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stormpetrel.records.window_frames import COUNTED, FLAGGED, TRACE_SCORE_SCHEMA
from stormpetrel.traces.keeping import SAMPLE_SHARE, Quota, kept_scores, kept_windows

START = datetime(2026, 3, 1, tzinfo=UTC)


def scores(nodes=20, cpus=32, *, flagged=(), jobs=2, seed=0, start=START):
    """The scores of a moment; `flagged` names (node, cpu)."""
    rng = np.random.default_rng(seed)
    rows = [
        {
            "cluster": "c", "trace": "live", "node": f"n{node}", "cpu": cpu, "window_start": start, "split": None,
            "job_id": f"{node}{cpu * jobs // cpus}", "job_type": "", "window_s": 100.0, "model": "m", "model_version": 1,
            "score": float(rng.random() + ((node, cpu) in flagged)), "flagged": (node, cpu) in flagged, "x": 0.0, "y": 0.0,
            "max_iowait": 0.0, "bad_io_distance": None, "stands_for": None,
        }
        for node in range(nodes) for cpu in range(cpus)
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=TRACE_SCORE_SCHEMA)


def test_a_site_whose_windows_fit_keeps_all_of_them():
    frame = scores()
    kept = kept_windows(frame, frame.height)
    assert kept.all()
    rows = kept_scores(frame, kept, frame.height)
    assert rows.drop("stands_for").equals(frame.drop("stands_for").sort("node", "cpu", maintain_order=True))
    assert (rows["stands_for"] == 1).all()


def test_flagged_windows_are_kept_with_the_other_threads_of_their_node():
    flagged = {(3, 4), (3, 5), (7, 1)}
    frame = scores(flagged=flagged)
    kept = frame.filter(kept_windows(frame, 6 * 32))
    assert kept.height <= 6 * 32 and kept.filter("flagged").height == 3
    assert kept.filter(pl.col("node").is_in(["n3", "n7"])).height == 2 * 32


def test_a_sample_of_whole_nodes_is_kept_for_the_next_training_and_changes_from_moment_to_moment():
    drawn = []
    for minute in range(12):
        frame = scores(start=START.replace(minute=minute))
        kept = frame.filter(kept_windows(frame, 6 * 32))
        assert (kept.group_by("node").len()["len"] == 32).all() and 0 < kept.height <= 6 * 32 * SAMPLE_SHARE
        drawn += kept["node"].unique().to_list()
    assert len(set(drawn)) > 8


def test_where_everything_is_flagged_the_highest_are_kept_and_the_sample_has_its_room():
    frame = scores(flagged={(node, cpu) for node in range(20) for cpu in range(32)})
    kept = kept_windows(frame, 100)
    assert kept.sum() == 100
    nodes = frame.filter(kept).group_by("node").len().filter(pl.col("len") == 32)["node"]
    others = frame.filter(kept, ~pl.col("node").is_in(nodes.implode()))
    assert nodes.len() == 1
    missed = frame.filter(~kept)["score"].max()
    assert others["score"].min() >= missed


@settings(deadline=None, max_examples=60)
@given(
    nodes=st.integers(1, 12), cpus=st.sampled_from([1, 3, 8, 40]), jobs=st.integers(1, 8), seed=st.integers(0, 99),
    share=st.sampled_from([0.0, 0.02, 0.6]), windows=st.integers(1, 300), room=st.integers(1, 400),
)  # fmt: skip
def test_rows_of_scores_add_up_to_all_windows_and_all_flags_of_each_node(nodes, cpus, jobs, seed, share, windows, room):
    rng = np.random.default_rng(seed)
    flagged = {(node, cpu) for node in range(nodes) for cpu in range(cpus) if rng.random() < share}
    frame = scores(nodes, cpus, flagged=flagged, jobs=jobs, seed=seed)
    kept = kept_windows(frame, windows)
    rows = kept_scores(frame, kept, room)
    assert int(kept.sum()) <= max(windows, 0) and rows.height <= max(room, int(kept.sum())) + 6 * 2 * nodes
    sums = [COUNTED.sum().alias("windows"), FLAGGED.alias("flags"), pl.col("score").max().alias("highest")]
    assert rows.group_by("node").agg(sums).sort("node").equals(frame.group_by("node").agg(sums).sort("node"))
    assert frame.filter(kept).join(rows.filter(pl.col("stands_for") == 1), on=["node", "cpu"], how="anti").is_empty()
    assert rows.select("node", "cpu").is_unique().all()


def test_shares_above_a_score_are_known_from_the_rows_that_are_kept():
    frame = scores(157, 128)
    rows = kept_scores(frame, kept_windows(frame, 1000), 5000)
    assert rows.height <= 5000
    for level in (0.5, 0.9, 0.99):
        true = (frame["score"] > level).mean()
        kept = rows.filter(pl.col("score") > level).select(COUNTED.sum()).item() / frame.height
        assert kept == pytest.approx(true, rel=0.12)


def test_what_is_drawn_is_the_same_in_every_process():
    code = (
        "from tests.traces.test_keeping import *; f = scores(); k = kept_windows(f, 100);"
        "print(f.filter(k)['node'].to_list(), kept_scores(f, k, 200).select('node', 'cpu', 'stands_for').rows())"
    )
    first, second = (subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(2))
    assert first.stdout == second.stdout and len(first.stdout) > 1000


def test_the_quota_of_a_day_is_shared_out_over_its_moments():
    quota = Quota.of_day(windows_mb=1500, scores_mb=150, window_s=100, steps=100)
    assert quota.windows * 864 * 1232 <= 1500e6 < (quota.windows + 1) * 864 * 1232
    assert quota.windows == 1409 and quota.scores == 5425
