"""Ingest: from a source into the store, and what a person wants to know afterwards.

source -> chunk -> drop what is known -> translate -> check -> commit, a chunk at a time.

What the store already knows: fingerprints of the records behind its rows, and when each was last seen.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from stormpetrel.errors import SourceFormatError
from stormpetrel.ingest.commit import commit_jobs
from stormpetrel.ingest.report import IngestCounts
from stormpetrel.records.cursor import Cursor
from stormpetrel.records.doubts import RULES
from stormpetrel.records.jobs import CLOSED_BY_ABSENCE, JOB_SCHEMA
from stormpetrel.records.quality import Warnings, bounded_rejects, check
from stormpetrel.records.unread import UnreadCounts, settle
from stormpetrel.sources.contract import Chunk, JobSource, Translate, hopeful_chunks, mask_of
from stormpetrel.store.jobs import JobStore
from stormpetrel.store.privacy import Privacy
from stormpetrel.store.site import Site

_EXAMPLES = 3
_GAP = timedelta(days=1)
TRANSLATE_ROWS = 50_000
COMMIT_ROWS = 250_000  # large enough for the commit to cost little, small enough for a bounded memory
_WAITING = pl.Schema({**JOB_SCHEMA, "fingerprint": pl.Int64(), "line": pl.Int64()})  # rows on their way into a commit
Progress = Callable[[int, int], None]  # bytes done, records read
_AFTER_ALL_LINES = pl.lit(2**62, dtype=pl.Int64)


@dataclass(slots=True)
class IngestReport(IngestCounts):
    """The counts of one ingest; read = kept + known + changed + folded + all that was quarantined."""

    folded: int = 0
    quarantined: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    warnings: Warnings = field(default_factory=Warnings)
    unread: UnreadCounts = field(default_factory=UnreadCounts)
    states: Counter[str] = field(default_factory=Counter)
    raw_states: Counter[str] = field(default_factory=Counter)
    gaps: list[tuple[datetime, datetime]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The report as `--json` prints it."""
        return {
            **self.counted(),
            "folded": self.folded,
            "quarantined": dict(self.quarantined),
            "states": dict(sorted(self.states.items())),
            **self.span(),
            "seconds": round(self.seconds, 3),
            "raw_states": dict(sorted(self.raw_states.items())),
            "examples": self.examples,
            "warnings": self.warnings.counts,
            "warning_examples": self.warnings.examples,
            "quality": {
                rule.name: {"rows": self.warnings.counts[rule.name], "doubts": list(rule.doubts)}
                for rule in RULES
                if rule.name in self.warnings.counts
            },
            "unread": dict(sorted(self.unread.counts.items())),
            "unread_of": {column: self.unread.filled[column] for column in sorted(self.unread.counts)},
            "unread_examples": self.unread.examples,
            "gaps": [{"from": start.isoformat(), "to": end.isoformat()} for start, end in self.gaps],
            "notes": self.notes,
        }

    def add_rejects(self, rejects: pl.DataFrame) -> None:
        """Count refused records, and keep three examples of each rule."""
        self.quarantined.update(dict(rejects["rule"].value_counts().iter_rows()))
        for rule, line, reason, raw in rejects.select("rule", "line", "reason", "raw").head(1000).iter_rows():
            shown = self.examples.setdefault(rule, [])
            if len(shown) < _EXAMPLES:
                shown.append(f"line {line}: {reason} · {(raw or '')[:100]}")

    def add_jobs(self, states: pl.DataFrame) -> None:
        """Count states and stretch the span by rows with state, state_raw and submit_time."""
        if not states.height:
            return
        self.states.update(dict(states["state"].value_counts().iter_rows()))
        self.raw_states.update(dict(states["state_raw"].fill_null("").value_counts().iter_rows()))
        first, last = states["submit_time"].min(), states["submit_time"].max()
        assert isinstance(first, datetime) and isinstance(last, datetime)
        self.stretch(first, last)


def ingest_jobs(site: Site, source: JobSource, *, progress: Progress | None = None, remember: bool = True) -> IngestReport:
    """Read a source to its end into the site's job table.

    Stopped anywhere and run again, the table is the same: each chunk is one commit, and what is known is dropped. Without
    `remember` nothing is entered among the past ingests, and where no row changes nothing is written at all: for a loop that
    looks every few seconds.
    """
    started = time.perf_counter()
    report = IngestReport()
    with reading_ahead(hopeful_chunks(source)) as chunks:
        intake = _Intake(site, source, report, looking=not remember)
        try:
            for chunk in chunks:
                intake.take(chunk)
                if progress:
                    progress(chunk.bytes_done, report.read)
        except SourceFormatError:  # what came before is as good as ever
            intake.flush()
            raise
    intake.flush(source.cursor)
    if intake.has_read:
        report.add_jobs(intake.known.rows_matched())
    report.notes = list(source.notes)
    report.gaps = find_gaps(site, report.first, report.last) if remember else []
    report.seconds = time.perf_counter() - started
    if not remember:
        return report
    remembered = report.as_dict()
    if site.settings.store.pseudonymise_users:
        remembered["examples"] = remembered["unread_examples"] = {}  # they quote records, and records name users
    site.state.record_ingest(source.name, remembered)
    return report


