"""Running the loop: one watcher per site, signals, pauses, signs of life, upkeep.

Site -> run_watch: turns until it is told to stop; every problem that a retry can help with is waited out.

Memory that the allocator holds and nobody uses -> back to the system.

A watch reads tables and frees them again, poll after poll, for months. Objects do not pile up (docs/watch.md), but glibc keeps
what lies between the pieces still in use: some 300 MB after a few hours, which looks like a leak.
"""

from __future__ import annotations

import os
import platform
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import polars as pl

from stormpetrel.errors import StateAwayError, StoreError, StormpetrelError
from stormpetrel.free_memory import return_free_memory
from stormpetrel.ingest.cluster import current_cluster
from stormpetrel.lifecycle.running_quality import running_quality_of
from stormpetrel.store.site import Site
from stormpetrel.store.source_health import SourceBook
from stormpetrel.store.upkeep.upkeep import tidy
from stormpetrel.store.watch_status import WatchStatus, read_status, read_watch, write_status
from stormpetrel.watch.actions.acting import Acting
from stormpetrel.watch.event_findings import EventFindings, GridStep, GridWatch
from stormpetrel.watch.incident_keeper import IncidentKeeper, IncidentRecorder
from stormpetrel.watch.job_findings import FIRST_LOOK, JobFindings
from stormpetrel.watch.logs import Log
from stormpetrel.watch.loop import Step, Watch, retry_pause_s
from stormpetrel.watch.metrics import WatchMetrics
from stormpetrel.watch.monitor import HealthMonitor
from stormpetrel.watch.notify.delivering import Delivering
from stormpetrel.watch.page_budget import DailyBudgets
from stormpetrel.watch.reading import LiveReader, Read, has_job_sources, nothing_to_watch
from stormpetrel.watch.service import Health, serving
from stormpetrel.watch.system_findings import SystemFindings
from stormpetrel.watch.trace_findings import TraceFindings, watches_traces
from stormpetrel.watch.training import TrainingSchedule
from stormpetrel.watch.watcher import LoopFirst, Stepping, SteppingWatcher, Watcher, WatcherThreads

