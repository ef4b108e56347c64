"""Fitting a generator for a page: in a process of its own, so that no page waits for it, with its progress.

LiveSite + user -> start_fit -> a child -> fit_state -> FitState. The child tells what it does on its output, a line each; it ends
with the server, and one that ends early has changed nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from stormpetrel.errors import StoreBusyError, StormpetrelError

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer

_LONGEST: Final = 400  # characters of what the child says that are shown
_FROM_THE_PAGE: Final = "asked for on the page"


@dataclass(frozen=True, slots=True)
class FitState:
    """How far the fitting is; `problem` is why the last one came to nothing, `done` the name of what it made."""

    running: bool = False
    share: float = 0.0
    words: str = ""
    problem: str = ""
    done: str = ""


_lock = threading.Lock()
_states: WeakKeyDictionary[LiveSite, FitState] = WeakKeyDictionary()


def fit_state(live: LiveSite) -> FitState:
    """How far the fitting that was last asked for is."""
    with _lock:
        return _states.get(live, FitState())


def start_fit(live: LiveSite, viewer: Viewer, name: str | None = None) -> None:
    """Begin to fit a generator on the site's jobs; StoreBusyError where one is being fitted already. Administrators only."""
    from stormpetrel.answers.viewer import MANAGE

    viewer.require(MANAGE)
    live.site.require_writable()
    with _lock:
        if _states.get(live, FitState()).running:
            raise StoreBusyError("A generator is being fitted already.", hint="Wait until it is done.")
        _states[live] = FitState(running=True, words="starting")
    asked = json.dumps({"user": viewer.user or None, "name": name})
    words = [sys.executable, "-P", "-m", __name__, str(live.site.folder)]
    try:
        child = subprocess.Popen(
            ["nice", "-n", "10", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,  # what nobody foresaw goes to the server's own log
            text=True,
            encoding="utf-8",
        )
    except OSError as error:
        _note(live, FitState(problem=f"The fitting could not be started: {error}."))
        return
    threading.Thread(target=_follow, args=(live, child, asked), name="workload-fit", daemon=True).start()


def _note(live: LiveSite, state: FitState) -> None:
    with _lock:
        _states[live] = state


def _follow(live: LiveSite, child: subprocess.Popen[str], asked: str) -> None:
    """Note what the child says until it ends. Its input stays open meanwhile: where this server dies, the child notices."""
    assert child.stdin is not None and child.stdout is not None
    state, last = FitState(running=True, words="starting"), {}
    with child:
        try:
            child.stdin.write(asked + "\n")
            child.stdin.flush()
        except OSError:
            pass  # it has died already; its exit code says so
        for line in child.stdout:
            last = _told(line)
            if "share" in last:
                state = replace(state, share=min(1.0, max(0.0, float(last["share"]))), words=str(last["words"])[:_LONGEST])
                _note(live, state)
        code = child.wait()
    if "done" in last:
        _note(live, FitState(done=str(last["done"])[:_LONGEST]))
    else:
        unsaid = f"It ended with exit code {code}; the log of the server has the details."
        _note(live, FitState(problem=str(last.get("problem") or unsaid)[:_LONGEST]))


def _told(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _fit_in_child(folder: Path) -> int:
    """Fit the generator of a site, telling the parent; the exit code."""
    from stormpetrel.lifecycle.workload_models import fit_site_generator
    from stormpetrel.store.site import open_site
    from stormpetrel.synth.choose import DEFAULT

    asked = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        with open_site(folder) as site:
            made = fit_site_generator(site, asked["name"] or DEFAULT, user=asked["user"], why=_FROM_THE_PAGE, progress=_tell)
    except StormpetrelError as error:
        _say(problem=str(error))
        return 1
    _say(done=made.name)
    return 0


def _tell(share: float, words: str) -> None:
    _say(share=round(share, 3), words=words)


def _say(**told: Any) -> None:
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def _end_with_parent() -> None:
    """Wait until the parent closes our input, which it does at its death at the latest, and end at once."""
    while os.read(0, 1):  # past Python's buffer: a thread that holds its lock at the end would be in the way
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(_fit_in_child(Path(sys.argv[1])))
