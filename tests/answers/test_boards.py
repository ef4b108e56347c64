"""What a site keeps between requests is its own, and goes with it."""

import gc
import weakref

from stormpetrel.answers.boards import Boards
from stormpetrel.answers.live_site import LiveSite
from tests.builders import make_site
from tests.faces.web.sample_site import wait_until


def test_a_topic_has_one_background_per_site_and_no_two_sites_share_one():
    first, second = Boards(), Boards()
    assert first.capacity is first.capacity and first.cluster is first.cluster
    assert first.capacity is not second.capacity and first.cluster is not second.cluster


def test_a_board_goes_with_its_site(tmp_path):
    with make_site(tmp_path / "site") as site:
        live = LiveSite(site)
        assert live.boards.capacity.wait(live).value.record.known_weeks == 0
        kept = weakref.ref(live.boards.capacity)
        del live
        wait_until(lambda: gc.collect() >= 0 and kept() is None)  # the thread that worked it out lets go last
