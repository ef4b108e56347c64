"""Both loads at once in one `stormpetrel watch`: 200 job events a second and 20,000 CPU threads at 1 Hz, in real time.

`python -m benchmarks.watch_load [--jobs N] [--rate EVENTS_PER_S] [--nodes N] [--minutes M]`: a site with a history of simulated
jobs and a model of them; the watch is a process of its own and reads a `sacct`, which this process answers, and a server that
speaks like Prometheus, a third process. Both generators run on the same cores: their CPU time is shown next to that of the
watch and is not subtracted, so the lags are those of a busier machine than the watch needs. The lag of a window is from its end
to the commit that holds its scores and the cursor; that of a prediction is the one in the table. Results in
benchmarks/results/watch_load.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import tempfile
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from tests.parts.command_line import change_settings
from tests.parts.quick_sacct import answering

from benchmarks.watch_jobs import (
    RATE,
    START_S,
    Accounting,
    Watching,
    copied,
    history_of,
    lags,
    make_site,
    stream_of,
    watching,
)
from benchmarks.watch_traces import CPUS, LAG_LIMIT_S, WINDOW_S, serving
from stormpetrel.records.times import running_clock
from stormpetrel.simulate.feed import set_clock
from stormpetrel.store.site import Site, open_site

RESULTS = Path(__file__).parent / "results" / "watch_load.json"
_TICKS = os.sysconf("SC_CLK_TCK")
_WARM_UP_S = 60.0
_SINCE_S = 230.0  # how far back the counters are read at the start: a whole window, so that the first score can come at once


class WindowCommits:
    """Follows the commits of windows by the modification time of their log, from a thread of the benchmark."""

    def __init__(self, site: Site, ahead_s: float) -> None:
        self._site, self._ahead_s = site, ahead_s
        self._log = site.cpu_windows.table.path / "_delta_log"
        self._seen: set[str] = set()
        self.moments: list[dict[str, float]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        while not self._stop.wait(0.1):
            commits = sorted(self._log.glob("*.json")) if self._log.exists() else []
            new = [path for path in commits if path.name not in self._seen]
            self._seen.update(path.name for path in commits)
            cursor = self._site.cpu_windows.cursor("prometheus") if new else None
            if cursor is None or (self.moments and self.moments[-1]["end_s"] == cursor / 1e6):
                continue
            committed_s = new[-1].stat().st_mtime + self._ahead_s
            self.moments.append(
                {"end_s": cursor / 1e6, "committed_s": committed_s, "lag_s": round(committed_s - cursor / 1e6, 2)}
            )
            print(json.dumps(self.moments[-1]), flush=True)

    def end(self) -> None:
        """Follow no longer."""
        self._stop.set()
        self._thread.join()


def cpu_of(process_id: int) -> float:
    """CPU seconds that a process has used so far."""
    words = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / _TICKS


def measure(folder: Path, frames: list[pl.DataFrame], now: datetime, options: argparse.Namespace) -> dict[str, Any]:
    """Run the watch under both loads and return its lags, its CPU and memory, and the CPU of the generators."""
    set_clock(folder / "feed", running_clock(now))
    ahead_s = now.timestamp() - time.time()
    with serving(options.port, options.nodes, ahead_s=ahead_s) as server, open_site(folder) as site:
        since = site.now() - timedelta(seconds=_SINCE_S)
        prometheus = {"url": f"http://127.0.0.1:{options.port}", "since": since.isoformat()}
        change_settings(folder, prometheus=prometheus, traces={"window_s": WINDOW_S})
        commits = WindowCommits(site, ahead_s)
        with watching(folder) as watch:
            started_s = time.time()
            first_prediction_s = watch.first_predictions_s()
            while not commits.moments and time.time() - started_s < 2 * WINDOW_S:
                time.sleep(0.2)
            time.sleep(_WARM_UP_S)
            counted = followed(watch, site, server.pid, options.minutes)
            commits.end()
            time.sleep(15.0)
            lag = lags(site, counted.pop("since"), counted.pop("until"))
        counted["events_per_s"] = round(events(frames, counted.pop("span")) / counted["seconds"], 1)
    first = commits.moments[0]
    live = [moment["lag_s"] for moment in commits.moments[1:]]
    return {
        **counted,
        "threads": options.nodes * CPUS,
        "windows": len(live),
        "window_lag_s": {"median": statistics.median(live), "max": max(live), "asked": LAG_LIMIT_S} if live else None,
        "window_lags_s": live,
        "first_prediction_s": {"measured": round(first_prediction_s, 1), "asked": START_S},
        "first_window_score_s": {"measured": round(first["committed_s"] - ahead_s - started_s, 1), "asked": START_S},
        "predictions": lag,
    }


def followed(watch: Watching, site: Site, server_id: int, minutes: float) -> dict[str, Any]:
    """What the watch and the generators use in so many minutes, and how long each turn took."""
    since, began = site.now(), time.monotonic()
    before = (*watch.cpu_s(), cpu_of(server_id), _own_cpu_s())
    memory, turns = [], []
    while time.monotonic() - began < 60 * minutes:
        time.sleep(5.0)
        memory.append(watch.resident_bytes())
        turns += [fact["seconds"] for fact in watch.log() if fact["event"] == "step"]
    seconds = time.monotonic() - began
    used = [now - then for now, then in zip((*watch.cpu_s(), cpu_of(server_id), _own_cpu_s()), before, strict=True)]
    names = ("watch", "its_sacct_commands", "generator_of_counters", "generator_of_jobs")
    return {
        "since": since,
        "until": site.now(),
        "span": (since, site.now()),
        "seconds": round(seconds),
        "cores": {name: round(cpu / seconds, 3) for name, cpu in zip(names, used, strict=True)},
        "turn_p50_s": round(float(np.median(turns)), 2),
        "turn_p99_s": round(float(np.quantile(turns, 0.99)), 2),
        "resident_bytes": memory,
    }


def _own_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def events(frames: list[pl.DataFrame], span: tuple[datetime, datetime]) -> int:
    """How many submissions, starts and ends lie in a span of time."""
    times = ("submit_time", "start_time", "end_time")
    return sum(frame.filter(pl.col(name).is_between(*span)).height for frame in frames for name in times)


def main() -> None:
    """Make the site, run the watch under both loads, and write what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, default=40_000, help="of history")
    parser.add_argument("--rate", type=float, default=RATE, help="job events a second")
    parser.add_argument("--nodes", type=int, default=157, help=f"of {CPUS} threads each")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--port", type=int, default=19_644)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, answering(Accounting().answer) as address:
        jobs, now = history_of(options.jobs)
        known = jobs.filter(pl.col("submit_time") <= now)
        frames = [known, stream_of(known, now, rate=options.rate, minutes=options.minutes + 8)]
        make_site(Path(folder) / "load", frames, now, address)
        with copied(Path(folder) / "load") as site_folder:
            result = measure(site_folder, frames, now, options)
    result |= {"jobs_of_history": known.height, "load_average": os.getloadavg()[0]}
    result["machine"] = {"cores": os.cpu_count(), "python": platform.python_version(), "polars": pl.__version__}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({name: value for name, value in result.items() if name != "resident_bytes"}, indent=1))


if __name__ == "__main__":
    main()
