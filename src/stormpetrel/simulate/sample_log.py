"""The demo's log: three months of a small made-up cluster, as `sacct -P` prints it.

seed -> sample_lines -> sacct text. The file beside this module was written by `python -m stormpetrel.simulate.sample_log OUT`.
"""

from __future__ import annotations

import gzip
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import resources
from pathlib import Path
from typing import Final

SEED: Final = 20240101
START: Final = datetime(2024, 1, 1, tzinfo=UTC)
DAYS: Final = 91
NODES: Final = 48
BUNDLED: Final = "sample.sacct.gz"
FIELDS: Final = (
    "JobID|JobIDRaw|Cluster|JobName|User|UID|Group|GID|Account|Partition|QOS|Submit|Eligible|Start|End|Elapsed|State|ExitCode|"
    "Timelimit|ReqCPUS|AllocCPUS|NNodes|ReqMem|MaxRSS|TotalCPU|ReqTRES|AllocTRES|NodeList|WorkDir"
)
_SICK_NODE: Final = "n037"  # fails what it gets in the last week: something true to find
_APPLICATIONS: Final = {  # name: (CPUs, median memory in GiB, median run time in hours)
    "fit": (1, 2.0, 0.7),
    "lattice": (32, 24.0, 5.0),
    "align": (8, 14.0, 1.6),
    "train": (4, 20.0, 6.0),
    "render": (16, 10.0, 0.5),
    "preproc": (2, 6.0, 0.2),
}


@dataclass(frozen=True, slots=True)
class _User:
    name: str
    uid: int
    group: str
    applications: tuple[str, ...]
    skill: float  # how well requests fit, 0 to 1
    jobs_per_day: float


def sample_lines(seed: int = SEED, *, days: int = DAYS) -> Iterator[str]:
    """The lines of the log, header first; the same for the same seed."""
    rng = random.Random(seed)  # noqa: S311 - a simulation, not a secret
    users = [_make_user(rng, number) for number in range(26)]
    yield FIELDS
    job_id = 71200
    for moment, user in _submissions(rng, users, days):
        application = rng.choice(user.applications)
        for _ in range(_burst(rng)):
            job_id += 1
            yield from _job_lines(rng, job_id, user, application, moment + timedelta(seconds=rng.randrange(20)))


def bundled_log() -> Path:
    """Where the bundled log lies."""
    return Path(str(resources.files("stormpetrel.simulate").joinpath(BUNDLED)))


def _make_user(rng: random.Random, number: int) -> _User:
    names = [
        "ada",
        "bo",
        "cyn",
        "dev",
        "eli",
        "fay",
        "gus",
        "hana",
        "ivo",
        "jun",
        "kai",
        "lea",
        "mio",
        "nia",
        "ole",
        "pia",
        "quin",
        "ravi",
        "sol",
        "tao",
        "uma",
        "vic",
        "wen",
        "xia",
        "yara",
        "zed",
    ]
    count = rng.choice((1, 1, 2, 3))
    return _User(
        name=names[number],
        uid=4000 + number,
        group=f"lab{number % 6 + 1}",
        applications=tuple(rng.sample(sorted(_APPLICATIONS), count)),
        skill=rng.betavariate(4, 1.5),
        jobs_per_day=rng.paretovariate(1.3),
    )


def _submissions(rng: random.Random, users: list[_User], days: int) -> Iterator[tuple[datetime, _User]]:
    """When someone submits: mostly on workdays, mostly by day."""
    moments = []
    for user in users:
        clock = 0.0
        while True:
            clock += rng.expovariate(min(user.jobs_per_day, 12.0) / 2.5)
            if clock >= days:
                break
            moment = START + timedelta(days=clock)
            calm = 0.15 if moment.weekday() >= 5 else 0.3 if not 8 <= moment.hour < 19 else 1.0
            if rng.random() < calm:
                moments.append((moment.replace(microsecond=0), user))
    yield from sorted(moments, key=lambda entry: (entry[0], entry[1].uid))


