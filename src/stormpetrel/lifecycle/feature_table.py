"""The features of all jobs of a site as a table of Parquet files, however many jobs there are: by the engine, piece by piece.

Site + folder + Engine -> write_feature_table -> FeatureTable. Three steps, of which a killed run repeats only what was not done:
this process copies the job table into pieces of submission time; each shard of the history (jobs/history_shards) is an item that
is swept over all pieces; each piece is an item again, in which the readings of the shards and the request become features. Files
of a finished table: MOMENT-PIECE.parquet with a row per job that came to the moment, in the order of submission; manifest.json.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel import __version__
from stormpetrel.engine import ONE_PROCESS, Engine, KeptResults, Progress, no_progress
from stormpetrel.engine.codecs import JsonCodec
from stormpetrel.errors import NotEnoughJobsError, UsageError
from stormpetrel.jobs.features import FeatureMatrix, matrix_of
from stormpetrel.jobs.history.history import History, in_order
from stormpetrel.jobs.history.shards import (
    PART,
    ROW,
    Shard,
    ShardReadings,
    ShardSweep,
    joined_readings,
    part_of_user,
    shards_of,
)
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.outcomes import outcome
from stormpetrel.jobs.predictor import known_by
from stormpetrel.jobs.profiles import JobProfiles, with_profile
from stormpetrel.jobs.training import TrainingSettings, counted_failed
from stormpetrel.lifecycle.case_answers import answered_jobs, with_answers
from stormpetrel.lifecycle.history_snapshot import COLUMNS, submission_spans
from stormpetrel.lifecycle.kept_frames import profiles_digest
from stormpetrel.lifecycle.whole_log import request_profiles, stand_ins_of
from stormpetrel.private_files import write_private
from stormpetrel.records.jobs import KEY
from stormpetrel.store.site import Site

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
PARTS: Final = 8  # that users are divided into
_WORK: Final = ".work"  # what a killed run goes on with; it goes when the table is finished
_PLAN: Final = "plan.json"


@dataclass(frozen=True, slots=True)
class Pieces:
    """The job table, copied into pieces: how many jobs each holds, where it ends, and what else features depend on."""

    until: str
    table_version: int
    rows: tuple[int, ...]
    ends: tuple[float, ...]  # Unix seconds; the last piece holds everything later, too
    stand_in: dict[str, str]
    profiles: str  # digest
    answers: int
    parts: int
    settings: dict[str, Any]
    code: str = __version__

    def first_row(self, piece: int) -> int:
        """The place of the first job of a piece in the whole log."""
        return sum(self.rows[:piece])

    def span(self, piece: int) -> tuple[float, float]:
        """From when to when things happen that are taken in with this piece."""
        last = piece == len(self.rows) - 1
        return (self.ends[piece - 1] if piece else -np.inf), (np.inf if last else self.ends[piece])


@dataclass(frozen=True, slots=True)
class SweptShard:
    """What a worker swept: its files, by moment and by the piece whose jobs they are about, and the most memory it held."""

    files: dict[str, dict[int, list[str]]]
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class JoinedPiece:
    """What a worker wrote of one piece: the rows and the features of each moment."""

    rows: dict[str, int]
    names: dict[str, list[str]]
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class FeatureTable:
    """A finished table of features."""

    folder: Path
    jobs: int
    rows: dict[str, int] = field(default_factory=dict)  # by moment
    features: dict[str, int] = field(default_factory=dict)
    pieces: int = 0
    shards: int = 0
    peak_bytes: int = 0  # the most memory that any process held


def write_feature_table(
    site: Site,
    folder: Path,
    settings: TrainingSettings,
    moments: Collection[Moment] = MOMENTS,
    *,
    until: datetime | None = None,
    answers: bool = True,
    parts: int = PARTS,
    profiles: JobProfiles | None = None,
    engine: Engine = ONE_PROCESS,
    progress: Progress = no_progress,
) -> FeatureTable:
    """Write the features of all jobs as they were known at `until` (now, where it is left out) into a folder.

    With these `profiles`, or with those of the latest jobs, as a training makes them. To the last bit those of one sweep in
    memory, and so independent of `parts` and engine. Telemetry has no column here.
    """
    if settings.similar_names:
        raise UsageError(
            "Groups of similar names are found in one sweep over all jobs, which cannot be divided.",
            hint="Set jobs.similar_names = false.",
        )
    if (folder / MANIFEST).exists() or (folder.exists() and not (folder / _WORK).exists() and any(folder.iterdir())):
        raise UsageError(f"{folder} holds something already.", hint="Name a new folder.")
    work = folder / _WORK
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    work.mkdir(mode=0o700, exist_ok=True)
    chosen = tuple(moment for moment in MOMENTS if moment in moments)
    copying = _share(progress, 0.0, 0.1)
    pieces = _copied_pieces(site, work, settings, until, answers=answers, parts=parts, profiles=profiles, progress=copying)
    at, run = replace(engine, shared=work), {**asdict(pieces), "moments": list(chosen)}
    shards = shards_of(parts)
    swept = list(
        at.map(
            _Sweep(work.resolve(), pieces, chosen), shards, name=lambda shard: shard.name, progress=_share(progress, 0.1, 0.7),
            kept=KeptResults(work / "shards", run, JsonCodec[SweptShard](SweptShard)),
        )
    )  # fmt: skip
    joined = list(
        at.map(
            _Join(work.resolve(), pieces, chosen, swept, settings), range(len(pieces.rows)),
            name=lambda piece: f"piece {piece + 1} of {len(pieces.rows)}", progress=_share(progress, 0.7, 1.0),
            kept=KeptResults(work / "pieces", run, JsonCodec[JoinedPiece](JoinedPiece)),
        )
    )  # fmt: skip
    rows = {str(moment): sum(piece.rows[moment] for piece in joined) for moment in chosen}
    names = {str(moment): joined[0].names[moment] for moment in chosen}
    files = {file_of(folder, moment, piece) for moment in chosen for piece in range(len(pieces.rows))}
    for file in files:
        if (work / file.name).exists():  # else a run that was killed here had moved it
            (work / file.name).replace(file)
    for file in {*folder.glob("*.parquet")} - files:  # of a run that wanted something else, and was killed here
        file.unlink()
    manifest = {"format": FORMAT, **run, "rows": rows, "features": names}
    write_private(folder / MANIFEST, json.dumps(manifest, indent=1))
    shutil.rmtree(work)
    peak = max(_peak_bytes(), *(shard.peak_bytes for shard in swept), *(piece.peak_bytes for piece in joined))
    features = {moment: len(columns) for moment, columns in names.items()}
    return FeatureTable(folder, sum(pieces.rows), rows, features, len(pieces.rows), len(shards), peak)


def file_of(folder: Path, moment: Moment | str, piece: int) -> Path:
    """The file with the features of the jobs of a piece at a moment."""
    return folder / f"{moment}-{piece:05}.parquet"


def read_features(folder: Path, moment: Moment, piece: int) -> FeatureMatrix:
    """The features of a piece of a finished table."""
    names = json.loads((folder / MANIFEST).read_text())["features"][moment]
    values = pl.read_parquet(file_of(folder, moment, piece), columns=names)
    return FeatureMatrix(moment, tuple(names), values.to_numpy().astype(np.float32, copy=False))


# --- the job table, in pieces ---------------------------------------------------------------------------------------------------


def _copied_pieces(
    site: Site,
    work: Path,
    settings: TrainingSettings,
    until: datetime | None,
    *,
    answers: bool,
    parts: int,
    profiles: JobProfiles | None,
    progress: Progress,
) -> Pieces:
    """The job table as it is now, in pieces that workers can read; those of a killed run where nothing has changed since."""
    version = site.jobs.table.version()
    used_answers = len(answered_jobs(site)) if answers else 0
    same = {"table_version": version, "answers": used_answers, "parts": parts, "settings": _plain(settings), "code": __version__}
    kept = _kept_plan(work)
    if profiles is not None:
        same["profiles"] = profiles_digest(profiles)
    is_same = kept is not None and all(getattr(kept, name) == value for name, value in same.items())
    if kept is not None and is_same and (until is None or until.isoformat() == kept.until):
        return kept
    for old in (work / "shards", work / "pieces", work / "jobs"):
        shutil.rmtree(old, ignore_errors=True)
    (work / "jobs").mkdir(mode=0o700)
    moment = until or site.now()
    jobs = site.jobs.read_jobs(until=moment)
    stand_in = stand_ins_of(jobs)
    if profiles is None:
        submitted = _last_usable(jobs, moment, settings)
        if submitted is None:
            raise NotEnoughJobsError("The site has no jobs that have ended.", hint="Run: stormpetrel ingest jobs FILE")
        profiles = request_profiles(jobs.filter(pl.col("submit_time") <= submitted), moment, settings)
    rows: list[int] = []
    ends: list[float] = []
    for begin, end in submission_spans(site, None, moment):
        piece = in_order(known_by(site.jobs.read_jobs(since=begin, until=end).select(COLUMNS).collect(), moment))
        piece = with_answers(site, piece) if used_answers else piece
        number = pl.int_range(sum(rows), sum(rows) + pl.len(), dtype=pl.Int64).alias(ROW)
        piece = piece.with_columns(number, part_of_user(parts), with_profile(piece, profiles, stand_in)["profile"])
        _write(piece, _piece_file(work, len(rows)))
        rows.append(piece.height)
        ends.append(end.timestamp())
        progress(0.5, f"{sum(rows):,} jobs read")
    pieces = Pieces(
        moment.isoformat(), version, tuple(rows), tuple(ends), stand_in, profiles_digest(profiles), used_answers, parts,
        _plain(settings),
    )  # fmt: skip
    write_private(work / _PLAN, json.dumps(asdict(pieces)))
    return pieces


def _last_usable(jobs: pl.LazyFrame, until: datetime, settings: TrainingSettings) -> datetime | None:
    """When the last job that counts was submitted: profiles are made of those up to then, as in a training."""
    columns = ("submit_time", "start_time", "end_time", "elapsed_s", "state", "time_limit_s")
    ended = jobs.select(columns).filter(pl.col("end_time") < until)
    counted = ended.filter(counted_failed(settings).is_not_null())
    last = counted.select(pl.col("submit_time").max()).collect().item()
    return last if isinstance(last, datetime) else None


def _kept_plan(work: Path) -> Pieces | None:
    try:
        return JsonCodec[Pieces](Pieces).decode((work / _PLAN).read_bytes())
    except (OSError, ValueError):
        return None


def _plain(settings: TrainingSettings) -> dict[str, Any]:
    """Settings as JSON has them."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(settings)))
    return plain


