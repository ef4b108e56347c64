"""Builders: jobs, and the same jobs as every scheduler would write them."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from stormpetrel.config import SITE_FILE, Settings, settings_as_toml
from stormpetrel.records.jobs import JOB_SCHEMA, job_frame
from stormpetrel.records.quality import check, no_rejects
from stormpetrel.records.unread import PREFIX, settle
from stormpetrel.sources.contract import JobSource
from stormpetrel.store.site import Site, create_site, open_site
from tests.lsf_records import acct_line

T0 = datetime(2024, 3, 4, 8, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Job:
    """A job that ended, with what every format can say about it."""

    job_id: int = 1000
    user: str = "ada"
    name: str = "fit"
    submit: datetime = T0
    wait_s: int = 60
    run_s: int = 600
    state: str = "COMPLETED"
    exit_code: int = 0
    cpus: int = 4
    mem_mib: int = 2048
    limit_s: int = 3600

    @property
    def start(self) -> datetime:
        return self.submit + timedelta(seconds=self.wait_s)

    @property
    def end(self) -> datetime:
        return self.start + timedelta(seconds=self.run_s)


def make_jobs(n: int = 10, *, failed: int = 0, first_id: int = 1000, start: datetime = T0) -> list[Job]:
    """n jobs, a minute apart, the first `failed` of them failed."""
    return [
        Job(
            job_id=first_id + k,
            user=f"user{k % 5}",
            name=f"app{k % 3}",
            submit=start + timedelta(minutes=k),
            state="FAILED" if k < failed else "COMPLETED",
            exit_code=1 if k < failed else 0,
            cpus=1 + k % 8,
        )
        for k in range(n)
    ]


@dataclass
class Document:
    """A log as its parts, so that single records can be damaged."""

    records: list[bytes]
    header: bytes = b""
    footer: bytes = b""
    between: bytes = b"\n"
    suffix: str = ".txt"
    options: dict[str, object] = field(default_factory=dict)

    def write(self, path: Path) -> Path:
        path.write_bytes(self.header + self.between.join(self.records) + self.footer)
        return path


SACCT_FIELDS = (
    "JobID|JobName|User|Account|Partition|Submit|Start|End|Elapsed|State|ExitCode|Timelimit|ReqCPUS|AllocCPUS|NNodes|ReqMem|"
    "AllocTRES"
)


def sacct_line(job: Job, delimiter: str = "|") -> str:
    tres = f"billing={job.cpus},cpu={job.cpus},mem={job.mem_mib}M,node=1"
    words = (
        job.job_id, job.name, job.user, "lab", "batch", iso(job.submit), iso(job.start), iso(job.end), hms(job.run_s), job.state,
        f"{job.exit_code}:0", hms(job.limit_s), job.cpus, job.cpus, 1, f"{job.mem_mib}M", tres,
    )  # fmt: skip
    return delimiter.join(str(word) for word in words)


def sacct_document(jobs: list[Job], delimiter: str = "|") -> Document:
    header = SACCT_FIELDS.replace("|", delimiter) + "\n"
    return Document([sacct_line(job, delimiter).encode() for job in jobs], header=header.encode(), footer=b"\n")


def write_sacct(path: Path, jobs: list[Job], delimiter: str = "|") -> Path:
    return sacct_document(jobs, delimiter).write(path)


def swf_document(jobs: list[Job]) -> Document:
    def line(job: Job) -> str:
        status = {"COMPLETED": 1, "CANCELLED": 5}.get(job.state, 0)
        submit = int((job.submit - T0).total_seconds()) + 86400
        numbers = (
            job.job_id, submit, job.wait_s, job.run_s, job.cpus, -1, -1, job.cpus, job.limit_s, -1, status, number_of(job.user),
            1, -1, 1, -1, -1, -1,
        )  # fmt: skip
        return " ".join(str(number) for number in numbers)

    start = int(T0.timestamp()) - 86400
    return Document([line(job).encode() for job in jobs], header=f"; UnixStartTime: {start}\n; MaxJobs: {len(jobs)}\n".encode())


def lumos_document(jobs: list[Job]) -> Document:
    header = ",job,user,project,state,gpu_num,cpu_num,node_num,submit_time,wait_time,run_time,wall_time,node_hour,"
    header += "new_status\n"
    words = {"COMPLETED": "Pass", "FAILED": "Failed", "CANCELLED": "Killed"}
    lines = [
        f"{n},{job.job_id},{number_of(job.user)},7,{job.exit_code},0,{job.cpus}.0,1.0,{job.submit.timestamp()},{job.wait_s},"
        f"{job.run_s}.0,{job.limit_s}.0,1.5,{words.get(job.state, 'Failed')}"
        for n, job in enumerate(jobs)
    ]
    return Document([line.encode() for line in lines], header=header.encode(), suffix=".csv")


def wrapped(number: int) -> dict[str, object]:
    return {"set": True, "infinite": False, "number": number}


def sacct_json_record(job: Job) -> dict[str, object]:
    tres = [
        {"type": "cpu", "name": "", "id": 1, "count": job.cpus},
        {"type": "mem", "name": "", "id": 2, "count": job.mem_mib},
        {"type": "node", "name": "", "id": 4, "count": 1},
    ]
    return {
        "account": "lab",
        "array": {"job_id": 0, "task_id": {"set": False, "infinite": False, "number": 0}, "task": ""},
        "cluster": "petrel",
        "exit_code": {"status": ["SUCCESS"], "return_code": wrapped(job.exit_code), "signal": {"id": wrapped(0), "name": ""}},
        "job_id": job.job_id,
        "name": job.name,
        "nodes": "n001",
        "partition": "batch",
        "state": {"current": [job.state], "reason": "None"},
        "steps": [],
        "time": {
            "elapsed": job.run_s,
            "eligible": int(job.submit.timestamp()),
            "end": int(job.end.timestamp()),
            "start": int(job.start.timestamp()),
            "submission": int(job.submit.timestamp()),
            "limit": wrapped(job.limit_s // 60),
        },
        "tres": {"allocated": tres, "requested": tres},
        "required": {"CPUs": job.cpus},
        "user": job.user,
        "working_directory": "/home",
    }


def sacct_json_document(jobs: list[Job]) -> Document:
    records = [json.dumps(sacct_json_record(job), indent=1).encode() for job in jobs]
    return Document(records, header=b'{"jobs": [', footer=b'], "meta": {}, "errors": []}', between=b",\n", suffix=".json")


def pbs_document(jobs: list[Job]) -> Document:
    def line(job: Job) -> str:
        return (
            f"{job.end:%m/%d/%Y %H:%M:%S};E;{job.job_id}.server;user={job.user} group=users jobname={job.name} queue=batch "
            f"ctime={job.submit.timestamp():.0f} qtime={job.submit.timestamp():.0f} etime={job.submit.timestamp():.0f} "
            f"start={job.start.timestamp():.0f} exec_host=n001/0*{job.cpus} Resource_List.ncpus={job.cpus} "
            f"Resource_List.mem={job.mem_mib}mb Resource_List.walltime={clock(job.limit_s)} session=1 "
            f"end={job.end.timestamp():.0f} Exit_status={job.exit_code} resources_used.walltime={clock(job.run_s)}"
        )

    return Document([line(job).encode() for job in jobs])


def lsf_document(jobs: list[Job]) -> Document:
    """lsb.acct: one JOB_FINISH record a job."""

    def line(job: Job) -> str:
        return acct_line(
            job.job_id, submit=int(job.submit.timestamp()), start=int(job.start.timestamp()), end=int(job.end.timestamp()),
            user=job.user, name=job.name, status=64 if job.state == "COMPLETED" else 32, exit_status=job.exit_code << 8,
            slots=job.cpus, hosts=(f"{job.cpus}*n001",), effective=f"rusage[mem={job.mem_mib}.00] ", limit=job.limit_s,
            run_s=job.run_s,
        )  # fmt: skip

    return Document([line(job).encode() for job in jobs])


def slurmctld_document(jobs: list[Job]) -> Document:
    """The lines that slurmctld writes about each job, one record per job."""

    def lines(job: Job) -> str:
        def at(moment: datetime) -> str:
            return f"[{moment:%Y-%m-%dT%H:%M:%S}.000]"

        name = f"JobId={job.job_id}"
        end = {
            "TIMEOUT": [f"Time limit exhausted for {name}"],
            "NODE_FAIL": [f"Killing {name} on failed node n001"],
            "CANCELLED": [f"_slurm_rpc_kill_job: REQUEST_KILL_JOB {name} uid 1000"],
            "OUT_OF_MEMORY": [f"_job_complete: {name} OOM failure", f"_job_complete: {name} done"],
        }.get(job.state, [f"_job_complete: {name} WEXITSTATUS {job.exit_code}", f"_job_complete: {name} done"])
        return "\n".join(
            [
                f"{at(job.submit)} _slurm_rpc_submit_batch_job: {name} InitPrio=4294901759 usec=199",
                f"{at(job.start)} sched: Allocate {name} NodeList=n001 #CPUs={job.cpus} Partition=batch",
                *(f"{at(job.end)} {text}" for text in end),
            ]
        )

    return Document([lines(job).encode() for job in jobs])


def jobcomp_record(job: Job) -> dict[str, object]:
    tres = f"cpu={job.cpus},mem={job.mem_mib}M,node=1,billing={job.cpus}"
    return {
        "jobid": job.job_id,
        "username": job.user,
        "user_id": 1000,
        "groupname": "users",
        "group_id": 100,
        "@start": iso(job.start),
        "@end": iso(job.end),
        "elapsed": job.run_s,
        "partition": "batch",
        "nodes": "n001",
        "total_cpus": job.cpus,
        "total_nodes": 1,
        "exit_code": f"{job.exit_code}:0",
        "state": job.state,
        "het_job_id": 0,
        "@submit": iso(job.submit),
        "@eligible": iso(job.submit),
        "work_dir": "/home",
        "cluster": "petrel",
        "time_limit": job.limit_s,
        "job_name": job.name,
        "tres_req": tres,
        "tres_alloc": tres,
        "account": "lab",
        "script": "#!/bin/sh\n./fit\n",
    }


def jobcomp_document(jobs: list[Job]) -> Document:
    return Document([json.dumps(jobcomp_record(job)).encode() for job in jobs], footer=b"\n", suffix=".json")


def condor_record(job: Job) -> dict[str, object]:
    return {
        "ClusterId": job.job_id,
        "ProcId": 0,
        "GlobalJobId": f"schedd.example.org#{job.job_id}.0#1",
        "Owner": job.user,
        "QDate": int(job.submit.timestamp()),
        "JobStartDate": int(job.start.timestamp()),
        "JobCurrentStartDate": int(job.start.timestamp()),
        "CompletionDate": int(job.end.timestamp()),
        "RemoteWallClockTime": float(job.run_s),
        "RequestCpus": job.cpus,
        "RequestMemory": job.mem_mib,
        "JobStatus": 3 if job.state == "CANCELLED" else 4,
        "ExitCode": job.exit_code,
        "ExitBySignal": False,
        "Cmd": "/home/fit.sh",
        "EnteredCurrentStatus": int(job.end.timestamp()),
    }


def condor_history_document(jobs: list[Job]) -> Document:
    records = [json.dumps(condor_record(job), indent=2).encode() for job in jobs]
    return Document(records, header=b"[\n", footer=b"\n]\n", between=b"\n,\n", suffix=".json")


def condor_events_document(jobs: list[Job]) -> Document:
    """One record per job: its events one after the other."""

    def event(number: int, job: Job, moment: datetime, text: str) -> str:
        return f"{number:03d} ({job.job_id}.000.000) {moment:%Y-%m-%d %H:%M:%S} {text}\n...\n"

    def events(job: Job) -> str:
        return (
            event(0, job, job.submit, "Job submitted from host: <127.0.0.1:9618?addrs=x>")
            + event(1, job, job.start, "Job executing on host: <127.0.0.1:9618?addrs=y>")
            + event(
                5, job, job.end, f"Job terminated.\n\t(1) Normal termination (return value {job.exit_code})\n\t\tUsr 0 00:00:01, "
                "Sys 0 00:00:00  -  Run Remote Usage"
            )
        )  # fmt: skip

    return Document([events(job).encode() for job in jobs], between=b"")


def alcf_document(jobs: list[Job]) -> Document:
    header = (
        "JOB_NAME,COBALT_JOBID,MACHINE_NAME,QUEUED_TIMESTAMP,START_TIMESTAMP,END_TIMESTAMP,USERNAME_GENID,PROJECT_NAME_GENID,"
        "QUEUE_NAME,WALLTIME_SECONDS,RUNTIME_SECONDS,NODES_USED,NODES_REQUESTED,CORES_USED,CORES_REQUESTED,LOCATION,EXIT_STATUS\n"
    )
    lines = [
        f"fit,{job.job_id},mira,{spaced(job.submit)},{spaced(job.start)},{spaced(job.end)},{number_of(job.user)},45,prod,{job.limit_s},"
        f"{job.run_s}.0,1,1,{job.cpus},{job.cpus},R00,{0 if job.state == 'COMPLETED' else 1}"
        for job in jobs
    ]
    return Document([line.encode() for line in lines], header=header.encode(), suffix=".csv")


def supercloud_document(jobs: list[Job]) -> Document:
    header = "id_job,id_array_task,id_user,cpus_req,exit_code,state,timelimit,time_submit,time_start,time_end,tres_alloc\n"
    numbers = {"COMPLETED": 3, "CANCELLED": 4, "FAILED": 5}
    lines = [
        f"{job.job_id}.0,4294967294,{number_of(job.user)}.0,{job.cpus},0,{numbers[job.state]},60,{job.submit.timestamp():.0f},"
        f'{job.start.timestamp():.0f},{job.end.timestamp():.0f},"1={job.cpus},2={job.mem_mib},4=1"'
        for job in jobs
    ]
    return Document([line.encode() for line in lines], header=header.encode(), suffix=".csv")


DOCUMENTS: dict[str, Callable[[list[Job]], Document]] = {
    "sacct": sacct_document,
    "sacct-json": sacct_json_document,
    "slurmctld": slurmctld_document,
    "jobcomp": jobcomp_document,
    "swf": swf_document,
    "pbs": pbs_document,
    "lsf": lsf_document,
    "condor-history": condor_history_document,
    "condor-events": condor_events_document,
    "lumos": lumos_document,
    "alcf-djc": alcf_document,
    "supercloud": supercloud_document,
}


def number_of(name: str) -> int:
    """A number that stands for a name in formats that have only numbers."""
    return sum(letter * 31**position for position, letter in enumerate(name.encode())) % 100_000 + 1


def read_all(source: JobSource) -> tuple[pl.DataFrame, pl.DataFrame, int, int]:
    """A source read to its end without a store: (good jobs, rejects, read, folded)."""
    jobs, rejects, read, folded = [], [no_rejects()], 0, 0
    for chunk in source.chunks():
        read += chunk.read
        folded += chunk.folded
        rejects.append(chunk.rejects)
        if chunk.records.height:
            translated, bad = chunk.translate(chunk.records, chunk.steps)
            good, odd, _ = check(translated, now=datetime(2030, 1, 1, tzinfo=UTC))
            jobs.append(settle(good)[0])
            rejects += [bad, odd]
    frame = pl.concat(jobs) if jobs else job_frame([]).with_columns(record=pl.lit(0), line=pl.lit(0))
    return frame, pl.concat(rejects), read, folded


def unread_in(row: dict[str, Any]) -> dict[str, str]:
    """What could not be read of a job, by column."""
    return {name.removeprefix(PREFIX): text for name, text in dict(row["extra"] or {}).items() if name.startswith(PREFIX)}


def make_site(folder: Path, **sections: dict[str, object]) -> Site:
    """A new site with some settings of its own: a copy of an empty one, which takes a quarter of the time.

    All such sites have one key; where the keys of two sites matter, `create_site` makes them. Needs and waits are not learnt
    unless a test asks for it (`jobs={"outlook": True}`): they take longer to train than all the rest.
    """
    sections = {**sections, "jobs": {"outlook": False, **sections.get("jobs", {})}}
    settings = Settings.model_validate(sections)
    if folder.exists() or "store" in sections:  # such sites are told apart when they are made
        return create_site(folder, settings)
    shutil.copytree(_empty_site(), folder)
    (folder / SITE_FILE).write_text(settings_as_toml(settings))
    return open_site(folder)


@functools.cache
def _empty_site() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="stormpetrel-empty-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    create_site(folder / "site").close()
    return folder / "site"


def table_of(site: Site) -> pl.DataFrame:
    """Everything a site's job table says, in a fixed order."""
    return site.jobs.read_jobs().select(list(JOB_SCHEMA)).sort("cluster", "job_id", "array_task", "submit_time").collect()


def iso(moment: datetime) -> str:
    return moment.isoformat()[:19]  # far quicker than strftime


def spaced(moment: datetime) -> str:
    return moment.isoformat(sep=" ")[:19]


def hms(seconds: int) -> str:
    days, rest = divmod(seconds, 86400)
    return (f"{days}-" if days else "") + f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"


def clock(seconds: int) -> str:
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
