"""The first line and the events of a job, as `bacct -l`, `bhist -l` and `bjobs -l` word them -> LsfJob.

`Job <12>, User <ada>, …` -> first_run; `Mon …: Dispatched 4 Task(s) on Host(s) <n1> …` -> Event -> apply_event.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from stormpetrel.sources.job_rows import real, small, whole
from stormpetrel.sources.lsf.job import LsfJob
from stormpetrel.sources.lsf.resources import Placement, placement, size_bytes

_KEYS: Final = (
    "Job Name|Job Description|Job Group|Job Priority|Job|User Group|User|Project|License Project|Mail|Status|Queue|Service Class|"
    "Application|Command|Share group charged|Extsched|External Scheduler|Esub|Interactive mode|Resize notification command"
)
_AFTER_COMMAND: Final = "Share group charged|Extsched|External Scheduler|Esub|Job Description|Resize notification command"
# A value ends where another one, or a word without a value, begins: names and commands may hold > themselves.
_FIELD: Final = re.compile(rf"(?:\A|,\s*)({_KEYS}) <")
_FIELD_END: Final = re.compile(rf">(?=\s*(?:\Z|[,;]\s*(?:(?:{_KEYS}) <|Interactive |\Z)))")
_COMMAND_END: Final = re.compile(rf">(?=\s*(?:\Z|[,;]\s*(?:(?:{_AFTER_COMMAND}) <|\Z)))")
_VALUE_END: Final = re.compile(r">(?=\s*(?:[,;]|\Z))")
_IDENTITY: Final = re.compile(r"(\d{1,18})(?:\[(\d{1,18})\])?", re.ASCII)
_SLOTS: Final = re.compile(r"[,;]\s*(\d{1,9})(?:-\d{1,9})? (?:Processors Requested|Task\(s\))", re.ASCII)
_DISPATCHED: Final = re.compile(r"(?:\[\d+\] )?(?:[Dd]ispatched|[Ss]tarted)\b(?! in)")
_TASKS: Final = re.compile(r"(?:\[\d+\] )?[A-Za-z]+ (\d{1,9}) Task\(s\)", re.ASCII)
_ALLOCATED: Final = re.compile(r"Allocated \d+ Slot\(s\) on Host\(s\)((?:\s*<[^<>]*>)+)", re.ASCII)
_EXECUTED: Final = re.compile(r"(?:Host\(s\)|Hosts/Processors|to|on)((?:\s*<[^<>]*>)+)")
_NAMED: Final = re.compile(r"<([^<>]*)>")
_EXIT_CODE: Final = re.compile(r"Exited with exit code (\d{1,9})", re.ASCII)
_EXIT_SIGNAL: Final = re.compile(r"Exited by (?:LSF )?signal (\d{1,9})", re.ASCII)
_CPU_TIME: Final = re.compile(r"The CPU time used is (\d{1,15}(?:\.\d{1,9})?) seconds?", re.ASCII)
_MEMORY: Final = re.compile(r"\bMEM: (\d{1,15}(?:\.\d{0,9})? [KMGTP]?bytes)", re.ASCII)
_REASON: Final = re.compile(r"\b(TERM_[A-Z_]{2,40})\b")
_KILLED_BY: Final = re.compile(r"Signal <[A-Z0-9]{1,20}> requested by user or administrator <([^<>]{1,256})>")
_STATUSES: Final = {"Unknown;": "UNKWN", "Running": "RUN"}
_SUSPENDED: Final = re.compile(r"(?:Job was )?[Ss]uspended\b")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a job: the number of its line, its time (None where the stamp cannot be read) and its words."""

    line: int
    stamp: str
    time: datetime | None
    text: str

    @property
    def is_dispatch(self) -> bool:
        """Whether the job went to its hosts."""
        return bool(_DISPATCHED.match(self.text)) and "pre-execution" not in self.text

    @property
    def is_requeue(self) -> bool:
        """Whether the job went back into the queue."""
        return self.text.startswith(("Pending", "pending", "Requeue")) and "requeue" in self.text.lower()

    def begins_next_run(self, job: LsfJob) -> bool:
        """Whether what was known until now is of a run before this event."""
        return job.start is not None and (self.is_requeue or (self.is_dispatch and job.end is not None))


def first_run(text: str, line: int) -> LsfJob | None:
    """The job of a record's first line, unwrapped; None where it names no job or no user."""
    values = _values(text)
    identity = _IDENTITY.fullmatch(values.get("Job", ""))
    if not identity or not values.get("User"):
        return None
    return LsfJob(
        int(identity[1]),
        int(identity[2]) if identity[2] and int(identity[2]) else None,
        line,
        status=values.get("Status", "").strip(),
        name=values.get("Job Name", ""),
        command=values.get("Command", ""),
        user=values["User"].strip(),
        project=values.get("Project", "").strip(),
        queue=values.get("Queue", "").strip(),
        service_class=values.get("Service Class", ""),
        extra={
            "application": values.get("Application", ""),
            "job_group": values.get("Job Group", ""),
            "share": values.get("Share group charged", ""),
            "description": values.get("Job Description", ""),
        },
    )


