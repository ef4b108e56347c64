"""Outages put into a site's own event counts: those of the simulated grid, and silence of a submit host or of the whole cluster.

counts + moment -> EventFaults.put -> Injection; the counts of the hours that it touches change as a whole and by place: an outage
sits where those of the simulated grid do, at one site, host, group or node. Counts per hour of one source: the largest that is
not made of job records.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.ingest.job_event_counts import PREFIX
from stormpetrel.records.event_series import HOUR_S
from stormpetrel.records.events import COUNT_SCHEMA, COVERED, PLACES, WHOLE, bucket_floor
from stormpetrel.rehearse.site.injection import SEVERITIES, Injection
from stormpetrel.simulate.grid.outages import AFTERMATH_HOURS, OUTAGES
from stormpetrel.simulate.grid.places import FOCUS

HOST_SILENT: Final = "submit_host_silent"
CLUSTER_SILENT: Final = "cluster_silent"
EVENT_FAULTS: Final = (*OUTAGES, HOST_SILENT, CLUSTER_SILENT)
LONGEST_HOURS: Final = 24
_SILENT_HOURS: Final = {HOST_SILENT: (2, 6, 12), CLUSTER_SILENT: (1, 3, 8)}  # mild, moderate, severe
_LEAST_SHARE: Final = 0.05  # of the events of the hours around, for a host whose silence is one
_LIVE_SHARE: Final = 0.01  # a kind seen in fewer of the hours is none that an outage acts through
_HOUR: Final = timedelta(hours=1)
_CELL: Final = ["bucket_start", "kind", "place", "value"]
_EVENTS: Final = frozenset({"events"})
_STAYS: Final = 0.02  # share of the events of a value that stays, however much an outage takes away there
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Seat:
    """Where an outage sits, how much of its change lies there, and which share of a value's events it leaves."""

    place: str
    value: str
    share: float
    stays: float


class EventFaults:
    """The event counts of a copy while outages are put into them; `counts` are as the table has them."""

    def __init__(self, counts: pl.DataFrame, bucket_s: int) -> None:
        self._stored = counts
        self._bucket_s = bucket_s
        own = counts.filter(~pl.col("source").str.starts_with(PREFIX), pl.col("bucket_s") == bucket_s)
        sizes = own.filter(pl.col("kind") != COVERED, pl.col("place") == WHOLE).group_by("source").agg(pl.col("count").sum())
        largest = sizes.sort("count", "source", descending=[True, False])["source"].head(1).to_list()
        self._source = str(largest[0]) if largest else ""
        self._kinds = _live_kinds(own.filter(pl.col("source") == self._source))
        self.counts = counts

    @property
    def missing(self) -> str:
        """Why no outage can be put into these counts, in a sentence; empty where some can."""
        if not self._source:
            return (
                "There is no event log beside the job records: what only event logs show (a submit host that hardly answers, a "
                "storm of disconnected jobs, evictions) would not be seen here."
            )
        if self._bucket_s != HOUR_S:
            return f"Outages are made for counts per hour; events.bucket_minutes is {self._bucket_s // 60}: none was rehearsed."
        return ""

    def begin(self) -> None:
        """Go back to the counts as they were."""
        self.counts = self._stored

    def put(self, kind: str, severity: str, at: datetime, rng: np.random.Generator) -> Injection | None:
        """Put an outage into the hours from a moment on; None where something there was not seen whole, or nobody to hit."""
        first = bucket_floor(at, HOUR_S)
        hours = outage_hours(kind, severity, rng)
        seed = int(rng.integers(2**31))
        return self.put_again(Injection(kind, severity, first, first + hours * _HOUR, _EVENTS, seed=seed))

    def put_again(self, fault: Injection) -> Injection | None:
        """Put an outage in that was chosen before, at the place at which it sits if that is known; as `put`."""
        hours = round((fault.until - fault.since) / _HOUR)
        rows = self._rows(fault.since, hours + AFTERMATH_HOURS)
        if rows is None:
            return None
        window = _Window(rows, fault.since, hours + AFTERMATH_HOURS, self._kinds)
        rng, kind = np.random.default_rng(fault.seed), fault.kind
        place, value, after = _changed(window, fault, hours, rng)
        if after is None:
            return None
        stays = 0.0 if kind in _SILENT_HOURS else _STAYS
        self._replace(rows, window.rows_with(after, _Seat(place, value, FOCUS.get(kind, ("", 1.0))[1], stays), rng))
        touched = int((after != window.whole).any(axis=1).sum())
        return replace(fault, place=f"{place} {value}".strip(), hit=touched)

    def _rows(self, first: datetime, hours: int) -> pl.DataFrame | None:
        """The rows of some hours; None where one of them has no mark."""
        inside = pl.col("bucket_start").is_between(first, first + hours * _HOUR, closed="left")
        rows = self.counts.filter(pl.col("source") == self._source, pl.col("bucket_s") == self._bucket_s, inside)
        marks = rows.filter(pl.col("kind") == COVERED)["bucket_start"].n_unique()
        return rows if marks == hours else None

    def _replace(self, rows: pl.DataFrame, changed: pl.DataFrame) -> None:
        """Put changed counts in place of the rows; what is no kind of the window stays as it was."""
        marks = rows.filter(pl.col("kind") == COVERED)
        others = rows.filter(~pl.col("kind").is_in([COVERED, *self._kinds]))
        frame = changed.with_columns(
            source=pl.lit(self._source),
            bucket_s=pl.lit(self._bucket_s, dtype=rows.schema["bucket_s"]),
            month=pl.col("bucket_start").dt.strftime("%Y-%m"),
        )
        body = pl.concat([others, frame.select([pl.col(name).cast(dtype) for name, dtype in rows.schema.items()])])
        sums = body.filter(pl.col("place") == WHOLE).group_by("bucket_start").agg(total=pl.col("count").sum())
        marked = (
            marks.join(sums, on="bucket_start", how="left").with_columns(count=pl.col("total").fill_null(0)).select(rows.columns)
        )
        rest = self.counts.join(rows.select("source", "bucket_s", *_CELL), on=["source", "bucket_s", *_CELL], how="anti")
        self.counts = pl.concat([rest, body, marked])


