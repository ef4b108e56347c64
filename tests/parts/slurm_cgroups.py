"""A real Slurm whose jobs are in cgroups, and a recorder of what it makes of them.

`with cgroup_slurm() as slurm:` starts one node with cgroup v1 that really has this machine's CPUs. Its name is its own, so that
nobody else's cgroups are in the way; they are removed afterwards.

`python -m tests.parts.slurm_cgroups` records the layouts into tests/recordings/cgroups: root, cgroup v1 beside v2, a C compiler.
Slurm's plugin for cgroup v2 refuses a machine that has v1 beside it. For the recording, v1's lines in /proc/*/cgroup are hidden
from slurmd and slurmstepd (only_v2.c below): the folders and the titles of the processes are Slurm's own, but there are no
controllers, and so neither memory nor CPU sets.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from stormpetrel.exporter.files import Files, parse_cpu_list
from stormpetrel.exporter.job_groups import Finder, find_hierarchies
from tests.parts import Daemon, wait_until
from tests.parts.slurm import RealSlurm

RECORDINGS = Path(__file__).parents[1] / "recordings" / "cgroups"
TREES = find_hierarchies(Files()).trees
ALL_OF_IT = {
    "ProctrackType": "proctrack/cgroup",
    "TaskPlugin": "task/cgroup,task/affinity",
    "JobAcctGatherType": "jobacct_gather/cgroup",
}
CONSTRAINED = "CgroupPlugin=cgroup/v1\nConstrainCores=yes\nConstrainRAMSpace=yes\n"
_MEMBERS = ("cgroup.procs", "cgroup.threads", "tasks")  # who is in a cgroup
_FIGURES = (
    "cpuset.cpus", "cpuset.effective_cpus", "cpuset.cpus.effective", "cpuacct.stat", "cpuacct.usage", "cpu.stat", "memory.stat",
    "memory.usage_in_bytes", "memory.limit_in_bytes", "memory.current", "memory.max", "cpu.pressure", "memory.pressure",
    "io.pressure",
)  # fmt: skip
_SIGNS = ("cgroup.controllers", "cpuset.cpus", "cpuacct.usage", "memory.stat")  # of the root of a tree
_STATUS = re.compile(r"^(?:Name|Uid|Cpus_allowed_list):.*$", re.MULTILINE)
_ONLY_V2 = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static int hidden(const char *path) {
  size_t n = strlen(path);
  return !strncmp(path, "/proc/", 6) && n > 7 && !strcmp(path + n - 7, "/cgroup");
}
int open(const char *path, int flags, ...) {
  va_list rest; va_start(rest, flags); int mode = va_arg(rest, int); va_end(rest);
  int (*next)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
  int in = next(path, flags, mode);
  if (in < 0 || !hidden(path)) return in;
  char text[8192];
  ssize_t size = read(in, text, sizeof text - 1);
  close(in);
  text[size > 0 ? size : 0] = 0;
  int out = memfd_create("cgroup", 0);
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
    if (!strncmp(line, "0::", 3)) dprintf(out, "%s\n", line);
  lseek(out, 0, SEEK_SET);
  return out;
}
int open64(const char *path, int flags, ...) {
  va_list rest; va_start(rest, flags); int mode = va_arg(rest, int); va_end(rest);
  return open(path, flags, mode);
}
FILE *fopen(const char *path, const char *mode) {
  FILE *(*next)(const char *, const char *) = dlsym(RTLD_NEXT, "fopen");
  if (!hidden(path)) return next(path, mode);
  int in = open(path, O_RDONLY);
  return in < 0 ? NULL : fdopen(in, "r");
}
"""


class _OnlyV2(RealSlurm):
    """A cluster that takes this machine for one of cgroup v2 alone."""

    def _start_daemon(
        self, name: str, command: list[str], *, env: dict[str, str] | None = None, user: str | None = None
    ) -> Daemon:
        if name.startswith("slurmd-"):
            env = {**(env or self.env), "LD_PRELOAD": str(_compiled(self.folder / "run"))}
        return super()._start_daemon(name, command, env=env, user=user)


@contextmanager
def cgroup_slurm(
    *, nodes: int = 1, name: str = "", settings: Mapping[str, str] = ALL_OF_IT, cgroup_conf: str = CONSTRAINED
) -> Iterator[RealSlurm]:
    """A Slurm whose jobs are in cgroups; of each node all CPUs are this machine's."""
    kind = _OnlyV2 if "cgroup/v2" in cgroup_conf else RealSlurm
    slurm = kind(
        nodes=nodes,
        cpus=os.cpu_count() or 1,
        settings=settings,
        cgroup_conf=cgroup_conf,
        name=name or f"c{os.getpid()}n",
        accounting=False,
    )
    try:
        with slurm:
            yield slurm
    finally:
        for node in slurm.nodes:
            remove_cgroups(node)


def folders_of(node: str) -> list[Path]:
    """The cgroups that a slurmd has made, by the name of its node."""
    paths = (f"slurm_{node}", f"system.slice/{node}_slurmstepd.scope")
    return [Path(tree) / path for tree in TREES.values() for path in paths if (Path(tree) / path).is_dir()]


def remove_cgroups(node: str) -> None:
    """Remove what a slurmd has left; it never does so itself."""

    def gone() -> bool:
        for top in folders_of(node):
            for folder, _, _ in os.walk(top, topdown=False):
                with suppress(OSError):
                    Path(folder).rmdir()
        return not folders_of(node)

    wait_until(gone, f"the cgroups of {node} are removed", limit_s=20)


