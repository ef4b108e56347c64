"""`predicted_at` is when others can read a prediction: judging, waiting for the table and committing are all in it."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import datetime, timedelta

import polars as pl
import pytest

from stormpetrel.jobs.stream import JobStream
from stormpetrel.store.tables import Table
from stormpetrel.watch.loop import Watch
from stormpetrel.watch.metrics import WatchMetrics
from tests.parts.watched_site import TRAINED, move_clock, simulated_jobs


class SlowSite:
    """A site whose clock moves only while something named here is done, by so many seconds each time."""

    def __init__(self, site, monkeypatch) -> None:
        self.site, self._patch = site, monkeypatch
        self._behind = timedelta()
        shown = site.now
        monkeypatch.setattr(site, "now", lambda: shown() + self._behind)

    def slow(self, owner, name: str, seconds: float, when=lambda *_: True) -> None:
        done = getattr(owner, name)

        def slowly(*arguments, **named):
            answer = done(*arguments, **named)
            self._behind += timedelta(seconds=seconds) if when(*arguments) else timedelta()
            return answer

        self._patch.setattr(owner, name, slowly)

    def slow_commits(self, *seconds: float) -> None:
        """Let the commits of predictions take these many seconds, one after the other, and none after them."""
        left = list(seconds)
        append = Table.append

        def slowly(table, rows, **named):
            append(table, rows, **named)
            if table.spec.name == "predictions" and rows.height and left:
                self._behind += timedelta(seconds=left.pop(0))

        self._patch.setattr(Table, "append", slowly)


@pytest.fixture
def site(begun, copied):
    return copied(begun, jobs={"recalibrate": False})  # one commit for all hours that are caught up with


@pytest.fixture
def slow(site, monkeypatch) -> SlowSite:
    move_clock(site, TRAINED + timedelta(hours=3))
    return SlowSite(site, monkeypatch)


def said_at(site) -> list[datetime]:
    return sorted(set(site.predictions.read().collect()["predicted_at"]))


def test_the_time_of_judging_is_in_it(site, slow):
    looked = site.now()
    slow.slow(JobStream, "advance", 30)
    step = Watch(site).step()
    assert said_at(site) == [looked + timedelta(seconds=30)] == sorted(set(step.predictions["predicted_at"]))


def test_waiting_for_another_writer_is_in_it(site, slow):
    looked = site.now()
    free = site.predictions._writer_lock

    @contextmanager
    def taken():
        with free():
            slow._behind += timedelta(seconds=20)
            yield

    site.predictions._writer_lock = taken
    Watch(site).step()
    assert said_at(site) == [looked + timedelta(seconds=20)]


def test_the_commit_itself_is_in_it(site, slow):
    looked = site.now()
    slow.slow_commits(15.25, 0)
    step = Watch(site).step()
    expected = [looked + timedelta(seconds=15.25)]
    assert said_at(site) == expected == sorted(set(step.predictions["predicted_at"]))


@pytest.mark.parametrize(("commit_s", "late"), [(0, False), (8, True)])
def test_what_a_slow_commit_makes_late_is_late_in_table_and_metric(site, slow, commit_s, late):
    submitted = simulated_jobs().filter(pl.col("submit_time") > site.now())["submit_time"].min()
    move_clock(site, submitted + timedelta(seconds=3))
    slow.slow_commits(commit_s)
    step = Watch(site).step()
    newest = pl.col("moment_time") == submitted
    assert step.predictions.filter(newest)["late"].unique().to_list() == [late]
    stored = site.predictions.read().collect()
    assert stored.filter(newest)["late"].unique().to_list() == [late]
    assert stored.filter(~newest)["late"].all()  # three hours were caught up with
    metrics = WatchMetrics()
    metrics.note_step(step, site.pace())
    counted = [line for line in metrics.text().decode().splitlines() if line.startswith("stormpetrel_predictions_late_total")]
    assert sum(float(line.rsplit(" ", 1)[1]) for line in counted) == stored["late"].sum()


def test_commits_that_take_as_long_as_the_last_ones_are_foreseen(site, slow):
    slow.slow_commits(4, 4)
    watch = Watch(site)
    watch.step()
    versions = site.predictions.table.version()
    move_clock(site, TRAINED + timedelta(hours=6))
    looked = site.now()
    assert watch.step().predictions.height
    assert site.predictions.table.version() == versions + 1  # no correction was needed
    assert said_at(site)[-1] == looked + timedelta(seconds=4)


def test_a_correction_leaves_earlier_predictions_alone(site, slow):
    watch = Watch(site)
    watch.step()
    before = site.predictions.read().collect().sort("job_id", "moment")
    move_clock(site, TRAINED + timedelta(hours=6))
    slow.slow_commits(20)
    watch.step()
    earlier = site.predictions.read().filter(pl.col("moment_time") <= before["moment_time"].max()).collect()
    assert earlier.sort("job_id", "moment").equals(before)
