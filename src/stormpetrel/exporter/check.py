"""What this node offers, for an administrator: Sampler, Sample -> Check; how Slurm lays out its cgroups, and what to change.

| cgroups | Slurm | built for several slurmd |
| v1 | slurm/uid_1000/job_123 | slurm_NODE/… |
| v2 | system.slice/slurmstepd.scope/job_123; from 26.05 on s0123456789ABC | system.slice/NODE_slurmstepd.scope/… |

v1 has a tree per controller, and Slurm makes its folder only in those that its settings name: freezer for proctrack/cgroup,
cpuset and memory for task/cgroup as cgroup.conf constrains them, cpuacct and memory for jobacct_gather/cgroup. v2 always counts
CPU time.
"""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

from stormpetrel.exporter.files import Files, format_cpu_list
from stormpetrel.exporter.job_groups import Finder, JobGroup, is_sluid
from stormpetrel.exporter.sampler import OFFERS, Job, Sample, Sampler

_MANY = 8
TRACK: Final = "ProctrackType=proctrack/cgroup"
ACCOUNT: Final = "JobAcctGatherType=jobacct_gather/cgroup"
PLACE: Final = "TaskPlugin=task/cgroup,task/affinity"
CORES: Final = "ConstrainCores=yes"
OLD_NAMES: Final = "CgroupJobIdPaths=yes"
_BOUND: Final = "which job has which CPU"
_EVERYTHING: Final = {
    "slurm.conf": [TRACK, f"{ACCOUNT} (CPU time and memory of jobs)", f"{PLACE} ({_BOUND})"],
    "cgroup.conf": [f"{CORES} ({_BOUND})"],
}
_NODE: Final = re.compile(r"(?:/slurm_(?P<v1>[^/]+)|.*/(?P<v2>[^/]+)_slurmstepd\.scope)")
_NAMES_SHOWN: Final = 8


class Line(NamedTuple):
    """One thing, whether it is there, and what there is to say about it."""

    what: str
    there: bool
    words: str


def check(sampler: Sampler, sample: Sample) -> list[Line]:
    """Go through everything that the exporter can show."""
    jobs = sample.jobs.jobs
    kind, trees = sampler.hierarchies
    places = ", ".join(f"{tree} at {folder}" for tree, folder in trees.items())
    lines = [
        Line("CPU counters", True, f"{len(sample.cpus.cpus)} CPUs: {format_cpu_list(sample.cpus.cpus)}"),
        Line("cgroups", kind != "none", f"{kind}: {places}" if places else "none under /sys/fs/cgroup"),
        Line("jobs", bool(jobs) or sampler.finder.sure, _jobs_text(sampler, jobs)),
    ]
    missing = dict(sample.jobs.missing)
    for what, figure in OFFERS.items():
        count = sum(figure in job.figures for job in jobs)
        why = missing.get(what) or missing.get(what.rpartition(" ")[2])
        if why or jobs:
            lines.append(Line(f"{what} of jobs", count > 0, f"of {count} of {len(jobs)} jobs" if count else why or "of no job"))
    known = sum(job.uid is not None for job in jobs)
    if jobs:
        lines.append(Line("owners of jobs", known > 0, f"of {known} of {len(jobs)} jobs"))
    return [*lines, _threads_line(sample), *_slurm_lines(sampler, jobs), *_rest(sampler, missing)]


def as_table_text(lines: list[Line]) -> str:
    """The check as a table for a terminal; what comes from the node is shown, not obeyed."""
    rows = [f"{'ok' if line.there else '--':<4}{line.what:<26}{_plain(line.words)}" for line in lines]
    return "\n".join(rows) + "\n"


def as_json(lines: list[Line]) -> dict[str, dict[str, object]]:
    """The check for other programs."""
    return {line.what: {"there": line.there, "words": line.words} for line in lines}


def _jobs_text(sampler: Sampler, jobs: list[Job]) -> str:
    if not jobs:
        schedulers = sampler.finder.schedulers()
        if schedulers:
            return f"none runs; {', '.join(schedulers)} has its folder"
        return "none, and no folder of Slurm or HTCondor: name yours with --cgroup" if not sampler.finder.sure else "none runs"
    named = ", ".join(f"{job.group.job_id} ({job.group.scheduler})" for job in jobs[:_MANY])
    return f"{len(jobs)}: {named}{', …' if len(jobs) > _MANY else ''}"


def _threads_line(sample: Sample) -> Line:
    bound = sample.jobs.bindings
    if bound.distinguishable:
        how = sorted({job.cpus.how for job in sample.jobs.jobs if job.cpus.how})
        by = f", by {' and '.join(how)}" if how else ""
        return Line("threads told apart", True, f"{len(bound.jobs)} of {len(sample.cpus.cpus)} CPUs have a job{by}")
    loose = [job.group.job_id for job in sample.jobs.jobs if not job.cpus.how][:_MANY]
    return Line("threads told apart", False, bound.why + (f" ({', '.join(loose)})" if loose else ""))


def _slurm_lines(sampler: Sampler, jobs: list[Job]) -> list[Line]:
    """Slurm's layout, and what to change in its settings."""
    layout = find_layout(sampler.finder, jobs)
    if layout is None and not slurmd_runs(sampler.files):
        return []
    text = layout_text(layout) if layout else "slurmd runs, and has no cgroups for its jobs"
    advice = [Line(f"set in {name}", False, "; ".join(settings)) for name, settings in changes(layout).items()]
    return [Line("Slurm's cgroups", layout is not None, text), *advice]


