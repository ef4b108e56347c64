"""A process that sends the messages of a site once: `python -m tests.parts.sender SITE`; it says `answered` before it commits."""

from __future__ import annotations

import sys
from pathlib import Path

from stormpetrel.store.incidents.messages import MessageStore
from stormpetrel.store.site import open_site
from stormpetrel.watch.notify.outbox import Outbox

_delivered = MessageStore.delivered


def _say_and_commit(store: MessageStore, *arguments: object, **more: object) -> None:
    sys.stdout.write("answered\n")
    sys.stdout.flush()
    _delivered(store, *arguments, **more)  # type: ignore[arg-type]


def main() -> None:
    """Make one turn of the outbox and wait until all is sent."""
    MessageStore.delivered = _say_and_commit  # type: ignore[method-assign]
    with open_site(Path(sys.argv[1])) as site:
        outbox = Outbox(site, patience_s=60)
        outbox.step(site.now())
        outbox.close()


if __name__ == "__main__":
    main()
