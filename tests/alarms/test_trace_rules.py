from datetime import timedelta

import polars as pl
import pytest

from stormpetrel.alarms.titles import _event_phrases
from stormpetrel.alarms.trace_rules import OddWindow, odd_node, odd_nodes
from stormpetrel.records.findings import FindingKind, Subject, SubjectKind
from tests.parts.alarm_jobs import at

WINDOW = timedelta(seconds=100)


def windows(flagged, *, nodes=8, moments=60, threads=32):
    """`flagged(node, moment, thread)` says which windows are."""
    rows = [
        {"cluster": "c1", "node": f"n{node}", "window_start": at(1) + moment * WINDOW, "window_s": 100.0,
         "flagged": bool(flagged(node, moment, thread)), "score": 1.0}
        for node in range(nodes) for moment in range(moments) for thread in range(threads)
    ]  # fmt: skip
    return pl.DataFrame(rows)


def named(frame, after=at(0)):
    return [(found.subject.name, found.decided_at) for found in odd_nodes(frame, after, at(9), model="traces-vanilla/1")]


def test_a_node_whose_windows_stay_unusual_is_named_with_when_that_was_clear():
    (found,) = odd_nodes(windows(lambda node, moment, _: node == 3 and moment >= 40), at(0), at(9), model="m/1")
    assert found.subject == Subject(SubjectKind.NODE, "n3") and found.rule == "m/1" and found.since == at(1) + 40 * WINDOW
    assert at(1) + 43 * WINDOW <= found.decided_at < at(1) + 50 * WINDOW and found.until == at(1) + 60 * WINDOW


def test_a_threshold_that_flags_too_much_everywhere_names_nobody():
    assert not named(windows(lambda node, moment, thread: (node * 31 + moment * 17 + thread * 7) % 40 == 0))


def test_flags_of_one_moment_name_nobody():
    assert not named(windows(lambda node, moment, _: node == 3 and moment in (10, 30, 50)))


def test_what_was_told_before_is_not_told_again_and_what_goes_on_is():
    frame = windows(lambda node, moment, _: node == 3 and moment >= 40)
    assert named(frame, after=at(1) + 60 * WINDOW) == []
    assert named(frame, after=at(1) + 55 * WINDOW) == [("n3", at(1) + 56 * WINDOW)]


def test_a_decision_looks_at_nothing_that_comes_later():
    frame = windows(lambda node, moment, _: node == 3 and moment >= 40)
    cut = at(1) + 50 * WINDOW
    (early,) = odd_nodes(frame, at(0), cut, model="m/1")
    (alone,) = odd_nodes(frame.filter(pl.col("window_start") + WINDOW <= cut), at(0), cut, model="m/1")
    assert early == alone


@pytest.mark.parametrize(("job", "of_one_job"), [(pl.lit("7"), 4.0), (pl.col("node"), 1.0), (pl.lit(None, pl.String), 0.0)])
def test_of_nodes_that_wait_for_data_it_is_told_on_how_many_one_and_the_same_job_waits(job, of_one_job):
    frame = windows(lambda node, moment, _: node < 4 and moment >= 40)
    waiting = frame.with_columns(max_iowait=pl.when("flagged").then(0.9).otherwise(0.0), job_id=job)
    found = odd_nodes(waiting, at(0), at(9), model="m/1")[-1]
    figures = [found.figure(name) for name in ("waiting_nodes", "watched_nodes", "waiting_nodes_of_one_job")]
    assert figures == [4.0, 8.0, of_one_job]


@pytest.mark.parametrize("rows", [0, 1])
def test_nothing_is_found_in_nothing(rows):
    assert named(windows(lambda *_: True).head(rows)) == []


def test_what_the_detector_found_is_the_title_of_its_incident():
    window = OddWindow(
        "n003", at(1), at(1) + timedelta(seconds=100), 4.2, 11, 32, "11 of 32 threads stand still while others work"
    )
    finding = odd_node(window, "alpha", at(1) + timedelta(seconds=103), share=0.001, model="traces-vanilla/1")
    assert finding.subject.name == "n003" and finding.kind == FindingKind.WINDOWS_ODD
    assert finding.score == 4.2 and finding.threshold == pytest.approx(3.0)
    assert finding.decided_at < finding.known_at and finding.figure("flagged") == 11
    assert "n003: 11 of 32 threads stand still while others work since" in _event_phrases(finding.kind, [finding], "14:02")


def test_nodes_of_which_something_else_is_said_each_have_their_own_words():
    labels = {"n001": "1 of 8 threads waits", "n002": "1 of 8 threads waits", "n003": "4 of 8 threads stand still", "n004": "x"}
    findings = [
        odd_node(OddWindow(name, at(1), at(2), 4.2, 1, 8, what), "alpha", at(2), share=0.001, model="m/1")
        for name, what in labels.items()
    ]
    words = _event_phrases(findings[0].kind, [*findings, findings[0]], "14:02")
    assert words == "n001, n002: 1 of 8 threads waits; n003: 4 of 8 threads stand still; 1 more node unusual since 14:02"
