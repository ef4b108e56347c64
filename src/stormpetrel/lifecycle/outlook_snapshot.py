"""The past of a site's outlook as it was some days ago, kept in a file: whoever needs it now takes in only what came since.

Site -> site_past -> OutlookPast, the same as from all of the site's latest jobs. The file holds what was known at a cut, midnight
two to three days ago, and for each file of the job table the number of rows that count and the sum of their hashes. It is made
anew at the next cut, and where code or models want another one, where it is damaged, or where a row says something else about the
time before the cut than it did then.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel.jobs import outcomes
from stormpetrel.jobs.advice import outlook_past
from stormpetrel.jobs.advice.outlook_past import OutlookPast, filled_requests, stand_ins_of
from stormpetrel.jobs.history import entities, history, keys
from stormpetrel.jobs.history.history import event_times
from stormpetrel.jobs.needs import features, past_use
from stormpetrel.jobs.predictor import known_by
from stormpetrel.jobs.wait import queue_state
from stormpetrel.lifecycle.history_snapshot import Digests, cut_before, file_name, open_at, total
from stormpetrel.lifecycle.kept_frames import code_digest, read_arrays, write_arrays
from stormpetrel.records import doubts
from stormpetrel.records.jobs import KEY
from stormpetrel.store.site import Site

MOST_PAST: Final = 200_000  # jobs before the cut, the latest: what an outlook remembers
FEWEST_JOBS: Final = 5_000  # fewer are swept in no time
FORMAT_VERSION: Final = 1
NAME: Final = "outlook.npz"
_RECORD: Final = "record"
_REQUEST: Final = (
    "source", "user", "account", "partition", "qos", "job_name", "script_path", "work_dir", "time_limit_s", "req_cpus",
    "req_nodes", "req_gpus", "req_mem_bytes", "extra",
)  # fmt: skip
_ALLOCATED: Final = ("cpus", "nodes", "gpus", "mem_bytes")
_OF_END: Final = ("state", "elapsed_s", "max_rss_bytes", "cpu_time_s", "busy_gpus", "gpu_mem_bytes", "quality")
COLUMNS: Final = (*KEY, *_REQUEST, *_ALLOCATED, *_OF_END, "start_time", "end_time")
_HINTS: Final = ("tag", "input", "sample", "executable")
_SEED: Final = 23


@dataclass(frozen=True, slots=True)
class _Record:
    """What a snapshot was made of: jobs submitted from `first` to before `cut`, of these files."""

    cut: datetime
    first: datetime
    filled: dict[str, bool]
    files: Digests

    def to_array(self) -> np.typing.NDArray[np.uint8]:
        values = {"cut": self.cut.isoformat(), "first": self.first.isoformat(), "filled": self.filled, "files": self.files}
        return np.frombuffer(json.dumps(values).encode(), np.uint8)

    @classmethod
    def of(cls, array: np.typing.NDArray[np.uint8]) -> _Record:
        values = json.loads(array.tobytes())
        files = {str(name): (int(rows), int(number)) for name, (rows, number) in values["files"].items()}
        filled = {name: bool(values["filled"][name]) for name in keys.SIZE_COLUMNS}
        return cls(datetime.fromisoformat(values["cut"]), datetime.fromisoformat(values["first"]), filled, files)


def site_past(
    site: Site, resources: Collection[str], follow_from: float, *, now: datetime, fewest: int = FEWEST_JOBS
) -> OutlookPast:
    """What an outlook knows of a site's latest jobs as they were known at `now`."""
    try:
        return _site_past(site, resources, follow_from, now=now, fewest=fewest)
    except (OSError, pl.exceptions.PolarsError):  # a compaction has removed a file from under the first try
        return _site_past(site, resources, follow_from, now=now, fewest=fewest)


def _site_past(site: Site, resources: Collection[str], follow_from: float, *, now: datetime, fewest: int) -> OutlookPast:
    cut, files = cut_before(now), tuple(site.jobs.table.files())
    identity = _identity(resources, follow_from, cut)
    known = _recall(site, files, identity, cut)
    if known is not None:
        record, arrays = known
        rest = _rest(site, files, record.first, cut, now)
        stand_in = _stand_in(record.filled, rest)
        if stand_in == stand_ins_of(record.filled):
            past = OutlookPast(resources, follow_from, stand_in)
            try:
                past.restore(arrays)
            except (KeyError, ValueError, pl.exceptions.PolarsError):
                known = None
            else:
                past.advance(rest, since=cut.timestamp(), until=np.inf)
                return past
    before = site.jobs.table.scan(files).filter(pl.col("submit_time") < cut)
    submitted = before.select(count=pl.len(), first=pl.col("submit_time").top_k(MOST_PAST).min()).collect().row(0)
    if submitted[0] < fewest:
        latest = site.jobs.table.scan(files).filter(pl.col("submit_time") < now).select(COLUMNS).collect()
        return OutlookPast.of(known_by(latest, now), resources, follow_from)
    first: datetime = submitted[1]
    rows = before.filter(pl.col("submit_time") >= first).select(COLUMNS).collect()
    rest = _rest(site, files, first, cut, now)
    filled = filled_requests(rows)
    past = OutlookPast(resources, follow_from, _stand_in(filled, rest))
    past.advance(known_by(rows, now), since=-np.inf, until=cut.timestamp())
    if past.stand_in == stand_ins_of(filled):
        record = _Record(cut, first, filled, _digests(site, files, first, cut))
        write_arrays(site, NAME, identity, past.to_arrays() | {_RECORD: record.to_array()})
    past.advance(rest, since=cut.timestamp(), until=np.inf)
    return past


