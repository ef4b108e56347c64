"""`stormpetrel events train | score`: what people and programs are told, and how alarms become episodes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from stormpetrel.answers.cluster.alarms import alarms_of
from stormpetrel.answers.schemas.cluster import ClusterAlarm
from stormpetrel.config import settings_from
from stormpetrel.events.finding import Finding, FindingKind, findings_as_json
from stormpetrel.faces.cli.events.models import label_command
from stormpetrel.records.events import EVENT_SCORE_SCHEMA
from stormpetrel.records.outages import Outage, OutageKind
from stormpetrel.store.site import create_site
from tests.answers.cluster_sites import put_counts, sample_grid
from tests.parts.command_line import run, run_here

START = datetime(2026, 1, 5, tzinfo=UTC)


def _rows(*rows: tuple[int, float | None, list[Finding]]) -> pl.DataFrame:
    """Alarms at (hour, score, findings)."""
    empty: dict[str, object] = {"kinds": [], "counts": [], "expected": [], "low": [], "high": [], "surprise": []}
    told = [
        {
            "bucket_start": START + timedelta(hours=hour), "bucket_s": 3600, "model": "m", "model_version": 1, "score": score,
            "threshold": 2.0, "alarm": True, "said_at": START, "why": findings_as_json(why), **empty,
        }
        for hour, score, why in rows
    ]  # fmt: skip
    return pl.DataFrame(told, schema=EVENT_SCORE_SCHEMA)


def _alarms(rows: pl.DataFrame, outages: Sequence[Outage] = ()) -> list[ClusterAlarm]:
    return alarms_of(rows, outages, zone="UTC", in_full=True)


def _more(words: str) -> Finding:
    return Finding(FindingKind.MORE, words)


def _hole(count: float) -> Finding:
    return Finding(FindingKind.BLACK_HOLE, f"black hole of {count:g}", count=count, place="node", value="n1")


def test_alarms_less_than_six_hours_apart_are_one_episode() -> None:
    alarms = _alarms(_rows((0, 3.0, []), (6, 2.5, []), (13, 4.0, []), (14, None, [])))
    assert [(alarm.start.hour, alarm.end.hour, alarm.score) for alarm in alarms] == [(0, 7, 3.0), (13, 15, 4.0)]


def test_a_black_hole_is_told_first_even_where_another_hour_scores_higher() -> None:
    (alarm,) = _alarms(_rows((0, -6.0, [_hole(394), _more("a")]), (1, 5.0, [_more("b")]), (2, 1.0, [_hole(20)])))
    assert alarm.findings == ["black hole of 394", "b"]


def test_an_episode_knows_what_people_say_of_it_and_how_to_say_that_it_was_none() -> None:
    outage = Outage(START + timedelta(minutes=30), START + timedelta(hours=3), OutageKind.OUTAGE, "schedd-2 down")
    later = Outage(START + timedelta(hours=9), None, OutageKind.MAINTENANCE, "later")
    (alarm,) = _alarms(_rows((0, 3.0, [])), [outage, later])
    assert alarm.labels == ["outage: schedd-2 down"]
    assert label_command(alarm, "Europe/Berlin") == (
        "stormpetrel events label '2026-01-05 01:00' '2026-01-05 02:00' --kind normal"
    )


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("events-cli") / "site"
    with create_site(folder, settings_from({"site": {"time_zone": "Europe/Berlin"}})) as site:
        put_counts(site, sample_grid(700))
        for outage in sample_grid(700).outages:
            site.outages.add(outage)
    return folder


def test_train_and_score_say_what_they_did_in_the_sites_own_time(counted: Path) -> None:
    trained = run_here(counted, "events", "train")
    assert trained.returncode == 0, trained.stderr
    assert "labelled spans are newer than what is learnt from" in trained.stdout
    scored = run_here(counted, "events", "score", "--last", "2")
    assert scored.returncode == 0, scored.stderr
    assert "(Europe/Berlin):" in scored.stdout and "alarms in all, the newest 2:" in scored.stdout
    as_json = json.loads(run_here(counted, "events", "score", "--json").stdout)
    assert as_json["scored"] == 0 and as_json["buckets"] == 700
    assert {"from", "to", "score", "why", "labels"} == set(as_json["episodes"][-1])
    assert any(one["labels"] for one in as_json["episodes"])


def test_an_unknown_model_is_one_sentence_with_those_that_there_are(counted: Path) -> None:
    told = run_here(counted, "events", "train", "--model", "magic")
    assert told.returncode == 2 and "Known: supervised, unsupervised, combined." in told.stderr


def test_a_copy_of_a_table_is_noticed_and_can_be_dropped(tmp_path: Path) -> None:
    site = tmp_path / "site"
    create_site(site).close()
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("time,Submit\n2026-11-01 00:00:00,5\n2026-11-01 01:00:00,6\n")
    assert "note" not in run_here(site, "ingest", "events", str(tmp_path / "a.csv")).stdout
    assert "table:a.csv counts the same time" in run_here(site, "ingest", "events", str(tmp_path / "b.csv")).stdout
    dropped = run_here(site, "ingest", "events", "--drop", "table:b.csv")
    assert dropped.returncode == 0, dropped.stderr
    shown = json.loads(run(site, "events", "show", "--json").stdout)
    assert shown["totals"] == {"Submit": 11}
    again = run_here(site, "ingest", "events", "--drop", "table:b.csv")
    assert again.returncode == 2 and "table:a.csv" in again.stderr
