"""What a cluster has and allows: partitions, kinds of nodes, QOS, associations; and what a job asks of it.

No input, no output: `sources.slurm_cluster` reads them, `jobs.fit_to_cluster` compares them with a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

Counts = Mapping[str, int]  # trackable resources by Slurm's name: cpu, mem (bytes), node, gres/gpu, gres/gpu:a100, license/matlab
UP: Final = "UP"


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition and its limits; None where there is no limit, or where everybody is allowed."""

    name: str
    is_default: bool = False
    state: str = UP  # UP, DOWN, DRAIN or INACTIVE
    max_time_s: float | None = None
    max_nodes: int | None = None
    min_nodes: int = 0
    max_cpus_per_node: int | None = None
    max_mem_per_node_bytes: int | None = None
    allow_accounts: tuple[str, ...] | None = None
    deny_accounts: tuple[str, ...] = ()
    allow_qos: tuple[str, ...] | None = None
    deny_qos: tuple[str, ...] = ()
    qos: str | None = None  # whose limits hold for every job in the partition


@dataclass(frozen=True, slots=True)
class NodeKind:
    """Nodes that are alike: what each of them has, how many there are, and how many of them are in service."""

    cpus: int
    memory_bytes: int
    gpus: Counts = field(default_factory=dict)  # by type; "" for GPUs without one
    features: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    count: int = 1
    in_service: int = 1

    @property
    def all_gpus(self) -> int:
        """GPUs of one node, whatever their type."""
        return sum(self.gpus.values())


@dataclass(frozen=True, slots=True)
class Qos:
    """The limits of a quality of service; None and empty: no limit."""

    name: str
    max_wall_s: float | None = None
    max_per_job: Counts = field(default_factory=dict)
    max_per_node: Counts = field(default_factory=dict)
    min_per_job: Counts = field(default_factory=dict)
    max_per_user: Counts = field(default_factory=dict)
    max_per_account: Counts = field(default_factory=dict)
    max_in_all: Counts = field(default_factory=dict)  # of all its jobs together
    flags: tuple[str, ...] = ()  # as sacctmgr writes them: OverPartQOS, PartitionTimeLimit, …


@dataclass(frozen=True, slots=True)
class Association:
    """What a user may do in one account (and one partition, where it is named)."""

    account: str
    is_default: bool = False
    partition: str | None = None
    qos: tuple[str, ...] = ()
    default_qos: str | None = None
    max_wall_s: float | None = None
    max_per_job: Counts = field(default_factory=dict)
    max_per_node: Counts = field(default_factory=dict)
    max_in_all: Counts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Partitions, nodes and QOS of one cluster; `enforced` is what accounting insists on (None: not known)."""

    partitions: tuple[Partition, ...]
    nodes: tuple[NodeKind, ...] = ()
    qos: tuple[Qos, ...] | None = None  # None: not known
    enforced: tuple[str, ...] | None = None
    name: str | None = None
    names_default: bool = True  # newer slurmrestd does not say which partition is the default one
    updates_memory: bool = False  # sbatch --mem-update works: Slurm 26.05 or later, set up for it; False where nobody says

    def partition(self, name: str) -> Partition | None:
        """The partition of that name."""
        return next((partition for partition in self.partitions if partition.name == name), None)

    def default_partition(self) -> Partition | None:
        """Where a job goes that names no partition."""
        return next((partition for partition in self.partitions if partition.is_default), None)

    def find_qos(self, name: str | None) -> Qos | None:
        """The QOS of that name."""
        return next((qos for qos in self.qos or () if qos.name == name), None)

    def nodes_of(self, partition: str) -> tuple[NodeKind, ...]:
        """The kinds of nodes that a partition has."""
        return tuple(kind for kind in self.nodes if partition in kind.partitions)

    def enforces(self, what: str) -> bool:
        """Whether accounting insists on `associations`, `limits` or `qos`; limits that are set are taken to hold if unknown."""
        return self.enforced is None or what in self.enforced or ("safe" in self.enforced and what in ("limits", "associations"))


@dataclass(frozen=True, slots=True)
class ResourceRequest:
    """What one job asks of a cluster; None where that is not said. Totals are of the whole job."""

    partitions: tuple[str, ...] = ()
    account: str | None = None
    qos: str | None = None
    time_limit_s: float | None = None
    no_time_limit: bool = False  # it asks for none
    min_nodes: int | None = None
    max_nodes: int | None = None
    cpus: int | None = None
    cpus_per_task: int | None = None
    tasks_per_node: int | None = None
    mem_per_node_bytes: int | None = None
    mem_per_cpu_bytes: int | None = None
    mem_bytes: int | None = None
    gpus: int | None = None
    gpus_per_node: Counts = field(default_factory=dict)  # by type
    features: tuple[str, ...] = ()  # that every node must have

    @property
    def cpus_on_one_node(self) -> int:
        """CPUs that one node must have at least: a task is not split, and tasks may be tied to nodes."""
        return (self.cpus_per_task or 1) * (self.tasks_per_node or 1)

    @property
    def memory_on_one_node(self) -> int:
        """Memory that one node must have at least."""
        return max(self.mem_per_node_bytes or 0, (self.mem_per_cpu_bytes or 0) * self.cpus_on_one_node)

    @property
    def gpus_on_one_node(self) -> int:
        """GPUs that one node must have."""
        return sum(self.gpus_per_node.values())

    def totals(self) -> dict[str, int]:
        """What is requested in all, by Slurm's names, as far as it is known."""
        memory = self.mem_bytes
        if memory is None and self.mem_per_node_bytes is not None:
            memory = self.mem_per_node_bytes * (self.min_nodes or 1)
        if memory is None and self.mem_per_cpu_bytes is not None:
            memory = self.mem_per_cpu_bytes * (self.cpus or 1)
        totals = {"cpu": self.cpus, "node": self.min_nodes, "mem": memory, "gres/gpu": self.gpus}
        typed = {f"gres/gpu:{kind}": count * (self.min_nodes or 1) for kind, count in self.gpus_per_node.items() if kind}
        return {name: count for name, count in (totals | typed).items() if count}

    def on_each_node(self) -> dict[str, int]:
        """What is requested on one node, by Slurm's names, as far as it is known."""
        amounts = {"cpu": self.cpus_on_one_node, "mem": self.memory_on_one_node, "gres/gpu": self.gpus_on_one_node}
        return {name: count for name, count in amounts.items() if count}
