"""The scheduler: first come, first served, with EASY backfill, event after event.

Submissions in time order -> Scheduler.run -> EndedJobs in the order in which they end. Kept in memory: the queue and what runs.

The first job of the queue has a reservation: nodes that are its own from a moment at the latest. A later job may start before
it if it ends by then, or on other nodes. Between two events only what changed is looked at: after an end the nodes that came
free, after a submission the new job, after a start of the first job everything (up to `DEPTH` jobs).
Nodes are kept in buckets by their number of free cores, so that the best fit (the fullest node with room) is found without a
pass over all of them.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from stormpetrel.simulate.arrivals import NEVER, Submission
from stormpetrel.simulate.outcomes import KILL_WAIT_S, NEVER_RAN, NODE_FAILED, Outage, Outcome, Reactions, SickNodes, outcome
from stormpetrel.simulate.spec import ClusterSpec

_WALK: Final = 2000  # running jobs looked at for a reservation before it falls back on the first node that empties
NOTHING: Final[frozenset[int]] = frozenset()


class Nodes:
    """Cores and memory of every node, who holds them, and until when at the latest."""

    def __init__(self, count: int, cores: int, mem_mib: int) -> None:
        self.count, self.cores, self.mem_mib = count, cores, mem_mib
        self.free_cores = [cores] * count
        self.free_mib = [mem_mib] * count
        self._buckets: list[set[int]] = [set() for _ in range(cores)] + [set(range(count))]
        self.held: list[dict[int, int]] = [{} for _ in range(count)]  # node -> {job: latest end}
        self.busy_until = [0] * count  # when everything that runs on the node will have ended, at the latest
        self._ends: list[tuple[int, int]] = []  # (latest end, job), sorted
        self._taken: dict[int, tuple[Sequence[int], int, int]] = {}  # job -> (nodes, cores, memory)

    @property
    def idle(self) -> set[int]:
        """The nodes with nothing on them."""
        return self._buckets[self.cores]

    def find(self, cores: int, nodes: int, mem_mib: int, avoid: Collection[int] = NOTHING) -> Sequence[int] | None:
        """Nodes that the job fits on now, none of them in `avoid`; None if there are not enough."""
        if nodes:
            if len(self.idle) < nodes:
                return None
            free = self.idle.difference(avoid) if avoid else self.idle
            return list(islice(free, nodes)) if len(free) >= nodes else None
        free_mib = self.free_mib
        for room in range(cores, self.cores + 1):
            for node in self._buckets[room]:
                if free_mib[node] >= mem_mib and node not in avoid:
                    return (node,)
        return None

    def fits_on(self, node: int, cores: int, mem_mib: int) -> bool:
        """Whether a job of one node fits on this one now."""
        return self.free_cores[node] >= cores and self.free_mib[node] >= mem_mib

    def take(self, job: int, nodes: Sequence[int], cores: int, mem_mib: int, latest_end: int) -> None:
        """Give the nodes to a job."""
        self._taken[job] = (nodes, cores, mem_mib)
        insort(self._ends, (latest_end, job))
        for node in nodes:
            self._move(node, self.free_cores[node] - cores)
            self.free_mib[node] -= mem_mib
            self.held[node][job] = latest_end
            if latest_end > self.busy_until[node]:
                self.busy_until[node] = latest_end

    def give_back(self, job: int) -> Sequence[int]:
        """Take the nodes back from a job; which ones they were."""
        nodes, cores, mem_mib = self._taken.pop(job)
        latest_end = self.held[nodes[0]][job]
        del self._ends[bisect_left(self._ends, (latest_end, job))]
        for node in nodes:
            self._move(node, self.free_cores[node] + cores)
            self.free_mib[node] += mem_mib
            held = self.held[node]
            del held[job]
            if latest_end == self.busy_until[node]:
                self.busy_until[node] = max(held.values(), default=0)
        return nodes

    def close(self, node: int, until_s: int) -> None:
        """Take an empty node out of service."""
        self._buckets[self.free_cores[node]].discard(node)
        self.free_cores[node] = -1
        self.busy_until[node] = until_s

    def open(self, node: int) -> None:
        """Put a node back into service."""
        self.free_cores[node] = self.cores
        self._buckets[self.cores].add(node)
        self.busy_until[node] = 0

    def reservation(self, cores: int, nodes: int, mem_mib: int) -> tuple[frozenset[int], int]:
        """The nodes a waiting job can count on, and from when at the latest."""
        if nodes:
            soonest = heapq.nsmallest(nodes, range(self.count), key=self.busy_until.__getitem__)
            return frozenset(soonest), max(self.busy_until[node] for node in soonest)
        free_cores, free_mib = dict[int, int](), dict[int, int]()
        for end, job in islice(self._ends, _WALK):
            held_nodes, held_cores, held_mib = self._taken[job]
            for node in held_nodes:
                free_cores[node] = free_cores.get(node, self.free_cores[node]) + held_cores
                free_mib[node] = free_mib.get(node, self.free_mib[node]) + held_mib
                if free_cores[node] >= cores and free_mib[node] >= mem_mib:
                    return frozenset((node,)), end
        node = min(range(self.count), key=self.busy_until.__getitem__)
        return frozenset((node,)), self.busy_until[node]

    def _move(self, node: int, free: int) -> None:
        self._buckets[self.free_cores[node]].discard(node)
        self.free_cores[node] = free
        self._buckets[free].add(node)


DEPTH: Final = 100  # jobs behind the first that backfill looks at (Slurm's bf_max_job_test)
MAX_WAITING: Final = 80  # jobs in the queue from which on a user holds back; keeps the queue finite whatever the load
_END, _DOWN, _UP, _GIVE_UP, _AGAIN = range(5)  # what happens first within one second


class EndedJob(NamedTuple):
    """A job that is over: what was submitted, under which id, and what came of it. Times in seconds from the start."""

    job_id: int
    raw_id: int
    submission: Submission
    start_s: int  # -1: never
    end_s: int
    outcome: Outcome
    nodes: Sequence[int]
    reserved_s: int  # what its reservation promised while it was first in the queue; -1 without one


class _Waiting(NamedTuple):
    raw_id: int
    job_id: int
    cores: int  # of each node
    nodes: int
    mem_mib: int
    limit_s: int
    submission: Submission


class _Running(NamedTuple):
    waiting: _Waiting
    start_s: int
    outcome: Outcome
    nodes: Sequence[int]
    reserved_s: int


class Scheduler:
    """Runs submissions on nodes; `run` is the whole story."""

    def __init__(self, spec: ClusterSpec, reactions: Reactions, outages: Iterator[Outage]) -> None:
        self.nodes = Nodes(spec.nodes, spec.cores_per_node, spec.mem_per_node_mib)
        self._reactions = reactions
        self._outages = outages
        self._sick = SickNodes(spec.faults)
        self._most_jobs = spec.jobs if spec.jobs is not None else NEVER
        self._next_id = self._first_id = spec.first_job_id
        self._arrays: dict[int, int] = {}  # user -> id of the array being submitted
        self._queue: OrderedDict[int, _Waiting] = OrderedDict()
        self._waiting_of: Counter[int] = Counter()
        self._running: dict[int, _Running] = {}
        self._events: list[tuple[int, int, int, Submission | Outage | None]] = []
        self._sequence = 0
        self._reserved_for = -1
        self._reserved_nodes: frozenset[int] = NOTHING
        self._reserved_s = -1
        self._over: list[EndedJob] = []

    def run(self, submissions: Iterator[Submission]) -> Iterator[EndedJob]:
        """Take submissions as they come, and give every job when it is over."""
        self._plan_outage()
        coming = next(submissions, None)
        while coming or self._queue or self._running or self._events:
            if coming and self._full():
                coming = None
            if coming and (not self._events or coming.submit_s < self._events[0][0]):
                self._submit(coming, coming.submit_s)
                coming = next(submissions, None)
            elif self._events:
                self._happen(*heapq.heappop(self._events), more=coming is not None)
            if self._over:
                yield from self._over
                self._over.clear()

    def _full(self) -> bool:
        return self._next_id - self._first_id >= self._most_jobs

    def _plan(self, when_s: int, kind: int, number: int, what: Submission | Outage | None = None) -> None:
        heapq.heappush(self._events, (when_s, kind, number, what))

    def _happen(self, now: int, kind: int, number: int, what: Submission | Outage | None, *, more: bool) -> None:
        if kind == _END:
            running = self._running.get(number)
            # A job whose node went down has ended already.
            if running and running.start_s + running.outcome.run_s == now:
                self._schedule(now, self._end(number, running, running.outcome, now))
        elif kind == _GIVE_UP:
            self._give_up(number, now)
        elif isinstance(what, Submission):
            if not self._full():
                self._submit(what, now)
        elif isinstance(what, Outage):
            self._outage(what, now, kind, more)

    def _submit(self, job: Submission, now: int) -> None:
        if self._holds_back(job):
            return
        self._waiting_of[job.user] += 1
        raw_id = job_id = self._next_id
        self._next_id += 1
        if job.array_size:
            if job.array_task == 0:
                self._arrays[job.user] = raw_id
            job_id = self._arrays[job.user]
        waiting = _Waiting(
            raw_id, job_id, self.nodes.cores if job.nodes else job.cores, job.nodes,
            self.nodes.mem_mib if job.nodes else job.mem_mib, job.limit_s, job,
        )  # fmt: skip
        self._queue[raw_id] = waiting
        if len(self._queue) == 1:
            self._schedule(now, None)
        elif len(self._queue) <= DEPTH:
            self._try(waiting, now, None)
        if job.patience_s != NEVER and raw_id in self._queue:
            self._plan(now + job.patience_s, _GIVE_UP, raw_id)

    def _holds_back(self, job: Submission) -> bool:
        """Whether the user sees the queue and leaves it: a job, or a whole array."""
        if job.array_task:
            return self._arrays[job.user] < 0
        if self._waiting_of[job.user] < MAX_WAITING:
            return False
        self._arrays[job.user] = -1
        return True

    def _give_up(self, raw_id: int, now: int) -> None:
        waiting = self._queue.get(raw_id)
        if waiting:
            self._leave_queue(waiting)
            job = waiting.submission
            self._over.append(EndedJob(waiting.job_id, raw_id, job, -1, now, NEVER_RAN, (), -1))
            if raw_id == self._reserved_for:
                self._schedule(now, None)

    def _schedule(self, now: int, freed: Sequence[int] | None) -> None:
        """Start the first job while it fits, give the next its reservation, then let others pass where they do no harm.

        `freed` are the only nodes with more room than last time; None: look at everything.
        """
        queue = self._queue
        while queue:
            head = next(iter(queue.values()))
            where = freed if head.raw_id == self._reserved_for else None
            nodes = self._place(head, where, NOTHING)
            if nodes is None:
                break
            self._start(head, nodes, now)
            freed = None
        if not queue:
            self._reserved_for, self._reserved_nodes = -1, NOTHING
            return
        if head.raw_id != self._reserved_for:
            self._reserve(head)
            freed = None
        self._backfill(now, freed)

    def _reserve(self, head: _Waiting) -> None:
        self._reserved_for = head.raw_id
        self._reserved_nodes, self._reserved_s = self.nodes.reservation(head.cores, head.nodes, head.mem_mib)

    def _backfill(self, now: int, freed: Sequence[int] | None) -> None:
        hopeless: set[tuple[int, int, int, int]] = set()
        behind = list(islice(self._queue.values(), 1, DEPTH + 1))
        for waiting in behind:
            shape = waiting[2:6]  # cores, nodes, memory, limit: people submit the same thing many times
            if shape not in hopeless and not self._try(waiting, now, freed):
                hopeless.add(shape)

    def _try(self, waiting: _Waiting, now: int, freed: Sequence[int] | None) -> bool:
        """Start a job that is not the first, if the first does not suffer."""
        harmless = now + waiting.limit_s + KILL_WAIT_S <= self._reserved_s
        nodes = self._place(waiting, freed, NOTHING if harmless else self._reserved_nodes)
        if nodes is not None:
            self._start(waiting, nodes, now)
        return nodes is not None

    def _place(self, waiting: _Waiting, freed: Sequence[int] | None, avoid: Collection[int]) -> Sequence[int] | None:
        if freed is None or waiting.nodes:
            return self.nodes.find(waiting.cores, waiting.nodes, waiting.mem_mib, avoid)
        for node in freed:
            if self.nodes.fits_on(node, waiting.cores, waiting.mem_mib) and node not in avoid:
                return (node,)
        return None

    def _start(self, waiting: _Waiting, nodes: Sequence[int], now: int) -> None:
        raw_id, job = waiting.raw_id, waiting.submission
        self._leave_queue(waiting)
        self.nodes.take(raw_id, nodes, waiting.cores, waiting.mem_mib, now + job.limit_s + KILL_WAIT_S)
        end = outcome(job, now, sick=self._sick.any(nodes, now))
        reserved_s = self._reserved_s if raw_id == self._reserved_for else -1
        self._running[raw_id] = _Running(waiting, now, end, nodes, reserved_s)
        self._plan(now + end.run_s, _END, raw_id)

    def _leave_queue(self, waiting: _Waiting) -> None:
        del self._queue[waiting.raw_id]
        self._waiting_of[waiting.submission.user] -= 1

    def _end(self, raw_id: int, running: _Running, end: Outcome, now: int) -> Sequence[int]:
        del self._running[raw_id]
        waiting, start_s, _, nodes, reserved_s = running
        job = waiting.submission
        self._over.append(EndedJob(waiting.job_id, raw_id, job, start_s, now, end, nodes, reserved_s))
        again = self._reactions.reaction(job, end.state, now)
        if again:
            self._sequence += 1
            self._plan(again.submit_s, _AGAIN, self._sequence, again)
        return self.nodes.give_back(raw_id)

    def _plan_outage(self) -> None:
        outage = next(self._outages, None)
        if outage:
            self._plan(outage.start_s, _DOWN, outage.node, outage)

    def _outage(self, outage: Outage, now: int, kind: int, more: bool) -> None:
        """A node goes down with all that runs on it, or comes back."""
        if kind == _UP:
            self.nodes.open(outage.node)
        elif self.nodes.free_cores[outage.node] >= 0:
            for raw_id in list(self.nodes.held[outage.node]):
                running = self._running[raw_id]
                self._end(raw_id, running, NODE_FAILED._replace(run_s=now - running.start_s), now)
            self.nodes.close(outage.node, outage.until_s)
            self._plan(outage.until_s, _UP, outage.node, outage)
        if kind == _DOWN and (more or self._queue or self._running):
            self._plan_outage()
        self._reserved_for = -1  # what was promised on that node cannot be kept, or something better can
        self._schedule(now, None)
