"""A cluster that is not there: the same seed, the same cluster.

ClusterSpec -> simulate -> job frames, some tens of thousands of ended jobs at a time, in the order in which they end.

population (who) -> arrivals (when, what) -> scheduler (where) with outcomes (what becomes of it) -> frames (what accounting
records). Nothing is kept but the queue, what runs and one chunk. CPU traces could be made from the EndedJobs that `ended_jobs`
gives (application, cores, nodes, start, end, outcome), along with `frames`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

import polars as pl

from stormpetrel.simulate.arrivals import Submission, submissions
from stormpetrel.simulate.frames import FrameMaker
from stormpetrel.simulate.outcomes import Reactions, random_outages
from stormpetrel.simulate.population import Population, make_population
from stormpetrel.simulate.scheduler import EndedJob, Scheduler
from stormpetrel.simulate.spec import ClusterSpec, Fault

__all__ = ["ClusterSpec", "Fault", "ended_jobs", "simulate"]

CHUNK: Final = 50_000


def simulate(spec: ClusterSpec, *, chunk: int = CHUNK, more: Iterable[Submission] = ()) -> Iterator[pl.DataFrame]:
    """The jobs of a simulated site as job frames of `chunk` rows, in the order in which they end.

    `more` is submitted in addition to what the users would submit anyway, in time order.
    """
    population = make_population(spec, spec.seed)
    maker = FrameMaker(spec, population)
    jobs = ended_jobs(spec, population, more=more)
    while part := list(islice(jobs, chunk)):
        yield maker.frame(part)


def ended_jobs(
    spec: ClusterSpec,
    population: Population | None = None,
    *,
    more: Iterable[Submission] = (),
    change: Callable[[Submission], Submission] | None = None,
) -> Iterator[EndedJob]:
    """The same jobs one at a time, with what nobody on a real site knows: what each of them needed.

    `change` alters what is first submitted, such as its request for memory: the same days with advice taken.
    """
    people = population or make_population(spec, spec.seed)
    scheduler = Scheduler(spec, Reactions(people, spec), random_outages(spec))
    submitted = heapq.merge(submissions(people, spec), more)
    return scheduler.run(submitted if change is None else map(change, submitted))
