"""What `bacct -l`, `bhist -l` and `bjobs -l` print -> jobs, one run after the other.

`Job <12[3]>, …` · wrapped lines · events with their times · tables of limits and use -> paragraphs -> LsfJob. A run that was
requeued is a job of its own. A line that is nothing of all this is refused, and its record kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from stormpetrel.records.states import JobState
from stormpetrel.sources.job_rows import JobBatch, real
from stormpetrel.sources.lines import Refused, shown
from stormpetrel.sources.lsf.accounting import COLUMNS
from stormpetrel.sources.lsf.job import LsfJob
from stormpetrel.sources.lsf.long_events import Event, apply_event, first_run, next_run
from stormpetrel.sources.lsf.resources import size_bytes
from stormpetrel.sources.lsf.stamps import STAMP, Stamps

LONG_COLUMNS: Final = COLUMNS - {"uid", "user_cpu_s", "system_cpu_s", "eligible_time"}
BACCT_COLUMNS: Final = LONG_COLUMNS - {
    "time_limit_s",
    "exit_code",
    "exit_signal",
}  # it tells no limits, and how a job ended only in words
HEADER: Final = re.compile(r"\s{0,8}Job <\d{1,18}(?:\[\d{1,18}\])?>, ?[A-Z]", re.ASCII)
_EVENT: Final = re.compile(rf"\s{{0,8}}{STAMP}: ?(.*)", re.ASCII | re.DOTALL)
_WRAP: Final = 21  # blanks before the rest of a line that LSF has wrapped
_FEWEST_BLANKS: Final = 10
_RULE: Final = re.compile(r"\s*-{20,}\s*\Z")
_TITLE: Final = re.compile(r"\s*([A-Z][A-Z /_()-]*[A-Z)]):?(?:\s.*)?\Z|\s*(?:Accounting information about|Summary of time) .*\Z")
_LIMITS: Final = re.compile(r"\s*[A-Z]+LIMIT(?:\s+[A-Z]+LIMIT)*\s*\Z")
_LIMIT_VALUE: Final = re.compile(r"(\d{1,15}(?:\.\d{0,9})?)(?: *(min)(?: of \S+)?| *([KMGTPE]))?(?=\s|\Z)", re.ASCII)
_USE_HEAD: Final = re.compile(r"\s*CPU_T\s+WAIT\s+TURNAROUND\b")
_STATES_HEAD: Final = re.compile(r"\s*PEND\s+PSUSP\s+RUN\b")
_MAX_MEMORY: Final = re.compile(r"\s*MAX MEM: ([^;]{1,40});")
_MAX_BYTES: Final = 4 * 1024 * 1024
_KIB: Final = 1024
_BROKEN_OFF: Final = "the record has no events, or not that of its end: it breaks off, or was printed without -l"


@dataclass(slots=True)
class _Record:
    """The lines of one job, taken apart as they come."""

    line: int
    text: str
    header: list[str]
    events: list[tuple[int, re.Match[str], list[str]]] = field(default_factory=list)
    wrapped: list[str] | None = None  # what a wrapped line belongs to
    table: list[str] = field(default_factory=list)  # head of the table whose row comes next
    size: int = 0
    problem: Refused | None = None
    limits: dict[str, str] = field(default_factory=dict)
    use: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, str] = field(default_factory=dict)
    max_memory: str = ""


class LongRecords:
    """Makes jobs out of the lines of one of the three commands."""

    def __init__(self, batch: JobBatch, cluster: str, stamps: Stamps) -> None:
        self._batch, self._cluster, self._stamps = batch, cluster, stamps
        self._record: _Record | None = None

    def take(self, number: int, line: str) -> None:
        """One line of the output."""
        if HEADER.match(line):
            self.finish()
            header = [line.lstrip()]
            self._record = _Record(number, line, header, wrapped=header)
        elif _RULE.match(line) or line.startswith("SUMMARY:"):
            self.finish()
        elif self._record is not None and self._record.problem is None:
            self._record.size += len(line)
            if self._record.size > _MAX_BYTES:
                reason = f"the record is longer than {_MAX_BYTES:,} bytes"
                self._record.problem = (self._record.line, "record_too_long", reason, shown(self._record.text.encode()))
            elif not _take(self._record, number, line):
                self._batch.refuse(number, "unknown_line", "the line is nothing that LSF writes about a job", line)

    def spoil(self, refused: Refused) -> None:
        """A line that cannot be read: the record it belongs to is refused for it."""
        if self._record is None:
            self._batch.refuse_all([refused])
        else:
            self._record.problem = self._record.problem or refused

    def finish(self) -> None:
        """The end of a record."""
        record, self._record = self._record, None
        if record is None:
            return
        if record.problem is not None:
            self._batch.refuse_all([record.problem])
            return
        runs = self._runs(record)
        if isinstance(runs, str):
            rule = "truncated_record" if runs is _BROKEN_OFF else "bad_record"
            self._batch.refuse(record.line, rule, runs, record.text)
            return
        for job in runs:
            self._batch.add(job.row(self._cluster), job.line)

    def _runs(self, record: _Record) -> list[LsfJob] | str:
        """The runs of a job, or what is wrong with its record."""
        job = first_run("".join(record.header), record.line)
        if job is None:
            return "the first line of the record does not name a job and its user"
        listed = job.status
        if not record.events:
            return _BROKEN_OFF
        runs: list[LsfJob] = []
        for line, match, parts in record.events:
            event = Event(line, _stamp(match), self._stamps.moment(match), "".join(parts))
            if event.begins_next_run(job):
                runs.append(job)
                job.is_requeued, job.status, job.end = True, "EXIT", job.end or event.time
                job = next_run(job, line)
            apply_event(job, event)
        job.status = listed or job.status
        _apply_limits([*runs, job], record)
        _apply_use(job, record, is_only_run=not runs)
        if job.end is None and "end_time" not in job.unread and job.status in ("DONE", "EXIT"):
            return _BROKEN_OFF
        if job.state is None:
            return f"LSF has no status {job.status[:40]!r}"
        return [*runs, job]


def _stamp(match: re.Match[str]) -> str:
    return match.string[match.start(1) : match.start(8)].strip(": ")


def _take(record: _Record, number: int, line: str) -> bool:
    """Put a line where it belongs; False where it belongs nowhere."""
    blanks = len(line) - len(line.lstrip(" "))
    if record.wrapped is not None and blanks >= _FEWEST_BLANKS:
        record.wrapped.append(line[min(blanks, _WRAP) :])
        return True
    if match := _EVENT.match(line):
        record.wrapped, record.table = [match[8]], []
        record.events.append((number, match, record.wrapped))
        return True
    if memory := _MAX_MEMORY.match(line):
        record.max_memory = memory[1]
        return True
    if record.table:
        _take_row(record, line)
        return True
    if _LIMITS.match(line) or _USE_HEAD.match(line) or _STATES_HEAD.match(line):
        record.wrapped, record.table = None, line.split()
        return True
    is_title = _TITLE.match(line) is not None
    is_in_section = record.wrapped is None
    if is_title:
        record.wrapped = None
    return is_title or is_in_section


def _take_row(record: _Record, line: str) -> None:
    head, record.table = record.table, []
    if head[0].endswith("LIMIT"):
        values = [match[0] for match in _LIMIT_VALUE.finditer(line)]
        if len(values) == len(head):
            record.limits.update(zip(head, values, strict=True))
    else:
        values = line.split()
        if len(values) >= len(head):
            (record.use if head[0] == "CPU_T" else record.seconds).update(zip(head, values, strict=False))


def _apply_limits(runs: list[LsfJob], record: _Record) -> None:
    """Run limit, in minutes, and memory limit of all runs."""
    match = _LIMIT_VALUE.fullmatch(record.limits.get("RUNLIMIT", ""))
    for job in runs:
        job.limit_s = float(match[1]) * 60 or None if match else None
        job.memory_limit_bytes = size_bytes(record.limits.get("MEMLIMIT", ""), _KIB)


def _apply_use(job: LsfJob, record: _Record, *, is_only_run: bool) -> None:
    """What the commands print of the use of the job as a whole, on its last run."""
    for column, text in (
        ("max_rss_bytes", record.max_memory or record.use.get("MEM", "")),
        ("cpu_time_s", record.use.get("CPU_T", "")),
    ):
        if not text or text == "-":
            continue
        value = size_bytes(text, _KIB) if column == "max_rss_bytes" else real(text)
        if value is None:
            job.unread[column] = text
        else:
            setattr(job, column, value)
    job.status = job.status or {"done": "DONE", "exit": "EXIT"}.get(record.use.get("STATUS", ""), "")
    run_s = real(record.seconds.get("RUN", ""))
    if is_only_run and run_s is not None and job.start is not None and job.state is not JobState.RUNNING:
        job.elapsed_s = run_s
