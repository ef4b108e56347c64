"""Background work: what takes longer than a page may, computed in a thread, kept, and shown with its age.

LiveSite -> Background.peek -> the last result at once (or None); Background.wait -> a fresh one.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from weakref import WeakKeyDictionary

from stormpetrel.answers.viewer import READ
from stormpetrel.errors import StoreBusyError
from stormpetrel.free_memory import return_free_memory

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite, SiteMemory
    from stormpetrel.answers.viewer import Viewer

T = TypeVar("T")
S = TypeVar("S")
_WAIT_S: Final = 120.0
_ONE_AT_A_TIME: Final = threading.Lock()  # two cores: requests must find one of them free


class _Answers:
    """Answers out of one result, each worked out once, also where many threads want it at once."""

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, Future[Any]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        with self._lock:
            answer = self._kept.get(key)
            mine = answer is None
            if answer is None:
                answer = self._kept[key] = Future()
            self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        if mine:
            try:
                answer.set_result(make())
            except BaseException as error:
                answer.set_exception(error)
                with self._lock:
                    self._kept.pop(key, None)
        return answer.result()


@dataclass(frozen=True, slots=True)
class Snapshot(Generic[T]):
    """A result, and the version of the site it was computed from."""

    value: T
    version: int  # of the LiveSite
    at: datetime  # the site's clock when the computation began
    _answers: _Answers = field(default_factory=_Answers, repr=False, compare=False)

    def answer(self, key: Hashable, make: Callable[[], S]) -> S:
        """Return an answer derived from this result, computed once per key; the viewer is part of the key."""
        derived: S = self._answers.get(key, make)
        return derived


def scope_of(viewer: Viewer) -> str:
    """What an answer for this viewer is kept under: one for all administrators, one for each user."""
    viewer.require(READ)
    return "everybody" if viewer.is_admin else f"user {viewer.user}"


@dataclass(slots=True)
class _Work(Generic[T]):
    latest: Snapshot[T] | None = None
    problem: Exception | None = None
    running: bool = False
    ended: float | None = None  # monotonic seconds


class Background(Generic[T]):
    """Something that is worked out per site (and per key, such as a user), never within a request.

    Parameters
    ----------
    make
        (site, key, last result or None) -> result.
    rest_s
        Least time between two computations; nothing is computed while nobody asks or nothing has changed.
    most
        Results that are kept per site; the least recently used is dropped first.
    always
        Computed anew after each rest, also where the site's tables have not changed.
    """

    def __init__(
        self, make: Callable[[LiveSite, str, T | None], T], *, rest_s: float, most: int = 32, always: bool = False
    ) -> None:
        self._make = make
        self._always = always
        self._rest_s = rest_s
        self._most = most
        self._sites: WeakKeyDictionary[SiteMemory, OrderedDict[str, _Work[T]]] = WeakKeyDictionary()
        self._changed = threading.Condition()

    def peek(self, live: LiveSite, key: str = "") -> Snapshot[T] | None:
        """The last result, at once; None while the first is computed. An error of the first is raised."""
        with self._changed:
            work = self._begun(live, key)
            if work.latest is None and work.problem is not None:
                raise work.problem
            return work.latest

    def latest(self, live: LiveSite, key: str = "") -> Snapshot[T]:
        """The last result, however old; only the very first is waited for."""
        snapshot = self.peek(live, key)
        return self.wait(live, key) if snapshot is None else snapshot

    def wait(self, live: LiveSite, key: str = "", *, limit_s: float = _WAIT_S) -> Snapshot[T]:
        """Wait for a result that is not older than `rest_s`."""
        with self._changed:
            work = self._begun(live, key)
            if not self._changed.wait_for(lambda: not work.running, limit_s):
                raise StoreBusyError(f"This is still being computed after {limit_s:.0f} s.", hint="Try again in a minute.")
            if work.latest is None:
                assert work.problem is not None
                raise work.problem
            return work.latest

    def _begun(self, live: LiveSite, key: str) -> _Work[T]:
        """The work on a key, started where it is due."""
        works = self._sites.setdefault(live.memory, OrderedDict())
        work = works.setdefault(key, _Work())
        works.move_to_end(key)
        while len(works) > self._most:
            works.popitem(last=False)
        changed = self._always or work.latest is None or work.latest.version != live.version
        rested = work.ended is None or time.monotonic() - work.ended >= self._rest_s
        if changed and rested and not work.running:
            work.running = True
            threading.Thread(target=self._run, args=(live, key, work), name="answers-work", daemon=True).start()
        return work

    def _run(self, live: LiveSite, key: str, work: _Work[T]) -> None:
        snapshot, problem = work.latest, None
        try:
            with _ONE_AT_A_TIME:
                version, at = live.version, live.now()
                snapshot = Snapshot(self._make(live, key, snapshot.value if snapshot else None), version, at)
        except Exception as error:  # raised to the next caller
            problem = error
        finally:
            return_free_memory()
            with self._changed:
                work.latest, work.problem, work.running, work.ended = snapshot, problem, False, time.monotonic()
                self._changed.notify_all()
