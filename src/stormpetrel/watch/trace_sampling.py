"""Which nodes the watch of CPU traces reads while it is behind, and for how long: measured, decided once, and written down.

Site -> TraceSampling.includes(node, window) for whoever reads; TraceSampling.decide when a window was scored, before its cursor
is committed. A decision is a row of the table `trace_coverage`, and holds for the next window, whoever reads it: a watch that was
killed goes on with the same nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import polars as pl

from stormpetrel.ingest.live_windows import LiveMoment
from stormpetrel.ingest.traces import TraceReport
from stormpetrel.records.findings import SubjectKind
from stormpetrel.records.trace_coverage import (
    HIGHEST_LOAD,
    SamplingPlan,
    chosen_first,
    coverage_text,
    next_plan,
    rotation_of,
)
from stormpetrel.store.site import Site

_REMEMBERED: Final = 1000  # windows of which it is known who was judged: late samples of them may be read


@dataclass(frozen=True, slots=True)
class Coverage:
    """What a window came to: how late it was scored, how many nodes were judged in it, and how many were not."""

    every: int  # from the next window on
    lag_s: float
    load: float
    judged: int
    skipped: int
    passed_over: int  # windows that nobody will judge


class TraceSampling:
    """The choice of nodes of one watch of traces."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._window_s = site.settings.traces.window_s
        self._plans: dict[int, SamplingPlan | None] = {}  # by window; None: nobody is judged in it
        self._after: dict[int, int] = {}
        self._threads = 0  # that the server has counters of
        self._begun = -1  # the newest window of which anything was read
        self._load_s = 0.0  # spent on the window under way
        self._since: datetime | None = None  # when the work under way began
        rows = site.trace_coverage.read().sort("window_start").tail(_REMEMBERED).collect()
        for row in rows.iter_rows(named=True):
            self._remember(row)

    def includes(self, node: str, window: int) -> bool:
        """Whether a node is judged in the window of this number."""
        plan = self.plan(window)
        return plan is not None and plan.includes(node, window)

    def plan(self, window: int) -> SamplingPlan | None:
        """Who is judged in a window; None: nobody, it was passed over."""
        if window not in self._plans:
            before = [number for number in self._plans if number < window]
            newest = self._plans[max(before)] if before else None
            self._plans[window] = SamplingPlan() if newest is None else SamplingPlan(newest.every, calm=newest.calm)
        return self._plans[window]

    def after(self, window: int) -> int:
        """The window that is judged after this one."""
        return self._after.get(window, window + 1)

    def begin(self, window: int, threads: int) -> None:
        """Note how many threads there are; a first window is never read with more than there is room for."""
        self._threads = threads
        is_first = window > self._begun and window not in self._plans
        self._begun = max(self._begun, window)
        if is_first and not any(number < window for number in self._plans) and self._least > 1:
            start = datetime.fromtimestamp((window - 1) * self._window_s, UTC)
            nobody = LiveMoment(start, start, pl.DataFrame(), None, TraceReport())
            self._write(nobody, SamplingPlan(), SamplingPlan(self._least), passed=0, lag_s=0.0, load=0.0)

    @property
    def _least(self) -> int:
        """The rotation in which there is room for a window."""
        settings = self._site.settings.traces
        least = rotation_of(self._threads, settings.most_threads)
        return next_plan(SamplingPlan(), load=0.0, lag_windows=0.0, longest=settings.rotation, least=least).every

    def was_judged(self, node: str, start: datetime) -> bool:
        """Whether a node was judged in the window that began at a moment."""
        number = self._number(start)
        return number not in self._plans or self.includes(node, number)

    @property
    def text(self) -> str:
        """What is left out in the newest window that anything was decided about; empty: nothing is."""
        plan = self._plans[max(self._plans)] if self._plans else None
        return coverage_text(plan.every, self._window_s) if plan is not None and plan.every > 1 else ""

    @contextmanager
    def working(self) -> Iterator[None]:
        """Reading and scoring are under way: their time is that of the window that is decided about next."""
        self._since = self._site.now()
        try:
            yield
        except BaseException:
            self._load_s = 0.0  # the window is read again from its begin
            raise
        else:
            self._load_s += self._spent(self._site.now())
        finally:
            self._since = None

    def decide(self, moment: LiveMoment, unusual: Callable[[], Iterable[str]]) -> Coverage:
        """Decide who is judged in the next window, and write it down where it is not everybody.

        `unusual` are the nodes that are to be judged again whose turn or not, the most unusual first.
        """
        now, number = self._site.now(), self._number(moment.start)
        load = (self._load_s + self._spent(now)) / self._window_s
        self._load_s, self._since = 0.0, now if self._since is not None else None
        lag_s = (now - moment.end).total_seconds()
        plan = self.plan(number) or SamplingPlan()
        if number in self._after:  # killed between this decision and the cursor: it holds
            known = self.plan(self._after[number]) or SamplingPlan()
            return self._coverage(moment, known.every, lag_s, load, self._after[number] - number - 1)
        longest = self._site.settings.traces.rotation
        following = next_plan(plan, load=load, lag_windows=lag_s / self._window_s, longest=longest, least=self._least)
        if following.every == 1 and plan.every == 1:
            self._plans[number + 1] = following
            self._forget(number)
            return self._coverage(moment, 1, lag_s, load, 0)
        passed = self._passed_over(plan, following, load, lag_s)
        if following.every > 1 and not passed:
            first = chosen_first(self._of_incidents(), unusual(), nodes=moment.nodes, every=following.every)
            following = replace(following, first=first)
        self._write(moment, plan, following, passed, lag_s, load)
        return self._coverage(moment, following.every, lag_s, load, passed)

    def _coverage(self, moment: LiveMoment, every: int, lag_s: float, load: float, passed: int) -> Coverage:
        return Coverage(every, lag_s, load, moment.nodes - moment.left_out, moment.left_out, passed)

    def _passed_over(self, plan: SamplingPlan, following: SamplingPlan, load: float, lag_s: float) -> int:
        """How many windows are given up: where the longest rotation is not enough, and a whole one lies behind."""
        behind = math.floor(lag_s / self._window_s)
        if following.every == plan.every and load > HIGHEST_LOAD and behind > self._site.settings.traces.rotation:
            return behind - 1
        return 0

    def _write(
        self, moment: LiveMoment, plan: SamplingPlan, following: SamplingPlan, passed: int, lag_s: float, load: float
    ) -> None:
        row: dict[str, Any] = {
            "cluster": self._site.settings.site.cluster or "cluster",
            "window_start": moment.start,
            "window_s": self._window_s,
            "every": plan.every,
            "nodes": moment.nodes,
            "judged": moment.nodes - moment.left_out,
            "skipped": moment.left_out,
            "passed_over": passed,
            "lag_s": lag_s,
            "load": load,
            "next_every": following.every,
            "next_calm": following.calm,
            "next_first": sorted(following.first),
        }
        self._site.trace_coverage.append(row)
        self._remember(row)
        self._forget(self._number(moment.start))

    def _remember(self, row: dict[str, Any]) -> None:
        number = round(row["window_start"].timestamp() / row["window_s"])
        if abs(row["window_s"] - self._window_s) > 1e-3:  # windows had another length then
            return
        following = number + row["passed_over"] + 1
        self._plans.setdefault(number, SamplingPlan(row["every"]))
        self._plans.update(dict.fromkeys(range(number + 1, following)))
        self._plans[following] = SamplingPlan(row["next_every"], frozenset(row["next_first"]), row["next_calm"])
        self._after[number] = following

    def _forget(self, number: int) -> None:
        for known in (self._plans, self._after):
            for old in [earlier for earlier in known if earlier < number - _REMEMBERED]:
                del known[old]

    def _of_incidents(self) -> list[str]:
        """The nodes of open incidents, those of the newest first."""
        subjects = (subject for incident in self._site.incidents.list(is_open=True) for subject in incident.subjects)
        return [subject.name for subject in subjects if subject.kind == SubjectKind.NODE]

    def _number(self, start: datetime) -> int:
        return round(start.timestamp() / self._window_s)

    def _spent(self, now: datetime) -> float:
        return 0.0 if self._since is None else max(0.0, (now - self._since).total_seconds())


def unusual_nodes(scores: pl.DataFrame, nodes: pl.DataFrame, odd: Iterable[str]) -> list[str]:
    """Return the nodes to look at again: those that the detector finds odd, then those with flags or in a known region.

    `scores` and `nodes` are of TRACE_SCORE_SCHEMA and NODE_SCORE_SCHEMA; the highest score comes first.
    """
    marked = scores.filter(pl.col("flagged") | pl.col("region").is_not_null())
    highest = marked.group_by("node").agg(pl.col("score").max()).sort("score", "node", descending=[True, False])
    far = nodes.filter(pl.col("unusual").is_not_null()).sort("score", "node", descending=[True, False])
    return [*sorted(odd), *highest["node"], *far["node"]]
