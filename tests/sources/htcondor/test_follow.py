"""A followed event log: nothing twice and nothing lost, whatever happens to its files between two looks; gaps have a reason."""

from __future__ import annotations

import gzip
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from stormpetrel.config import Settings, settings_from
from stormpetrel.errors import SettingsError, SourceUnavailableError
from stormpetrel.records.events import COVERED, WHOLE
from stormpetrel.sources.htcondor import counts as condor_counts
from stormpetrel.sources.htcondor.follow import FollowedEventLog
from stormpetrel.sources.htcondor.log_files import ChangedMeanwhileError, LogFile, log_file
from tests.sources.htcondor.test_scan import EXECUTE, SUBMIT, ad, ended, event

START = datetime(2026, 3, 4, 8, 0, tzinfo=UTC)


class Store:
    """What the site's table does with spans: adds each once, with its cursor."""

    def __init__(self) -> None:
        self.cursors: dict[str, int] = {}
        self.counts: Counter[tuple[datetime, str]] = Counter()
        self.marked: set[datetime] = set()
        self.missing: list[tuple[datetime, datetime, str]] = []
        self.aside: Counter[str] = Counter()

    def take(self, source: FollowedEventLog, now: datetime) -> None:
        for span in source.spans(self.cursors.get, now):
            assert span.additive and span.cursor
            self.missing += span.missing
            self.aside.update(span.quarantined)
            if self.cursors.get(span.cursor.name, -1) >= span.cursor.position:
                continue
            self.cursors[span.cursor.name] = span.cursor.position
            for row in span.counts.filter(pl.col("place") == WHOLE).iter_rows(named=True):
                if row["kind"] == COVERED:
                    self.marked.add(row["bucket_start"])
                else:
                    self.counts[row["bucket_start"], row["kind"]] += row["count"]

    @property
    def kinds(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for (_, kind), count in self.counts.items():
            found[kind] += count
        return found


class Log:
    """An event log that somebody writes, and rotates."""

    def __init__(self, folder: Path, *, numbered: bool = True) -> None:
        self.path = folder / "EventLog"
        self.now = START
        self.written: Counter[str] = Counter()
        self._job = self._sequence = 0
        self._numbered = numbered
        self._begin()

    def _begin(self) -> None:
        self._sequence += 1
        self._write(self._header() if self._numbered else "")

    def _header(self, events: int = 0) -> str:
        counters = (
            f"id=0.77.{self._sequence} sequence={self._sequence} size=0 events={events} offset=0 max_rotation=1 creator_name=<>"
        )
        return event(8, f"Global JobLog: ctime=1 {counters}".ljust(160), self._at(), "-01.-01.-01")

    def _at(self) -> str:
        return f"{self.now:%Y-%m-%d %H:%M:%S}"

    def _write(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text)
        os.utime(self.path, (self.now.timestamp(), self.now.timestamp()))

    def run_job(self, minutes: float = 7.0) -> None:
        """A job that fails fast, with an 028 after each event."""
        self._job += 1
        job = f"{self._job:03}.000.000"
        self.now += timedelta(minutes=minutes)
        self._write(event(0, SUBMIT, self._at(), job) + ad(0, self._at(), job) + event(1, EXECUTE, self._at(), job))
        self.written.update(["Submit", "Execute"])

    def end_job(self) -> None:
        self.now += timedelta(seconds=30)
        job = f"{self._job:03}.000.000"
        self._write(ad(1, self._at(), job) + event(5, ended(1), self._at(), job) + ad(5, self._at(), job))
        self.written.update(["JobTerminated", "JobFailed", "JobFailedFast"])

    def rotate(self, keep: int = 9) -> None:
        """As HTCondor does: the counters of the header are written anew, the file is renamed."""
        text = self.path.read_text()
        if self._numbered:
            end = text.index("...\n")
            self.path.write_text(self._header(events=99)[: text.index("\n") + 1].replace(self._at(), text[18:37]) + text[end:])
            os.utime(self.path, (self.now.timestamp(), self.now.timestamp()))
        self._shift(keep)
        self.path.rename(self._name(1))
        self._begin()

    def copy_and_truncate(self) -> None:
        self._shift(9)
        shutil.copy(self.path, self._name(1))
        self.path.write_bytes(b"")
        self._begin()

    def compress(self) -> None:
        for number in range(1, 10):
            if self._name(number).exists():
                with gzip.open(f"{self._name(number)}.gz", "wb") as file:
                    file.write(self._name(number).read_bytes())
                os.utime(f"{self._name(number)}.gz", (self.now.timestamp(), self.now.timestamp()))
                self._name(number).unlink()

    def _name(self, number: int) -> Path:
        return self.path.with_name(f"EventLog.{number}")

    def _shift(self, keep: int) -> None:
        for number in range(9, 0, -1):
            for name in (self._name(number), Path(f"{self._name(number)}.gz")):
                if name.exists() and number >= keep:
                    name.unlink()
                elif name.exists():
                    name.rename(str(name).replace(f".{number}", f".{number + 1}"))


def settings(path: Path) -> Settings:
    return settings_from({"htcondor": {"event_log": str(path), "submit_host": "ap1"}, "events": {"settle_minutes": 10.0}})


def test_growing_log_is_counted_once_by_any_number_of_readers(tmp_path: Path) -> None:
    log, store = Log(tmp_path), Store()
    log.run_job()
    source = FollowedEventLog(settings(log.path))
    store.take(source, log.now)
    log.end_job()
    store.take(source, log.now)  # the same reader goes on
    store.take(FollowedEventLog(settings(log.path)), log.now)  # another one finds nothing new
    log.run_job()
    store.take(FollowedEventLog(settings(log.path)), log.now)
    log.end_job()
    store.take(FollowedEventLog(settings(log.path)), log.now)  # and pairs the end with the start that it did not read itself
    assert store.kinds == log.written and store.kinds["JobFailedFast"] == 2


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_lost_or_told_twice_whatever_happens_between_two_looks(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    log, store = Log(tmp_path, numbered=seed % 2 == 0), Store()
    source = FollowedEventLog(settings(log.path))
    store.take(source, log.now)
    for _ in range(40):
        if chance.random() < 0.15:
            chance.choice([log.rotate, log.copy_and_truncate, log.compress])()
        else:
            log.run_job()
            log.end_job()
        if chance.random() < 0.6:
            source = source if chance.random() < 0.5 else FollowedEventLog(settings(log.path))
            store.take(source, log.now)
    store.take(FollowedEventLog(settings(log.path)), log.now)
    assert store.kinds == log.written
    assert not store.missing and not store.aside
    over = int((log.now - timedelta(minutes=10) - START) / timedelta(hours=1))
    begun = 0 if seed % 2 == 0 else 1  # a log with a header begins with the hour, one without with its first job
    assert store.marked == {START + timedelta(hours=hour) for hour in range(begun, over)}


def test_rotated_file_goes_on_at_its_cursor_although_its_header_was_written_anew(tmp_path: Path) -> None:
    log, store = Log(tmp_path), Store()
    log.run_job()
    store.take(FollowedEventLog(settings(log.path)), log.now)
    log.end_job()
    log.rotate()
    log.run_job()
    store.take(FollowedEventLog(settings(log.path)), log.now)
    assert store.kinds == log.written


def test_half_written_event_is_left_for_the_next_look(tmp_path: Path) -> None:
    log, store = Log(tmp_path), Store()
    log.run_job()
    whole = log.path.read_bytes()
    log.path.write_bytes(whole[:-30])
    store.take(FollowedEventLog(settings(log.path)), log.now)
    assert store.kinds == {"Submit": 1} and not store.aside
    log.path.write_bytes(whole)
    store.take(FollowedEventLog(settings(log.path)), log.now)
    assert store.kinds == log.written


def test_event_that_was_torn_when_its_file_was_rotated_is_set_aside_once(tmp_path: Path) -> None:
    log, store = Log(tmp_path), Store()
    log.run_job()
    log.path.write_bytes(log.path.read_bytes()[:-30])
    log.rotate()
    log.now += timedelta(hours=2)
    for _ in range(2):
        store.take(FollowedEventLog(settings(log.path)), log.now)
    assert store.aside == {"truncated_record": 1} and store.kinds == {"Submit": 1}


def test_silent_hours_of_a_live_log_are_seen_when_they_are_over_and_settled(tmp_path: Path) -> None:
    log, store = Log(tmp_path), Store()
    log.run_job()
    source = FollowedEventLog(settings(log.path))
    store.take(source, START + timedelta(minutes=69))
    assert not store.marked
    store.take(source, START + timedelta(minutes=70))
    assert store.marked == {START}
    store.take(FollowedEventLog(settings(log.path)), START + timedelta(hours=5))
    assert store.marked == {START + timedelta(hours=hour) for hour in range(4)}


def test_first_hour_that_was_not_seen_from_its_beginning_has_no_mark(tmp_path: Path) -> None:
    log = Log(tmp_path, numbered=False)
    log.run_job()
    store = Store()
    store.take(FollowedEventLog(settings(log.path)), START + timedelta(hours=3))
    assert store.marked == {START + timedelta(hours=1)}


def test_file_that_was_rotated_away_unread_is_a_gap_with_its_reason(tmp_path: Path) -> None:
    log, store = Log(tmp_path), Store()
    log.run_job()
    store.take(FollowedEventLog(settings(log.path)), log.now)
    for _ in range(3):
        log.run_job(minutes=120)
        log.rotate(keep=1)
    log.run_job(minutes=120)
    store.take(FollowedEventLog(settings(log.path)), log.now)
    [(start, end, why)] = store.missing
    assert "rotated away" in why and start < end <= log.now
    assert not any(start - timedelta(hours=1) < hour < end for hour in store.marked)
    store.take(FollowedEventLog(settings(log.path)), log.now)
    assert len(store.missing) == 1  # it is told once


def test_hole_in_the_numbers_of_the_files_is_a_gap(tmp_path: Path) -> None:
    log, store = Log(tmp_path), Store()
    log.run_job()
    store.take(FollowedEventLog(settings(log.path)), log.now)
    for _ in range(3):
        log.rotate()
        log.run_job(minutes=120)
    log.path.with_name("EventLog.2").unlink()
    store.take(FollowedEventLog(settings(log.path)), log.now)
    assert [why for _, _, why in store.missing] == ["1 file(s) of the event log were rotated away before they were read"]


def test_log_that_shrank_is_said_and_not_read_twice(tmp_path: Path) -> None:
    log, store = Log(tmp_path), Store()
    log.run_job()
    log.end_job()
    store.take(FollowedEventLog(settings(log.path)), log.now)
    log.path.write_bytes(log.path.read_bytes()[:400])
    source = FollowedEventLog(settings(log.path))
    store.take(source, log.now)
    assert store.kinds == log.written and "shorter" in source.notes[0]


def test_file_that_is_exchanged_while_it_is_read_is_left_for_the_next_look(tmp_path: Path) -> None:
    log, store = Log(tmp_path), Store()
    log.run_job()
    file = log_file(log.path, time_zone="UTC", now=log.now)
    assert file
    log.rotate()
    with pytest.raises(ChangedMeanwhileError):
        list(file.pieces())
    store.take(FollowedEventLog(settings(log.path)), log.now)
    assert store.kinds == log.written


def test_copy_of_a_log_is_known_by_its_content(tmp_path: Path) -> None:
    log, store = Log(tmp_path), Store()
    log.run_job()
    store.take(FollowedEventLog(settings(log.path)), log.now)
    shutil.copy(log.path, tmp_path / "EventLog.old")
    store.take(FollowedEventLog(settings(log.path)), log.now)
    assert store.kinds == log.written


def test_file_named_by_hand_is_read_once_and_seen_from_its_first_to_its_last_event(tmp_path: Path) -> None:
    log, store = Log(tmp_path), Store()
    for _ in range(20):
        log.run_job()
        log.end_job()
    for _ in range(2):
        source = condor_counts.CondorEventFile(log.path, settings(log.path))
        store.take(source, log.now + timedelta(days=9))  # type: ignore[arg-type]
    assert store.kinds == log.written and source.source == "condor:ap1"
    assert store.marked == {START, START + timedelta(hours=1)}


def test_long_log_is_several_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, store = Log(tmp_path), Store()
    for _ in range(30):
        log.run_job()
        log.end_job()
    monkeypatch.setattr(condor_counts, "_SPAN_BYTES", 4000)
    whole = LogFile.pieces

    def small(self: LogFile, start: int = 0) -> Iterator[bytes]:
        for piece in whole(self, start):
            yield from (piece[at : at + 1500] for at in range(0, len(piece), 1500))

    monkeypatch.setattr(LogFile, "pieces", small)
    spans = list(condor_counts.CondorEventFile(log.path, settings(log.path)).spans(store.cursors.get, log.now))
    positions = [span.cursor.position for span in spans if span.cursor and span.cursor.name.startswith("condor:")]
    assert len(positions) > 3 and positions == sorted(set(positions))
    total = sum(span.counts.filter(pl.col("place") == WHOLE, pl.col("kind") != COVERED)["count"].sum() for span in spans)
    assert total == sum(log.written.values())


@pytest.mark.parametrize("form", ["json", "xml"])
def test_log_in_json_or_xml_is_read_by_htcondors_own_reader(tmp_path: Path, form: str) -> None:
    pytest.importorskip("htcondor2")
    at = "2026-03-04T08:10:00"
    if form == "json":
        one = (
            '{{"MyType":"SubmitEvent","EventTypeNumber":0,"EventTime":"{1}","Cluster":{0},"Proc":0,"Subproc":0,'
            '"SubmitHost":"<1.2.3.4:5>"}}\n'
        )
    else:
        one = (
            '<c>\n<a n="MyType"><s>SubmitEvent</s></a>\n<a n="EventTypeNumber"><i>0</i></a>\n<a n="EventTime"><s>{1}</s></a>\n'
            '<a n="Cluster"><i>{0}</i></a>\n<a n="Proc"><i>0</i></a>\n<a n="Subproc"><i>0</i></a>\n</c>\n'
        )
    path, store = tmp_path / "EventLog", Store()
    path.write_text(one.format(1, at))
    os.utime(path, (START.timestamp(), START.timestamp()))
    for number in range(2, 5):
        store.take(FollowedEventLog(settings(path)), START + timedelta(hours=1))
        with path.open("a") as file:
            file.write(one.format(number, at))
    store.take(FollowedEventLog(settings(path)), START + timedelta(hours=1))
    assert store.kinds == {"Submit": 4}


def test_log_that_is_not_there_or_not_set_is_said(tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailableError, match="There is no event log"):
        list(FollowedEventLog(settings(tmp_path / "EventLog")).spans(lambda _name: None, START))
    with pytest.raises(SettingsError, match="No event log is set"):
        FollowedEventLog(settings_from({}))
