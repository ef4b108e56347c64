"""The score of every second, as people are told it: who is above now, since when, and why nobody knows."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import polars as pl
import pytest

from stormpetrel.answers.nodes.sliding import sliding_now
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.errors import AccessError
from stormpetrel.lifecycle.trace_models import calibration_fact, load_trace_model
from stormpetrel.records.trace_coverage import TRACE_COVERAGE_SCHEMA
from stormpetrel.store.source_health import TRACES, SourceHealth
from stormpetrel.store.watch_status import WatchStatus, write_sources, write_status
from stormpetrel.traces.promise import Calm, Promise
from stormpetrel.traces.shipped import shipped_version
from tests.answers import traced_sites as made
from tests.builders import make_site
from tests.parts import need

PROMISE = Promise(0.001, 0.001, made.THRESHOLD, Calm(9000, 9000, 9.0))
MODEL = made.stand_in_model()
READS = {"url": "http://made"}
BERLIN = ZoneInfo("Europe/Berlin")
SPAN = timedelta(seconds=50)


def span(start, node, above, *, job=None, since=None, cpu=3):
    return made.sliding_row(start, node, above, job=job, since=since, cpu=cpu)


def told(site, rows=(), model=MODEL):
    made.put_sliding(site, rows)
    return sliding_now(site, LOCAL, model)


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site", prometheus=READS, site={"time_zone": "Europe/Berlin"}) as site:
        yield site


@pytest.fixture
def start():
    """Of the newest span."""
    return datetime.now(UTC).replace(microsecond=0) - SPAN


def test_a_node_is_told_with_its_threads_its_job_and_since_when_without_a_break(site, start):
    first = start - 2 * SPAN
    rows = [
        span(first - 2 * SPAN, "n003", 40, job="4711", since=first - SPAN),  # over: the span behind it was calm
        *(span(first + number * SPAN, "n003", 100, job="4711", since=first + number * SPAN + timedelta(seconds=9))
          for number in range(3)),
        span(start, "n007", 1, since=start),
        span(start, "n003", 0, job="4712"),
    ]  # fmt: skip
    answer = told(site, rows)
    since = (first + timedelta(seconds=9)).astimezone(BERLIN)
    assert [node.sentence for node in answer.nodes] == [
        f"node n003: 4 of 8 threads above what one calm second in 1,000 reaches, since {since:%H:%M:%S} (job 4711)",
        f"node n007: 1 of 8 threads above what one calm second in 1,000 reaches, "
        f"since {start.astimezone(BERLIN):%H:%M:%S} (no known job)",
    ]
    assert not answer.nodes[0].earlier
    assert answer.fresh and answer.until == start + SPAN and answer.why_not == ""
    assert (
        answer.sentence.startswith("2 nodes are above the threshold (") and "of calm threads it may be 0.10%" in answer.sentence
    )


def test_a_beginning_that_is_an_hour_ago_may_be_earlier(site, start):
    rows = [span(start - number * SPAN, "n003", 9, since=start - number * SPAN) for number in range(80)]
    assert told(site, rows).nodes[0].sentence.count(" or earlier (") == 1


def test_calm_threads_are_counted_without_naming_anybody(site, start):
    answer = told(site, [span(start, "", 0)])
    assert answer.fresh and answer.nodes == [] and answer.sentence.startswith("No node is above the threshold (")
    assert "0.00% of the scores of 64 threads" in answer.sentence


def test_scores_of_another_version_and_old_ones_are_not_those_of_now(site, start):
    other = SimpleNamespace(**{**vars(MODEL), "version": 2})
    told(site, [span(start, "n003", 9, since=start)])
    assert not sliding_now(site, LOCAL, other).fresh
    with make_site(site.folder.parent / "old", prometheus=READS) as old:
        answer = told(old, [span(start - timedelta(minutes=20), "n003", 9, since=start)])
    assert not answer.fresh and answer.nodes == [] and "The newest score is 20 min old." in answer.sentence


def test_users_are_not_told(site):
    with pytest.raises(AccessError):
        sliding_now(site, Viewer("ada", is_admin=False), MODEL)


# --- why nothing slides -------------------------------------------------------------------------------------------------------


def alive(site, **source):
    now = datetime.now(UTC)
    write_status(site.state, WatchStatus(1, "here", *(now.isoformat() for _ in range(3))))
    sources = (SourceHealth("prometheus (traces)", TRACES, 100.0, 15.0, since=now, last_good=now, **source),) if source else ()
    write_sources(site.state, sources, now)


def sampled(site):
    whole = dict.fromkeys(TRACE_COVERAGE_SCHEMA, 1) | {"cluster": "c", "window_start": datetime.now(UTC), "next_first": []}
    site.trace_coverage.append({**whole, "next_every": 4})
    alive(site, records=1)


@pytest.mark.parametrize(
    ("sections", "prepare", "why"),
    [
        ({"prometheus": {"url": ""}}, None, "No Prometheus with CPU counters is named (prometheus.url)."),
        ({"traces": {"watch": False}}, None, "The watch is told not to read CPU counters (traces.watch)."),
        ({}, None, "The watch is not running. Start it: stormpetrel watch"),
        ({}, alive, "The server has no CPU counters, or the watch has not asked for them yet."),
        ({}, lambda site: alive(site, problem="It is down."), "It is down."),
        ({}, sampled, "The watch has no time for it: it judges each node in one of 4 windows only."),
        ({}, lambda site: alive(site, records=1), "the first scores come 3 min after the watch's start."),
    ],
)
def test_why_nothing_is_scored_every_second_is_told_with_what_to_do(tmp_path, monkeypatch, sections, prepare, why):
    monkeypatch.setattr("stormpetrel.answers.nodes.sliding.why_not_sliding", lambda *_: "")
    with make_site(tmp_path / "site", **{"prometheus": READS, **sections}) as site:
        if prepare is not None:
            prepare(site)
        answer = sliding_now(site, LOCAL, MODEL)
    assert why in answer.why_not and answer.sentence.endswith(answer.why_not) and not answer.fresh


@pytest.mark.parametrize(
    ("sections", "calibrated", "why"),
    [
        ({}, False, "The model has no threshold yet"),
        ({"prometheus": {**READS, "step_s": 15}}, True, "Those of this site have 7, one every 15 s"),
        ({"traces": {"window_s": 60}}, True, "The model sees windows of 100 values, one every 1 s. Those of this site have 60"),
        ({}, True, "The watch is not running"),
    ],
)
def test_a_model_that_cannot_slide_is_named_as_the_reason(tmp_path, sections, calibrated, why):
    need("onnxruntime")
    with make_site(tmp_path / "site", **{"prometheus": READS, **sections}) as site:
        if calibrated:
            site.state.set_fact(calibration_fact(shipped_version()), json.dumps(PROMISE.as_dict()))
        assert why in sliding_now(site, LOCAL, load_trace_model(site)).why_not


def test_a_slow_network_is_named_with_the_command_that_trains_a_fast_one(tmp_path):
    with make_site(tmp_path / "site", prometheus=READS) as site:
        answer = sliding_now(site, LOCAL, MODEL)
    assert answer.why_not == (
        "traces-vanilla version 1 is too slow for it. Train a fast one: stormpetrel traces train --architecture fast"
    )


def test_the_rows_of_the_tests_are_as_the_table_has_them(site, start):
    told(site, [span(start, "n003", 9, since=start)])
    rows = site.sliding_scores.read().collect()
    assert rows.filter(pl.col("node") == "")["above"].to_list() == rows.filter(pl.col("node") != "")["above"].to_list()
