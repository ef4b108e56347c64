"""Why a node is odd, in one sentence."""

from __future__ import annotations

import numpy as np
import pytest

from stormpetrel.records.traces import MODES
from stormpetrel.traces.detector.reasons import _others_text, _what, odd_nodes
from tests.traces.detector.test_detector import campaigns, detector


def with_change(change, *, rows_of=lambda rows: rows[: len(rows) // 2]):
    """The later campaign with something put into half of the threads of one node at its last moment."""
    test = campaigns()[1]
    seen = detector().observe(test)
    node = int(np.argmax(seen.layout.node_start_s + (seen.layout.node_of == 0)))
    rows = rows_of(np.flatnonzero(seen.layout.node == node))
    rates = test.rates.copy()
    change(rates, rows)
    return detector().changed(seen, rates), rows, node


def found_in(seen, node):
    start_s = seen.layout.node_start_s[node]
    findings = odd_nodes(detector(), seen, share=0.01, since_s=start_s)
    name = seen.windows.nodes[seen.layout.node_of[node]]
    return next(finding for finding in findings if finding.node == name)


def wait_from_step_60(rates, rows):
    rates[rows, 60:] = np.array([0.02, 0.08, 0.9, 0.0], dtype=np.float32)


def repeat_from_step_20(rates, rows):
    rates[rows, 20:] = np.array([0.43, 0.05, 0.0, 0.52], dtype=np.float32)


def test_who_waits_for_files_and_since_when_is_told():
    seen, rows, node = with_change(wait_from_step_60)
    finding = found_in(seen, node)
    assert finding.mode == "iowait" and finding.now > 0.6 and finding.score >= 2
    assert abs(finding.since_s - finding.start_s - 60) <= 2
    assert set(finding.threads) >= set(seen.windows.cpu[rows].tolist())
    assert f"{len(finding.threads)} of {finding.of_threads} threads wait for files (iowait " in finding.sentence
    assert " since " in finding.sentence


def test_threads_that_stand_still_are_told():
    seen, _, node = with_change(repeat_from_step_20)
    assert "show the same second again and again (user " in found_in(seen, node).sentence


@pytest.mark.parametrize(
    ("mode", "before", "now", "busy", "words"),
    [
        ("iowait", 0.01, 0.8, 0.9, "waits for files (iowait 1% before, 80% now)"),
        ("user", 0.9, 0.0, 0.0, "stands still (user 90% before, 0% now)"),
        ("system", 0.1, 0.5, 0.9, "is kept busy by the kernel (system 10% before, 50% now)"),
        ("other", 0.1, 0.5, 0.5, "idles (other 10% before, 50% now)"),
        ("user", 0.5, 0.5, 0.5, "does not behave as it did"),
    ],
)
def test_a_single_thread_is_told_of_in_the_singular(mode, before, now, busy, words):
    assert _what(np.zeros((1, 60)), MODES.index(mode), before, now, busy, one=True) == words


def test_the_other_threads_are_counted_in_words():
    idle, works = np.tile([0.0, 0.0, 0.0, 1.0], (2, 5, 1)), np.tile([1.0, 0.0, 0.0, 0.0], (1, 5, 1))
    assert _others_text(idle, "the node's", "") == " while the node's other threads are idle"
    assert _others_text(works, "its job's", "") == " while its job's other thread works"
    assert _others_text(works, "the node's", " without a job") == " while the node's other thread without a job works"


def test_threads_that_stopped_are_told_apart_from_those_of_their_job_that_work_on():
    """Whoever works on differs from its neighbours now, and is no part of the trouble."""
    test = campaigns()[1]
    seen = detector().observe(test)
    layout = seen.layout
    busy = test.rates[:, :, :2].sum(axis=2).mean(axis=1) > 0.5
    sizes = np.bincount(layout.work[(layout.work >= 0) & busy & (test.job >= 0)], minlength=len(layout.work_job))
    rows = np.flatnonzero(layout.work == int(sizes.argmax()))
    assert rows.size >= 4
    stopped = rows[: rows.size - rows.size // 4]
    rates = test.rates.copy()
    rates[stopped, 40:] = np.array([0.0, 0.0, 0.0, 1.0], dtype=np.float32)
    finding = found_in(detector().changed(seen, rates), int(layout.node[rows[0]]))
    assert set(finding.threads) == set(test.cpu[stopped].tolist())
    assert f"{stopped.size} of {finding.of_threads} threads stand still (user " in finding.sentence
    assert finding.sentence.endswith(" while their job's other threads work")


def test_windows_that_were_odd_in_the_same_way_are_named():
    seen, _, node = with_change(wait_from_step_60)
    finding = found_in(seen, node)
    assert len(finding.similar) == 3
    assert all(similar.start_s < finding.start_s for similar in finding.similar)
    assert finding.similar[0].likeness >= finding.similar[1].likeness


@pytest.mark.parametrize("share", [0.5, 1e-4])
def test_only_what_is_rarer_than_asked_for_is_told(share):
    seen, _, _ = with_change(wait_from_step_60)
    scores = [finding.score for finding in odd_nodes(detector(), seen, share=share)]
    assert scores and min(scores) >= -np.log10(share)
