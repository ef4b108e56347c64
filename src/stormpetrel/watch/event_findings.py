"""The watcher of events: when a bucket is over, read it, score it, and say what is wrong with it.

Site -> EventFindings.step(now) -> findings. Rules over places speak from the first week of counts on, without a model; the model
adds what is unusual as a whole. Its training has a clock of its own (`watch/training.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

import numpy as np
import polars as pl

from stormpetrel.alarms.event_rules import FAMILY, Bucket, finding_of_score, findings_of_rules
from stormpetrel.alarms.event_waves import REACH, WAVES, Wave, event_waves, finding_of_wave
from stormpetrel.events.finding import findings_of_json
from stormpetrel.lifecycle.event_scoring import hard_findings
from stormpetrel.records.findings import Finding
from stormpetrel.records.job_ref import ref_text
from stormpetrel.records.jobs import KEY
from stormpetrel.store.event_series import series_of
from stormpetrel.store.site import Site
from stormpetrel.watch.cluster_name import ClusterName
from stormpetrel.watch.grid import GridStep, GridWatch

_FIRST_LOOK: Final = timedelta(days=1)  # how far back a first watch looks for what may still be going on
_MOST_JOBS: Final = 1000


class EventFindings:
    """Watches the events of one site, from where `state` was left; `note` hears of each look at the sources."""

    name = FAMILY

    def __init__(self, site: Site, grid: GridWatch, *, state: str = "", note: Callable[[GridStep], None] = lambda step: None):
        self._site, self._grid, self._note = site, grid, note
        self._cluster = ClusterName(site)
        self._told_to = datetime.fromisoformat(json.loads(state)["told_to"]) if state else None

    @property
    def every_s(self) -> float:
        """Seconds from one step to the next; most have nothing to do."""
        return self._site.settings.watch.poll_s

    @property
    def state(self) -> str:
        """Up to which bucket everything was told."""
        return json.dumps({"told_to": self._told_to.isoformat()}) if self._told_to else ""

    def step(self, now: datetime) -> list[Finding]:
        """Return what the buckets tell that are over and were not told."""
        looked = self._grid.step()
        if looked is None:
            return []
        self._note(looked)
        since = self._told_to or now - _FIRST_LOOK
        length = timedelta(minutes=self._site.settings.events.bucket_minutes)
        rules = hard_findings(self._site, since)
        waves = self._waves(since, length)
        scored = self._alarms(since)
        settled, findings = self._grid.settled_end(now), []
        for start in sorted(start for start in {*rules, *waves, *scored} if start + length <= settled):
            bucket = self._bucket(start, length)
            findings += findings_of_rules(bucket, rules.get(start, []), now)
            findings += [finding_of_wave(bucket, wave, now) for wave in waves.get(start, [])]
            if start in scored and (odd := self._odd(bucket, scored[start], now)):
                findings.append(odd)
        newest = self._newest_seen(since)
        if newest is not None:
            self._told_to = max(since, min(newest + length, settled))
        return findings

    def _waves(self, since: datetime, length: timedelta) -> dict[datetime, list[Wave]]:
        """The waves of holds and shadow exceptions, by bucket."""
        series = series_of(self._site, since=since - REACH)
        seen = [series.moment(int(at)) for at in np.flatnonzero(~series.is_gap)]
        rows = self._site.event_counts.read(since=since - REACH, places=True, bucket_s=round(length.total_seconds()))
        waves: dict[datetime, list[Wave]] = {}
        for wave in event_waves(rows.filter(pl.col("kind").is_in([*WAVES])).collect(), seen, length, since):
            waves.setdefault(wave.start, []).append(wave)
        return waves

    def _odd(self, bucket: Bucket, row: dict[str, object], now: datetime) -> Finding | None:
        score, threshold = row["score"], row["threshold"]
        return finding_of_score(
            bucket,
            findings_of_json(str(row["why"])),
            score=float(score) if isinstance(score, float) else 0.0,
            threshold=float(threshold) if isinstance(threshold, float) else 0.0,
            model=f"{row['model']}/{row['model_version']}",
            known_at=now,
        )

    def _alarms(self, since: datetime) -> dict[datetime, dict[str, object]]:
        """The alarms of the model in use, by bucket."""
        used = self._grid.model
        if used is None:
            return {}
        rows = self._site.event_scores.read(since=since, model=used.name, version=used.version).filter("alarm").collect()
        return {row["bucket_start"]: row for row in rows.iter_rows(named=True)}

    def _newest_seen(self, since: datetime) -> datetime | None:
        newest: datetime | None = self._site.event_counts.read(since=since).select(pl.col("bucket_start").max()).collect().item()
        return newest

    def _bucket(self, start: datetime, length: timedelta) -> Bucket:
        """The bucket with the jobs that failed in it, as far as there are records of them: the same jobs are the same cause."""
        settings = self._site.settings
        ended = pl.col("end_time").is_between(start, start + length, closed="right")
        failed = pl.col("state").is_in([str(state) for state in settings.jobs.failure_states])
        rows = self._site.jobs.table.scan().filter(ended, failed).select(*KEY, "user").head(_MOST_JOBS).collect()
        users = tuple(sorted(set(rows["user"].drop_nulls().to_list()) - {""}))
        return Bucket(self._cluster.name(), start, length, tuple(rows.select(ref_text())["ref"].to_list()), users)
