"""The writer lock: one thread at a time, in whichever process."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from stormpetrel.errors import StoreBusyError
from stormpetrel.store import state as state_module
from tests.builders import make_site


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as opened:
        yield opened


def test_another_thread_of_the_same_process_waits_until_the_lock_is_free(site):
    order, taken, wanted = [], threading.Event(), threading.Event()

    def second():
        taken.wait(20)
        wanted.set()
        with site.state.writer_lock():
            order.append("second")

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second)
        with site.state.writer_lock():
            taken.set()
            assert wanted.wait(20)
            order.append("first")
            assert not waiting.done()
        waiting.result(20)
    assert order == ["first", "second"]


def test_the_thread_that_holds_it_may_take_it_again(site):
    with site.state.writer_lock(), site.state.writer_lock():
        pass
    with ThreadPoolExecutor(1) as pool:  # and it is free afterwards

        def take():
            with site.state.writer_lock():
                return True

        assert pool.submit(take).result(20)


def test_a_thread_that_waits_too_long_says_who_is_in_the_way(site, monkeypatch):
    monkeypatch.setattr(state_module, "_LOCK_WAIT_S", 0.05)

    def take():
        with site.state.writer_lock():
            pass

    with ThreadPoolExecutor(1) as pool, site.state.writer_lock(), pytest.raises(StoreBusyError, match="part of this process"):
        pool.submit(take).result(20)


def test_a_block_that_fails_leaves_it_free(site):
    with pytest.raises(RuntimeError), site.state.writer_lock():
        raise RuntimeError
    with site.state.writer_lock():
        pass