def next_run(job: LsfJob, line: int) -> LsfJob:
    """The job after it was requeued, with what it was submitted with."""
    return replace(
        job, line=line, is_requeued=False, restart=job.restart + 1, status="PEND", reason="", start=None, end=None,
        elapsed_s=None, exit_code=None, exit_signal=None, killed_by="", placement=Placement(), requirement="", max_rss_bytes=None,
        cpu_time_s=None, extra=dict(job.extra), unread=dict(job.unread),
    )  # fmt: skip


def apply_event(job: LsfJob, event: Event) -> None:
    """What an event says about the run that it belongs to; most say nothing that has a column."""
    text = event.text
    if text.startswith("Submitted from host"):
        _apply_submission(job, event)
    elif event.is_dispatch:
        _apply_dispatch(job, event)
    elif text.startswith(("Done successfully", "Exited", "Completed")):
        _apply_end(job, event)
    elif match := _KILLED_BY.match(text):
        job.killed_by = match[1]
    elif text.startswith("Resource usage collected"):
        _apply_use(job, text)
    else:
        job.status = _status_after(job, event) or job.status
    if queue := _value(text, "to Queue <") or _value(text, "to queue <"):
        job.queue = queue.strip()


def _status_after(job: LsfJob, event: Event) -> str:
    """The status that an event alone brings; empty for the many that bring none."""
    if event.is_requeue:
        return "PEND"
    if _SUSPENDED.match(event.text):
        return "PSUSP" if job.start is None else "SSUSP"
    return next((status for words, status in _STATUSES.items() if event.text.startswith(words)), "")


def _values(text: str) -> dict[str, str]:
    """The fields of a first line; of several with one name the first, since commands come last."""
    values: dict[str, str] = {}
    at = 0
    while match := _FIELD.search(text, at):
        end = (_COMMAND_END if match[1] == "Command" else _FIELD_END).search(text, match.end())
        stop = end.start() if end else len(text)
        values.setdefault(match[1], text[match.end() : stop])
        at = stop + 1
    return values


def _apply_submission(job: LsfJob, event: Event) -> None:
    job.submit, job.status = event.time, job.status or "PEND"
    job.extra["submit_host"] = _value(event.text, "Submitted from host <")
    job.work_dir = _value(event.text, " CWD <")
    job.requested = job.extra["resources"] = _value(event.text, "Requested Resources <")
    slots = _SLOTS.search(event.text)
    job.slots = whole(slots[1]) if slots else None


def _apply_dispatch(job: LsfJob, event: Event) -> None:
    job.start, job.status = event.time, "RUN"
    _note_time(job, "start_time", event)
    head = event.text.partition("Effective RES_REQ")[0]
    hosts = _ALLOCATED.search(head) or _EXECUTED.search(head)
    if hosts:
        job.placement = placement([name.strip() for name in _NAMED.findall(hosts[1]) if name.strip()])
    tasks = _TASKS.match(head)
    job.slots = job.slots or (whole(tasks[1]) if tasks else job.placement.slots)
    job.requirement = event.text.partition("Effective RES_REQ <")[2].rpartition(">")[0]


def _apply_end(job: LsfJob, event: Event) -> None:
    job.end = event.time
    _note_time(job, "end_time", event)
    is_done = event.text.startswith(("Done", "Completed <done>"))
    job.status = "DONE" if is_done else "EXIT"
    code, signal, reason = (pattern.search(event.text) for pattern in (_EXIT_CODE, _EXIT_SIGNAL, _REASON))
    if reason:
        job.reason = reason[1]
    if code or signal or is_done:
        job.exit_code = small(code[1]) if code else 0
        job.exit_signal = small(signal[1]) if signal else 0
    _apply_use(job, event.text)


def _apply_use(job: LsfJob, text: str) -> None:
    cpu, memory = _CPU_TIME.search(text), _MEMORY.search(text)
    if cpu:
        job.cpu_time_s = real(cpu[1])
    if memory:
        job.max_rss_bytes = max(job.max_rss_bytes or 0, size_bytes(memory[1]) or 0)


def _value(text: str, opening: str) -> str:
    """The text between an opening and the `>` that ends a value; empty where there is none."""
    begin = text.find(opening)
    end = _VALUE_END.search(text, begin + len(opening)) if begin >= 0 else None
    return text[begin + len(opening) : end.start()] if end else ""


def _note_time(job: LsfJob, column: str, event: Event) -> None:
    if event.time is None:
        job.unread[column] = event.stamp
    else:
        job.unread.pop(column, None)
