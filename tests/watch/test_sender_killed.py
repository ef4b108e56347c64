"""A sender killed after its receiver took a message and before it could note that: a real process, real receivers."""

import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from stormpetrel.records.incidents import MessageState
from stormpetrel.store.site import open_site
from tests.builders import make_site
from tests.parts.alarm_findings import finding
from tests.parts.inbox import Inbox
from tests.parts.post_box import PostBox
from tests.parts.raised_incidents import raise_incidents


@contextmanager
def sender(folder):
    with subprocess.Popen(
        [sys.executable, "-m", "tests.parts.sender", str(folder)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def nobody_can_commit(folder, locked):
    """Let nobody write to the state from the moment at which `locked` is called."""
    with closing(sqlite3.connect(folder / "state.db", check_same_thread=False, isolation_level=None)) as connection:
        locked.append(lambda: connection.in_transaction or connection.execute("BEGIN IMMEDIATE"))
        yield


class LockingInbox(Inbox):
    """Mail arrives, and from then on nobody can commit."""

    def __init__(self, arrived):
        super().__init__()
        self._arrived = arrived

    async def handle_DATA(self, server, session, envelope):
        for act in self._arrived:
            act()
        return await super().handle_DATA(server, session, envelope)


@contextmanager
def web(arrived):
    with PostBox() as box:
        box.reply = lambda *_: ([act() for act in arrived], (200, {}, b"ok"))[1]
        route = {"name": "ops", "kind": "webhook", "url": box.url, "timeout_s": 5.0}
        yield route, lambda: [(post.headers["Idempotency-Key"], post.headers.get("X-Stormpetrel-Repeat")) for post in box.taken]


@contextmanager
def mail(arrived):
    with LockingInbox(arrived) as inbox:
        route = {
            "name": "ops", "kind": "email", "host": "127.0.0.1", "port": inbox.port, "tls": "none", "sender": "a@b.c",
            "recipients": ["d@b.c"], "timeout_s": 5.0,
        }  # fmt: skip
        yield route, lambda: [(mail["Message-ID"], mail["X-Stormpetrel-Repeat"]) for mail in inbox.mails]


@pytest.mark.parametrize("receiver", [web, mail])
def test_what_was_taken_but_not_noted_when_the_sender_was_killed_comes_again_with_its_id_and_marked(tmp_path, receiver):
    folder, arrived = tmp_path / "site", []
    with receiver(arrived) as (route, taken):
        with make_site(folder, notify={"routes": [route]}) as site:
            raise_incidents(site, finding(when=datetime.now(UTC) - timedelta(minutes=5)))
        with nobody_can_commit(folder, arrived), sender(folder) as process:
            assert process.stdout.readline() == "answered\n"
            process.kill()
            process.wait()
        arrived.clear()
        with open_site(folder) as site:
            (waiting,) = site.messages.waiting()
            assert waiting.sending_since is not None and waiting.tries == 1
        with sender(folder) as process:
            assert process.wait(timeout=60) == 0
        (first, unmarked), (second, marked) = taken()
        assert first == second and unmarked is None and marked == "true"
        with open_site(folder) as site:
            assert [message.state for message in site.messages.list()] == [MessageState.DELIVERED]
