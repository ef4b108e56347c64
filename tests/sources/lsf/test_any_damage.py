"""Records of LSF with any damage: nothing is raised but our own error, and every record is a row, refused or merged."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from stormpetrel.errors import SourceFormatError
from stormpetrel.sources.lsf.log import LsfLog
from tests.builders import read_all

RECORDINGS = Path(__file__).parents[2] / "recordings" / "lsf"
_PIECES = (
    b"\n",
    b'"',
    b"<",
    b">",
    b" ",
    b"\0",
    b"\xff",
    b"-1",
    b"9" * 25,
    b"[",
    b"rusage[mem=",
    b"TERM_",
    b"Job <1>, User <a>",
    b"",
    b";",
)


def damaged(content: bytes, rng: random.Random) -> bytes:
    """The content with some pieces put in, taken out, or said twice."""
    for _ in range(rng.randint(1, 12)):
        at = rng.randrange(len(content))
        end = min(len(content), at + rng.choice((0, 1, 5, 80)))
        piece = rng.choice((*_PIECES, content[at:end] * 2))
        content = content[:at] + piece + content[end:]
    return content


@pytest.mark.parametrize("name", ["lsb.acct", "bacct.txt", "bhist.txt", "job-reports.txt"])
def test_any_damage_is_counted_and_stops_nothing(tmp_path: Path, name: str) -> None:
    rng, content = random.Random(name), (RECORDINGS / name).read_bytes()
    whole, *_ = read_all(LsfLog(RECORDINGS / name))
    rows = 0
    for _ in range(40):
        path = tmp_path / name
        path.write_bytes(damaged(content, rng))
        with contextlib.suppress(SourceFormatError):
            jobs, rejects, count, folded = read_all(LsfLog(path, block_bytes=rng.choice((300, 1 << 20))))
            assert count == jobs.height + folded + rejects.height
            rows += jobs.height
    assert rows > 10 * whole.height
