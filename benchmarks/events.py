"""How long models of events take: a year of hours to train on, one new hour to score; writes results/events.json.

`make bench`, or `python -m benchmarks.events [--hours 8760] [--threads 2]`. The simulated grid, 13 kinds, seed 1. Peers in the
same run: XGBoost on lagged counts for the training, scoring the whole context anew for the new hour. Rows about raw events are
taken over from results/events_ingest.json (`python -m benchmarks.events_ingest`).
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from stormpetrel.events.baselines import XgboostLags
from stormpetrel.events.choose import make
from stormpetrel.records.event_series import EventSeries
from stormpetrel.simulate.grid.grid import GridSpec, simulate_grid

RESULTS = Path(__file__).parent / "results"
MODELS = {
    "combined": "combined",
    "unsupervised": "unsupervised (statistical)",
    "supervised": "supervised LSTM",
}
NEW_HOURS = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=int, default=8760)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    series = simulate_grid(GridSpec(hours=options.hours + NEW_HOURS, seed=1)).series
    year = series.take(0, options.hours)
    rows = [*_models(series, year), *_ingested()]
    for row in rows:
        ratio = f"{row['ratio']:.3g} times {row['peer']}" if row.get("ratio") else ""
        print(f"{row['what']:60s} {row['value']:>12,.4g} {row['unit']:10s} {ratio}")
    (RESULTS / "events.json").write_text(json.dumps({"hours": options.hours, "threads": options.threads, "rows": rows}, indent=1))


def _models(series: EventSeries, year: EventSeries) -> list[dict[str, Any]]:
    peer_s = _seconds(lambda: XgboostLags().fit(year))
    rows = []
    for name, words in MODELS.items():
        model = make(name, seed=1)
        fit_s = _seconds(lambda model=model: model.fit(year))  # type: ignore[misc]
        rows.append(_row(f"train {words} on a year of hours", fit_s, "s", "XGBoost on lagged counts", fit_s / peer_s))
        ms, whole_ms = _new_hours(model, series, len(year))
        rows.append(
            _row(
                f"score one new hour, {words}, median",
                float(np.median(ms)),
                "ms",
                "its whole context",
                float(np.median(ms) / whole_ms),
            )
        )
        rows.append(_row(f"score one new hour, {words}, 99 %", float(np.quantile(ms, 0.99)), "ms"))
    return rows


def _new_hours(model: Any, series: EventSeries, first: int) -> tuple[list[float], float]:
    """Milliseconds for each of the hours after the year, with the context that its score depends on; and without `since`."""
    context = model.history_buckets
    model.score(series.take(first - context, first + 1), since=context)  # imports and compiles
    ms = []
    for hour in range(first, len(series)):
        near = series.take(hour - context, hour + 1)
        ms.append(1000 * _seconds(lambda near=near: model.score(near, since=context)))  # type: ignore[misc]
    near = series.take(first - context, first + 1)
    whole = [1000 * _seconds(lambda: model.score(near)) for _ in range(10)]
    return ms, float(np.median(whole))


def _ingested() -> list[dict[str, Any]]:
    path = RESULTS / "events_ingest.json"
    if not path.exists():
        return []
    found = json.loads(path.read_text())
    peers = {"event log": "htcondor2", "event log with 028": "htcondor2"}
    return [
        _row(
            f"raw events into counts: {name}",
            figures["events_per_s"],
            "events/s",
            peers.get(name, ""),
            found["ratios"].get(f"{name} / htcondor2"),
        )
        for name, figures in found["best"].items()
    ]


def _row(what: str, value: float, unit: str, peer: str = "", ratio: float | None = None) -> dict[str, Any]:
    return {"what": what, "value": value, "unit": unit, "peer": peer, "ratio": ratio}


def _seconds(do: Callable[[], object]) -> float:
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
