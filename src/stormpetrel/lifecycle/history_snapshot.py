"""The history of a site's jobs as it was some days ago, kept in a file: whoever needs it now sweeps only what came since.

Site + JobPredictor -> recall_history -> the predictor's history holds everything known at a time, to the last bit what one sweep
over all jobs gives. A snapshot holds all events before its cut, of rows whose digests it names by file. It is of no use, and made
anew, where the models count other things, where a file of it is damaged, or where a row says something else about the time before
the cut than it did then: a record that came late, a job that was deleted.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel.jobs import outcomes, profiles
from stormpetrel.jobs.history import history, keys
from stormpetrel.jobs.history.history import event_times, in_order
from stormpetrel.jobs.predictor import JobPredictor, known_by
from stormpetrel.learn import similar_texts
from stormpetrel.lifecycle.kept_frames import code_digest, profiles_digest
from stormpetrel.private_files import write_private, writing_private
from stormpetrel.records.jobs import KEY, SCRIPT_SIGNATURE
from stormpetrel.store.site import Site

FORMAT_VERSION: Final = 1
LAG: Final = timedelta(days=2)  # accounting tells of an end hours later at times, and a stream looks back for a day
FEWEST_JOBS: Final = 5_000  # fewer are swept in no time
PIECE_ROWS: Final = 250_000  # jobs that are swept at a time
# What the sweep reads of a job. What is allocated counts where it stands in for a request, and not else.
_OF_REQUEST: Final = (
    "user", "account", "partition", "qos", "job_name", "script_path", "work_dir", "time_limit_s", "req_cpus", "req_nodes",
    "req_gpus", "req_mem_bytes",
)  # fmt: skip
_OF_END: Final = ("state", "elapsed_s", "node_list")
_ALLOCATED: Final = ("cpus", "nodes", "gpus")
COLUMNS: Final = (*KEY, *_OF_REQUEST, *_ALLOCATED, "extra", "start_time", "end_time", *_OF_END)
_SEED: Final = 23
Digests = dict[str, tuple[int, int]]  # of each file of the job table: how many rows count, and the sum of their hashes


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """What lies in the file of a snapshot, and where it was cut."""

    cut: datetime
    files: Digests
    arrays: Path
    sha256: str


def recall_history(site: Site, predictor: JobPredictor, *, now: datetime, fewest: int = FEWEST_JOBS) -> None:
    """Let the predictor's history, which must be empty, take in all that was known at `now`."""
    cut = carry_history(site, predictor, until=now, fewest=fewest)
    _advance(predictor, known_by(unsettled(site, cut, until=now), now), since=cut, until=None)


def carry_history(site: Site, predictor: JobPredictor, *, until: datetime, fewest: int = FEWEST_JOBS) -> datetime | None:
    """Let an empty history take in everything before a cut some days before `until`; the cut, None where nothing was taken in.

    What has to be swept for it is kept for the next who asks, where the site can be written.
    """
    wanted = cut_before(until)
    identity = _identity(predictor)
    held = newest = _read(site, identity)
    files = site.jobs.table.files()  # before any row is read
    if held is not None and held.cut <= until - LAG / 2 and _is_current(site, held, identity, predictor):
        try:
            with _arrays(held) as arrays:
                predictor.history.restore(arrays)
        except (OSError, KeyError, ValueError, zipfile.BadZipFile, pl.exceptions.PolarsError):
            held = None
    else:
        held = None
    since = held.cut if held else None
    if since is not None and since >= wanted:
        return since
    if since is None and _count(site, wanted) < fewest:
        return None
    before = since
    for piece, cut in pieces(site, since, wanted):
        _advance(predictor, piece, since=before, until=cut)
        before = cut
    if newest is None or newest.cut < wanted or held is not None:
        _write(site, identity, predictor, wanted, files)
    return wanted


def cut_before(now: datetime) -> datetime:
    """Midnight (UTC) two to three days ago: what was known then changes rarely."""
    return (now - LAG).astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def unsettled(site: Site, cut: datetime | None, *, until: datetime) -> pl.DataFrame:
    """The jobs submitted up to `until` of which anything may have happened since the cut; all where there is none."""
    rows = site.jobs.read_jobs(until=until + timedelta(microseconds=1)).select(COLUMNS)
    return rows.filter(open_at(cut)).collect() if cut is not None else rows.collect()


