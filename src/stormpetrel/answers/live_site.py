"""A site kept in memory by a process that serves it: the overview, and the history that predictions need.

Site -> LiveSite.start -> overview, predictor, version; a thread follows what others commit.

What a live site works out off the request, one Background per topic: it belongs to its site and goes with it.

LiveSite.boards -> Boards.capacity, cluster, … -> Background. A topic's module is imported at its first use.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from stormpetrel.answers.background import Background
from stormpetrel.answers.cluster.board import cluster_background
from stormpetrel.answers.cluster.capacity import capacity_background
from stormpetrel.answers.history.day_book import book_background
from stormpetrel.answers.history.profiles import EVERYBODY, profile_background
from stormpetrel.answers.history.settled import settled_background
from stormpetrel.answers.nodes.board import node_background
from stormpetrel.answers.overview.overview import Overview, again
from stormpetrel.answers.site.health import inspection_background
from stormpetrel.answers.viewer import Viewer
from stormpetrel.answers.workload.workload import LiveWorkload
from stormpetrel.config import Settings
from stormpetrel.errors import ModelBusyError, ModelError, ModelOutdatedError, ModelVersionError, StormpetrelError
from stormpetrel.free_memory import return_free_memory
from stormpetrel.jobs.moments import MOMENTS
from stormpetrel.jobs.stream import LOOKBACK
from stormpetrel.lifecycle.changes import read_work
from stormpetrel.lifecycle.job_models import model_name
from stormpetrel.lifecycle.live import current_versions, open_stream
from stormpetrel.records.jobs import KEY
from stormpetrel.store.site import Site
from stormpetrel.store.upkeep.forgetting import forgettings

if TYPE_CHECKING:
    from stormpetrel.answers.background import Snapshot
    from stormpetrel.answers.cluster.board import ClusterBoard
    from stormpetrel.answers.cluster.capacity import CapacityBoard
    from stormpetrel.answers.history.day_book import DayBook
    from stormpetrel.answers.history.profiles import ProfileView
    from stormpetrel.answers.history.settled import Settled
    from stormpetrel.answers.nodes.board import NodeBoard
    from stormpetrel.answers.site.health import Inspection
    from stormpetrel.jobs.advice.outlook import JobOutlook
    from stormpetrel.jobs.predictor import JobPredictor
    from stormpetrel.jobs.profiles import JobProfiles
    from stormpetrel.jobs.stream import JobStream

_QUIET: Final = timedelta(minutes=1)  # the history is moved on this often even where no job has changed
_OUTLOOK_KEPT: Final = timedelta(minutes=1)
_OUTLOOK_KEPT_LARGE: Final = timedelta(minutes=10)
_OUTLOOK_REST_S: Final = 20.0  # between two, by our own clock
_OUTLOOK_OLD_S: Final = 300.0  # older than that, one is waited for
_AT_FIRST: Final = 300_000  # jobs of the overview that a start waits for: some seconds
_PATIENCE_S: Final = 10.0  # for older months of the overview, before the history has its turn
_LARGE_SITE: Final = 50_000  # jobs
_STOP_S: Final = 30.0  # a refresh that takes longer is left behind: its thread dies with the process


class SiteMemory:
    """The key under which what is worked out of a site's rows is kept; a new one has nothing under it.

    `profiles` are those that were found in the site's jobs where it has no model of them.
    """

    profiles: JobProfiles | None = None
    outlook: _KeptOutlook | None = None


@dataclass(frozen=True, slots=True)
class _KeptOutlook:
    """An outlook, the site's clock and the models when it was made, and when that was by a clock that never jumps (seconds)."""

    value: JobOutlook | None
    at: datetime
    models: dict[str, int]
    made: float


