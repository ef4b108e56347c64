"""What is unusual on the nodes, as the page says it: the sentence, and what is behind it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from plotly.utils import PlotlyJSONEncoder

from stormpetrel.answers.schemas.nodes import NodeFindings
from stormpetrel.answers.schemas.traces import OddNode, SimilarNodeWindow, WholeNode
from stormpetrel.faces.dashboard.pages.node_finding_cards import findings

AT = datetime(2026, 11, 2, 14, 0, tzinfo=UTC)
SENTENCE = (
    "node n003: 11 of 32 threads wait for files (iowait 1% before, 84% now) since 14:02 while their job's other threads work"
)
ODD = OddNode(
    sentence=SENTENCE,
    node="n003",
    window_start=AT,
    since=AT.replace(minute=2),
    score=3.3,
    threads=list(range(11)),
    of_threads=32,
    mode="iowait",
    before=0.01,
    now=0.84,
    similar=[SimilarNodeWindow(node="n007", window_start=AT.replace(hour=9), likeness=0.91)],
)
MEMORY = WholeNode(
    level="node", node="n004", window_start=AT, score=2.6, unusual="memory_pressure", now=0.43, usual=0.01,
    sentence="node n004: memory pressure 43%, usually 1%; one in 398 calm moments is as unusual",
)  # fmt: skip
TOGETHER = MEMORY.model_copy(update={"level": "cluster", "node": "", "sentence": "all nodes together: as usual"})


def shown(**changes: object) -> str:
    whole = {"findings": [ODD], "nodes": [MEMORY], "cluster": TOGETHER, "judged": True}
    answer = NodeFindings(as_of=AT, model="traces-fast", model_version=1, shipped=False, share=0.001, **{**whole, **changes})
    settings = SimpleNamespace(site=SimpleNamespace(time_zone="UTC"), serve=SimpleNamespace(prefix=""))
    live = SimpleNamespace(settings=settings)
    return json.dumps(findings(live, answer), cls=PlotlyJSONEncoder)


@pytest.mark.parametrize(
    "text",
    [json.dumps(SENTENCE)[1:-1], "iowait: 1% before, 84% since 02 Nov, 14:02", "(11 of 32)", "n007 at 02 Nov, 09:00 (91% alike)"],
)
def test_an_odd_node_is_shown_with_mode_time_threads_and_windows_like_it(text):
    assert text in shown()


def test_the_score_of_a_node_as_a_whole_is_shown_with_the_metric_that_is_unusual():
    page = shown()
    assert "memory pressure" in page and "n004" in page and "All nodes together: as usual." in page


def test_a_calm_site_and_one_that_nobody_judges_say_so():
    assert "No node is unusual compared with normal nodes of this site." in shown(findings=[])
    assert "stormpetrel traces train" in shown(findings=[], nodes=[], cluster=None, judged=False)
