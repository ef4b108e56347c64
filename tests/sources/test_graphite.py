"""Background from Graphite: against a real one, and against one that answers nonsense."""

import itertools
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from stormpetrel.config import EventsSection, GraphiteSection
from stormpetrel.errors import SettingsError, SourceFormatError, SourceUnavailableError
from stormpetrel.ingest.events import ingest_background
from stormpetrel.records.events import BACKGROUND_SCHEMA
from stormpetrel.sources.graphite import GraphiteBackground
from tests.builders import make_site
from tests.parts.graphite import RealGraphite
from tests.parts.loopback import served

HOUR = timedelta(hours=1)
# The last whole hour but a few: a real Graphite keeps a year up to now.
H0 = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - 6 * HOUR
NOW = H0 + 4 * HOUR + timedelta(minutes=15)
EVENTS = EventsSection(since=f"{H0:%Y-%m-%dT%H:%M}+00:00", settle_minutes=10.0, overlap_hours=1.0)


@pytest.fixture(scope="module")
def graphite():
    """Points every minute: queued of two users for three hours (the second without half an hour), and a daily one."""
    with RealGraphite() as server:
        start = H0.timestamp()
        points = [("grid.ada.idle", 100.0 + minute % 2, start + 60 * minute) for minute in range(180)]
        points += [("grid.bob.idle", 7.0, start + 60 * minute) for minute in range(180) if not 60 <= minute < 90]
        day = start // 86_400 * 86_400
        points += [("daily.load", 0.5, day)]
        points += [("daily.load", 0.25, day + 86_400)] if NOW.timestamp() > day + 86_400 else []
        server.send(points)
        yield server


def source_of(url, *targets, events=EVENTS, **settings):
    section = GraphiteSection(url=url, targets=list(targets), timeout_s=10.0, **settings)
    return GraphiteBackground(section, events, pause=lambda _s: None)


