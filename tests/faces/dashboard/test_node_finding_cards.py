"""What is unusual on the nodes, as the page says it: the sentence, and what is behind it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from plotly.utils import PlotlyJSONEncoder

from stormpetrel.answers.schemas.nodes import NodeFindings
from stormpetrel.answers.schemas.traces import OddNode, RegionSuspect, SimilarNodeWindow, SlidingNode, SlidingNow, WholeNode
from stormpetrel.faces.dashboard.pages.node_findings import every_second, findings

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
    return json.dumps(findings(on_page(), answer), cls=PlotlyJSONEncoder)


def on_page():
    settings = SimpleNamespace(site=SimpleNamespace(time_zone="UTC"), serve=SimpleNamespace(prefix=""))
    return SimpleNamespace(settings=settings)


@pytest.mark.parametrize(
    "text",
    [json.dumps(SENTENCE)[1:-1], "iowait: 1% before, 84% since 02 Nov, 14:02", "(11 of 32)", "n007 at 02 Nov, 09:00 (91% alike)"],
)
def test_an_odd_node_is_shown_with_mode_time_threads_and_windows_like_it(text):
    assert text in shown()


def test_who_is_like_a_trouble_that_people_have_named_is_shown_with_its_name():
    like = RegionSuspect(
        region="waits for <files>", node="n005", job_id="4711", job_type=None, cpus=[0, 1, 2], windows=40, inside=12, nearest=0.1,
        since=AT, until=AT.replace(hour=15),
    )  # fmt: skip
    page = shown(inside=[like])
    assert "waits for <files>: node n005, job 4711: 12 of 40 windows on 3 CPUs, 02 Nov, 14:00 to 02 Nov, 15:00" in page
    assert "named before" not in shown()


def test_the_score_of_a_node_as_a_whole_is_shown_with_the_metric_that_is_unusual():
    page = shown()
    assert "memory pressure" in page and "n004" in page and "All nodes together: as usual." in page


def test_a_calm_site_and_one_that_nobody_judges_say_so():
    assert "On no node are threads unusual compared with normal nodes of this site." in shown(findings=[])
    assert "stormpetrel traces train" in shown(findings=[], nodes=[], cluster=None, judged=False)


def test_windows_of_long_ago_are_not_said_to_be_of_now():
    old = shown(windows_until=AT - timedelta(hours=4))
    assert "10:00:00, 4 h ago." in old and "This is how it was then, not now." in old
    assert "not now" not in shown(windows_until=AT - timedelta(seconds=20)) and "not now" not in shown()


def test_how_rare_a_node_is_stands_in_words_and_metrics_only_where_there_are_any():
    calm = MEMORY.model_copy(update={"unusual": None, "now": None, "usual": None, "score": 24.1})
    page = shown(nodes=[calm])
    assert "fewer than one in 10,000" in page and "Usually" not in page
    assert "one in 398" in shown() and "Usually" in shown()


def seconds(**changes):
    nodes = [
        SlidingNode(
            sentence=f"node n{number:03}: 4 of 8 threads above", node=f"n{number:03}", job_id=None, threads=8, threads_above=4,
            above_share=0.5, since=AT, earlier=False, peak=2.0, cpu=3,
        )
        for number in range(20)
    ]  # fmt: skip
    whole = {"fresh": True, "until": AT, "why_not": "", "threads": 160, "above_share": 0.5, "expected_share": 0.001}
    answer = SlidingNow(**{**whole, "sentence": "20 nodes are above the threshold", "nodes": nodes, **changes})
    return json.dumps(every_second(on_page(), answer), cls=PlotlyJSONEncoder)


def test_the_newest_seconds_are_said_to_be_a_quick_score_and_the_rest_of_many_is_counted():
    page = seconds()
    assert "20 nodes are above the threshold" in page and "node n007: 4 of 8" in page and "node n008" not in page
    assert "And 12 more" in page and "incidents come from whole windows" in page and "node=n007" in page


def test_where_nothing_slides_only_the_reason_stands_there():
    page = seconds(fresh=False, nodes=[], sentence="Threads are not scored every second now. The watch is not running.")
    assert "The watch is not running." in page and "quick score" not in page
