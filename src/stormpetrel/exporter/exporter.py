"""The exporter as a whole: Node -> Exporter -> answers to /metrics, /healthz and /windows.

A scrape looks at the node afresh. With a rate, a clock does, and a scrape gets the latest sample; /windows has those in between.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from stormpetrel import __version__
from stormpetrel.exporter.clock import SamplingClock
from stormpetrel.exporter.exposition import CONTENT_TYPE, Exposition
from stormpetrel.exporter.proc_stat import ExporterError
from stormpetrel.exporter.sampler import Node, Sample, Sampler
from stormpetrel.exporter.server import AnswerError, Routes, serving
from stormpetrel.exporter.windows import Ring

RATES: Final = (1, 10)
KEEP_S: Final = 300.0
WINDOW_S: Final = 100.0
_MAX_KEEP_S: Final = 86_400.0


class Exporter:
    """Looks at a node and answers."""

    def __init__(self, node: Node, *, hertz: int = 0, keep_s: float = KEEP_S) -> None:
        if not 1 <= keep_s <= _MAX_KEEP_S:
            raise ExporterError(f"--keep {keep_s:g} is not possible: between 1 and {_MAX_KEEP_S:g} seconds.")
        self.sampler = Sampler(node)
        self.first = self.sampler.sample()
        self._exposition = Exposition(__version__, self.sampler.hierarchies.kind, self.sampler.files)
        self._ring = Ring(hertz, keep_s) if hertz else None
        self._clock: SamplingClock | None = None

    def text(self, sample: Sample) -> bytes:
        """A sample as Prometheus reads it."""
        return self._exposition.text(sample)

    @contextmanager
    def serving(self, address: str) -> Iterator[str]:
        """Answer while the block runs; yields the address of /metrics."""
        routes: Routes = {"/metrics": self._metrics, "/healthz": self._health, "/windows": self._windows}
        with serving(address, routes) as (host, port):
            if self._ring:
                self._clock = SamplingClock(self.sampler, self._ring)
                self._clock.start()
            try:
                yield f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"
            finally:
                if self._clock:
                    self._clock.stop()

    def in_words(self) -> str:
        """What there is and what is missing, in one line."""
        jobs = self.first.jobs
        there = f"{len(self.first.cpus.cpus)} CPUs, cgroups {self.sampler.hierarchies.kind}, {len(jobs.jobs)} jobs"
        if not jobs.missing:
            return f"{there}. Nothing is missing."
        return f"{there}. Missing: {'; '.join(f'{what} ({why})' for what, why in jobs.missing)}. More: --check"

    def _metrics(self, _query: dict[str, str]) -> tuple[str, bytes]:
        return CONTENT_TYPE, self.text(self._latest() if self._clock else self.sampler.sample())

    def _health(self, _query: dict[str, str]) -> tuple[str, bytes]:
        self._latest()
        return "text/plain; charset=utf-8", b"ok\n"

    def _latest(self) -> Sample:
        """The latest sample; an old one is not shown as if it were new."""
        if self._clock is None:
            return self.first
        problem = self._clock.problem()
        if problem:
            raise AnswerError(503, problem)
        return self._clock.latest

    def _windows(self, query: dict[str, str]) -> tuple[str, bytes]:
        if self._ring is None:
            raise AnswerError(404, "No samples are kept: start the exporter with --sample 1 or --sample 10.")
        unknown = sorted(set(query) - {"seconds", "until"})
        if unknown:
            raise AnswerError(400, "There is ?seconds=100 and &until=UNIX_TIME.")
        seconds = _number(query, "seconds", WINDOW_S)
        if seconds <= 0:
            raise AnswerError(400, "'seconds' is a number above 0.")
        until = _number(query, "until", -1.0) if "until" in query else None
        window = self._ring.window(seconds, until, node=socket.gethostname())
        if window is None:
            raise AnswerError(404, f"There are no samples of that time; those of the last {self._ring.keep_s:g} s are kept.")
        return "application/json", window.encode()


def _number(query: dict[str, str], name: str, default: float) -> float:
    try:
        value = float(query.get(name, default))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise AnswerError(400, f"'{name}' is a number.")
    return value
