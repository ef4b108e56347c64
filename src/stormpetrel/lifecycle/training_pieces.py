"""Training on more jobs than fit in memory: the history is swept piece by piece, features are kept of rows that a fit takes.

Site -> label_site -> LabelledJobs, whose features lie in a file without a name; to the last bit those of one sweep in memory.
Telemetry has columns of its own: a site that has any trains in memory.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.engine import ONE_PROCESS, Engine
from stormpetrel.jobs.features import FeatureMatrix, matrix_of
from stormpetrel.jobs.history.history import History, Readings, event_times, in_order
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.optimism import optimism
from stormpetrel.jobs.outcomes import outcome
from stormpetrel.jobs.predictor import known_by
from stormpetrel.jobs.profiles import JobProfiles, with_profile
from stormpetrel.jobs.training import LabelledJobs, TrainingSettings, counted_failed, notes_on, rows_of_fits
from stormpetrel.lifecycle.case_answers import with_answers
from stormpetrel.lifecycle.feature_table import read_features, write_feature_table
from stormpetrel.lifecycle.history_snapshot import pieces, submission_spans
from stormpetrel.lifecycle.whole_log import request_profiles, stand_ins_of
from stormpetrel.records.jobs import KEY
from stormpetrel.store.site import Site

_LARGE: Final = 500_000  # jobs, from which on they are taken piece by piece
_BLOCK: Final = 65_536
_ROW: Final = "_row"
_LABEL_COLUMNS: Final = (*KEY, "start_time", "end_time", "elapsed_s", "state", "time_limit_s")
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _StoredFeatures(FeatureMatrix):
    """Features that lie in a file: `place` is the row there of each job, −1 where none was kept."""

    place: NDArray[np.int64]

    def rows(self, which: Mask | NDArray[np.int64]) -> FeatureMatrix:
        """The features of some of the jobs, in memory."""
        chosen = self.place[which]
        if (chosen < 0).any():
            raise ValueError("Features of a job were not kept that a fit asks for.")
        out = np.empty((chosen.size, len(self.names)), np.float32)
        for begin in range(0, chosen.size, _BLOCK):
            out[begin : begin + _BLOCK] = self.values[chosen[begin : begin + _BLOCK]]
            _let_go(self.values)
        return FeatureMatrix(self.moment, self.names, out)


def is_large(site: Site, until: datetime) -> bool:
    """Whether a site's jobs are to be taken piece by piece."""
    if site.cpu_windows.table.exists() and site.cpu_windows.table.files():
        return False
    return int(site.jobs.read_jobs(until=until).select(pl.len()).collect().item()) >= _LARGE


def label_site(
    site: Site,
    settings: TrainingSettings,
    moments: Collection[Moment],
    *,
    until: datetime,
    answers: bool,
    profiles: JobProfiles | None = None,
    engine: Engine = ONE_PROCESS,
) -> LabelledJobs:
    """Label the jobs of a site as they were known at `until`, and make the features of the rows that a training of it takes.

    With several workers as a table of features of all jobs, in a folder of the site that goes again; the same to the last bit.
    """
    jobs = site.jobs.read_jobs(until=until)
    labels = _Labels.of(site, settings, until=until, answers=answers)
    stand_in = stand_ins_of(jobs)
    if profiles is None:
        last_usable = labels.submit[labels.usable].max(initial=-np.inf)
        profiles = request_profiles(jobs.filter(pl.col("submit_time").dt.epoch("us") <= last_usable * 1e6), until, settings)
    labelled = LabelledJobs(
        jobs=labels.jobs,
        features={},
        failed=labels.failed,
        usable=labels.usable,
        outcome=labels.outcome,
        submit=labels.submit,
        end=labels.end,
        history=History(
            settings.failure_states, settings.dropped_states, stand_in=stand_in, similar_names=settings.similar_names
        ),
        profiles=profiles,
        optimism=optimism(jobs),
        seen=labels.seen,
    )
    del labels
    if engine != ONE_PROCESS and not settings.similar_names:  # groups of similar names are found in one sweep
        return _from_table(site, labelled, settings, moments, until=until, answers=answers, engine=engine)
    return _with_features(site, labelled, settings, moments, until=until, answers=answers)


@dataclass(frozen=True, slots=True)
class _Labels:
    """What a training has to know of every job, in the order of submission: 45 bytes a job."""

    jobs: pl.DataFrame  # submit_time
    failed: Mask
    usable: Mask
    outcome: pl.Series
    submit: NDArray[np.float64]
    end: NDArray[np.float64]
    seen: dict[Moment, Mask]

    @classmethod
    def of(cls, site: Site, settings: TrainingSettings, *, until: datetime, answers: bool) -> _Labels:
        """Of all jobs as they were known at `until`; the rows themselves are read and let go piece by piece."""
        parts = [
            cls._of_piece(site, settings, begin, end, until, answers=answers)
            for begin, end in submission_spans(site, None, until)
        ]
        return cls(
            jobs=pl.concat([part.jobs for part in parts]),
            failed=np.concatenate([part.failed for part in parts]),
            usable=np.concatenate([part.usable for part in parts]),
            outcome=pl.concat([part.outcome for part in parts]),
            submit=np.concatenate([part.submit for part in parts]),
            end=np.concatenate([part.end for part in parts]),
            seen={moment: np.concatenate([part.seen[moment] for part in parts]) for moment in MOMENTS},
        )

    @classmethod
    def _of_piece(
        cls, site: Site, settings: TrainingSettings, begin: datetime, end: datetime, until: datetime, *, answers: bool
    ) -> _Labels:
        rows = in_order(known_by(site.jobs.read_jobs(since=begin, until=end).select(_LABEL_COLUMNS).collect(), until))
        rows = with_answers(site, rows) if answers else rows
        label = rows.select(counted_failed(settings), outcome())
        happened = event_times(rows)
        submitted, ended = ((rows[name].dt.epoch("us").cast(pl.Float64) / 1e6).to_numpy() for name in ("submit_time", "end_time"))
        return cls(
            jobs=rows.select("submit_time"),
            failed=label["failed"].fill_null(False).to_numpy(),
            usable=label["failed"].is_not_null().to_numpy() & rows["submit_time"].is_not_null().to_numpy(),
            outcome=label["outcome"],
            submit=submitted,
            end=ended,
            seen={moment: ~np.isnan(happened[:, column]) for column, moment in enumerate(MOMENTS)},
        )


