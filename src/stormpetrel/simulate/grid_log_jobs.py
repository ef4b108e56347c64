"""The jobs of a simulated event log: who waits, runs, is held or cut off, so that ends follow starts and starts submissions."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Final, NamedTuple

OLD_CLUSTER: Final = 1000  # jobs of the past
FIRST_CLUSTER: Final = 500_000


class EventPlace(NamedTuple):
    """When and where an event happens."""

    second: int  # of the hour
    host: int
    group: int
    node: int


class LogJob:
    """A job of the log; `run` counts its starts, so that what was written down of an earlier one is known to be over."""

    __slots__ = ("cluster", "group", "host", "name", "node", "proc", "run", "running")

    def __init__(self, cluster: int, proc: int, host: int, group: int) -> None:
        self.cluster, self.proc, self.host, self.group = cluster, proc, host, group
        self.name = f"({cluster:03d}.{proc:03d}.000)"
        self.node, self.run, self.running = 0, 0, False


class LogJobs:
    """Who waits, runs, is held or cut off."""

    def __init__(self, random: Random, hosts: int, nodes: int) -> None:
        self._random = random
        self.waiting: list[deque[LogJob]] = [deque() for _ in range(hosts)]
        self.held: deque[LogJob] = deque()
        self.cut_off: deque[tuple[LogJob, int]] = deque()
        self._at_node: list[deque[tuple[LogJob, int]]] = [deque() for _ in range(nodes)]
        self._of_host: list[list[tuple[LogJob, int]]] = [[] for _ in range(hosts)]
        self._past = 0
        self._cluster, self._proc, self._size = FIRST_CLUSTER, 0, 0

    def submitted(self, where: EventPlace) -> LogJob:
        """A new job, in a cluster of some."""
        if self._proc >= self._size:
            self._cluster, self._proc, self._size = self._cluster + 1, 0, 1 + int(self._random.expovariate(1 / 30))
        job = LogJob(self._cluster, self._proc, where.host, where.group)
        self._proc += 1
        self.waiting[where.host].append(job)
        return job

    def of_the_past(self, where: EventPlace) -> LogJob:
        """A job that was there before the log begins."""
        self._past += 1
        return LogJob(OLD_CLUSTER + self._past // 100, self._past % 100, where.host, where.group)

    def next_waiting(self, where: EventPlace) -> LogJob:
        """The one that has waited longest, at this host if it has any."""
        own = self.waiting[where.host] or max(self.waiting, key=len)
        return own.popleft() if own else self.of_the_past(where)

    def start(self, job: LogJob, node: int) -> None:
        """A job runs at a node."""
        job.run, job.node, job.running = job.run + 1, node, True
        self._at_node[node].append((job, job.run))
        self._of_host[job.host].append((job, job.run))

    def at_node(self, where: EventPlace, *, newest: bool = False) -> LogJob:
        """A job that runs at this node; at another, if none does."""
        here = self._at_node[where.node]
        while here:
            job, run = here[-1] if newest else here[0]
            if job.running and job.run == run:
                if not newest:
                    here.rotate(-1)  # the next event is another's
                return job
            if newest:
                here.pop()
            else:
                here.popleft()
        return self.of_host(where)

    def of_host(self, where: EventPlace) -> LogJob:
        """Any job of this submit host that runs; of another, if none does."""
        for own in (self._of_host[where.host], *self._of_host):
            while own:
                place = int(self._random.random() * len(own))
                job, run = own[place]
                if job.running and job.run == run:
                    return job
                own[place] = own[-1]
                own.pop()
        job = self.of_the_past(where)
        self.start(job, where.node)
        return job

    def lost(self, job: LogJob) -> None:
        """It runs no more, and waits for another start."""
        job.running = False
        self.waiting[job.host].append(job)
