"""What a differential-privacy guarantee costs in fidelity, on public logs; writes benchmarks/results/synth_private.json.

STORMPETREL_DATA=… python -m benchmarks.synth_private [--logs kth,theta,hpc2n] [--epsilons 0.1,1,10,inf] [--seeds 3]
        [--workers 1] [--again]

Learnt from odd weeks, judged on even ones. `inf` is an epsilon so large that all noise is 0: what the model itself costs. Noise
has no seed: figures differ from run to run, and their spread is told. It can be run in pieces: what the file has is left out.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.options import add_workers, engine_of
from benchmarks.synth_study import LOGS, read_workload
from stormpetrel.engine import cpu_seconds
from stormpetrel.synth.choose import GeneratorMaker
from stormpetrel.synth.private.generator import MOST_JOBS, MOST_SESSIONS
from stormpetrel.synth.score.scorecard import evaluate_odd_even, odd_even_split

RESULT: Final = Path(__file__).parent / "results" / "synth_private.json"
NO_NOISE: Final = 1e9
KEPT: Final = (
    "columns", "lag1", "acf_mae", "dispersion", "hour_profile_tv", "same_user_share", "c2st_row", "c2st_sequence",
    "exact_copies", "nearest_record_ratio", "membership_auc", "floor", "floor_ratio", "jobs", "seeds",
)  # fmt: skip


def main() -> None:
    options = _options()
    results: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    folder = Path(os.environ["STORMPETREL_DATA"])
    for log in options.logs.split(","):
        real = read_workload(folder, LOGS[log])
        learnt = odd_even_split(real)[0].jobs["user"]
        about = {"users": learnt.drop_nulls().n_unique(), "jobs": len(learnt), "without_user": learnt.null_count()}
        results.setdefault("logs", {})[log] = about
        for word in options.epsilons.split(","):
            there: dict[str, Any] = results.setdefault("epsilon", {}).setdefault(log, {})
            if word in there and not options.again:
                continue
            make, began = GeneratorMaker("private", {"epsilon": NO_NOISE if word == "inf" else float(word)}), cpu_seconds()
            found = evaluate_odd_even(real, make, range(options.seeds), engine=engine_of(options)).as_dict()
            kept: dict[str, Any] = {name: found[name] for name in KEPT if name in found}
            there[word] = {**kept, "cpu_s": round(cpu_seconds() - began, 1)}
            results["settings"] = {"most_jobs": MOST_JOBS, "most_sessions": MOST_SESSIONS, "unit": "user"}
            _write(options.out, results)
            print(f"{log}, epsilon {word}: {there[word]['cpu_s']} s CPU", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", default="kth,theta,hpc2n", help="separated by commas")
    parser.add_argument("--epsilons", default="0.1,1,10,inf", help="separated by commas")
    parser.add_argument("--seeds", type=int, default=3, help="how many fits, each with noise of its own")
    add_workers(parser)
    parser.add_argument("--again", action="store_true", help="run what the file has already")
    parser.add_argument("--out", type=Path, default=RESULT, help="file of the results")
    return parser.parse_args()


def _write(path: Path, results: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n")
    fresh.replace(path)


if __name__ == "__main__":
    main()
