"""What becomes of a job: it follows from what it needs, what was requested, its nodes and its user.

ClusterSpec -> node outages and sick nodes over time.
Submission, is its node sick? -> outcome -> Outcome; a failed Submission -> reaction -> the next Submission, or None.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Final, NamedTuple

from stormpetrel.records.states import SLURM_OUT_OF_MEMORY, JobState
from stormpetrel.simulate.arrivals import NEVER, Submission, rhythm
from stormpetrel.simulate.population import Population
from stormpetrel.simulate.spec import DAY_S, ClusterSpec, Fault


class Outage(NamedTuple):
    """A node that is out of service for a while. Seconds from the start."""

    start_s: int
    until_s: int
    node: int


def random_outages(spec: ClusterSpec) -> Iterator[Outage]:
    """Outages one after the other, without end; at most as many as `node_failures_per_year` says on average."""
    if spec.node_failures_per_year <= 0:
        return
    rng = Random(f"{spec.seed}/outages")  # noqa: S311 - a simulation, not a secret
    per_second = spec.nodes * spec.node_failures_per_year / (365 * DAY_S)
    now = 0.0
    while True:
        now += rng.expovariate(per_second)
        yield Outage(int(now), int(now) + 600 + int(rng.lognormvariate(9.0, 1.0)), rng.randrange(spec.nodes))


class SickNodes:
    """Which nodes are sick when."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._spans: dict[int, list[tuple[int, int]]] = {}
        for fault in faults:
            self._spans.setdefault(fault.node, []).append((fault.start_s, fault.until_s))

    def any(self, nodes: Sequence[int], now: int) -> bool:
        """Whether one of the nodes is sick at this moment."""
        if not self._spans:
            return False
        return any(start <= now < until for node in nodes for start, until in self._spans.get(node, ()))


KILL_WAIT_S: Final = 30  # Slurm's KillWait: so long may a job outlive its limit
_SIGKILL, _SIGSEGV, _SIGTERM = 9, 11, 15
# (exit code, signal): a script's error, a usage error, a command that is not there, an abort, a segmentation fault
_CRASHES: Final = ((1, 0), (1, 0), (1, 0), (2, 0), (127, 0), (134, 0), (0, _SIGSEGV))
_MAX_ATTEMPTS: Final = 4


class Outcome(NamedTuple):
    """How and when a run ends. `code` and `signal` are the job's, the other two those of the step that carried it."""

    run_s: int
    state: JobState
    code: int
    signal: int
    step_code: int
    step_signal: int


NODE_FAILED: Final = Outcome(0, JobState.NODE_FAIL, 0, 0, 0, _SIGKILL)
NEVER_RAN: Final = Outcome(0, JobState.CANCELLED, 0, 0, 0, 0)


def outcome(job: Submission, start_s: int, *, sick: bool) -> Outcome:
    """The first thing that happens to the job: sick node, crash, out of memory, cancelled, out of time, or its end."""
    chance = (job.need_s * 31 + job.need_mib * 17 + start_s) & 0xFFFF  # spreads details without another draw
    if sick:
        return Outcome(2 + chance % 20, JobState.FAILED, 1, 0, 1, 0)
    # Memory fills up as the run goes on: what needs much more than it asked for ends early.
    oom_s = max(1, job.need_s * job.mem_mib // job.need_mib) if job.need_mib > job.mem_mib else NEVER
    first = min(job.crash_s, oom_s, job.cancel_s, job.need_s)
    if first > job.limit_s:
        return Outcome(job.limit_s + chance % KILL_WAIT_S, JobState.TIMEOUT, 0, 0, 0, _SIGTERM)
    if first == oom_s:
        return Outcome(first, JobState.OUT_OF_MEMORY, 0, SLURM_OUT_OF_MEMORY, 0, SLURM_OUT_OF_MEMORY)
    if first == job.need_s:
        return Outcome(first, JobState.COMPLETED, 0, 0, 0, 0)
    if first == job.cancel_s:
        return Outcome(first, JobState.CANCELLED, 0, 0, 0, _SIGTERM)
    code, signal = _CRASHES[chance % len(_CRASHES)]
    return Outcome(first, JobState.FAILED, code, signal, code, signal)


class Reactions:
    """What users do about a job that failed: leave it, submit it again as it was, or ask for more."""

    def __init__(self, population: Population, spec: ClusterSpec) -> None:
        self._users = population.users
        self._spec = spec
        self._rng = Random(f"{spec.seed}/reactions")  # noqa: S311 - a simulation, not a secret

    def reaction(self, job: Submission, state: JobState, now_s: int) -> Submission | None:
        """The resubmission of a job that ended in this state, or None."""
        if state == JobState.COMPLETED or state == JobState.CANCELLED or job.attempt >= _MAX_ATTEMPTS:
            return None
        rng, user = self._rng, self._users[job.user]
        if rng.random() >= user.retries:
            return None
        learned = rng.random() < 0.35 + 0.6 * user.skill
        return job._replace(
            submit_s=self._when(job, now_s),
            limit_s=min(job.limit_s * 2, 14 * 86_400) if learned and state == JobState.TIMEOUT else job.limit_s,
            mem_mib=self._more_memory(job) if learned and state == JobState.OUT_OF_MEMORY else job.mem_mib,
            crash_s=NEVER if learned else job.crash_s,
            array_task=0,
            array_size=0,
            attempt=job.attempt + 1,
        )

    def _more_memory(self, job: Submission) -> int:
        return min(job.mem_mib * 2, self._spec.mem_per_node_mib)

    def _when(self, job: Submission, now_s: int) -> int:
        """Soon if the user is at work; otherwise some time after coming back."""
        rng, user = self._rng, self._users[job.user]
        moment = now_s + 5 + int(rng.lognormvariate(5.5, 1.3))
        for _ in range(3 * 24):
            if rng.random() < rhythm(user, moment, self._spec):
                break
            moment += 1800 + int(rng.random() * 1800)
        return moment
