from datetime import UTC, datetime

import pytest

from stormpetrel.errors import UsageError
from stormpetrel.records.jobs import JobRef
from stormpetrel.store import opinions as module
from stormpetrel.store.opinions import OpinionCount, OpinionStore
from stormpetrel.store.state import open_state

REF = JobRef("main", 7, None, datetime(2026, 1, 1, tzinfo=UTC), 0)


@pytest.fixture
def opinions(tmp_path):
    state = open_state(tmp_path, lock_folder=tmp_path)
    yield OpinionStore(state)
    state.close()


def test_opinions_are_counted_by_advice_the_most_judged_first(opinions):
    opinions.add("kim", REF, "ask for 8 GB", useful=True)
    opinions.add("kim", REF, "ask for less time", useful=False)
    opinions.add("lee", "8-1-0-main", "ask for 8 GB", useful=False)
    assert opinions.counts() == [OpinionCount("ask for 8 GB", 1, 1), OpinionCount("ask for less time", 0, 1)]
    assert [(one.user, one.job, one.useful) for one in opinions.recent(1)] == [("lee", "8-1-0-main", False)]


def test_a_later_opinion_of_the_same_user_replaces_the_earlier(opinions):
    opinions.add("kim", REF, "ask for 8 GB", useful=True)
    opinions.add("kim", REF, "ask for 8 GB", useful=False)
    assert opinions.counts() == [OpinionCount("ask for 8 GB", 0, 1)]
    assert opinions.of("kim", REF) == {"ask for 8 GB": False}
    assert opinions.of("lee", REF) == {}


@pytest.mark.parametrize(("job", "advice"), [(REF, ""), (REF, "x" * 2001), ("j" * 301, "ask for 8 GB")])
def test_what_is_no_advice_on_a_job_is_not_kept(opinions, job, advice):
    with pytest.raises(UsageError, match="not a piece of advice"):
        opinions.add("kim", job, advice, useful=True)


def test_nobody_fills_the_disk_with_opinions(opinions, monkeypatch):
    monkeypatch.setattr(module, "_MOST_PER_USER", 2)
    for job in ("1", "2"):
        opinions.add("kim", job, "ask for 8 GB", useful=True)
    with pytest.raises(UsageError, match="the most that are kept"):
        opinions.add("kim", "3", "ask for 8 GB", useful=True)
    opinions.add("kim", "2", "ask for 8 GB", useful=False)
    opinions.add("lee", "3", "ask for 8 GB", useful=True)
    assert opinions.counts() == [OpinionCount("ask for 8 GB", 2, 1)]
