import re
from pathlib import Path

from stormpetrel.watch.free_memory import return_free_memory


def resident_mb():
    return int(re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024


def test_what_was_freed_below_a_piece_in_use_goes_back_to_the_system():
    pieces = [bytearray(b"x" * 4000) for _ in range(50_000)]  # 200 MB, by malloc
    in_use = pieces[-1]
    del pieces
    before = resident_mb()
    assert return_free_memory()
    assert resident_mb() < before - 100 and len(in_use) == 4000