_QUALITY_EVERY_S: Final = 60.0
_TIDY_EVERY_S: Final = 600.0
_MEMORY_EVERY_S: Final = 60.0
_CLUSTER_EVERY_S: Final = 30.0
_CLUSTER_PATIENCE_S: Final = 3.0  # for partitions and nodes: jobs are not to wait for them
_WAITING_EVERY_S: Final = 600.0  # what a new site waits for changes with each job: the log tells it now and then
_AT_MOST: Final = 50.0  # showing the quality may take one part in so many of the loop's time


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What the command line says."""

    address: str
    poll_s: float
    steps: int | None = None  # stop after so many turns
    stop_with_stdin: bool = False  # stop when whoever started us closes our standard input, or dies


def run_watch(site: Site, options: WatchOptions, log: Log, *, more_threads: Sequence[Stepping] = ()) -> None:
    """Watch a site until a signal comes; StoreBusyError where another process watches it already.

    `more_threads` make their steps in threads of their own, while the watch runs.
    """
    with site.state.sole("watch") as stay_sole, _stopping(options) as stop:
        runner = WatchRunner(site, options, log, more_threads=more_threads)
        with serving(options.address, runner.health, runner.metrics.text, hosts=site.settings.watch.hosts) as port:
            log.info("watching", site=site.settings.site.name, parts=runner.parts, metrics_port=port, pid=os.getpid())
            try:
                with runner.monitor.running():
                    _turn(runner, stop, options, stay_sole)
            finally:
                runner.end()
    log.info("stopped")


def _turn(runner: WatchRunner, stop: threading.Event, options: WatchOptions, stay_sole: Callable[[], None]) -> None:
    _notify_systemd("READY=1")
    runner.begin()
    runner.others.start(steps=options.steps)
    turns = 0
    while not stop.is_set():
        started = time.monotonic()
        with suppress(StateAwayError):  # the turn itself tells so, and waits
            stay_sole()
        pause = runner.turn()
        _notify_systemd("WATCHDOG=1")
        turns += 1
        if turns == options.steps:
            runner.others.join()
            return
        stop.wait(max(0.0, pause - (time.monotonic() - started)))


class WatchRunner:
    """The loop with everything around it; `begin`, one `turn` after the other, `end`."""

    def __init__(self, site: Site, options: WatchOptions, log: Log, *, more_threads: Sequence[Stepping] = ()) -> None:
        self.site, self.options, self.log = site, options, log
        book = SourceBook(patience_s=site.settings.watch.patience_s)
        book.recall(read_watch(site.state).sources)
        self._book = book
        self.health, self.metrics = Health(options.poll_s, book), WatchMetrics(book)
        self.monitor = HealthMonitor(site.state, book, log)
        self._watch = self._job_watch() if has_job_sources(site.settings) else None
        self._loop_first = LoopFirst()
        grid = GridWatch(site, book, give_way=self._loop_first.give_way)
        has_traces = watches_traces(site)
        if self._watch is None and not grid.is_active and not has_traces:
            raise nothing_to_watch(site.settings)
        self.parts = [
            name for name, there in (("jobs", self._watch), ("events", grid.is_active), ("traces", has_traces)) if there
        ]
        self._budgets = DailyBudgets(site)
        keeper = IncidentKeeper(site, self._budgets)
        self._findings = JobFindings(site, site.now() - FIRST_LOOK, state=keeper.state_of(JobFindings.name))
        self._jobs = SteppingWatcher(self._findings, site, keeper, log)
        state = keeper.state_of(SystemFindings.name)
        others: list[Watcher] = [SystemFindings(site, book, state=state, note_reserved=keeper.note_reserved)]
        if grid.is_active:
            others.append(EventFindings(site, grid, state=keeper.state_of(EventFindings.name), note=self._note_grid))
        if has_traces:
            state = keeper.state_of(TraceFindings.name)
            shown = self.metrics
            others.append(
                TraceFindings(
                    site, book, state=state, note=shown.note_traces, note_coverage=shown.note_coverage,
                    note_sliding=shown.note_sliding,
                )
            )  # fmt: skip
        self._delivering = Delivering(site, self.metrics, log, every_s=options.poll_s, silences=keeper.silences)
        steppings = (SteppingWatcher(watcher, site, keeper, log, poll_s=options.poll_s) for watcher in others)
        acting = Acting(site, log, every_s=options.poll_s, silences=keeper.silences)
        all_others: list[Stepping] = [IncidentRecorder(site), *steppings, self._delivering, acting, *more_threads]
        self.others = WatcherThreads(all_others, log, after=self.monitor.check)
        self._training = TrainingSchedule(site, for_jobs=self._watch is not None)
        self._horizon: datetime | None = None
        self.metrics.ask(ready=lambda: not (self.health.alive() or self.health.not_ready), lag_s=self._lag_s)
        self._started = datetime.now(UTC).isoformat(timespec="seconds")
        self._failures = 0
        self._predictions, self._late = 0, 0
        self._last_training: str | None = None
        self._every = {"quality": -1e9, "tidy": time.monotonic(), "cluster": -1e9, "memory": time.monotonic(), "waiting": -1e9}
        self._reported_problem: str | None = None
        self._reported_notes: frozenset[str] = frozenset()
        self._again_s: float | None = None  # what is seen once is looked at again before it is believed
        self._grid_problem: str | None = None
        self._waits_for: str | None = None  # what a first model, of the site or of a moment, waits for

    def _job_watch(self) -> Watch:
        return Watch(self.site, LiveReader(self.site, self._book, poll_s=self.options.poll_s), alive=self._caught_up)

    @property
    def predictions(self) -> int:
        """How many predictions were made since the start."""
        return self._predictions

    def begin(self) -> None:
        """Say that somebody watches: the first turn may have a week to catch up with."""
        self._say_alive(self.site.predictions.horizon() if self._watch else None)
        self.monitor.check()

    def _say_alive(self, horizon: datetime | None) -> None:
        self._horizon = horizon
        waiting = Step(Read(None), pl.DataFrame(), horizon, 0, 0.0)
        write_status(self.site.state, self._status(waiting, self.site.now()))

    def _lag_s(self) -> float:
        """How far what has been judged lies behind the site's clock at this moment; NaN where nothing is judged."""
        try:
            return float("nan") if self._horizon is None else max(0.0, (self.site.now() - self._horizon).total_seconds())
        except StormpetrelError:  # the clock of a simulated site, being set at this very moment
            return float("nan")

    def _caught_up(self, horizon: datetime) -> None:
        """A day of many: a turn that lasts for minutes is no reason to be restarted."""
        self._say_alive(horizon)
        self.metrics.beat()
        self.log.info("catching up", horizon=horizon)
        _notify_systemd("WATCHDOG=1")

    def turn(self) -> float:
        """One turn, before all work beside it; how long to pause afterwards."""
        with self._loop_first.turn():
            return self._turn()

    def _turn(self) -> float:
        self.metrics.beat()
        try:
            is_away = self._poll_jobs()
            if self._watch is None:
                self._say_alive(None)
                self.health.beat()
            self._train()
            self._look_after()
            self._failures = self._failures + 1 if is_away else 0
        except StormpetrelError as error:
            if not error.retry_helps:
                raise
            self._failures += 1
            self._tell_problem(str(error))
            self.health.beat(str(error))
            with suppress(StoreError):  # it may be the state store that does not answer
                self._leave_word(problem=str(error), stepped_real=datetime.now(UTC).isoformat())
        self.monitor.check()
        pause_s = retry_pause_s(self._failures, self.options.poll_s)
        return pause_s if self._again_s is None or self._failures else min(self._again_s, pause_s)

    def _poll_jobs(self) -> bool:
        """Judge what is new, where jobs are read; whether accounting is away, so that it is asked more rarely."""
        if self._watch is None:
            return False
        step = self._watch.step()
        self._note(step)
        if step.read.until is None:
            return True
        self._find(step.read.until)
        return False

    def _find(self, known_to: datetime) -> None:
        """Hand on what the records up to a time tell; where there is time, not before it is known how much may be sent."""
        now = self.site.now()
        if self.options.steps is None and not self._budgets.is_ready(now):
            return
        before = self._findings.state
        try:
            self._jobs.take(self._findings.live_step(known_to, now), now)
        except BaseException:
            self._findings.go_back(before)  # what was found and is not kept is found again
            raise

    def _note(self, step: Step) -> None:
        self._horizon = step.horizon
        self._predictions += step.predictions.height
        self._late += int(step.predictions["late"].sum())
        self.metrics.note_step(step, self.site.pace())
        step = self._with_waiting(step)
        self.health.beat(step.model_problem or "")
        self._tell_problem(None if step.model_problem == self._waits_for else step.model_problem)
        self._tell_notes(step.read.notes)
        self._again_s = step.read.again_s
        if step.read.new or step.read.changed or step.predictions.height:
            flagged = int(step.predictions["flagged"].sum())
            late = int(step.predictions["late"].sum())
            self.log.info(
                "step", new=step.read.new, changed=step.read.changed, predictions=step.predictions.height, at_risk=flagged,
                late=late, open_jobs=step.open_jobs, horizon=step.horizon, seconds=round(step.seconds, 3),
            )  # fmt: skip
        write_status(self.site.state, self._status(step, self.site.now()))

    def _with_waiting(self, step: Step) -> Step:
        """The step, with what a site without a model waits for in place of the words that there is none; the log hears of it."""
        missing = self._training.missing_model(self.site.now())
        before, self._waits_for = self._waits_for, missing or self._training.missing_moments(self.site.now())
        if self._waits_for and (not before or (self._waits_for != before and self._is_time("waiting", _WAITING_EVERY_S))):
            self._every["waiting"] = time.monotonic()
            self.log.info("waiting", what=self._waits_for)
        return replace(step, model_problem=missing) if missing and step.model_problem else step

    def _note_grid(self, step: GridStep) -> None:
        """Say, once per bucket, whether the grid as a whole is in normal operation; from the thread of events."""
        self.metrics.note_grid(step)
        is_of_source = step.problem in {source.problem for source in self._book.sources()}  # told as that source's
        if step.problem and step.problem != self._grid_problem and not is_of_source:
            self.log.warning("grid problem", what=step.problem)
        self._grid_problem = step.problem
        self._tell_alarm(step)

    def _tell_alarm(self, step: GridStep) -> None:
        newest = step.newest
        if newest is None:
            return
        if newest["alarm"]:
            self.log.warning("grid alarm", bucket=newest["bucket_start"], score=newest["score"], why=step.words())
        else:
            self.log.info("grid calm", bucket=newest["bucket_start"], score=newest["score"])

    def _status(self, step: Step, now: datetime, *, stopped: bool = False) -> WatchStatus:
        return WatchStatus(
            pid=os.getpid(), host=platform.node(), started=self._started, stepped=now.isoformat(),
            stepped_real=datetime.now(UTC).isoformat(), horizon=step.horizon.isoformat() if step.horizon else None,
            problem=step.model_problem, open_jobs=step.open_jobs, predictions=self._predictions,
            late=self._late, poll_s=self.options.poll_s, stopped=stopped, models=step.models, training=self._last_training,
            waits_for=self._waits_for,
        )  # fmt: skip

    def _tell_problem(self, problem: str | None) -> None:
        """Say once that something is wrong with the loop itself, and once that it is over."""
        if problem and problem != self._reported_problem:
            self.log.warning("problem", what=problem)
        elif self._reported_problem and not problem:
            self.log.info("problem over", what=self._reported_problem)
        self._reported_problem = problem

    def _tell_notes(self, notes: tuple[str, ...]) -> None:
        """Say once what is not told in full."""
        for note in notes:
            if note not in self._reported_notes:
                self.log.warning("note", what=note)
        self._reported_notes = frozenset(notes)

    def _train(self) -> None:
        now = self.site.now()
        report = self._training.finished(now)
        if report is not None:
            self._note_training(report)
        if self._training.due(now):
            self._training.start()
            self.log.info("training started")

    def _note_training(self, report: dict[str, Any]) -> None:
        result = report.get("problem") or report.get("why" if self._watch else "events") or "finished"
        self._last_training = str(result)
        self.metrics.trainings.labels("failed" if "problem" in report else "finished").inc()
        (self.log.warning if "problem" in report else self.log.info)("training", result=self._last_training)

    def _look_after(self) -> None:
        """What has to be done now and then: show how good the predictions were, and keep the tables in few files."""
        if self._is_time("quality", _QUALITY_EVERY_S):
            started = time.monotonic()
            since = self.site.now() - timedelta(days=self.site.settings.watch.quality_days)
            self.metrics.note_quality(running_quality_of(self.site, since=since))
            self._every["quality"] += _AT_MOST * (time.monotonic() - started)  # seldom where it takes long
        if self._is_time("tidy", _TIDY_EVERY_S):
            tidy(self.site)
        if self._is_time("memory", _MEMORY_EVERY_S):
            return_free_memory()
        if self._is_time("cluster", _CLUSTER_EVERY_S):  # read only if what is kept is older than slurm.cluster_minutes
            current_cluster(self.site, patience_s=_CLUSTER_PATIENCE_S)

    def _is_time(self, what: str, every_s: float) -> bool:
        if time.monotonic() - self._every[what] < every_s:
            return False
        self._every[what] = time.monotonic()
        return True

    def end(self) -> None:
        """Stop what runs beside the loop, and leave word."""
        self.others.end()
        self._delivering.end()
        self._training.stop()
        _notify_systemd("STOPPING=1")
        self._leave_word(stopped=True)

    def _leave_word(self, **changes: Any) -> None:
        """Change what our last sign of life says."""
        status = read_status(self.site.state)
        if status is not None and status.pid == os.getpid():
            write_status(self.site.state, replace(status, **changes))


@contextmanager
def _stopping(options: WatchOptions) -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set: the turn under way is finished, then the loop ends."""
    stop = threading.Event()
    before: dict[int, Any] = {}

    def ask(_number: int, _frame: object) -> None:
        stop.set()

    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    if options.stop_with_stdin:
        threading.Thread(target=_stop_at_end_of_stdin, args=(stop,), name="stdin", daemon=True).start()
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop_at_end_of_stdin(stop: threading.Event) -> None:
    sys.stdin.buffer.read()
    stop.set()


def _notify_systemd(message: str, environment: Callable[[str], str | None] = os.environ.get) -> None:
    """Tell systemd, where it started us and wants to know."""
    address = environment("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.setblocking(False)  # whoever does not read is no reason to stop watching
        try:
            notify.connect("\0" + address[1:] if address.startswith("@") else address)
            notify.sendall(message.encode())
        except OSError:
            return  # nobody listens, or nobody reads
