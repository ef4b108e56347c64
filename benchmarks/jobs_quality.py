"""How good the forecasts of jobs are on four public logs, beside the trivial rules; writes benchmarks/results/jobs_quality.json.

STORMPETREL_DATA=… python -m benchmarks.jobs_quality [--only kth,mira,theta,curie,seed,refit] [--workers 1]

Each part is one command of the product, run as a user would; `docs/jobs.md` has its figures from here.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.options import add_workers

RESULT: Final = Path(__file__).parent / "results" / "jobs_quality.json"
CURIE: Final = ["jobs/CEA-Curie-2011-2.1-cln.swf.gz", "--failed", "FAILED", "--drop", "CANCELLED"]
ALCF: Final = ["--format", "lumos", "--failed", "FAILED,TIMEOUT,CANCELLED"]
ROLLING: Final = ["--protocol", "rolling", "--at", "submit,start,2min"]
PARTS: Final = {
    "kth": ["jobs/KTH-SP2-1996-2.1-cln.swf.gz", "--failed", "FAILED", *ROLLING],
    "mira": ["jobs/mira.csv.gz", *ALCF, *ROLLING],
    "theta": ["jobs/theta.csv.gz", *ALCF, "--since", "2023-01-01", *ROLLING],
    "curie": [*CURIE, *ROLLING],
    "seed": [*CURIE, "--protocol", "seed"],
    "refit": [*CURIE, "--protocol", "time", "--at", "submit", "--refit"],
}
FIGURES: Final = ("roc_auc", "pr_auc", "f1", "brier", "ece")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help="parts to run, separated by commas")
    add_workers(parser)
    given = parser.parse_args()
    data = Path(os.environ["STORMPETREL_DATA"])
    results: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    for name in given.only.split(","):
        file, *options = PARTS[name]
        began = time.monotonic()
        asked = [str(data / file), *options, "--workers", str(given.workers), "--json"]
        command = [sys.executable, "-m", "stormpetrel", "jobs", "evaluate", *asked]
        answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        results[name] = {"command": ["stormpetrel", "jobs", "evaluate", file, *options], **answer}
        RESULT.write_text(json.dumps(results, indent=1) + "\n")
        print(f"{name}: {time.monotonic() - began:.0f} s, load {os.getloadavg()[0]:.1f}")
        show(answer)


def show(answer: dict[str, Any]) -> None:
    for moment, found in answer["at"].items():
        earlier = {f"same jobs at {other}": figures for other, figures in found["same_jobs"].items()}
        rows = {"stormpetrel": found["model"], **found["baselines"], **earlier}
        for who, figures in rows.items():
            print(f"  {moment:<7}{who:<20}" + "".join(f"{figures[name]:8.3f}" for name in FIGURES))
        print(f"  {moment:<7}{found['calibration']}")
    for row in answer["table1"]:
        if row["part"] == "test":
            print(f"  {row['split']:<7}{row['title']:<34}{row['accuracy']:.3f} {row['f1_failed']:.3f} {row['roc_auc'] or 0:.3f}")
    for row in answer.get("refit", []):
        print("  ", row)


if __name__ == "__main__":
    main()
