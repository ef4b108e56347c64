"""The exporter as a whole: Node -> Exporter -> answers to /metrics and /healthz. Each scrape samples the node afresh.

Sample -> Exposition.text -> bytes in Prometheus' text format 0.0.4, written by hand and with joins: a node of 128 CPUs has a
thousand lines that differ only in their numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from stormpetrel import __version__
from stormpetrel.exporter.files import Files, format_cpu_list
from stormpetrel.exporter.proc_stat import MODES, TICKS_PER_SECOND, CpuSample
from stormpetrel.exporter.readings import NODE_FIGURES, NodeFigure
from stormpetrel.exporter.sampler import Job, Jobs, Node, Sample, Sampler
from stormpetrel.exporter.server import Routes, serving

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# name -> type, help; in the order in which they are written.
_CPU: Final = ("node_cpu_seconds_total", "counter", "Seconds the CPUs spent in each mode.")
JOB_FIGURES: Final = {
    "cgroup_cpu_user_seconds": ("counter", "CPU seconds of a job in user mode."),
    "cgroup_cpu_system_seconds": ("counter", "CPU seconds of a job in system mode."),
    "cgroup_cpu_total_seconds": ("counter", "CPU seconds of a job."),
    "cgroup_memory_rss_bytes": ("gauge", "Anonymous memory of a job."),
    "cgroup_memory_cache_bytes": ("gauge", "Page cache of a job, shared memory included."),
    "cgroup_memory_shmem_bytes": ("gauge", "Shared memory of a job: /dev/shm, tmpfs, shared mappings."),
    "cgroup_memory_used_bytes": ("gauge", "Memory of a job."),
    "cgroup_memory_total_bytes": ("gauge", "Memory that a job may use; no line: no limit."),
    "cgroup_pressure_cpu_waiting_seconds_total": ("counter", "Seconds in which some of a job's threads waited for a CPU."),
    "cgroup_pressure_cpu_stalled_seconds_total": ("counter", "Seconds in which all of a job's threads waited for a CPU."),
    "cgroup_pressure_memory_waiting_seconds_total": ("counter", "Seconds in which some of a job's threads waited for memory."),
    "cgroup_pressure_memory_stalled_seconds_total": ("counter", "Seconds in which all of a job's threads waited for memory."),
    "cgroup_pressure_io_waiting_seconds_total": (
        "counter",
        "Seconds in which some of a job's threads waited for input or output.",
    ),
    "cgroup_pressure_io_stalled_seconds_total": (
        "counter",
        "Seconds in which all of a job's threads waited for input or output.",
    ),
}


class Exporter:
    """Looks at a node and answers."""

    def __init__(self, node: Node) -> None:
        self.sampler = Sampler(node)
        self.first = self.sampler.sample()
        self._exposition = Exposition(__version__, self.sampler.hierarchies.kind, self.sampler.files)

    def text(self, sample: Sample) -> bytes:
        """A sample as Prometheus reads it."""
        return self._exposition.text(sample)

    @contextmanager
    def serving(self, address: str) -> Iterator[str]:
        """Answer while the block runs; yields the address of /metrics."""
        routes: Routes = {"/metrics": self._metrics, "/healthz": self._health}
        with serving(address, routes) as (host, port):
            yield f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"

    def summary(self) -> str:
        """What there is and what is missing, in one line."""
        jobs = self.first.jobs
        there = f"{len(self.first.cpus.cpus)} CPUs, cgroups {self.sampler.hierarchies.kind}, {len(jobs.jobs)} jobs"
        if not jobs.missing:
            return f"{there}. Nothing is missing."
        return f"{there}. Missing: {'; '.join(f'{what} ({why})' for what, why in jobs.missing)}. More: --check"

    def _metrics(self, _query: dict[str, str]) -> tuple[str, bytes]:
        return CONTENT_TYPE, self.text(self.sampler.sample())

    @staticmethod
    def _health(_query: dict[str, str]) -> tuple[str, bytes]:
        return "text/plain; charset=utf-8", b"ok\n"


def label(text: str) -> str:
    r"""A label's value, quoted as the format asks for; bytes that are no text are shown as text.

    >>> print(label('a"b'))
    "a\"b"
    """
    known = text.encode("utf-8", "backslashreplace").decode("utf-8")
    escaped = known.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


class Exposition:
    """Writes samples as text; remembers the words that stay the same from one to the next."""

    def __init__(self, version: str, kind: str, files: Files) -> None:
        self._files = files
        self._about = _family("stormpetrel_exporter_info", "gauge", "Which exporter, and which cgroups it found.") + (
            f"stormpetrel_exporter_info{{version={label(version)},cgroup={label(kind)}}} 1\n"
        )
        self._cpus: tuple[int, ...] = ()
        self._template = ""

    def text(self, sample: Sample) -> bytes:
        """What /metrics answers."""
        parts = [
            self._cpu_lines(sample.cpus),
            *_node_lines(sample.node),
            *self._job_lines(sample.jobs),
            self._thread_lines(sample.jobs),
            self._own_lines(sample),
        ]
        return "".join(parts).encode("utf-8")

    def _cpu_lines(self, sample: CpuSample) -> str:
        if sample.cpus != self._cpus:
            lines = (f'node_cpu_seconds_total{{cpu="{cpu}",mode="{mode}"}} %r\n' for cpu in sample.cpus for mode in MODES)
            self._cpus, self._template = sample.cpus, _family(*_CPU) + "".join(lines)
        return self._template % tuple([ticks / TICKS_PER_SECOND for ticks in sample.ticks])

    def _job_lines(self, jobs: Jobs) -> list[str]:
        if not jobs.jobs:
            return []
        names = [label(job.group.name) for job in jobs.jobs]
        parts = []
        for figure, (kind, text) in JOB_FIGURES.items():
            lines = [
                f"{figure}{{cgroup={name}}} {job.figures[figure]!r}\n"
                for name, job in zip(names, jobs.jobs)  # noqa: B905 - Python 3.9 has no strict
                if figure in job.figures
            ]
            if lines:
                parts += [_family(figure, kind, text), *lines]
        parts.append(_family("cgroup_cpus", "gauge", "CPUs on which a job may run."))
        parts += [f"cgroup_cpus{{cgroup={name}}} {len(job.cpus.cpus)}\n" for name, job in zip(names, jobs.jobs)]  # noqa: B905
        parts.append(_family("cgroup_cpu_info", "gauge", "Which CPUs those are."))
        parts += [_cpu_info(name, job) for name, job in zip(names, jobs.jobs)]  # noqa: B905
        parts.append(_family("cgroup_info", "gauge", "Whose job a cgroup is."))
        parts += [_info(name, job) for name, job in zip(names, jobs.jobs)]  # noqa: B905
        return parts

    def _thread_lines(self, jobs: Jobs) -> str:
        distinct, bound = jobs.bindings.distinguishable, jobs.bindings.jobs
        parts = [_family("stormpetrel_thread_job_info", "gauge", "Which job is bound to which CPU.")] if bound else []
        parts += [f'stormpetrel_thread_job_info{{cpu="{cpu}",jobid={label(bound[cpu])}}} 1\n' for cpu in sorted(bound)]
        parts.append(_family("stormpetrel_threads_told_apart", "gauge", "1 if a CPU without a job is known to have none."))
        parts.append(f"stormpetrel_threads_told_apart {int(distinct)}\n")
        return "".join(parts)

    def _own_lines(self, sample: Sample) -> str:
        parts = [self._about]
        if sample.jobs.missing:
            parts.append(_family("stormpetrel_exporter_missing_info", "gauge", "What this node does not offer."))
            parts += [
                f"stormpetrel_exporter_missing_info{{what={label(what)},why={label(why)}}} 1\n"
                for what, why in sample.jobs.missing
            ]
        parts.append(_family("stormpetrel_exporter_read_problems_total", "counter", "Files that could not be read, by reason."))
        parts += [
            f'stormpetrel_exporter_read_problems_total{{reason="{reason}"}} {count}\n'
            for reason, count in self._files.problems.items()
        ]
        parts.append(_family("stormpetrel_sample_duration_seconds", "gauge", "How long the node was read for this sample."))
        parts.append(f"stormpetrel_sample_duration_seconds {sample.seconds:.6f}\n")
        parts.append(_family("stormpetrel_sample_time_seconds", "gauge", "Unix time at which the CPU counters were read."))
        parts.append(f"stormpetrel_sample_time_seconds {sample.cpus.time_s:.6f}\n")
        return "".join(parts)


def _node_lines(figures: list[NodeFigure]) -> list[str]:
    """The figures of the node, which come in the order of their families."""
    parts: list[str] = []
    before = ""
    for figure in figures:
        if figure.name != before:
            parts.append(_family(figure.name, *NODE_FIGURES[figure.name]))
            before = figure.name
        device = f"{{device={label(figure.device)}}}" if figure.device else ""
        parts.append(f"{figure.name}{device} {figure.value!r}\n")
    return parts


def _family(name: str, kind: str, text: str) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def _cpu_info(name: str, job: Job) -> str:
    return f'cgroup_cpu_info{{cgroup={name},cpus="{format_cpu_list(job.cpus.cpus)}"}} 1\n'


def _info(name: str, job: Job) -> str:
    uid = "" if job.uid is None else str(job.uid)
    return f'cgroup_info{{cgroup={name},jobid={label(job.group.job_id)},uid="{uid}",username={label(job.username)}}} 1\n'