def _piece_file(work: Path, piece: int) -> Path:
    return work / "jobs" / f"{piece:05}.parquet"


# --- a shard, over all pieces ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Sweep:
    """Sweeps a shard over all pieces, and writes what it reads of each job."""

    work: Path
    pieces: Pieces
    moments: tuple[Moment, ...]

    def __call__(self, shard: Shard, progress: Progress) -> SweptShard:
        settings, pieces = self.pieces.settings, self.pieces
        sweep = ShardSweep(shard, settings["failure_states"], settings["dropped_states"], pieces.stand_in)
        firsts = np.cumsum([0, *pieces.rows])
        folder = self.work / "readings" / shard.name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files: dict[str, dict[int, list[str]]] = {str(moment): {} for moment in self.moments}
        for number in range(len(pieces.rows)):
            progress(number / len(pieces.rows), f"piece {number + 1} of {len(pieces.rows)}")
            piece = pl.read_parquet(_piece_file(self.work, number), columns=list(shard.columns))
            since, until = pieces.span(number)
            for moment, readings in sweep.step(piece, since=since, until=until, moments=self.moments):
                of_piece = np.searchsorted(firsts, readings.rows, side="right") - 1
                for home in np.unique(of_piece):  # jobs that were carried along belong to an earlier one
                    which = of_piece == home
                    path = folder / f"{moment}-{home:05}-{number:05}.parquet"
                    values = pl.DataFrame(readings.values[which], schema=list(readings.names))
                    _write(values.with_columns(pl.Series(ROW, readings.rows[which] - firsts[home])), path)
                    files[moment].setdefault(int(home), []).append(str(path.relative_to(self.work)))
        return SweptShard(files, _peak_bytes())


