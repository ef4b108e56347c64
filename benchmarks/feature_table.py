"""What a feature table costs in shards and pieces, against one sweep in memory: seconds of the clock and of CPU, and peak memory.

    python -m benchmarks.feature_table --jobs 300000 --parts 8 --workers 1 2 [--at submit start 2min]

Simulated jobs (seed 0) as in `benchmarks.jobs_scale`; each case in a process of its own. `peak_mb` of a table is the most that
one of its processes held. The features are compared by a digest. Figures in benchmarks/results/feature_table.json.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import zlib
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.jobs_scale import make_site
from stormpetrel.engine import Engine, cpu_seconds
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.predictor import known_by
from stormpetrel.jobs.training import TrainingSettings, label_jobs
from stormpetrel.lifecycle.feature_table import read_features, write_feature_table
from stormpetrel.store.site import open_site

RESULTS: Final = Path(__file__).parent / "results" / "feature_table.json"
SWEEP: Final = 0  # in place of a number of workers


def case(site: Path, workers: int, parts: int, until: datetime, moments: list[Moment]) -> dict[str, Any]:
    """One way of making the features of a site: what it took, and a digest of the features."""
    began, digest = time.perf_counter(), 0
    with open_site(site) as opened, tempfile.TemporaryDirectory(dir=site.parent) as folder:
        if workers == SWEEP:
            jobs = known_by(opened.jobs.read_jobs(until=until).collect(), until)
            labelled = label_jobs(jobs, TrainingSettings(), moments)
            took = _took(began)
            for moment in moments:
                values = labelled.features[moment].values
                came = ~np.isnan(values[:, labelled.features[moment].names.index("site.failed_rate_1h")])
                digest = zlib.crc32(np.ascontiguousarray(values[came]).tobytes(), digest)
            return took | {"digest": digest}
        table = write_feature_table(
            opened, Path(folder) / "table", TrainingSettings(), moments, until=until, parts=parts, engine=Engine(workers)
        )
        took = _took(began) | {"peak_mb": round(table.peak_bytes / 1e6), **asdict(table)}
        size = sum(path.stat().st_size for path in table.folder.glob("*.parquet"))
        for moment in moments:
            for piece in range(table.pieces):
                values = np.ascontiguousarray(read_features(table.folder, moment, piece).values)
                digest = zlib.crc32(values.tobytes(), digest)
        kept = ("wall_s", "cpu_s", "peak_mb", "pieces", "shards", "rows")
        return {name: took[name] for name in kept} | {"table_mb": round(size / 1e6), "digest": digest}


def _took(began: float) -> dict[str, Any]:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"wall_s": round(time.perf_counter() - began, 1), "cpu_s": round(cpu_seconds(), 1), "peak_mb": round(peak / 1e6)}


def main() -> None:
    """Make a site, run each case in a process of its own, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=300_000)
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--at", type=Moment, nargs="+", default=list(Moment))
    parser.add_argument("--case", nargs=3, help=argparse.SUPPRESS)  # site, workers, until
    wanted = parser.parse_args()
    if wanted.case:
        site, workers, until = wanted.case
        found = case(Path(site), int(workers), wanted.parts, datetime.fromisoformat(until), wanted.at)
        print(json.dumps(found))
        return
    load = round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory() as folder:
        site, until = Path(folder) / "site", datetime.now(UTC)
        make_site(site, wanted.jobs)
        cases = {}
        for workers in (SWEEP, *wanted.workers):
            words = [sys.executable, "-m", "benchmarks.feature_table", "--parts", str(wanted.parts), "--at", *wanted.at]
            words += ["--case", str(site), str(workers), until.isoformat()]
            done = subprocess.run(words, check=True, capture_output=True, text=True)
            name = "one sweep in memory" if workers == SWEEP else f"{workers} worker{'s' if workers > 1 else ''}"
            cases[name] = json.loads(done.stdout.splitlines()[-1])
            print(name, cases[name], flush=True)
    summary = {
        "jobs": wanted.jobs,
        "moments": [str(moment) for moment in wanted.at],
        "parts": wanted.parts,
        "cores": os.cpu_count(),
        "load_before": load,  # of other programs: above a few, the wall times are theirs
        "cases": cases,
        "same_features": len({found["digest"] for found in cases.values()}) == 1,
    }
    RESULTS.write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
