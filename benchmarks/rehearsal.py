"""What the rehearsal says of simulated sites: which faults are seen, how late, how many false pages.

`python -m benchmarks.rehearsal [--seeds 20] [-n 2] [--no-traces]`: per seed a site with six weeks of job records of 16 nodes, and
one with six weeks of hourly counts of a grid of 40 nodes with four submit hosts. The first has 90 minutes of CPU windows of
four nodes as well, and a model that has learnt the two hours before (`fast`, 12 epochs). Nothing was chosen on these seeds.
Results in benchmarks/results/rehearsal.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import polars as pl

from benchmarks.grid_counts import placed_counts
from stormpetrel.config import Settings
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.lifecycle.trace_models import train_trace_model
from stormpetrel.records.events import covered
from stormpetrel.records.traces import LIVE
from stormpetrel.records.window_frames import frame_of
from stormpetrel.records.windows import cut_windows
from stormpetrel.rehearse.site.coverage import Trial, coverage_of
from stormpetrel.rehearse.site.rehearsal import Rehearsal, RehearsalPlan, rehearse
from stormpetrel.simulate.cluster import ClusterSpec, simulate
from stormpetrel.simulate.grid.grid import GridSpec, simulate_grid
from stormpetrel.simulate.telemetry.campaigns import CampaignSpec, simulate_campaign
from stormpetrel.simulate.writing import write_sacct
from stormpetrel.sources.slurm.sacct_text import SacctText
from stormpetrel.store.site import Site, create_site
from stormpetrel.traces.networks.architecture import Architecture, AutoencoderSettings

RESULTS: Final = Path(__file__).parent / "results" / "rehearsal.json"
DAYS: Final = 42
START: Final = datetime(2026, 1, 5, tzinfo=UTC)
SOURCE: Final = "table:grid"
WINDOW_S, NODES, THREADS = 100, 4, 8
LEARNT_MIN, LATER_MIN = 120, 90


def cluster_site(folder: Path, seed: int, *, traces: bool) -> Site:
    """A site with jobs, and CPU windows if wanted."""
    site = _new_site(folder)
    write_sacct(simulate(ClusterSpec(nodes=16, days=DAYS, load=0.6, seed=seed, start=START)), folder / "jobs.txt")
    ingest_jobs(site, SacctText(folder / "jobs.txt"))
    if traces:
        _add_windows(site, seed, START + timedelta(days=DAYS))
    return site


def grid_site(folder: Path, seed: int) -> Site:
    """A site with events alone."""
    site = _new_site(folder)
    grid = simulate_grid(
        GridSpec(hours=24 * DAYS, seed=seed, start=START, nodes=40, slots=1900, outages_per_week=0.0, maintenance_weeks=0.0)
    )
    counts = placed_counts(grid).with_columns(source=pl.lit(SOURCE))
    end = START + timedelta(days=DAYS)
    marks = covered(SOURCE, START, end, 3600, counts).select(counts.columns)
    site.event_counts.replace(pl.concat([counts, marks]), source=SOURCE, start=START, end=end, bucket_s=3600)
    return site


def _new_site(folder: Path) -> Site:
    settings = Settings.model_validate({"site": {"time_zone": "UTC"}, "traces": {"window_s": WINDOW_S}})
    return create_site(folder / "site", settings)


def _add_windows(site: Site, seed: int, end: datetime) -> None:
    """Calm windows: two hours that a model learns, and those after them."""
    spec = CampaignSpec(
        name=LIVE, nodes=NODES, threads_per_node=THREADS, minutes=LEARNT_MIN + LATER_MIN, seed=seed,
        start_s=(end - timedelta(minutes=LEARNT_MIN + LATER_MIN)).timestamp(),
    )  # fmt: skip
    windows = frame_of(cut_windows(simulate_campaign(spec)), cluster="cluster")
    cut = end - timedelta(minutes=LATER_MIN)
    site.cpu_windows.commit(windows.filter(pl.col("window_start") < cut))
    settings = AutoencoderSettings(architecture=Architecture.FAST, max_epochs=12, seed=seed)
    train_trace_model(site, Architecture.FAST, settings=settings, device="cpu", user="benchmark")
    site.cpu_windows.commit(windows.filter(pl.col("window_start") >= cut))


def table(trials: Sequence[Trial]) -> dict[str, Any]:
    """The figures by kind and severity."""
    return {
        kind: {
            severity: {
                "recall": round(cell.recall, 3), "delay_s": cell.delay_s, "n": cell.n,
                "paged": None if cell.paged is None else round(cell.paged, 3),
            }
            for severity, cell in by_severity.items()
        }
        for kind, by_severity in coverage_of(trials).items()
    }  # fmt: skip


def main() -> None:
    """Run the seeds, print the figures, write them down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[20])
    parser.add_argument("--traces", action=argparse.BooleanOptionalAction, default=True, help="CPU windows as well")
    parser.add_argument("--no-models", action="store_true", help="rules alone for events")
    parser.add_argument("-n", type=int, default=2, help="faults of each kind and severity on each site")
    options = parser.parse_args()
    began, runs = time.process_time(), list[Rehearsal]()
    for seed in options.seeds:
        plan = RehearsalPlan(n=options.n, seed=seed, models=not options.no_models)
        for kind in ("cluster", "grid"):
            with tempfile.TemporaryDirectory() as folder:
                where = Path(folder)
                opened = cluster_site(where, seed, traces=options.traces) if kind == "cluster" else grid_site(where, seed)
                with opened as site:
                    runs.append(rehearse(site, plan))
            print(f"{kind} of seed {seed}: {len(runs[-1].trials)} faults, {runs[-1].walks} walks", flush=True)
    trials = [trial for run in runs for trial in run.trials]
    false = [run.false_pages_per_week for run in runs if run.false_pages_per_week is not None]
    answer = {
        "seeds": options.seeds,
        "models": not options.no_models,
        "faults": table(trials),
        "false_pages_per_week": {
            "mean": round(statistics.fmean(false), 3),
            "std": round(statistics.pstdev(false), 3),
            "n": len(false),
        },
        "promised": Settings().alarms.pages_per_week,
        "holes": [run.holes for run in runs],
        "walks": sum(run.walks for run in runs),
        "cpu_s": round(time.process_time() - began, 1),
    }
    RESULTS.write_text(json.dumps(answer, indent=1) + "\n")
    print(json.dumps({key: answer[key] for key in ("false_pages_per_week", "walks", "cpu_s")}))
    for kind, cells in answer["faults"].items():
        print(
            f"{kind:22}", *(f"{severity} {cell['recall']:.2f}/{cell['paged']} ({cell['n']})" for severity, cell in cells.items())
        )


if __name__ == "__main__":
    main()
