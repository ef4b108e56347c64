"""Documents of Slurm's jobcomp plug-ins -> job rows: jobcomp/elasticsearch and jobcomp/kafka, one JSON object per run of a job.

A document is put into sacct's fields and read as those are. Its times are UTC, whatever zone the controller runs in. A run that
was requeued comes as PENDING with an end; a start (jobcomp/kafka since 25.05) as RUNNING, and its end, if any, is a guess.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import polars as pl

from stormpetrel.records.jobs import SCRIPT_SIGNATURE
from stormpetrel.records.quality import rejects
from stormpetrel.records.states import UNFINISHED, JobState, slurm_state
from stormpetrel.sources.contract import Chunk, FileSource
from stormpetrel.sources.job_rows import text
from stormpetrel.sources.json_records import Record, records_in
from stormpetrel.sources.lines import Refused
from stormpetrel.sources.scripts.signature import script_signature
from stormpetrel.sources.slurm.sacct_fields import Context, columns_from, translate

_ROWS_PER_CHUNK: Final = 20_000
_YEAR_S: Final = 31_536_000  # what is written where neither job nor partition has a limit
# field of sacct -> key of the document
_KEYS: Final = {
    "jobidraw": "jobid",
    "cluster": "cluster",
    "jobname": "job_name",
    "user": "username",
    "uid": "user_id",
    "group": "groupname",
    "gid": "group_id",
    "account": "account",
    "partition": "partition",
    "qos": "qos",
    "nodelist": "nodes",
    "workdir": "work_dir",
    "submit": "@submit",
    "eligible": "@eligible",
    "start": "@start",
    "end": "@end",
    "elapsedraw": "elapsed",
    "state": "state",
    "exitcode": "exit_code",
    "alloccpus": "total_cpus",
    "nnodes": "total_nodes",
    "reqtres": "tres_req",
    "alloctres": "tres_alloc",
    "constraints": "features",
    "reservation": "reservation_name",
    "wckey": "wc_key",
    "dependency": "orig_dependency",
    "container": "container",
    SCRIPT_SIGNATURE: SCRIPT_SIGNATURE,
}
_FIELDS: Final = ("jobid", *_KEYS, "timelimitraw")
_OF_THE_END: Final = ("end", "elapsedraw", "exitcode")
_SCHEMA: Final = pl.Schema({"record": pl.UInt32(), "line": pl.Int64(), **dict.fromkeys(_FIELDS, pl.String())})


class JobCompletions(FileSource):
    """A file of such documents: one per line, a list of them, or an export of their index (`_source`)."""

    format = "jobcomp"

    def __init__(self, path: Path | str, *, cluster: str = "cluster") -> None:
        super().__init__(path)
        self._context = Context("UTC", cluster)

    def fields(self) -> frozenset[str]:
        """The job columns that the documents fill."""
        return columns_from(_FIELDS) - {"failed_step", "failed_step_exit_code", "failed_step_exit_signal", "cancelled_by"}

    def chunks(self) -> Iterator[Chunk]:
        """The documents, some thousands at a time."""
        rows: list[dict[str, str | int | None]] = []
        refused: list[Refused] = []
        parts = 0  # of runs that were resized on the way
        for number, record, done in records_in(self._file, key=None, is_record=is_completion):
            if isinstance(record, tuple):
                refused.append(record)
            elif (cells := _cells(record.get("_source", record))) is None:
                parts += 1
            else:
                rows.append({"record": len(rows), "line": number, **cells})
            if len(rows) + len(refused) + parts >= _ROWS_PER_CHUNK:
                yield self._chunk(rows, refused, parts, done)
                rows, refused, parts = [], [], 0
        yield self._chunk(rows, refused, parts, self.size_bytes)

    def _chunk(self, rows: list[dict[str, str | int | None]], refused: list[Refused], parts: int, done: int) -> Chunk:
        return Chunk(
            records=pl.DataFrame(rows, schema=_SCHEMA),
            translate=partial(translate, context=self._context),
            read=len(rows) + len(refused) + parts,
            meaning=str(self._context),
            rejects=rejects(refused),
            folded=parts,
            bytes_done=done,
        )


def is_completion(record: Mapping[str, Any]) -> bool:
    """Whether an object is a document of a jobcomp plug-in, or of an index of such documents."""
    document = record.get("_source", record)
    return isinstance(document, dict) and {"jobid", "@submit", "state"} <= document.keys()


def without_script(document: Mapping[str, Any], *, sign: bool = False) -> Record:
    """A document without the text of the batch script, which is nobody else's business; `sign`: with its signature."""
    script = document.get("script")
    kept = {key: value for key, value in document.items() if key not in ("script", SCRIPT_SIGNATURE)}
    signature = script_signature(script) if sign and isinstance(script, str) else None
    return kept if signature is None else {**kept, SCRIPT_SIGNATURE: signature}


def _cells(document: Record) -> dict[str, str | None] | None:
    """The fields of sacct that a document stands for; None where it is of a part of a run, up to a resize."""
    cells = {field: _cell(document.get(key)) for field, key in _KEYS.items()}
    state = slurm_state(cells["state"] or "")
    if state is JobState.RESIZING:
        return None
    if state is JobState.PENDING and cells["nodelist"]:
        cells["state"] = JobState.REQUEUED
    elif state in UNFINISHED:
        cells |= dict.fromkeys(_OF_THE_END)
    return {**cells, "jobid": _composed_id(document), "timelimitraw": _limit_min(document.get("time_limit"))}


def _composed_id(document: Record) -> str | None:
    """The id as sacct prints it: `12_3` of an array task, `12+1` of a component of a heterogeneous job."""
    if document.get("array_job_id"):
        return f"{_cell(document['array_job_id'])}_{_cell(document.get('array_task_id'))}"
    leader = document.get("het_job_id") or document.get("pack_job_id")
    if leader:
        return f"{_cell(leader)}+{_cell(document.get('het_job_offset', document.get('pack_job_offset')))}"
    return _cell(document["jobid"])


def _limit_min(limit_s: object) -> str | None:
    """The time limit in minutes."""
    if isinstance(limit_s, int) and not isinstance(limit_s, bool):
        return None if limit_s == _YEAR_S else str(limit_s / 60)
    return _cell(limit_s)


def _cell(value: object) -> str | None:
    """A value as the text that sacct would print; what is no value of a field as JSON, which no column can be read from."""
    if value is None or value == "":
        return None
    return text(value if isinstance(value, str) else json.dumps(value)[:200])
