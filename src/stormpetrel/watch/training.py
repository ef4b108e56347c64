"""Training beside the loop: in a process of its own, on a schedule, so that no prediction waits for it.

What it does is `stormpetrel nightly`; a training that dies changes nothing, and the next one begins anew. A first model,
of a site or of a moment, is trained as soon as there are enough jobs; until then the schedule says what it waits for.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import datetime, timedelta
from typing import Any, Final

from stormpetrel.jobs.prior.shipped import PRIOR_VERSION
from stormpetrel.lifecycle.event_models import FAMILY as EVENTS
from stormpetrel.lifecycle.families import outdated_trainings
from stormpetrel.lifecycle.frozen_spans import learning_labels
from stormpetrel.lifecycle.job_models import FAMILY as JOBS
from stormpetrel.lifecycle.job_models import lacking_moments, training_settings, uses_prior
from stormpetrel.lifecycle.nightly import last_night, reason_to_train
from stormpetrel.lifecycle.retraining import ended_since, last_attempt
from stormpetrel.lifecycle.training_needs import TrainingNeeds, training_needs
from stormpetrel.records.predictions import version_text
from stormpetrel.store.site import Site
from stormpetrel.watch.trace_findings import watches_traces

_AFTER_FAILURE: Final = timedelta(hours=1)
_AFTER_START: Final = timedelta(minutes=10)
_EVENTS_EVERY: Final = timedelta(hours=1)  # a model of events that could not be made is tried again after this
_COUNT_EVERY_S: Final = 10.0  # while a first model is waited for; counting a few hundred jobs takes milliseconds
_AT_MOST: Final = 100.0  # counting may take one part in so many of the time
_NO_MODEL: Final = "There is no job model yet"


class TrainingSchedule:
    """Starts a training when it is due, at most one at a time."""

    def __init__(self, site: Site, *, for_jobs: bool = True) -> None:
        self._site = site
        self._for_jobs = for_jobs
        self._process: subprocess.Popen[str] | None = None
        self._needs: TrainingNeeds | None = None  # of the first models that are missing, as they were last counted
        self._count_at_s = 0.0
        self._outdated = bool(outdated_trainings(site))  # saved by an earlier version, in a format that is not read any more
        # A watcher that has just been started has jobs to catch up with; where there is no model, it has nothing else to do.
        at_once = self._outdated or not last_attempt(site)
        self._not_before = None if at_once else site.now() + _AFTER_START * site.pace()
        self._events_not_before: datetime | None = None
        self._first_not_before = self._not_before  # a first model, of the site or of a moment, does not wait for a day to pass

    def due(self, now: datetime) -> bool:
        """Whether enough time has passed, and enough jobs have ended, since the last training."""
        settings = self._site.settings.watch
        if not settings.retrain_hours or self._process:
            return False
        if not (self._first_not_before and now < self._first_not_before) and self._can_make_first(now):
            return True
        if self._not_before and now < self._not_before:
            return False
        if self._outdated or self._events_are_due(now) or self._traces_are_due(now):
            return True
        last = last_attempt(self._site)
        if last is not None and now - last < timedelta(hours=settings.retrain_hours):
            return False
        if self._has_reason(last, now):
            return True
        self._not_before = now + timedelta(minutes=5) * self._site.pace()  # counting jobs is cheap, but not free
        return False

    def _has_reason(self, last: datetime | None, now: datetime) -> bool:
        """Enough jobs have ended since the last training."""
        if not self._for_jobs or last is None:
            return False  # a first model is made as soon as it can be
        return ended_since(self._site, last, until=now) >= self._site.settings.watch.retrain_min_jobs

    def _events_are_due(self, now: datetime) -> bool:
        """Whether the model of events is missing or old, by a clock of its own; looked at now and then."""
        if self._events_not_before and now < self._events_not_before:
            return False
        self._events_not_before = now + _EVENTS_EVERY * self._site.pace()
        if not self._site.event_counts.sources():
            return False
        return reason_to_train(self._site.models.current_training(EVENTS), learning_labels(self._site), now) is not None

    def _traces_are_due(self, now: datetime) -> bool:
        """Whether a site that watches traces has had no night for as long as the settings say."""
        if not watches_traces(self._site):
            return False
        last = last_night(self._site)
        return last is None or now - last >= timedelta(hours=self._site.settings.watch.retrain_hours)

    def _can_make_first(self, now: datetime) -> bool:
        """Whether there are enough jobs for a first model, of the site or of a moment that has none."""
        needs = self._count(now)
        if needs is None:
            return False
        current = self._site.models.current_training(JOBS)
        if current is None:
            return needs.is_enough(self._site.settings.watch.retrain_min_jobs)
        return bool(needs.able(lacking_moments(current)))

    def _count(self, now: datetime) -> TrainingNeeds | None:
        """What there is for the first models that are missing; counted anew every few seconds. None where none is missing."""
        if not self._for_jobs or not lacking_moments(self._site.models.current_training(JOBS)):
            return None
        started = time.monotonic()
        if self._needs is None or started >= self._count_at_s:
            self._needs = training_needs(self._site, training_settings(self._site.settings), until=now)
            self._count_at_s = started + max(_COUNT_EVERY_S, _AT_MOST * (time.monotonic() - started))
        return self._needs

    def missing_model(self, now: datetime) -> str | None:
        """What a site without any job model waits for, in a sentence; None where it has one."""
        needs = self._count(now)
        if needs is None or self._site.models.current_training(JOBS) is not None:
            return None
        wanted = self._site.settings.watch
        if self._process:
            text = f"{_NO_MODEL}: the first one is being trained."
        elif wanted.retrain_hours:
            text = f"{_NO_MODEL}: {needs.progress(wanted.retrain_min_jobs)}. It is trained by itself then."
        else:
            text = f"{_NO_MODEL}: {needs.progress()}. Train it then: stormpetrel jobs train"
        return f"{text} Until then general experience speaks ({version_text(PRIOR_VERSION)})." if uses_prior(self._site) else text

    def missing_moments(self, now: datetime) -> str | None:
        """What the moments without a model wait for, in a sentence; None where there is none, or no model at all."""
        current = self._site.models.current_training(JOBS)
        needs = self._count(now)
        if needs is None or current is None:
            return None
        missing = "; ".join(counts.words() for counts in needs.missing(lacking_moments(current)))
        return f"There is {missing}." if missing else None

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
        self._outdated, self._needs = bool(outdated_trainings(self._site)), None
        self._first_not_before = now + _AFTER_FAILURE * self._site.pace()  # where it was refused: not at once again
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