def values(frame, name):
    rows = frame.filter(pl.col("name") == name).sort("bucket_start")
    return {(start - H0) // HOUR: value for start, value in rows.select("bucket_start", "value").iter_rows()}


def read(source, now=NOW):
    spans = list(source.spans(lambda _name: None, now))
    return pl.concat([span.values for span in spans])


@pytest.mark.graphite
def test_a_real_graphite_gives_the_mean_of_every_bucket_that_has_points(graphite):
    frame = read(source_of(graphite.url, "ada=grid.ada.idle", "bob=grid.bob.idle"))
    assert frame.schema == BACKGROUND_SCHEMA
    assert values(frame, "ada") == {0: 100.5, 1: 100.5, 2: 100.5}  # the fourth hour is over and has no point
    assert values(frame, "bob") == {0: 7.0, 1: 7.0, 2: 7.0}


@pytest.mark.graphite
def test_a_wildcard_is_the_sum_of_its_series_and_is_said(graphite):
    source = source_of(graphite.url, "queued=grid.*.idle", "same=sumSeries(grid.*.idle)")
    frame = read(source)
    assert values(frame, "queued") == {0: 107.5, 1: 107.5, 2: 107.5}
    assert source.notes == ["queued: 2 series were added up."]


@pytest.mark.graphite
def test_a_point_that_stands_for_a_day_stands_for_each_of_its_hours(graphite):
    source = source_of(graphite.url, "load=daily.load")
    assert values(read(source), "load") == {hour: 0.5 if H0.hour + hour < 24 else 0.25 for hour in range(4)}
    assert source.notes == ["load: Graphite keeps a point every 1440 min."]


@pytest.mark.graphite
def test_what_a_real_graphite_does_not_know_is_said_and_the_others_are_read(graphite):
    source = source_of(graphite.url, "none=grid.nobody.idle", "odd=noSuchFunction(grid.ada.idle)", "ada=grid.ada.idle")
    found = []
    with pytest.raises(SourceFormatError, match="unknown function: noSuchFunction") as caught:
        found.extend(source.spans(lambda _name: None, NOW))
    assert "'odd'" in caught.value.hint
    assert values(pl.concat([span.values for span in found]), "ada") == {0: 100.5, 1: 100.5, 2: 100.5}
    assert "none: Graphite has no such series; check graphite.targets." in source.notes


@pytest.mark.graphite
def test_a_server_that_was_away_is_asked_again_from_its_cursor(graphite, tmp_path):
    with make_site(tmp_path / "site") as site:
        site.now = lambda: H0 + HOUR + timedelta(minutes=15)
        assert ingest_background(site, source_of(graphite.url, "ada=grid.ada.idle")).kept == 1
        site.now = lambda: NOW
        graphite.stop()
        try:
            with pytest.raises(SourceUnavailableError, match=r"cannot be reached.*The cursor stays at"):
                ingest_background(site, source_of(graphite.url, "ada=grid.ada.idle"))
        finally:
            graphite.start()
        again = ingest_background(site, source_of(graphite.url, "ada=grid.ada.idle"))
        assert (again.kept, again.known, again.changed) == (2, 1, 0)  # the hour before the cursor is looked at again
        frame = site.event_background.read().collect()
        assert values(frame, "ada") == {0: 100.5, 1: 100.5, 2: 100.5}


# --- answers that a real one seldom gives -------------------------------------------------------------------------------------


class Script:
    """Points every half hour; faults first."""

    def __init__(self):
        self.faults, self.requests, self.value = [], [], 5.0

    def reply(self, path, asked, _headers):
        self.requests.append((path, asked))
        if self.faults:
            return self.faults.pop(0)
        first, last = int(asked["from"][0]), int(asked["until"][0])
        times = range(first // 1800 * 1800 + 1800, last + 1, 1800)
        return 200, [{"target": asked["target"][0], "datapoints": [[self.value, time] for time in times]}], {}


@pytest.fixture
def script():
    made = Script()
    with served(made.reply) as made.url:
        yield made


def test_nulls_and_numbers_that_are_none_do_not_count(script):
    start = int(H0.timestamp())
    points = [[4, start], [None, start + 60], [8, start + 120], [1e999, start + 180], [None, start + 3600], [1, start - 60]]
    script.faults = [(200, [{"target": "a", "datapoints": points}, {"target": "b", "datapoints": []}], {})]
    assert values(read(source_of(script.url, "a=a")), "a") == {0: 6.0}


def test_a_name_is_read_once_and_again_from_the_start_when_its_target_changes(script, tmp_path):
    with make_site(tmp_path / "site") as site:
        site.now = lambda: NOW

        def take(*targets):
            report = ingest_background(site, source_of(script.url, *targets))
            return report.kept, report.known, report.changed

        assert take("a=x") == (4, 0, 0)
        asked = len(script.requests)
        assert take("a=x") == (0, 0, 0) and len(script.requests) == asked  # no bucket is over since
        script.value = 6.0
        assert take("a=y", "b=z") == (4, 0, 4)


def test_the_first_run_reads_half_a_year_in_pieces(script):
    source = source_of(script.url, "a=x", events=EventsSection(bucket_minutes=60))
    spans = list(source.spans(lambda _name: None, NOW))
    assert spans[0].start == H0 + 4 * HOUR - timedelta(days=180) and spans[-1].end == H0 + 4 * HOUR
    assert all(before.end == after.start for before, after in itertools.pairwise(spans))
    assert max(span.end - span.start for span in spans) <= timedelta(days=7)
    assert sum(span.values.height for span in spans) == 180 * 24


def test_a_target_at_which_the_server_breaks_off_does_not_keep_the_next_out(script):
    script.faults = [(500, b"<html>", {})] * 3
    found = []
    with pytest.raises(SourceUnavailableError, match=r"answered 500 \(3 tries\)"):
        found.extend(source_of(script.url, "bad=(((", "a=x").spans(lambda _name: None, NOW))
    assert values(found[0].values, "a") == dict.fromkeys(range(4), 5.0)


def test_a_server_that_is_away_is_not_asked_for_every_target(script):
    script.faults = [(503, b"", {})] * 100
    with pytest.raises(SourceUnavailableError):
        list(source_of(script.url, *(f"n{number}=x" for number in range(10))).spans(lambda _name: None, NOW))
    assert len(script.requests) == 6


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ((200, {"error": "no"}, {}), SourceFormatError, "form that no Graphite has"),
        ((200, [{"datapoints": [[1, 2, 3]]}], {}), SourceFormatError, "form that no Graphite has"),
        ((200, [{"datapoints": [["a", "b"]]}], {}), SourceFormatError, "form that no Graphite has"),
        ((200, b'[{"datapoints": [[1, NaN], [1, 1e999]]}]', {}), SourceFormatError, "form that no Graphite has"),
        ((200, b"<html>", {}), SourceFormatError, "web page"),
        ((400, b"Invalid parameters (no)\nmore", {}), SourceFormatError, r"answered 400: Invalid parameters \(no\)\."),
        ((404, b"", {}), SettingsError, "no render API"),
        ((401, b"", {}), SourceUnavailableError, "refused the token"),
    ],
)
def test_an_answer_that_is_none_is_one_sentence(script, fault, kind, words):
    script.faults = [fault]
    with pytest.raises(kind, match=words):
        read(source_of(script.url, "a=x"))


@pytest.mark.parametrize("target", ["queued", "1st=x", "a b=x", "=x", "a=", "ä=x", f"{'a' * 42}=x", "a=x\ny"])
def test_a_name_that_cannot_be_used_is_refused_before_anybody_is_asked(target):
    with pytest.raises(SettingsError, match=r"graphite\.targets"):
        source_of("http://127.0.0.1:9", target)


def test_the_same_name_twice_is_refused():
    with pytest.raises(SettingsError, match="twice"):
        source_of("http://127.0.0.1:9", "a=x", "a=y")
