"""The bench of faults put into a site's own CPU windows, scored by the model in use and walked through as `alarms replay` does.

Site -> TraceFaults -> put (kind, severity) -> Injection; the windows of one node at some moments in a row change and are scored
again. Of what the site keeps the newest moments are taken, after the last that the model has learnt from where there are enough.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel.errors import StormpetrelError
from stormpetrel.lifecycle.trace_learning import in_order
from stormpetrel.lifecycle.trace_models import FAMILY, TraceModel, load_trace_model, seen_by
from stormpetrel.lifecycle.window_scoring import score_frame
from stormpetrel.records.traces import LIVE
from stormpetrel.records.window_frames import KEPT_MODES, float_lists, windows_of
from stormpetrel.rehearse.site.injection import Injection
from stormpetrel.simulate.grid.outages import OUTAGES
from stormpetrel.store.site import Site
from stormpetrel.traces.faults.bench import BENCH
from stormpetrel.traces.faults.contract import inject

# By the name under which they are rehearsed: an outage of events may be called the same.
_FAULTS: Final = {f"cpu_{fault.name}" if fault.name in OUTAGES else fault.name: fault for fault in BENCH}
TRACE_FAULTS: Final = tuple(_FAULTS)
LASTS: Final = 8  # windows that a fault lasts
BEFORE: Final = 12  # windows before the first fault, and between two
_MOST_MOMENTS: Final = 120
_MOST_WINDOWS: Final = 60_000
_FEWEST_THREADS: Final = 2  # of a node


class TraceFaults:
    """The newest windows of a site and what its model says of them; faults are put into them round by round."""

    def __init__(self, site: Site) -> None:
        self.notes: list[str] = []
        self.missing = ""
        self.model: TraceModel | None = None
        self._stored = self.windows = site.cpu_windows.read().head(0).collect()
        self._calm = self.scores = pl.DataFrame()
        self.moments: list[datetime] = []
        self._load(site)

    def _load(self, site: Site) -> None:
        windows = _newest(site)
        if not windows.height:
            self.missing = (
                "There are no CPU windows: what only CPU traces show (a straggler in an MPI job, a hung process, a throttled "
                "CPU) would not be seen here."
            )
            return
        try:
            self.model = load_trace_model(site, threads=1)
        except StormpetrelError as error:
            self.missing = f"CPU windows cannot be scored ({error}): what only CPU traces show would not be seen here."
            return
        windows = in_order(self._unseen(site, windows.filter(seen_by(self.model))))
        self._stored = self.windows = windows
        self.moments = [moment.astimezone(UTC) for moment in windows["window_start"].unique().sort()]
        if len(self.moments) < BEFORE + LASTS:
            self.missing = f"Only {len(self.moments)} moments of CPU windows are kept: too few to rehearse on."
            return
        self._calm = self.scores = score_frame(self.model, windows)

    def _unseen(self, site: Site, windows: pl.DataFrame) -> pl.DataFrame:
        """The windows that the model has not learnt from, where these are enough."""
        training = site.models.current_training(FAMILY)
        until = training.models[0].about.get("trained_until") if training else None
        if not until:
            return windows
        later = windows.filter(pl.col("window_start") > datetime.fromisoformat(str(until)))
        if later["window_start"].n_unique() >= 2 * (BEFORE + LASTS):
            return later
        self.notes.append("The trace model has learnt from the windows into which faults are put: it knows the calm ones.")
        return windows

    @property
    def slots(self) -> list[int]:
        """The places of the moments at which faults begin."""
        return list(range(BEFORE, len(self.moments) - LASTS + 1, BEFORE + LASTS))

    def begin(self) -> None:
        """Go back to the windows as they were."""
        self.windows, self.scores = self._stored, self._calm

    def put(self, kind: str, severity: str, place: int, rng: np.random.Generator) -> Injection | None:
        """Put a fault into the windows of one node from a moment on; None where no node has threads enough all the time."""
        chosen = self.moments[place : place + LASTS]
        here = self.windows.filter(pl.col("window_start").is_in(chosen))
        threads = here.group_by("node").agg(moments=pl.col("window_start").n_unique(), rows=pl.len())
        whole = threads.filter(pl.col("moments") == len(chosen), pl.col("rows") >= _FEWEST_THREADS * len(chosen)).sort("node")
        if not whole.height:
            return None
        node, seed = str(whole["node"][int(rng.integers(whole.height))]), int(rng.integers(2**31))
        names = frozenset({node})
        fault = Injection(kind, severity, chosen[0], chosen[-1], frozenset({"traces"}), subjects=names, nodes=names, seed=seed)
        changed = put_into_windows(here.filter(pl.col("node") == node), fault)
        self.windows = in_order(pl.concat([self.windows.join(changed, on=["node", "cpu", "window_start"], how="anti"), changed]))
        assert self.model is not None
        again = score_frame(self.model, in_order(self.windows.filter(pl.col("window_start").is_in(chosen))))
        self.scores = pl.concat([self.scores.filter(~pl.col("window_start").is_in(chosen)), again])
        length = timedelta(seconds=float(again["window_s"].max()))  # type: ignore[arg-type]
        return replace(fault, until=chosen[-1] + length, hit=changed.height)


def put_into_windows(rows: pl.DataFrame, fault: Injection) -> pl.DataFrame:
    """Return windows of one node with a fault in them: the same threads at every moment."""
    parts = []
    for part in rows.sort("window_start", "cpu").partition_by("window_start", maintain_order=True):
        rates = windows_of(part).rates.transpose(1, 0, 2)  # (steps, threads, modes)
        severity: Any = fault.severity
        faulty = inject(_FAULTS[fault.kind], rates, severity, fault.seed).transpose(1, 0, 2).astype(np.float32)
        modes = {mode: float_lists(faulty[:, :, column]) for column, mode in enumerate(KEPT_MODES)}
        parts.append(part.with_columns(**modes))
    return pl.concat(parts) if parts else rows


def _newest(site: Site) -> pl.DataFrame:
    """The newest moments of live windows, or of the newest campaign where there are none, as if they were live."""
    rows = site.cpu_windows.read()
    newest = rows.group_by("trace").agg(pl.col("window_start").max()).sort("window_start", descending=True).collect()
    traces = newest["trace"].to_list()
    if not traces:
        return rows.head(0).collect()
    chosen = rows.filter(pl.col("trace") == (LIVE if LIVE in traces else traces[0]))
    moments = chosen.group_by("window_start").len().sort("window_start", descending=True).head(_MOST_MOMENTS).collect()
    within = moments.filter(pl.col("len").cum_sum() <= _MOST_WINDOWS)
    if not within.height:
        return rows.head(0).collect()
    return chosen.filter(pl.col("window_start") >= within["window_start"].min()).with_columns(trace=pl.lit(LIVE)).collect()
