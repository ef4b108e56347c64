"""The event log that HTCondor would have written of recorded jobs: classic text, in the order of time, in bounded memory.

job frames in the order of submission -> write_job_events -> a file. Every job is submitted; those that ran were executed; the
end is what their outcome is in HTCondor. Each event is followed by its job ad (028) with owner and group. Times are UTC.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

import polars as pl

from stormpetrel.errors import StoreNotWritableError, UsageError
from stormpetrel.private_files import writing_private
from stormpetrel.records.events import EventKind
from stormpetrel.records.job_events import first_node
from stormpetrel.records.states import JobState
from stormpetrel.synth.writers.traces import behaviour_of, cpu_share

_CHUNK: Final = 50_000  # events that are put into words at once
_SUBMIT_HOST: Final = "submit1"
# Kind -> HTCondor's number, and its name in job ads.
_KINDS: Final = {
    EventKind.SUBMIT.value: (0, "SUBMIT"),
    EventKind.EXECUTE.value: (1, "EXECUTE"),
    EventKind.EVICTED.value: (4, "JOB_EVICTED"),
    EventKind.TERMINATED.value: (5, "JOB_TERMINATED"),
    EventKind.ABORTED.value: (9, "JOB_ABORTED"),
    EventKind.HELD.value: (12, "JOB_HELD"),
    EventKind.DISCONNECTED.value: (22, "JOB_DISCONNECTED"),
    EventKind.RECONNECT_FAILED.value: (24, "JOB_RECONNECT_FAILED"),
}
# What HTCondor tells of an end, by its outcome. It holds a job that outgrows its memory or its time, and somebody removes it.
_ENDS: Final[dict[str, tuple[EventKind, ...]]] = {
    JobState.COMPLETED.value: (EventKind.TERMINATED,),
    JobState.FAILED.value: (EventKind.TERMINATED,),
    JobState.OUT_OF_MEMORY.value: (EventKind.HELD, EventKind.ABORTED),
    JobState.TIMEOUT.value: (EventKind.HELD, EventKind.ABORTED),
    JobState.DEADLINE.value: (EventKind.HELD, EventKind.ABORTED),
    JobState.CANCELLED.value: (EventKind.ABORTED,),
    JobState.REVOKED.value: (EventKind.ABORTED,),
    JobState.PREEMPTED.value: (EventKind.EVICTED,),
    JobState.REQUEUED.value: (EventKind.EVICTED,),
    JobState.NODE_FAIL.value: (EventKind.DISCONNECTED, EventKind.RECONNECT_FAILED),
    JobState.BOOT_FAIL.value: (EventKind.DISCONNECTED, EventKind.RECONNECT_FAILED),
}
_MEMORY: Final = "Error from slot1@{}: memory usage exceeded the request\n\tCode 34 Subcode 102"
_DURATION: Final = "The job exceeded allowed execute duration\n\tCode 47 Subcode 0"
_RESOURCES: Final = (("Cpus", "cpus"), ("GPUs", "gpus"), ("Memory", "memory_mb"))
_BYTES: Final = "\t0  -  {0} Bytes Sent By Job\n\t0  -  {0} Bytes Received By Job"
_BOTH_BYTES: Final = f"{_BYTES.format('Run')}\n{_BYTES.format('Total')}"
_MIB: Final = 1 << 20


@dataclass(slots=True)
class WrittenEvents:
    """What a log holds: how many events of each kind, without the copies in job ads."""

    path: Path
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def events(self) -> int:
        """How many events there are."""
        return self.counts.total()


def write_job_events(
    frames: Iterable[pl.DataFrame], path: Path, *, until: datetime | None = None, seed: int = 0
) -> WrittenEvents:
    """Write the events of jobs (up to a time), whole or not at all. Frames come in the order of submission.

    Memory holds a frame, and the starts and ends that are still to come. A job whose outcome is not known has no end. The CPU
    time that an end tells is that of the kind of work that the job does in the traces of the same seed.
    """
    written = WrittenEvents(path)
    try:
        with writing_private(path) as out:
            for events in _in_order(frames, until, seed):
                written.counts.update(dict(events["kind"].value_counts().iter_rows()))
                for at in range(0, events.height, _CHUNK):
                    out.write("".join(_texts(events[at : at + _CHUNK])).encode())
    except OSError as error:
        raise StoreNotWritableError(
            f"{path} cannot be written: {error.strerror or error}.", hint="Check the folder and the room on its disk."
        ) from error
    return written


def _in_order(frames: Iterable[pl.DataFrame], until: datetime | None, seed: int) -> Iterator[pl.DataFrame]:
    """The events of all frames by time: what comes after the next submission is held back."""
    held: pl.DataFrame | None = None
    last: datetime | None = None
    for frame in frames:
        if not frame.height:
            continue
        first = frame["submit_time"].min()
        assert isinstance(first, datetime)
        if last is not None and first < last:
            raise UsageError("The jobs of an event log are not in the order of submission.", hint="Sort them first.")
        if held is not None:
            yield held.filter(pl.col("time") < first).sort("time", "seq")
            held = held.filter(pl.col("time") >= first)
        fresh = _events(frame, seed)
        fresh = fresh if until is None else fresh.filter(pl.col("time") <= until)
        held = fresh if held is None else pl.concat([held, fresh])
        latest = frame["submit_time"].max()
        last = latest if isinstance(latest, datetime) else last
    if held is not None:
        yield held.sort("time", "seq")


def _events(jobs: pl.DataFrame, seed: int) -> pl.DataFrame:
    """One row per event: time, kind, place among the events of the job, and what its text needs to know of the job."""
    unknown = pl.lit(None, dtype=pl.String)
    facts = jobs.select(
        "submit_time", "start_time", "end_time", "state", "exit_code", "exit_signal",
        cluster="job_id", proc=pl.col("array_task").fill_null(0), seq=pl.col("job_id_raw").fill_null(pl.col("job_id")) * 8,
        user=_plain("user"), group=pl.coalesce(_plain("account"), _plain("group"), unknown),
        node=first_node(jobs["node_list"]), cpus=pl.coalesce("cpus", "req_cpus"),
        gpus=pl.coalesce("gpus", "req_gpus"), memory_mb=pl.coalesce("mem_bytes", "req_mem_bytes") // _MIB,
        **_cpu_times(jobs, seed),
    )  # fmt: skip
    end_kind = pl.col("state").replace_strict(
        {state: [kind.value for kind in kinds] for state, kinds in _ENDS.items()}, default=None, return_dtype=pl.List(pl.String)
    )
    ends = facts.with_columns(kind=end_kind).filter(pl.col("kind").is_not_null())
    ends = ends.with_columns(place=pl.int_ranges(2, pl.col("kind").list.len() + 2)).explode("kind", "place")
    # Who lost contact without having run (an outcome that no scheduler gives) is left out.
    ran = pl.col("start_time").is_not_null() | pl.col("kind").is_in([EventKind.ABORTED.value, EventKind.TERMINATED.value])
    parts = [
        facts.with_columns(kind=pl.lit(EventKind.SUBMIT.value), place=pl.lit(0, dtype=pl.Int64), time="submit_time"),
        facts.with_columns(kind=pl.lit(EventKind.EXECUTE.value), place=pl.lit(1, dtype=pl.Int64), time="start_time"),
        ends.filter(ran).with_columns(time="end_time"),
    ]
    whole = pl.concat([part.drop_nulls("time") for part in parts])
    return whole.with_columns(seq=pl.col("seq") + pl.col("place")).drop("place", "submit_time", "start_time", "end_time")


def _cpu_times(jobs: pl.DataFrame, seed: int) -> dict[str, pl.Series]:
    """Whole seconds of user and system time of each job, by what it does."""
    requests = jobs.select("user", "job_name", "cpus", "req_cpus")
    kinds = requests.unique(maintain_order=True)
    shares = [cpu_share(behaviour_of(kind, seed)) for kind in kinds.iter_rows(named=True)]
    known = kinds.with_columns(_user=pl.Series([user for user, _ in shares]), _system=pl.Series([system for _, system in shares]))
    joined = requests.join(known, on=requests.columns, how="left", nulls_equal=True, maintain_order="left")
    held_s = jobs["elapsed_s"].fill_null(0.0) * jobs.select(pl.coalesce("cpus", "req_cpus", pl.lit(1))).to_series()
    return {f"{mode}_s": (held_s * joined[f"_{mode}"]).round().cast(pl.Int64) for mode in ("user", "system")}


def _texts(events: pl.DataFrame) -> pl.Series:
    """The text of each event, with that of its job ad; each kind on its own, so that no text is made in vain."""
    kinds = events.with_row_index("_at").partition_by("kind", as_dict=True)
    parts = [part.select("_at", text=_text(str(kind))) for (kind,), part in kinds.items()]
    return pl.concat(parts).sort("_at")["text"] if parts else pl.Series(dtype=pl.String)


def _text(kind: str) -> pl.Expr:
    number, name = _KINDS[kind]
    job = pl.format("({}.{}.000) {}", _padded("cluster"), _padded("proc"), pl.col("time").dt.strftime("%Y-%m-%d %H:%M:%S"))
    return pl.concat_str(
        pl.format(f"{number:03d} {{}} ", job),
        _BODIES[kind](),
        pl.format("\n...\n028 {} Job ad information event triggered.\nCluster = {}\nProc = {}\n", job, "cluster", "proc"),
        pl.format('Subproc = 0\nEventTypeNumber = 28\nEventTime = "{}"\n', pl.col("time").dt.strftime("%Y-%m-%dT%H:%M:%S")),
        pl.lit(f'MyType = "{kind}Event"\nTriggerEventTypeName = "ULOG_{name}"\nTriggerEventTypeNumber = {number}\n'),
        *(_line(f'{label} = "{{}}"\n', what) for label, what in (("Owner", "user"), ("AcctGroup", "group"))),
        *(_line(f"Request{label} = {{}}\n", what) for label, what in _RESOURCES),
        pl.lit("...\n"),
    )


def _submit() -> pl.Expr:
    return pl.lit(f"Job submitted from host: {_address('10.0.0.1', _SUBMIT_HOST, 'schedd')}")


def _execute() -> pl.Expr:
    where = pl.format("Job executing on host: {}\n\tSlotName: slot1@{}", _machine(), _node())
    return pl.concat_str(where, *(_line(f"\n\t{label} = {{}}", what) for label, what in _RESOURCES))


def _evicted() -> pl.Expr:
    return pl.concat_str(pl.lit("Job was evicted.\n\t(0) CPU times\n"), _usage("Run"), pl.lit(_BYTES.format("Run")))


def _terminated() -> pl.Expr:
    signal, code = pl.col("exit_signal").fill_null(0), pl.col("exit_code").fill_null(0)
    failed = pl.col("state") == JobState.FAILED.value
    value = pl.when(failed).then(pl.when(code == 0).then(1).otherwise(code)).otherwise(0)  # who fails without a code has 1
    ended = (
        pl.when(failed & (signal > 0) & (code == 0))
        .then(pl.format("(0) Abnormal termination (signal {})\n\t(0) No core file", signal))
        .otherwise(pl.format("(1) Normal termination (return value {})", value))
    )
    return pl.concat_str(pl.format("Job terminated.\n\t{}\n", ended), _usage("Run"), _usage("Total"), pl.lit(_BOTH_BYTES))


def _aborted() -> pl.Expr:
    by_user = pl.col("state").is_in([JobState.CANCELLED.value, JobState.REVOKED.value])
    removed = pl.format("via condor_rm (by user {})", pl.col("user").fill_null("somebody"))
    return pl.format("Job was aborted.\n\t{}", pl.when(by_user).then(removed).otherwise(pl.lit("Removed because it was held")))


def _held() -> pl.Expr:
    out_of_memory = pl.col("state") == JobState.OUT_OF_MEMORY.value
    return pl.format("Job was held.\n\t{}", pl.when(out_of_memory).then(pl.format(_MEMORY, _node())).otherwise(pl.lit(_DURATION)))


def _disconnected() -> pl.Expr:
    lost = "Socket between submit and execute hosts closed unexpectedly"
    text = f"Job disconnected, attempting to reconnect\n    {lost}\n    Trying to reconnect to slot1@{{}} {{}}"
    return pl.format(text, _node(), _machine())


def _reconnect_failed() -> pl.Expr:
    text = "Job reconnection failed\n    Job disconnected too long: JobLeaseDuration (2400 seconds) expired\n"
    return pl.format(text + "    Can not reconnect to slot1@{}, rescheduling job", _node())


_BODIES: Final[dict[str, Callable[[], pl.Expr]]] = {
    EventKind.SUBMIT.value: _submit,
    EventKind.EXECUTE.value: _execute,
    EventKind.EVICTED.value: _evicted,
    EventKind.TERMINATED.value: _terminated,
    EventKind.ABORTED.value: _aborted,
    EventKind.HELD.value: _held,
    EventKind.DISCONNECTED.value: _disconnected,
    EventKind.RECONNECT_FAILED.value: _reconnect_failed,
}


def _usage(which: str) -> pl.Expr:
    remote = pl.format(f"\t\tUsr {{}}, Sys {{}}  -  {which} Remote Usage\n", _clock("user_s"), _clock("system_s"))
    return remote + pl.lit(f"\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  {which} Local Usage\n")


def _clock(name: str) -> pl.Expr:
    """Seconds as days and a time: `1 02:03:04`."""
    parts = [(pl.col(name) // unit % most).cast(pl.String).str.zfill(2) for unit, most in ((3600, 24), (60, 60), (1, 60))]
    return pl.format("{} {}:{}:{}", pl.col(name) // 86_400, *parts)


def _line(text: str, name: str) -> pl.Expr:
    """A line that tells a value; nothing where it is not known."""
    return pl.format(text, name).fill_null("")


def _node() -> pl.Expr:
    return pl.col("node").fill_null("unknown")


def _machine() -> pl.Expr:
    return pl.format(_address("10.0.1.1", "{}", "startd"), _node())


def _padded(name: str) -> pl.Expr:
    return pl.col(name).cast(pl.String).str.zfill(3)


def _plain(name: str) -> pl.Expr:
    """A name that cannot end its text or its line; null where it is empty."""
    safe = pl.col(name).str.replace_all(r'["\\()\s\p{Cc}]', "_").str.slice(0, 200)
    return pl.when(pl.col(name) != "").then(safe)


def _address(ip: str, name: str, daemon: str) -> str:
    return f"<{ip}:9618?addrs={ip}-9618&alias={name}&noUDP&sock={daemon}_1000_a1b2>"
