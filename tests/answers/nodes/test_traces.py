"""What the trace model in use says of a site's windows: rankings, map and diagnosis, for administrators."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from stormpetrel.answers.nodes.traces import (
    ScoredWindows,
    is_scored,
    most_abnormal,
    score_traces,
    scored_windows,
    site_traces,
    trace_diagnosis,
    trace_map,
)
from stormpetrel.answers.viewer import Viewer
from stormpetrel.errors import AccessError, ModelError
from stormpetrel.records.traces import MIXED
from stormpetrel.traces.diagnosis import Trouble
from stormpetrel.traces.promise import Calm, Promise
from stormpetrel.traces.regions import Regions
from tests.answers import traced_sites as made
from tests.builders import make_site

SCORES = made.scores_of(made.campaign())


def windows_of(points=SCORES, **model):
    about = {
        "name": made.MODEL, "version": 3, "title": "traces-vanilla version 3", "is_shipped": False, "bad_io": None,
        "map": SimpleNamespace(explained=np.array([0.6, 0.3, 0.1])), "promise": Promise(0.001, None, None, Calm(5, 5, 0.1)),
        "regions": Regions(), "scorer": SimpleNamespace(settings=SimpleNamespace(embedding=16)),
    } | model  # fmt: skip
    return ScoredWindows(SimpleNamespace(**about), points)


def test_the_most_abnormal_have_the_largest_share_of_flagged_windows():
    answer = most_abnormal(windows_of(), top=5)
    for rows in (answer.nodes, answer.threads, answer.jobs):
        shares = [row.flagged / row.windows for row in rows]
        assert shares == sorted(shares, reverse=True) and 0 < len(rows) <= 5
    worst = answer.threads[0]
    own = SCORES.filter(node=worst.node, cpu=worst.cpu)
    assert (worst.windows, worst.highest_score, worst.max_iowait) == (own.height, own["score"].max(), own["max_iowait"].max())
    assert (answer.model, answer.version, answer.shipped) == (made.MODEL, 3, False)


def test_the_highest_score_is_not_that_of_a_window_in_which_a_thread_changed_hands():
    mixed = SCORES.filter(node=SCORES["node"][0]).head(1).with_columns(job_type=pl.lit(MIXED), score=pl.lit(99.0, pl.Float32))
    answer = most_abnormal(windows_of(pl.concat([SCORES, mixed.select(SCORES.columns).cast(SCORES.schema)])), top=5)
    assert max(row.highest_score for row in answer.nodes) < 99.0


def test_the_map_counts_every_window_under_its_type_and_lists_them_only_where_asked():
    answer = trace_map(windows_of())
    assert sum(row.windows for row in answer.job_types) == SCORES.height and answer.points == []
    assert answer.explained == [0.6, 0.3]
    points = trace_map(windows_of(), with_points=True).model_dump(mode="json")["points"]
    assert len(points) == SCORES.height
    assert points[0].keys() == {"node", "cpu", "window_start", "job_id", "job_type", "x", "y", "score", "flagged", "region"}


def test_a_diagnosis_needs_a_known_bad_io_and_names_others_near_it():
    with pytest.raises(ModelError, match="knows no Bad IO"):
        trace_diagnosis(windows_of())
    near = SCORES.with_columns(bad_io_distance=pl.lit(0.5), max_iowait=pl.lit(0.9))
    bad_io = Trouble(np.zeros(2), radius=1.0, high_iowait=0.4, windows=9)
    answer = trace_diagnosis(windows_of(near, bad_io=bad_io))
    assert answer.near == answer.windows > 0 and answer.radius == 1.0
    assert answer.suspects and all(row.job_type not in ("Bad IO", "Idle", "Mixed") for row in answer.suspects)


def test_a_site_is_summed_up_from_the_first_window_to_the_last():
    answer = site_traces(windows_of(SCORES.sort("window_start")))
    assert (answer.windows, answer.node_count, answer.flagged) == (SCORES.height, 3, SCORES["flagged"].sum())
    assert (answer.first, answer.last) == (SCORES["window_start"].min(), SCORES["window_start"].max())
    assert answer.diagnosis is None and "Nothing is flagged" in answer.promise.sentence


@pytest.mark.parametrize("question", [trace_map, trace_diagnosis, site_traces])
def test_before_the_first_score_the_next_command_is_named(question):
    with pytest.raises(ModelError, match=r"No window has been scored yet by .*stormpetrel traces score"):
        question(windows_of(SCORES.clear()))


def test_only_administrators_read_and_score_everybodys_windows(tmp_path):
    with make_site(tmp_path / "site") as site:
        assert not is_scored(site)
        for ask in (scored_windows, score_traces):
            with pytest.raises(AccessError, match="Only administrators"):
                ask(site, Viewer("ada", is_admin=False))
            with pytest.raises(AccessError, match="scope"):
                ask(site, Viewer("root", is_admin=True, scopes=frozenset({"predict"})))
