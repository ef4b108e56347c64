"""What this node offers, in words for an administrator: Sampler, Sample -> Check."""

from __future__ import annotations

from typing import NamedTuple

from stormpetrel.exporter.cpu_lists import format_cpu_list
from stormpetrel.exporter.sampler import OFFERS, Job, Sample, Sampler
from stormpetrel.exporter.slurm_layout import changes, find_layout, layout_text, slurmd_runs

_MANY = 8


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
