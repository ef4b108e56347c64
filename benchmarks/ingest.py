"""How long a million sacct rows take from file to committed table, beside what a bare parse and write takes.

`make bench`, or `python -m benchmarks.ingest [--rows N] [--repeat K] [--large N]`. Each case runs in a process of its own, the
cases one after the other, K times over; the best time of each counts. Writes benchmarks/results/ingest.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.sacct_log import FIELDS, write_log

RESULTS = Path(__file__).parent / "results" / "ingest.json"
LIMITS = {
    "first / polars bare": 3.0,
    "known / first": 1 / 3,
    "one percent new at the end / first": 1 / 3,
    "one percent new, strewn / first": 1 / 3,
}


def polars_bare(log: Path, target: Path) -> None:
    """What nobody can be faster than with these tools: parse with types, write, no check of anything."""
    import polars as pl
    from deltalake import write_deltalake

    # Text first, dates by a given format: more than twice as fast as letting the reader find the dates.
    times = ("Submit", "Eligible", "Start", "End")
    whole = ("JobID", "JobIDRaw", "GID", "UID", "NNodes", "NCPUS", "ReqCPUS")
    schema = {name: pl.Int64 if name in whole else pl.String for name in FIELDS}
    frame = pl.read_csv(log, separator="|", quote_char=None, schema=schema)
    write_deltalake(str(target), frame.with_columns(pl.col(times).str.to_datetime("%Y-%m-%dT%H:%M:%S")))


def duckdb_bare(log: Path, target: Path) -> None:
    import duckdb
    from deltalake import write_deltalake

    text = "types={'Elapsed': 'VARCHAR', 'ExitCode': 'VARCHAR', 'Timelimit': 'VARCHAR'}"
    query = f"select * from read_csv('{log}', delim='|', header=true, quote='', escape='', {text})"
    table: Any = duckdb.connect().execute(query).to_arrow_table()
    write_deltalake(str(target), table)


def pandas_bare(log: Path, target: Path) -> None:
    import pandas as pd
    from deltalake import write_deltalake

    frame = pd.read_csv(log, sep="|", quoting=3, parse_dates=["Submit", "Eligible", "Start", "End"])
    write_deltalake(str(target), frame)


def stormpetrel_ingest(log: Path, target: Path) -> None:
    from stormpetrel.ingest.jobs import ingest_jobs
    from stormpetrel.sources.slurm.sacct_text import SacctText
    from stormpetrel.store.site import create_site, open_site

    with open_site(target) if target.exists() else create_site(target) as site:
        report = ingest_jobs(site, SacctText(log))
    assert report.read == report.kept + report.known and not report.quarantined, report


CASES: dict[str, Callable[[Path, Path], None]] = {
    "polars": polars_bare,
    "duckdb": duckdb_bare,
    "pandas": pandas_bare,
    "stormpetrel": stormpetrel_ingest,
}


def run_case(name: str, log: Path, target: Path) -> None:
    """One measurement, in this process: imports come first, what is timed is the work."""
    import deltalake  # noqa: F401
    import polars  # noqa: F401

    if name in ("duckdb", "pandas"):
        __import__(name)
    if name == "stormpetrel":
        import stormpetrel.ingest.jobs  # noqa: F401
    began = time.perf_counter()
    CASES[name](log, target)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": time.perf_counter() - began, "peak_bytes": peak}))


def measure(name: str, log: Path, target: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.ingest", "--case", name, str(log), str(target)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def compare(folder: Path, rows: int, repeat: int) -> dict[str, dict[str, float]]:
    """Each case `repeat` times, in turn; the best of each."""
    log, longer, strewn = folder / "log.txt", folder / "longer.txt", folder / "strewn.txt"
    write_log(log, rows)
    write_log(longer, rows, appended=0.01)
    write_log(strewn, rows, strewn=0.01)
    best: dict[str, dict[str, float]] = {}

    def note(case: str, result: dict[str, float]) -> None:
        if case not in best or result["seconds"] < best[case]["seconds"]:
            best[case] = result

    for _ in range(repeat):
        for name in ("polars", "duckdb", "pandas"):
            shutil.rmtree(folder / "bare", ignore_errors=True)
            note(f"{name} bare", measure(name, log, folder / "bare"))
        shutil.rmtree(folder / "site", ignore_errors=True)
        note("first", measure("stormpetrel", log, folder / "site"))
        note("known", measure("stormpetrel", log, folder / "site"))
        note("one percent new at the end", _on_copy(folder, longer))
        note("one percent new, strewn", _on_copy(folder, strewn))
    best["first"]["bytes_read"] = float(log.stat().st_size)
    return best


def _on_copy(folder: Path, log: Path) -> dict[str, float]:
    """Ingest into a copy of the site that knows the log without its new rows."""
    shutil.rmtree(folder / "copy", ignore_errors=True)
    shutil.copytree(folder / "site", folder / "copy")
    return measure("stormpetrel", log, folder / "copy")


def large(folder: Path, rows: int) -> dict[str, float]:
    """Many rows, once: what counts is the memory."""
    write_log(folder / "large.txt", rows)
    shutil.rmtree(folder / "site", ignore_errors=True)
    return measure("stormpetrel", folder / "large.txt", folder / "site")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--large", type=int, default=10_000_000)
    parser.add_argument("--case", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        run_case(options.case[0], Path(options.case[1]), Path(options.case[2]))
        return
    versions = {name: version(name) for name in ("stormpetrel", "polars", "deltalake", "duckdb", "pandas")}
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, " + ", ".join(f"{k} {v}" for k, v in versions.items()))
    with tempfile.TemporaryDirectory(prefix="stormpetrel-bench-") as name:
        best = compare(Path(name), options.rows, options.repeat)
        ratios = {
            "first / polars bare": best["first"]["seconds"] / best["polars bare"]["seconds"],
            "first / duckdb bare": best["first"]["seconds"] / best["duckdb bare"]["seconds"],
            "first / pandas bare": best["first"]["seconds"] / best["pandas bare"]["seconds"],
            "known / first": best["known"]["seconds"] / best["first"]["seconds"],
            **{
                f"{case} / first": best[case]["seconds"] / best["first"]["seconds"]
                for case in best
                if case.startswith("one percent")
            },
        }
        show(best, ratios, options.rows)
        result: dict[str, Any] = {"rows": options.rows, "versions": versions, "best": best, "ratios": ratios}
        if options.large:
            result["large"] = {"rows": options.large, **large(Path(name), options.large)}
            seconds, peak = result["large"]["seconds"], result["large"]["peak_bytes"] / 1e9
            print(f"{options.large:,} rows: {seconds:.0f} s, peak {peak:.2f} GB (asked: at most 2)")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")


def show(best: dict[str, dict[str, float]], ratios: dict[str, float], rows: int) -> None:
    print(f"{rows:,} rows of sacct -P, {best['first']['bytes_read'] / 1e6:.0f} MB:")
    for case, result in best.items():
        print(f"  {case:<28}{result['seconds']:7.2f} s   peak {result['peak_bytes'] / 1e9:.2f} GB")
    for name, ratio in ratios.items():
        limit = LIMITS.get(name)
        asked = f"   (asked: at most {limit:.2f})" if limit else ""
        print(f"  {name:<36}{ratio:5.2f}{asked}")


if __name__ == "__main__":
    main()
