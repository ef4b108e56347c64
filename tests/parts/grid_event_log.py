"""The event log that HTCondor would have written of a simulated grid: classic text, as many events per hour as the grid has.

SimulatedGrid, some hours -> write_event_log -> a file. A job is submitted, starts, and ends, in this order; those that waited
or ran before the first hour come out of the past, as in any log that was cut. Times are UTC.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import numpy as np

from stormpetrel.errors import UsageError
from stormpetrel.records.arrays import Ints
from stormpetrel.simulate.grid.grid import SimulatedGrid
from stormpetrel.simulate.grid.places import focus_of, place_names
from stormpetrel.simulate.grid.spec import GRID_KINDS

# HTCondor's number and name of each kind.
_NUMBERS: Final = dict(zip(GRID_KINDS, (0, 1, 4, 5, 6, 7, 9, 12, 13, 21, 22, 23, 24), strict=True))
_TRIGGERS: Final = dict(
    zip(
        GRID_KINDS,
        "SUBMIT EXECUTE JOB_EVICTED JOB_TERMINATED IMAGE_SIZE SHADOW_EXCEPTION JOB_ABORTED JOB_HELD JOB_RELEASED REMOTE_ERROR"
        " JOB_DISCONNECTED JOB_RECONNECTED JOB_RECONNECT_FAILED".split(),
        strict=True,
    )
)
_FAILS: Final = 0.08  # of the jobs that end, those with another return value than zero
_MINUTES: Final = tuple(f"{second // 60:02d}:{second % 60:02d}" for second in range(3600))
_USAGE: Final = (
    "\t\tUsr 0 00:{0:02d}:00, Sys 0 00:00:0{1}  -  {2} Remote Usage\n\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  {2} Local Usage\n"
)


@dataclass(frozen=True, slots=True, eq=False)
class WrittenLog:
    """What a log holds."""

    path: Path
    kinds: tuple[str, ...]
    counts: Ints  # (hours, kinds)

    @property
    def events(self) -> int:
        """How many events there are, without the header and without copies in job ads."""
        return int(self.counts.sum())


def write_event_log(
    grid: SimulatedGrid,
    path: Path | str,
    first: int,
    last: int,
    *,
    most_events: int | None = None,
    with_ads: bool = False,
    dates_without_year: bool = False,
) -> WrittenLog:
    """Write the log of the hours from `first` to before `last`; where they have more events than `most_events`, a sample.

    `with_ads` tells each event a second time as event 028, with group and site, as EVENT_LOG_JOB_AD_INFORMATION_ATTRS does.
    """
    if not 0 <= first < last <= len(grid.series):
        raise UsageError(f"The hours {first} to {last} are not among the {len(grid.series)} of this grid.")
    rng = grid.spec.stream("log", first)
    kinds = tuple(kind for kind in grid.spec.kinds if kind in _NUMBERS)
    columns = [grid.spec.kinds.index(kind) for kind in kinds]
    counts, share = _sampled(grid.series.counts[first:last, columns].astype(np.int64), most_events, rng)
    writer = _Writer(grid, first, rng, share, with_ads=with_ads, dates_without_year=dates_without_year)
    with Path(path).open("w", encoding="utf-8", newline="\n") as file:
        file.write(writer.header(grid.series.moment(first)))
        for day in range(first // 24, (last - 1) // 24 + 1):
            hours = range(max(first, day * 24), min(last, day * 24 + 24))
            placed = grid.places(hours.start, hours.stop)  # made for a whole day whatever is asked for
            for hour in hours:
                writer.begin_hour(grid.series.moment(hour), hour)
                at_hour = {place: counted[hour - hours.start] for place, (_, counted) in placed.items()}
                file.writelines(_hour(writer, grid.spec.kinds, at_hour, dict(zip(kinds, counts[hour - first], strict=True)), rng))
    return WrittenLog(Path(path), kinds, counts)


def _sampled(counts: Ints, most: int | None, rng: np.random.Generator) -> tuple[Ints, float]:
    """Exactly so many of the events, every one with the same chance; and which share of them that is."""
    whole = int(counts.sum())
    if most is None or whole <= most:
        return counts, 1.0
    if most < 1:
        raise UsageError("A log needs room for at least one event.")
    kept = rng.multivariate_hypergeometric(counts.ravel(), most, method="marginals")
    return kept.reshape(counts.shape), most / whole


def _hour(
    writer: _Writer, columns: tuple[str, ...], placed: dict[str, Ints], counts: dict[str, int], rng: np.random.Generator
) -> Iterator[str]:
    """One hour's events at random seconds of it, in the order of time; `placed` is (kinds, values) of each place."""
    kind = rng.permutation(np.repeat(np.arange(len(counts)), list(counts.values())))  # (events,)
    at = {place: np.zeros(len(kind), dtype=np.int64) for place in ("submit_host", "group", "node")}
    for number, name in enumerate(counts):
        rows = np.flatnonzero(kind == number)
        for place, values in at.items():
            values[rows] = _drawn(placed[place][columns.index(name)], len(rows), rng)
    second = np.sort(rng.integers(0, 3600, len(kind)))
    tell = [writer.teller(name) for name in counts]
    lists = (kind.tolist(), second.tolist(), *(at[place].tolist() for place in ("submit_host", "group", "node")))
    return (tell[one](EventPlace(*rest)) for one, *rest in zip(*lists, strict=True))


