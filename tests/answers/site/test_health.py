"""How the site itself is: lights that are right, and nothing for others that names users, hosts or paths."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.site.health import health
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.errors import AccessError
from stormpetrel.store.registry.models import NewModel
from stormpetrel.store.source_health import EVENTS, JOBS, SourceHealth
from stormpetrel.store.watch_status import WatchStatus, write_sources, write_status
from tests.answers.live_sites import put_jobs, put_predictions, said_about
from tests.builders import make_site
from tests.jobs.logs import make_log

ADA = Viewer("ada", is_admin=False)
NOW = datetime.now(UTC)
HOST = "login7.secret.example"


@pytest.fixture
def live(tmp_path):
    with make_site(tmp_path / "site") as site:
        for span, refused in (("13:31 to 2026-11-15 14:00 UTC", {}), ("13:03 to 2026-11-15 13:31 UTC", {"no_end": 2})):
            site.state.record_ingest(f"sacct 2026-11-14 {span}", {"read": 9, "kept": 3, "quarantined": refused})
        site.state.record_ingest("/data/old.txt", {"read": 5, "kept": 5, "quarantined": {}, "unread": {"cpus": 4}})
        yield LiveSite(site)


def alive(**changes):
    now = datetime.now(UTC).isoformat()  # not when this file was read: a whole run of the tests takes minutes
    told = {"pid": 4711, "host": HOST, "started": now, "stepped": now, "stepped_real": now}
    return WatchStatus(**{**told, "predictions": 100, "late": 1, "open_jobs": 12, **changes})


def watched(live, *sources, heard_s=1.0, **changes):
    """Leave in the state what a watch with these sources leaves."""
    write_status(live.site.state, alive(**changes))
    write_sources(live.site.state, sources, datetime.now(UTC) - timedelta(seconds=heard_s))


def source(name, *, good_s=3.0, watcher=JOBS, every_s=5.0, **changes):
    now = datetime.now(UTC)
    told = {"every_s": every_s, "patience_s": 15.0, "since": now - timedelta(hours=9), "records": 1234, **changes}
    return SourceHealth(name, watcher, last_good=now - timedelta(seconds=good_s), **told)


def level(answer, name):
    return next(line.level for line in answer.lines if line.name == name)


def words(answer):
    return " ".join(f"{line.name} {line.words} {line.advice}" for line in answer.lines)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "ok"),
        ({"stopped": True}, "problem"),
        ({"stepped_real": (NOW - timedelta(minutes=5)).isoformat()}, "problem"),
        ({"problem": f"slurmrestd at {HOST} did not answer"}, "problem"),
    ],
)
def test_a_watch_that_is_silent_or_stuck_is_a_problem(live, changes, expected):
    write_status(live.site.state, alive(**changes))
    assert level(health(live, LOCAL), "Watch") == level(health(live, ADA), "Watch") == expected


def test_values_that_could_not_be_read_are_told_beside_what_was_refused(live):
    assert "0 changed, 0 refused; 4 values could not be read." in words(health(live, LOCAL))


def test_a_site_that_nobody_watches_says_what_to_do(live):
    answer = health(live, ADA)
    assert (level(answer, "Watch"), level(answer, "Forecasts"), level(answer, "Model")) == ("warning",) * 3
    assert "stormpetrel watch" in words(answer) and "stormpetrel jobs train" in words(answer)


def test_a_new_site_is_not_ill_and_says_what_it_waits_for(live):
    waits = "There is no job model yet: 37 of 200 ended jobs, 3 of 10 failed ones; at this pace in about 6 hours."
    watched(live, source("sacct"), problem=waits, waits_for=waits)
    for viewer in (LOCAL, ADA):
        answer = health(live, viewer)
        assert (level(answer, "Watch"), level(answer, "Model")) == ("warning", "warning")
        assert waits in words(answer) and "stormpetrel jobs train" not in words(answer)


@pytest.mark.parametrize(("behind_s", "expected"), [(5, "ok"), (300, "warning"), (7200, "problem")])
def test_forecasts_that_lag_are_told(live, behind_s, expected):
    live.site.predictions.begin(datetime.now(UTC) - timedelta(seconds=behind_s))
    assert level(health(live, ADA), "Forecasts") == expected


def test_a_quiet_cluster_is_judged_up_to_now_although_nothing_was_said_for_hours(live):
    live.site.predictions.begin(datetime.now(UTC) - timedelta(hours=9))
    watched(live, source("sacct", records=0), horizon=datetime.now(UTC).isoformat())
    assert level(health(live, ADA), "Forecasts") == "ok"


def test_each_live_source_is_told_with_its_age_its_records_and_its_problem(live):
    long_ago = datetime.now(UTC) - timedelta(minutes=5)
    hangs = source("sacct", good_s=600.0, looking_since=long_ago, progressed=long_ago)
    failed = source("squeue", good_s=600.0, problem="squeue failed.")
    watched(live, hangs, failed, source("elasticsearch", good_s=600.0, watcher=EVENTS, every_s=3600.0))
    answer = health(live, LOCAL)
    lines = {line.name: line for line in answer.lines if line.part == "Sources"}
    assert "A poll of sacct has been under way for 5 min. Last read well 10 min ago." in lines["sacct"].words
    assert lines["squeue"].words == "squeue failed. Last read well 10 min ago: 1,234 records."
    assert lines["elasticsearch"].words == "Last read well 10 min ago: 1,234 records. Looked at every 60 min."
    assert [lines[name].level for name in ("sacct", "squeue", "elasticsearch")] == ["problem", "problem", "ok"]
    assert (level(answer, "Watch"), "under way" in words(answer)) == ("problem", True)


def test_a_source_that_is_judged_in_part_is_worth_a_look_and_no_problem_of_the_watch(live):
    part = "CPU traces are judged in part."
    watched(live, source("sacct"), source("prometheus (traces)", watcher="traces", behind=part))
    answer = health(live, LOCAL)
    line = next(line for line in answer.lines if line.name == "prometheus (traces)")
    assert line.words.startswith(part) and line.level == "warning" and line.advice
    assert level(answer, "Watch") == "ok"
    watched(live, source("prometheus (traces)", watcher="traces", behind=part))
    assert level(health(live, LOCAL), "Watch") == "ok", "also where it reads nothing else"


def test_programs_get_the_live_sources_as_figures_and_others_none(live):
    watched(live, source("sacct"), source("squeue", problem=f"squeue on {HOST} failed."))
    told = health(live, LOCAL).sources
    assert [(one["name"], one["watcher"], one["records"], bool(one["problem"])) for one in told] == [
        ("sacct", "jobs", 1234, False),
        ("squeue", "jobs", 1234, True),
    ]
    assert 3.0 <= told[0]["lag_s"] < 60.0 and told[0]["last_good_look"] < datetime.now(UTC)
    assert health(live, ADA).sources == []


def test_where_the_watch_is_silent_it_is_said_for_how_long_and_that_nobody_reads(live):
    watched(live, source("sacct", good_s=300.0), heard_s=300.0, stepped_real=(NOW - timedelta(hours=1)).isoformat())
    answer = health(live, LOCAL)
    assert "The watch was last heard of 5 min ago" in words(answer)
    assert (level(answer, "Watch"), level(answer, "sacct")) == ("problem", "warning")
    assert "Nobody reads it now." in words(answer)


def test_a_watch_without_jobs_is_not_asked_for_forecasts(live):
    watched(live, source("elasticsearch", watcher=EVENTS, every_s=3600.0))
    answer = health(live, LOCAL)
    assert not {line.name for line in answer.lines} & {"Forecasts", "On time"}
    assert "it reads events, and no jobs" in words(answer)


def test_many_late_forecasts_are_worth_a_look(live):
    write_status(live.site.state, alive(late=20))
    assert level(health(live, LOCAL), "On time") == "warning"


def test_what_the_server_met_is_told_in_full_to_administrators_only(live):
    live.problem = "The table /srv/site/tables/jobs is missing."
    assert "/srv/site" in words(health(live, LOCAL))
    assert "/srv/site" not in words(health(live, ADA)) and level(health(live, ADA), "This server") == "problem"


def test_an_old_model_is_worth_a_look(live):
    about = {"trained_until": (NOW - timedelta(days=90)).isoformat()}
    live.site.models.add_together({"jobs-submit": NewModel(lambda folder: folder.mkdir(parents=True), about)}, promoted_by="root")
    assert level(health(live, ADA), "Model") == "warning"


def test_each_source_is_told_once_by_its_latest_ingest(live):
    lines = {line.name: line for line in health(live, LOCAL).lines if line.part == "Sources"}
    assert set(lines) == {"sacct", "/data/old.txt"}
    assert lines["sacct"].level == "warning" and "9 records" in lines["sacct"].words and "2 refused" in lines["sacct"].words


def test_the_slow_part_comes_when_it_has_been_looked_at(live):
    log = make_log(60, 13)
    put_jobs(live.site, log)
    put_predictions(live.site, said_about(log))
    rejects = pl.DataFrame({"line": [7, 8], "rule": ["no_end"] * 2, "reason": ["no end"] * 2, "raw": ["<b>x</b>", "y"]})
    live.site.quarantine.add(rejects, "sacct")
    live.boards.inspections.wait(live)
    answer = health(live, LOCAL)
    rows = {table.table: table for table in answer.tables}
    assert (rows["jobs"]["rows"], rows["predictions"]["rows"]) == (60, 60)
    assert rows["jobs"]["bytes"] > 0 and rows["jobs"]["files"] >= 1
    assert answer.quarantine[0].model_dump() == {
        "rule": "no_end",
        "records": 2,
        "examples": ["no end · <b>x</b>", "no end · y"],
    }
    doctor = {line.name for line in answer.lines if line.part == "Doctor"}
    assert "Folder" in doctor and "Ports" not in doctor  # the port is taken by the server that answers
    assert answer.worst == "problem"


def test_others_get_a_short_version_without_names(live):
    write_status(live.site.state, alive(problem=f"sacct on {HOST}: jobs of bob hidden"))
    live.boards.inspections.wait(live)
    answer = health(live, ADA)
    assert answer.is_short and answer.tables is None and answer.quarantine is None
    assert {line.part for line in answer.lines} == {"Watching"}
    told = answer.model_dump_json()
    assert not any(secret in told for secret in (HOST, "bob", str(live.site.folder), "4711", "old.txt"))
    assert list(answer.versions) == ["Stormpetrel"]


def test_reading_needs_the_scope(live):
    with pytest.raises(AccessError):
        health(live, Viewer("ada", is_admin=False, scopes=frozenset()))
