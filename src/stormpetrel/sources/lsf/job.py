"""One run of an LSF job, as any of LSF's records tells it -> a row of the job frame.

The one place where names, outcome and request become columns: lsb.acct, bacct, bhist and job reports only fill an LsfJob.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import PurePosixPath
from typing import Final

from stormpetrel.records.states import FINISHED, UNFINISHED, JobState, lsf_state
from stormpetrel.sources.job_rows import MIB, span_s
from stormpetrel.sources.lsf.resources import Placement, gpu_count, memory_bytes, requested_hosts

_NO_PROJECT: Final = "default"
_ARRAY_NAME: Final = re.compile(r"(.*?)\[[^\[\]]*\](?:%\d+)?", re.DOTALL)
_EXIT_BASE: Final = 128
# What LSF sends at the run limit, and then to kill: versions that do not tell the reason leave only these.
_LIMIT_SIGNALS: Final = frozenset({2, 9, 12, 15})
_BY_OWNER: Final = frozenset({"TERM_OWNER", "TERM_FORCE_OWNER"})
_MOST_COMMAND: Final = 4096


@dataclass(slots=True)
class LsfJob:
    """What is known of one run of a job; texts are empty and values None where the record does not say."""

    job_id: int
    array_task: int | None
    line: int
    status: str = ""  # LSF's word: DONE, EXIT, RUN, PEND, …
    reason: str = ""  # TERM_…
    is_requeued: bool = False  # it went back into the queue after this run
    cluster: str = ""
    restart: int = 0
    submit: datetime | None = None
    eligible: datetime | None = None
    start: datetime | None = None
    end: datetime | None = None
    elapsed_s: float | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    name: str = ""
    command: str = ""
    user: str = ""
    uid: int | None = None
    killed_by: str = ""
    project: str = ""
    queue: str = ""
    service_class: str = ""
    work_dir: str = ""
    slots: int | None = None  # asked for
    placement: Placement = field(default_factory=Placement)
    requirement: str = ""  # what LSF made of the request; its sizes are in MB
    requested: str = ""  # the request as the user wrote it
    limit_s: float | None = None
    memory_bytes: int | None = None  # asked for, of the whole job, where a record says so itself
    memory_limit_bytes: int | None = None  # above which LSF ends it: what counts where no memory is reserved
    max_rss_bytes: int | None = None
    cpu_time_s: float | None = None
    user_cpu_s: float | None = None
    system_cpu_s: float | None = None
    extra: dict[str, str] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)

    @property
    def state(self) -> JobState | None:
        """The state in the common vocabulary; None where LSF has no such status."""
        state = lsf_state(self.status, self.reason, signal=self.signal, has_started=self.has_started)
        if self.is_requeued and (state is JobState.FAILED or state in UNFINISHED):
            return JobState.REQUEUED
        ran_out = self.limit_s and self.elapsed_s is not None and self.elapsed_s >= self.limit_s
        is_untold = self.reason in ("", "TERM_UNKNOWN")
        if state is JobState.FAILED and is_untold and ran_out and self.signal in _LIMIT_SIGNALS:
            return JobState.TIMEOUT
        return state

    @property
    def has_started(self) -> bool:
        """Whether the record tells a start, even one that cannot be read."""
        return self.start is not None or "start_time" in self.unread

    @property
    def signal(self) -> int:
        """The signal that ended the job, by itself or as the shell's 128 + N; 0 for none."""
        code = self.exit_code or 0
        return self.exit_signal or (code - _EXIT_BASE if _EXIT_BASE < code < 2 * _EXIT_BASE else 0)

    def row(self, cluster: str) -> dict[str, object]:
        """The row of the job frame; `state` must be known."""
        if self.elapsed_s is None:
            self.elapsed_s = span_s(self.start, self.end)
        state = self.state
        assert state is not None
        has_started = self.has_started
        cpus = self.placement.slots if has_started else None
        memory, hosts, gpus = self._request()
        reason = "" if self.reason == "TERM_UNKNOWN" else self.reason
        return {
            "cluster": cluster or self.cluster or "cluster",
            "job_id": self.job_id,
            "array_task": self.array_task,
            "submit_time": self.submit,
            "restart": self.restart,
            "job_name": self._job_name(),
            "user": self.user or None,
            "uid": self.uid,
            "account": None if self.project in ("", _NO_PROJECT) else self.project,
            "partition": self.queue or None,
            "qos": self.service_class or None,
            "eligible_time": self.eligible,
            "start_time": self.start,
            "end_time": self.end if state in FINISHED else None,
            "state": state.value,
            "state_raw": f"{self.status} {reason}".rstrip(),
            "cancelled_by": self._cancelled_by(state),
            "exit_code": self.exit_code,
            "exit_signal": self.exit_signal,
            "time_limit_s": self.limit_s,
            "elapsed_s": self.elapsed_s if has_started else None,
            "cpu_limit_s": self.elapsed_s * cpus if has_started and self.elapsed_s is not None and cpus else None,
            "req_cpus": self.slots,
            "cpus": cpus,
            "req_nodes": hosts,
            "nodes": self.placement.nodes if has_started else None,
            "node_list": ",".join(self.placement.hosts) or None if has_started else None,
            "req_gpus": gpus,
            "gpus": gpus if has_started else None,
            "req_mem_bytes": memory,
            "max_rss_bytes": self.max_rss_bytes or None,  # 0: the job was over before anybody looked
            "cpu_time_s": self.cpu_time_s,
            "user_cpu_s": self.user_cpu_s,
            "system_cpu_s": self.system_cpu_s,
            "work_dir": self.work_dir or None,
            "submit_line": self.command[:_MOST_COMMAND] or None,
            "extra": {name: text for name, text in self.extra.items() if text} or None,
            "unread": self.unread,
        }

    def _request(self) -> tuple[int | None, int | None, int | None]:
        """Memory, hosts and GPUs of the whole job."""
        requirement = self.requirement or self.requested
        wanted = requested_hosts(requirement, self.slots)
        hosts, tasks = self.placement.nodes or wanted or 1, self.slots or self.placement.slots or 1
        memory = self.memory_bytes
        if memory is None:
            memory = memory_bytes(requirement, hosts=hosts, tasks=tasks, unit=MIB) or self.memory_limit_bytes
        return memory, wanted, gpu_count(requirement, hosts=hosts, tasks=tasks)

    def _job_name(self) -> str | None:
        """The name without the list of an array's tasks; of a job without a name the program that it runs."""
        if not self.name or self.name == self.command:
            return program_of(self.command)
        array = _ARRAY_NAME.fullmatch(self.name) if self.array_task is not None else None
        return (array[1] if array else None) or self.name

    def _cancelled_by(self, state: JobState) -> str | None:
        if state is not JobState.CANCELLED:
            return None
        return self.killed_by or (self.user if self.reason in _BY_OWNER else "") or None


def program_of(command: str) -> str | None:
    """The program that a command or an inline script (lines joined by `;`) begins with."""
    for line in command[:_MOST_COMMAND].split(";"):
        words = line.split()
        if words and not words[0].startswith("#"):
            return PurePosixPath(words[0].strip("\"'")).name or None
    return None
