"""A watch whose state lies in a PostgreSQL that is away for a day."""

from datetime import timedelta

import pytest

from stormpetrel.errors import StateAwayError
from stormpetrel.store.site import open_site
from stormpetrel.store.upkeep.backup import backup, restore
from tests.parts.command_line import change_settings
from tests.parts.made_once import made_once
from tests.parts.post_box import PostBox
from tests.parts.quick_sacct import answering, write_quick_sacct
from tests.parts.watched_day import AWAY_FROM, BACK_AT, LASTING, PASSING, sick_feed, watched_day
from tests.parts.watched_site import copy_site
from tests.watch.test_days_without import about, assert_the_past_is_listed, assert_what_lasts_is_sent, told

pytestmark = [pytest.mark.postgres, pytest.mark.xdist_group("postgres")]
HOUR = timedelta(hours=1)


@pytest.fixture
def site(tmp_path_factory, tmp_path, postgres):
    """The site of the sick nodes, its state in a database of its own, and where its messages arrive."""
    feed = made_once(tmp_path_factory, "sick-feed", lambda folder: sick_feed(folder).close())
    with PostBox() as box, answering() as sacct:
        with copy_site(feed, tmp_path / "original") as original:
            backup(original, tmp_path / "b.tar")
        folder = tmp_path / "site"
        restore(tmp_path / "b.tar", folder, state_url=postgres.new_database()).close()
        (tmp_path / "original" / "feed").rename(folder / "feed")
        write_quick_sacct(folder / "feed", sacct)
        route = {"name": "ops", "kind": "webhook", "url": box.url, "timeout_s": 5.0, "per_hour": 0}
        change_settings(folder, notify={"routes": [route]}, slurm={"sacct": str(folder / "feed" / "sacct")})
        with open_site(folder) as opened:
            yield opened, box


def test_a_watch_waits_for_its_state_store_and_goes_on_where_it_was(site, postgres, monkeypatch):
    opened, box = site
    with watched_day(opened, monkeypatch) as day:
        day.go(AWAY_FROM, every=3 * HOUR)
        postgres.stop()
        try:
            with pytest.raises(StateAwayError, match="did not answer"):
                opened.incidents.list()
            day.go(BACK_AT, every=8 * HOUR)
            assert any(line["what"].startswith("The state store did not answer") for line in day.logged("problem"))
        finally:
            postgres.start()
        assert about(opened, PASSING) is None and told(box, PASSING) == []
        day.turn(BACK_AT + HOUR / 4)
        assert_the_past_is_listed(opened, box)
        day.go(BACK_AT + 3 * HOUR, every=HOUR / 2)
    assert_what_lasts_is_sent(opened, box)
    assert len(told(box, LASTING)) == 1
