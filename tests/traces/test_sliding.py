"""The sliding score: that of the whole window at every step, with gaps, for any number of threads."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy.stats import spearmanr

from stormpetrel.errors import ModelError
from stormpetrel.records.traces import MIXED_JOB, NodeSteps
from stormpetrel.records.windows import cut_windows
from stormpetrel.traces import sliding
from stormpetrel.traces.networks.architecture import Architecture
from stormpetrel.traces.networks.autoencoder import TraceAutoencoder
from stormpetrel.traces.networks.runtime import TraceScorer
from stormpetrel.traces.sliding import SlidingScores, SlidingSpans
from tests.parts import need
from tests.traces.small import STEPS, one_torch_thread, small_trace, small_windows, tiny

TRACE = small_trace(2, steps=3 * STEPS)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder of a trained model for each of two architectures."""
    need("torch")
    folders = {}
    with one_torch_thread():
        for kind in (Architecture.FAST, Architecture.VANILLA):
            folders[kind] = tmp_path_factory.mktemp("models") / kind
            TraceAutoencoder(tiny(kind)).fit(small_windows(0), small_windows(1), device="cpu").save(folders[kind])
    return folders


@pytest.fixture(scope="module")
def scorer(saved):
    return TraceScorer.load(saved[Architecture.FAST], threads=1)


def pushed(scorer: TraceScorer, rates: np.ndarray) -> np.ndarray:
    """The scores after each step: (steps, threads)."""
    scores = SlidingScores(scorer, rates.shape[1])
    return np.array([scores.push(step) for step in rates])


def full_scores(scorer: TraceScorer) -> np.ndarray:
    """The score of every whole window of the trace, cut at every step: (windows, threads)."""
    return scorer.score(cut_windows(TRACE, steps=STEPS, stride=1)).reshape(-1, TRACE.threads)


@pytest.mark.parametrize("portion", [256, 5])
def test_at_every_step_it_is_the_score_of_the_window_that_ends_there(scorer, monkeypatch, portion):
    monkeypatch.setattr(sliding, "FAST_AT_ONCE", portion)
    found, full = pushed(scorer, TRACE.rates)[STEPS - 1 :], full_scores(scorer)
    assert np.allclose(found, full, rtol=1e-4, atol=1e-9)
    assert spearmanr(found.ravel(), full.ravel()).statistic > 0.9999


def test_there_is_no_score_before_a_whole_window_was_seen(scorer):
    found = pushed(scorer, TRACE.rates)
    assert np.isnan(found[: STEPS - 1]).all() and np.isfinite(found[STEPS - 1 :]).all()


def test_a_missed_step_costs_its_thread_a_window_and_the_others_nothing(scorer):
    rates = TRACE.rates.copy()
    rates[20, 3] = np.nan
    found, whole = pushed(scorer, rates), pushed(scorer, TRACE.rates)
    others = np.arange(TRACE.threads) != 3
    assert np.isnan(found[20 : 20 + STEPS, 3]).all()
    assert np.allclose(found[20 + STEPS :, 3], whole[20 + STEPS :, 3], rtol=1e-4)
    assert np.allclose(found[:, others], whole[:, others], rtol=1e-4, equal_nan=True)


def test_it_holds_the_last_window_of_each_thread(scorer):
    scores = SlidingScores(scorer, TRACE.threads)
    for step in TRACE.rates[: STEPS + 3]:
        scores.push(step)
    assert np.array_equal(scores.windows(), TRACE.rates[3 : STEPS + 3].transpose(1, 0, 2))
    assert scores.bytes_held == TRACE.threads * (STEPS * 4 * 4 + 16)


def test_steps_of_other_threads_are_refused(scorer):
    with pytest.raises(ModelError, match="16 threads"):
        SlidingScores(scorer, 16).push(TRACE.rates[0, :3])


def test_a_network_without_a_graph_that_scores_is_refused_with_the_command_that_trains_one(saved):
    vanilla = TraceScorer.load(saved[Architecture.VANILLA], threads=1)
    with pytest.raises(ModelError, match="--architecture fast"):
        pushed(vanilla, TRACE.rates)


SPAN = STEPS // 2
FIRST = 100 * STEPS  # a multiple of spans


def of_node(name: str, first: int, last: int, *, job: np.ndarray | None = None) -> NodeSteps:
    """Steps first to last of a node of the trace."""
    columns = [place for place, node in enumerate(TRACE.nodes) if node == name]
    jobs = (TRACE.job if job is None else job)[first:last, columns]
    ids = tuple(one.job_id for one in TRACE.jobs)
    return NodeSteps(name, tuple(range(8)), FIRST + first, TRACE.rates[first:last, columns], jobs, ids)


def threshold_of(scorer: TraceScorer) -> float:
    return float(np.quantile(full_scores(scorer), 0.7))