def pieces(site: Site, since: datetime | None, until: datetime) -> Iterator[tuple[pl.DataFrame, datetime]]:
    """All jobs of which something happened from `since` to `until`, piece by piece: the rows of a piece, and when it ends.

    A job that goes on is in the next piece again; its events are told apart by time.
    """
    carried = unsettled(site, since, until=since - timedelta(microseconds=1)) if since is not None else None
    for begin, end in submission_spans(site, since, until):
        rows = site.jobs.read_jobs(since=begin, until=end).select(COLUMNS).collect()
        whole = rows if carried is None else pl.concat([carried, rows])
        yield whole, end
        happened = event_times(whole)
        with np.errstate(invalid="ignore"):
            carried = whole.filter(pl.Series((happened >= end.timestamp()).any(axis=1)))


def submission_spans(site: Site, since: datetime | None, until: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Spans of submission with about as many jobs each, in order."""
    rows = site.jobs.read_jobs(since=since, until=until).select("submit_time")
    days = rows.group_by(day=pl.col("submit_time").dt.truncate("1d")).len().sort("day").collect()
    begin, jobs = since or datetime(1970, 1, 1, tzinfo=UTC), 0
    for day, count in days.iter_rows():
        if jobs and jobs + count > PIECE_ROWS:
            yield begin, day
            begin, jobs = day, 0
        jobs += count
    if begin < until:
        yield begin, until


def _advance(predictor: JobPredictor, jobs: pl.DataFrame, *, since: datetime | None, until: datetime | None) -> None:
    """Take in what happened to these jobs from `since` to before `until`, in the order of time."""
    jobs = in_order(jobs)
    happened = event_times(jobs)
    with np.errstate(invalid="ignore"):
        done = happened < (-np.inf if since is None else since.timestamp())
    last = np.inf if until is None else np.nextafter(until.timestamp(), -np.inf)
    predictor.history.advance(predictor.profiled(jobs), done, since=-np.inf, until=float(last))


def open_at(cut: datetime) -> pl.Expr:
    """Whether anything may have happened to a job since the cut."""
    later = [pl.col(name) >= cut for name in ("submit_time", "start_time", "end_time")]
    return pl.any_horizontal(*later, pl.col("end_time").is_null()).fill_null(True)


def _count(site: Site, until: datetime) -> int:
    return int(site.jobs.read_jobs(until=until).select(pl.len()).collect().item())


# --- whether it is of use -----------------------------------------------------------------------------------------------------


def _identity(predictor: JobPredictor) -> dict[str, Any]:
    """What a history depends on beside the jobs: what counts as a failure, the profiles, and the code."""
    from stormpetrel.jobs.history import kernel as history_kernel

    taught = predictor.history
    return {
        "format": FORMAT_VERSION,
        "code": code_digest((history_kernel, history, keys, outcomes, profiles, similar_texts)),
        "polars": pl.__version__,  # whose hashes change from version to version
        "failure_states": list(taught.failure_states),
        "dropped_states": list(taught.dropped_states),
        "stand_in": dict(taught.stand_in or {}),
        "similar_names": taught.similar_names,
        "profiles": profiles_digest(predictor.profiles),
    }


def _is_current(site: Site, held: _Snapshot, identity: Mapping[str, Any], predictor: JobPredictor) -> bool:
    """Whether the rows of the table still say about the time before the cut what they said then."""
    now = {file_name(site, path): path for path in site.jobs.table.files()}
    gone = [held.files[name] for name in held.files if name not in now]
    fresh = _digests(site, [path for name, path in now.items() if name not in held.files], held.cut, predictor)
    if total(gone) != total(fresh.values()):
        return False
    if gone or fresh:  # the next who asks need not look at these again
        files = {name: digest for name, digest in held.files.items() if name in now} | fresh
        _write_record(site, identity, _Snapshot(held.cut, files, held.arrays, held.sha256))
    return True


def _digests(site: Site, files: Iterable[Path], cut: datetime, predictor: JobPredictor) -> Digests:
    """Of each file, the number of jobs submitted before the cut, and the sum of the hashes of what was known of them then."""
    digests = {}
    used = tuple((predictor.history.stand_in or {}).values())
    for path in files:
        rows = site.jobs.table.scan([path]).filter(pl.col("submit_time") < cut).select(COLUMNS).collect()
        with np.errstate(invalid="ignore"):
            started, ended = ((event_times(rows)[:, event] < cut.timestamp()) for event in (1, 3))
        view = rows.select(
            *KEY, *_OF_REQUEST, *(name for name in _ALLOCATED if name in used),
            *([pl.col("extra").map.get(SCRIPT_SIGNATURE).alias("signature")] if predictor.history.similar_names else []),
            executable=pl.col("extra").map.get("executable"),
            start_time=pl.when(pl.Series(started)).then("start_time"),
            end_time=pl.when(pl.Series(ended)).then("end_time"),
            **{name: pl.when(pl.Series(ended)).then(name) for name in _OF_END},
        )  # fmt: skip
        digests[file_name(site, path)] = rows.height, int(view.hash_rows(_SEED).to_numpy().sum(dtype=np.uint64))
    return digests


def total(digests: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """The number of rows and the sum of the hashes of several files."""
    rows, hashes = 0, 0
    for count, number in digests:
        rows, hashes = rows + count, (hashes + number) % (1 << 64)
    return rows, hashes


def file_name(site: Site, path: Path) -> str:
    """How a record names a file of the job table."""
    return path.relative_to(site.jobs.table.path).as_posix()


# --- files --------------------------------------------------------------------------------------------------------------------


def _record(site: Site) -> Path:
    return site.snapshots / "history.json"


def _read(site: Site, identity: Mapping[str, Any]) -> _Snapshot | None:
    try:
        record = json.loads(_record(site).read_text())
        if record["identity"] != identity:
            return None
        files = {str(name): (int(rows), int(number)) for name, (rows, number) in record["files"].items()}
        name = str(record["sha256"])
        if len(name) != 64 or not name.isalnum():
            return None
        return _Snapshot(datetime.fromisoformat(record["cut"]), files, site.snapshots / f"history-{name[:16]}.npz", name)
    except (OSError, KeyError, TypeError, ValueError, AttributeError):
        return None


@contextmanager
def _arrays(held: _Snapshot) -> Iterator[Mapping[str, np.typing.NDArray[Any]]]:
    """The arrays of a snapshot, each read when it is looked up; ValueError where the file is not the one that was written."""
    with held.arrays.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != held.sha256:
            raise ValueError("its digest is another one")
    with np.load(held.arrays, allow_pickle=False) as stored:
        yield stored


def _write(site: Site, identity: Mapping[str, Any], predictor: JobPredictor, cut: datetime, swept: Sequence[Path]) -> None:
    """Keep what the history holds of these files; a site that cannot be written does without.

    Where others have committed meanwhile, it may hold some of that: nothing is kept then, unless all of it came after the cut.
    """
    if site.read_only:
        return
    with suppress(OSError, pl.exceptions.PolarsError):
        files = _digests(site, swept, cut, predictor)
        now = _digests(site, [path for path in site.jobs.table.files() if path not in set(swept)], cut, predictor)
        there = {file_name(site, path) for path in site.jobs.table.files()}
        if total(digest for name, digest in files.items() if name not in there) != total(now.values()):
            return
        files = {name: digest for name, digest in (files | now).items() if name in there}
        site.snapshots.mkdir(mode=0o700, exist_ok=True)
        fresh = site.snapshots / "fresh.npz"
        with writing_private(fresh) as file:
            np.savez(file, allow_pickle=False, **predictor.history.to_arrays())
        with fresh.open("rb") as written:
            sha256 = hashlib.file_digest(written, "sha256").hexdigest()
        arrays = site.snapshots / f"history-{sha256[:16]}.npz"
        fresh.replace(arrays)
        _write_record(site, identity, _Snapshot(cut, files, arrays, sha256))
        for other in site.snapshots.glob("history-*.npz"):
            if other != arrays:
                other.unlink(missing_ok=True)


def _write_record(site: Site, identity: Mapping[str, Any], held: _Snapshot) -> None:
    if site.read_only:
        return
    record = {"identity": identity, "cut": held.cut.isoformat(), "sha256": held.sha256, "files": held.files}
    with suppress(OSError):
        write_private(_record(site), json.dumps(record))
