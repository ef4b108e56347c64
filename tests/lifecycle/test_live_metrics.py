"""The watch and the metrics of nodes: a node whose memory, pressure, disk or network is unusual twice in a row is named."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import polars as pl
import pytest

from stormpetrel.lifecycle.odd_nodes import FEWEST_CALM, LiveMetrics
from stormpetrel.records.findings import FindingKind, Subject, SubjectKind
from stormpetrel.records.window_frames import NODE_LEVEL, NODE_SCORE_SCHEMA
from stormpetrel.watch import trace_findings
from stormpetrel.watch.trace_findings import TraceFindings
from tests.builders import make_site

START = datetime(2026, 11, 2, 14, tzinfo=UTC)
WINDOW = timedelta(seconds=100)


def model(calm=FEWEST_CALM):
    calibrations = {"node": SimpleNamespace(windows=calm)}
    return SimpleNamespace(name="traces", version=3, detector=None, hierarchy=SimpleNamespace(calibrations=calibrations))


def moment(number, *, score=4.0, unusual="memory_pressure", node="n003"):
    """One node at one moment, with memory pressure of 43 % where 1 % is usual."""
    row = {
        "cluster": "alpha", "trace": "live", "node": node, "window_start": START + number * WINDOW, "window_s": 100.0,
        "level": NODE_LEVEL, "model": "traces", "model_version": 3, "score": score, "unusual": unusual,
        "now": 0.43 if unusual else None, "usual": 0.01 if unusual else None, "embedding": None,
    }  # fmt: skip
    return pl.DataFrame([row], schema=NODE_SCORE_SCHEMA)


def test_a_metric_that_is_unusual_twice_in_a_row_is_named_with_what_it_is_and_was():
    watch = LiveMetrics(0.001)
    assert watch.step(model(), moment(0)) == []
    (node,) = watch.step(model(), moment(1))
    assert (node.node, node.start, node.score) == ("n003", START + WINDOW, 4.0)
    assert node.what == "memory pressure 43%, usually 1%"


@pytest.mark.parametrize("between", [{"score": 2.9}, {"unusual": None}, {"node": "n004"}])
def test_a_calm_moment_between_begins_anew(between):
    watch = LiveMetrics(0.001)
    assert not any(watch.step(model(), nodes) for nodes in (moment(0), moment(1, **between), moment(2)))
    assert [node.node for node in watch.step(model(), moment(3))] == ["n003"]


@pytest.mark.parametrize("known", [model(FEWEST_CALM - 1), SimpleNamespace(hierarchy=None)])
def test_who_has_seen_too_few_calm_moments_names_nobody(known):
    watch = LiveMetrics(0.001)
    assert not any(watch.step(known, moment(number)) for number in range(3))


def test_the_watch_raises_a_finding_with_the_metric_as_its_label(tmp_path, monkeypatch):
    """Windows are scored elsewhere: here a moment brings the scores of its nodes with it."""
    taken = SimpleNamespace(model=model(), scored=None, scores=None)
    monkeypatch.setattr(
        trace_findings, "take_moment", lambda site, known, now, **_: SimpleNamespace(**vars(taken), nodes=now.nodes)
    )
    with make_site(tmp_path / "site", traces={"alarm_share": 0.001}, site={"cluster": "alpha"}) as site:
        watcher = TraceFindings(site)
        monkeypatch.setattr(watcher, "_current_model", model)
        monkeypatch.setattr(watcher, "_note_moments", lambda scores, end: None)
        findings = []
        for number in range(3):
            end = START + (number + 1) * WINDOW
            watcher._take(SimpleNamespace(windows=None, nodes=moment(number), end=end))
            findings.append(watcher._odd_nodes(end + timedelta(seconds=3)))
    assert not findings[0]
    for number, (finding,) in enumerate(findings[1:], 1):
        assert finding.subjects == (Subject(SubjectKind.NODE, "n003"),) and finding.kind == FindingKind.WINDOWS_ODD
        assert finding.label == "memory pressure 43%, usually 1%" and finding.score >= finding.threshold
        assert finding.since == START + number * WINDOW and finding.decided_at <= finding.known_at