class LiveSite:
    """The site as it stands now.

    `version` counts its changes, `refreshed_at` is when it was last examined, `problem` what went wrong then (None: nothing),
    `model_problem` why the models in use cannot be read by this version (None: they can).
    """

    def __init__(self, site: Site, *, refresh_s: float = 2.0) -> None:
        self.site = site
        self.overview = Overview()
        self.memory = SiteMemory()
        self.boards = Boards()
        self.lock = threading.RLock()  # held while the history changes or is read
        self.version = 0
        self.problem: str | None = None
        self.model_problem: ModelError | None = None
        self.refreshed_at: datetime | None = None
        self._refresh_s = refresh_s
        self._refreshing = threading.RLock()
        self._stream: JobStream | None = None
        self._models: dict[str, int] = {}
        self._forgettings = forgettings(site.state)
        self.workload = LiveWorkload()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._making_outlook = threading.Lock()
        self._outlook_wanted = False
        self._sums_begun = False

    @property
    def settings(self) -> Settings:
        """The settings of the site."""
        return self.site.settings

    def now(self) -> datetime:
        """The current time of the site."""
        return self.site.now()

    def start(self) -> None:
        """Read the latest months of the overview; older ones, the history, and whatever follows come in a thread."""
        if self._thread is not None:
            return
        self._stopping.clear()
        self._try(lambda: self._refresh_overview(most=_AT_FIRST))
        self._thread = threading.Thread(target=self._follow, name="live-site", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; what is in memory stays as it is."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=_STOP_S)
            self._thread = None

    def refresh(self) -> bool:
        """Take in what has been committed since the last time; True if there was anything."""
        with self._refreshing:
            forgotten = forgettings(self.site.state)  # read before the tables are
            changed = self._refresh_overview(patience_s=_PATIENCE_S)
            changed = self._forget(forgotten) or changed
            changed = self._refresh_history(jobs_changed=changed) or changed
            self.refreshed_at = self.now()
            return changed

    @property
    def is_prior(self) -> bool:
        """Whether general experience speaks for the site, as of the last refresh."""
        return any(version < 0 for version in self._models.values())

    def predictor(self) -> JobPredictor:
        """The models in use over the history as of the last refresh; hold `lock` while it works."""
        if self._stream is None:
            self._read_history_now()
        if self._stream is None and self.model_problem is not None:
            raise self.model_problem
        if self._stream is None:
            raise ModelError("The site has no job model yet.", hint="Train one: stormpetrel jobs train")
        return self._stream.predictor

    def _read_history_now(self) -> None:
        """Read the history for somebody who needs it, unless another thread is at it.

        A million jobs take half a minute: nobody is to wait that long, least of all one who holds `lock`.
        """
        if self._refreshing.acquire(blocking=False):
            try:
                self._refresh_history(jobs_changed=False)
            finally:
                self._refreshing.release()
        elif current_versions(self.site):
            raise ModelBusyError("The history of the jobs is still being read.", hint="Try again in a minute.")

    def outlook(self) -> JobOutlook | None:
        """What jobs will need and how long they will wait, over the past as it was a minute or two ago; None without models.

        It is the last one that was made: the thread that follows the site renews it while somebody asks. Only the first who asks,
        or asks again after a long time, waits for it. A large site sweeps its past every ten minutes only.
        """
        self._outlook_wanted = True
        kept = self.memory.outlook
        if kept is None or (self._is_stale(kept) and (self._thread is None or time.monotonic() - kept.made > _OUTLOOK_OLD_S)):
            kept = self._renew_outlook(kept)
        return kept.value

    def _is_stale(self, kept: _KeptOutlook) -> bool:
        kept_for = _OUTLOOK_KEPT if self.overview.height < _LARGE_SITE else _OUTLOOK_KEPT_LARGE
        return kept.models != self._models or not timedelta(0) <= self.now() - kept.at <= kept_for

    def _renew_outlook(self, old: _KeptOutlook | None) -> _KeptOutlook:
        """Make the outlook anew; who comes while another does takes that one's."""
        from stormpetrel.answers.jobs.outlook import site_outlook

        with self._making_outlook:
            memory, models, now = self.memory, self._models, self.now()
            if memory.outlook is not None and memory.outlook is not old:
                return memory.outlook
            self._outlook_wanted = False
            memory.outlook = _KeptOutlook(site_outlook(self.site, now), now, models, time.monotonic())
            return memory.outlook

    def _follow_outlook(self) -> None:
        """Renew the outlook where somebody has asked for it since, with a rest in between: the site's clock may run fast."""
        kept = self.memory.outlook
        if kept is None and self.settings.serve.socket:  # sbatch does not wait for the first one
            self._renew_outlook(None)
        if kept is None or not self._outlook_wanted or time.monotonic() - kept.made < _OUTLOOK_REST_S:
            return
        if self._is_stale(kept):
            self._renew_outlook(kept)

    def jobs(self, viewer: Viewer) -> pl.LazyFrame:
        """The job rows that a viewer may see, with every column, from the table."""
        return self.site.jobs.read_jobs(until=self.now()).filter(viewer.sees())

    def past(self, request: pl.DataFrame | None = None) -> pl.LazyFrame:
        """Everybody's jobs, for advice, counts and sums, never to be shown.

        Given a request (one row) only those that advice on it needs, from memory: it says the same as with all of them.
        """
        if request is None:
            return self.site.jobs.read_jobs(until=self.now())
        return self.overview.past(request, now=self.now()).lazy()

    def _follow(self) -> None:
        while not self._stopping.is_set():
            self._try(self._refresh_all)
            self._stopping.wait(self._refresh_s)

    def _refresh_all(self) -> None:
        self.refresh()
        self._follow_outlook()
        self._begin_sums()

    def _begin_sums(self) -> None:
        """Have what a large site's pages sum up worked out after the start: whoever opens one first does not wait for it.

        Older months of the overview come first: both at a time would need the memory of both.
        """
        if not self.overview.is_whole or self.overview.height < _LARGE_SITE:
            return
        if not self._sums_begun:
            self._sums_begun = True
            self.boards.books.peek(self)
            self.boards.profiles.peek(self, EVERYBODY)
            self.boards.capacity.peek(self)
        read_work(self.site, self.now())  # what is new: once an hour

    def _try(self, step: Callable[[], object]) -> None:
        """Do something that may fail; the error is shown on the Health page, and it is tried again at the next refresh."""
        try:
            step()
        except Exception as error:
            self.problem = str(error) if isinstance(error, StormpetrelError) else f"{type(error).__name__}: {error}"
        else:
            self.problem = None

    def _refresh_overview(self, most: int | None = None, patience_s: float | None = None) -> bool:
        with self._refreshing:
            changed = self.overview.refresh(self.site, most=most, patience_s=patience_s)
            self.version += changed
            return changed

    def _forget(self, forgotten: int) -> bool:
        """Drop all that was worked out of rows before a user was forgotten: the history, and what pages have kept."""
        if forgotten == self._forgettings:
            return False
        with self.lock:
            self._stream, self._models = None, {}
            self.memory = SiteMemory()
        self._forgettings = forgotten
        self.version += 1
        return True

    def _refresh_history(self, *, jobs_changed: bool) -> bool:
        """Follow the jobs; True where other models are in use now."""
        with self._refreshing:
            versions = current_versions(self.site)
            if versions != self._models:
                self._take_models(versions)
                return True
            stream, now = self._stream, self.now()
            if stream is not None and (jobs_changed or now - stream.horizon > _QUIET):
                changed = self.overview.unheard(stream.horizon - LOOKBACK).filter(stream.news())
                news = self.overview.whole_rows(self.site, changed.select(KEY).collect())
                with self.lock:
                    stream.advance(news, until=now, judge=False)
                self.overview.heard()
            return False

    def _take_models(self, versions: dict[str, int]) -> None:
        """Open a stream with other models, and only then let go of the one in use."""
        usable = any(model_name(moment) in versions for moment in MOMENTS)
        now = self.now()
        try:
            stream = again(lambda: open_stream(self.site, horizon=now, remember=False)) if usable else None
            self.model_problem = None
        except (ModelOutdatedError, ModelVersionError) as error:  # no retry will help: it is shown, and the rest works
            stream, self.model_problem = None, error
        with self.lock:
            self._stream, self._models = stream, versions
        self.version += 1
        # A history is hundreds of thousands of small objects that stay. Looking through them for garbage took 220 ms each time,
        # and everybody waited: let the collector leave alone what is there now.
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        return_free_memory()


class Boards:
    """The results of one site that are kept between requests, by topic."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, Background[Any]] = {}

    @property
    def capacity(self) -> Background[CapacityBoard]:
        """Load by week."""
        return self._once("capacity", capacity_background)

    @property
    def cluster(self) -> Background[Snapshot[ClusterBoard]]:
        """Counts of events, and what was predicted or scored of them."""
        return self._once("cluster", cluster_background)

    @property
    def nodes(self) -> Background[Snapshot[NodeBoard]]:
        """Scored windows of CPU traces."""
        return self._once("nodes", node_background)

    @property
    def books(self) -> Background[DayBook]:
        """Ended jobs by day and group: trends and waste."""
        return self._once("books", book_background)

    @property
    def settled(self) -> Background[Settled]:
        """Predictions whose jobs have ended: quality and the cancel policy."""
        return self._once("settled", settled_background)

    @property
    def profiles(self) -> Background[ProfileView]:
        """Kinds of jobs, by `scope_of` a viewer."""
        return self._once("profiles", profile_background)

    @property
    def inspections(self) -> Background[Inspection]:
        """The slow part of health."""
        return self._once("inspections", inspection_background)

    def _once(self, topic: str, make: Callable[[], Background[Any]]) -> Background[Any]:
        with self._lock:
            if topic not in self._kept:
                self._kept[topic] = make()
            return self._kept[topic]
