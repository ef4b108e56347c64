"""What `watch` bears: 200 job events a second, a week at speed; and how soon after its start it predicts.

`python -m benchmarks.watch_jobs [--jobs N] [--rate EVENTS_PER_S] [--minutes M] [--week-minutes M] [--only looks load week]`: a
site with a history of simulated jobs over four weeks and a model of them; the watch reads what a `sacct` prints, which this
process answers. `looks`: look by look, five seconds of events each, in a process of its own; CPU alone, for other programs on the
machine change it less than the clock's time. `load`: `stormpetrel watch` at real time; the lag is that in the table, from a
moment to the commit of its prediction. `week`: the site's clock runs faster, a week at the history's own rate, memory by hour.
CPU is that of the watch, without its `sacct` and who answers. Each part is replaced on its own in
benchmarks/results/watch_jobs.json; the memory of the week is drawn in docs/figures/watch-memory.svg.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from tests.parts.command_line import change_settings, start
from tests.parts.quick_sacct import answering, write_quick_sacct

from benchmarks.jobs import simulated
from stormpetrel.config import settings_from
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.jobs.predictor import known_by
from stormpetrel.lifecycle.job_models import enter_job_models, fit_job_models
from stormpetrel.records.times import fixed_clock, running_clock
from stormpetrel.simulate.fakes import sacct as fake_sacct
from stormpetrel.simulate.feed import Feed, as_of, record_feed, set_clock, write_fake_sacct
from stormpetrel.simulate.writing import sacct_text
from stormpetrel.sources.slurm.live import live_sources
from stormpetrel.store.site import Site, create_site, open_site

RESULTS = Path(__file__).parent / "results" / "watch_jobs.json"
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "watch-memory.svg"
RATE, START_S, POLL_S = (
    200.0,
    20.0,
    5.0,
)  # asked: events a second on two cores; from the command to the first prediction; the watch's own pause
HISTORY = timedelta(days=28)
_BEFORE = timedelta(minutes=15)  # the stream has run for so long when the watch begins: as many jobs end as begin
_LEARNT = 40_000
_WARM_UP_S = 60.0
_WEEK = timedelta(days=7)
_TICKS = os.sysconf("SC_CLK_TCK")
_BETWEEN = "\x1f"
_TIMES = ["submit_time", "eligible_time", "start_time", "end_time"]


def history_of(jobs: int) -> tuple[pl.DataFrame, datetime]:
    """About so many jobs of four weeks, with those of the week after, and when the four weeks end."""
    once = simulated()
    end: datetime = once["submit_time"].max() - timedelta(days=1)  # type: ignore[assignment,operator]
    now = end - _WEEK
    recent = once.filter(pl.col("submit_time") > now - HISTORY)
    copies = max(1, round(jobs / recent.filter(pl.col("submit_time") <= now).height))
    parts = [
        recent.with_columns(
            job_id=pl.col("job_id") * copies + copy,
            job_id_raw=pl.col("job_id_raw") * copies + copy,
            user=pl.col("user") + f"-{copy}",
            node_list=pl.col("node_list").str.replace(r"^n", f"r{copy}n"),
        )
        for copy in range(copies)
    ]
    return pl.concat(parts).sort("submit_time"), now


def stream_of(past: pl.DataFrame, now: datetime, *, rate: float, minutes: float, seed: int = 0) -> pl.DataFrame:
    """Jobs like those of the past, each with three events, so many events a second; they wait for seconds and run for minutes."""
    rng = np.random.default_rng(seed)
    first = now - _BEFORE
    seconds = _BEFORE.total_seconds() + 60 * minutes
    count = int(rate / 3 * seconds)
    rows = past.filter(pl.col("start_time").is_not_null(), pl.col("end_time").is_not_null())
    rows = rows[rng.integers(0, rows.height, count)]
    submit = np.sort(rng.uniform(0, seconds, count)).astype(np.int64)
    wait = rng.exponential(20, count).astype(np.int64)
    run = np.minimum(rows["elapsed_s"].fill_null(60).to_numpy(), 1 + rng.exponential(120, count)).astype(np.int64)
    offsets = {"submit_time": submit, "eligible_time": submit, "start_time": submit + wait, "end_time": submit + wait + run}
    ids = pl.Series(10**8 + np.arange(count))
    moments = {name: pl.lit(first) + pl.duration(seconds=pl.lit(pl.Series(name, value))) for name, value in offsets.items()}
    return rows.with_columns(
        **{name: moment.cast(past.schema[name]) for name, moment in moments.items()},
        job_id=ids, job_id_raw=ids, array_task=pl.lit(None, past.schema["array_task"]), elapsed_s=pl.Series(run.astype(float)),
    )  # fmt: skip


class Accounting:
    """Answers like a `sacct` that has its answers at hand: what has ended is written once, not at each look."""

    def __init__(self) -> None:
        self._ended: dict[tuple[str, ...], dict[datetime, str]] = {}  # by the form that was asked for and the second of the end
        self._jobs: dict[str, pl.DataFrame] = {}
        self._parser = argparse.ArgumentParser()
        for names in (("--feed",), ("-S", "--starttime"), ("-E", "--endtime"), ("-o", "--format"), ("--delimiter",)):
            self._parser.add_argument(*names)

    def answer(self, arguments: list[str], *, times: str) -> str:
        """Return what sacct prints for these arguments."""
        asked, _ = self._parser.parse_known_args(arguments)
        delimiter = asked.delimiter or "|"
        if not (asked.format and asked.starttime and asked.endtime):
            return fake_sacct.answer(arguments, times=times)
        feed = Feed(Path(asked.feed))
        if asked.feed not in self._jobs:
            self._jobs[asked.feed] = feed.truth().drop("submitted").collect().sort("end_time")
        jobs, now = self._jobs[asked.feed], feed.now()
        since, until = (datetime.fromisoformat(text).replace(tzinfo=UTC) for text in (asked.starttime, asked.endtime))
        form: dict[str, Any] = {"fields": asked.format.split(","), "delimiter": _BETWEEN, "times": times}
        blocks = self._ended.setdefault((asked.feed, asked.format, times), {})
        shown = jobs.filter(pl.col("submit_time") <= now, pl.col("submit_time") < until, pl.col("end_time") >= since)
        live = shown.filter(pl.col("end_time") > now)
        over = shown.filter(pl.col("end_time") <= now)
        if until - since > timedelta(hours=1):
            return (sacct_text(over, **form) + sacct_text(as_of(live, now), **form)).replace(_BETWEEN, delimiter)
        seconds = over["end_time"].unique().sort().to_list()
        new = over.filter(~pl.col("end_time").is_in([second for second in seconds if second in blocks]))
        for (second,), rows in new.partition_by("end_time", as_dict=True).items():
            blocks[second] = sacct_text(rows, **form)
        text = "".join(blocks[second] for second in seconds) + sacct_text(as_of(live, now), **form)
        return text.replace(_BETWEEN, delimiter)  # which is another one each time


def make_site(folder: Path, frames: Sequence[pl.DataFrame], now: datetime, address: str) -> None:
    """A site that has read and learnt what was known at a moment."""
    slurm = {"sacct": str(folder.resolve() / "feed" / "sacct"), "pause_s": 0.0, "chunk_days": 31.0}
    slurm["since"] = f"{now - HISTORY - timedelta(days=2):%Y-%m-%d}"
    values: dict[str, object] = {
        "site": {"name": "load", "cluster": frames[0]["cluster"][0], "feed": "feed"},
        "slurm": slurm, "watch": {"poll_s": POLL_S, "address": "", "retrain_hours": 0.0},
    }  # fmt: skip
    with create_site(folder, settings_from(values)) as site:
        record_feed(frames, folder / "feed", fixed_clock(now))
        write_fake_sacct(folder / "feed")
        write_quick_sacct(folder / "feed", address)
        for source in live_sources(site.settings.slurm, site.settings.site, site.jobs.cursor, now=now):
            ingest_jobs(site, source)
        recent = known_by(pl.concat(frames), now).sort("submit_time").tail(_LEARNT)
        enter_job_models(site, fit_job_models(site, until=now, jobs=recent), promoted_by="benchmark", why="a benchmark")


class Watching:
    """A running `watch`, what it uses, and what it has logged."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.started = process, time.monotonic()

    def first_predictions_s(self) -> float:
        """Seconds from its start until predictions can be read."""
        assert self.process.stderr
        for line in self.process.stderr:
            fact = json.loads(line)
            if fact["event"] == "step" and fact["predictions"]:
                os.set_blocking(self.process.stderr.fileno(), False)
                return time.monotonic() - self.started
        raise SystemExit(f"The watch ended: {self.process.wait()}")

    def log(self) -> list[dict[str, Any]]:
        """What it has logged since it was last asked."""
        assert self.process.stderr
        lines = []
        while line := self.process.stderr.readline():
            lines.append(json.loads(line))
        return lines

    def cpu_s(self) -> tuple[float, float]:
        """CPU seconds of its own, and of the commands that it ran."""
        words = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        own, own_system, children, children_system = (int(words[position]) / _TICKS for position in (11, 12, 13, 14))
        return own + own_system, children + children_system

    def resident_bytes(self) -> int:
        """Its memory now."""
        return resident_bytes(self.process.pid)


