"""Bad IO: a writer that lets nothing be buffered: seek somewhere, write 4 KiB, flush it to the disk, again.

scratch folder -> one file of a fixed size, removed at the end -> how many writes, seeks and flushes.
"""

from __future__ import annotations

import os
import random
from typing import Final

from stormpetrel.rehearse.workloads.timed_work import Did, Shift, run_workload

BLOCK_BYTES: Final = 4096
FILE_BYTES: Final = 64 * 1024**2


def write_badly(shift: Shift) -> Did:
    """Write small blocks at random places and flush each of them, until the time is over."""
    rng = random.Random(shift.seed)  # noqa: S311  places in a file are no secret
    path = shift.scratch / "bad_io.dat"
    block = rng.randbytes(BLOCK_BYTES)
    writes = 0
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        _fill(descriptor, block)
        while not (writes and shift.over()):  # at least one, however slow the disk
            os.lseek(descriptor, rng.randrange(FILE_BYTES // BLOCK_BYTES) * BLOCK_BYTES, os.SEEK_SET)
            os.write(descriptor, block)
            os.fsync(descriptor)  # also the times of the file: a journal has work to do each time
            writes += 1
    finally:
        os.close(descriptor)
        path.unlink(missing_ok=True)
    return {"writes": writes, "seeks": writes, "flushes": writes, "bytes": writes * BLOCK_BYTES}


def _fill(descriptor: int, block: bytes) -> None:
    """Write the whole file once: a full disk is noticed now, the file never grows, and it stays in few pieces.

    Allocated but not written it would fall into a thousand pieces, whose removal at the end took two seconds.
    """
    piece = block * 256
    for _ in range(FILE_BYTES // len(piece)):
        os.write(descriptor, piece)
    os.fsync(descriptor)


if __name__ == "__main__":
    run_workload("bad_io", write_badly)
