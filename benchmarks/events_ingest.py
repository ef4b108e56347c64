"""How fast raw events become counts: HTCondor event logs, tables of events, job records; beside HTCondor's own reader.

`make bench`, or `python -m benchmarks.events_ingest [--events N] [--repeat K]`. The logs are the recorded ones over and over with
other jobs, nodes and times. Event logs and their peers are read on one core, tables with as many threads as Polars has. Each case
runs in a process of its own, K times over; the best time of each counts.
Writes benchmarks/results/events_ingest.json.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "events_ingest.json"
RECORDINGS = Path(__file__).parent.parent / "tests" / "recordings"
START = datetime(2026, 3, 2, tzinfo=UTC)
STEP = timedelta(minutes=4)  # between two repetitions of a recorded log
PEER_SHARE = 10  # the slow readers read this part of the log
ASKED = {"event log": 1e6, "event log with 028": 1e6, "events CSV": 1e6, "events Parquet": 1e6, "events NDJSON": 1e6}
JOBS = "job records"

_LOG_HEADER = re.compile(r"\A008 .*?\n\.\.\.\n", re.DOTALL)
_HEADER = re.compile(r"^(\d{3}) \((\d+)\.(\d+)\.(\d+)\) (?:\d{4}-\d\d-\d\d|\d\d/\d\d) (\d\d):(\d\d):(\d\d)", re.MULTILINE)


def write_event_log(path: Path, name: str, events: int) -> int:
    """A recorded log over and over until it has so many events: other clusters, nodes and times; returns how many it has."""
    text = _LOG_HEADER.sub("", gzip.decompress((RECORDINGS / name).read_bytes()).decode())
    has_years = re.search(r"^000 \(\S+ \d{4}-", text, re.MULTILINE) is not None
    times = [3600 * int(found[5]) + 60 * int(found[6]) + int(found[7]) for found in _HEADER.finditer(text)]
    pieces: list[str] = []  # text, then what stands in for a header, in turns
    at = 0
    for found in _HEADER.finditer(text):
        pieces += [text[at : found.start()], f"{found[1]} ({{cluster}}{found[2]}.{found[3]}.{found[4]}) "]
        at = found.end()
    rest, per_log = text[at:], text.count("\n...\n")
    style = "%Y-%m-%d %H:%M:%S" if has_years else "%m/%d %H:%M:%S"
    with path.open("w") as file:
        for number in range(-(-events // per_log)):
            base, node = START + number * STEP, f"@node{number % 400:03}"
            for place, second in enumerate(times):
                head = pieces[2 * place + 1].replace("{cluster}", str(number + 1))
                stamp = (base + timedelta(seconds=second - times[0])).strftime(style)
                file.write(pieces[2 * place].replace("@vm", node) + head + stamp)
            file.write(rest.replace("@vm", node))
    os.utime(path, (time.time(), (START + timedelta(days=90)).timestamp()))
    return per_log * -(-events // per_log)


def write_tables(folder: Path, rows: int) -> None:
    """The same events as CSV, Parquet and NDJSON, and job records as Parquet."""
    import numpy as np
    import polars as pl

    rng = np.random.default_rng(0)

    def names(pattern: str, different: int) -> pl.Series:
        known = pl.Series([pattern.format(number) for number in range(different)])
        return known.gather(rng.integers(0, different, rows))

    span = int(timedelta(days=3).total_seconds())
    seconds = np.sort(rng.integers(0, span, rows)) + int(START.timestamp())
    at = pl.Series(seconds * 1_000_000).cast(pl.Datetime("us", "UTC"))
    kinds = pl.Series(["SubmitEvent", "ExecuteEvent", "JobImageSizeEvent", "JobTerminatedEvent", "JobHeldEvent"])
    events = pl.DataFrame(
        {
            "EventTime": at.dt.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
            "MyType": kinds.gather(rng.integers(0, len(kinds), rows)),
            "host": names("schedd{}.example.org", 4),
            "Jobsub_Group": names("group{}", 8),
            "MachineAttrGLIDEIN_Site0": names("Site{}", 12),
            "node": names("node{:03}.example.org", 400),
        }
    )
    events.write_csv(folder / "events.csv")
    events.write_ndjson(folder / "events.ndjson")
    events.with_columns(EventTime=at).write_parquet(folder / "events.parquet")
    states = pl.Series(["COMPLETED", "COMPLETED", "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"])
    jobs = pl.DataFrame(
        {
            "cluster": pl.repeat("alpha", rows, eager=True),
            "job_id": np.arange(rows),
            "submit_time": at,
            "restart": pl.repeat(0, rows, dtype=pl.Int32, eager=True),
            "start_time": at,
            "end_time": at,
            "state": states.gather(rng.integers(0, len(states), rows)),
            "account": names("group{}", 8),
            "group": names("unix{}", 8),
            "node_list": names("n[{0:04}-{0:04}]", 5000),
        }
    )
    jobs.write_parquet(folder / "jobs.parquet")


def event_log(path: Path) -> int:
    from stormpetrel.config import settings_from
    from stormpetrel.sources.htcondor.counts import CondorEventFile

    source = CondorEventFile(path, settings_from({}))
    return sum(_events_in(span) for span in source.spans(lambda _name: None, datetime.now(UTC)))


def event_table(path: Path) -> int:
    from stormpetrel.config import settings_from
    from stormpetrel.sources.tables.event_tables import EventTable

    source = EventTable(path, settings_from({}))
    return sum(_events_in(span) for span in source.spans(lambda _name: None, datetime.now(UTC)))


def job_table(path: Path) -> int:
    import polars as pl

    from stormpetrel.records.job_events import job_events

    return job_events(pl.read_parquet(path), fast_failure_s=60).height


def htcondor_reader(path: Path) -> int:
    """HTCondor's own reader, and no more than its events by kind."""
    from collections import Counter

    import htcondor2

    counts = Counter((int(event.type), event.timestamp // 3600) for event in htcondor2.JobEventLog(str(path)).events(0))
    return sum(counts.values())


def job_reader(path: Path) -> int:
    """Our reader of jobs, which takes every line apart."""
    from zoneinfo import ZoneInfo

    from stormpetrel.sources.htcondor import event_log
    from stormpetrel.sources.lines import LineFile

    return sum(1 for _ in event_log.events_in(LineFile(path), zone=ZoneInfo("UTC")))


CASES: dict[str, tuple[Callable[[Path], int], str]] = {
    "event log": (event_log, "user.log"),
    "event log with 028": (event_log, "global.log"),
    "htcondor2": (htcondor_reader, "user-short.log"),
    "htcondor2 with 028": (htcondor_reader, "global-short.log"),
    "reader of jobs": (job_reader, "user-short.log"),
    "events CSV": (event_table, "events.csv"),
    "events NDJSON": (event_table, "events.ndjson"),
    "events Parquet": (event_table, "events.parquet"),
    JOBS: (job_table, "jobs.parquet"),
}


def run_case(name: str, folder: Path) -> None:
    """One measurement: what is imported and compiled comes first, what is timed is the work."""
    work, file = CASES[name]
    if work not in (event_table, job_table):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    warm = RECORDINGS / "condor-userlog-23.9.log.gz"
    if work is event_log:
        work(warm)
    elif work is htcondor_reader:
        import htcondor2  # noqa: F401
    else:
        import stormpetrel.records.job_events
        import stormpetrel.sources.htcondor.event_log
        import stormpetrel.sources.tables.event_tables  # noqa: F401
    began, began_cpu = time.perf_counter(), time.process_time()
    done = work(folder / file)
    result = {
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - began_cpu,
        "counted": done,
        "peak_bytes": _peak_bytes(),
    }
    print(json.dumps(result))


def measure(name: str, folder: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.events_ingest", "--case", name, str(folder)]
    threads = {} if CASES[name][0] in (event_table, job_table) else {"POLARS_MAX_THREADS": "1"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **threads})
    return dict(json.loads(done.stdout.splitlines()[-1]))


def prepare(folder: Path, events: int) -> dict[str, int]:
    """Write the inputs; how many events each case has."""
    counts = {}
    for name, recording in (("user", "condor-userlog-23.9.log.gz"), ("global", "condor-eventlog-23.9.log.gz")):
        counts[f"{name}.log"] = write_event_log(folder / f"{name}.log", recording, events)
        counts[f"{name}-short.log"] = write_event_log(folder / f"{name}-short.log", recording, events // PEER_SHARE)
    write_tables(folder, events)
    return {case: counts.get(file, events) for case, (_, file) in CASES.items()}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        run_case(options.case[0], Path(options.case[1]))
        return
    versions = {name: version(name) for name in ("stormpetrel", "polars", "numba", "htcondor")}
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores, "
        + ", ".join(f"{name} {found}" for name, found in versions.items())
    )
    best: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="stormpetrel-bench-") as name:
        folder = Path(name)
        events = prepare(folder, options.events)
        for _ in range(options.repeat):
            for case in CASES:
                result = measure(case, folder)
                result["events_per_s"] = events[case] / result["seconds"]
                result["events_per_cpu_s"] = events[case] / result["cpu_seconds"]
                result["file_bytes"] = float((folder / CASES[case][1]).stat().st_size)
                if case not in best or result["seconds"] < best[case]["seconds"]:
                    best[case] = result
    ratios = {
        "event log / htcondor2": best["event log"]["events_per_s"] / best["htcondor2"]["events_per_s"],
        "event log with 028 / htcondor2": best["event log with 028"]["events_per_s"] / best["htcondor2 with 028"]["events_per_s"],
        "event log / reader of jobs": best["event log"]["events_per_s"] / best["reader of jobs"]["events_per_s"],
    }
    show(best, ratios)
    result_json: dict[str, Any] = {"events": options.events, "versions": versions, "best": best, "ratios": ratios}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result_json, indent=1) + "\n")


def show(best: dict[str, dict[str, float]], ratios: dict[str, float]) -> None:
    print(f"  {'':<22}{'per second':>13}{'per CPU second':>16}{'seconds':>9}{'MB':>7}{'peak GB':>9}")
    for case, result in best.items():
        asked = f"   (asked: {ASKED[case]:,.0f})" if case in ASKED else ""
        print(
            f"  {case:<22}{result['events_per_s']:>13,.0f}{result['events_per_cpu_s']:>16,.0f}{result['seconds']:>9.2f}"
            f"{result['file_bytes'] / 1e6:>7.0f}{result['peak_bytes'] / 1e9:>9.2f}{asked}"
        )
    for name, ratio in ratios.items():
        print(f"  {name:<34}{ratio:6.1f}")


def _peak_bytes() -> int:
    """The most memory that this process held; getrusage would tell that of the parent as well."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return 1024 * int(found[1]) if found else 0


def _events_in(span: Any) -> int:
    import polars as pl

    return int(span.counts.filter(pl.col("place") == "", pl.col("kind") != "")["count"].sum())


if __name__ == "__main__":
    main()
