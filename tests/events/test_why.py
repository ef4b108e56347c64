"""What an alarm says: which kinds, by how much, since when, and where."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl

from stormpetrel.events.contract import Forecast
from stormpetrel.events.finding import Finding, FindingKind, findings_as_json, findings_of_json
from stormpetrel.events.why import _SPECIFIC_FIRST, Placed, findings_at
from stormpetrel.records.event_series import EventSeries
from stormpetrel.records.events import COUNT_SCHEMA, PLACES

START = datetime(2026, 1, 5, tzinfo=UTC)
KINDS = ("Submit", "JobDisconnected")
HOURS = 15 * 24


def _series(counts: np.ndarray) -> EventSeries:
    start_s = int(START.timestamp()) + 3600 * np.arange(len(counts))
    return EventSeries(start_s, 3600, KINDS, counts, np.zeros(len(counts), dtype=np.int8))


def _forecast(counts: np.ndarray, expected: np.ndarray, surprise: np.ndarray) -> Forecast:
    return Forecast(KINDS, expected, expected / 2, expected * 2, surprise)


def _rows(kind: str, place: str, value: str, counts: np.ndarray) -> pl.DataFrame:
    hours = [START + timedelta(hours=hour) for hour in range(len(counts))]
    return pl.DataFrame(
        {
            "source": ["s"] * len(hours), "bucket_start": hours, "bucket_s": [3600] * len(hours), "kind": [kind] * len(hours),
            "place": [place] * len(hours), "value": [value] * len(hours), "count": counts.astype(np.int64),
        },
        schema=COUNT_SCHEMA,
    )  # fmt: skip


def _calm() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    expected = np.tile([100.0, 10.0], (HOURS, 1))
    return expected.copy(), expected, np.zeros((HOURS, 2))


def test_a_storm_on_one_submit_host_is_told_with_its_size_its_beginning_and_its_place() -> None:
    counts, expected, surprise = _calm()
    counts[-3:, 1], surprise[-3:, 1] = 410.0, 9.0
    hosts = pl.concat(
        [
            _rows("JobDisconnected", "submit_host", "schedd-1", np.where(np.arange(HOURS) < HOURS - 3, 5, 10)),
            _rows("JobDisconnected", "submit_host", "schedd-2", np.where(np.arange(HOURS) < HOURS - 3, 5, 400)),
        ]
    )
    (found,) = findings_at(_series(counts), _forecast(counts, expected, surprise), HOURS - 1, Placed(hosts))
    assert found.words == "JobDisconnected 41× expected since 21:00, 99 % on schedd-2"
    assert (found.kind, found.place, found.value, found.count, found.expected) == (
        FindingKind.MORE, "submit_host", "schedd-2", 1230.0, 30.0,
    )  # fmt: skip
    assert found.since == START + timedelta(hours=HOURS - 3)


def test_what_is_missing_is_told_where_it_is_missing() -> None:
    counts, expected, surprise = _calm()
    counts[-2:, 0], surprise[-2:, 0] = 52.0, -6.0
    sites = pl.concat(
        [
            _rows("Submit", "site", "here", np.where(np.arange(HOURS) < HOURS - 2, 50, 2)),
            _rows("Submit", "site", "there", np.full(HOURS, 50)),
        ]
    )
    (found,) = findings_at(_series(counts), _forecast(counts, expected, surprise), HOURS - 1, Placed(sites))
    assert found.words == "Submit 52 % of expected since 22:00, 100 % of what is missing at site here"


def test_a_change_that_is_spread_as_usual_names_no_place() -> None:
    counts, expected, surprise = _calm()
    counts[-1, 1], surprise[-1, 1] = 100.0, 9.0
    hosts = pl.concat(
        [
            _rows("JobDisconnected", "submit_host", name, np.where(np.arange(HOURS) < HOURS - 1, usual, usual * 10))
            for name, usual in (("schedd-1", 9), ("schedd-2", 1))
        ]
    )
    (found,) = findings_at(_series(counts), _forecast(counts, expected, surprise), HOURS - 1, Placed(hosts))
    assert (found.place, found.words) == ("", "JobDisconnected 10× expected since 23:00")


def test_a_trouble_goes_back_over_one_calm_hour_and_not_over_two() -> None:
    counts, expected, surprise = _calm()
    surprise[-6:, 1] = [5.0, 0.0, 0.0, 5.0, 0.0, 5.0]
    counts[-6:, 1] = 50.0
    (found,) = findings_at(
        _series(counts), _forecast(counts, expected, surprise), HOURS - 1, Placed(_rows("x", "", "", np.zeros(1)))
    )
    assert found.since == START + timedelta(hours=HOURS - 3)


def test_no_event_at_all_is_one_finding_that_names_both_explanations() -> None:
    counts, expected, surprise = _calm()
    counts[-4:], surprise[-4:] = 0.0, -9.0
    (found,) = findings_at(
        _series(counts), _forecast(counts, expected, surprise), HOURS - 1, Placed(_rows("x", "", "", np.zeros(1)))
    )
    assert found.kind is FindingKind.SILENCE
    assert found.words.startswith("No event of any kind since 20:00, 440 were to be expected: the grid stands still, or")


def test_a_kind_never_seen_is_a_finding_and_one_that_was_seen_is_not() -> None:
    counts, expected, surprise = _calm()
    counts[-1, 1], surprise[-1, 1] = 100.0, 9.0
    last = np.zeros(HOURS)
    last[-1] = 312
    rows = pl.concat([_rows("Event099", "", "", last), _rows("JobHeld", "", "", last + 1)])
    found = findings_at(_series(counts), _forecast(counts, expected, surprise), HOURS - 1, Placed(rows))
    assert [one.event_kind for one in found] == ["JobDisconnected", "Event099"]
    assert found[1].words == "Event099, a kind never seen before, 312 times since 23:00"


def test_findings_come_back_from_json_as_they_went() -> None:
    found = [Finding(FindingKind.MORE, "Ü 3× expected", "Submit", 3.0, 1.0, START, "node", "n1", 0.9, 4.0)]
    assert findings_of_json(findings_as_json(found)) == found


def test_every_place_has_its_rank() -> None:
    assert set(_SPECIFIC_FIRST) == set(PLACES)
