from datetime import timedelta

import pytest

from stormpetrel.errors import NotThereError, UsageError
from stormpetrel.records.outages import BY_HAND, Outage, OutageKind
from stormpetrel.store.events.outages import OutageStore
from stormpetrel.store.state import open_state
from stormpetrel.store.tables import Committed
from stormpetrel.store.upkeep.backup import backup, restore
from stormpetrel.store.upkeep.scrub import scrub
from tests.builders import make_site
from tests.parts.made_events import H0, HOUR


@pytest.fixture
def state(tmp_path):
    opened = open_state(tmp_path, lock_folder=tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def store(state):
    return OutageStore(state)


def outage(first, last, title="power", *, uid="", kind=OutageKind.OUTAGE, source=BY_HAND):
    return Outage(H0 + HOUR * first, None if last is None else H0 + HOUR * last, kind, title, source, uid)


def test_an_outage_comes_back_with_a_uid_that_says_the_same_twice(store):
    kept = store.add(outage(0, 2))
    assert kept.uid and store.add(outage(0, 2)) == kept
    assert store.list() == [kept]


def test_an_outage_that_lasts_overlaps_all_that_comes(store):
    store.add(outage(0, None))
    assert store.list(since=H0 + timedelta(days=400)) and not store.list(until=H0)


def test_a_list_holds_what_overlaps_the_span_oldest_first(store):
    for first in (8, 0, 4):
        store.add(outage(first, first + 2))
    titles = [(one.start - H0) // HOUR for one in store.list(since=H0 + HOUR * 1, until=H0 + HOUR * 5)]
    assert titles == [0, 4] and len(store.list()) == 3
    assert store.list(since=H0 + HOUR * 2, until=H0 + HOUR * 4) == []


def test_a_source_tells_its_span_again_and_what_it_dropped_is_gone(store):
    by_hand = store.add(outage(0, 2))
    first = [outage(0, 2, uid="a"), outage(5, 6, uid="b"), outage(50, 51, uid="c")]
    assert store.replace_source("grafana", first, H0, H0 + HOUR * 60) == Committed(kept=3)
    second = [outage(0, 3, uid="a"), outage(7, 8, uid="d")]
    assert store.replace_source("grafana", second, H0, H0 + HOUR * 10) == Committed(kept=1, changed=2)
    assert {one.uid for one in store.list() if one.source == "grafana"} == {"a", "c", "d"} and by_hand in store.list()
    assert store.replace_source("grafana", second, H0, H0 + HOUR * 10) == Committed(known=2)


def test_what_makes_no_sense_is_refused(store):
    with pytest.raises(UsageError, match="ends before it begins"):
        store.add(outage(2, 1))
    with pytest.raises(UsageError, match="no zone"):
        store.add(Outage(H0.replace(tzinfo=None), None, OutageKind.OUTAGE, "x"))
    with pytest.raises(UsageError, match="too long"):
        store.add(outage(0, 1, uid="u" * 300))


def test_a_title_is_one_bounded_line_of_text(store):
    kept = store.add(outage(0, 1, "power\n\x1b[31m" + "x" * 900))
    assert kept.title.isprintable() and len(kept.title) <= 500 and kept.title.startswith("power ")


def test_an_outage_is_removed_by_its_name_and_only_once(store):
    kept = store.add(outage(0, 1))
    assert store.remove(kept.source, kept.uid) == kept and store.list() == []
    with pytest.raises(NotThereError, match="no outage"):
        store.remove(kept.source, kept.uid)


def test_a_forgotten_user_is_in_no_title(store, state):
    store.add(outage(0, 1, "ada filled the disk of adam"))
    scrub(state, "ada")
    assert store.list()[0].title == "[forgotten] filled the disk of adam"


def test_a_backup_brings_outages_back(tmp_path):
    with make_site(tmp_path / "site") as site:
        kept = site.outages.add(outage(0, None, kind=OutageKind.MAINTENANCE))
        backup(site, tmp_path / "b.tar")
    with restore(tmp_path / "b.tar", tmp_path / "new") as back:
        assert back.outages.list() == [kept]
