from contextlib import nullcontext

import polars as pl
import pytest

from stormpetrel.records.cursor import Cursor
from stormpetrel.records.events import BACKGROUND_KEY, BACKGROUND_SCHEMA
from stormpetrel.store.events.counts import EventBackgroundStore
from stormpetrel.store.tables import Committed
from tests.parts.made_events import H0, HOUR


@pytest.fixture
def store(tmp_path):
    made = EventBackgroundStore(tmp_path, nullcontext)
    made.create()
    return made


def values(*rows):
    """Values of (hours after H0, name, value)."""
    full = [("graphite", H0 + HOUR * hour, 3600, name, value) for hour, name, value in rows]
    return pl.DataFrame(full, schema=BACKGROUND_SCHEMA, orient="row")


def replace(store, frame, **more):
    return store.replace(frame, source="graphite", start=H0, end=H0 + HOUR * 24, bucket_s=3600, **more)


def test_values_come_back_and_the_same_again_writes_nothing(store):
    frame = values((0, "queued", 5.0), (13, "queued", 6.5), (0, "running", 2.0))
    assert replace(store, frame, cursor=Cursor("graphite", 4)) == Committed(kept=3)
    version = store.table.version()
    assert replace(store, frame, cursor=Cursor("graphite", 4)) == Committed(known=3)
    assert store.table.version() == version and store.cursor("graphite") == 4
    assert store.read().collect().sort(BACKGROUND_KEY).equals(frame.sort(BACKGROUND_KEY))


def test_a_corrected_value_takes_the_place_of_the_old_and_a_vanished_one_stays(store):
    replace(store, values((0, "queued", 5.0), (1, "queued", 6.0)))
    assert replace(store, values((0, "queued", 7.0), (2, "queued", 8.0))) == Committed(kept=1, changed=1)
    assert store.read().collect().sort("bucket_start")["value"].to_list() == [7.0, 6.0, 8.0]


def test_what_is_no_number_is_no_value(store):
    assert replace(store, values((0, "queued", float("nan")), (1, "queued", float("inf")), (2, "queued", None))) == Committed()


def test_values_are_read_by_their_span(store):
    replace(store, values(*((hour, "queued", float(hour)) for hour in range(20))))
    part = store.read(since=H0 + HOUR * 10, until=H0 + HOUR * 14, bucket_s=3600).collect()
    assert sorted(part["value"]) == [10.0, 11.0, 12.0, 13.0] and store.read(bucket_s=60).collect().height == 0
