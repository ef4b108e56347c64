"""Nodes as a whole: learnt with a trace model, scored with its windows, with memory, pressure, disks and network beside them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from stormpetrel.lifecycle.node_summaries import learnt_hierarchy
from stormpetrel.lifecycle.trace_learning import LearningWindows
from stormpetrel.lifecycle.trace_models import load_trace_model, score_new_windows
from stormpetrel.records.window_frames import NODE_METRIC_SCHEMA, NODE_METRICS
from stormpetrel.store.site import Site
from tests.builders import make_site
from tests.lifecycle.traced_site import put_windows, train
from tests.traces.small import STEPS, small_windows

pytestmark = pytest.mark.needs("torch")
LEARNT, LATER = 60, 6  # moments
SICK = LEARNT + 4  # n1 runs out of memory here


def put_metrics(site: Site, moments: int) -> None:
    """Calm metrics of both nodes at each moment but one; of the network nothing is known, and nothing at all of two moments."""
    rng, starts = np.random.default_rng(0), np.unique(small_windows(0, steps=moments * STEPS).start_s)
    rows = []
    for number, start_s in enumerate(starts):
        for node in ("n0", "n1"):
            shares = dict(zip(NODE_METRICS[:-1], 0.1 + 0.02 * rng.random(5), strict=True))
            if number == SICK and node == "n1":
                shares["memory_pressure"] = 0.8
            if number not in (3, LEARNT + 1):
                rows.append({"cluster": "c", "trace": "live", "node": node, "window_start": round(start_s * 1e6),
                             "window_s": float(STEPS), **shares})  # fmt: skip
    schema = {**NODE_METRIC_SCHEMA, "window_start": pl.Int64()}
    frame = pl.DataFrame(rows, schema=schema).with_columns(
        pl.col("window_start").cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
    )
    site.node_metrics.append(frame)


@pytest.fixture(scope="module")
def scores(tmp_path_factory) -> pl.DataFrame:
    """What a site that has learnt from sixty moments says of these and of six more."""
    whole = small_windows(0, steps=(LEARNT + LATER) * STEPS, name="live")
    whole = whole.take(whole.cpu != 6)  # without the thread of Bad IO, which is never calm
    starts = np.unique(whole.start_s)
    with make_site(tmp_path_factory.mktemp("nodes") / "site", traces={"window_s": float(STEPS)}) as site:
        put_windows(site, whole.take(whole.start_s < starts[LEARNT]))
        put_metrics(site, LEARNT + LATER)
        train(site)
        put_windows(site, whole.take(whole.start_s >= starts[LEARNT]))
        model = load_trace_model(site)
        assert model.hierarchy is not None and model.hierarchy.names == NODE_METRICS[:-1]
        score_new_windows(site, model)
        return site.node_scores.read().sort("window_start", "node").collect()


def test_every_node_and_the_cluster_has_one_score_and_one_embedding_at_each_moment(scores):
    per_level = scores.group_by("level").len().sort("level")
    assert dict(per_level.iter_rows()) == {"cluster": LEARNT + LATER, "node": 2 * (LEARNT + LATER)}
    assert scores["score"].is_finite().all() and scores["embedding"].null_count() == 0
    assert scores.filter(pl.col("level") == "cluster")["node"].unique().to_list() == [""]


def test_the_node_that_runs_out_of_memory_is_the_most_unusual_and_the_metric_is_named(scores):
    worst = scores.filter(pl.col("level") == "node").sort("score", descending=True).row(0, named=True)
    assert (worst["node"], worst["unusual"]) == ("n1", "memory_pressure")
    assert worst["now"] == pytest.approx(0.8) and worst["usual"] == pytest.approx(0.11, abs=0.01)
    assert scores["unusual"].drop_nulls().to_list() == ["memory_pressure"]


def test_moments_without_metrics_are_scored_as_usual(scores):
    moment = scores["window_start"].unique().sort()[LEARNT + 1]
    without = scores.filter(pl.col("window_start") == moment, pl.col("level") == "node")
    assert without["score"].max() < 3 and without["unusual"].null_count() == 2


def learnt(windows, metrics=None):
    """The levels of windows, the last third of them kept aside, by the means of the modes in place of a network."""
    cut = np.quantile(windows.start_s, 2 / 3)
    seen = LearningWindows(windows.take(windows.start_s < cut), windows.take(windows.start_s >= cut), {})
    scorer = SimpleNamespace(embed=lambda some: some.rates.mean(axis=1))
    return learnt_hierarchy(scorer, seen, pl.DataFrame(schema=NODE_METRIC_SCHEMA) if metrics is None else metrics)


def test_without_metrics_the_same_levels_are_learnt():
    hierarchy = learnt(small_windows(0, steps=40 * STEPS, name="live"))
    assert hierarchy is not None and hierarchy.names == () and set(hierarchy.levels) == {"job", "node", "cluster"}


def test_from_few_moments_nothing_is_learnt():
    assert learnt(small_windows(0, steps=9 * STEPS, name="live")) is None


def test_windows_that_are_labelled_as_trouble_are_not_learnt_at_any_level():
    whole = small_windows(0, steps=60 * STEPS, name="live")
    sick = replace(whole, jobs=tuple(replace(job, labelled_anomalous=job == whole.jobs[0]) for job in whole.jobs))
    calm = [learnt(windows).metadata()["calm"]["job"] for windows in (whole, sick)]
    assert calm[1] < calm[0]
