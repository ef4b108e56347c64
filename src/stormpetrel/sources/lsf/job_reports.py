"""LSF's job reports, in the mail about a job's end or in its output file -> jobs.

`Subject: Job 12: <fit> in cluster <c> Exited` … `Resource usage summary:` … -> LsfJob. Everything around a report is the job's
own output, of any length and kind, and is passed over.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from stormpetrel.sources.job_rows import JobBatch, real, small, span_s
from stormpetrel.sources.lines import Refused
from stormpetrel.sources.lsf.accounting import COLUMNS
from stormpetrel.sources.lsf.job import LsfJob
from stormpetrel.sources.lsf.resources import placement, size_bytes
from stormpetrel.sources.lsf.stamps import STAMP, Stamps

REPORT_COLUMNS: Final = COLUMNS - {
    "uid", "account", "qos", "eligible_time", "cancelled_by", "time_limit_s", "req_cpus", "req_nodes", "req_gpus", "gpus",
    "user_cpu_s", "system_cpu_s",
}  # fmt: skip
SUBJECT: Final = re.compile(
    r"Subject: Job (\d{1,18})(?:\[(\d{1,18})\])?: <(.*)> in cluster <([^<>]*)> (Done|Exited)\s*\Z", re.ASCII | re.DOTALL
)
_SUBMITTED: Final = re.compile(rf"Job <.*> was submitted from host <([^<>]*)> by user <([^<>]*)> in cluster <[^<>]*> at {STAMP}")
_EXECUTED: Final = re.compile(r"Job was executed on host\(s\) <([^<>]*)>(?:, in queue <([^<>]*)>)?")
_ONE_MORE_HOST: Final = re.compile(r"\s+<([^<>]*)>(?:, in queue <([^<>]*)>)?")
_FOLDER: Final = re.compile(r"<(.*)> was used as the working directory\.")
_TIME: Final = re.compile(rf"(Started|Terminated|Results reported) (?:at|on) {STAMP}")
_EXIT_CODE: Final = re.compile(r"Exited with exit code (\d{1,9})\.", re.ASCII)
_EXIT_SIGNAL: Final = re.compile(r"Exited by signal (\d{1,9})\.", re.ASCII)
_REASON: Final = re.compile(r"(TERM_[A-Z_]{2,40}):")
_USE: Final = re.compile(r"\s*(CPU time|Max Memory|Total Requested Memory|Run time)\s*:\s*(\S[^\n]{0,40}?)\s*\Z")
_RULE: Final = re.compile(r"-{20,}\s*\Z")
_SCRIPT: Final = "Your job looked like:"
_USER_INPUT: Final = "# LSBATCH: User input"
_SUMMARY: Final = "Resource usage summary:"
_ENDS: Final = ("The output (if any)", "Read file <", "PS:")
_MOST_SCRIPT: Final = 4096
_SLACK_S: Final = 60.0


@dataclass(slots=True)
class _Report:
    """A report while it is read."""

    job: LsfJob
    text: str
    part: str = "head"  # head, script, result
    hosts: list[str] = field(default_factory=list)
    script: list[str] = field(default_factory=list)
    use: dict[str, str] = field(default_factory=dict)
    rules: int = 0  # lines of dashes met in the part with the script
    is_whole: bool = False
    problem: Refused | None = None


class JobReports:
    """Makes jobs out of the reports in a file."""

    def __init__(self, batch: JobBatch, cluster: str, stamps: Stamps) -> None:
        self._batch, self._cluster, self._stamps = batch, cluster, stamps
        self._report: _Report | None = None
        self.reports = 0

    def take(self, number: int, line: str) -> None:
        """One line of the file."""
        if line.startswith("Subject: ") and (match := SUBJECT.match(line)):
            self.finish()
            self.reports += 1
            self._report = _Report(_job_of(match, number), line)
        elif self._report is None:
            return
        elif self._report.part == "script":
            self._take_script(self._report, line)
        elif line.startswith(_ENDS):
            self.finish()
        elif self._report.part == "head":
            self._take_head(self._report, line)
        else:
            _take_result(self._report, line)

    def spoil(self, refused: Refused) -> None:
        """A line that cannot be read: of no interest between reports, the end of the report inside of one."""
        if self._report is not None and self._report.part != "script":
            self._report.problem = self._report.problem or refused

    def finish(self) -> None:
        """The end of a report."""
        report, self._report = self._report, None
        if report is None:
            return
        job = report.job
        if report.problem is not None:
            self._batch.refuse_all([report.problem])
        elif not report.is_whole or job.end is None:
            self._batch.refuse(
                job.line, "truncated_record", "the report breaks off before its summary, or has no times", report.text
            )
        else:
            job.placement = placement(report.hosts)
            job.command = "".join(report.script)[:_MOST_SCRIPT].replace("\n", ";").strip(";")
            _apply_use(job, report.use)
            self._batch.add(job.row(self._cluster), job.line)

    def _take_head(self, report: _Report, line: str) -> None:
        job = report.job
        if line.startswith(_SCRIPT):
            report.part = "script"
        elif match := _TIME.match(line):
            time = self._stamps.moment(match, 2)
            if match[1] == "Started":
                job.start = time
            elif match[1] == "Terminated" or job.end is None:  # LSF 7 and 8 say only when they reported it
                job.end = time
        elif match := _SUBMITTED.match(line):
            job.extra["submit_host"], job.user = match[1], match[2].strip()
            job.submit = self._stamps.moment(match, 3)
        elif (match := _EXECUTED.match(line)) or (report.hosts and (match := _ONE_MORE_HOST.match(line))):
            report.hosts.append(match[1].strip())
            job.queue = (match[2] or job.queue).strip()
        elif match := _FOLDER.match(line):
            job.work_dir = match[1]

    def _take_script(self, report: _Report, line: str) -> None:
        if _RULE.match(line):
            report.rules += 1
        elif report.rules == 1 and line != _USER_INPUT and sum(map(len, report.script)) < _MOST_SCRIPT:
            report.script.append(f"{line[:_MOST_SCRIPT]}\n")
        if report.rules == 2:  # before the script, and after it
            report.part = "result"


def _job_of(match: re.Match[str], line: int) -> LsfJob:
    return LsfJob(
        int(match[1]),
        int(match[2]) if match[2] else None,
        line,
        status="DONE" if match[5] == "Done" else "EXIT",
        name=match[3],
        cluster=match[4].strip(),
    )


def _take_result(report: _Report, line: str) -> None:
    job = report.job
    if line.startswith(_SUMMARY):
        report.is_whole = True
    elif match := _USE.match(line):
        report.use[match[1]] = match[2]
    elif match := _REASON.match(line):
        job.reason = match[1]
    elif match := _EXIT_CODE.match(line):
        job.exit_code, job.exit_signal = small(match[1]), 0
    elif match := _EXIT_SIGNAL.match(line):
        job.exit_code, job.exit_signal = 0, small(match[1])
    elif line.startswith("Successfully completed"):
        job.exit_code = job.exit_signal = 0
    elif _RULE.match(line) and not report.is_whole:  # one in the script was taken for its end
        job.exit_code = job.exit_signal = None
        job.reason = ""


def _apply_use(job: LsfJob, use: dict[str, str]) -> None:
    """CPU time, memory and run time of the summary; `-` where nobody measured it."""
    known = {name: text for name, text in use.items() if text != "-"}
    reserved, used = known.get("Total Requested Memory"), known.get("Max Memory")
    job.cpu_time_s, job.max_rss_bytes = _seconds(known.get("CPU time")), size_bytes(used or "")
    job.memory_bytes = size_bytes(reserved or "")
    values = ((job.cpu_time_s, "cpu_time_s", known.get("CPU time")), (job.max_rss_bytes, "max_rss_bytes", used))
    for value, column, text in (*values, (job.memory_bytes, "req_mem_bytes", reserved)):
        if value is None and text:
            job.unread[column] = text
    run_s, span = _seconds(known.get("Run time")), span_s(job.start, job.end)
    if run_s is not None and span is not None and run_s < span - _SLACK_S:  # it was suspended for the rest
        job.elapsed_s = run_s
        job.extra["suspended_s"] = f"{span - run_s:.0f}"


def _seconds(text: str | None) -> float | None:
    return real(text.removesuffix("sec.").strip()) if text else None
