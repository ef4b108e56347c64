"""Submissions: people come in sessions, try, repeat themselves, and submit many jobs at once.

Population -> submissions -> Submission after Submission in time order, one at a time: nothing is kept but one session per user.
Each user draws from a generator of his own, so that what one does never depends on another.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple

from stormpetrel.simulate.population import Application, Population, User
from stormpetrel.simulate.spec import DAY_S, ClusterSpec

NEVER: Final = 1 << 40  # seconds; later than anything ends
_THRIFT: Final = 0.35
_NIGHT: Final = 0.06  # how much of a working hour's activity is left at night
_MAX_RUN_S: Final = 10 * DAY_S
_LIMITS_S: Final = tuple(
    minutes * 60 for minutes in (5, 10, 15, 30, 60, 120, 180, 240, 360, 480, 720, 1440, 2160, 2880, 4320, 5760, 7200, 10080)
)
_DEFAULT_LIMIT_S: Final = DAY_S


class Submission(NamedTuple):
    """A job as its user hands it in, and what it will need, which nobody knows yet. Times in seconds from the start.

    A NamedTuple and not a frozen dataclass: a million of them are made. `nodes` > 0 are whole nodes, else
    `cores` of one node; memory is per node. `crash_s` and `cancel_s` count from the start of the run, `patience_s` from its
    submission. `array_size` > 0 is the size of the array, `array_task` the index in it.
    """

    submit_s: int
    user: int
    application: int
    campaign: int
    cores: int
    nodes: int
    mem_mib: int
    limit_s: int
    need_s: int
    need_mib: int
    crash_s: int
    cancel_s: int
    patience_s: int
    array_task: int
    array_size: int
    attempt: int


def submissions(population: Population, spec: ClusterSpec) -> Iterator[Submission]:
    """What everybody submits, in time order, until `spec.days` have passed (without it: for ever)."""
    rates = session_rates(population, spec)
    streams = [_user_submissions(user, population, spec, rate) for user, rate in zip(population.users, rates, strict=True)]
    return heapq.merge(*streams)


def session_rates(population: Population, spec: ClusterSpec) -> list[float]:
    """Sessions per active second of each user, such that all of them together ask for `spec.load` of the cores.

    What a session asks for is found by trying some out. People whose sessions cost more than others' have fewer of them.
    """
    costs = [_session_core_s(user, population, spec) for user in population.users]
    mean_cost = sum(costs) / len(costs)
    wishes = [user.sessions_per_week * (mean_cost / cost) ** _THRIFT for user, cost in zip(population.users, costs, strict=True)]
    presence = [_presence(user, spec) for user in population.users]
    requested = sum(wish * cost * there for wish, cost, there in zip(wishes, costs, presence, strict=True))
    scale = spec.nodes * spec.cores_per_node * spec.load / max(requested, 1e-9)
    return [wish * scale for wish in wishes]


def _session_core_s(user: User, population: Population, spec: ClusterSpec) -> float:
    sessions_of_user = _SessionMaker(user, population, spec, Random(f"{spec.seed}/trial/{user.number}"))  # noqa: S311
    tries = max(12, 4000 // len(population.users))
    return 1.0 + sum(_core_seconds(job, spec) for _ in range(tries) for job in sessions_of_user.session(0.0)) / tries


def rhythm(user: User, now_s: float, spec: ClusterSpec) -> float:
    """How active the user is at this hour of day and week, 0 to 1."""
    if user.present < 1.0 and (now_s / user.spell_s + user.phase) % 1.0 > user.present:
        return 0.0
    moment = now_s + spec.start_unix_s
    hour = moment % DAY_S / 3600
    at_work = (hour - user.work_begins_h) % 24 < user.work_hours
    # 1970-01-01 was a Thursday.
    weekend = (moment // DAY_S + 3) % 7 >= 5
    return (1.0 if at_work else _NIGHT) * (user.weekend if weekend else 1.0)


def _core_seconds(job: Submission, spec: ClusterSpec) -> float:
    """How long the job holds how many cores; who asks for more than his share of the memory holds the cores that go with it."""
    held_s = min(job.need_s, job.limit_s, job.crash_s, job.cancel_s)
    if job.nodes:
        return held_s * job.nodes * spec.cores_per_node
    return held_s * max(job.cores, job.mem_mib * spec.cores_per_node / spec.mem_per_node_mib)


def _presence(user: User, spec: ClusterSpec) -> float:
    """The mean of the user's rhythm over the span of the simulation (a year, where that is open)."""
    span_s = (spec.days or 364.0) * DAY_S
    # Prime steps: no hour of the day and no day of the week is favoured.
    return sum(rhythm(user, span_s * step / 997, spec) for step in range(997)) / 997


def _user_submissions(user: User, population: Population, spec: ClusterSpec, rate: float) -> Iterator[Submission]:
    rng = Random(f"{spec.seed}/user/{user.number}")  # noqa: S311
    sessions_of_user = _SessionMaker(user, population, spec, rng)
    until_s = spec.days * DAY_S if spec.days else math.inf
    growth = math.log1p(spec.growth_per_year) / (365 * DAY_S)
    moment = last = 0.0
    while True:
        moment += rng.expovariate(rate * math.exp(growth * moment))
        if moment >= until_s:
            return
        if rng.random() < rhythm(user, moment, spec):
            for job in sessions_of_user.session(max(moment, last)):
                last = job.submit_s
                if last >= until_s:
                    return
                yield job