def resident_bytes(process: int | str) -> int:
    """The memory of a process now."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]


@contextmanager
def watching(folder: Path) -> Iterator[Watching]:
    process = start(folder, "watch", "--json")
    try:
        yield Watching(process)
    finally:
        assert process.stderr
        os.set_blocking(process.stderr.fileno(), True)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)


def under_load(made: Path, frames: Sequence[pl.DataFrame], now: datetime, options: argparse.Namespace) -> dict[str, Any]:
    """So many events a second at real time: lag, CPU, memory; and how soon a watch that is started predicts, twice."""
    with copied(made) as folder:
        set_clock(folder / "feed", running_clock(now))
        with watching(folder) as watch:
            first_start_s = watch.first_predictions_s()
            time.sleep(_WARM_UP_S)
            with open_site(folder) as site:
                since, cpu, began = site.now(), watch.cpu_s(), time.monotonic()
                memory, steps = [], []
                while time.monotonic() - began < 60 * options.minutes - 2 * _WARM_UP_S:
                    time.sleep(5.0)
                    memory.append(watch.resident_bytes())
                    steps += [fact for fact in watch.log() if fact["event"] == "step"]
                until, seconds, used = site.now(), time.monotonic() - began, watch.cpu_s()
                time.sleep(30.0)
                lag = lags(site, since, until)
                events = sum(
                    frame.filter(pl.col(name).is_between(since, until)).height
                    for frame in frames
                    for name in _TIMES
                    if name != "eligible_time"
                )
        with watching(folder) as watch:  # what it has missed is little: as after a restart of the service
            second_start_s = watch.first_predictions_s()
    return {
        "events_per_s": round(events / seconds, 1),
        "seconds": round(seconds),
        "predictions": lag["predictions"],
        "lag_p50_s": lag["p50_s"],
        "lag_p99_s": lag["p99_s"],
        "late": lag["late"],
        "turn_p50_s": round(float(np.median([fact["seconds"] for fact in steps])), 2),
        "turn_p99_s": round(float(np.quantile([fact["seconds"] for fact in steps], 0.99)), 2),
        "own_cpu_share": round((used[0] - cpu[0]) / seconds, 3),
        "commands_cpu_share": round((used[1] - cpu[1]) / seconds, 3),
        "resident_bytes": memory,
        "first_start_s": round(first_start_s, 1),
        "second_start_s": round(second_start_s, 1),
    }


def by_looks(made: Path, now: datetime, options: argparse.Namespace) -> dict[str, Any]:
    """The same events, look by look every five seconds of the site's clock: CPU alone, which other programs change little."""
    with copied(made) as folder:
        looks = round(60 * options.minutes / POLL_S)
        words = [sys.executable, "-m", "benchmarks.watch_jobs", "--walk", str(folder), "--looks", str(looks)]
        set_clock(folder / "feed", fixed_clock(now))
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        walked: dict[str, Any] = json.loads(done.stdout)
    cpu_s, later = np.array(walked["cpu_s"][3:]), walked["predictions"][3:]  # the first looks catch up
    return {
        "looks": len(cpu_s),
        "predictions_per_s": round(sum(later) / len(later) / POLL_S, 1),
        "start_cpu_s": round(walked["start_cpu_s"], 2),
        "look_cpu_p50_s": round(float(np.median(cpu_s)), 2),
        "look_cpu_p99_s": round(float(np.quantile(cpu_s, 0.99)), 2),
        "cpu_share": round(float(cpu_s.mean()) / POLL_S, 3),
        "parts_cpu_s": {name: round(value, 3) for name, value in walked["parts_cpu_s"].items()},
        "resident_bytes": walked["resident_bytes"],
    }