@contextmanager
def reading_ahead(chunks: Iterator[Chunk]) -> Iterator[Iterator[Chunk]]:
    """The same chunks, each being read while the one before is worked on; the first at once."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="read-ahead") as reader:
        first = reader.submit(next, chunks, None)

        def following() -> Iterator[Chunk]:
            coming = first
            while (chunk := coming.result()) is not None:
                coming = reader.submit(next, chunks, None)
                yield chunk

        yield following()


def sum_job_reports(reports: list[IngestReport]) -> IngestReport:
    """The sum of several ingests, as one report."""
    total = IngestReport()
    for report in reports:
        for name in ("read", "kept", "known", "changed", "folded", "seconds"):
            setattr(total, name, getattr(total, name) + getattr(report, name))
        total.quarantined.update(report.quarantined)
        total.states.update(report.states)
        total.raw_states.update(report.raw_states)
        total.warnings.merge(report.warnings)
        total.unread.merge(report.unread)
        for rule, examples in report.examples.items():
            total.examples[rule] = [*total.examples.get(rule, []), *examples][:_EXAMPLES]
        if report.first and report.last:
            total.stretch(report.first, report.last)
        total.gaps += report.gaps
        total.notes += report.notes
    return total


class _Intake:
    """Takes chunks of one source into the store; many chunks with few new rows make one commit."""

    def __init__(self, site: Site, source: JobSource, report: IngestReport, *, looking: bool) -> None:
        self.site, self.source, self.report, self.looking = site, source, report, looking
        self.has_read = False
        self.held: list[pl.DataFrame] = []  # new records, not translated yet
        self.held_steps: list[pl.DataFrame] = []
        self.translate: Translate | None = None
        self.next_record = 0
        self.waiting: list[pl.DataFrame] = []  # translated rows, not committed yet
        self.refused: list[pl.DataFrame] = []
        self.seen_again: list[pl.DataFrame] = []
        self.unread = UnreadCounts()  # of the rows on their way into a commit

    @cached_property
    def known(self) -> KnownRecords:
        """What the table holds; not asked for where the source has nothing to say."""
        self.has_read = True
        return known_records(self.site.jobs, self.source.as_of, looking=self.looking)

    @cached_property
    def privacy(self) -> Privacy:
        return self.site.privacy

    def take(self, chunk: Chunk) -> None:
        self.report.read += chunk.read
        self.report.folded += chunk.folded
        self._refuse(chunk.rejects)
        if chunk.records.height:
            fresh, steps = self._unknown(chunk)
            if fresh.height:
                self._hold(fresh, steps, chunk.translate)
        if sum(frame.height for frame in self.waiting) >= COMMIT_ROWS:
            self.flush()

    def _hold(self, fresh: pl.DataFrame, steps: pl.DataFrame | None, translate: Translate) -> None:
        """Keep new records until there are enough to translate: a few of each chunk cost as much as many of one."""
        if self.held and self.translate != translate:
            self._translate_held()
        self.translate = translate
        moved = (pl.col("record") + self.next_record).cast(pl.UInt32)
        self.held.append(fresh.with_columns(moved))
        if steps is not None:
            self.held_steps.append(steps.with_columns(moved))
        self.next_record += int(fresh["record"].max() or 0) + 1  # type: ignore[arg-type]
        if sum(frame.height for frame in self.held) >= TRANSLATE_ROWS:
            self._translate_held()

    def _translate_held(self) -> None:
        if not self.held or self.translate is None:
            return
        fresh = pl.concat(self.held)
        steps = pl.concat(self.held_steps) if self.held_steps else None
        self.held, self.held_steps, self.next_record = [], [], 0
        jobs, bad = self.translate(fresh.drop("fingerprint"), steps)
        good, odd, warnings = check(jobs, now=self.site.now())
        self._refuse(bad)
        self._refuse(odd)
        self.report.warnings.merge(warnings)
        good, unread = settle(good)
        self.unread.merge(self.privacy.without_names_in(unread))
        self._accept(good.join(fresh.select("record", "fingerprint"), on="record", maintain_order="left"))

    def flush(self, cursor: Cursor | None = None) -> None:
        """Commit what has been taken in, with the cursor that stands for it.

        Who is forgotten is asked now, under the lock: a user who was forgotten while this ingest ran stays so.
        """
        self._translate_held()
        if self.looking and not (self.waiting or self.refused):
            if cursor is not None:
                self.site.jobs.read_in_vain(cursor)
            return
        with self.site.state.writer_lock():
            privacy = self.site.privacy
            if self.refused:
                self.site.quarantine.add(privacy.without_names(pl.concat(self.refused)), self.source.name)
                self.refused.clear()
            seen_again = pl.concat(self.seen_again) if self.seen_again else None
            self.seen_again.clear()
            if self.waiting or cursor is not None:
                self._commit(privacy, seen_again, cursor)
            elif seen_again is not None:
                self.site.jobs.see_again(seen_again, self.source.as_of)
            self._count_unread()

    def _count_unread(self) -> None:
        counts, self.unread = self.unread, UnreadCounts()
        self.site.unread_fields.add(self.source.format, counts)
        self.report.unread.merge(counts)

    def _commit(self, privacy: Privacy, seen_again: pl.DataFrame | None, cursor: Cursor | None) -> None:
        jobs = pl.concat(self.waiting) if self.waiting else pl.DataFrame(schema=_WAITING)
        self.waiting.clear()
        allowed = privacy.without_forgotten(jobs)
        if allowed.height < jobs.height:
            self.report.quarantined["forgotten_user"] += jobs.height - allowed.height
        rows = privacy.pseudonymised(allowed)
        self.report.add_jobs(rows)
        done = commit_jobs(
            self.site.jobs,
            rows,
            fields=mask_of(self.source),
            as_of=self.source.as_of,
            seen_again=seen_again,
            cursor=cursor,
            looking=self.looking,
        )
        self.report.kept += done.kept
        self.report.known += done.known
        self.report.changed += done.changed

    def _unknown(self, chunk: Chunk) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """The records (with their fingerprints) that the store does not hold yet; the others are counted as known."""
        marked = chunk.records.with_columns(
            fingerprints(chunk.records, chunk.steps, self.site.hash_seed(f"{self.source.format}:{chunk.meaning}"))
        )
        if not len(self.known):
            return marked, chunk.steps
        known, later = self.known.look_up(marked)
        self.report.known += int(known.sum())
        if later.any():
            self.seen_again.append(marked.select("fingerprint", "line").filter(later))
        if known.all():
            return marked.clear(), None
        fresh = marked.filter(~known)
        steps = chunk.steps.join(fresh.select("record"), on="record", how="semi") if chunk.steps is not None else None
        return fresh, steps

    def _accept(self, jobs: pl.DataFrame) -> None:
        if jobs.height:
            self.waiting.append(jobs.with_columns(source=pl.lit(self.source.format)).select(*_WAITING))

    def _refuse(self, rejects: pl.DataFrame) -> None:
        if rejects.height:
            rejects = self.privacy.without_names(rejects)
            self.report.add_rejects(rejects)
            self.refused.append(bounded_rejects(rejects))


def find_gaps(site: Site, first: datetime | None, last: datetime | None) -> list[tuple[datetime, datetime]]:
    """The longest stretches of at least a day without a single submission, at most three, longest first."""
    if first is None or last is None or last - first < _GAP:
        return []
    times = (
        site.jobs.read_jobs(since=first)
        .filter(pl.col("submit_time") <= last)
        .select(pl.col("submit_time").dt.truncate("1h").unique().sort())
    )
    hours = times.collect().with_columns(next=pl.col("submit_time").shift(-1))
    gaps = hours.filter(pl.col("next") - pl.col("submit_time") > _GAP + timedelta(hours=1)).with_columns(
        length=pl.col("next") - pl.col("submit_time")
    )
    longest = gaps.sort("length", descending=True).head(_EXAMPLES)
    return [(start + timedelta(hours=1), end) for start, end in longest.select("submit_time", "next").iter_rows()]


class KnownRecords:
    """An index over the fingerprints of the job table, sorted once and searched for each chunk of one source."""

    def __init__(self, jobs: pl.LazyFrame, sightings: pl.LazyFrame, as_of: datetime, *, looking: bool = False) -> None:
        if looking:
            self._index(_with_layers(jobs))
            return
        rows = jobs.select("fingerprint", "state", "state_raw", "submit_time").collect()
        # Only sightings at or after the source's own time say that one of its records has been seen as late before.
        line = pl.when(pl.col("as_of") > as_of).then(_AFTER_ALL_LINES).otherwise(pl.col("line"))
        late = sightings.filter(pl.col("as_of") >= as_of).group_by("fingerprint").agg(seen_line=line.max()).collect()
        if late.height:
            rows = rows.join(late, on="fingerprint", how="left", maintain_order="left")
        else:
            rows = rows.with_columns(seen_line=pl.lit(None, dtype=pl.Int64))
        self._index(rows)

    def _index(self, rows: pl.DataFrame) -> None:
        fingerprint = rows["fingerprint"].to_numpy()
        self._order = rows["fingerprint"].arg_sort().to_numpy()
        self._fingerprints = fingerprint[self._order]
        self._seen_line = rows["seen_line"].fill_null(-1).to_numpy()[self._order]
        self._rows = rows.select("state", "state_raw", "submit_time")
        self._hits = np.zeros(len(fingerprint), dtype=np.int64)

    def __len__(self) -> int:
        return len(self._fingerprints)

    def look_up(self, records: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
        """Which records (`fingerprint`, `line`) are in the table, and which of those were never seen as late as now."""
        wanted, line = records["fingerprint"].to_numpy(), records["line"].to_numpy()
        if not len(self):
            nothing = pl.Series(np.zeros(len(wanted), dtype=bool))
            return nothing, nothing
        order = records["fingerprint"].arg_sort().to_numpy()  # searching in order keeps to the cache: three times as fast
        places = np.empty(len(wanted), dtype=np.int64)
        places[order] = np.minimum(np.searchsorted(self._fingerprints, wanted[order]), len(self) - 1)
        known = self._fingerprints[places] == wanted
        np.add.at(self._hits, places[known], 1)
        return pl.Series(known), pl.Series(known & (self._seen_line[places] < line))

    def rows_matched(self) -> pl.DataFrame:
        """State, raw state and submit time of the rows that were looked up, once for each time they were."""
        times = np.zeros(len(self), dtype=np.int64)
        times[self._order] = self._hits
        hit = self._rows.with_columns(n=pl.Series(times)).filter(pl.col("n") > 0)
        return hit.select(pl.all().exclude("n").repeat_by("n").explode()) if hit["n"].sum() > hit.height else hit.drop("n")


def known_records(store: JobStore, as_of: datetime, *, looking: bool = False) -> KnownRecords:
    """Index what the table holds now, for a source of that time, or for one that is asked again and again."""
    return KnownRecords(store.table.scan(), store.sightings.scan(), as_of, looking=looking)


def _with_layers(jobs: pl.LazyFrame) -> pl.DataFrame:
    """The rows once for each record that they are made of, each seen as late as can be.

    Accounting and the controller tell of a job that waits in turns: both records are known, and neither is news. A job that
    was closed because it was on no list any more is open again with the next record that says so, whichever that is.
    """
    columns = ("fingerprint", "state", "state_raw", "submit_time")
    rows = jobs.select(*columns, "source", "older").collect()
    layered = rows.filter(pl.col("older").is_not_null(), pl.col("source") != CLOSED_BY_ABSENCE)
    layers = layered.select(
        pl.col("older").list.eval(pl.element().struct.field("fingerprint")).alias("fingerprint"), *columns[1:]
    )
    return pl.concat([rows.select(columns), layers.explode("fingerprint")]).with_columns(seen_line=_AFTER_ALL_LINES)


def fingerprints(records: pl.DataFrame, steps: pl.DataFrame | None, seed: int) -> pl.Series:
    """A 64-bit hash of each record with its steps, keyed by the site's own seed so that no user can aim for a collision.

    Stable within one version of polars: after an upgrade a file that was known is read in full once more, and found equal.
    """
    hashes = _text_of(records).hash_rows(seed=seed)
    if steps is not None and steps.height:
        of_steps = pl.DataFrame({"record": steps["record"], "h": _text_of(steps).hash_rows(seed=seed)})
        # A sum does not mind the order of the steps; wrapping around is fine for a hash.
        sums = of_steps.group_by("record").agg(pl.col("h").sum(), n=pl.len().cast(pl.UInt64))
        both = records.select("record").with_columns(own=hashes).join(sums, on="record", how="left", maintain_order="left")
        # A record without steps is the same record whether others of its chunk have any or not.
        of_both = pl.struct("own", "h", "n").hash(seed=seed)
        hashes = both.select(pl.when(pl.col("n").is_null()).then("own").otherwise(of_both)).to_series()
    return hashes.reinterpret(signed=True).rename("fingerprint")


def _text_of(records: pl.DataFrame) -> pl.DataFrame:
    """What the source said, without what was added to find it again."""
    return pl.DataFrame([column for column in records.get_columns() if column.name not in ("record", "line")])
