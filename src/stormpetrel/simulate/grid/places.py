"""Where the events of a simulated grid happened: each hour's counts, split over submit hosts, sites, groups and nodes.

counts (hours, kinds) -> split_over_places -> place -> (values, counts (hours, kinds, values)). Computed when asked for, a day
at a time, each day from a random stream of its own: an hour's split is the same whatever else is requested.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from stormpetrel.errors import UsageError
from stormpetrel.records.arrays import Floats, Ints
from stormpetrel.simulate.grid.outages import AFTERMATH_HOURS, PlannedOutage
from stormpetrel.simulate.grid.spec import GridSpec

PlacedCounts = tuple[tuple[str, ...], Ints]  # the names of the values, and (hours, kinds, values)

_BLOCK_HOURS: Final = 24
_WITHOUT_NODE: Final = ("Submit", "JobRelease")  # the job waits: no node knows it
# Which place an outage sits at, and how much of its change lies there.
FOCUS: Final[dict[str, tuple[str, float]]] = {
    "node_collapse": ("site", 0.92),
    "submit_unresponsive": ("submit_host", 0.95),
    "disconnect_storm": ("submit_host", 0.90),
    "black_hole": ("node", 0.96),
    "slow_storage": ("group", 0.80),
}


@dataclass(frozen=True, slots=True, eq=False)
class _Map:
    """Who is where on the grid."""

    site_of: Ints  # (nodes,)
    node_weight: Floats  # (nodes,) share of the slots
    owned: Floats  # (nodes,) 1 where the owner may take the node back
    host_of: Floats  # (groups, hosts) where a group submits
    period_h: Floats  # (nodes,) how slowly the weight changes
    phase: Floats  # (nodes,)


def split_over_places(
    spec: GridSpec, counts: Floats, by_group: Ints, plan: Sequence[PlannedOutage], first: int, last: int
) -> dict[str, PlacedCounts]:
    """Where the events of some hours happened; see SimulatedGrid.places."""
    if not 0 <= first < last <= len(counts):
        raise UsageError(f"The hours {first} to {last} are not among the {len(counts)} of this grid.")
    names, grid_map = place_names(spec), _map(spec)
    blocks = range(first // _BLOCK_HOURS, (last - 1) // _BLOCK_HOURS + 1)
    parts = [_block(spec, grid_map, counts, by_group, plan, block) for block in blocks]
    begin = first - blocks[0] * _BLOCK_HOURS
    whole = {place: np.concatenate([part[place] for part in parts]) for place in names}
    return {place: (names[place], whole[place][begin : begin + last - first]) for place in names}


def place_names(spec: GridSpec) -> dict[str, tuple[str, ...]]:
    """The names of all sites, submit hosts, groups and nodes."""
    sites = tuple(f"site-{number + 1:02d}" for number in range(spec.sites))
    site_of = _map(spec).site_of
    return {
        "site": sites,
        "submit_host": tuple(f"schedd-{number + 1}" for number in range(spec.hosts)),
        "group": tuple(f"group-{number + 1:02d}" for number in range(spec.groups)),
        "node": tuple(f"node{number + 1:04d}.{sites[site]}" for number, site in enumerate(site_of)),
    }


def focus_of(spec: GridSpec, planned: PlannedOutage) -> tuple[str, str]:
    """At which place an outage sits, and where there, such as ("submit_host", "schedd-2"); two empty words where at none."""
    focus, _ = FOCUS.get(planned.outage_type, ("", 0.0))
    if not focus:
        return "", ""
    grid_map = _map(spec)
    chosen = int(np.argmax(_chosen(spec, grid_map, planned, focus)))
    return focus, place_names(spec)[focus][int(grid_map.site_of[chosen]) if focus == "site" else chosen]


def _map(spec: GridSpec) -> _Map:
    rng = spec.stream("places")
    size = 1 / (np.arange(spec.sites) + 2.0)
    spare = spec.nodes - spec.sites  # every site has one node at least
    site_of = np.sort(np.concatenate([np.arange(spec.sites), rng.choice(spec.sites, spare, p=size / size.sum())]))
    weight = rng.choice([16.0, 32.0, 48.0, 64.0, 96.0], spec.nodes)
    owned = (rng.random(spec.sites) < 0.4).astype(float)
    owned[-1] = 1.0
    host_of = rng.dirichlet(np.full(spec.hosts, 0.6), spec.groups) * 0.9 + 0.1 / spec.hosts
    return _Map(
        site_of,
        weight / weight.sum(),
        owned[site_of],
        host_of,
        rng.uniform(200, 1500, spec.nodes),
        rng.uniform(0, 2 * np.pi, spec.nodes),
    )


def _block(
    spec: GridSpec, grid_map: _Map, counts: Floats, by_group: Ints, plan: Sequence[PlannedOutage], block: int
) -> dict[str, Ints]:
    """One day: (hours, kinds, values) of each place."""
    rng = spec.stream("places", 1 + block)
    rows = np.arange(block * _BLOCK_HOURS, min((block + 1) * _BLOCK_HOURS, len(counts)))
    after = np.nan_to_num(counts[rows]).astype(np.int64)  # (hours, kinds)
    groups = by_group[rows].astype(np.float64)  # (hours, kinds, groups), calm
    calm = groups.sum(axis=2)
    usual = {
        "group": _normal(groups),
        "submit_host": _normal(groups) @ grid_map.host_of,
        "node": _node_weights(spec, grid_map, rows),
    }
    placed = {}
    for place, weights in usual.items():
        expected = calm[:, :, None] * weights
        change = (after - calm)[:, :, None] * _where(spec, grid_map, plan, place, weights, rows)
        # Where more is missing than there was, the rest is missing elsewhere.
        wanted = np.maximum(expected + change, 0.02 * expected)
        placed[place] = rng.multinomial(after, _normal(wanted))
    placed["group"] = np.where((after == calm)[:, :, None], by_group[rows], placed["group"])
    for kind in _WITHOUT_NODE:
        if kind in spec.kinds:
            placed["node"][:, spec.kinds.index(kind)] = 0
    sites = np.zeros((len(rows), len(spec.kinds), spec.sites), dtype=np.int64)
    for site in range(spec.sites):
        sites[:, :, site] = placed["node"][:, :, grid_map.site_of == site].sum(axis=2)
    return {"site": sites, **placed}


def _normal(weights: Floats) -> Floats:
    """Weights that sum to one over the last axis; even ones where there are none."""
    whole = weights.sum(axis=-1, keepdims=True)
    even = 1.0 / weights.shape[-1]
    shares: Floats = np.where(whole > 0, weights / np.where(whole > 0, whole, 1.0), even)
    return shares


def _node_weights(spec: GridSpec, grid_map: _Map, rows: Ints) -> Floats:
    """(hours, kinds, nodes) the share of each node; evictions come from nodes with an owner."""
    swing = np.exp(0.25 * np.sin(2 * np.pi * rows[:, None] / grid_map.period_h + grid_map.phase))
    weights = np.repeat((grid_map.node_weight * swing)[:, None, :], len(spec.kinds), axis=1)
    if "JobEvicted" in spec.kinds:
        weights[:, spec.kinds.index("JobEvicted")] *= 0.03 + grid_map.owned
    return _normal(weights)


def _where(spec: GridSpec, grid_map: _Map, plan: Sequence[PlannedOutage], place: str, weights: Floats, rows: Ints) -> Floats:
    """(hours, kinds, values) how the change that an outage makes is spread: most of it at one value, where it has one."""
    spread = weights.copy()
    for outage in plan:
        here = (rows >= outage.first) & (rows < outage.last + AFTERMATH_HOURS)
        focus, share = FOCUS.get(outage.outage_type, ("", 0.0))
        if not here.any() or place != ("node" if focus == "site" else focus):
            continue
        chosen = _chosen(spec, grid_map, outage, focus)  # (values,) bool
        at_focus = _normal(spread[here] * chosen)
        spread[here] = share * at_focus + (1 - share) * spread[here]
    return spread


def _chosen(spec: GridSpec, grid_map: _Map, outage: PlannedOutage, focus: str) -> Floats:
    """(values,) the value at which an outage sits: all nodes of a site, one node, one host, one group."""
    rng = np.random.default_rng(outage.seed)
    if focus == "site":
        sizes = np.bincount(grid_map.site_of, grid_map.node_weight, spec.sites)
        return np.asarray(grid_map.site_of == rng.choice(spec.sites, p=sizes / sizes.sum()), dtype=np.float64)
    values = {"submit_host": spec.hosts, "group": spec.groups, "node": spec.nodes}[focus]
    return np.asarray(np.arange(values) == rng.integers(values), dtype=np.float64)
