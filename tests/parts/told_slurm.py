"""A Slurm that says what a test tells it: squeue, sacct and scontrol as small scripts that print files.

`slurm = ToldSlurm(folder)`; `slurm.queue(Job(7), Job(8, "RUNNING"))`; `slurm.accounting(by_id=(row(7, "CANCELLED by 0"),))`. For
what the real one cannot be made to do in seconds: hide jobs, lose them, be away.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stormpetrel.sources.slurm.live import WANTED

SUBMITTED = 1_794_800_000  # Unix seconds
_KNOWN = (
    "JobID JobIDRaw Cluster JobName User Account Partition Submit Eligible Start End ExitCode State Timelimit ReqCPUS ReqTRES"
)
FIELDS = [name for name in WANTED if name in f"{_KNOWN} SubmitLine Reason".split()]  # in the order in which they are asked for
_SCRIPTS = {
    "squeue": 'case "$*" in *--json*) cat "$here/queue.json";; *) cat "$here/list.txt";; esac',
    "scontrol": 'cat "$here/config.txt"',
    "sacctmgr": 'cat "$here/level.txt"',
    "sacct": """
case "$*" in *--helpformat*) cat "$here/fields.txt"; exit;; esac
for word in "$@"; do case "$word" in
  --delimiter=*) delimiter="${word#--delimiter=}";;
  --starttime=*) start="${word#*=}";;
  --endtime=*) echo "$start ${word#*=}" >> "$here/windows.txt";;
  --jobs=*) file=by_id.txt; echo "$word" >> "$here/asked.txt";;
  --state=PENDING*) file=going_on.txt;;
esac; done
sed "s/|/$delimiter/g" "$here/${file:-ended.txt}"
""",
}


@dataclass
class Job:
    """A job as the controller lists it."""

    job_id: int
    state: str = "PENDING"
    task: int | None = None
    tasks: str = ""  # of an array: those that wait
    reason: str = "JobHeldUser"
    submit: int = SUBMITTED
    more: dict[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        """As `squeue --format` prints it."""
        raw = self.job_id if self.task is None else self.job_id + 1 + self.task
        tasks = self.tasks or ("N/A" if self.task is None else str(self.task))
        start = "N/A" if self.state == "PENDING" else str(self.submit + 60)
        return f"{raw}|{self.job_id}|{tasks}|{self.state}|{self.submit}|{start}|1:00:00|1|1|debug|{self.reason}"

    def record(self) -> dict[str, Any]:
        """As `squeue --json` prints it."""
        ran = self.state in ("RUNNING", "COMPLETED", "FAILED")
        ended = self.state not in ("PENDING", "RUNNING", "SUSPENDED")
        return {
            "job_id": self.job_id if self.task is None else self.job_id + 1 + self.task,
            "array_job_id": self.job_id if self.tasks or self.task is not None else 0,
            "array_task_id": self.task, "array_task_string": self.tasks, "job_state": self.state, "state_reason": self.reason,
            "cluster": "petrel", "name": "fit", "user_name": "ada", "user_id": 1000, "account": "science", "partition": "debug",
            "submit_time": self.submit, "eligible_time": 0, "start_time": 0 if self.state == "PENDING" else self.submit + 60,
            "end_time": self.submit + 90 if ended else 0, "nodes": "n001" if ran else "", "time_limit": 60, "cpus": 1,
            "node_count": 1, "exit_code": 0, "tres_req_str": "cpu=1,mem=100M,node=1,billing=1",
            "tres_alloc_str": "cpu=1" if ran else "", **self.more,
        }  # fmt: skip


def row(name: str | int, state: str, *, submit: int = SUBMITTED, **more: object) -> str:
    """A line of sacct."""
    values = {
        "JobID": name, "JobIDRaw": str(name).split("_")[0], "Cluster": "petrel", "JobName": "fit", "User": "ada",
        "Submit": submit, "Eligible": "Unknown", "Start": "None", "End": submit + 100, "ExitCode": "0:0", "State": state,
        "ReqCPUS": 1, "ReqTRES": "billing=1,cpu=1,mem=100M,node=1", "SubmitLine": "sbatch fit.sh", "Reason": "None", **more,
    }  # fmt: skip
    return "|".join(str(values.get(name, "")) for name in FIELDS)


class ToldSlurm:
    """The scripts in a folder, and what they say."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        for name, text in _SCRIPTS.items():
            self.script(name, text)
        self._write("fields.txt", " ".join(FIELDS))
        self.config()
        self.queue()
        self.accounting()

    @property
    def settings(self) -> dict[str, Any]:
        """The section `slurm` of a site that looks at it: at today only, since it says the same of every day."""
        today = f"{datetime.now(UTC):%Y-%m-%d}"
        return {"sacct": str(self.folder / "sacct"), "since": today, "pause_s": 0.0, "timeout_s": 30.0}

    def script(self, name: str, text: str) -> None:
        """Put another program in the place of one."""
        path = self.folder / name
        path.write_text(f"#!/bin/sh\nhere='{self.folder}'\n{text}\n")
        path.chmod(0o755)

    def repair(self, name: str) -> None:
        """Put the program back."""
        self.script(name, _SCRIPTS[name])

    def config(self, *, private: str = "none", level: str = "None") -> None:
        """What scontrol and sacctmgr say of whose jobs are shown."""
        self._write(
            "config.txt", f"ClusterName             = petrel\nPrivateData             = {private}\nSlurmUser  = slurm(64030)\n"
        )
        self._write("level.txt", level)

    def queue(self, *jobs: Job) -> None:
        """What the controller lists."""
        self._write("list.txt", "".join(f"{job.line()}\n" for job in jobs))
        self._write("queue.json", json.dumps({"jobs": [job.record() for job in jobs]}))

    def accounting(self, *, ended: tuple[str, ...] = (), going_on: tuple[str, ...] = (), by_id: tuple[str, ...] = ()) -> None:
        """What accounting says of a window of time, and by id."""
        for name, rows in (("ended", ended), ("going_on", going_on), ("by_id", (*ended, *going_on, *by_id))):
            self._write(f"{name}.txt", "".join(f"{text}\n" for text in rows))

    def asked_for(self) -> list[str]:
        """The ids that accounting was asked for, a line for each time."""
        path = self.folder / "asked.txt"
        return path.read_text().split() if path.exists() else []

    def windows(self) -> list[tuple[datetime, datetime]]:
        """The spans of time that accounting was asked for."""
        path = self.folder / "windows.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(datetime.fromisoformat(start), datetime.fromisoformat(end)) for start, end in map(str.split, lines)]

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)
