"""A watch that walks through a recorded feed look by look, in a process that may be killed at any moment.

`walk_with_kills(folder, looks, kills=5, seed=0)`. The clock of the feed stands still during a look, and is moved on when the look
is over: killed anywhere, the next life looks again at the same time. So what an undisturbed walk comes to, a killed one must come
to, to the last digit. Lives are forked off a process that has imported everything: a start costs what the watch itself does.
"""

from __future__ import annotations

import io
import multiprocessing
import random
import time
from collections.abc import Sequence
from datetime import datetime
from multiprocessing.connection import Connection
from pathlib import Path

_PRELOADED = [
    "tests.parts.scripted_watch",
    "stormpetrel.watch.running",
    "stormpetrel.jobs.history.kernel",
    "stormpetrel.lifecycle.live",
]
_LIMIT_S = 240.0


def walk(folder: Path, looks: Sequence[datetime], alive: Connection | None = None) -> None:
    """Look at each of these times that is not over yet; `alive` hears when the first look begins, and of each that is over."""
    from stormpetrel.records.times import fixed_clock
    from stormpetrel.simulate.feed import set_clock
    from stormpetrel.store.site import open_site
    from stormpetrel.watch.logs import Log
    from stormpetrel.watch.running import WatchOptions, WatchRunner

    def tell(done: int) -> None:
        if alive is not None:
            alive.send(done)

    tell(-1)
    with open_site(folder) as site, site.state.sole("watch"):
        runner = WatchRunner(site, WatchOptions("", poll_s=0.2, steps=len(looks)), Log(io.StringIO()))
        runner.begin()
        for number, look in enumerate(looks):
            if look < site.now():
                continue
            set_clock(folder / "feed", fixed_clock(look))
            runner.turn()
            runner.others.step_once()
            tell(number)
        runner.end()
    tell(len(looks))


def walk_with_kills(folder: Path, looks: Sequence[datetime], *, kills: int, seed: int) -> int:
    """Walk to the end, killed so many times at random moments; return how many looks had to be made again or were broken off.

    A life is killed at the latest when it has made its share of the looks, so that there is something left to be killed in.
    """
    chance, context, done = random.Random(seed), multiprocessing.get_context("forkserver"), -1
    context.set_forkserver_preload(_PRELOADED)
    for life in range(kills + 1):
        ours, theirs = context.Pipe()
        process = context.Process(target=walk, args=(folder, looks, theirs))
        process.start()
        theirs.close()
        last = life == kills
        done = max(done, _live(ours, process, None if last else chance.uniform(0.0, 1.2), (life + 1) * len(looks) // (kills + 1)))
        if last:
            process.join(_LIMIT_S)
            assert process.exitcode == 0, process.exitcode
        else:
            process.kill()
            process.join(_LIMIT_S)
            assert process.exitcode == -9, process.exitcode
        ours.close()
    return done


def _live(ours: Connection, process: multiprocessing.process.BaseProcess, for_s: float | None, share: int) -> int:
    """Let a life go on for so many seconds after its beginning, or until its share is done; the last look that was over."""
    done, until = -1, time.monotonic() + _LIMIT_S
    while process.is_alive() and ours.poll(max(0.0, until - time.monotonic())):
        try:
            told = ours.recv()
        except EOFError:
            break
        if told == -1 and for_s is not None:
            until = time.monotonic() + for_s
        done = max(done, told)
        if for_s is not None and done >= share:
            break
    return done
