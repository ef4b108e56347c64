"""ClassAds of condor_history by columns: a block of records -> rows of the job frame, and which are for `history.job_row`.

The same values as `job_row` gives, field by field; an attribute of another type than HTCondor writes makes its record odd.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl

from stormpetrel.records.arrays import Flags, Ints
from stormpetrel.records.jobs import conform
from stormpetrel.records.states import JobState, condor_state
from stormpetrel.records.times import EARLIEST, LATEST, UTC_TIME
from stormpetrel.sources.contract import Chunk, chunk_of_columns
from stormpetrel.sources.htcondor.history import SUBMIT_SLACK_S, is_job_ad, take
from stormpetrel.sources.htcondor.vocabulary import KEPT, MAX_KEPT, host_of_slot, removed_by, removed_state
from stormpetrel.sources.job_rows import MIB, JobBatch, text
from stormpetrel.sources.json_columns import (
    Distinct,
    JsonBlock,
    NumberedBlock,
    Numbers,
    WantedFields,
    maps_of,
    masked,
    record_blocks,
)
from stormpetrel.sources.json_scan import ABSENT, NULL, TRUE
from stormpetrel.sources.lines import LineFile

_NUMBERS: Final = (
    "ClusterId", "ProcId", "QDate", "JobStartDate", "JobCurrentStartDate", "CompletionDate", "EnteredCurrentStatus",
    "RemoteWallClockTime", "RequestCpus", "CpusProvisioned", "RemoteUserCpu", "RemoteSysCpu", "MaxHosts", "RequestGpus",
    "GPUsProvisioned", "RequestMemory", "MemoryProvisioned", "ResidentSetSize_RAW", "ResidentSetSize", "MemoryUsage",
    "BlockReadKbytes", "BlockWriteKbytes", "AllowedJobDuration", "AllowedExecuteDuration", "MaxWallTimeMins", "MaxWallTime",
    "JobStatus", "ExitBySignal", "ExitCode", "ExitSignal", "LastJobStatus", "LastHoldReasonCode", "LastHoldReasonSubCode",
)  # fmt: skip
_TEXTS: Final = (
    "GlobalJobId", "ScheddName", "JobBatchName", "Owner", "AcctGroup", "AccountingGroup", "LastRemoteHost", "RemoteHost", "Iwd",
    "Cmd", "Arguments", "Args", "RemoveReason",
)  # fmt: skip
_EARLIEST_S, _LATEST_S = int(EARLIEST.timestamp()), int(LATEST.timestamp())
_LARGEST: Final = 2**62
_SMALL: Final = 2**31 - 1
_REMOVED, _HELD = 3, 5
WANTED: Final = WantedFields(list(dict.fromkeys([*_NUMBERS, *_TEXTS, *KEPT])), fold=True)
_OPEN: Final = frozenset({None, JobState.PENDING, JobState.RUNNING, JobState.HELD, JobState.SUSPENDED})


def chunks_by_columns(file: LineFile, *, cluster: str) -> Iterator[Chunk]:
    """The jobs of a file in its order, a block at a time; what is damaged or odd is read one by one, as in a small file."""
    batch, done = JobBatch(), 0
    for part in record_blocks(file, WANTED, key=None, is_record=is_job_ad):
        if isinstance(part, NumberedBlock):
            done = part.done
            yield _chunk(part, cluster)
            continue
        number, record, done = part
        take(batch, number, record, cluster)
        if batch.is_full:
            yield batch.chunk(done)
    yield batch.chunk(done)


def _chunk(part: NumberedBlock, cluster: str) -> Chunk:
    block, batch = part.block, JobBatch()
    jobs, odd = HistoryColumns(block, cluster=cluster).jobs()
    for row in np.flatnonzero(odd).tolist():
        record = block.record(row)
        if is_job_ad(record):
            take(batch, part.first + row, record, cluster)
        else:
            batch.refuse(part.first + row, "not_a_record", "this is no record of a job", block.text_of(row)[:4096])
    lines = (part.first + np.flatnonzero(~odd)).tolist()
    return chunk_of_columns(jobs.filter(~odd), lines, batch.chunk(part.done), read=block.rows, bytes_done=part.done)


class HistoryColumns:
    """One block of ClassAds as columns of the job frame."""

    def __init__(self, block: JsonBlock, *, cluster: str) -> None:
        self._block, self._cluster = block, cluster

    def jobs(self) -> tuple[pl.DataFrame, Flags]:
        """The job frame of the block, with rows of no meaning where a record is odd, and which are."""
        block = self._block
        start, has_start = self._first_moment("JobStartDate", "JobCurrentStartDate")
        req_cpus, has_req_cpus = block.integer("RequestCpus")
        cpus, has_cpus = block.integer("CpusProvisioned")
        fallback = ~has_cpus & has_start
        cpus, has_cpus = np.where(fallback, req_cpus, cpus), has_cpus | (fallback & has_req_cpus)
        elapsed, has_elapsed = block.number("RemoteWallClockTime")
        user_s, has_user_s = block.number("RemoteUserCpu")
        system_s, has_system_s = block.number("RemoteSysCpu")
        hosts, has_hosts = block.integer("MaxHosts")
        values: dict[str, pl.Series] = {
            **self._identity(),
            **self._people(),
            "start_time": _times(start, has_start),
            "elapsed_s": masked(elapsed, has_elapsed, pl.Float64),
            "cpu_limit_s": masked(elapsed * cpus, has_elapsed & has_cpus, pl.Float64),
            "time_limit_s": self._time_limit(),
            "req_cpus": masked(req_cpus, has_req_cpus, pl.Int64),
            "cpus": masked(cpus, has_cpus, pl.Int64),
            "nodes": masked(hosts, has_hosts & has_start, pl.Int64),
            "req_gpus": masked(*block.integer("RequestGpus"), pl.Int64),
            "gpus": masked(*block.integer("GPUsProvisioned"), pl.Int64),
            "req_mem_bytes": _product(*block.number("RequestMemory"), MIB),
            "mem_bytes": _product(*block.number("MemoryProvisioned"), MIB),
            "max_rss_bytes": self._max_rss(),
            "user_cpu_s": masked(user_s, has_user_s, pl.Float64),
            "system_cpu_s": masked(system_s, has_system_s, pl.Float64),
            "cpu_time_s": masked(user_s + system_s, has_user_s & has_system_s, pl.Float64),
            "disk_read_bytes": _whole_product(*block.integer("BlockReadKbytes"), 1024),
            "disk_write_bytes": _whole_product(*block.integer("BlockWriteKbytes"), 1024),
            **self._outcome(),
            "extra": self._extra(),
        }
        return conform(pl.DataFrame(values)), block.odd

    def _identity(self) -> dict[str, pl.Series]:
        block = self._block
        numbers = {}
        for name in ("ClusterId", "ProcId"):
            numbers[name], there = block.integer(name)
            block.odd |= ~there
        queued, has_queued = block.integer("QDate")
        block.odd |= ~has_queued & (block.kind("QDate") != ABSENT)
        has_queued = has_queued & (queued >= _EARLIEST_S) & (queued < _LATEST_S)
        ids = block.texts("GlobalJobId")
        parts = [(value or "").rpartition("#")[2] for value in ids.values] + [""]
        named = np.array([int(part) if part.isascii() and part.isdigit() and len(part) <= 10 else 0 for part in parts])[ids.ids]
        near = (named >= _EARLIEST_S) & (named < _LATEST_S) & (np.abs(named - queued) <= SUBMIT_SLACK_S)
        return {
            "cluster": self._clusters(ids),
            "job_id": pl.Series(numbers["ClusterId"]),
            "array_task": pl.Series(numbers["ProcId"]),
            "submit_time": _times(np.where(near, named, queued), has_queued),
            "restart": pl.Series([0], dtype=pl.Int32).new_from_index(0, block.rows),
        }

    def _clusters(self, ids: Distinct) -> pl.Series:
        if self._cluster:
            return pl.Series([self._cluster], dtype=pl.String).new_from_index(0, self._block.rows)
        schedds = ids.map(lambda value: (text(value) or "").partition("#")[0] or None, pl.String)
        names = self._block.texts("ScheddName").map(text, pl.String)
        return pl.select(pl.coalesce(schedds, names, pl.lit("cluster"))).to_series()

    def _people(self) -> dict[str, pl.Series]:
        block = self._block
        texts = {
            name: block.texts(name).map(text, pl.String)
            for name in _TEXTS
            if name not in ("GlobalJobId", "ScheddName", "RemoveReason")
        }
        frame = pl.DataFrame(texts)
        owner = pl.concat_str(pl.lit("."), pl.col("Owner").fill_null("None"))
        arguments = pl.coalesce("Arguments", "Args")
        line = pl.when(arguments.is_not_null()).then(pl.concat_str("Cmd", pl.lit(" "), arguments)).otherwise(pl.col("Cmd"))
        host = pl.coalesce("LastRemoteHost", "RemoteHost")
        rows = frame.select(
            job_name="JobBatchName",
            user="Owner",
            account=pl.coalesce("AcctGroup", pl.col("AccountingGroup").str.strip_suffix(owner)),
            work_dir="Iwd",
            script_path="Cmd",
            submit_line=line,
            host=host,
        )
        hosts = rows["host"].unique()
        named = pl.DataFrame(
            {"host": hosts, "node_list": [host_of_slot(name) for name in hosts]}, schema_overrides={"node_list": pl.String}
        )
        return rows.join(named, on="host", how="left", maintain_order="left", nulls_equal=True).drop("host").to_dict()

    def _time_limit(self) -> pl.Series:
        limit, has_limit = np.zeros(self._block.rows), np.zeros(self._block.rows, np.bool_)
        for name, unit_s in (
            ("AllowedJobDuration", 1),
            ("AllowedExecuteDuration", 1),
            ("MaxWallTimeMins", 60),
            ("MaxWallTime", 60),
        ):
            value, there = self._block.number(name)
            new = ~has_limit & there & (value > 0)
            limit, has_limit = np.where(new, value * unit_s, limit), has_limit | new
        return masked(limit, has_limit, pl.Float64)

    def _max_rss(self) -> pl.Series:
        size, has_size = np.zeros(self._block.rows), np.zeros(self._block.rows, np.bool_)
        for name, unit in (("ResidentSetSize_RAW", 1024), ("ResidentSetSize", 1024), ("MemoryUsage", MIB)):
            odd = self._block.odd.copy()
            value, there = self._block.number(name)
            self._block.odd = odd | (
                self._block.odd & ~has_size
            )  # MemoryUsage is often an expression: read where nothing else is there
            size, has_size = np.where(~has_size & there, value * unit, size), has_size | there
        return _product(size, has_size, 1)

    def _outcome(self) -> dict[str, pl.Series]:
        block = self._block
        status, has_status = block.integer("JobStatus")
        block.odd |= block.kind("JobStatus") == NULL
        by_signal = block.kind("ExitBySignal") == TRUE
        code, has_code = self._small("ExitCode")
        signal, has_signal = self._small("ExitSignal")
        reasons = block.texts("RemoveReason")
        states: dict[tuple[int, bool], JobState | None] = {}
        failed = by_signal | (has_code & (code != 0))
        for one, is_failed in set(zip(status[has_status].tolist(), failed[has_status].tolist(), strict=True)):
            states[one, is_failed] = condor_state(str(one), exit_code=1 if is_failed else 0, exited_by_signal=False)
        chosen = [
            states[one, is_failed] if there else condor_state("", exit_code=None, exited_by_signal=False)
            for one, is_failed, there in zip(status.tolist(), failed.tolist(), has_status.tolist(), strict=True)
        ]
        self._put_removed(chosen, status, has_status, reasons)
        ended = np.array([state not in _OPEN for state in chosen])
        end, has_end = self._first_moment("CompletionDate", "EnteredCurrentStatus")
        raw = np.where(has_status, status.astype(np.str_), "")
        return {
            "state": pl.Series([state.value if state else None for state in chosen], dtype=pl.String),
            "state_raw": pl.Series(raw.tolist(), dtype=pl.String),
            "end_time": _times(end, has_end & ended),
            "exit_code": masked(np.where(by_signal & has_signal, 0, code), has_code | (by_signal & has_signal), pl.Int32),
            "exit_signal": masked(np.where(by_signal, signal, 0), np.where(by_signal, has_signal, has_code), pl.Int32),
            "cancelled_by": reasons.map(lambda value: removed_by(text(value)), pl.String),
        }

    def _put_removed(self, states: list[JobState | None], status: Ints, has_status: Flags, reasons: Distinct) -> None:
        last, has_last = self._block.integer("LastJobStatus")
        code, has_code = self._block.integer("LastHoldReasonCode")
        subcode, has_subcode = self._block.integer("LastHoldReasonSubCode")
        for row in np.flatnonzero(has_status & (status == _REMOVED)).tolist():
            was_held = has_last[row] and last[row] == _HELD
            place = reasons.ids[row]
            states[row] = removed_state(
                text(reasons.values[place]) if place >= 0 else None,
                hold_code=int(code[row]) if was_held and has_code[row] else None,
                hold_subcode=int(subcode[row]) if has_subcode[row] else None,
            )

    def _extra(self) -> pl.Series:
        columns = []
        for name in KEPT:
            shown = self._block.shown(name)
            columns.append((name, Distinct(shown.ids, [text(value[:MAX_KEPT]) if value else None for value in shown.values])))
        maps, empty = maps_of(columns)
        self._block.odd |= empty
        return maps

    def _small(self, name: str) -> tuple[Ints, Flags]:
        value, there = self._block.integer(name)
        self._block.odd |= there & (np.abs(value) > _SMALL)
        return np.where(there, value, 0), there

    def _first_moment(self, *names: str) -> tuple[Ints, Flags]:
        """The first time that has happened; a number that is no time is odd where it would be read."""
        moment, is_known = np.zeros(self._block.rows, np.int64), np.zeros(self._block.rows, np.bool_)
        for name in names:
            value, there = self._block.integer(name)
            valid = there & (value >= _EARLIEST_S) & (value < _LATEST_S)
            self._block.odd |= there & ~valid & (value != 0)
            new = valid & ~is_known
            moment, is_known = np.where(new, value, moment), is_known | new
        return moment, is_known


def _times(seconds: Ints, there: Flags) -> pl.Series:
    return masked(seconds * 1_000_000, there, pl.Int64).cast(UTC_TIME)


def _product(number: Numbers, there: Flags, factor: int) -> pl.Series:
    product = np.rint(np.where(there, number, 0.0) * factor)
    fits = there & (np.abs(product) < _LARGEST)
    return masked(np.where(fits, product, 0).astype(np.int64), fits, pl.Int64)


def _whole_product(number: Ints, there: Flags, factor: int) -> pl.Series:
    fits = there & (np.abs(number) <= (_LARGEST - 1) // factor)
    return masked(np.where(fits, number, 0) * factor, fits, pl.Int64)
