"""Training beside the loop: in a process of its own, on a schedule, so that no prediction waits for it.

What it does is `stormpetrel nightly`; a training that dies changes nothing, and the next one begins anew.
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime, timedelta
from typing import Any, Final

from stormpetrel.lifecycle.event_models import FAMILY as EVENTS
from stormpetrel.lifecycle.event_retraining import reason_to_train
from stormpetrel.lifecycle.readable import outdated_trainings
from stormpetrel.lifecycle.retraining import ended_since, last_attempt
from stormpetrel.store.site import Site

_AFTER_FAILURE: Final = timedelta(hours=1)
_AFTER_START: Final = timedelta(minutes=10)


class TrainingSchedule:
    """Starts a training when it is due, at most one at a time."""

    def __init__(self, site: Site, *, for_jobs: bool = True) -> None:
        self._site = site
        self._for_jobs = for_jobs
        self._process: subprocess.Popen[str] | None = None
        self._outdated = bool(outdated_trainings(site))  # saved by an earlier version, in a format that is not read any more
        # A watcher that has just been started has jobs to catch up with; where there is no model, it has nothing else to do.
        at_once = self._outdated or not last_attempt(site)
        self._not_before = None if at_once else site.now() + _AFTER_START * site.pace()

    def due(self, now: datetime) -> bool:
        """Whether enough time has passed, and enough jobs have ended, since the last training."""
        settings = self._site.settings.watch
        if not settings.retrain_hours or self._process or (self._not_before and now < self._not_before):
            return False
        if self._outdated:
            return True
        last = last_attempt(self._site)
        if last is not None and now - last < timedelta(hours=settings.retrain_hours):
            return False
        if self._has_reason(last, now):
            return True
        self._not_before = now + timedelta(minutes=5) * self._site.pace()  # counting jobs is cheap, but not free
        return False

    def _has_reason(self, last: datetime | None, now: datetime) -> bool:
        """Enough jobs have ended; where no jobs are read, the model of events is missing or old."""
        if self._for_jobs:
            return ended_since(self._site, last, until=now) >= self._site.settings.watch.retrain_min_jobs
        if not self._site.event_counts.sources():
            return False
        return reason_to_train(self._site.models.current_training(EVENTS), self._site.outages.list(), now) is not None

    def start(self) -> None:
        """Begin a training; nice to everything else on the machine."""
        words = [sys.executable, "-P", "-m", "stormpetrel", "--site", str(self._site.folder), "nightly", "--json"]
        self._process = subprocess.Popen(
            ["nice", "-n", "10", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def finished(self, now: datetime) -> dict[str, Any] | None:
        """What a training that has ended came to: its report, or `problem`; None while there is nothing to tell."""
        if self._process is None or self._process.poll() is None:
            return None
        out, errors = self._process.communicate()
        code, self._process = self._process.returncode, None
        self._outdated = bool(outdated_trainings(self._site))
        if code:
            self._not_before = now + _AFTER_FAILURE * self._site.pace()
            return {"problem": (errors.strip().splitlines() or [f"exit code {code}"])[-1][:300]}
        self._not_before = now + timedelta(hours=self._site.settings.watch.retrain_hours)
        try:
            report: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
        except (ValueError, IndexError):
            return {"problem": "the training said nothing that can be read"}
        return report

    def stop(self) -> None:
        """End a training that runs: it changes nothing unless it is finished."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.communicate()
            self._process = None
