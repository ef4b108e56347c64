"""Who uses the cluster, and with what: applications whose needs grow with their input, users with habits.

ClusterSpec, seed -> make_population -> Population.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from statistics import NormalDist
from typing import Final

from stormpetrel.simulate.spec import DAY_S, MIB_PER_GIB, ClusterSpec


@dataclass(frozen=True, slots=True)
class Application:
    """A program: what it needs at an input of size 1, and how that grows with the input.

    `nodes` > 0: it takes whole nodes. `cpu_share` is the part of its cores it keeps busy, `system_share` the part of that spent
    in the kernel, `io_mib_s` what it reads and writes.
    """

    name: str
    cores: int
    nodes: int
    run_s: float
    run_power: float
    mem_mib: float
    mem_power: float
    crash_rate: float
    cpu_share: float
    system_share: float
    io_mib_s: float


@dataclass(frozen=True, slots=True)
class User:
    """A person with habits.

    `skill` (0 to 1) is how well requests fit and how seldom the code is broken; `retries` the chance that a failed job is
    submitted again; `burst_share` the share of submissions that are many jobs at once, `array_share` the share of those that
    are an array; `favourites` the applications, most used first; people
    come and go: of every `spell_s` seconds, begun at `phase` (0 to 1), the user works here for the share `present`.
    """

    number: int
    name: str
    uid: int
    group: str
    gid: int
    account: str
    skill: float
    favourites: tuple[int, ...]
    work_begins_h: float
    work_hours: float
    weekend: float
    sessions_per_week: float
    rounds_per_session: float
    burst_share: float
    burst_size: float
    array_share: float
    retries: float
    present: float
    spell_s: float
    phase: float


@dataclass(frozen=True, slots=True)
class Population:
    """The users of a site and the applications they run."""

    applications: tuple[Application, ...]
    users: tuple[User, ...]


# name: cores on one node (0: whole nodes), nodes as a power of the cluster's, hours, its power, GiB per core, its power,
# crash rate, CPU share, system share, MiB/s
_CATALOGUE: Final = (
    ("test", 1, 0.0, 0.02, 0.3, 0.5, 0.3, 0.10, 0.60, 0.20, 1.0),
    ("fit", 2, 0.0, 0.6, 1.0, 1.5, 0.5, 0.03, 0.97, 0.02, 0.5),
    ("montecarlo", 1, 0.0, 2.5, 1.2, 0.8, 0.2, 0.02, 0.99, 0.01, 0.1),
    ("preproc", 2, 0.0, 0.12, 1.0, 3.0, 0.8, 0.05, 0.55, 0.25, 60.0),
    ("align", 8, 0.0, 1.0, 1.1, 1.8, 0.7, 0.03, 0.85, 0.05, 30.0),
    ("train", 8, 0.0, 4.0, 1.2, 2.5, 0.6, 0.06, 0.70, 0.08, 20.0),
    ("render", 16, 0.0, 0.4, 1.0, 0.8, 0.5, 0.02, 0.95, 0.02, 5.0),
    ("chem", 16, 0.0, 3.0, 1.6, 2.5, 0.9, 0.04, 0.92, 0.04, 8.0),
    ("assemble", 4, 0.0, 2.5, 1.3, 7.0, 1.1, 0.05, 0.75, 0.10, 40.0),
    ("dynamics", 0, 0.15, 2.5, 1.1, 0.5, 0.4, 0.03, 0.97, 0.02, 2.0),
    ("lattice", 0, 0.3, 2.0, 1.3, 1.2, 0.8, 0.04, 0.96, 0.03, 4.0),
    ("flow", 0, 0.42, 0.8, 1.4, 1.5, 0.8, 0.06, 0.93, 0.05, 10.0),
)
_SYLLABLES: Final = "an be chi do el fa gi ho im jo ka li mo na ol pe qui ra si to um va wen xi yo zu".split()
_FIRST_UID: Final = 4000
_FIRST_GID: Final = 600


def make_population(spec: ClusterSpec, seed: int) -> Population:
    """The users and applications of a site; the same for the same spec and seed."""
    rng = Random(f"{seed}/population")  # noqa: S311 - a simulation, not a secret
    applications = tuple(_application(entry, spec) for entry in _CATALOGUE)
    labs = max(2, round(spec.user_count / 8))
    # Ranks instead of independent draws: how unevenly the work is spread is a trait of sites, not an accident of the seed.
    count = spec.user_count
    ranks = rng.sample(range(count), count)
    users = tuple(_user(rng, number, labs, (rank + 0.5) / count) for number, rank in enumerate(ranks))
    return Population(applications, users)


def _application(
    entry: tuple[str, int, float, float, float, float, float, float, float, float, float], spec: ClusterSpec
) -> Application:
    name, cores, width, hours, run_power, gib_per_core, mem_power, crash_rate, cpu_share, system_share, io_mib_s = entry
    whole = cores == 0
    nodes = min(max(1, round(spec.nodes**width)), max(1, spec.nodes // 2)) if whole else 0
    held = spec.cores_per_node if whole else min(cores, spec.cores_per_node)
    return Application(
        name=name,
        cores=held,
        nodes=nodes,
        run_s=hours * 3600,
        run_power=run_power,
        mem_mib=min(gib_per_core * held * MIB_PER_GIB, spec.mem_per_node_mib * 0.6),
        mem_power=mem_power,
        crash_rate=crash_rate,
        cpu_share=cpu_share,
        system_share=system_share,
        io_mib_s=io_mib_s,
    )


def _user(rng: Random, number: int, labs: int, activity: float) -> User:
    lab = min(int(rng.expovariate(2.5 / labs)), labs - 1)  # a few large groups, many small ones
    return User(
        number=number,
        name=_name(rng, number),
        uid=_FIRST_UID + number,
        group=f"lab{lab + 1:02d}",
        gid=_FIRST_GID + lab,
        account=f"p{lab + 1:02d}{'ab'[rng.random() < 0.3]}",
        skill=rng.betavariate(2.6, 1.1),
        favourites=_favourites(rng),
        work_begins_h=rng.gauss(8.5, 1.5),
        work_hours=rng.uniform(6.0, 12.0),
        weekend=rng.betavariate(1.4, 1.6),
        # Activity is very uneven among people: most of a log comes from a few of them.
        sessions_per_week=math.exp(0.6 + 1.5 * NormalDist().inv_cdf(activity)),
        rounds_per_session=min(rng.lognormvariate(1.4, 0.6), 25.0),
        burst_share=rng.betavariate(0.8, 10.0),
        burst_size=min(rng.lognormvariate(1.3, 0.7), 40.0),
        array_share=rng.betavariate(0.7, 2.5),
        retries=rng.betavariate(2.0, 3.0),
        # Half of the people are there throughout; the others come for a project and leave again.
        present=1.0 if rng.random() < 0.5 else rng.uniform(0.1, 0.6),
        spell_s=rng.uniform(60.0, 400.0) * DAY_S,
        phase=rng.random(),
    )


def _favourites(rng: Random) -> tuple[int, ...]:
    count = rng.choice((1, 2, 2, 3, 4))
    # Wide applications stand last in the catalogue, and fewer people use them.
    keys = {number: rng.random() ** (1.0 if _CATALOGUE[number][1] else 2.2) for number in range(1, len(_CATALOGUE))}
    chosen = sorted(keys, key=keys.__getitem__, reverse=True)[:count]
    return (*chosen, 0) if rng.random() < 0.5 else tuple(chosen)


def _name(rng: Random, number: int) -> str:
    word = rng.choice(_SYLLABLES) + rng.choice(_SYLLABLES)
    return f"{word}{number:03d}"
