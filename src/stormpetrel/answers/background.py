"""Work off the request: what takes longer than a page may, made in a thread, kept, and shown with its age.

LiveSite -> Background.look -> the last result at once (or None); Background.wait -> one that is as good as new.
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

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite, SiteMemory
    from stormpetrel.answers.viewer import Viewer

T = TypeVar("T")
S = TypeVar("S")
_WAIT_S: Final = 120.0
_ONE_AT_A_TIME: Final = threading.Lock()  # two cores: requests must find one of them free


class _Answers:
    """Answers out of one result, each worked out once, also where many ask for it at the same moment."""

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
class Made(Generic[T]):
    """A result, and which state of the site it is of."""

    value: T
    version: int  # of the LiveSite
    at: datetime  # the site's clock when the making began
    _answers: _Answers = field(default_factory=_Answers, repr=False, compare=False)

    def answer(self, key: Hashable, make: Callable[[], S]) -> S:
        """What is worked out of this result for one question, kept as long as the result is. Whoever asks is part of the key."""
        found: S = self._answers.get(key, make)
        return found


def scope_of(viewer: Viewer) -> str:
    """What an answer for this viewer is kept under: one for all administrators, one for each user."""
    viewer.require(READ)
    return "everybody" if viewer.is_admin else f"user {viewer.user}"


@dataclass(slots=True)
class _Work(Generic[T]):
    made: Made[T] | None = None
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
        At least this long between two makings; nothing is made while nobody looks or nothing has changed.
    most
        Results that are kept per site; the one that was looked at longest ago goes first.
    always
        Made anew after each rest also where the site's tables have not changed.
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

    def look(self, live: LiveSite, key: str = "") -> Made[T] | None:
        """The last result, at once; None where the first is still being made. What went wrong with the first is raised."""
        with self._changed:
            work = self._begun(live, key)
            if work.made is None and work.problem is not None:
                raise work.problem
            return work.made

    def latest(self, live: LiveSite, key: str = "") -> Made[T]:
        """The last result, however old; only the very first is waited for."""
        made = self.look(live, key)
        return self.wait(live, key) if made is None else made

    def wait(self, live: LiveSite, key: str = "", *, limit_s: float = _WAIT_S) -> Made[T]:
        """A result that is not older than the rest between two makings."""
        with self._changed:
            work = self._begun(live, key)
            if not self._changed.wait_for(lambda: not work.running, limit_s):
                raise StoreBusyError(f"This is still being worked out after {limit_s:.0f} s.", hint="Ask again in a minute.")
            if work.made is None:
                assert work.problem is not None
                raise work.problem
            return work.made

    def _begun(self, live: LiveSite, key: str) -> _Work[T]:
        """The work on a key, started where it is due."""
        works = self._sites.setdefault(live.memory, OrderedDict())
        work = works.setdefault(key, _Work())
        works.move_to_end(key)
        while len(works) > self._most:
            works.popitem(last=False)
        changed = self._always or work.made is None or work.made.version != live.version
        rested = work.ended is None or time.monotonic() - work.ended >= self._rest_s
        if changed and rested and not work.running:
            work.running = True
            threading.Thread(target=self._run, args=(live, key, work), name="answers-work", daemon=True).start()
        return work

    def _run(self, live: LiveSite, key: str, work: _Work[T]) -> None:
        made, problem = work.made, None
        try:
            with _ONE_AT_A_TIME:
                version, at = live.version, live.now()
                made = Made(self._make(live, key, made.value if made else None), version, at)
        except Exception as error:  # told to whoever looks
            problem = error
        finally:
            with self._changed:
                work.made, work.problem, work.running, work.ended = made, problem, False, time.monotonic()
                self._changed.notify_all()
