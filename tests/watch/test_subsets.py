"""Any subset of sources can be watched: events without jobs, a log alone, tables alone; where there is nothing, what to set."""

from __future__ import annotations

import gzip
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.site.health import health
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.errors import UsageError
from stormpetrel.ingest.events import ingest_events
from stormpetrel.sources.contract import CountedSpan
from stormpetrel.store.watch_status import read_watch
from stormpetrel.watch import event_findings
from stormpetrel.watch.logs import Log
from stormpetrel.watch.running import WatchOptions, run_watch
from stormpetrel.watch.training import TrainingSchedule
from tests.builders import make_site
from tests.parts.elastic import ElasticServer, make_grid_documents, served
from tests.parts.made_events import H0, HOUR, MadeSource, seen_of

NO_SLURM = {"sacct": "no-such-command"}
WATCH = {"retrain_hours": 0.0}
EVENT_LOG = Path(__file__).parents[1] / "recordings" / "condor-eventlog-23.9.log.gz"


def watched(site, *, steps=2):
    """Let it watch for some turns; what it logged."""
    stream = io.StringIO()
    run_watch(site, WatchOptions(address="", poll_s=0.2, steps=steps), Log(stream, as_json=True))
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def events_of(lines):
    return [line["event"] for line in lines]


@pytest.fixture
def elastic():
    server = ElasticServer()
    start = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=6)
    server.put("grid-2026", make_grid_documents(start, 5))
    with served(server):
        yield server


@pytest.fixture
def elastic_site(tmp_path, elastic):
    settings = elastic.settings().model_dump()
    with make_site(tmp_path / "site", elastic=settings, slurm=NO_SLURM, watch=WATCH) as site:
        yield site


def test_a_site_with_only_elasticsearch_counts_its_events_and_has_no_problem(elastic_site):
    lines = watched(elastic_site)
    assert lines[0]["parts"] == ["events"] and not {"problem", "grid problem"} & set(events_of(lines))
    counted = elastic_site.event_counts.read().filter(pl.col("kind") == "Submit", pl.col("place") == "").collect()
    assert counted["count"].sum() == 10
    report = read_watch(elastic_site.state)
    assert [source.name for source in report.sources] == ["elasticsearch"]
    assert report.sources[0].records > 0 and not report.problem(datetime.now(UTC))


def test_nothing_about_jobs_is_missed_on_the_page_of_such_a_site(elastic_site):
    watched(elastic_site)
    answer = health(LiveSite(elastic_site), LOCAL)
    names = {line.name for line in answer.lines}
    assert "elasticsearch" in names and not names & {"Forecasts", "On time", "Jobs"}
    assert [(source.name, source.watcher, source.problem) for source in answer.sources] == [("elasticsearch", "events", "")]


def test_an_elasticsearch_that_is_away_is_told_and_over_when_it_is_back(elastic_site, elastic, monkeypatch):
    monkeypatch.setattr(event_findings, "_AGAIN_AFTER", timedelta(0))
    elastic.faults += [(503, {"error": "down"}, {})] * 2  # one try, and one more
    lines = watched(elastic_site, steps=3)
    problem = next(line for line in lines if line["event"] == "problem")
    assert problem["source"] == "elasticsearch" and problem["level"] == "warning"
    assert "problem over" in events_of(lines) and "grid problem" not in events_of(lines)


def test_the_model_of_events_is_trained_by_a_clock_of_its_own(elastic_site):
    settings = elastic_site.settings.model_copy(
        update={"watch": elastic_site.settings.watch.model_copy(update={"retrain_hours": 24.0})}
    )
    elastic_site.settings = settings
    schedule = TrainingSchedule(elastic_site, for_jobs=False)
    assert not schedule.due(elastic_site.now())  # nothing has been counted yet
    event_findings.GridWatch(elastic_site).step()
    for for_jobs in (False, True):
        schedule = TrainingSchedule(elastic_site, for_jobs=for_jobs)
        assert schedule.due(elastic_site.now())
        assert not schedule.due(elastic_site.now())  # until an hour has passed


def test_a_site_with_only_an_event_log_has_its_jobs_and_its_events(tmp_path):
    log = tmp_path / "EventLog"
    log.write_bytes(gzip.decompress(EVENT_LOG.read_bytes()))
    with make_site(tmp_path / "site", htcondor={"event_log": str(log)}, slurm=NO_SLURM, watch=WATCH) as site:
        lines = watched(site)
        assert lines[0]["parts"] == ["jobs", "events"]
        sources = {source.name: source for source in read_watch(site.state).sources}
        assert set(sources) == {"event log (jobs)", "event log (events)"}
        assert all(source.last_good and not source.problem for source in sources.values())
        assert site.jobs.read_jobs().collect().height > 5


def test_a_site_whose_tables_of_events_are_fed_otherwise_is_watched_too(tmp_path):
    with make_site(tmp_path / "site", slurm=NO_SLURM, watch=WATCH) as site:
        ingest_events(site, MadeSource(CountedSpan(H0, H0 + HOUR * 3, seen_of([(0, "Submit", 5)], 0, 3), None)))
        lines = watched(site)
        assert lines[0]["parts"] == ["events"] and "problem" not in events_of(lines)


def test_prometheus_that_is_read_for_the_background_is_something_to_watch(tmp_path):
    prometheus = {"url": "http://127.0.0.1:9", "background": ["queued=sum(x)"], "timeout_s": 1.0}
    with make_site(tmp_path / "site", prometheus=prometheus, slurm=NO_SLURM, watch=WATCH) as site:
        lines = watched(site, steps=1)
        assert {line["source"] for line in lines if line["event"] == "problem"} == {"prometheus", "prometheus (traces)"}


def test_a_site_with_nothing_to_watch_is_told_all_that_it_could_set(tmp_path):
    with make_site(tmp_path / "site", slurm=NO_SLURM, watch=WATCH) as site, pytest.raises(UsageError) as refused:
        watched(site)
    wanted = (
        "no-such-command",
        "slurm.rest_url",
        "htcondor.event_log",
        "elastic.url",
        "graphite.url",
        "prometheus.url",
        "grafana.url",
    )
    assert "There is nothing to watch" in refused.value.what and all(name in refused.value.what for name in wanted)


def test_prometheus_alone_is_followed_for_its_traces(tmp_path):
    prometheus = {"url": "http://127.0.0.1:9", "timeout_s": 1.0}
    with make_site(tmp_path / "site", prometheus=prometheus, slurm=NO_SLURM, watch=WATCH) as site:
        lines = watched(site, steps=1)
        assert lines[0]["parts"] == ["traces"]
        assert [line["source"] for line in lines if line["event"] == "problem"] == ["prometheus (traces)"]
        assert "watcher problem" not in events_of(lines)  # told once, as the source's


def test_a_site_that_does_not_want_its_traces_watched_is_answered_with_what_to_set(tmp_path):
    prometheus = {"url": "http://127.0.0.1:9"}
    site = make_site(tmp_path / "site", prometheus=prometheus, slurm=NO_SLURM, watch=WATCH, traces={"watch": False})
    with site, pytest.raises(UsageError, match="traces\\.watch"):
        watched(site)
