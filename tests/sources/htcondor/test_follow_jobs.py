"""Jobs of an event log that grows are the same as those of the whole log, however it is cut, rotated, packed or interrupted."""

import gzip
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from stormpetrel.config import Settings
from stormpetrel.errors import SourceFormatError
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.sources.htcondor import log_files
from stormpetrel.sources.htcondor.event_jobs import CondorEvents
from stormpetrel.sources.htcondor.follow_jobs import FollowedJobs
from tests.builders import make_site

FOLDER = Path(__file__).parents[2] / "recordings"
LOGS = {
    name: gzip.decompress((FOLDER / f"{name}.log.gz").read_bytes()) for name in ("condor-eventlog-23.9", "condor-userlog-23.9")
}
EVENTS = LOGS["condor-eventlog-23.9"]
NOW = datetime(2026, 11, 15, 9, 6, tzinfo=UTC)
ENDS = [at + 5 for at in range(len(EVENTS)) if EVENTS.startswith(b"\n...\n", at)]  # behind each event


def rows_of(source):
    """The last row of each job that a source has, by its key."""
    frame = pl.concat([chunk.records for chunk in source.chunks()])
    return {row["job_id"] * 1000 + row["array_task"]: row for row in frame.drop("record", "line").iter_rows(named=True)}


def told(row):
    return {name: value for name, value in row.items() if name != "unread"}


@pytest.fixture
def log(tmp_path):
    return tmp_path / "EventLog"


@pytest.fixture
def expected(tmp_path):
    def expecting(data=EVENTS):
        path = tmp_path / "whole"
        path.write_bytes(data)
        os.utime(path, (NOW.timestamp(), NOW.timestamp()))
        return {key: told(row) for key, row in rows_of(CondorEvents(path, cluster="pool")).items() if row["submit_time"]}

    return expecting


class Follower:
    """Follows a log into a dictionary of rows and one of cursors, as a store would hold them."""

    def __init__(self, log):
        self.settings = Settings(htcondor={"event_log": str(log)}, site={"cluster": "pool"})
        self.log, self.rows, self.cursors, self.sources = log, {}, {}, []
        self.restart()

    def restart(self):
        """As after a kill: nothing is left but what was committed."""
        self.jobs = FollowedJobs(self.settings)

    def poll(self, *, fails=False):
        for source in self.jobs.sources(self.cursors.get, NOW):
            rows = rows_of(source)
            if fails:
                raise RuntimeError("the store is away")
            self.sources.append(source)
            self.rows |= {key: told(row) for key, row in rows.items()}
            if source.cursor:
                self.cursors[source.cursor.name] = source.cursor.position
        return self

    def write(self, data, path=None, mode="wb"):
        path = path or self.log
        with path.open(mode) as file:
            file.write(data)
        os.utime(path, (NOW.timestamp() + path.stat().st_size / 1000,) * 2)
        return self


@pytest.mark.parametrize("name", sorted(LOGS))
def test_a_log_that_grows_by_some_bytes_has_the_rows_of_the_whole(log, expected, name):
    follower, data = Follower(log), LOGS[name]
    for end in [*range(1, len(data), 997), len(data)]:
        follower.write(data[:end]).poll()
    assert follower.rows == expected(data) and len(follower.rows) > 2


def test_a_log_that_grows_byte_by_byte_has_the_rows_of_the_whole(log, expected):
    follower, size = Follower(log), ENDS[3]
    for end in range(1, size + 1):
        follower.write(EVENTS[end - 1 : end], mode="ab").poll()
    assert follower.rows == expected(EVENTS[:size]) and follower.rows


def test_killed_behind_an_event_or_within_one_nothing_is_lost_and_nothing_changes(log, expected):
    whole, wrong = expected(), []
    for number, end in enumerate(ENDS[::13]):
        for cut in (end, end + 1 + 7 * number):
            follower = Follower(log).write(EVENTS[:cut]).poll()
            follower.restart()
            follower.write(EVENTS).poll()
            if follower.rows != whole:
                wrong.append(cut)
    assert wrong == [] and len(ENDS) > 200


def test_killed_before_a_commit_the_same_events_are_read_again(log, expected):
    follower = Follower(log).write(EVENTS[: ENDS[5]]).poll()
    follower.write(EVENTS)
    with pytest.raises(RuntimeError):
        follower.poll(fails=True)
    assert follower.poll().rows == expected()  # by the same process


