"""Does an alarm name the right place? Simulated outages whose place is known; writes results/events_why.json.

`python -m benchmarks.events_why [--seeds 10] [--workers 1]`. The combined model learns from the first half of a grid; each outage
of the second half is looked at in its most abnormal hour. An outage is *told* if there is a finding, *placed* if one names a
place at all, *right* if one names the place where the simulator put it. A node at the right site is right for an outage of that
site.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.options import add_workers, engine_of
from stormpetrel.engine import Progress
from stormpetrel.events.combined import Combined
from stormpetrel.events.why import Placed, findings_at
from stormpetrel.records.events import as_counts
from stormpetrel.simulate.grid.grid import GridSpec, SimulatedGrid, simulate_grid
from stormpetrel.simulate.grid.places import focus_of

RESULT = Path(__file__).parent / "results" / "events_why.json"
BEFORE = 14 * 24  # hours of places that the reasons are read from


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    add_workers(parser)
    options = parser.parse_args()
    seeds = range(options.seeds)
    counted: dict[tuple[str, str], Counter[str]] = {}
    for outages in engine_of(options).map(judged_seed, seeds, name=lambda seed: f"seed {seed}"):
        for key, counts in outages:
            counted.setdefault(key, Counter()).update(counts)
    rows = [
        {"outage": outage, "severity": severity, **{name: found[name] for name in ("outages", "told", "placed", "right")}}
        for (outage, severity), found in sorted(counted.items())
    ]
    for row in rows:
        print(*(f"{name} {value}" for name, value in row.items()), sep="  ")
    RESULT.write_text(json.dumps({"seeds": len(seeds), "rows": rows}, indent=1))


def judged_seed(seed: int, _progress: Progress) -> list[tuple[tuple[str, str], Counter[str]]]:
    """The outages of the grid of a seed."""
    return judged(simulate_grid(GridSpec(seed=seed)))


def judged(grid: SimulatedGrid) -> list[tuple[tuple[str, str], Counter[str]]]:
    """Each outage of the second half: what its most abnormal hour says."""
    half = len(grid.series) // 2
    model = Combined().fit(grid.series.take(0, half))
    series = grid.series.unlabelled()
    scores, forecast = model.score(series), model.forecast(series)
    found = []
    for planned in grid.plan:
        if planned.first < half:
            continue
        worst = planned.first + int(np.nanargmax(scores[planned.first : planned.first + planned.hours]))
        findings = findings_at(series, forecast, worst, placed_counts(grid, max(0, worst - BEFORE), worst + 1))
        names = {(one.place, one.value) for one in findings if one.place}
        told = Counter(
            outages=1, told=bool(findings), placed=bool(names), right=_is_right(grid, focus_of(grid.spec, planned), names)
        )
        found.append(((planned.outage_type, planned.severity), told))
    return found


def placed_counts(grid: SimulatedGrid, first: int, last: int) -> Placed:
    """The counts by place of some hours."""
    frames = []
    for place, (values, split) in grid.places(first, last).items():
        hour, kind, value = np.nonzero(split)
        frames.append(
            pl.DataFrame(
                {
                    "bucket_start": pl.from_epoch(pl.Series(grid.series.start_s[first + hour]), "s").dt.replace_time_zone("UTC"),
                    "kind": pl.Series(np.array(grid.series.kinds)[kind]),
                    "place": pl.repeat(place, hour.size, eager=True),
                    "value": pl.Series(np.array(values)[value]),
                    "count": split[hour, kind, value],
                }
            )
        )
    return Placed(as_counts(pl.concat(frames), "simulated", grid.series.bucket_s))


def _is_right(grid: SimulatedGrid, focus: tuple[str, str], names: set[tuple[str, str]]) -> bool:
    place, value = focus
    return focus in names or (place == "site" and any(kind == "node" and name.endswith(f".{value}") for kind, name in names))


if __name__ == "__main__":
    main()