def test_a_span_counts_what_was_above_the_threshold_by_node_and_job(scorer):
    threshold, full = threshold_of(scorer), full_scores(scorer)  # (steps from STEPS - 1 on, threads)
    spans = SlidingSpans(scorer, threshold, SPAN)
    for first in range(0, TRACE.steps, 5):  # in pieces, the second node one step behind
        last = min(first + 5, TRACE.steps)
        late = slice(max(0, first - 1), last - 1 if last < TRACE.steps else last)
        spans.push([of_node("n0", first, last), of_node("n1", late.start, late.stop)])
    found = spans.take(FIRST + TRACE.steps)
    above = np.concatenate([np.zeros((STEPS - 1, TRACE.threads), dtype=bool), full > threshold])
    totals = found.filter(found["node"] == "")
    assert totals["above"].to_list() == [int(above[at : at + SPAN].sum()) for at in range(SPAN, TRACE.steps, SPAN)]
    assert totals["scored"].to_list() == [16] + [16 * SPAN] * (totals.height - 1)
    rows = found.filter((found["node"] == "n1") & (found["job_id"] == "12"))  # Bad IO, on CPU 6
    column = 8 + 6
    expected = {FIRST + at: int(above[at : at + SPAN, column].sum()) for at in range(0, TRACE.steps, SPAN)}
    assert all(expected[at] == count for at, count in rows.select("first_step", "above").iter_rows())
    assert set(rows["first_step"]) >= {at for at, count in expected.items() if count}
    assert set(rows["cpu"]) == {6}
    since = {FIRST + at: FIRST + at + int(np.argmax(above[at : at + SPAN, column])) for at in range(0, TRACE.steps, SPAN)}
    stated = rows.drop_nulls("above_since").select("first_step", "above_since")
    assert stated.height and all(since[at] == step for at, step in stated.iter_rows())
    assert rows["threads_above"].to_list() == [int(count > 0) for count in rows["above"]]


def test_nodes_without_anything_above_have_no_row_but_are_counted(scorer):
    spans = SlidingSpans(scorer, 1e9, SPAN)
    spans.push([of_node("n0", 0, TRACE.steps), of_node("n1", 0, TRACE.steps)])
    found = spans.take(FIRST + TRACE.steps)
    assert set(found["node"]) == {""} and set(found["above"]) == {0} and found["threads"].max() == 16


def test_a_thread_that_changed_hands_is_not_above_until_a_whole_window_is_of_one_job(scorer):
    job = TRACE.job.copy()
    job[STEPS + 5 :, 0] = 1  # n0, CPU 0: from one job to another
    spans = SlidingSpans(scorer, 0.0, 1)  # every score is above, every step a span
    spans.push([of_node("n0", 0, TRACE.steps, job=job)])
    found = spans.take(FIRST + TRACE.steps)
    totals = dict(found.filter(found["node"] == "").select("first_step", "above").iter_rows())
    windows = cut_windows(TRACE, steps=STEPS, stride=1)
    assert (windows.job != MIXED_JOB).all()
    seven = {step - FIRST for step, count in totals.items() if count == 7}
    assert seven == set(range(STEPS + 5, 2 * STEPS + 4)) and totals[FIRST + 2 * STEPS + 4] == 8


def test_a_gap_a_lost_node_and_new_cpus_begin_anew_and_their_places_are_used_again(scorer):
    spans = SlidingSpans(scorer, 0.0, SPAN)
    spans.push([of_node("n0", 0, STEPS), of_node("n1", 0, STEPS)])
    spans.push([of_node("n0", STEPS + 1, 2 * STEPS)])  # one step is missing
    assert spans.take(FIRST + 2 * STEPS)["scored"].sum() == 2 * (2 * 8)  # the last step of the first window, in both rows
    half = of_node("n1", 2 * STEPS, 3 * STEPS)
    half = NodeSteps("n1", half.cpus[:4], half.first, half.rates[:, :4], half.job[:, :4], half.jobs)
    spans.push([half])
    spans.push([of_node("n0", 2 * STEPS, 3 * STEPS)])
    assert spans.threads == 12 and spans._scores.threads == 16
    assert spans.take(FIRST + 3 * STEPS).filter(pl.col("node") == "")["scored"].sum() == 4 + 8 * STEPS
    spans.push([NodeSteps("n2", half.cpus, FIRST + 9 * STEPS, half.rates, half.job, half.jobs)])
    spans.take(FIRST + 9 * STEPS)
    assert spans.threads == 4 and spans._scores.threads == 16


def test_steps_that_come_twice_count_once(scorer):
    once, twice = SlidingSpans(scorer, 0.0, SPAN), SlidingSpans(scorer, 0.0, SPAN)
    once.push([of_node("n0", 0, 2 * STEPS)])
    twice.push([of_node("n0", 0, STEPS)])
    twice.push([of_node("n0", STEPS - 3, 2 * STEPS)])
    assert once.take(FIRST + 2 * STEPS).equals(twice.take(FIRST + 2 * STEPS))
