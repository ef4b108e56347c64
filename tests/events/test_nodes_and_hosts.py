"""A node that eats jobs, a submit host that has gone silent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl

from stormpetrel.events.nodes_and_hosts import black_holes, silent_grid, silent_hosts
from stormpetrel.records.event_series import EventSeries
from stormpetrel.records.events import COUNT_SCHEMA

START = datetime(2026, 1, 5, tzinfo=UTC)


def _frame(rows: list[tuple[int, str, str, str, int]]) -> pl.DataFrame:
    """Rows of (hour, kind, place, value, count)."""
    return pl.DataFrame(
        [("s", START + timedelta(hours=hour), 3600, kind, place, value, count) for hour, kind, place, value, count in rows],
        schema=COUNT_SCHEMA,
        orient="row",
    )


def _series(hours: int, gaps: tuple[int, ...] = ()) -> EventSeries:
    counts = np.full((hours, 1), 50.0)
    counts[list(gaps)] = np.nan
    start_s = int(START.timestamp()) + 3600 * np.arange(hours)
    return EventSeries(start_s, 3600, ("Submit",), counts, np.zeros(hours, dtype=np.int8))


def test_a_node_that_fails_all_its_many_jobs_within_seconds_is_a_black_hole() -> None:
    rows = [(3, "Execute", "node", f"n{node}", 4) for node in range(20)]
    rows += [
        (3, "Execute", "node", "n7b", 240),
        (3, "JobFailedFast", "node", "n7b", 238),
        (3, "JobTerminated", "node", "n7b", 238),
    ]
    found = black_holes(_frame(rows), zone="UTC", bucket_s=3600)
    ((moment, (hole,)),) = found.items()
    assert moment == START + timedelta(hours=3)
    assert hole.words == (
        "Node n7b is a black hole: 240 jobs started since 03:00, 238 of them failed within seconds; other nodes start 4"
    )


def test_a_node_that_starts_many_good_jobs_is_none() -> None:
    rows = [(3, "Execute", "node", f"n{node}", 4) for node in range(20)]
    rows += [
        (3, "Execute", "node", "busy", 240),
        (3, "JobFailedFast", "node", "busy", 12),
        (3, "JobTerminated", "node", "busy", 240),
    ]
    assert black_holes(_frame(rows), zone="UTC", bucket_s=3600) == {}


def test_a_batch_that_fails_fast_on_other_nodes_as_well_is_the_fault_of_its_jobs() -> None:
    rows = [(3, "Execute", "node", f"n{node}", 3) for node in range(12)]
    rows += [(3, "Execute", "node", "n7b", 22), (3, "JobFailedFast", "node", "n7b", 21)]
    elsewhere = [(3, "JobFailedFast", "node", f"n{node}", 3) for node in range(6)]
    assert black_holes(_frame([*rows, *elsewhere]), zone="UTC", bucket_s=3600) == {}
    assert list(black_holes(_frame([*rows, *elsewhere[:3]]), zone="UTC", bucket_s=3600)) == [START + timedelta(hours=3)]


def test_two_black_holes_at_once_do_not_excuse_each_other() -> None:
    rows = [(3, "Execute", "node", f"n{node}", 3) for node in range(12)]
    rows += [(3, kind, "node", hole, 40) for hole in ("a", "b") for kind in ("Execute", "JobFailedFast")]
    assert {one.value for one in black_holes(_frame(rows), zone="UTC", bucket_s=3600)[START + timedelta(hours=3)]} == {"a", "b"}


def test_where_nobody_tells_of_failures_the_ends_speak_but_must_be_many_more() -> None:
    rows = [(0, "Execute", "node", f"n{node}", 10) for node in range(9)]
    rows += [(0, "Execute", "node", "hole", 500), (0, "JobTerminated", "node", "hole", 495)]
    rows += [(0, "Execute", "node", "quick", 60), (0, "JobTerminated", "node", "quick", 60)]
    found = black_holes(_frame(rows), zone="UTC", bucket_s=3600)
    assert [one.value for one in found[START]] == ["hole"]


def _told(hours: int, silent_from: int) -> list[tuple[int, str, str, str, int]]:
    rows = [(hour, "Submit", "submit_host", "schedd-1", 30) for hour in range(hours)]
    return rows + [(hour, "Submit", "submit_host", "schedd-2", 12) for hour in range(silent_from)]


def test_a_host_that_stops_telling_is_silent_from_the_hour_in_which_that_is_beyond_doubt() -> None:
    found = silent_hosts(_frame(_told(200, 190)), _series(200))
    assert min(found) == START + timedelta(hours=191)  # 12 events missing prove little, 24 do
    assert found[START + timedelta(hours=199)][0].words == (
        "Submit host schedd-2 is silent since Monday 22:00; 120 events were to be expected, and other hosts go on"
    )


def test_a_silence_as_long_as_one_before_is_no_news() -> None:
    rows = [row for row in _told(200, 190) if not (row[3] == "schedd-2" and 50 <= row[0] < 62)]
    assert silent_hosts(_frame(rows), _series(200)) == {}


def test_a_host_known_for_less_than_a_week_and_a_gap_say_nothing() -> None:
    assert silent_hosts(_frame(_told(100, 90)), _series(100)) == {}
    assert silent_hosts(_frame(_told(192, 190)), _series(192, gaps=(190, 191))) == {}


def test_when_all_hosts_are_silent_it_is_the_grid() -> None:
    rows = [row for row in _told(200, 190) if row[0] < 190]
    assert silent_hosts(_frame(rows), _series(200)) == {}


def test_a_grid_that_tells_nothing_for_longer_than_ever_is_silent_and_a_usual_pause_is_none() -> None:
    series = _series(200)
    series.counts[60:62], series.counts[190:] = 0.0, 0.0
    found = silent_grid(series)
    assert min(found) == START + timedelta(hours=192)  # two hours were silent before
    assert found[START + timedelta(hours=192)][0].words.startswith("No event of any kind since Monday 22:00, 148 were to be")


def test_a_bucket_is_judged_by_the_two_weeks_before_it_however_many_are_asked_about() -> None:
    """A pause three weeks ago, and a kind of failures that is told of only later, change nothing."""
    rows = [row for row in _told(800, 790) if not (row[3] == "schedd-2" and 200 <= row[0] < 220)]
    part = [row for row in rows if row[0] >= 790 - 336]
    late = START + timedelta(hours=790)
    whole, recent = (
        {start: found for start, found in silent_hosts(_frame(told), _series(800)).items() if start >= late}
        for told in (rows, part)
    )
    assert whole and whole == recent
    blind = [(0, "Execute", "node", f"n{node}", 10) for node in range(9)]
    blind += [(0, "Execute", "node", "hole", 500), (0, "JobTerminated", "node", "hole", 495)]
    later = [(9, "JobFailedFast", "node", "n1", 1)]
    assert list(black_holes(_frame([*blind, *later]), zone="UTC", bucket_s=3600)) == [START]
