"""A followed event log, through the store: nothing twice, nothing lost that was there, and no hole without its reason."""

import gzip
import os
import random
import re
from collections import Counter
from datetime import timedelta

import polars as pl
import pytest

from stormpetrel.errors import SourceError
from stormpetrel.ingest.events import ingest_events
from stormpetrel.records.events import COVERED
from stormpetrel.sources.htcondor.counts import CondorEventFile
from stormpetrel.sources.htcondor.follow import FollowedEventLog
from stormpetrel.store.events.gaps import NO_REASON
from stormpetrel.store.events.series import series_of
from stormpetrel.store.site import open_site
from tests.builders import make_site
from tests.parts.command_line import change_settings
from tests.sources.htcondor.test_follow import START, Log

HOUR = timedelta(hours=1)
KINDS = {"000": "Submit", "001": "Execute", "005": "JobTerminated"}


class Followed:
    """A site that follows a log, and what must come of it: the events that were in a file when somebody looked."""

    def __init__(self, folder, *, numbered=True):
        self.log = Log(folder, numbered=numbered)
        self.site = make_site(
            folder / "site", htcondor={"event_log": str(self.log.path), "submit_host": "ap1"}, events={"settle_minutes": 10.0}
        )
        self.site.now = lambda: self.log.now
        self.is_known = False  # the file that is written now was there at a look
        self.written = Counter()  # (bucket, kind), of all that ever happened
        self.seen_whole, self.perhaps_seen = set(), set()  # (kind, job) in the files at looks that ended, and at all looks

    def run_jobs(self, number):
        """Jobs that nobody has looked at yet."""
        for _ in range(number):
            self.log.run_job()
            self.written.update((self._bucket, kind) for kind in ("Submit", "Execute"))
            self.log.end_job()
            self.written.update([(self._bucket, "JobTerminated")])

    @property
    def _bucket(self):
        return self.log.now.replace(minute=0, second=0)

    def truncate(self, keep=0):
        """As `: > EventLog` does: what follows has no header. With `keep`, as a restored backup does.

        Of a log without headers, a file that came and went between two looks leaves no trace.
        """
        if not self.log._numbered and not self.is_known:
            return
        self.is_known = False
        self.log.path.write_bytes(self.log.path.read_bytes()[:keep])

    def rotate(self, keep=9):
        """HTCondor writes the header anew; a log that lost its header is only renamed."""
        self.is_known = False
        has_header = self.log.path.read_text().startswith("008")
        numbered, self.log._numbered = self.log._numbered, has_header
        self.log.rotate(keep)
        self.log._numbered = numbered

    def copy_and_truncate(self):
        self.is_known = False
        self.log.copy_and_truncate()
        os.utime(self.log.path.with_name("EventLog.1"), (self.log.now.timestamp(),) * 2)

    def look(self, *, stop_after=None):
        """Read on; stopped after some commits, as by a kill."""
        source = FollowedEventLog(self.site.settings)
        self.perhaps_seen |= self._there()
        if stop_after is None:
            self.seen_whole |= self._there()
            self.is_known = True
            return ingest_events(self.site, source)
        with pytest.raises(KeyboardInterrupt):
            ingest_events(self.site, Stopped(source, stop_after))
        return None

    def _there(self):
        found = set()
        for path in self.log.path.parent.glob("EventLog*"):
            text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
            found |= set(re.findall(r"^(000|001|005) \((\d+)\.", text, re.MULTILINE))
        return found

    @property
    def counts(self):
        """(bucket, kind): events."""
        rows = self.site.event_counts.read().filter(pl.col("kind").is_in(list(KINDS.values())))
        return Counter({(row["bucket_start"], row["kind"]): row["count"] for row in rows.collect().iter_rows(named=True)})

    @property
    def marked(self):
        return sorted(self.site.event_counts.read().filter(pl.col("kind") == COVERED).collect()["bucket_start"])

    @property
    def gaps(self):
        return self.site.event_counts.gaps(bucket_s=3600)

    def check(self):
        """Nothing twice, nothing lost that was there; what is marked is whole, what is not is a gap with a reason."""
        kinds = Counter(kind for bucket, kind in self.counts.elements())
        for number, kind in KINDS.items():
            least, most = (sum(1 for one, _ in events if one == number) for events in (self.seen_whole, self.perhaps_seen))
            assert least <= kinds[kind] <= most, (kind, least, kinds[kind], most)
        marked, counts, gaps = self.marked, self.counts, self.gaps
        for bucket in marked:
            for kind in KINDS.values():
                assert counts[bucket, kind] == self.written[bucket, kind], f"{bucket} was marked and has a hole"
        unseen = {gap.start + HOUR * n for gap in gaps for n in range(int((gap.end - gap.start) / HOUR))}
        hours = [marked[0] + HOUR * n for n in range(int((marked[-1] - marked[0]) / HOUR) + 1)]
        assert set(hours) - set(marked) == unseen & set(hours)
        assert NO_REASON not in {gap.why for gap in gaps}