def walk(folder: Path, looks: int) -> None:
    """Make so many looks in this process, and print what each took; commands that it runs are not counted."""
    from stormpetrel.watch.logs import Log
    from stormpetrel.watch.running import WatchOptions, WatchRunner

    cpu_s, predictions, memory = [], [], []
    parts = {"loop": 0.0, "others": 0.0}
    with open_site(folder) as site:
        now = site.now()
        runner = WatchRunner(site, WatchOptions("", POLL_S, steps=looks), Log(io.StringIO()))
        runner.begin()
        for number in range(looks):
            set_clock(folder / "feed", fixed_clock(now + timedelta(seconds=POLL_S * number)))
            before, started = runner.predictions, time.process_time()
            runner.turn()
            turned = time.process_time()
            runner.others.step_once()
            cpu_s.append(time.process_time() - started)
            predictions.append(runner.predictions - before)
            memory.append(resident_bytes("self"))
            if number == 0:
                start_cpu_s = turned
            elif number > 2:
                parts["loop"] += (turned - started) / (looks - 3)
                parts["others"] += (time.process_time() - turned) / (looks - 3)
        runner.end()
    told = {
        "cpu_s": cpu_s,
        "predictions": predictions,
        "start_cpu_s": start_cpu_s,
        "resident_bytes": memory,
        "parts_cpu_s": parts,
    }
    print(json.dumps(told))


