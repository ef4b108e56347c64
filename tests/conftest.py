"""What holds for every test: in CI a skip is a failure, and everywhere a connection that is not closed."""

import gc
import os
from pathlib import Path

import pytest

from tests.parts.polars_threads import one_polars_thread_per_worker

one_polars_thread_per_worker()  # before anything uses polars

from stormpetrel.learn.threads import wait_politely
from tests.parts import is_bare, need
from tests.parts.command_line import build_commands_once
from tests.parts.fresh_clone import import_backwards_in_every_other_worker
from tests.parts.gpu import leave_out_where_there_is_no_gpu
from tests.parts.temporary_files import use_memory
from tests.parts.unclosed import watch_connections
from tests.schedule import WholeFiles, longest_first

wait_politely()  # the tests run side by side
watch_connections()
use_memory()
build_commands_once()


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session):
    import_backwards_in_every_other_worker(session.config.args)


def pytest_collection_modifyitems(config, items):
    longest_first(items)
    leave_out_where_there_is_no_gpu(config, items)


def pytest_collection_finish():
    gc.collect()
    gc.freeze()  # modules and tests stay: to look through them again and again would take a twentieth of the time
    gc.set_threshold(20_000, 20, 50)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    config.option.loadscopereorder = False  # by the number of tests, it would be
    return WholeFiles(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    for mark in item.iter_markers("needs"):
        need(*mark.args)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.skipped and os.environ.get("CI") == "true":
        report.outcome = "failed"
        report.longrepr = f"skipped in CI, where everything must run: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def public_logs():
    """The folder of public logs, for tests marked `realdata`: the one door to them."""
    folder = os.environ.get("STORMPETREL_DATA")
    if not folder or is_bare():
        pytest.skip("set STORMPETREL_DATA to the folder of public logs")
    return Path(folder)
