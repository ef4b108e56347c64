"""Resource requirements and hosts as LSF writes them -> memory, nodes and GPUs of the whole job.

`span[ptile=16] rusage[mem=4000]`, `"16*n1" "16*n2"`, `220 Mbytes` -> counts and bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from stormpetrel.sources.job_rows import MIB, times, whole

_MOST_LETTERS: Final = 8192
_USAGE: Final = re.compile(r"\brusage\s*\[([^\]]*)\]")
_SPAN: Final = re.compile(r"\bspan\s*\[\s*(hosts|ptile)\s*=\s*(\d{1,9})\s*\]", re.ASCII)
_AMOUNT: Final = re.compile(r"(\d{1,18}(?:\.\d{0,9})?)([KMGTPE]?)B?(?:/(job|host|task|slot))?", re.ASCII | re.IGNORECASE)
_SIZE: Final = re.compile(r"(\d{1,18}(?:\.\d{0,9})?)\s*([KMGTPE]?)(?:bytes|iB|B)?", re.ASCII | re.IGNORECASE)
_MANY: Final = re.compile(r"(\d{1,9})\*(\S+)", re.ASCII)
_POWERS: Final = {"K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_GPUS: Final = ("ngpus_physical", "ngpus_excl_p", "ngpus_excl_t", "ngpus_shared", "ngpus")


@dataclass(frozen=True, slots=True)
class Placement:
    """The hosts a job ran on, each once and in order, and how many slots it had on all of them."""

    hosts: tuple[str, ...] = ()
    slots: int | None = None

    @property
    def nodes(self) -> int | None:
        """How many hosts; None where there is no list."""
        return len(self.hosts) or None


def placement(names: Sequence[str]) -> Placement:
    """The hosts of a list with one entry a slot (`n1 n1 n2`) or with counts (`2*n1 n2`)."""
    slots, hosts = 0, dict[str, None]()
    for name in names:
        match = _MANY.fullmatch(name)
        slots += int(match[1]) if match else 1
        hosts[match[2] if match else name] = None
    return Placement(tuple(hosts), slots if 0 < slots < 2**31 else None)


@lru_cache(maxsize=4096)  # requirements repeat
def memory_bytes(requirement: str, *, hosts: int, tasks: int, unit: int = MIB) -> int | None:
    """The memory that a requirement reserves, of the whole job: of each host unless it says `/task` or `/job`.

    `unit` is what a number without a unit is counted in. None where nothing is reserved or each part of the job asks for its own.
    """
    return _total(_reserved(requirement, ("mem",)), hosts, tasks, unit)


@lru_cache(maxsize=4096)
def gpu_count(requirement: str, *, hosts: int, tasks: int) -> int | None:
    """The GPUs that a requirement reserves, of the whole job."""
    return _total(_reserved(requirement, _GPUS), hosts, tasks, 1) or None


@lru_cache(maxsize=4096)
def requested_hosts(requirement: str, slots: int | None) -> int | None:
    """The hosts that `span[…]` asks for; None where it leaves them open."""
    match = _SPAN.search(requirement[:_MOST_LETTERS])
    number = int(match[2]) if match else 0
    if not match or not number:
        return None
    if match[1] == "hosts":
        return number if number == 1 else None
    return None if slots is None else -(-slots // number)


@lru_cache(maxsize=4096)
def size_bytes(written: str, unit: int = 1) -> int | None:
    """A size (`5M`, `3.2G`, `220 Mbytes`, `25600.00 MB`) as bytes; a number alone counts in `unit`."""
    match = _SIZE.fullmatch(written.strip())
    return times(float(match[1]), 1024 ** _POWERS[match[2].upper()] if match[2] else unit) if match else None


def _reserved(requirement: str, names: tuple[str, ...]) -> str | None:
    """The text of the first amount of one of some resources; of alternatives (`||`) the first."""
    requirement = requirement[:_MOST_LETTERS]
    if "{" in requirement:
        return None
    for usage in _USAGE.finditer(requirement):
        entries = re.split(r"[:,]", usage[1].partition("||")[0])
        amounts = {name.strip(): value.strip() for name, _, value in (entry.partition("=") for entry in entries)}
        if amount := next((amounts[name] for name in names if amounts.get(name)), None):
            return amount
    return None


def _total(amount: str | None, hosts: int, tasks: int, unit: int) -> int | None:
    match = _AMOUNT.fullmatch(amount) if amount else None
    if not match:
        return None
    number, scale, of_each = match.groups()
    many = {"job": 1, "task": tasks, "slot": tasks}.get((of_each or "").lower(), hosts)
    return whole(times(times(float(number), 1024 ** _POWERS[scale.upper()] if scale else unit), many))
