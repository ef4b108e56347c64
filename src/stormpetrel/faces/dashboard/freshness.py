"""How old what the pages show is, and whether somebody still watches: LiveSite -> freshness -> Freshness."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from stormpetrel.store.watch_status import WatchStatus, read_status

if TYPE_CHECKING:
    from stormpetrel.faces.desk.live_site import LiveSite
    from stormpetrel.faces.desk.viewer import Viewer

_SILENT_S: Final = 30.0  # a watch that takes this long for a turn is given up, unless it polls more rarely
_START: Final = "Start it: stormpetrel watch"


@dataclass(frozen=True, slots=True)
class Freshness:
    """`state` is live, trouble, stopped or never; `age` and `words` are for people, `hint` says what to do."""

    state: str
    age: str
    words: str
    hint: str = ""


def freshness(live: LiveSite, viewer: Viewer) -> Freshness:
    """Whether the site is watched, and how far back the last look at the scheduler was; what is wrong is for administrators."""
    status = read_status(live.site.state)
    if status is None:
        return _unwatched(live)
    silent_s = status.seconds_silent(datetime.now(UTC))
    if status.stopped or silent_s > max(_SILENT_S, 5 * status.poll_s):
        return Freshness(
            "stopped", ago(silent_s), f"The watch stopped {ago(silent_s)} ago", f"What you see is that old. {_START}"
        )
    age = ago(_age_s(live, status))
    if status.problem:
        what = f"The watch cannot go on: {status.problem}" if viewer.is_admin else "The watch cannot reach the scheduler"
        return Freshness("trouble", age, what.rstrip("."), "It tries again by itself.")
    return Freshness("live", age, f"Live, {age} old")


def ago(seconds: float) -> str:
    """A length of time in one number: `4 s`, `12 min`, `3 h`, `5 days`."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _unwatched(live: LiveSite) -> Freshness:
    horizon = live.site.predictions.horizon()
    if horizon is None:
        return Freshness("never", "–", "Nobody watches this site yet", _START)
    age_s = (live.now() - horizon).total_seconds()
    return _stopped(age_s) if age_s > _SILENT_S else Freshness("live", ago(age_s), f"Live, {ago(age_s)} old")


def _stopped(age_s: float) -> Freshness:
    return Freshness("stopped", ago(age_s), f"The watch stopped {ago(age_s)} ago", f"What you see is that old. {_START}")


def _age_s(live: LiveSite, status: WatchStatus) -> float:
    """In seconds of ours, also where the site's clock runs faster."""
    seen = status.horizon or status.stepped
    return (live.now() - datetime.fromisoformat(seen)).total_seconds() / live.site.pace()
