"""What takes long to make is made once per run of the tests, by whichever worker needs it first, and copied by the others."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that `make` has filled, in this worker or in another one; take a copy before changing it.

    Parameters
    ----------
    name
        What the folder is called; the same name is the same folder in every worker.
    make
        Called with the path of the folder, which is not there yet, at most once per run.
    """
    base = factory.getbasetemp()
    shared = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "made-once"
    shared.mkdir(exist_ok=True)
    folder, done = shared / name, shared / f"{name}.done"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a worker that failed half-way
            make(folder)
            done.touch()
    return folder
