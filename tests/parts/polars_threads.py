"""How many threads polars has in the processes that run the tests."""

from __future__ import annotations

import os

_SETTING = "POLARS_MAX_THREADS"


def one_polars_thread_per_worker() -> None:
    """Let polars work in one thread in each of several workers: a tenth less of the processor for small frames.

    Processes that tests start use what there is, and so do the workers where POLARS_MAX_THREADS is set, as for the long proofs.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ or _SETTING in os.environ:
        return
    os.environ[_SETTING] = "1"
    try:
        import polars as pl

        assert pl.thread_pool_size() == 1, "polars has been at work before the tests were set up"
    finally:
        del os.environ[_SETTING]