def outage_hours(kind: str, severity: str, rng: np.random.Generator) -> int:
    """Draw how long an outage lasts; a silence lasts the longer the more severe it is."""
    if kind in _SILENT_HOURS:
        return _SILENT_HOURS[kind][SEVERITIES.index(severity)]
    return int(np.exp(rng.random() * np.log(LONGEST_HOURS + 1)))


class _Window:
    """The counts of some hours: (hours, kinds) as a whole, (hours, kinds, values) by place."""

    def __init__(self, rows: pl.DataFrame, first: datetime, hours: int, kinds: tuple[str, ...]) -> None:
        self._first, self._hours, self.kinds = first, hours, kinds
        self.whole = self._matrix(rows.filter(pl.col("place") == WHOLE), (WHOLE,))[:, :, 0]
        self.places: dict[str, tuple[tuple[str, ...], Counts]] = {}
        for place in PLACES:
            here = rows.filter(pl.col("place") == place)
            values = tuple(here["value"].unique().sort())
            if values:
                self.places[place] = values, self._matrix(here, values)

    def _matrix(self, rows: pl.DataFrame, values: tuple[str, ...]) -> Counts:
        table = np.zeros((self._hours, len(self.kinds), len(values)), dtype=np.int64)
        rows = rows.filter(pl.col("kind").is_in(self.kinds))
        hour = ((rows["bucket_start"] - self._first).dt.total_seconds() // HOUR_S).to_numpy().astype(np.int64)
        kind = np.array([self.kinds.index(name) for name in rows["kind"]], dtype=np.int64)
        value = np.array([values.index(name) for name in rows["value"]], dtype=np.int64)
        table[hour, kind, value] = rows["count"].to_numpy()  # a cell has one row
        return table

    def rows_with(self, after: Counts, seat: _Seat, rng: np.random.Generator) -> pl.DataFrame:
        """The rows of these hours with other counts as a whole: the change lies mostly at one value of one place."""
        frames = [self._frame(WHOLE, (WHOLE,), after[:, :, None])]
        for name, (values, calm) in self.places.items():
            focus = np.array([float(name == seat.place and value == seat.value) for value in values])
            frames.append(self._frame(name, values, _split(calm, (self.whole, after), focus, seat, rng)))
        return pl.concat(frames)

    def _frame(self, place: str, values: tuple[str, ...], counts: Counts) -> pl.DataFrame:
        hour, kind, value = np.nonzero(counts)
        return pl.DataFrame(
            {
                "bucket_start": [self._first + int(index) * _HOUR for index in hour],
                "kind": [self.kinds[index] for index in kind],
                "place": [place] * hour.size,
                "value": [values[index] for index in value],
                "count": counts[hour, kind, value],
            },
            schema={name: COUNT_SCHEMA[name] for name in (*_CELL, "count")},
        )


def _changed(window: _Window, fault: Injection, hours: int, rng: np.random.Generator) -> tuple[str, str, Counts | None]:
    """The place and value at which an outage sits, and (hours, kinds) the counts that it leaves; None where it hits nobody."""
    after = window.whole.copy()
    if fault.kind == CLUSTER_SILENT:
        after[:hours] = 0
        return "", "", after if window.whole[:hours].any() else None
    place = "submit_host" if fault.kind == HOST_SILENT else FOCUS.get(fault.kind, ("", 0.0))[0]
    values, calm = window.places.get(place, ((), np.zeros((0, 0, 0), dtype=np.int64)))
    value = fault.place.partition(" ")[2] or _drawn_value(values, calm, rng)
    if fault.kind == HOST_SILENT:
        if value not in values or len(values) < 2:
            return "", "", None
        after[:hours] -= np.minimum(after, calm[:, :, values.index(value)])[:hours]
        return place, value, after
    changed = OUTAGES[fault.kind](window.whole.astype(np.float64), window.kinds, fault.severity, fault.seed)
    return place, value, np.rint(changed).astype(np.int64)


def _drawn_value(values: tuple[str, ...], calm: Counts, rng: np.random.Generator) -> str:
    """One of the values that have a share of the events worth speaking of, drawn by it; empty where there is none."""
    sizes = calm.sum(axis=(0, 1)) if len(values) else np.zeros(0)
    if not sizes.sum():
        return ""
    shares = np.where(sizes / sizes.sum() >= min(_LEAST_SHARE, sizes.max() / sizes.sum()), sizes, 0)
    return values[int(rng.choice(len(values), p=shares / shares.sum()))]


def _split(
    calm: Counts, whole: tuple[Counts, Counts], focus: npt.NDArray[np.float64], seat: _Seat, rng: np.random.Generator
) -> Counts:
    """(hours, kinds, values) the counts by place: as before where nothing changed, else the change mostly at the focus."""
    before, after = whole
    total = calm.sum(axis=2)  # (hours, kinds): not every event has a place
    known = total.sum(axis=0) > 0  # (kinds,)
    ratio = np.divide(total, before, out=np.ones(total.shape), where=before > 0)
    wanted_total = np.where(known, np.rint(after * np.minimum(ratio, 1.0)), 0).astype(np.int64)
    usual = calm.sum(axis=0) + 1e-9  # (kinds, values)
    weights = np.where(total[:, :, None] > 0, calm, usual) / np.where(total[:, :, None] > 0, calm, usual).sum(
        axis=2, keepdims=True
    )
    spread = seat.share * focus + (1 - seat.share) * weights if focus.any() else weights
    wanted = np.maximum(calm + (wanted_total - total)[:, :, None] * spread, seat.stays * calm + 1e-12)
    drawn = rng.multinomial(wanted_total, wanted / wanted.sum(axis=2, keepdims=True))
    return np.where((wanted_total == total)[:, :, None], calm, drawn)


def _live_kinds(rows: pl.DataFrame) -> tuple[str, ...]:
    """The kinds that a source has told of in at least one hour of a hundred, in alphabetical order."""
    hours = rows.filter(pl.col("kind") == COVERED)["bucket_start"].n_unique()
    seen = rows.filter(pl.col("kind") != COVERED, pl.col("place") == WHOLE, pl.col("count") > 0)
    often = seen.group_by("kind").agg(n=pl.col("bucket_start").n_unique()).filter(pl.col("n") >= max(1, _LIVE_SHARE * hours))
    return tuple(sorted(often["kind"]))
