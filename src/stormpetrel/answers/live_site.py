"""A site kept in memory by a process that serves it: the overview, and the history that predictions need.

Site -> LiveSite.start -> overview, predictor, version; a thread follows what others commit.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import polars as pl

from stormpetrel.answers.boards import Boards
from stormpetrel.answers.overview.overview import Overview, again
from stormpetrel.answers.viewer import Viewer
from stormpetrel.answers.workload.workload import LiveWorkload
from stormpetrel.config import Settings
from stormpetrel.errors import ModelBusyError, ModelError, ModelOutdatedError, ModelVersionError, StormpetrelError
from stormpetrel.jobs.moments import MOMENTS
from stormpetrel.lifecycle.job_models import model_name
from stormpetrel.lifecycle.live import current_versions, open_stream
from stormpetrel.store.site import Site
from stormpetrel.store.upkeep.forgetting import forgettings

if TYPE_CHECKING:
    from stormpetrel.jobs.advice.outlook import JobOutlook
    from stormpetrel.jobs.predictor import JobPredictor
    from stormpetrel.jobs.profiles import JobProfiles
    from stormpetrel.jobs.stream import JobStream

_QUIET: Final = timedelta(minutes=1)  # the history is moved on this often even where no job has changed
_OUTLOOK_KEPT: Final = timedelta(minutes=1)
_OUTLOOK_KEPT_LARGE: Final = timedelta(minutes=10)
_AT_FIRST: Final = 300_000  # jobs of the overview that a start waits for: some seconds
_LARGE_SITE: Final = 50_000  # jobs
_STOP_S: Final = 30.0  # a refresh that takes longer is left behind: its thread dies with the process


class SiteMemory:
    """The key under which what is worked out of a site's rows is kept; a new one has nothing under it.

    `profiles` are those that were found in the site's jobs where it has no model of them.
    """

    profiles: JobProfiles | None = None
    outlook: tuple[datetime, dict[str, int], JobOutlook | None] | None = None  # as of when, of which models


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
            changed = self._refresh_overview()
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
        """What jobs will need and how long they will wait, over the past as it was a minute ago at most; None without models.

        A large site sweeps its past every ten minutes only: it takes seconds.
        """
        from stormpetrel.answers.jobs.outlook import site_outlook

        now = self.now()
        with self.lock:
            kept, models = self.memory.outlook, self._models
            kept_for = _OUTLOOK_KEPT if self.overview.frame.height < _LARGE_SITE else _OUTLOOK_KEPT_LARGE
            if kept is None or kept[1] != models or not timedelta(0) <= now - kept[0] <= kept_for:
                kept = now, models, site_outlook(self.site, now)
                self.memory.outlook = kept
        return kept[2]

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
            self._try(self.refresh)
            self._stopping.wait(self._refresh_s)

    def _try(self, step: Callable[[], object]) -> None:
        """Do something that may fail; the error is shown on the Health page, and it is tried again at the next refresh."""
        try:
            step()
        except Exception as error:
            self.problem = str(error) if isinstance(error, StormpetrelError) else f"{type(error).__name__}: {error}"
        else:
            self.problem = None

    def _refresh_overview(self, most: int | None = None) -> bool:
        with self._refreshing:
            changed = self.overview.refresh(self.site, most=most)
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
                news = self.overview.whole_rows(self.site, self.overview.frame.filter(stream.news()))
                with self.lock:
                    stream.advance(news, until=now, judge=False)
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