def test_restarted_at_every_poll_the_rows_are_those_of_the_whole(log, expected):
    follower = Follower(log)
    for end in [*ENDS[::10], len(EVENTS)]:
        follower.write(EVENTS[:end]).poll()
        follower.restart()
    assert follower.rows == expected()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_log_that_is_rotated_goes_on_in_the_next_file(log, expected, packed, restarts):
    follower, cut = Follower(log), ENDS[len(ENDS) // 2]
    follower.write(EVENTS[: cut - 700]).poll()
    old = log.with_name("EventLog.old" + (".gz" if packed else ""))
    follower.write(gzip.compress(EVENTS[:cut]) if packed else EVENTS[:cut], old)
    os.utime(old, (NOW.timestamp() - 3600,) * 2)
    follower.write(EVENTS[cut:])
    if restarts:
        follower.restart()
    follower.poll()
    assert follower.rows == expected()
    follower.poll()
    assert len(follower.sources) == 2  # nothing is new


def test_a_log_that_was_cut_and_written_on_is_read_from_its_beginning(log, expected):
    follower = Follower(log).write(EVENTS).poll()
    follower.write(EVENTS[: ENDS[10]]).poll()
    assert follower.sources[-1].has_changed and follower.sources[-1].cursor is None
    follower.poll()
    follower.write(EVENTS).poll()
    assert follower.rows == expected()


def test_an_event_that_is_half_written_waits_without_being_refused(log):
    follower = Follower(log).write(EVENTS[: ENDS[3] + 30])
    (source,) = follower.jobs.sources(follower.cursors.get, NOW)
    assert sum(chunk.rejects.height for chunk in source.chunks()) == 0


def test_damage_is_refused_once(log):
    follower, refused = Follower(log), 0
    damaged = EVENTS[: ENDS[2]] + b"this is no event\n...\n" + EVENTS[ENDS[2] :]
    for end in (ENDS[4], ENDS[8], len(damaged)):
        follower.write(damaged[:end])
        for source in follower.jobs.sources(follower.cursors.get, NOW):
            refused += sum(chunk.rejects.height for chunk in source.chunks())
    assert refused == 1


def test_what_is_read_at_a_poll_does_not_grow_with_the_log(log, monkeypatch):
    pieces = log_files.LogFile.pieces
    read = []

    def counted(file, start=0):
        for piece in pieces(file, start):
            read[-1] += len(piece)
            yield piece

    monkeypatch.setattr(log_files.LogFile, "pieces", counted)
    follower, data = Follower(log), b""
    for number in range(40):  # each poll brings the same events, of other jobs
        more = EVENTS.replace(b"(", b"(%d" % (number + 1))
        data += more
        read.append(0)
        follower.write(data).poll()
    assert len(data) > 20 * max(read) and max(read) <= 1.2 * min(read)


def test_a_log_that_did_not_change_is_not_opened(log, monkeypatch):
    follower = Follower(log).write(EVENTS).poll()
    monkeypatch.setattr(log_files.LogFile, "pieces", lambda *_: pytest.fail("the log was read"))
    assert len(follower.poll().sources) == 1


def test_a_log_in_xml_says_that_jobs_need_the_classic_form(log):
    follower = Follower(log).write(b'<?xml version="1.0"?>\n<c><a n="MyType"><s>SubmitEvent</s></a></c>\n')
    with pytest.raises(SourceFormatError, match="XML or JSON"):
        follower.poll()


def test_the_table_of_a_followed_log_is_that_of_the_file(log, tmp_path):
    def table(site):
        return site.jobs.read_jobs().collect().sort("job_id", "array_task").drop("fingerprint", strict=False)

    with (
        make_site(tmp_path / "a", site={"cluster": "pool"}) as whole,
        make_site(tmp_path / "b", site={"cluster": "pool"}) as parts,
    ):
        log.write_bytes(EVENTS)
        ingest_jobs(whole, CondorEvents(log, cluster="pool"))
        settings = Settings(htcondor={"event_log": str(log)}, site={"cluster": "pool"})
        for end in [*ENDS[::30], len(EVENTS)]:
            log.write_bytes(EVENTS[:end])
            os.utime(log, ((NOW + timedelta(seconds=end)).timestamp(),) * 2)
            for source in FollowedJobs(settings).sources(parts.jobs.cursor, parts.now()):  # a new process each time
                ingest_jobs(parts, source, remember=False)
        assert table(parts).equals(table(whole)) and table(whole).height > 5
