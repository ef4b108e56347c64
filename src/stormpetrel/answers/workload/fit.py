"""Fitting a generator for a page: in a process of its own, so that no page waits for it, with its progress.

LiveSite + Viewer -> start_fit -> a child -> LiveSite.workload.fitting.state -> WorkloadFitting. The child reports what it does on
its output, a line of JSON each; it ends with the server, and one that ends early has changed nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stormpetrel.answers.schemas.workload import WorkloadFitting
from stormpetrel.answers.viewer import MANAGE
from stormpetrel.errors import StoreBusyError, StormpetrelError
from stormpetrel.lifecycle.workload_models import fit_site_generator
from stormpetrel.store.site import open_site
from stormpetrel.synth.choose import DEFAULT

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer

_LONGEST: Final = 400  # characters of a message of the child that are shown
_FROM_THE_PAGE: Final = "asked for on the page"


class Fitting:
    """The fitting that was last asked for on a live site: `state` is how far it is, or what came of it."""

    def __init__(self) -> None:
        self.state = WorkloadFitting()
        self._lock = threading.Lock()

    def begin(self) -> WorkloadFitting:
        """Take the turn; StoreBusyError where a generator is being fitted already."""
        with self._lock:
            if self.state.running:
                raise StoreBusyError("A generator is being fitted already.", hint="Wait until it is done.")
            self.state = WorkloadFitting(running=True, words="starting")
            return self.state


def start_fit(live: LiveSite, viewer: Viewer, name: str | None = None) -> WorkloadFitting:
    """Begin to fit a generator on the site's jobs and return how far it is; StoreBusyError where one is being fitted already.

    Administrators only. `name` is the kind of generator; None takes the one that the command line takes.
    """
    viewer.require(MANAGE)
    live.site.require_writable()
    fitting = live.workload.fitting
    fitting.begin()
    request = json.dumps({"user": viewer.user or None, "name": name})
    command = [sys.executable, "-P", "-m", __name__, str(live.site.folder)]
    try:
        child = subprocess.Popen(
            ["nice", "-n", "10", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,  # what nobody foresaw goes to the server's own log
            text=True,
            encoding="utf-8",
        )
    except OSError as error:
        fitting.state = WorkloadFitting(problem=f"The fitting could not be started: {error}.")
        return fitting.state
    threading.Thread(target=_follow, args=(fitting, child, request), name="workload-fit", daemon=True).start()
    return fitting.state


def _follow(fitting: Fitting, child: subprocess.Popen[str], request: str) -> None:
    """Keep the state up to date until the child ends. Its input stays open meanwhile: where this server dies, it notices."""
    assert child.stdin is not None and child.stdout is not None
    last: dict[str, Any] = {}
    with child:
        try:
            child.stdin.write(request + "\n")
            child.stdin.flush()
        except OSError:
            pass  # it has died already; its exit code says so
        for line in child.stdout:
            last = _message(line)
            if "share" in last:
                share = min(1.0, max(0.0, float(last["share"])))
                fitting.state = WorkloadFitting(running=True, share=share, words=str(last["words"])[:_LONGEST])
        code = child.wait()
    if "done" in last:
        fitting.state = WorkloadFitting(done=str(last["done"])[:_LONGEST])
    else:
        no_reason = f"It ended with exit code {code}; the log of the server has the details."
        fitting.state = WorkloadFitting(problem=str(last.get("problem") or no_reason)[:_LONGEST])


def _message(line: str) -> dict[str, Any]:
    """A line of the child; nothing where it is no JSON object."""
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def _fit_in_child(folder: Path) -> int:
    """Fit the generator of a site, reporting to the parent; return the exit code."""
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        with open_site(folder) as site:
            training = fit_site_generator(
                site, request["name"] or DEFAULT, user=request["user"], why=_FROM_THE_PAGE, progress=_report_progress
            )
    except StormpetrelError as error:
        _report(problem=str(error))
        return 1
    _report(done=training.name)
    return 0


def _report_progress(share: float, message: str) -> None:
    _report(share=round(share, 3), words=message)


def _report(**message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _end_with_parent() -> None:
    """Wait until the parent closes our input, which it does at its death at the latest, and end at once."""
    while os.read(0, 1):  # past Python's buffer: a thread that holds its lock at the end would be in the way
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(_fit_in_child(Path(sys.argv[1])))
