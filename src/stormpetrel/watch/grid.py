"""The grid's part of the watch: when a bucket is over, read its events, score it, and say what is wrong.

Site -> GridWatch.step -> GridStep, once per bucket. A source that is away is no reason to stop judging jobs: it is told, the gap
is recorded, and the next turn asks again.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import polars as pl

from stormpetrel.errors import StormpetrelError
from stormpetrel.events.finding import findings_of_json
from stormpetrel.ingest.events import has_event_sources, ingest_live_events
from stormpetrel.lifecycle.event_models import FAMILY, EventModelInUse, load_event_model
from stormpetrel.lifecycle.event_scoring import score_new_buckets
from stormpetrel.records.events import EVENT_SCORE_SCHEMA
from stormpetrel.store.site import Site
from stormpetrel.store.source_health import EVENTS, Seen, SourceBook

_AGAIN_AFTER: Final = timedelta(minutes=5)  # after a failure


@dataclass(frozen=True, slots=True)
class GridStep:
    """What one poll of the grid came to: the buckets scored now, and what went wrong."""

    rows: pl.DataFrame  # EVENT_SCORE_SCHEMA
    problem: str | None = None

    @property
    def newest(self) -> dict[str, Any] | None:
        """The newest bucket that was scored."""
        return self.rows.sort("bucket_start").row(-1, named=True) if self.rows.height else None

    def words(self) -> list[str]:
        """What the newest bucket says, if it is an alarm."""
        newest = self.newest
        return [one.words for one in findings_of_json(newest["why"])] if newest and newest["alarm"] else []


class GridWatch:
    """Watches the grid of one site; a site without event sources costs nothing."""

    def __init__(self, site: Site, book: SourceBook | None = None, *, models: Site | None = None) -> None:
        self._site = site
        self._models = models or site  # whose models judge: a copy of a site has none of its own
        self._book = book or SourceBook()
        self.is_active = has_event_sources(site)
        self._done: datetime | None = None  # the bucket up to which everything was looked at
        self._not_before: datetime | None = None
        self._used: EventModelInUse | None = None

    @property
    def model(self) -> EventModelInUse | None:
        """The model that scored last; None before the first."""
        return self._used

    def step(self) -> GridStep | None:
        """Poll the grid if a bucket has ended and settled since the last poll; None where there is nothing to do."""
        now = self._site.now()
        due = self.settled_end(now)
        if not self.is_active or due == self._done or (self._not_before and now < self._not_before):
            return None
        try:
            problems = self._read_sources()
            rows = self._score()
        except StormpetrelError as error:
            self._not_before = now + _AGAIN_AFTER * self._site.pace()
            return GridStep(pl.DataFrame(schema=EVENT_SCORE_SCHEMA), str(error))
        if problems:
            self._not_before = now + _AGAIN_AFTER * self._site.pace()
        else:
            self._done, self._not_before = due, None
        return GridStep(rows, problems[0] if problems else None)

    def _read_sources(self) -> list[str]:
        """Take in what the sources tell since the last poll; what is wrong with them."""
        return [why for report in ingest_live_events(self._site, poll_source=self._poll_source) for why in report.problems]

    def _poll_source(self, name: str) -> AbstractContextManager[Seen]:
        """A poll of one source, once per bucket; in real seconds, also where the site's clock runs faster."""
        every_s = self._site.settings.events.bucket_minutes * 60 / self._site.pace()
        return self._book.poll(name, watcher=EVENTS, every_s=every_s)

    def settled_end(self, now: datetime) -> datetime:
        """The end of the newest bucket that is over and settled."""
        settings = self._site.settings.events
        settled = now - timedelta(minutes=settings.settle_minutes)
        bucket_s = settings.bucket_minutes * 60
        return settled - timedelta(seconds=settled.timestamp() % bucket_s)

    def _score(self) -> pl.DataFrame:
        training = self._models.models.current_training(FAMILY)
        if training is None:
            self._used = None
            return pl.DataFrame(schema=EVENT_SCORE_SCHEMA)
        versions = {(model.name, model.version) for model in training.models}
        if self._used is None or (self._used.name, self._used.version) not in versions:
            self._used = load_event_model(self._models)
        return score_new_buckets(self._site, self._used).rows