def _with_features(
    site: Site,
    labelled: LabelledJobs,
    settings: TrainingSettings,
    moments: Collection[Moment],
    *,
    until: datetime,
    answers: bool,
) -> LabelledJobs:
    """Sweep all jobs, piece by piece, and keep the features of the rows that fits take."""
    history, profiles = labelled.history, labelled.profiles
    wanted = {moment: rows_of_fits(labelled, moment, settings) for moment in moments}
    stores: dict[Moment, _StoredFeatures] = {}
    began, rows = -np.inf, 0
    carried: pl.DataFrame | None = None
    for piece, end in pieces(site, None, until):
        fresh = in_order(piece.filter(pl.col("submit_time").dt.epoch("us") >= began * 1e6) if carried is not None else piece)
        fresh = (with_answers(site, fresh) if answers else fresh).with_columns(pl.int_range(rows, rows + pl.len()).alias(_ROW))
        rows += fresh.height
        jobs = with_profile(
            fresh if carried is None else in_order(pl.concat([carried, fresh])), profiles, dict(history.stand_in or {})
        )
        happened, number = event_times(jobs), jobs[_ROW].to_numpy()
        last = float(np.nextafter(end.timestamp(), -np.inf))
        with np.errstate(invalid="ignore"):
            done = happened < began
        advanced = history.advance(jobs, done, since=-np.inf, until=last, moments=moments)
        for moment in moments:
            due = np.flatnonzero(advanced.due[:, MOMENTS.index(moment)] & wanted[moment][number])
            matrix = matrix_of(jobs[due], _some(advanced.readings, moment, due), history, moment, time_zone=settings.time_zone)
            if moment not in stores:
                stores[moment] = _store(site, matrix, wanted[moment])
            stores[moment].values[stores[moment].place[number[due]]] = matrix.values
            _let_go(stores[moment].values)
        with np.errstate(invalid="ignore"):
            goes_on = pl.Series((happened >= end.timestamp()).any(axis=1))
        carried = jobs.filter(goes_on).select(fresh.columns)
        began = end.timestamp()
    notes = notes_on(history, labelled.optimism)
    return replace(labelled, features=stores, notes=notes)


def _from_table(
    site: Site,
    labelled: LabelledJobs,
    settings: TrainingSettings,
    moments: Collection[Moment],
    *,
    until: datetime,
    answers: bool,
    engine: Engine,
) -> LabelledJobs:
    """Let the engine write the features of all jobs, and keep those of the rows that fits take."""
    stores: dict[Moment, _StoredFeatures] = {}
    seen = labelled.seen or {}
    with tempfile.TemporaryDirectory(dir=site.folder, prefix=".features-") as folder:
        table = write_feature_table(
            site, Path(folder), settings, moments, until=until, answers=answers, profiles=labelled.profiles, engine=engine
        )
        for moment in moments:
            wanted, rows = rows_of_fits(labelled, moment, settings), np.flatnonzero(seen[moment])
            begin = 0
            for piece in range(table.pieces):
                matrix = read_features(table.folder, moment, piece)
                number = rows[begin : begin + len(matrix.values)]
                begin += number.size
                if moment not in stores:
                    stores[moment] = _store(site, matrix, wanted)
                kept = wanted[number]
                stores[moment].values[stores[moment].place[number[kept]]] = matrix.values[kept]
                _let_go(stores[moment].values)
    return replace(labelled, features=stores, notes=notes_on(labelled.history, labelled.optimism))


def _store(site: Site, like: FeatureMatrix, wanted: Mask) -> _StoredFeatures:
    """Room for the features of so many rows, on the site's own disk: it goes when nobody holds it any more."""
    count = int(wanted.sum())
    place = np.where(wanted, np.cumsum(wanted) - 1, -1)
    with tempfile.TemporaryFile(dir=site.folder) as file:
        values: Any = np.memmap(file, np.float32, "w+", shape=(max(1, count), len(like.names)))
    return _StoredFeatures(like.moment, like.names, values, place)


def _let_go(values: Any) -> None:
    """Let the system write out what was changed, and take the memory back; the file keeps it."""
    values._mmap.madvise(mmap.MADV_DONTNEED)


def _some(readings: Readings, moment: Moment, rows: NDArray[np.intp]) -> Readings:
    nodes = {at: matrix[rows] for at, matrix in readings.nodes.items()}
    return Readings(readings.names, readings.similarity[rows], {moment: readings.at[moment][rows]}, nodes)
