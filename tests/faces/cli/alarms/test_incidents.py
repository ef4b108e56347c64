import json
import tempfile
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from stormpetrel.errors import SourceError, UsageError
from stormpetrel.faces.cli.main import app
from stormpetrel.records.cursor import Cursor
from tests.answers.cluster_sites import put_counts, sample_grid
from tests.builders import make_site
from tests.parts.made_events import counts_of
from tests.parts.replayed_site import SICK_NODE, replayed_site

KEYS = {
    "id", "severity", "state", "kinds", "families", "subjects", "since", "until", "raised_at", "blame", "verdict", "late",
    "title", "page", "like", "change",
}  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with replayed_site(tmp_path_factory.mktemp("cli") / "site", site={"time_zone": "Europe/Berlin"}) as opened:
        yield opened


def run(site, *words):
    return CliRunner().invoke(app, ["--site", str(site.folder), "alarms", "replay", *words])


def test_programs_get_the_keys_that_are_promised(site):
    document = json.loads(run(site, "--json").stdout)
    assert document.keys() == {"incidents", "pages_per_week", "weeks"}
    assert all(incident.keys() == KEYS for incident in document["incidents"])
    (page,) = (one for one in document["incidents"] if one["page"] and "node_eats_jobs" in one["kinds"])
    assert page["subjects"][0] == {"kind": "node", "name": SICK_NODE} and page["severity"] == "page" and page["blame"] == "node"
    assert page["raised_at"].endswith("+00:00") and page["verdict"] is None and page["late"] is False


def test_people_get_a_line_per_incident_and_a_sum(site):
    lines = run(site).output.splitlines()
    assert any(f"{SICK_NODE} fails " in line and " page " in line for line in lines)
    assert "2 sent at once" in lines[-2] and "(Europe/Berlin)" in lines[-2]
    assert lines[-1] == "Replayed 5,551 jobs, 416 buckets of events, no scores of CPU windows."


def test_times_are_in_the_zone_of_the_site_unless_they_say_otherwise(site):
    local, utc = (run(site, "--since", since, "--json").stdout for since in ("2024-01-10T01:00", "2024-01-10T00:00+00:00"))
    assert local == utc and json.loads(local)["weeks"] < 2


def test_a_time_without_records_is_told_with_what_there_is(site):
    assert "Nothing is recorded in that time. There are records of 2024-01-01" in run(site, "--since", "2030-01-01").output


def test_a_calm_time_is_told_as_one(site):
    assert "Nothing would have been raised: " in run(site, "--until", "2024-01-01T12:00").output


def test_a_site_without_records_is_told_what_to_do(tmp_path):
    with make_site(tmp_path / "empty") as empty:
        assert "Next: stormpetrel ingest jobs FILE, or stormpetrel ingest events FILE" in run(empty).output


def test_a_table_of_counts_alone_has_a_past_and_models_are_trained_on_the_way_unless_told_not_to(tmp_path):
    with make_site(tmp_path / "grid", site={"time_zone": "UTC"}) as grid:
        put_counts(grid, sample_grid(700))
    with_models, rules = run(grid).output, run(grid, "--no-models").output
    assert "jobs are held on node0028.site-03 since " in with_models and "jobs are held on node0028.site-03 since " in rules
    assert "Replayed 0 jobs, 700 buckets of events (2 models trained on the way), no scores of CPU windows." in with_models
    assert "Replayed 0 jobs, 700 buckets of events, no scores of CPU windows." in rules


def test_buckets_of_which_none_was_seen_whole_are_told(tmp_path):
    with make_site(tmp_path / "short") as short:
        counts = counts_of([(0, "Submit", 4), (1, "Submit", 2)])
        short.event_counts.add(counts, cursor=Cursor("made", 1))
        assert "Of 2 buckets no complete bucket of events: too little to replay." in run(short).output


def test_what_is_no_time_is_refused(site):
    assert isinstance(run(site, "--since", "yesterday").exception, UsageError)


def replay_files(*words):
    return CliRunner().invoke(app, ["alarms", "replay", *words])


def test_a_file_of_sacct_or_a_table_of_counts_is_replayed_without_a_site_and_leaves_none(site, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    text = str(site.folder.with_suffix(".txt"))
    document = json.loads(replay_files("--file", text, "--time-zone", "UTC", "--json").stdout)
    of_site = json.loads(run(site, "--json").stdout)
    assert [one["raised_at"] for one in document["incidents"]] == [one["raised_at"] for one in of_site["incidents"]]
    table = tmp_path / "counts.csv"
    hours = [datetime(2026, 3, 1, tzinfo=UTC) + timedelta(hours=hour) for hour in range(240)]
    lines = [f"{hour:%Y-%m-%d %H:%M:%S},{0 if hour > hours[230] else 40},{30}" for hour in hours]
    table.write_text("\n".join(["Time,Submit,Execute", *lines]))
    assert "Replayed 0 jobs, 240 buckets of events" in replay_files("--events", str(table)).output
    assert list(tmp_path.iterdir()) == [table]


def test_sacct_text_without_a_header_is_replayed_by_the_names_of_its_columns(site, tmp_path):
    text = site.folder.with_suffix(".txt")
    header, *lines = text.read_text().splitlines()
    bare = tmp_path / "bare.txt"
    bare.write_text("\n".join(lines))
    with_header, without = (
        json.loads(replay_files("--file", str(path), *words, "--no-models", "--json").stdout)["incidents"]
        for path, words in ((text, ()), (bare, ("--fields", header.strip("|").replace("|", ","))))
    )
    assert with_header == without != []


def test_files_that_are_not_there_and_options_without_files_are_refused(site, tmp_path):
    assert isinstance(replay_files("--file", str(tmp_path / "none.txt")).exception, SourceError)
    assert isinstance(replay_files("--file", "x", "--time-zone", "Mars/Base").exception, UsageError)
    assert isinstance(run(site, "--format", "swf").exception, UsageError)
    assert isinstance(run(site, "--fields", "JobID,State").exception, UsageError)