def _burst(rng: random.Random) -> int:
    return rng.choice((1, 1, 1, 2, 4, 8))


def _job_lines(rng: random.Random, job_id: int, user: _User, application: str, submit: datetime) -> Iterator[str]:
    cpus, memory_gib, hours = _APPLICATIONS[application]
    needs_gib = memory_gib * rng.lognormvariate(0, 0.35)
    needs_s = hours * 3600 * rng.lognormvariate(0, 0.7)
    margin = 1.1 + user.skill
    asked_gib = max(1, round(memory_gib * margin * rng.choice((0.8, 1.0, 1.0, 1.5))))
    limit_s = max(600, int(hours * 3600 * margin * rng.choice((1.0, 2.0, 3.0)) // 600 * 600))
    start = submit + timedelta(seconds=int(rng.expovariate(1 / 900)) + (1800 if cpus >= 16 else 5))
    node = f"n{rng.randrange(1, NODES + 1):03d}"
    state, code, share = _outcome(rng, user, node, start, needs_gib > asked_gib, needs_s > limit_s)
    run_s = int(limit_s + 12 if state == "TIMEOUT" else min(needs_s, limit_s) * share)
    end = start + timedelta(seconds=run_s)
    used_kib = int(min(needs_gib, asked_gib) * (1 if share == 1 else 0.4 + share / 2) * 1024 * 1024)
    tres = f"billing={cpus},cpu={cpus},mem={asked_gib}G,node=1"
    cpu_s = int(run_s * cpus * rng.uniform(0.6, 0.99))
    label = f"CANCELLED by {user.uid}" if state == "CANCELLED" else state
    owner = f"{user.name}|{user.uid}|{user.group}|{6000 + user.uid % 6}|{user.group}"
    identity = f"{job_id}|{job_id}|demo|{application}-{rng.randrange(40)}|{owner}"
    request = f"{_hms(limit_s)}|{cpus}|{cpus}|1|{asked_gib}G"
    times = f"{_iso(submit)}|{_iso(submit)}|{_iso(start)}|{_iso(end)}|{_hms(run_s)}"
    where = f"{tres}|{tres}|{node}|/home/{user.name}/{application}"
    yield f"{identity}|batch|normal|{times}|{label}|{code}|{request}||{_hms(cpu_s)}|{where}"
    yield (
        f"{job_id}.batch|{job_id}.batch|demo|batch||||||||{_iso(start)}|{_iso(start)}|{_iso(start)}|{_iso(end)}|{_hms(run_s)}|"
        f"{state}|{code}||{cpus}|{cpus}|1||{used_kib}K|{_hms(cpu_s)}||{tres}|{node}|"
    )


def _outcome(
    rng: random.Random, user: _User, node: str, start: datetime, too_big: bool, too_long: bool
) -> tuple[str, str, float]:
    """State, exit code, and the share of its run time after which the job ended."""
    if node == _SICK_NODE and start > START + timedelta(days=DAYS - 7):
        return "FAILED", "1:0", 0.001
    if too_big:
        return "OUT_OF_MEMORY", "0:125", rng.uniform(0.2, 0.9)
    if too_long:
        return "TIMEOUT", "0:0", 1.0
    if rng.random() < 0.10 * (1.2 - user.skill):
        return "FAILED", rng.choice(("1:0", "2:0", "134:0")), rng.uniform(0.001, 0.3)
    if rng.random() < 0.02:
        return "CANCELLED", "0:0", rng.uniform(0.05, 0.8)
    return "COMPLETED", "0:0", 1.0


def _iso(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S}"


def _hms(seconds: int) -> str:
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock


def write_sample(path: Path, seed: int = SEED) -> None:
    """Write the log, gzipped, without time or name in its header: the same seed makes the same file."""
    text = "\n".join(sample_lines(seed)) + "\n"
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    write_sample(Path(sys.argv[1]))
