"""What to ask for and when it starts, beside rules of thumb; writes benchmarks/results/jobs_needs.json.

STORMPETREL_DATA=… python -m benchmarks.jobs_needs [--only curie_time,…]

Each part is one command of the product, run as a user would; `docs/jobs.md` has its figures from here. The simulated sites are
those of seeds 11, 12 and 13 (nothing was tuned on them).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from stormpetrel.simulate.cluster import simulate
from stormpetrel.simulate.spec import ClusterSpec
from stormpetrel.simulate.writing import write_sacct

RESULT: Final = Path(__file__).parent / "results" / "jobs_needs.json"
LOGS: Final = {
    "curie": ["jobs/CEA-Curie-2011-2.1-cln.swf.gz"],
    "hpc2n": ["jobs/HPC2N-2002-2.1-cln.swf.gz"],
    "kth": ["jobs/KTH-SP2-1996-2.1-cln.swf.gz"],
    "mira": ["jobs/mira.csv.gz", "--format", "lumos"],
    "theta": ["jobs/theta.csv.gz", "--format", "lumos"],
    "thetagpu": ["jobs/thetagpu.csv.gz", "--format", "lumos"],
    "supercloud": ["jobs/mit_supercloud_sample.csv.gz", "--format", "supercloud"],
}
TABLES: Final = ("chipseq", "iwd", "methylseq")
SEEDS: Final = (11, 12, 13)
PARTS: Final = {
    **{f"{name}_memory": [f"needs/trace_{name}.csv.gz", "--needs", "memory"] for name in TABLES},
    **{f"simulated_{seed}_memory": [f"SIMULATED {seed}", "--format", "sacct", "--needs", "memory"] for seed in SEEDS},
    **{f"{name}_time": [*LOGS[name], "--needs", "time"] for name in ("hpc2n", "curie", "kth")},
    **{f"{name}_wait": [*log, "--wait"] for name, log in LOGS.items()},
}
DAYS: Final = 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help="parts to run, separated by commas")
    parser.add_argument("--out", type=Path, default=RESULT, help="where the results are kept")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in given.only.split(","):
            file, *options = PARTS[name]
            began = time.monotonic()
            command = [sys.executable, "-m", "stormpetrel", "jobs", "evaluate", _path(file, Path(folder)), *options, "--json"]
            answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            results: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}
            results[name] = {"command": ["stormpetrel", "jobs", "evaluate", file, *options], **answer}
            given.out.write_text(json.dumps(results, indent=1) + "\n")
            print(f"{name}: {time.monotonic() - began:.0f} s, load {os.getloadavg()[0]:.1f}", flush=True)
            show(answer)


def _path(file: str, folder: Path) -> str:
    if not file.startswith("SIMULATED"):
        return str(Path(os.environ["STORMPETREL_DATA"]) / file)
    seed = int(file.split()[1])
    path = folder / f"{seed}.sacct"
    write_sacct(simulate(ClusterSpec(days=DAYS, seed=seed)), path)
    return str(path)


def show(answer: dict[str, Any]) -> None:
    figures = answer.get("wait") or next(iter(answer["needs"].values()))
    for who, each in {"stormpetrel": figures["model"], **figures["baselines"]}.items():
        numbers = {key: round(value, 4) if isinstance(value, float) else value for key, value in each.items()}
        print(f"  {who:<22}{numbers}", flush=True)


if __name__ == "__main__":
    main()
