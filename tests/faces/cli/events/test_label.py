import json
import shlex
from datetime import UTC, datetime, timedelta

import pytest
import typer
from typer.testing import CliRunner

from stormpetrel.errors import NotThereError, SettingsError, SourceUnavailableError, UsageError
from stormpetrel.faces.cli.events.label import label
from stormpetrel.faces.cli.options import Context
from stormpetrel.records.outages import Outage, OutageKind
from tests.builders import make_site
from tests.parts.grafana import grafana

app = typer.Typer()
app.command("label")(label)
HOUR = timedelta(hours=1)


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site", site={"time_zone": "Europe/Berlin"}) as opened:
        yield opened


@pytest.fixture(scope="module")
def quiet_site(tmp_path_factory):
    """A site in which nothing is ever labelled."""
    with make_site(tmp_path_factory.mktemp("quiet") / "site") as opened:
        yield opened


def run(site, *words):
    return CliRunner().invoke(app, list(words), obj=Context(site_folder=site.folder, debug=False))


def told(site, *words):
    done = run(site, *words, "--json")
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.stdout)


def test_an_outage_is_labelled_in_the_sites_zone(site):
    one = told(site, "2026-01-31 14:00", "3h", "--title", "storage away")
    assert (one["from"], one["to"]) == ("2026-01-31T13:00:00+00:00", "2026-01-31T16:00:00+00:00")
    assert (one["kind"], one["source"], one["title"]) == ("outage", "hand", "storage away")
    (kept,) = site.outages.list()
    assert kept == Outage(datetime(2026, 1, 31, 13, tzinfo=UTC), kept.start + 3 * HOUR, OutageKind.OUTAGE, "storage away",
                          "hand", one["uid"])  # fmt: skip


def test_the_same_said_again_with_an_end_ends_it(site):
    start = f"{datetime.now(UTC) - 2 * HOUR:%Y-%m-%dT%H:%M}Z"
    text = run(site, start).stdout
    assert "it lasts" in text and site.outages.list()[0].end is None
    told(site, start, "1h")
    (one,) = site.outages.list()
    assert one.end == one.start + HOUR


def test_an_outage_that_began_now_is_ended_by_the_command_that_is_shown(site):
    text = run(site, "now", "--title", "it's \x07 away").stdout
    (command,) = [line.partition(": ")[2] for line in text.splitlines() if line.startswith("It stays open until")]
    words = shlex.split(command)
    assert words[:3] == ["stormpetrel", "events", "label"]
    told(site, *words[3:])
    (one,) = site.outages.list()
    assert one.end is not None and one.title == "it's away"


def test_a_false_alarm_is_labelled_normal(site):
    assert told(site, "2026-01-31 14:00", "2026-01-31 15:00", "--kind", "normal")["kind"] == "normal"
    problem = run(site, "2026-01-31 14:00", "--kind", "normal").exception
    assert isinstance(problem, UsageError) and "until when" in problem.what


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["2026-01-31 14:00", "2026-01-31 13:00"], "is before the start"),
        (["2199-01-31 14:00", "3h"], "lies outside 1980 to 2105"),
        (["2099-01-31 14:00", "3h"], "more than a year away"),
        (["2026-01-31", "90d"], "is 90 days"),
        (["2020-01-31"], "has no end"),
        (["2026-01-31", "14:00"], "END '14:00' is not a time"),
        (["\x1b[31mnow", "3h"], "is not a time"),
        ([], "Nothing says what to label"),
        (["2026-01-31", "3h", "--list"], "START and --list do not go together"),
        (["--list", "--title", "x"], "--title has no meaning with --list"),
        (["--grafana", "--kind", "outage"], "--kind has no meaning with --grafana"),
        (["2026-01-31", "3h", "--since", "2026-01-01"], "--since has no meaning with START"),
        (["--list", "--since", "soon"], "--since 'soon' is not a time"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence_and_nothing_is_kept(quiet_site, words, said):
    problem = run(quiet_site, *words).exception
    assert isinstance(problem, UsageError) and said in problem.what and "\x1b" not in str(problem) and problem.hint
    assert quiet_site.outages.list() == []


def test_labels_are_listed_oldest_first_and_removed_by_their_uid(site):
    later = told(site, "2026-02-01 14:00", "3h", "--title", "b\x1b[31m")
    earlier = told(site, "2026-01-31 14:00", "3h", "--kind", "maintenance", "--title", "a")
    assert told(site, "--list") == {"outages": [earlier, later]}
    assert told(site, "--list", "--since", "2026-02-01") == {"outages": [later]}
    text = run(site, "--list").stdout
    assert "2026-01-31 14:00 to 2026-01-31 17:00  maintenance  a  [hand/" in text and "\x1b" not in text
    assert told(site, "--remove", later["uid"]) == {"removed": later}
    assert told(site, "--list") == {"outages": [earlier]}
    assert isinstance(run(site, "--remove", later["uid"]).exception, NotThereError)


def test_a_uid_that_two_sources_have_must_be_said_with_its_source(site):
    start = datetime(2026, 1, 31, tzinfo=UTC)
    for source in ("grafana", "file:a.csv"):
        site.outages.add(Outage(start, start + HOUR, OutageKind.OUTAGE, "", source, "7"))
    assert "grafana/7" in run(site, "--remove", "7").exception.hint
    assert "comes back when grafana is read again" in run(site, "--remove", "grafana/7").stdout
    assert [one.source for one in site.outages.list()] == ["file:a.csv"]


def test_a_file_of_incidents_is_taken_in_and_its_bad_lines_are_told(site, tmp_path):
    file = tmp_path / "incidents.csv"
    file.write_text("from,to,type,summary\n2026-01-31 14:00,3h,outage,a\nsoon,,,b\n")
    report = told(site, "--file", str(file))
    assert (report["source"], report["read"], report["kept"]) == ("file:incidents.csv", 1, 1)
    assert "line 3: left out." in report["notes"][0]
    assert told(site, "--file", str(file))["known"] == 1
    assert "0 new · 1 known already" in run(site, "--file", str(file)).stdout
    file.write_text("start,end\n2026-02-01,1h\n")
    assert told(site, "--file", str(file), "--kind", "maintenance")["changed"] == 1
    assert [str(one.kind) for one in site.outages.list()] == ["maintenance"]


def test_grafana_is_read_from_the_time_that_is_asked_for(tmp_path):
    now = datetime.now(UTC)
    with grafana() as server, make_site(tmp_path / "site", grafana={"url": server.url}) as site:
        server.put(1, now - 50 * HOUR, now - 49 * HOUR, "outage", text="old")
        server.put(2, now - 5 * HOUR, now - 4 * HOUR, "maintenance", text="new")
        assert told(site, "--grafana", "--since", f"{now - 24 * HOUR:%Y-%m-%d %H:%M}")["kept"] == 1
        assert told(site, "--grafana")["kept"] == 1
        assert [(one.title, str(one.kind)) for one in site.outages.list()] == [("old", "outage"), ("new", "maintenance")]
        server.faults.append((401, {"message": "Invalid API key"}, {}))
        assert isinstance(run(site, "--grafana").exception, SourceUnavailableError)
        assert len(site.outages.list()) == 2


def test_grafana_without_an_address_says_what_to_set(site):
    problem = run(site, "--grafana").exception
    assert isinstance(problem, SettingsError) and "grafana.url" in problem.hint
