"""Good IO: flat files for binning, read and written in large buffered pieces; when they reach the disk is the system's business.

events (a flat file) -> sorted into one flat file per bin, and a histogram appended -> how many events, bytes and passes.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import BinaryIO, Final

import numpy as np

from stormpetrel.rehearse.workloads.timed_work import Did, Shift, run_workload

BINS: Final = 16
EVENT_COLUMNS: Final = 4
EVENTS: Final = 500_000  # 16 MB
_CHUNK_EVENTS: Final = 50_000
_BUFFER_BYTES: Final = 1024**2


def bin_events(shift: Shift) -> Did:
    """Sort events into one file per bin, pass after pass over the same files, until the time is over."""
    rng = np.random.default_rng(shift.seed)
    events = shift.scratch / "events.dat"
    outputs = [shift.scratch / f"bin_{number:02d}.dat" for number in range(BINS)]
    histograms = shift.scratch / "histograms.dat"
    passes = read = 0
    try:
        rng.normal(size=(EVENTS, EVENT_COLUMNS)).tofile(events)
        with ExitStack() as files:
            source = files.enter_context(events.open("rb", buffering=_BUFFER_BYTES))
            binned = [files.enter_context(path.open("wb", buffering=_BUFFER_BYTES)) for path in (*outputs, histograms)]
            while not (passes and shift.over()):
                read += _one_pass(source, binned[:-1], binned[-1], shift)
                passes += 1
    finally:
        for file in (events, histograms, *outputs):
            file.unlink(missing_ok=True)
    return {"passes": passes, "events": read, "bytes": 2 * read * EVENT_COLUMNS * 8}


def _one_pass(source: BinaryIO, binned: list[BinaryIO], histograms: BinaryIO, shift: Shift) -> int:
    """Read all events once; the files are written over, not emptied: ext4 flushes a file that was emptied when it is closed."""
    edges = np.linspace(-2.5, 2.5, BINS - 1)
    counts = np.zeros(BINS, dtype=np.int64)
    for file in (source, *binned):
        file.seek(0)
    if histograms.tell() > _BUFFER_BYTES:
        histograms.seek(0)
    while not (counts.any() and shift.over()):
        chunk = np.frombuffer(source.read(_CHUNK_EVENTS * EVENT_COLUMNS * 8), dtype=np.float64)
        if not chunk.size:
            break
        events = chunk.reshape(-1, EVENT_COLUMNS)
        place = np.searchsorted(edges, events[:, 0])
        counts += np.bincount(place, minlength=BINS)
        for number, file in enumerate(binned):
            file.write(events[place == number].tobytes())
    histograms.write(counts.tobytes())
    return int(counts.sum())


if __name__ == "__main__":
    run_workload("good_io", bin_events)
