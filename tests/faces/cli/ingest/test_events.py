import json

import pytest
import typer
from typer.testing import CliRunner

from stormpetrel.errors import SourceUnavailableError, StormpetrelError, UsageError
from stormpetrel.faces.cli.ingest.events import ingest_events
from stormpetrel.faces.cli.options import Context
from stormpetrel.faces.cli.store import sql
from stormpetrel.ingest import events as event_ingest
from stormpetrel.sources.contract import CountedSpan
from stormpetrel.store.events.series import series_of
from tests.builders import make_site
from tests.parts.made_events import H0, HOUR, MadeSource, seen_of

app = typer.Typer()
app.command("events")(ingest_events)

LOG = """000 (101.000.000) 2024-03-31 12:10:00 Job submitted from host: <10.0.0.1:9618?alias=schedd-1.example.org>
...
001 (101.000.000) 2024-03-31 12:20:00 Job executing on host: <10.0.0.7:9618?alias=node7.example.org>
...
005 (101.000.000) 2024-03-31 14:30:00 Job terminated.
\t(1) Normal termination (return value 1)
...
"""


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site", elastic={"url": "http://127.0.0.1:1"}) as opened:
        yield opened


def run(site, *words):
    return CliRunner().invoke(app, list(words), obj=Context(site_folder=site.folder, debug=False))


def told(monkeypatch, *spans):
    monkeypatch.setattr(event_ingest, "_elastic", lambda site, raw: MadeSource(*spans))


def three_hours():
    missing = [(H0 + HOUR, H0 + HOUR * 2, "no index")]
    counts = seen_of([(0, "Submit", 5), (2, "JobHeld", 1)], 0, 3, unseen=[1])
    return CountedSpan(H0, H0 + HOUR * 3, counts, quarantined={"future": 2}, missing=missing)


def test_live_prints_the_promised_keys_for_programs(site, monkeypatch):
    told(monkeypatch, three_hours())
    done = run(site, "--live", "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert (report["read"], report["kept"], report["known"], report["changed"]) == (8, 2, 0, 0)
    assert report["quarantined"] == {"future": 2} and report["kinds"] == {"Submit": 5, "JobHeld": 1}
    assert report["gaps"] == [{"from": "2024-03-31T13:00:00+00:00", "to": "2024-03-31T14:00:00+00:00", "why": "no index"}]
    assert {"first", "last", "notes", "seconds"} <= report.keys() and len(report["sources"]) == 1


def test_live_tells_people_what_was_counted_and_what_is_missing(site, monkeypatch):
    told(monkeypatch, three_hours())
    text = run(site, "--live").output
    assert "made: 8 events read" in text and "2 new · 0 known already · 0 changed" in text
    assert "not counted: future (2)" in text and "gap: 2024-03-31 13:00 to 2024-03-31 14:00 UTC, no index" in text


def test_a_source_that_fails_is_an_error_after_what_was_read_is_told(site, monkeypatch):
    told(monkeypatch, three_hours(), SourceUnavailableError("It did not answer.", hint="Try again."))
    done = run(site, "--live", "--json")
    assert isinstance(done.exception, StormpetrelError) and "did not answer" in str(done.exception)
    assert json.loads(done.stdout)["problems"] == ["It did not answer. Try again."]


def test_an_event_log_is_found_out_and_counted_once(site, tmp_path):
    (tmp_path / "EventLog").write_text(LOG)
    first = json.loads(run(site, str(tmp_path / "EventLog"), "--json").stdout)
    assert first["kinds"]["Submit"] == 1 and first["kinds"]["JobTerminated"] == 1 and first["kept"] > 0
    again = json.loads(run(site, str(tmp_path / "EventLog"), "--json").stdout)
    assert again["kept"] == again["changed"] == 0


def test_a_table_of_counts_is_found_out_and_its_empty_cell_is_a_gap(site, tmp_path):
    lines = ["time,Submit,JobHeld", *(f"2024-03-31 {hour}:00:00,{hour},0" for hour in (12, 13, 15)), "2024-03-31 14:00:00,,"]
    (tmp_path / "counts.csv").write_text("\n".join(lines) + "\n")
    report = json.loads(run(site, str(tmp_path / "counts.csv"), "--json").stdout)
    assert report["kinds"]["Submit"] == 40 and report["kept"] == 3
    assert [(gap["from"][11:16], gap["to"][11:16]) for gap in report["gaps"]] == [("14:00", "15:00")]
    series = series_of(site, kinds=["Submit", "JobHeld"])
    assert series.is_gap.tolist() == [False, False, True, False] and series.counts[0].tolist() == [12, 0]


def test_a_file_that_cannot_be_read_keeps_no_other_out(site, tmp_path):
    (tmp_path / "empty").write_text("")
    (tmp_path / "EventLog").write_text(LOG)
    done = run(site, str(tmp_path / "empty"), str(tmp_path / "EventLog"), "--json")
    assert isinstance(done.exception, StormpetrelError) and "is empty" in str(done.exception)
    assert json.loads(done.stdout)["kinds"]["Submit"] == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "Name files to read, or --live"),
        (["x", "--live"], "Name files to read, or --live"),
        (["x", "--raw"], "only --live reads"),
        (["x", "--format", "event"], "Did you mean 'events'"),
    ],
)
def test_what_makes_no_sense_is_one_clear_sentence(site, words, complaint):
    done = run(site, *words)
    assert isinstance(done.exception, UsageError) and complaint in str(done.exception)


def test_a_site_that_names_no_source_is_told_what_to_set(tmp_path):
    with make_site(tmp_path / "site") as site:
        done = run(site, "--live")
    assert isinstance(done.exception, UsageError) and "elastic.url" in str(done.exception)


def test_sql_answers_about_counts_and_gaps(site, monkeypatch):
    told(monkeypatch, three_hours())
    run(site, "--live")
    asking = typer.Typer()
    asking.command("sql")(sql)
    query = "select c.kind, sum(c.count) n from event_counts c where c.kind <> '' group by c.kind order by n"
    done = CliRunner().invoke(asking, [query, "--json"], obj=Context(site_folder=site.folder, debug=False))
    assert json.loads(done.stdout) == [{"kind": "JobHeld", "n": 1}, {"kind": "Submit", "n": 5}]
    for table in ("event_gaps", "event_background", "event_scores"):
        query = f"select count(*) n from {table}"
        done = CliRunner().invoke(asking, [query, "--json"], obj=Context(site_folder=site.folder, debug=False))
        assert json.loads(done.stdout) == [{"n": int(table == "event_gaps")}]
