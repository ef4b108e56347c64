"""Cumulative CPU counters of a node -> shares of the four modes on a regular grid, and the job on each thread.

The counters are read off, by a straight line between neighbouring samples, at the edges of each step; what the modes have grown
by in between, divided by the sum over all modes, are the shares: they sum to one however unevenly the samples came. Where there
is nothing to read off (no sample, a reset, a clock that jumped), the step is NaN.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.records.traces import IOWAIT, MODES, NO_JOB, OTHER, SYSTEM, UNKNOWN_JOB, USER, Indices, Rates, Seconds
from stormpetrel.sources.prometheus.query import Series

CPU_COUNTERS: Final = "node_cpu_seconds_total"
SAMPLE_TIME: Final = "stormpetrel_sample_time_seconds"
THREAD_JOB: Final = "stormpetrel_thread_job_info"
DISTINGUISHED: Final = "stormpetrel_threads_told_apart"
CGROUP_CPUS: Final = "cgroup_cpu_info"
CGROUP_JOB: Final = "cgroup_info"
JOB_METRICS: Final = (SAMPLE_TIME, THREAD_JOB, DISTINGUISHED, CGROUP_CPUS, CGROUP_JOB)

# One missed scrape is two steps: it is seen as a gap (and bridged and counted later), not smoothed over. Read at 1 s, the true
# distances between two samples are .86 to 1.17 s.
LONGEST_GAP_STEPS: Final = 1.5
NEEDED_MODES: Final = ("user", "system", "idle", "iowait")  # nice, irq, softirq and steal may be missing: zero then
_MODE_OF: Final = {"user": USER, "nice": USER, "system": SYSTEM, "irq": SYSTEM, "softirq": SYSTEM, "iowait": IOWAIT}
# Linux corrects idle and iowait backwards by itself, by fractions of a second; a reboot makes them fall by the whole uptime.
_FALLS_BY_S: Final = 1.0
_CLOCK_TOLERANCE_S: Final = 2.0  # between a node's clock and the server's; beyond, the server's is believed
_MOST_LABEL: Final = 200  # letters of a name in a label
_MOST_CPU: Final = 65_536
_CPU: Final = re.compile(r"\d{1,6}")
_RANGE: Final = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
_PORT: Final = re.compile(r"(?P<host>\[[^\[\]]+\]|[^:]+):\d{1,5}")
_JOB_IN_PATH: Final = re.compile(r"/job_(\w{1,40})(?:/|$)")


@dataclass(frozen=True, slots=True)
class Grid:
    """The steps to be filled: `edges_s[k]` to `edges_s[k + 1]` is step k."""

    start_s: float
    step_s: float
    steps: int

    @property
    def edges_s(self) -> Seconds:
        """Where steps begin and end, one more than there are steps."""
        return self.start_s + np.arange(self.steps + 1, dtype=np.float64) * self.step_s


def node_name(label: str) -> str | None:
    """The node behind an `instance`: without its port; None for what is no name."""
    with_port = _PORT.fullmatch(label)
    name = with_port["host"].strip("[]") if with_port else label
    return name if 0 < len(name) <= _MOST_LABEL and name.isprintable() else None


def best_target(series: Sequence[Series], clocks: Sequence[Series]) -> tuple[list[Series], Series | None]:
    """Of one node that several exporters tell about, the counters of one: the one with its own clock, else the fullest."""
    targets: dict[tuple[tuple[str, str], ...], list[Series]] = {}
    for each in series:
        targets.setdefault(_target(each), []).append(each)
    clock_of = {_target(clock): clock for clock in clocks}
    best = max(targets, key=lambda target: (target in clock_of, sum(each.time_s.size for each in targets[target]), target))
    return targets[best], clock_of.get(best)


def missing_modes(series: Iterable[Series]) -> list[str]:
    """The modes that a node cannot do without, and does not export."""
    there = {each.labels.get("mode", "") for each in series}
    return [mode for mode in NEEDED_MODES if mode not in there]


def sample_interval(series: Sequence[Series]) -> float | None:
    """The median distance between samples in seconds; None where there are too few to tell."""
    longest = max((each.time_s for each in series), key=len, default=np.empty(0))
    return float(np.median(np.diff(np.unique(longest)))) if longest.size > 2 else None


def node_rates(series: Sequence[Series], clock: Series | None, grid: Grid, seen: Counter[str]) -> tuple[tuple[int, ...], Rates]:
    """The CPUs of a node and their shares (steps, cpus, 4); resets and jumps of the clock are counted in `seen`."""
    time_s, cpus, modes, counters = _counter_table(series)
    return cpus, table_rates(time_s, modes, counters, clock, grid, seen)


def table_rates(
    time_s: Seconds,
    modes: Sequence[str],
    counters: npt.NDArray[np.float64],
    clock: Series | None,
    grid: Grid,
    seen: Counter[str],
) -> Rates:
    """The shares (steps, cpus, 4) that a table of counters (samples, cpus, modes) comes to, NaN where a sample is missing."""
    rates = np.full((grid.steps, counters.shape[1], len(MODES)), np.nan, dtype=np.float32)
    time_s, jumped = true_times(time_s, clock, grid.step_s)
    seen["clock jump"] += int(jumped.sum())
    in_order = np.concatenate([[True], time_s[1:] > np.maximum.accumulate(time_s)[:-1]]) if time_s.size else np.zeros(0, bool)
    jump_before = np.concatenate([[0], np.cumsum(jumped)]) if time_s.size else np.zeros(0, int)
    time_s, counters, jump_before = time_s[in_order], counters[in_order], jump_before[in_order]
    if time_s.size < 2:
        return rates
    growth = np.diff(counters, axis=0)  # (samples - 1, cpus, modes)
    reset = (growth < -_FALLS_BY_S).any(axis=2) | (growth.sum(axis=2) < 0)
    seen["counter reset"] += int(reset.any(axis=1).sum())
    too_far = (np.diff(time_s) > LONGEST_GAP_STEPS * grid.step_s) | (np.diff(jump_before) > 0)
    bad = reset | np.isnan(growth).any(axis=2) | too_far[:, None]
    used, whole = _grown(time_s, counters, np.nan_to_num(growth), bad, grid)
    groups = np.array([_MODE_OF.get(mode, OTHER) for mode in modes])
    total = used.sum(axis=2)
    for place in range(len(MODES)):
        part = used[:, :, groups == place].sum(axis=2)
        rates[:, :, place] = np.divide(part, total, out=np.full(total.shape, np.nan), where=whole & (total > 0))
    return rates


def thread_jobs(series: Sequence[Series], cpus: Sequence[int], grid: Grid, window_s: float, number_of: dict[str, int]) -> Indices:
    """The job on each thread at the end of each step; a job that is new gets the next number of `number_of`.

    Where nothing about jobs was exported within a window, nobody knows; where something was, a thread without a job has none.
    """
    job = np.full((grid.steps, len(cpus)), UNKNOWN_JOB, dtype=np.int32)
    ours = [each for each in series if each.labels.get("__name__") in (THREAD_JOB, DISTINGUISHED)]
    claims = _our_claims(ours) if ours else _cgroup_claims(series)
    limits = ours or [each for each in series if each.labels.get("__name__") == CGROUP_CPUS]
    if not limits or not cpus:
        return job
    distinct = {each.time_s.tobytes(): each.time_s for each in limits}  # most have the same
    times = np.unique(np.concatenate(list(distinct.values())))
    table = np.full((times.size, len(cpus)), NO_JOB, dtype=np.int32)  # who had which thread at each poll
    place = {cpu: column for column, cpu in enumerate(cpus)}
    if not _filled_at_once(table, times, place, claims, number_of):
        for job_id, threads, each in claims:
            columns = np.array([place[cpu] for cpu in threads if cpu in place], dtype=np.intp)
            cells = np.ix_(np.searchsorted(times, each.time_s), columns)
            number = number_of.setdefault(job_id, len(number_of))
            free = (table[cells] == NO_JOB) | (table[cells] == number)
            table[cells] = np.where(free, number, UNKNOWN_JOB)  # two jobs on one thread: nobody can tell whose second it was
    for each in ours:
        if each.labels.get("__name__") == DISTINGUISHED:
            blind = np.searchsorted(times, each.time_s[each.values == 0])
            table[blind] = np.where(table[blind] == NO_JOB, UNKNOWN_JOB, table[blind])
    return _at_steps(times, table, grid, window_s, silence=UNKNOWN_JOB if ours else NO_JOB)


def _filled_at_once(
    table: Indices,
    times: Seconds,
    place: dict[int, int],
    claims: Sequence[tuple[str, tuple[int, ...], Series]],
    number_of: dict[str, int],
) -> bool:
    """Fill in claims of one thread each, ten times as fast as one by one; False, and nothing done, where two meet in a cell."""
    if any(len(threads) != 1 or threads[0] not in place for _, threads, _ in claims):
        return False
    size = np.array([each.time_s.size for _, _, each in claims], dtype=np.intp)
    row_of = {each.time_s.tobytes(): np.searchsorted(times, each.time_s) for _, _, each in _distinct(claims)}
    rows = np.concatenate([np.empty(0, dtype=np.intp), *(row_of[each.time_s.tobytes()] for _, _, each in claims)])
    columns = np.repeat(np.array([place[threads[0]] for _, threads, _ in claims], dtype=np.intp), size)
    if np.bincount(rows * table.shape[1] + columns, minlength=1).max() > 1:
        return False
    numbers = np.array([number_of.setdefault(job_id, len(number_of)) for job_id, _, _ in claims], dtype=np.int32)
    table[rows, columns] = np.repeat(numbers, size)
    return True


def _distinct(claims: Sequence[tuple[str, tuple[int, ...], Series]]) -> Iterable[tuple[str, tuple[int, ...], Series]]:
    """One claim of those that were made at the same times."""
    return {claim[2].time_s.tobytes(): claim for claim in claims}.values()


def cpus_of(text: str) -> tuple[int, ...]:
    """The CPUs of a list such as `0,2-5`; empty where it is none.

    >>> cpus_of("0,2-4")
    (0, 2, 3, 4)
    """
    cpus: set[int] = set()
    for part in text.split(",")[:_MOST_CPU] if text else []:
        ends = _RANGE.fullmatch(part.strip())
        if ends is None:
            return ()
        first, last = int(ends[1]), int(ends[2] or ends[1])
        if last >= _MOST_CPU:
            return ()
        cpus.update(range(first, last + 1))
    return tuple(sorted(cpus))


def _target(series: Series) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(item for item in series.labels.items() if item[0] not in ("cpu", "mode", "__name__")))


def _counter_table(
    series: Sequence[Series],
) -> tuple[Seconds, tuple[int, ...], tuple[str, ...], npt.NDArray[np.float64]]:
    """All samples of a node as one table (samples, cpus, modes), NaN where one is missing."""
    numbered = [(int(each.labels["cpu"]), each.labels.get("mode", ""), each) for each in series if _is_cpu(each)]
    cpus = tuple(sorted({cpu for cpu, _, _ in numbered}))
    modes = tuple(sorted({mode for _, mode, _ in numbered}))
    time_s = np.unique(np.concatenate([each.time_s for _, _, each in numbered])) if numbered else np.empty(0)
    row_of_cpu, row_of_mode = ({name: place for place, name in enumerate(names)} for names in (cpus, modes))
    table = np.full((time_s.size, len(cpus), len(modes)), np.nan)
    there = np.zeros((len(cpus), len(modes)), dtype=bool)
    for cpu, mode, each in numbered:
        places = row_of_cpu[cpu], row_of_mode[mode]
        table[np.searchsorted(time_s, each.time_s), *places] = each.values
        there[places] = True
    table[~np.isfinite(table)] = np.nan
    optional = np.array([mode not in NEEDED_MODES for mode in modes], dtype=bool)
    table[:, ~there & optional] = 0.0
    return time_s, cpus, modes, table


def is_cpu(text: str) -> bool:
    """Whether a label is the number of a CPU."""
    return _CPU.fullmatch(text) is not None


def _is_cpu(series: Series) -> bool:
    return is_cpu(series.labels.get("cpu", ""))


def true_times(stored_s: Seconds, clock: Series | None, step_s: float) -> tuple[Seconds, npt.NDArray[np.bool_]]:
    """When the counters were really read, and between which samples the node's clock jumped.

    The node's own time is taken where it was exported and is near the server's; a node that lives in another hour keeps its
    order, but not its place in time.
    """
    if clock is None or not stored_s.size:
        return stored_s, np.zeros(max(stored_s.size - 1, 0), dtype=bool)
    stored = np.full(stored_s.size, np.nan)
    place = np.minimum(np.searchsorted(stored_s, clock.time_s), stored_s.size - 1)
    same = stored_s[place] == clock.time_s
    stored[place[same]] = clock.values[same]
    offset = stored - stored_s
    tolerance = max(step_s, _CLOCK_TOLERANCE_S)
    jumped = np.abs(np.diff(offset)) > tolerance  # NaN is no jump
    return np.where(np.abs(offset) <= tolerance, stored, stored_s), jumped


def _grown(
    time_s: Seconds, counters: npt.NDArray[np.float64], growth: npt.NDArray[np.float64], bad: npt.NDArray[np.bool_], grid: Grid
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """By how much each counter grew in each step (steps, cpus, modes), and which steps (steps, cpus) can be told.

    Of a step that a bad stretch cuts into, what lies before and behind the stretch counts, if it is at least half of the step:
    two missed scrapes are then three lost steps, wherever the samples lie between the edges.
    """
    edges_s, last = grid.edges_s, time_s.size - 1
    place = np.clip(np.searchsorted(time_s, edges_s, side="right") - 1, 0, last - 1)  # the sample before each edge
    weight = (edges_s - time_s[place]) / (time_s[place + 1] - time_s[place])  # 0 at that sample, 1 at the next
    inside = ((weight >= 0) & (weight <= 1))[:, None]
    at_edge = counters[place] + np.clip(weight, 0, 1)[:, None, None] * growth[place]
    first, behind = place[:-1] + (weight[:-1] >= 1), place[1:] + (weight[1:] > 0)  # the stretches of a step: first to behind - 1
    number = np.arange(last)[:, None]
    next_bad = np.minimum.accumulate(np.where(bad, number, last)[::-1], axis=0)[::-1]  # of each stretch, or a later one
    last_bad = np.maximum.accumulate(np.where(bad, number, -1), axis=0)  # of each stretch, or an earlier one
    begins = next_bad[np.minimum(first, last - 1)]  # (steps, cpus) the sample at which the first bad stretch begins
    ends = last_bad[np.maximum(behind - 1, 0)] + 1  # (steps, cpus) the sample at which the last bad stretch ends
    cut = (begins < behind[:, None]) | ~inside[:-1] | ~inside[1:]
    cpu = np.arange(bad.shape[1])
    before_s = np.where(inside[:-1], time_s[begins] - edges_s[:-1, None], 0)
    behind_s = np.where(inside[1:], edges_s[1:, None] - time_s[ends], 0)
    before = np.where((before_s > 0)[..., None], counters[begins, cpu] - at_edge[:-1], 0)
    after = np.where((behind_s > 0)[..., None], at_edge[1:] - counters[ends, cpu], 0)
    used = np.where(cut[..., None], before + after, np.diff(at_edge, axis=0))
    enough = np.clip(before_s, 0, None) + np.clip(behind_s, 0, None) >= 0.5 * grid.step_s
    whole = (~cut | enough) & ~np.isnan(used).any(axis=2)
    return np.clip(np.nan_to_num(used), 0, None), whole


def _our_claims(series: Sequence[Series]) -> list[tuple[str, tuple[int, ...], Series]]:
    """Who says to have which threads: job id, CPUs, and when it was said."""
    bindings: list[tuple[str, tuple[int, ...], Series]] = []
    for each in series:
        job_id = each.labels.get("jobid", "")
        if each.labels.get("__name__") == THREAD_JOB and _is_name(job_id) and _is_cpu(each):
            bindings.append((job_id, (int(each.labels["cpu"]),), each))
    return bindings


def _cgroup_claims(series: Sequence[Series]) -> list[tuple[str, tuple[int, ...], Series]]:
    """The same out of the CPU lists of cgroups: with the job's id next to them, in `cgroup_info`, or in the cgroup's path."""
    job_of = {
        each.labels["cgroup"]: each.labels["jobid"]
        for each in series
        if each.labels.get("__name__") == CGROUP_JOB and each.labels.get("cgroup") and each.labels.get("jobid")
    }
    parts = []
    for each in series:
        if each.labels.get("__name__") != CGROUP_CPUS:
            continue
        cgroup = each.labels.get("cgroup", "")
        in_path = _JOB_IN_PATH.search(cgroup)
        job_id = each.labels.get("jobid") or job_of.get(cgroup) or (in_path[1] if in_path else "")
        if _is_name(job_id):
            parts.append((job_id, cpus_of(each.labels.get("cpus", "")), each))
    return parts


def _is_name(text: str) -> bool:
    return 0 < len(text) <= _MOST_LABEL and text.isprintable()


def _at_steps(times: Seconds, table: Indices, grid: Grid, window_s: float, *, silence: int) -> Indices:
    """What the last poll before the end of each step said; `silence` where the last poll is too long ago."""
    ends_s = grid.edges_s[1:]
    usual_s = float(np.median(np.diff(times))) if times.size > 1 else grid.step_s
    last = np.searchsorted(times, ends_s, side="right") - 1
    fresh = (last >= 0) & (ends_s - times[np.maximum(last, 0)] <= 2.5 * max(usual_s, grid.step_s))
    window = np.floor(np.round((ends_s - grid.step_s / 2) / window_s, 9))  # counted from the beginning of Unix time
    is_sampled = np.isin(window, np.floor(times / window_s))
    quiet = np.where(is_sampled, silence, UNKNOWN_JOB)[:, None]
    job: Indices = np.where(fresh[:, None], table[np.maximum(last, 0)], quiet).astype(np.int32)
    return job
