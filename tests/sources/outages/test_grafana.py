from datetime import UTC, datetime, timedelta

import pytest

from stormpetrel.config import GrafanaSection
from stormpetrel.errors import SettingsError, SourceError, SourceFormatError, SourceUnavailableError
from stormpetrel.ingest.events import ingest_outages
from stormpetrel.records.outages import OutageKind
from stormpetrel.sources.outages.grafana import GrafanaOutages, plain_text
from tests.builders import make_site
from tests.parts.grafana import grafana

NOW = datetime(2026, 11, 2, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)
YEAR = timedelta(days=365)


@pytest.fixture
def server():
    with grafana() as running:
        yield running


def read(server, *, limit=1000, start=NOW - YEAR, end=NOW + YEAR, **settings):
    source = GrafanaOutages(server.settings(**settings), now=NOW, pause=lambda _s: None, limit=limit)
    return source.outages(start, end), source.notes


def test_regions_become_outages_and_maintenance_by_their_tags(server):
    server.put(7, NOW - 5 * HOUR, NOW - 3 * HOUR, "outage", "storage", text="<b>Lustre</b> is <i>away</i><script>x()</script>")
    server.put(8, NOW - 50 * HOUR, NOW - 40 * HOUR, "Maintenance", "maintenance", "outage", text="planned")
    server.put(9, NOW - 9 * HOUR, NOW - 8 * HOUR, "deploy")
    (planned, broken), notes = read(server)
    assert (broken.start, broken.end, broken.kind, broken.uid) == (NOW - 5 * HOUR, NOW - 3 * HOUR, OutageKind.OUTAGE, "7")
    assert broken.title == "Lustre is away" and broken.source == "grafana"
    assert planned.kind is OutageKind.MAINTENANCE and not notes


def test_only_the_newest_point_of_an_outage_lasts(server):
    server.put(1, NOW - 30 * HOUR, None, "outage")
    server.put(2, NOW - 3 * HOUR, None, "outage")
    first, last = read(server)[0]
    assert first.end == first.start and last.end is None
    server.put(3, NOW - 2 * HOUR, NOW - HOUR, "outage")
    assert [one.end is None for one in read(server)[0]] == [False, False, False]


@pytest.mark.parametrize(("ago_h", "tag"), [(24 * 8, "outage"), (3, "maintenance")])
def test_an_old_point_and_a_maintenance_do_not_last(server, ago_h, tag):
    server.put(1, NOW - ago_h * HOUR, None, tag)
    (one,), _ = read(server)
    assert one.end == one.start


def test_a_planned_one_ahead_does_not_close_the_outage_that_lasts(server):
    server.put(1, NOW - 3 * HOUR, None, "outage")
    server.put(2, NOW + 3 * HOUR, NOW + 4 * HOUR, "maintenance")
    assert read(server)[0][0].end is None


def test_more_annotations_than_the_limit_are_all_found_once(server):
    for number in range(60):
        server.put(number, NOW - number * HOUR, NOW - number * HOUR + 30 * HOUR / 60, "outage")
    server.put(100, NOW - 59 * HOUR, NOW, "outage")  # overlaps all the others
    found, _ = read(server, limit=10)
    assert sorted(int(one.uid) for one in found) == [*range(60), 100]
    assert len(server.requests) > 10


def test_more_at_one_moment_than_a_request_can_hold_is_said(server):
    for number in range(12):
        server.put(number, NOW, NOW, "outage")
    with pytest.raises(SourceFormatError, match="annotations with these tags"):
        read(server, limit=10)


def test_an_annotation_that_is_changed_or_deleted_is_so_here(server, tmp_path):
    with make_site(tmp_path / "site") as site:
        server.put(1, NOW - 5 * HOUR, NOW - 4 * HOUR, "outage", text="a")
        server.put(2, NOW - 3 * HOUR, NOW - 2 * HOUR, "outage", text="b")

        def take():
            source = GrafanaOutages(server.settings(), now=NOW)
            report = ingest_outages(site, source, start=NOW - YEAR, end=NOW + YEAR)
            return report.kept, report.known, report.changed

        assert take() == (2, 0, 0)
        assert take() == (0, 2, 0)
        server.put(1, NOW - 5 * HOUR, NOW - HOUR, "outage", text="longer")
        del server.annotations[2]
        assert take() == (0, 0, 2)
        (one,) = site.outages.list()
        assert (one.uid, one.title, one.end) == ("1", "longer", NOW - HOUR)


