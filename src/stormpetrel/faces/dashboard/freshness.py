"""How old what the pages show is, and whether somebody still watches: LiveSite -> freshness -> Freshness."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from stormpetrel.store.source_health import format_span
from stormpetrel.store.watch_status import WatchStatus, read_watch

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer

_SILENT_S: Final = 30.0  # forecasts older than this, of a watch that left no word, are of one that has stopped
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
    watch, now = read_watch(live.site.state), datetime.now(UTC)
    if watch.status is None:
        return _unwatched(live)
    state = watch.state(now)
    if state in ("stopped", "silent"):
        return _stopped(watch.silent_s(now))
    age = format_span(_age_s(live, watch.status))
    if state == "trouble" and watch.is_new(now):
        return Freshness("trouble", age, watch.problem(now).rstrip("."), "Jobs are followed, and judged from then on.")
    if state == "trouble":
        what = f"The watch cannot go on: {watch.problem(now)}" if viewer.is_admin else "The watch cannot read a source"
        return Freshness("trouble", age, what.rstrip("."), "It retries automatically.")
    return Freshness("live", age, f"Live, {age} old")


def _unwatched(live: LiveSite) -> Freshness:
    horizon = live.site.predictions.horizon()
    if horizon is None:
        return Freshness("never", "–", "No watch runs on this site yet", _START)
    age_s = (live.now() - horizon).total_seconds()
    return _stopped(age_s) if age_s > _SILENT_S else Freshness("live", format_span(age_s), f"Live, {format_span(age_s)} old")


def _stopped(age_s: float) -> Freshness:
    return Freshness(
        "stopped", format_span(age_s), f"The watch stopped {format_span(age_s)} ago", f"What you see is that old. {_START}"
    )


def _age_s(live: LiveSite, status: WatchStatus) -> float:
    """In seconds of ours, also where the site's clock runs faster."""
    seen = status.horizon or status.stepped
    return (live.now() - datetime.fromisoformat(seen)).total_seconds() / live.site.pace()
