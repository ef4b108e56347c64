"""What the tests need once on a fresh clone: compiled test files, half of them by each of two workers."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Sequence
from pathlib import Path

_TESTS = Path(__file__).parents[1]


def import_backwards_in_every_other_worker(wanted: Sequence[str]) -> None:
    """Import all test files from the last to the first, in every other worker, before it collects them as all do.

    To compile a test file (pytest rewrites its assertions) takes most of the time of the first collection. Two workers that go
    the same way compile the same file at the same time; two that meet each other find half of the files compiled.

    Parameters
    ----------
    wanted
        What pytest was asked to collect: nothing is done unless that is everything.
    """
    is_every_other = os.environ.get("PYTEST_XDIST_WORKER", "")[-1:] in tuple("13579")
    if not is_every_other or [Path(path).resolve() for path in wanted] != [_TESTS]:
        return
    for file in sorted(_TESTS.rglob("test_*.py"), reverse=True):
        with contextlib.suppress(BaseException):  # whatever is the matter with it, the collection will tell
            importlib.import_module(".".join(file.relative_to(_TESTS.parent).with_suffix("").parts))
