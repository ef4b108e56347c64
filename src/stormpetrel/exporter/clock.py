"""Sampling on a clock of its own: Sampler, Ring -> SamplingClock, a thread that looks at the node once or ten times a second."""

from __future__ import annotations

import threading
import time
from typing import Final

from stormpetrel.exporter.proc_stat import ExporterError
from stormpetrel.exporter.sampler import Sample, Sampler
from stormpetrel.exporter.windows import Ring

_JOBS_EVERY_S: Final = 1.0  # jobs come and go more slowly than counters change


class SamplingClock:
    """Takes a sample at every tick; a tick that was missed is skipped, not made up for."""

    def __init__(self, sampler: Sampler, ring: Ring) -> None:
        self._sampler, self._ring = sampler, ring
        self._step_s = 1.0 / ring.hertz
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samples", daemon=True)
        self.latest: Sample = sampler.sample()
        self._beat = time.monotonic()  # the node's own time may be set back and forth
        ring.add(self.latest.cpus, self.latest.jobs.bindings)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the sample under way."""
        self._stop.set()
        self._thread.join(timeout=5.0)

    def problem(self) -> str:
        """Empty while samples come; otherwise what is wrong."""
        silent = time.monotonic() - self._beat
        return "" if silent < max(5.0, 10 * self._step_s) else f"There has been no sample for {silent:.0f} s."

    def _run(self) -> None:
        due = time.monotonic()
        jobs_due = due + _JOBS_EVERY_S
        while True:
            now = time.monotonic()
            due += self._step_s * max(1, int((now - due) / self._step_s + 1))
            if self._stop.wait(due - now):
                return
            whole = due >= jobs_due - self._step_s / 2
            if whole:
                jobs_due = due + _JOBS_EVERY_S
            try:
                self.latest = self._sampler.sample() if whole else self._sampler.sample_cpus(self.latest)
            except ExporterError:
                continue  # the age of the latest sample tells
            self._beat = time.monotonic()
            self._ring.add(self.latest.cpus, self.latest.jobs.bindings)