# --- a piece, from all shards ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Join:
    """Puts the readings of all shards and the requests of one piece together."""

    work: Path
    pieces: Pieces
    moments: tuple[Moment, ...]
    swept: Sequence[SweptShard]
    settings: TrainingSettings

    def __call__(self, number: int, progress: Progress) -> JoinedPiece:
        jobs = pl.read_parquet(_piece_file(self.work, number)).drop(PART, ROW)
        history = History(self.settings.failure_states, self.settings.dropped_states, stand_in=self.pieces.stand_in)
        label = jobs.select(counted_failed(self.settings), outcome())
        rows, names = {}, {}
        for place, moment in enumerate(self.moments):
            progress(place / len(self.moments), str(moment))
            of_shards = [_read(self.work / name) for shard in self.swept for name in shard.files[moment].get(number, ())]
            readings, came = joined_readings(moment, jobs.height, of_shards)
            matrix = matrix_of(jobs, readings, history, moment, time_zone=self.settings.time_zone).rows(came)
            table = jobs.select(KEY).with_columns(label).filter(came)
            features = pl.DataFrame(matrix.values, schema=list(matrix.names))
            _write(pl.concat([table, features], how="horizontal"), file_of(self.work, moment, number))
            rows[str(moment)], names[str(moment)] = table.height, list(matrix.names)
        return JoinedPiece(rows, names, _peak_bytes())


def _read(path: Path) -> ShardReadings:
    frame = pl.read_parquet(path)
    values = frame.drop(ROW)
    return ShardReadings(tuple(values.columns), frame[ROW].to_numpy(), values.to_numpy())


def _write(frame: pl.DataFrame, path: Path) -> None:
    """Write a file whole or not at all."""
    making = path.with_suffix(".making")
    frame.write_parquet(making, compression="zstd", compression_level=1)
    making.replace(path)


def _peak_bytes() -> int:
    """The most memory that this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _share(progress: Progress, first: float, last: float) -> Progress:
    return lambda share, text: progress(first + (last - first) * min(1.0, share), text)
