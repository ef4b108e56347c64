"""LSF's accounting file lsb.acct -> jobs: the JOB_FINISH records of LSF 5 to 10, one line each.

`"JOB_FINISH" "10.108" TIME JOB UID …` -> fields by their place -> LsfJob. Places move: hosts, host usage and networks are lists
with their length before them, and each version appends fields. Of what comes after the fields that all versions have, nothing
is taken that does not fit.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from stormpetrel.records.states import LSF_REASONS, JobState
from stormpetrel.sources.job_rows import FieldReader, JobBatch, real, small, span_s, times, unix_time, whole
from stormpetrel.sources.lines import Refused
from stormpetrel.sources.lsf.job import LsfJob
from stormpetrel.sources.lsf.resources import Placement, placement

FINISH: Final = '"JOB_FINISH" '
COLUMNS: Final = frozenset(
    {
        "job_name", "user", "uid", "account", "partition", "qos", "eligible_time", "start_time", "end_time", "state", "state_raw",
        "cancelled_by", "exit_code", "exit_signal", "time_limit_s", "elapsed_s", "cpu_limit_s", "req_cpus", "cpus", "req_nodes",
        "nodes", "node_list", "req_gpus", "gpus", "req_mem_bytes", "max_rss_bytes", "cpu_time_s", "user_cpu_s", "system_cpu_s",
        "work_dir", "submit_line", "extra",
    }
)  # fmt: skip
_OTHER_RECORDS: Final = ('"EVENT_ADRSV_FINISH" ', '"JOB_RESIZE" ')
# Of lsb.events, the log of the master: jobs are in it, too, but spread over many records of another form.
_EVENTS: Final = ('"JOB_NEW" ', '"JOB_START" ', '"JOB_STATUS" ', '"JOB_EXECUTE" ')
_KIB: Final = 1024
_FIRST_LENGTH: Final = 22  # the place of the length of the first list
_USAGE_FIELDS: Final = 19
_DONE_BIT, _EXIT_BIT = 64, 32
_NETWORKS: Final = 12  # how many fields after the requirement the networks are
_MOST_RESTARTS: Final = 100_000
_FEWEST_SINCE_9: Final = 36  # fields after the use of resources, up to the effective requirement


class AccountingRecords:
    """Makes jobs out of the lines of lsb.acct."""

    def __init__(self, batch: JobBatch, cluster: str) -> None:
        self._batch, self._cluster = batch, cluster
        self._requeues: dict[tuple[int, int | None, float], int] = {}

    def take(self, number: int, line: str) -> None:
        """One line of the file."""
        if not line.startswith(FINISH):
            if line.startswith(_OTHER_RECORDS):
                self._batch.count_merged()
            else:
                self._batch.refuse(number, "bad_record", "the line is no JOB_FINISH record", line)
            return
        try:
            fields = next(csv.reader([line], delimiter=" ", doublequote=True, skipinitialspace=True, strict=True))
        except csv.Error as error:
            rule = "truncated_record" if "end of data" in str(error) else "bad_record"
            self._batch.refuse(number, rule, f"the fields of the record cannot be told apart: {error}", line)
            return
        try:
            job = _job(fields, number)
        except IndexError:
            self._batch.refuse(number, "truncated_record", f"the record breaks off after {len(fields)} fields", line)
        except ValueError as error:
            self._batch.refuse(number, "bad_value", str(error), line)
        else:
            self._count_restarts(job)
            self._batch.add(job.row(self._cluster), number)

    def spoil(self, refused: Refused) -> None:
        """A line that cannot be read."""
        self._batch.refuse_all([refused])

    def finish(self) -> None:
        """Nothing waits for the end of the file."""

    def _count_restarts(self, job: LsfJob) -> None:
        """A run that was requeued has a record of its own, with the same job and submission as the next run."""
        key = (job.job_id, job.array_task, job.submit.timestamp() if job.submit else 0.0)
        if self._requeues or job.restart:
            job.restart = max(job.restart, self._requeues.pop(key, 0))
        if job.state is JobState.REQUEUED:
            self._requeues[key] = job.restart + 1
            if len(self._requeues) > _MOST_RESTARTS:
                del self._requeues[next(iter(self._requeues))]


def is_events_file(line: str) -> bool:
    """Whether a line is one of lsb.events, which looks like lsb.acct."""
    return line.startswith(_EVENTS)


def _job(fields: list[str], line: int) -> LsfJob:
    """The job of a record; IndexError where the record ends too early, ValueError where it says nothing that can be used."""
    reader = FieldReader()
    job_id, logged = whole(fields[3]), unix_time(fields[2])
    if job_id is None or job_id < 0 or logged is None:
        raise ValueError("job or time of the record is no number")
    place = _FIRST_LENGTH
    _, place = _listed(fields, place)
    hosts, place = _listed(fields, place)
    status = _status(fields[place])
    name, command = fields[place + 2], fields[place + 3]
    usage = fields[place + 4 : place + 4 + _USAGE_FIELDS]
    rest = fields[place + 4 + _USAGE_FIELDS :]
    exit_status = reader.read("exit_code", rest[2], small)
    index = whole(rest[6])
    started = fields[10]
    job = LsfJob(
        job_id,
        index if index and index > 0 else None,
        line,
        status=status,
        submit=unix_time(fields[7]),
        start=None if started == "0" else reader.read("start_time", started, unix_time),
        end=logged,
        name=name,
        command=command,
        user=fields[11],
        uid=reader.read("uid", fields[4], whole),
        project=rest[1],
        queue=fields[12],
        work_dir=fields[17],
        slots=_count(reader, "req_cpus", fields[6]),
        placement=placement(hosts),
        requested=fields[13],
        max_rss_bytes=times(_count(reader, "max_rss_bytes", rest[7]), _KIB),
        user_cpu_s=_used(reader, "user_cpu_s", usage[0]),
        system_cpu_s=_used(reader, "system_cpu_s", usage[1]),
        extra={"resources": fields[13], "dependency": fields[14], "submit_host": fields[16]},
        unread=reader.unread,
    )
    if exit_status is not None:
        job.exit_code, job.exit_signal = (exit_status >> 8) & 0xFF, exit_status & 0x7F
    if job.user_cpu_s is not None and job.system_cpu_s is not None:
        job.cpu_time_s = job.user_cpu_s + job.system_cpu_s
    begin = unix_time(fields[8])
    if begin and job.submit and begin > job.submit:
        job.eligible = begin  # bsub -b
    _take_later_fields(job, rest, reader)
    if len(rest) < _FEWEST_SINCE_9 and (real(fields[1]) or 0) >= 9:
        raise IndexError
    return job


def _take_later_fields(job: LsfJob, rest: list[str], reader: FieldReader) -> None:
    """What versions after the first have appended: reason, service class, requirement, limit, run time, slots."""
    later = rest[11:]  # from rsvId on
    if len(later) > 4:
        job.service_class = later[1] if not later[1].isdigit() else ""
        code = whole(later[4])
        if job.status == "EXIT" and code is not None:
            job.reason = LSF_REASONS[code] if 0 <= code < len(LSF_REASONS) else f"TERM_{code}"
    for place, key in ((7, "share"), (8, "licenses"), (9, "application"), (12, "job_group"), (18, "description")):
        if place < len(later):
            job.extra[key] = later[place]
    start = _start_of_limits(later)
    if start is None:
        return
    limit = reader.read("time_limit_s", _known(later[start]), real)
    job.limit_s = limit if limit and limit > 0 else None
    job.requirement = later[start + 3]
    job.cluster = later[start + 4]
    _take_end(job, later[start + 3 :])


def _start_of_limits(later: list[str]) -> int | None:
    """Where run limit, options, average memory and effective requirement stand; None where nothing looks like them.

    They come after two lists. The manual has the options before the limit, the files have the limit first; the manual has five
    fields for a host, the files have a list of pairs behind these.
    """
    try:
        begin = 20 + 2 * _length(later[19])
        hosts = _length(later[begin])
    except (IndexError, ValueError):
        return None
    places = [place for place in (_after_hosts(later, begin + 1, hosts), begin + 1 + 5 * hosts) if place is not None]
    return next((place for place in places if _are_limits(later, place)), None)


def _after_hosts(later: list[str], place: int, hosts: int) -> int | None:
    try:
        for _ in range(hosts):
            place += 6 + 2 * _length(later[place + 5])  # name, memory, swap, two CPU times, and again a length with pairs
    except (IndexError, ValueError):
        return None
    return place


def _are_limits(later: list[str], place: int) -> bool:
    """Whether options and average memory are numbers, and the requirement after them is none."""
    numbers = later[place + 1 : place + 3]
    return len(later) > place + 4 and all(real(text) is not None for text in numbers) and real(later[place + 3]) is None


def _take_end(job: LsfJob, fields: list[str]) -> None:
    """Run time, folder, slots and time in the queue that did not count, from the requirement on; as far as they fit."""
    run_s = real(fields[10]) if len(fields) > 11 else None
    span = span_s(job.start, job.end)
    if run_s is not None and span is not None and 0 <= run_s <= span + 60:
        job.elapsed_s = run_s
        if span - run_s > 60:
            job.extra["suspended_s"] = f"{span - run_s:.0f}"
    try:
        networks = _length(fields[_NETWORKS])
        place = _NETWORKS + 1 + 2 * networks + 6  # affinity, energy, four rates
        slots, place = _listed(fields, place)
        allocated = placement(slots)
        waited, ranges = whole(fields[place]), _length(fields[place + 1])
        requeued = unix_time(fields[place + 2 + 3 * ranges])
    except (IndexError, ValueError):
        return
    job.placement = _larger(allocated, job.placement)
    if waited is not None and waited >= 0 and job.submit and job.start and job.eligible is None:
        eligible = job.submit + timedelta(seconds=min(waited, 10**9))
        job.eligible = eligible if eligible <= job.start else None
    job.restart = 1 if requeued else 0


def _larger(allocated: Placement, executed: Placement) -> Placement:
    """The slots that were held: those of a job that has its hosts to itself are more than it runs tasks."""
    return allocated if set(executed.hosts) <= set(allocated.hosts) and allocated.hosts else executed


def _listed(fields: list[str], place: int) -> tuple[list[str], int]:
    """The entries of a list with its length before it, and the place after it."""
    end = place + 1 + _length(fields[place])
    if end > len(fields):
        raise IndexError
    return fields[place + 1 : end], end


def _length(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ValueError(f"the length of a list is no number: {text[:40]}")
    return int(text)


def _status(text: str) -> str:
    number = whole(text)
    if number is None or number < 0 or not number & (_DONE_BIT | _EXIT_BIT):
        raise ValueError(f"the status is neither 32 (EXIT) nor 64 (DONE): {text[:40]}")
    return "DONE" if number & _DONE_BIT else "EXIT"


def _known(text: str) -> str:
    """The text of a field, empty where it is LSF's number for nothing."""
    return "" if real(text) == -1 else text


def _count(reader: FieldReader, column: str, text: str) -> int | None:
    return reader.read(column, _known(text), _natural)


def _natural(text: str) -> int | None:
    number = whole(text)
    return number if number is not None and number >= 0 else None


def _used(reader: FieldReader, column: str, text: str) -> float | None:
    parse: Callable[[str], float | None] = real
    return reader.read(column, _known(text), parse)