class _SessionMaker:
    """One user at work: the application at hand, the size of the inputs, whether the code is broken today."""

    def __init__(self, user: User, population: Population, spec: ClusterSpec, rng: Random) -> None:
        self._user, self._spec, self._rng = user, spec, rng
        self._applications = population.applications
        self._largest_mib = int(spec.mem_per_node_mib * 0.95)
        self._campaign = 0
        self._broken = False
        self._new_campaign()

    def session(self, now: float) -> Iterator[Submission]:
        """Rounds of work: submit, think, submit again; a round is one job, or many at once."""
        rng, user = self._rng, self._user
        if rng.random() < 0.4:
            self._new_campaign()
        # What was broken last time often still is.
        self._broken = rng.random() < (0.6 if self._broken else 0.5 * (1 - user.skill))
        # Some sessions are a look, some a day's work.
        rounds = 1 + int(rng.expovariate(1 / user.rounds_per_session) * rng.choice((0.3, 1.0, 1.7)))
        for _ in range(rounds):
            count = self._burst() if rng.random() < user.burst_share else 1
            last = now
            for job in self._round(int(now), count):
                last = job.submit_s
                yield job
            now = last + 5 + rng.lognormvariate(5.5, 1.4)
            if self._broken and rng.random() < 0.1:
                self._broken = False  # found it
            if rng.random() < 0.06:
                self._request()

    def _new_campaign(self) -> None:
        """Another piece of work: which application, how large its inputs, and what to ask for."""
        rng, user = self._rng, self._user
        # The first of the favourites is used most.
        self._number = user.favourites[min(int(rng.expovariate(1.2)), len(user.favourites) - 1)]
        self._application: Application = self._applications[self._number]
        self._campaign = (self._campaign + 1) % 100
        self._size = rng.lognormvariate(0.0, 0.6)
        self._nodes = self._application.nodes
        if self._nodes:
            wider = self._nodes * 2 ** rng.choice((-2, -1, -1, 0, 0, 0, 0, 1, 2))
            self._nodes = min(max(1, round(wider)), max(1, self._spec.nodes // 2))
        self._cores = self._application.cores
        if not self._nodes:
            self._cores = min(max(1, int(self._cores * 2 ** rng.choice((-1, 0, 0, 0, 1)))), self._spec.cores_per_node)
        # More cores make a run shorter, though not by as much.
        wider_by = self._nodes / self._application.nodes if self._nodes else self._cores / self._application.cores
        self._run_s = self._application.run_s * wider_by**-0.8
        self._request()

    def _request(self) -> None:
        """What the user asks for: a guess from experience, or what others copied into the script long ago."""
        rng, application, skill = self._rng, self._application, self._user.skill
        guess_s = self._run_s * self._size**application.run_power * rng.lognormvariate(0.6, 0.3 + 0.7 * (1 - skill))
        guess_mib = application.mem_mib * self._size**application.mem_power * rng.lognormvariate(0.5, 0.1 + 0.5 * (1 - skill))
        careless = rng.random() < 0.5 * (1 - skill)
        self._limit_s = _DEFAULT_LIMIT_S if careless else next((limit for limit in _LIMITS_S if limit >= guess_s), _LIMITS_S[-1])
        default_mib = self._spec.mem_per_node_mib * self._cores // self._spec.cores_per_node
        memory_mib = default_mib if careless and rng.random() < 0.5 else guess_mib
        self._mem_mib = min(_round_memory(memory_mib), self._spec.mem_per_node_mib)

    def _burst(self) -> int:
        rng = self._rng
        return min(2 + int(rng.expovariate(1 / self._user.burst_size) * rng.choice((0.5, 1.0, 3.0))), 400)

    def _round(self, now: int, count: int) -> Iterator[Submission]:
        as_array = count > 2 and self._rng.random() < self._user.array_share
        pace_s = self._rng.choice((1.5, 3.0, 12.0, 60.0))  # a loop in a script, one that prepares inputs, or by hand
        for position in range(count):
            yield self._job(now, position if as_array else 0, count if as_array else 0)
            if not as_array:
                now += int(self._rng.random() * pace_s)

    def _job(self, now: int, array_task: int, array_size: int) -> Submission:
        rng, application, user = self._rng, self._application, self._user
        size = self._size * rng.lognormvariate(0.0, 0.12)
        need_s = min(int(self._run_s * size**application.run_power * rng.lognormvariate(0.0, 0.2)) + 1, _MAX_RUN_S)
        need_mib = int(application.mem_mib * size**application.mem_power * rng.lognormvariate(0.0, 0.06)) + 20
        need_mib = min(need_mib, self._largest_mib)
        crash_s = cancel_s = patience_s = NEVER
        if rng.random() < (0.95 if self._broken else application.crash_rate * (1.2 - user.skill)):
            # Most crashes come early: a wrong path, a missing module; some anywhere in the run.
            early = rng.random() < 0.7
            crash_s = int(rng.lognormvariate(3.0, 1.2)) + 1 if early else int(rng.random() * need_s) + 1
        if rng.random() < 0.045:
            cancel_s = int(rng.random() ** 2 * need_s) + 1
        if rng.random() < 0.12:
            patience_s = int(rng.expovariate(1 / 43_200)) + 60
        return Submission(
            now, user.number, self._number, self._campaign, self._cores, self._nodes, self._mem_mib, self._limit_s,
            need_s, need_mib, crash_s, cancel_s, patience_s, array_task, array_size, 0,
        )  # fmt: skip


def _round_memory(mib: float) -> int:
    """People ask for 500 MiB, or for whole GiB: 1, 2, 3, 4, 6, 8, 12, 16 and so on."""
    if mib <= 500:
        return 500
    gib = mib / 1024
    step: int = 2 ** max(0, math.floor(math.log2(max(gib, 1.0))) - 1)
    return math.ceil(gib / step) * step * 1024
