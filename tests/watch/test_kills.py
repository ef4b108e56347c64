"""A watch that is killed at any moment ends where an undisturbed one does: tables, incidents, messages, its own state."""

from datetime import timedelta

import polars as pl
import pytest
import sqlalchemy as sa

from stormpetrel.records.jobs import KEY
from stormpetrel.store.state_tables import incidents, messages, watchers
from tests.parts.post_box import PostBox
from tests.parts.scripted_watch import walk, walk_with_kills
from tests.parts.watched_site import TRAINED

STEP = timedelta(minutes=47)
SENT = ("key", "incident", "kind", "route", "created", "state")  # how often it was tried depends on the kills


@pytest.mark.parametrize(("kills", "looks"), [(5, 6), pytest.param(100, 110, marks=pytest.mark.slow)])
def test_killed_at_random_moments_it_ends_with_the_tables_incidents_and_messages_of_an_undisturbed_watch(
    prepared, copied, kills, looks
):
    times = [TRAINED + STEP * number for number in range(1, looks + 1)]
    ends = []
    for killed in (False, True):
        with PostBox() as box:
            route = {"name": "ops", "kind": "webhook", "url": box.url, "severity": "info", "timeout_s": 5.0}
            site = copied(prepared, notify={"routes": [route]})
            if killed:
                walk_with_kills(site.folder, times, kills=kills, seed=kills)
            else:
                walk(site.folder, times)
            ends.append((site, {post.headers["Idempotency-Key"].rpartition("-")[0] for post in box.taken}))
    (whole, told), (restarted, told_with_kills) = ends
    assert rows_of(whole, incidents) == rows_of(restarted, incidents) != []
    assert rows_of(whole, watchers) == rows_of(restarted, watchers)
    assert told == told_with_kills != set()
    assert kept_of(whole, messages, SENT) == kept_of(restarted, messages, SENT)
    for table in ("jobs", "predictions"):
        rows = [stored(getattr(site, table).table) for site in (whole, restarted)]
        assert rows[0].height > 20 and rows[0].equals(rows[1])
    assert not stored(restarted.predictions.table).select(*KEY, "moment").is_duplicated().any()


def kept_of(site, table, columns):
    return [[row[name] for name in columns] for row in rows_of(site, table)]


def rows_of(site, table):
    with site.state.transaction() as connection:
        return [dict(row) for row in connection.execute(sa.select(table).order_by(*table.primary_key)).mappings()]


def stored(table):
    rows = table.scan().collect()
    return rows.select(pl.exclude("extra", "older")).sort(
        *KEY, *(["moment"] if "moment" in rows.columns else []), nulls_last=True
    )