def _stand_in(filled: Mapping[str, bool], rest: pl.DataFrame) -> dict[str, str]:
    """What stands in for requests that neither the time before the cut nor the rest tells."""
    since = filled_requests(rest)
    return stand_ins_of({name: filled[name] or since[name] for name in filled})


def _rest(site: Site, files: Sequence[Path], first: datetime, cut: datetime, now: datetime) -> pl.DataFrame:
    """The jobs of which anything may have happened since the cut, as they were known at `now`."""
    submitted = pl.col("submit_time").is_between(first, now, closed="left")
    rows = site.jobs.table.scan(files).filter(pl.col("month") >= f"{first:%Y-%m}", submitted, open_at(cut))
    return known_by(rows.select(COLUMNS).collect(), now)


def _identity(resources: Collection[str], follow_from: float, cut: datetime) -> dict[str, Any]:
    """What a past depends on beside the jobs: the resources, the moment that is followed from, and the code."""
    from stormpetrel.jobs.needs import past_use_kernel
    from stormpetrel.jobs.wait import queue_kernel, training

    modules = (
        outlook_past, past_use, past_use_kernel, features, queue_state, queue_kernel, training, history, entities, keys, outcomes,
        doubts,
    )  # fmt: skip
    return {
        "format": FORMAT_VERSION,
        "code": code_digest(modules),
        "polars": pl.__version__,  # whose hashes change from version to version
        "resources": sorted(resources),
        "follow_from": follow_from if follow_from < cut.timestamp() else None,
        "most": MOST_PAST,
    }


def _recall(
    site: Site, files: Sequence[Path], identity: Mapping[str, Any], cut: datetime
) -> tuple[_Record, dict[str, np.typing.NDArray[Any]]] | None:
    """What is kept, where the rows of the table still say about the time before the cut what they said then."""
    arrays = read_arrays(site, NAME, identity)
    if arrays is None:
        return None
    try:
        record = _Record.of(arrays.pop(_RECORD))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    if record.cut != cut:
        return None
    now = {file_name(site, path): path for path in files}
    gone = [digest for name, digest in record.files.items() if name not in now]
    fresh = [path for name, path in now.items() if name not in record.files]
    if total(gone) != (_digest(site, fresh, record.first, cut) if fresh else (0, 0)):
        return None
    return record, arrays


def _digests(site: Site, files: Iterable[Path], first: datetime, cut: datetime) -> Digests:
    return {file_name(site, path): _digest(site, [path], first, cut) for path in files}


def _digest(site: Site, files: Sequence[Path], first: datetime, cut: datetime) -> tuple[int, int]:
    """How many jobs of these files count, and the sum of the hashes of what was known of them at the cut."""
    counts = pl.col("submit_time").is_between(first, cut, closed="left")
    rows = site.jobs.table.scan(files).filter(pl.col("month") >= f"{first:%Y-%m}", counts).select(COLUMNS).collect()
    with np.errstate(invalid="ignore"):
        started, ended = (pl.Series(event_times(rows)[:, event] < cut.timestamp()) for event in (1, 3))
    plain = [name for name in _REQUEST if name != "extra" and not name.startswith("req_")]
    requested = {f"req_{name}": pl.coalesce(f"req_{name}", name) for name in _ALLOCATED}
    view = rows.select(
        *KEY, *plain,
        **requested,
        **{f"own_{name}": pl.col(f"req_{name}").is_not_null() for name in _ALLOCATED},
        **{name: pl.col("extra").map.get(name) for name in _HINTS},
        start_time=pl.when(started).then("start_time"),
        end_time=pl.when(ended).then("end_time"),
        **{name: pl.when(ended).then(name) for name in (*_OF_END, *_ALLOCATED)},
    )  # fmt: skip
    return rows.height, int(view.hash_rows(_SEED).to_numpy().sum(dtype=np.uint64))
