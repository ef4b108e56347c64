"""The watcher of CPU traces: reads counters from Prometheus as they come, scores each window as it ends, and names unusual nodes.

Site -> TraceFindings.step(now) -> findings. A window is scored as soon as it is whole; scores, and the windows that are kept, lie
in their tables with the cursor of what was read. Where no model was trained, the shipped encoder scores.

Late samples of CPU counters: which nodes of which past windows are read once more.

moments of nodes (alarms/trace_rules.py) -> LateWindows.next(...) -> PastWindow, one at a time. A window is scored when every node
has been scraped behind its end, or `prometheus.settle_s` after it; what a server receives later (an agent that was cut off, a
remote write that is behind) is read again twice within `prometheus.overlap_s`, for the nodes alone that had fewer windows than
usual. Nothing has to be kept for that: after a restart the table of scores says the same.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import Final

import polars as pl

from stormpetrel.alarms.trace_rules import (
    FAMILY,
    LOOK_BACK,
    OddWindow,
    known_troubles,
    node_moments,
    odd_moments,
    odd_node,
    region_moments,
)
from stormpetrel.errors import NoSamplesError
from stormpetrel.ingest.live_windows import LiveMoment, LiveWindows
from stormpetrel.lifecycle.live_scoring import take_job_starts, take_moment
from stormpetrel.lifecycle.live_sliding import LiveSliding
from stormpetrel.lifecycle.odd_nodes import JudgedMoment, LiveDetector, LiveMetrics
from stormpetrel.lifecycle.trace_models import FAMILY as MODELS
from stormpetrel.lifecycle.trace_models import Scored, TraceModel, load_trace_model, score_new_windows, with_regions
from stormpetrel.records.findings import Finding
from stormpetrel.records.traces import LIVE
from stormpetrel.sources.prometheus.cpu_traces import CURSOR, PrometheusTraces
from stormpetrel.store.site import Site
from stormpetrel.store.source_health import SourceBook
from stormpetrel.traces.detector.reasons import NodeFinding
from stormpetrel.watch.cluster_name import ClusterName
from stormpetrel.watch.trace_sampling import Coverage, TraceSampling, unusual_nodes

SOURCE: Final = "prometheus (traces)"
_NO_COUNTERS: Final = timedelta(minutes=10)  # until a server without CPU counters is asked again
_NEEDED: Final = ("node", "window_start", "window_s", "job_id", "flagged", "score", "max_iowait", "stands_for", "region")
_MOMENT: Final = timedelta(microseconds=1)
_TIME_FOR_LATE: Final = 0.3  # of a window, which is left before the end of the one that fills when late samples are read
_SHORTEST_S: Final = 0.2  # from one step to the next
_THREADS: Final = 1  # that score: what goes on beside has the other cores
_POLLS: Final = (0.25, 1.0)  # of `overlap_s` behind its end, at which a window is read again
_NODES_AT_ONCE: Final = 32  # so that the next window does not wait for it
_SEEN_WITHIN: Final = timedelta(hours=1)  # nodes of which nothing was heard for so long are gone
KnownNodes = Callable[[datetime, datetime], Collection[str]]


class TraceFindings:
    """Watches the CPU traces of one site, from where `state` was left; `note` hears of what was scored."""

    name = FAMILY

    def __init__(
        self,
        site: Site,
        book: SourceBook | None = None,
        *,
        state: str = "",
        note: Callable[[Scored], None] = lambda scored: None,
        note_coverage: Callable[[Coverage], None] = lambda coverage: None,
        note_sliding: Callable[[int], None] = lambda threads: None,
        source: PrometheusTraces | None = None,
    ) -> None:
        self._site, self._book = site, book or SourceBook()
        self._note, self._note_coverage, self._note_sliding = note, note_coverage, note_sliding
        self._sampling = TraceSampling(site)
        self._reported_to = datetime.fromisoformat(json.loads(state)["told_to"]) if state else None
        self._cluster = ClusterName(site)
        self._source = source
        self._live: LiveWindows | None = None
        self._not_before: datetime | None = None
        self._model: TraceModel | None = None
        self._training: str | None = None
        self._detector = LiveDetector(site.settings.traces.alarm_share)
        self._metrics = LiveMetrics(site.settings.traces.alarm_share)
        self._sliding = LiveSliding(site)
        self._odd: list[OddWindow] = []  # found and not yet returned
        self._moments: pl.DataFrame | None = None  # of the last day, as `node_moments` makes them
        self._late = LateWindows(window_s=site.settings.traces.window_s, overlap_s=site.settings.prometheus.overlap_s)
        self._came_late: set[tuple[str, datetime]] = set()  # nodes and moments that were read again, and are not told yet
        self._inside: pl.DataFrame | None = None  # of the last day, as `region_moments` makes them
        self._regions: int | None = None  # version of the table of known regions that the model has

    @property
    def every_s(self) -> float:
        """Seconds from one step to the next: a fraction of a window, and what is left until the end of one."""
        now = self._site.now()
        due = self._live.next_read(now) if self._live is not None else None
        tenth_s = max(1.0, self._site.settings.traces.window_s / 20)
        wait_s = tenth_s if due is None else (due - now).total_seconds()
        return max(_SHORTEST_S, wait_s / self._site.pace())

    @property
    def state(self) -> str:
        """Up to when every window was told."""
        return json.dumps({"told_to": self._reported_to.isoformat()}) if self._reported_to else ""

    def step(self, now: datetime) -> list[Finding]:
        """Return the nodes that the windows show which have come since the step before."""
        if self._not_before is not None and now < self._not_before:
            return []
        try:
            with self._book.poll(SOURCE, watcher=FAMILY, every_s=self._site.settings.traces.window_s / self._site.pace()) as seen:
                self._book.note_behind(SOURCE, self._sampling.text)
                seen(self._take_all(now))
                self._book.note_behind(SOURCE, self._sampling.text)
                self._take_late(now)
        except NoSamplesError:
            if self._site.cpu_windows.cursor(CURSOR) is not None or not self._site.settings.prometheus.background:
                raise
            # A server that is read for the background of events, and knows no CPU counters: that is no problem of it.
            self._book.drop(SOURCE)
            self._not_before = now + _NO_COUNTERS * self._site.pace()
            return []
        return [*self._findings(now), *self._odd_nodes(now)]

    def _take_all(self, now: datetime) -> int:
        """Score every window that has ended and is whole; how many were read."""
        if self._live is None:
            self._live = LiveWindows(self._site, self._source, choice=self._sampling)
        read = 0
        with self._sampling.working():
            for moment in self._live.moments(now):
                self._slide(moment.end.timestamp())
                self._take(moment)
                read += moment.report.read
            self._slide()
            take_job_starts(self._site, self._current_model(), self._live.job_starts())
        return read

    def _slide(self, end_s: float | None = None) -> None:
        """Score every second that has come; of a window that is cut, all of it, before its cursor is committed."""
        assert self._live is not None
        new = self._live.new_steps()
        if self._sampling.text:  # there is no time
            self._sliding.skip(new)
        else:
            self._sliding.push(self._current_model(), new)
            self._sliding.commit(end_s)
        self._note_sliding(self._sliding.threads)

    def _take(self, moment: LiveMoment) -> None:
        model = self._current_model()
        judged: list[JudgedMoment | None] = []

        def judge() -> JudgedMoment | None:
            if not judged:
                judged.append(self._detector.judge(model, moment.windows))
            return judged[0]

        def sample(scores: pl.DataFrame, nodes: pl.DataFrame) -> None:
            coverage = self._sampling.decide(moment, lambda: unusual_nodes(scores, nodes, one.odd if (one := judge()) else ()))
            self._note_coverage(coverage)

        taken = take_moment(self._site, model, moment, before_cursor=sample)
        lasting = self._detector.take(judge())
        self._odd += [odd_window(finding, moment.end) for finding in lasting]
        self._odd += [
            OddWindow(node.node, node.start, moment.end, node.score, threads=0, of_threads=0, what=node.what)
            for node in self._metrics.step(model, taken.nodes)
        ]
        self._model = taken.model
        self._note(taken.scored)
        self._note_moments(taken.scores, moment.end)

    def _note_moments(self, scores: pl.DataFrame, end: datetime) -> pl.DataFrame:
        """Take scored windows into what is known of the last days; return what they come to, by node and moment."""
        rows = scores.select(_NEEDED).with_columns(cluster=pl.lit(self._cluster.name()))
        new = node_moments(rows)
        if self._inside is not None:
            recent = self._inside.filter(pl.col("at") > end - 2 * LOOK_BACK)
            self._inside = pl.concat([recent, region_moments(rows)]).unique(["cluster", "node", "region", "at"], keep="last")
        known = self._reported_moments(end).filter(pl.col("at") > end - 2 * LOOK_BACK)
        self._moments = pl.concat([known, new]).unique(["cluster", "node", "at"], keep="last")
        return new

    def _take_late(self, now: datetime) -> None:
        """Read again a part of a past window that had gaps, where there is time before the next one ends."""
        assert self._live is not None
        end = self._live.filling_end
        window = timedelta(seconds=self._site.settings.traces.window_s)
        if end is None or self._moments is None:
            return
        waits_for_few = now - end > timedelta(seconds=self._site.settings.prometheus.settle_s / 2)
        if end - now < window * _TIME_FOR_LATE and not waits_for_few:
            return
        past = self._late.next(self._moments, self._live.nodes_in, end - window, now, was_judged=self._sampling.was_judged)
        if past is None:
            return
        moment = self._live.again(past.start, past.nodes)
        self._late.taken()
        if moment is None:
            return
        model = self._current_model()
        self._note(take_moment(self._site, model, moment, share=past.share).scored)
        rows = self._site.trace_scores.read(since=past.start, until=past.start + _MOMENT, model=model.name, version=model.version)
        before = self._reported_moments(now)
        new = self._note_moments(rows.filter(pl.col("trace") == LIVE, pl.col("node").is_in(past.nodes)).collect(), past.end)
        more = new.join(before, on=["cluster", "node", "at", "windows"], how="anti")
        self._came_late |= set(more.select("node", "at").iter_rows())

    def _reported_moments(self, before: datetime) -> pl.DataFrame:
        """What the model in use has said before; read from the table where it is not known yet."""
        if self._moments is None:
            model = self._current_model()
            after = self._reported_to or before - LOOK_BACK
            rows = self._site.trace_scores.read(since=after - LOOK_BACK, model=model.name, version=model.version)
            live = rows.filter(pl.col("trace") == LIVE).select(_NEEDED).collect()
            named = live.with_columns(cluster=pl.lit(self._cluster.name()))
            self._moments, self._inside = node_moments(named), region_moments(named)
        return self._moments

    def _findings(self, now: datetime) -> list[Finding]:
        """The nodes that became unusual since they were told last."""
        if self._moments is None and self._live is not None and self._site.cpu_windows.cursor(CURSOR) is None:
            return []
        moments = self._reported_moments(now)
        newest = moments["at"].max()
        after = self._reported_to or now - LOOK_BACK
        if not isinstance(newest, datetime) or (newest <= after and not self._came_late):
            return []
        model = self._current_model()
        recent = moments.filter(pl.col("at") > after - LOOK_BACK).sort("cluster", "node", "at")
        version = f"{model.name}/{model.version}"
        findings = odd_moments(recent, after, max(now, newest), model=version, late=self._came_late)
        if self._inside is not None:
            inside = self._inside.filter(pl.col("at") > after - LOOK_BACK)
            findings += known_troubles(inside, after, max(now, newest), model=version)
        self._reported_to = max(after, newest)
        self._came_late.clear()
        return findings

    def _odd_nodes(self, now: datetime) -> list[Finding]:
        """What was found odd of nodes as a whole since the step before."""
        odd, self._odd = self._odd, []
        if not odd:
            return []
        return detector_findings(odd, self._cluster.name(), now, self._current_model(), self._site.settings.traces.alarm_share)

    def _current_model(self) -> TraceModel:
        """The model in use; one that was promoted meanwhile is taken up, and scores the windows of the last day that are kept."""
        training = self._site.models.current_training(MODELS)
        name = training.name if training else ""
        if self._model is None or name != self._training:
            self._model, self._training = load_trace_model(self._site, threads=_THREADS), name
            self._moments = None
            self._regions = self._site.trace_regions.version()
            self._note(score_new_windows(self._site, self._model, since=self._site.now() - LOOK_BACK))
        elif (regions := self._site.trace_regions.version()) != self._regions:  # named or taken back meanwhile
            self._model, self._regions = with_regions(self._site, self._model), regions
        return self._model


def detector_findings(odd: Iterable[OddWindow], cluster: str, now: datetime, model: TraceModel, share: float) -> list[Finding]:
    """Return what was found odd by a model, as findings that are known at `now`."""
    version = f"{model.name}/{model.version}"
    return [odd_node(window, cluster, now, share=share, model=version) for window in odd]


def odd_window(finding: NodeFinding, end: datetime) -> OddWindow:
    """Return what the detector says of a node, with the end of its window, as alarms take it."""
    return OddWindow(
        name=finding.node,
        since=datetime.fromtimestamp(finding.since_s, UTC),
        until=end,
        score=finding.score,
        threads=len(finding.threads),
        of_threads=finding.of_threads,
        what=finding.what,
    )


def watches_traces(site: Site) -> bool:
    """Whether there is a Prometheus whose CPU counters can be read, and something that scores them."""
    settings = site.settings
    return bool(settings.prometheus.url) and settings.traces.watch and find_spec("onnxruntime") is not None


@dataclass(frozen=True, slots=True)
class PastWindow:
    """A window that is over, and the nodes of which some threads are missing in it."""

    start: datetime
    end: datetime
    nodes: frozenset[str]
    share: float  # of the nodes of the site


class LateWindows:
    """Chooses what is read again; `taken` is called when it was."""

    def __init__(self, *, window_s: float, overlap_s: float) -> None:
        self._window, self._overlap = timedelta(seconds=window_s), timedelta(seconds=overlap_s)
        self._polls: dict[datetime, int] = {}  # by end of the window, how often it was looked at
        self._waiting: list[PastWindow] = []

    def next(
        self,
        moments: pl.DataFrame,
        known: KnownNodes,
        passed_to: datetime,
        now: datetime,
        *,
        was_judged: Callable[[str, datetime], bool] = lambda node, start: True,
    ) -> PastWindow | None:
        """Return what is to be read again now; None where nothing is.

        Parameters
        ----------
        moments
            Of `node_moments`: how many windows each node had at each moment.
        known
            Says of which nodes the server has samples from one time to another; some may never have had a whole window.
        passed_to
            The end of the last window that was cut.
        was_judged
            Whether a node was to be judged in the window that began at a time: one that had not its turn is not missing.
        """
        if not self._waiting and moments.height:
            for end in self._ends(moments, passed_to, now):
                self._waiting += self._missing(moments, known, end, was_judged)
        return self._waiting[0] if self._waiting else None

    def taken(self) -> None:
        """Note that what `next` returned was read."""
        self._waiting.pop(0)

    def _ends(self, moments: pl.DataFrame, passed_to: datetime, now: datetime) -> Iterator[datetime]:
        """The ends of windows that are due for a look, the oldest first."""
        first = moments["at"].min()
        assert isinstance(first, datetime)
        oldest = max(first, now - self._overlap - self._window)
        window_s = self._window.total_seconds()
        numbers = range(math.ceil(oldest.timestamp() / window_s), math.floor(passed_to.timestamp() / window_s) + 1)
        ends = [datetime.fromtimestamp(number * window_s, UTC) for number in numbers]
        before = self._polls
        self._polls = {end: sum(end + look * self._overlap <= now for look in _POLLS) for end in ends}
        yield from (end for end, looks in self._polls.items() if looks > before.get(end, 0))

    def _missing(
        self, moments: pl.DataFrame, known: KnownNodes, end: datetime, was_judged: Callable[[str, datetime], bool]
    ) -> Iterator[PastWindow]:
        lately = moments.filter(pl.col("at").is_between(end - _SEEN_WITHIN, end + _SEEN_WITHIN))
        usual = dict(lately.group_by("node").agg(pl.col("windows").max()).iter_rows())
        there = dict(lately.filter(pl.col("at") == end).select("node", "windows").iter_rows())
        start = end - self._window
        everyone = {node for node in {*usual, *known(start, end)} if was_judged(node, start)}
        missing = sorted(node for node in everyone if there.get(node, 0) < usual.get(node, 1))
        for begin in range(0, len(missing), _NODES_AT_ONCE):
            nodes = frozenset(missing[begin : begin + _NODES_AT_ONCE])
            yield PastWindow(start, end, nodes, len(nodes) / len(everyone))