def cpus_by_scontrol(text: str) -> dict[str, frozenset[int]]:
    """Job id -> the CPUs that `scontrol show job -d` names; an array's tasks have ids of their own."""
    jobs = (job for job in re.split(r"^(?=JobId=)", text, flags=re.MULTILINE) if "CPU_IDs=" in job)
    lists = {re.search(r"JobId=(\d+)", job)[1]: re.search(r"CPU_IDs=(\S+)", job)[1] for job in jobs}  # type: ignore[index]
    return {job_id: parse_cpu_list(cpus.encode()) or frozenset() for job_id, cpus in lists.items()}


# The recorder


def unpack(case: str, root: Path) -> dict[str, str]:
    """A recorded node as a folder; what was said of it: `slurm` (the version), `scontrol` (show job -d)."""
    recording: dict[str, dict[str, str]] = json.loads((RECORDINGS / f"{case}.json").read_text())
    for name, text in recording["files"].items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return recording["said"]


def record(case: str, slurm: RealSlurm) -> None:
    """Write down what the exporter reads of the jobs of a cluster, and what scontrol says of them."""
    real = Files()
    groups = [group for group in Finder(real, find_hierarchies(real)).find() if any(node in group.name for node in slurm.nodes)]
    paths = [Path(tree) / sign for tree in TREES.values() for sign in _SIGNS]
    for top in (Path(folder) for group in groups for folder in group.folders.values()):
        paths += [top / name for name in _FIGURES]
        paths += [Path(folder) / name for folder, _, _ in os.walk(top) for name in _MEMBERS]
    files = {str(path): text for path in [*paths, Path("/proc/pressure/cpu")] if (text := _text(path)) is not None}
    files |= {f"{tree}/tasks": "" for tree in TREES.values() if (Path(tree) / "tasks").exists()}
    files["/proc/stat"] = Path("/proc/stat").read_text().partition("\nintr")[0] + "\n"
    threads = {word for path, text in files.items() if path.endswith(_MEMBERS) for word in text.split()}
    for thread in sorted(threads, key=int):
        files |= _process(thread)
    said = {"slurm": _version(), "scontrol": _without_places(slurm.command("scontrol", "show", "job", "-d"), slurm)}
    content = {"said": said, "files": {path.lstrip("/"): text for path, text in sorted(files.items())}}
    RECORDINGS.mkdir(exist_ok=True)
    (RECORDINGS / f"{case}.json").write_text(json.dumps(content, indent=1) + "\n")


def _process(thread: str) -> dict[str, str]:
    """Of a process only what the exporter reads."""
    status, title = _text(Path(f"/proc/{thread}/status")), _text(Path(f"/proc/{thread}/cmdline"))
    if status is None or title is None:
        return {}
    shown = title if title.startswith("slurmstepd:") else "sleep\x00"
    return {f"/proc/{thread}/status": "\n".join(_STATUS.findall(status)) + "\n", f"/proc/{thread}/cmdline": shown}


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


def _without_places(text: str, slurm: RealSlurm) -> str:
    return text.replace(str(slurm.folder / "work"), "/home/ada/work").replace(socket.gethostname(), "login1")


def _version() -> str:
    return subprocess.run(["slurmd", "-V"], capture_output=True, text=True, timeout=20, check=True).stdout.strip()


def _compiled(folder: Path) -> Path:
    library = folder / "only_v2.so"
    if not library.exists():
        source = folder / "only_v2.c"
        source.write_text(_ONLY_V2)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True, timeout=60)
    return library


def _running() -> list[str]:
    """The steps that run, each named as its slurmstepd is."""
    titles = [_text(path) or "" for path in Path("/proc").glob("[0-9]*/cmdline")]
    return sorted(
        (title.partition("]")[0].rpartition(".")[2] for title in titles if title.startswith("slurmstepd: [")), reverse=True
    )


def main() -> None:
    """Record every layout that Slurm makes here."""
    v1 = {"v1": (1, ALL_OF_IT, CONSTRAINED), "v1-two-slurmd": (2, ALL_OF_IT, CONSTRAINED)}
    tracked = {"v1-proctrack-alone": (1, {"ProctrackType": "proctrack/cgroup"}, "CgroupPlugin=cgroup/v1\n")}
    unified = f"CgroupPlugin=cgroup/v2\nCgroupMountpoint={TREES['v2']}\nIgnoreSystemd=yes\n"
    v2 = {"v2": (1, {"ProctrackType": "proctrack/cgroup", "TaskPlugin": "task/affinity"}, unified)}
    made = Path(TREES["v2"]) / "system.slice"
    made.mkdir(exist_ok=True)  # systemd's, on a machine that has it
    for case, (nodes, settings, conf) in {**v1, **tracked, **v2}.items():
        with cgroup_slurm(nodes=nodes, name="n", settings=settings, cgroup_conf=conf) as slurm:
            slurm.submit("-n1", "--wrap=srun -n1 sleep 300")
            slurm.submit("-n1", "--array=7", f"--nodelist={slurm.nodes[-1]}", "--wrap=sleep 300")
            wait_until(lambda: _running() == ["batch", "batch", "0"], "two jobs and a step run", limit_s=60)
            record(case, slurm)
    with suppress(OSError):
        made.rmdir()


if __name__ == "__main__":
    main()