def test_damaged_entries_are_counted_and_the_rest_is_kept(server):
    server.put(1, NOW - 5 * HOUR, NOW - 4 * HOUR, "outage", text=["no", "text"])
    server.put(2, NOW - 4 * HOUR, NOW - 3 * HOUR, "outage")
    server.put(3, NOW - 200 * 24 * HOUR, NOW, "outage", text="forgotten")
    entries = list(server.annotations.values())
    broken = [{**entries[1], "id": 20 + n, "time": time} for n, time in enumerate(("soon", None, True, 1e300, -5))]
    server.faults.append((200, [*entries, *broken, {"id": 99, "tags": "outage", "time": 1}], {}))
    found, notes = read(server)
    assert [one.uid for one in found] == ["1", "2"] and found[0].title == ""
    assert "5 annotations have no time" in notes[0] and "annotation 3" in notes[1] and "60 days" in notes[1]


def test_the_two_halves_that_an_old_grafana_keeps_of_a_region_are_one_outage(server):
    server.put(1, NOW - 5 * HOUR, None, "outage", text="a")
    server.put(2, NOW - 3 * HOUR, None, "outage", text="a")
    server.faults.append((200, [{**one, "regionId": 1, "timeEnd": 0} for one in server.annotations.values()], {}))
    (one,), _ = read(server)
    assert (one.start, one.end, one.uid) == (NOW - 5 * HOUR, NOW - 3 * HOUR, "region-1")


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ((401, {"message": "Invalid API key"}, {}), SourceUnavailableError, "refused the token.*401.*Invalid API key"),
        ((403, {"message": "no permission"}, {}), SourceUnavailableError, "403"),
        ((404, {}, {}), SettingsError, "no annotations API"),
        ((302, b"", {"Location": "/login"}), SettingsError, "another address, '/login'"),
        ((200, b"<html>Login</html>", {"Content-Type": "text/html"}), SourceFormatError, "web page"),
        ((200, {"message": "hello"}, {}), SourceFormatError, "form that no Grafana has"),
        ((200, [1, 2], {}), SourceFormatError, "form that no Grafana has"),
        ((400, {"message": "bad\x1b[31m tags"}, {}), SourceFormatError, r"400: bad \[31m tags"),
    ],
)
def test_an_answer_that_is_none_is_one_sentence(server, fault, kind, words):
    server.faults.append(fault)
    with pytest.raises(kind, match=words) as caught:
        read(server)
    assert isinstance(caught.value, SourceError | SettingsError) and caught.value.hint


@pytest.mark.parametrize(
    "fault",
    [(429, {}, {"Retry-After": "3"}), (503, b"", {}), (200, b'[{"id": 1, "ti', {}), (200, b"[]          ", {"cut": "2"})],
)
def test_a_busy_server_or_half_a_body_is_asked_again(server, fault):
    server.put(1, NOW - 5 * HOUR, NOW - 4 * HOUR, "outage")
    server.faults += [fault, fault]
    pauses = []
    source = GrafanaOutages(server.settings(), now=NOW, pause=pauses.append)
    assert len(source.outages(NOW - YEAR, NOW)) == 1
    assert pauses == ([3.0, 3.0] if fault[0] == 429 else [0.5, 1.0])


def test_a_server_that_stays_busy_is_left_after_three_tries(server):
    server.faults += [(503, b"", {})] * 3
    with pytest.raises(SourceUnavailableError, match=r"answered 503 \(3 tries\)"):
        read(server)


def test_the_token_is_sent_and_its_file_must_be_private(server, tmp_path):
    file = tmp_path / "token"
    file.write_text("glsa_secret\n")
    file.chmod(0o600)
    server.token = "glsa_secret"
    assert read(server, token_file=str(file))[0] == []
    file.chmod(0o644)
    with pytest.raises(SettingsError, match="can be read by others"):
        read(server, token_file=str(file))


def test_without_a_tag_or_an_address_nothing_is_asked():
    with pytest.raises(SettingsError, match="No tag"):
        GrafanaOutages(GrafanaSection(url="http://x", tags=[], maintenance_tags=[]))
    with pytest.raises(SettingsError, match="where Grafana is"):
        GrafanaOutages(GrafanaSection()).outages(NOW, NOW)


def test_text_is_stripped_and_bounded():
    assert plain_text("a<br>b &amp; <a href='x'>c</a>\x1b[31m") == "a b & c [31m"
    assert len(plain_text("<p>" + "x" * 10_000)) == 500
    assert plain_text(None) == ""