def _rest(sampler: Sampler, missing: dict[str, str]) -> list[Line]:
    shown = {"threads told apart", "jobs", "pressure", *OFFERS}
    lines = [Line(what, False, why) for what, why in missing.items() if what not in shown]
    problems = {reason: count for reason, count in sampler.files.problems.items() if count}
    if problems:
        lines.append(Line("files", False, ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in problems.items())))
    return lines


def _plain(text: str) -> str:
    return "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in text)


class SlurmLayout(NamedTuple):
    """What of Slurm's is in the cgroups of a node."""

    folders: dict[str, set[str]]  # path -> the trees that have it
    jobs: list[Job]

    @property
    def trees(self) -> set[str]:
        """The trees in which Slurm has a folder."""
        return set().union(*self.folders.values())

    @property
    def kinds(self) -> list[str]:
        """`v1`, `v2` or both."""
        return [kind for kind, there in (("v1", self.trees - {"v2"}), ("v2", "v2" in self.trees)) if there]

    @property
    def nodes(self) -> list[str]:
        """The node names in the folders: only a build for several slurmd has them there."""
        matches = (_NODE.fullmatch(path) for path in self.folders)
        return sorted({match["v1"] or match["v2"] for match in matches if match})

    def offers(self, what: str) -> bool:
        """Whether jobs have something that OFFERS lists; while none runs, whether the controllers say that they would."""
        if self.jobs:
            return any(OFFERS[what] in job.figures for job in self.jobs)
        return bool(self.trees & ({"v2", "cpuacct"} if what == "cpu" else {"v2", "memory"}))

    @property
    def bound(self) -> bool:
        """Whether jobs are kept to their CPUs; while none runs, whether they would be, as far as that can be seen."""
        if self.jobs:
            return all(job.cpus.how for job in self.jobs)
        return bool(self.trees & {"v2", "cpuset"})


def find_layout(finder: Finder, jobs: list[Job]) -> SlurmLayout | None:
    """What of Slurm's is there; None where nothing is."""
    folders: dict[str, set[str]] = {}
    for tree, path in finder.folders("Slurm"):
        folders.setdefault(path, set()).add(tree)
    return SlurmLayout(folders, [job for job in jobs if job.group.scheduler == "Slurm"]) if folders else None


def layout_text(layout: SlurmLayout) -> str:
    """Where Slurm keeps its jobs, how many slurmd there are, and how the jobs are named."""
    folders = ", ".join(sorted(layout.folders)[:_NAMES_SHOWN])
    named = _names_text([job.group for job in layout.jobs])
    return f"cgroup {' and '.join(layout.kinds)} at {folders}; {_slurmd_text(layout)}" + (f"; {named}" if named else "")


def changes(layout: SlurmLayout | None) -> dict[str, list[str]]:
    """What to set so that the exporter sees more: file -> settings, each with what it is good for.

    Without a layout everything is to be set.
    """
    if layout is None:
        return _EVERYTHING
    slurm: list[str] = []
    cgroup: list[str] = []
    counted = [label for what, label in (("cpu", "CPU time"), ("memory", "memory")) if not layout.offers(what)]
    if counted:
        slurm.append(f"{ACCOUNT} ({' and '.join(counted)} of jobs)")
    if not layout.bound:
        slurm.append(f"{PLACE} ({_BOUND})")
        cgroup.append(f"{CORES} ({_BOUND})")
    if any(is_sluid(job.group.job_id) for job in layout.jobs):
        cgroup.append(f"{OLD_NAMES} (job ids; Slurm 26.05.2 or newer)")
    return {name: lines for name, lines in (("slurm.conf", slurm), ("cgroup.conf", cgroup)) if lines}


def slurmd_runs(files: Files) -> bool:
    """Whether a process is called slurmd: its jobs are somewhere, if not in cgroups."""
    try:
        with os.scandir(files.at("/proc")) as entries:
            processes = [entry.name for entry in entries if entry.name.isdigit()]
    except OSError:
        return False
    return any((files.read(files.at(f"/proc/{process}/comm")) or b"").strip() == b"slurmd" for process in processes)


def _slurmd_text(layout: SlurmLayout) -> str:
    nodes = layout.nodes
    if not nodes:
        return "one slurmd"
    shown = ", ".join(nodes[:_NAMES_SHOWN]) + (", …" if len(nodes) > _NAMES_SHOWN else "")
    return f"built for several slurmd, {len(nodes)} here: {shown}"


def _names_text(groups: list[JobGroup]) -> str:
    sluids = [group for group in groups if is_sluid(group.name.rpartition("/")[2])]
    unknown = sum(is_sluid(group.job_id) for group in sluids)
    parts = []
    if len(groups) > len(sluids):
        parts.append(f"{len(groups) - len(sluids)} named by job id")
    if len(sluids) > unknown:
        parts.append(f"{len(sluids) - unknown} named by SLUID, their job ids from the title of slurmstepd")
    if unknown:
        parts.append(f"{unknown} named by SLUID, their job ids unknown")
    return ", ".join(parts)