def _drawn(usual: Ints, number: int, rng: np.random.Generator) -> Ints:
    """(number,) at which value each event happened, given how many happen at each."""
    whole = int(usual.sum())
    values: Ints = rng.choice(len(usual), number, p=usual / whole if whole else None)
    return values


class _Writer:
    """Makes the text of each event, and keeps book of the jobs."""

    def __init__(
        self, grid: SimulatedGrid, first: int, rng: np.random.Generator, share: float, *, with_ads: bool, dates_without_year: bool
    ) -> None:
        names = place_names(grid.spec)
        self._grid, self._with_ads = grid, with_ads
        self._date = "%m/%d %H:" if dates_without_year else "%Y-%m-%d %H:"
        self._random = Random(int(rng.integers(2**62)))
        self._jobs = LogJobs(self._random, grid.spec.hosts, grid.spec.nodes)
        self._groups, self._nodes = names["group"], names["node"]
        self._hosts = [_address(f"10.0.0.{number % 250 + 1}", name, "schedd") for number, name in enumerate(names["submit_host"])]
        self._machines = [
            _address(f"10.{1 + number // 62_500}.{number // 250 % 250}.{number % 250 + 1}", name, "startd")
            for number, name in enumerate(names["node"])
        ]
        self._tell = dict(
            zip(
                GRID_KINDS,
                (
                    self._submit,
                    self._execute,
                    self._evicted,
                    self._terminated,
                    self._image_size,
                    self._shadow_exception,
                    self._aborted,
                    self._held,
                    self._released,
                    self._remote_error,
                    self._disconnected,
                    self._reconnected,
                    self._reconnect_failed,
                ),
                strict=True,
            )
        )
        self._holes: set[int] = set()
        self._hour = self._day = ""
        self._stock(first, rng, share)

    def header(self, start: datetime) -> str:
        """The event by which a global log is known."""
        created = int(start.timestamp())
        told = (
            f"Global JobLog: ctime={created} id=0.{self._grid.spec.seed}.{created}.0.1.{created}.0 sequence=1 size=0 events=0"
            " offset=0 event_off=0 max_rotation=1 creator_name=<>"
        )
        return f"008 (-01.-01.-01) {start.strftime(self._date)}00:00 {told:<256}\n...\n"

    def begin_hour(self, start: datetime, hour: int) -> None:
        """The events that follow are of this hour."""
        self._hour, self._day = start.strftime(self._date), start.strftime("%Y-%m-%dT%H:")
        holes = [one for one in self._grid.plan if one.outage_type == "black_hole" and one.first <= hour < one.last]
        self._holes = {self._nodes.index(focus_of(self._grid.spec, one)[1]) for one in holes}

    def teller(self, kind: str) -> Callable[[EventPlace], str]:
        """What tells the events of a kind."""
        what, number = self._tell[kind], f"{_NUMBERS[kind]:03d}"

        def tell(where: EventPlace) -> str:
            job, text = what(where)
            told = f"{number} {job.name} {self._hour}{_MINUTES[where.second]} {text}\n...\n"
            return told + self._ad(kind, job, where) if self._with_ads else told

        return tell

    def _stock(self, first: int, rng: np.random.Generator, share: float) -> None:
        """Those who wait and run when the log begins."""
        queued, running = (round(float(amount) * share) for amount in self._grid.series.background[first, :2])
        everywhere = self._grid.places(first, first + 1)["node"][1][0].sum(axis=0)  # (nodes,)
        nodes = _drawn(everywhere, running, rng).tolist()
        for number in range(running + min(queued, 200_000)):
            where = EventPlace(
                0, int(self._random.random() * len(self._hosts)), int(self._random.random() * len(self._groups)), 0
            )
            job = self._jobs.of_the_past(where)
            if number < running:
                self._jobs.start(job, nodes[number])
            else:
                self._jobs.waiting[job.host].append(job)

    def _ad(self, kind: str, job: LogJob, where: EventPlace) -> str:
        site = f'MachineAttrGLIDEIN_Site0 = "{self._nodes[job.node].partition(".")[2]}"\n' if job.run else ""
        slot = f'SlotName = "slot1@{self._nodes[job.node]}"\n' if kind == "Execute" else ""
        return (
            f"028 {job.name} {self._hour}{_MINUTES[where.second]} Job ad information event triggered.\n"
            f'Cluster = {job.cluster}\nEventTime = "{self._day}{_MINUTES[where.second]}.000"\nEventTypeNumber = 28\n'
            f'Jobsub_Group = "{self._groups[job.group]}"\n{site}MyType = "{kind}Event"\nOwner = "{self._groups[job.group]}pro"\n'
            f'Proc = {job.proc}\n{slot}SubmitHost = "{self._hosts[job.host]}"\nSubproc = 0\n'
            f'TriggerEventTypeName = "ULOG_{_TRIGGERS[kind]}"\nTriggerEventTypeNumber = {_NUMBERS[kind]}\n...\n'
        )

    def _submit(self, where: EventPlace) -> tuple[LogJob, str]:
        job = self._jobs.submitted(where)
        return job, f"Job submitted from host: {self._hosts[job.host]}"

    def _execute(self, where: EventPlace) -> tuple[LogJob, str]:
        job = self._jobs.next_waiting(where)
        self._jobs.start(job, where.node)
        host, slot = self._machines[where.node], f"slot1@{self._nodes[where.node]}"
        return job, f"Job executing on host: {host}\n\tSlotName: {slot}\n\tCpus = 1\n\tMemory = 2048"

    def _terminated(self, where: EventPlace) -> tuple[LogJob, str]:
        swallowed = where.node in self._holes
        job = self._jobs.at_node(where, newest=swallowed)
        job.running = False
        value = 1 if swallowed or self._random.random() < _FAILS else 0
        minutes = 0 if swallowed else 1 + where.second % 59
        return job, (
            f"Job terminated.\n\t(1) Normal termination (return value {value})\n"
            f"{_USAGE.format(minutes, 1, 'Run')}{_USAGE.format(minutes, 1, 'Total')}"
            "\t0  -  Run Bytes Sent By Job\n\t0  -  Run Bytes Received By Job\n"
            "\t0  -  Total Bytes Sent By Job\n\t0  -  Total Bytes Received By Job"
        )

    def _evicted(self, where: EventPlace) -> tuple[LogJob, str]:
        job = self._jobs.at_node(where)
        self._jobs.lost(job)
        return job, (
            f"Job was evicted.\n\t(0) CPU times\n{_USAGE.format(where.second % 60, 1, 'Run')}"
            "\t0  -  Run Bytes Sent By Job\n\t0  -  Run Bytes Received By Job"
        )

    def _image_size(self, where: EventPlace) -> tuple[LogJob, str]:
        job, size = self._jobs.at_node(where), 1000 * (1 + where.second)
        return job, (
            f"Image size of job updated: {size}\n\t{size // 1000}  -  MemoryUsage of job (MB)\n"
            f"\t{size}  -  ResidentSetSize of job (KB)"
        )

    def _shadow_exception(self, where: EventPlace) -> tuple[LogJob, str]:
        job = self._jobs.at_node(where)
        self._jobs.lost(job)
        return job, (
            f"Shadow exception!\n\tError from slot1@{self._nodes[job.node]}: the starter does not answer\n"
            "\t0  -  Run Bytes Sent By Job\n\t0  -  Run Bytes Received By Job"
        )

    def _aborted(self, where: EventPlace) -> tuple[LogJob, str]:
        own = self._jobs.waiting[where.host]
        job = own.pop() if own else self._jobs.held.pop() if self._jobs.held else self._jobs.at_node(where)
        job.running = False
        return job, f"Job was aborted.\n\tvia condor_rm (by user {self._groups[job.group]}pro)"

    def _held(self, where: EventPlace) -> tuple[LogJob, str]:
        job = self._jobs.at_node(where)
        job.running = False
        self._jobs.held.append(job)
        return (
            job,
            f"Job was held.\n\tError from slot1@{self._nodes[job.node]}: memory usage exceeded the request\n\tCode 34 Subcode 0",
        )

    def _released(self, where: EventPlace) -> tuple[LogJob, str]:
        job = self._jobs.held.popleft() if self._jobs.held else self._jobs.of_the_past(where)
        self._jobs.waiting[job.host].append(job)
        return job, f"Job was released.\n\tvia condor_release (by user {self._groups[job.group]}pro)"

    def _remote_error(self, where: EventPlace) -> tuple[LogJob, str]:
        job = self._jobs.at_node(where)
        return job, f"Error from starter on slot1@{self._nodes[job.node]}:\n\tFailed to open the output file\n\tCode 13 Subcode 2"

    def _disconnected(self, where: EventPlace) -> tuple[LogJob, str]:
        job = self._jobs.of_host(where)
        self._jobs.cut_off.append((job, job.run))
        return job, (
            "Job disconnected, attempting to reconnect\n    Socket between submit and execute hosts closed unexpectedly\n"
            f"    Trying to reconnect to slot1@{self._nodes[job.node]} {self._machines[job.node]}"
        )

    def _reconnected(self, where: EventPlace) -> tuple[LogJob, str]:
        job = next(self._still_cut_off(), None) or self._jobs.of_host(where)
        return job, (
            f"Job reconnected to slot1@{self._nodes[job.node]}\n    startd address: {self._machines[job.node]}\n"
            f"    starter address: {self._machines[job.node]}"
        )

    def _reconnect_failed(self, where: EventPlace) -> tuple[LogJob, str]:
        job = next(self._still_cut_off(), None) or self._jobs.of_host(where)
        self._jobs.lost(job)
        return job, (
            "Job reconnection failed\n    Job disconnected too long: JobLeaseDuration (2400 seconds) expired\n"
            f"    Can not reconnect to slot1@{self._nodes[job.node]}, rescheduling job"
        )

    def _still_cut_off(self) -> Iterator[LogJob]:
        while self._jobs.cut_off:
            job, run = self._jobs.cut_off.popleft()
            if job.running and job.run == run:
                yield job


def _address(ip: str, name: str, daemon: str) -> str:
    return f"<{ip}:9618?addrs={ip}-9618&alias={name}&noUDP&sock={daemon}_1000_a1b2>"


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
