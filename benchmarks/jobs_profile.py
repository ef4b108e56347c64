"""Whether the profile of a job (a Gaussian mixture) helps Table I; writes benchmarks/results/jobs_profile.json.

STORMPETREL_DATA=… python -m benchmarks.jobs_profile

Plain XGBoost by the published protocol, both splits, jobs of two minutes and more, seed 0, with the column and without it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

from stormpetrel.jobs.exam.seed_protocol import SHORT_S, table_one
from stormpetrel.sources.formats import ReadOptions
from stormpetrel.sources.reading import read_log

RESULT: Final = Path(__file__).parent / "results" / "jobs_profile.json"
FAILED_OR_KILLED: Final = ("FAILED", "TIMEOUT", "CANCELLED")
LOGS: Final[dict[str, tuple[str, str | None, tuple[str, ...], tuple[str, ...]]]] = {
    "curie": ("jobs/CEA-Curie-2011-2.1-cln.swf.gz", None, ("FAILED",), ("CANCELLED",)),
    "kth": ("jobs/KTH-SP2-1996-2.1-cln.swf.gz", None, ("FAILED",), ()),
    "mira": ("jobs/mira.csv.gz", "lumos", FAILED_OR_KILLED, ()),
    "theta": ("jobs/theta.csv.gz", "lumos", FAILED_OR_KILLED, ()),
}


def main() -> None:
    data, results = Path(os.environ["STORMPETREL_DATA"]), {}
    for name, (file, format_name, failed, dropped) in LOGS.items():
        jobs = read_log([str(data / file)], format_name, ReadOptions()).jobs
        results[name] = {
            split: {
                way: _figures(
                    table_one(
                        jobs, failure_states=failed, dropped_states=dropped, split=split, recipes=["xgboost"],
                        shortest_s=SHORT_S, with_limit=True, with_profile=way == "with",
                    ).row("xgboost")
                )
                for way in ("without", "with")
            }
            for split in ("random", "time")
        }  # fmt: skip
        print(name, json.dumps(results[name]))
    RESULT.write_text(json.dumps(results, indent=1) + "\n")


def _figures(row: Any) -> dict[str, float]:
    return {"accuracy": round(row.accuracy, 4), "f1_failed": round(row.failed.f1, 4), "roc_auc": round(row.roc_auc, 4)}


if __name__ == "__main__":
    main()
