"""The exporter as a whole: Node -> Exporter -> answers to /metrics and /healthz. A scrape looks at the node afresh."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stormpetrel import __version__
from stormpetrel.exporter.exposition import CONTENT_TYPE, Exposition
from stormpetrel.exporter.sampler import Node, Sample, Sampler
from stormpetrel.exporter.server import Routes, serving


class Exporter:
    """Looks at a node and answers."""

    def __init__(self, node: Node) -> None:
        self.sampler = Sampler(node)
        self.first = self.sampler.sample()
        self._exposition = Exposition(__version__, self.sampler.hierarchies.kind, self.sampler.files)

    def text(self, sample: Sample) -> bytes:
        """A sample as Prometheus reads it."""
        return self._exposition.text(sample)

    @contextmanager
    def serving(self, address: str) -> Iterator[str]:
        """Answer while the block runs; yields the address of /metrics."""
        routes: Routes = {"/metrics": self._metrics, "/healthz": self._health}
        with serving(address, routes) as (host, port):
            yield f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"

    def summary(self) -> str:
        """What there is and what is missing, in one line."""
        jobs = self.first.jobs
        there = f"{len(self.first.cpus.cpus)} CPUs, cgroups {self.sampler.hierarchies.kind}, {len(jobs.jobs)} jobs"
        if not jobs.missing:
            return f"{there}. Nothing is missing."
        return f"{there}. Missing: {'; '.join(f'{what} ({why})' for what, why in jobs.missing)}. More: --check"

    def _metrics(self, _query: dict[str, str]) -> tuple[str, bytes]:
        return CONTENT_TYPE, self.text(self.sampler.sample())

    @staticmethod
    def _health(_query: dict[str, str]) -> tuple[str, bytes]:
        return "text/plain; charset=utf-8", b"ok\n"
