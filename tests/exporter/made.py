"""Nodes that are not there: a folder with /proc and /sys/fs/cgroup as the kernel would show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from stormpetrel.exporter.exporter import Exposition
from stormpetrel.exporter.sampler import Node, Sample, Sampler

SLURM = "system.slice/slurmstepd.scope"
CONDOR = "htcondor/condor_var_lib_condor_execute_slot1_1@node7.example.org"
PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total={some}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total={full}\n"
Rows = Mapping[int, Iterable[int]]


class FakeNode:
    """A node under a folder; files are written in place, as the kernel's change in place."""

    def __init__(self, root: Path, *, cpus: int = 4, kind: str = "v2", psi: bool = True) -> None:
        self.root, self.kind = root, kind
        self.top = root / "sys/fs/cgroup"
        self.v2 = self.top / "unified" if kind == "hybrid" else self.top
        self.stat({cpu: [1000 * (cpu + 1), 10, 500, 90_000, 70, 0, 5, 3] for cpu in range(cpus)})
        if psi:
            self.write("proc/pressure/cpu", PRESSURE.format(some=1, full=0))
        self.top.mkdir(parents=True, exist_ok=True)
        if kind in ("v2", "hybrid"):
            self.put(self.v2, {"cgroup.controllers": "cpuset cpu io memory pids\n" if kind == "v2" else "\n"})
        if kind in ("v1", "hybrid"):
            self.put(self.top / "cpuset", {"cpuset.cpus": f"0-{cpus - 1}\n"})
            self.put(self.top / "cpu,cpuacct", {"cpuacct.usage": "1\n"})
            (self.top / "cpuacct").symlink_to("cpu,cpuacct")
            self.put(self.top / "memory", {"memory.stat": "total_rss 1\n"})

    def write(self, path: str, text: str) -> None:
        """Write a file of the node."""
        self.put(self.root / Path(path).parent, {Path(path).name: text})

    @staticmethod
    def put(folder: Path, files: Mapping[str, str]) -> None:
        """Write files into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text)

    def stat(self, rows: Rows, *, guest: str = " 0 0", interrupts: int = 300) -> None:
        """Write /proc/stat: eight counters per CPU."""
        lines = [f"cpu{cpu} {' '.join(map(str, row))}{guest}" for cpu, row in rows.items()]
        total = [sum(column) for column in zip(*rows.values(), strict=True)]
        head = f"cpu  {' '.join(map(str, total))}{guest}\n"
        tail = f"intr 99 {'0 ' * interrupts}\nctxt 5\nbtime 1700000000\nsoftirq 3 1 2\n"
        self.write("proc/stat", head + "\n".join(lines) + "\n" + tail)

    def devices(self) -> FakeNode:
        """Pressure, memory, a disk with a partition, a network with hardware and one without."""
        for kind, some in {"memory": 3_000_000, "io": 1_500_000}.items():
            self.write(f"proc/pressure/{kind}", PRESSURE.format(some=some, full=250_000))
        self.write("proc/meminfo", "MemTotal:       16000 kB\nMemFree:         1000 kB\nMemAvailable:    4000 kB\n")
        disk = "1 2 3 4 5 6 7 8 9 2500 11 0 0"
        self.write("proc/diskstats", f"   8 0 sda {disk}\n   8 1 sda1 {disk}\n   7 0 loop0 {disk}\n")
        eth0, veth1 = "  eth0: 1000 1 0 0 0 0 0 0 500 1 0 0 0 0 0 0", "  veth1: 7 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0"
        self.write("proc/net/dev", f"Inter-|   Receive    |  Transmit\n face |bytes packets|bytes\n{eth0}\n{veth1}\n")
        self.write("sys/class/net/eth0/device/vendor", "0x8086\n")
        for device in ("eth0", "veth1"):
            self.write(f"sys/class/net/{device}/speed", "10000\n")
        return self

    def process(self, number: int, *, uid: int = 1000, cpus: str = "0-3", title: str = "") -> int:
        """A process with its owner, the CPUs it may use, and its command line."""
        self.write(f"proc/{number}/status", f"Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nCpus_allowed_list:\t{cpus}\n")
        self.write(f"proc/{number}/cmdline", title)
        return number

    def stepd(self, path: str, title: str, number: int = 900, *, step: str = "batch", uid: int = 0) -> None:
        """The slurmstepd of a step, in the place that cgroup v2 has for it."""
        self.put(self.v2 / path / f"step_{step}/slurm", {"cgroup.procs": f"{self.process(number, uid=uid, title=title)}\n"})

    def job(self, path: str, *, cpus: str | None = None, own: bool = True, threads: Iterable[int] = (), leaf: str = "") -> Path:
        """The cgroup of a job in the v2 tree, with everything that the kernel can count."""
        folder = self.v2 / path
        files = {
            "cpu.stat": "usage_usec 3500000\nuser_usec 3000000\nsystem_usec 500000\nnr_periods 0\n",
            "memory.current": "4096000\n",
            "memory.max": "8192000\n",
            "memory.stat": "anon 1000\nfile 2000\nkernel 3000\nshmem 1500\n",
            "cpu.pressure": PRESSURE.format(some=2_000_000, full=0),
            "memory.pressure": PRESSURE.format(some=30, full=20),
            "io.pressure": PRESSURE.format(some=1_500_000, full=500_000),
        }
        if self.kind == "hybrid":
            files = {name: text for name, text in files.items() if not name.startswith("memory.c")}
        if cpus is not None:
            files |= {"cpuset.cpus.effective": f"{cpus}\n", "cpuset.cpus": f"{cpus if own else ''}\n"}
        self.put(folder, files)
        self.put(folder / leaf, {"cgroup.threads": "".join(f"{thread}\n" for thread in threads)})
        return folder

    def job_v1(self, path: str, *, cpus: str = "", threads: Iterable[int] = ()) -> None:
        """The cgroups of a job in the trees of v1."""
        tasks = {"tasks": "".join(f"{thread}\n" for thread in threads)}
        self.put(
            self.top / "cpu,cpuacct" / path, {"cpuacct.usage": "7500000000\n", "cpuacct.stat": "user 600\nsystem 150\n", **tasks}
        )
        memory = {"memory.usage_in_bytes": "5000\n", "memory.limit_in_bytes": "9223372036854771712\n"}
        self.put(
            self.top / "memory" / path,
            {**memory, "memory.stat": "rss 1\nshmem 2\ntotal_rss 30\ntotal_cache 40\ntotal_shmem 20\n", **tasks},
        )
        if cpus:
            self.put(self.top / "cpuset" / path, {"cpuset.cpus": f"{cpus}\n", "cpuset.effective_cpus": f"{cpus}\n", **tasks})

    def node(self, **options: object) -> Node:
        """How the exporter is told to look at it."""
        return Node(root=str(self.root), **options)

    def sampler(self, **options: object) -> Sampler:
        """A sampler of this node."""
        return Sampler(self.node(**options))


def text_of(sampler: Sampler, sample: Sample | None = None) -> str:
    """What /metrics would answer."""
    exposition = Exposition("0", sampler.hierarchies.kind, sampler.files)
    return exposition.text(sample or sampler.sample()).decode()


def figures_of(text: str) -> dict[tuple[str, ...], float]:
    """What Prometheus' own parser reads: (name, label values in order of label names) -> value; a series comes only once."""
    found: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            # The parser gives every counter the ending that OpenMetrics asks for; cgroup_exporter's names have none.
            name = (
                sample.name if f"{sample.name}{{" in text or f"\n{sample.name} " in text else sample.name.removesuffix("_total")
            )
            key = (name, *(value for _, value in sorted(sample.labels.items())))
            assert key not in found
            found[key] = sample.value
    return found