def lags(site: Site, since: datetime, until: datetime) -> dict[str, Any]:
    """From a moment to the time from which on its prediction could be read."""
    said = site.predictions.table.scan().filter(pl.col("moment_time").is_between(since, until))
    lag = said.select(lag_s=(pl.col("predicted_at") - pl.col("moment_time")).dt.total_milliseconds() / 1e3, late="late").collect()
    return {
        "predictions": lag.height,
        "p50_s": round(float(np.median(lag["lag_s"])), 2),
        "p99_s": round(float(np.quantile(lag["lag_s"], 0.99)), 2),
        "late": int(lag["late"].sum()),
    }


def over_a_week(made: Path, now: datetime, options: argparse.Namespace) -> dict[str, Any]:
    """A week of the history's own rate, in some minutes: memory by hour of the site's clock."""
    with copied(made) as folder:
        change_settings(folder, watch={"poll_s": 1.0})
        speed = _WEEK.total_seconds() / (60 * options.week_minutes)
        set_clock(folder / "feed", running_clock(now, speed=speed))
        with watching(folder) as watch:
            watch.first_predictions_s()
            hours, memory, turns = [], [], 0
            with open_site(folder) as site:
                cpu, began = watch.cpu_s(), time.monotonic()
                while site.now() < now + _WEEK:
                    time.sleep(3600 / speed)
                    hours.append(round((site.now() - now) / timedelta(hours=1), 1))
                    memory.append(watch.resident_bytes())
                    turns += sum(fact["event"] == "step" for fact in watch.log())
                seconds, used = time.monotonic() - began, watch.cpu_s()
                incidents = len(site.incidents.list())
    half = len(memory) // 2
    return {
        "minutes": round(seconds / 60, 1),
        "turns": turns,
        "incidents": incidents,
        "own_cpu_s": round(used[0] - cpu[0], 1),
        "hours": hours,
        "resident_bytes": memory,
        "resident_first_day_bytes": int(np.median(memory[: max(1, len(memory) // 7)])),
        "resident_last_day_bytes": int(np.median(memory[-max(1, len(memory) // 7) :])),
        "growth_second_half_bytes_per_day": round(float(np.polyfit(np.array(hours[half:]) / 24, memory[half:], 1)[0])),
    }


def memory_svg(week: dict[str, Any]) -> str:
    """Resident memory by hour; grey and a colour (Okabe–Ito) that can be read on white and on black."""
    top = 0.25 * np.ceil(max(week["resident_bytes"]) / 0.25e9 + 0.01)
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 250" font-family="sans-serif" font-size="12" fill="#777">']
    parts.append('<text x="60" y="18" font-size="14">Resident memory of the watch over a simulated week, GB</text>')
    for tick in np.linspace(0, top, 5):
        y = 210 - 170 * tick / top
        parts.append(f'<path d="M60 {y:.0f}h630" stroke="#777" stroke-opacity=".4"/>')
        parts.append(f'<text x="54" y="{y + 4:.0f}" text-anchor="end">{tick:.2g}</text>')
    parts += [f'<text x="{60 + 90 * day}" y="228" text-anchor="middle">{day}</text>' for day in range(8)]
    parts.append('<text x="375" y="245" text-anchor="middle">days</text>')
    points = zip(week["hours"], week["resident_bytes"], strict=True)
    path = " ".join(f"{60 + 630 * hour / 168:.1f},{210 - 170 * size / 1e9 / top:.1f}" for hour, size in points)
    parts.append(f'<polyline points="{path}" fill="none" stroke="#0072B2" stroke-width="2"/>')
    return "\n".join([*parts, "</svg>", ""])


@contextmanager
def copied(made: Path) -> Iterator[Path]:
    """A copy of a site that may be changed; its `sacct` answers from the copied feed."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "site"
        shutil.copytree(made, copy)
        for path in (copy / "site.toml", copy / "feed" / "sacct"):
            path.write_text(path.read_text().replace(str(made.resolve()), str(copy.resolve())))
        yield copy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=300_000)
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--week-minutes", type=float, default=10.0)
    parser.add_argument("--only", nargs="+", default=["looks", "load", "week"], choices=["looks", "load", "week"])
    parser.add_argument("--walk", type=Path, help=argparse.SUPPRESS)  # in a process of its own
    parser.add_argument("--looks", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.walk:
        walk(options.walk, options.looks)
        return
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "polars": pl.__version__}
    result: dict[str, Any] = {"machine": machine, "asked": {"events_per_s": RATE, "start_s": START_S}}
    with tempfile.TemporaryDirectory() as folder, answering(Accounting().answer) as address:
        jobs, now = history_of(options.jobs)
        known = jobs.filter(pl.col("submit_time") <= now)
        if {"looks", "load"} & set(options.only):
            frames = [known, stream_of(known, now, rate=options.rate, minutes=options.minutes + 3)]
            make_site(Path(folder) / "load", frames, now, address)
        if "looks" in options.only:
            result["looks"] = by_looks(Path(folder) / "load", now, options)
        if "load" in options.only:
            result["load"] = under_load(Path(folder) / "load", frames, now, options)
        if "week" in options.only:
            make_site(Path(folder) / "week", [jobs], now, address)
            result["week"] = over_a_week(Path(folder) / "week", now, options)
            FIGURE.write_text(memory_svg(result["week"]))
    for part in options.only:
        result[part] |= {"jobs": known.height, "load_average": os.getloadavg()[0]}
        show(result[part])
    before = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps(before | result, indent=1) + "\n")


def show(figures: dict[str, Any]) -> None:
    print(json.dumps({name: value for name, value in figures.items() if not isinstance(value, list)}, indent=1))


if __name__ == "__main__":
    main()