class Stopped:
    """A source that is killed after some spans."""

    def __init__(self, source, spans):
        self.source, self.notes, self._inner, self._left = source.source, source.notes, source, spans

    def spans(self, cursor, now):
        for span in self._inner.spans(cursor, now):
            if not self._left:
                break
            self._left -= 1
            yield span
        raise KeyboardInterrupt


@pytest.fixture
def followed(tmp_path):
    one = Followed(tmp_path)
    yield one
    one.site.close()


SEEDS = [*range(2), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 44))]  # with headers, and without


@pytest.mark.parametrize("seed", SEEDS)
def test_events_that_were_there_at_a_look_count_once_whatever_became_of_the_files(tmp_path, seed):
    chance, followed = random.Random(seed), Followed(tmp_path, numbered=seed % 2 == 0)
    with followed.site:
        log = followed.log
        mishaps = [followed.rotate, followed.copy_and_truncate, log.compress, followed.truncate, lambda: followed.rotate(keep=1)]
        for _ in range(12):
            followed.run_jobs(chance.randint(1, 20))
            if chance.random() < 0.5:
                followed.look(stop_after=chance.choice([None, None, 0, 1, 2]))
            if chance.random() < 0.5:
                chance.choice(mishaps)()
        followed.run_jobs(40)
        followed.look()
        log.now += 3 * HOUR
        followed.look()
        followed.check()


def test_a_log_that_was_cut_is_read_on_and_what_may_be_lost_is_a_gap(followed):
    followed.run_jobs(30)
    followed.look()
    before = followed.counts
    followed.truncate(keep=2000)
    followed.look()
    assert followed.counts == before, "what was counted stays, what is still there is not counted again"
    followed.run_jobs(20)
    report = followed.look()
    followed.log.now += HOUR
    followed.look()
    assert report.kinds["Submit"] == 20 and "cut off" in followed.gaps[0].why
    for bucket in followed.marked:
        assert followed.counts[bucket, "Submit"] == followed.written[bucket, "Submit"]


def test_a_log_that_was_written_anew_beyond_what_was_read_is_a_gap(followed):
    followed.run_jobs(3)
    followed.look()
    text = followed.log.path.read_bytes()
    head = text.index(b"...\n") + 4
    followed.log.path.write_bytes(text[:head] + text[head + 100 :])
    followed.run_jobs(30)
    followed.look()
    assert [gap.why for gap in followed.gaps] == ["the event log was cut off, or written anew, while it was followed"]


def test_a_log_that_is_removed_while_it_is_written_makes_no_zeros(followed):
    followed.run_jobs(20)
    followed.rotate()
    followed.look()
    followed.log.path.unlink()
    seen = followed.marked
    followed.log.now += 5 * HOUR
    followed.look()
    assert followed.marked == seen


def test_a_log_that_cannot_be_read_for_a_while_is_a_gap_and_is_filled_later(followed):
    followed.run_jobs(20)
    followed.look()
    text = followed.log.path.read_bytes()
    followed.log.path.write_bytes(b"this is no log\n...\n")
    followed.log.now += 3 * HOUR
    with pytest.raises(SourceError):
        followed.look()
    (gap,) = followed.gaps
    assert "not a job event log" in gap.why and gap.end == START + 5 * HOUR
    followed.log.path.write_bytes(text)
    followed.look()
    assert not followed.gaps


@pytest.mark.parametrize("commits", [0, 1, 2])
def test_a_file_named_by_hand_is_marked_although_its_reader_was_killed_before_that(followed, commits):
    followed.run_jobs(30)
    with pytest.raises(KeyboardInterrupt):
        ingest_events(followed.site, Stopped(CondorEventFile(followed.log.path, followed.site.settings), commits))
    for _ in range(2):
        ingest_events(followed.site, CondorEventFile(followed.log.path, followed.site.settings))
    assert followed.marked == [START + HOUR * n for n in range(3)]
    assert followed.counts == followed.written


def test_buckets_of_another_length_are_counted_from_all_that_is_there(followed):
    followed.run_jobs(20)
    followed.look()
    change_settings(followed.site.folder, events={"bucket_minutes": 15})
    with open_site(followed.site.folder) as finer:
        finer.now = followed.site.now
        for source in (FollowedEventLog(finer.settings), CondorEventFile(followed.log.path, finer.settings)):
            ingest_events(finer, source)
        series = series_of(finer, kinds=["Submit"])
    assert series.bucket_s == 900 and series.counts.sum() >= 18
    submits = followed.site.event_counts.read().filter(kind="Submit").group_by("bucket_s").agg(pl.col("count").sum())
    assert dict(submits.collect().iter_rows()) == {3600: 20, 900: 20}
