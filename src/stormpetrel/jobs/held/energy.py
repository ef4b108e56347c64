"""The energy that jobs took: as accounting measured it, else estimated from what they held.

job frame + PowerModel -> with_energy -> the same frame with whole joules at the nodes, so that sums are exact.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from stormpetrel.jobs.held.core_seconds import core_seconds, elapsed_seconds, positive
from stormpetrel.records.doubts import doubted

_COLUMNS: Final = ("energy_j", "gpus", "req_gpus", "mem_bytes", "req_mem_bytes")
_GIB: Final = 2**30
_MOST: Final = float(2**53)  # joules of one job: beyond it a float is no longer exact


@dataclass(frozen=True, slots=True)
class PowerModel:
    """What is drawn by what a job holds, in watts at the node; `gpu_types` by the name that AllocTRES gives to a type.

    A measurement is of whole nodes. One that is above `shared_above` times the estimate is taken for that of nodes which others
    shared, and the estimate counts; 0 believes every measurement. docs/jobs says where the numbers come from.
    """

    watts_per_cpu: float = 6.0
    watts_per_gpu: float = 300.0
    watts_per_gib: float = 0.37
    gpu_types: Mapping[str, float] = field(default_factory=dict)
    shared_above: float = 3.0

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are needed, besides those of `core_seconds`."""
        return (*_COLUMNS, "alloc_tres") if self.gpu_types else _COLUMNS


def with_energy(jobs: pl.DataFrame, power: PowerModel) -> pl.DataFrame:
    """The jobs with `core_seconds`, `joules` and `measured_joules`, null where nobody knows what a job held.

    `measured_joules` are all of a job's or, where it is estimated, none. A job that ran for no time took none, whatever its nodes
    drew.
    """
    # Step by step, so that nothing is worked out twice for millions of jobs.
    held = jobs.with_columns(core_seconds())
    estimated = held.with_columns(_estimated=_estimated(power))
    measured = estimated.with_columns(measured_joules=_measured(power))
    whole = pl.coalesce("measured_joules", pl.col("_estimated").round().cast(pl.Int64, strict=False))
    known = pl.col("core_seconds").is_not_null()
    return measured.with_columns(
        joules=pl.when(known).then(whole), measured_joules=pl.when(known).then(pl.col("measured_joules").fill_null(0))
    ).drop("_estimated")


def _measured(power: PowerModel) -> pl.Expr:
    energy, estimated = pl.col("energy_j"), pl.col("_estimated")
    alone = (energy <= power.shared_above * estimated) | (estimated <= 0) if power.shared_above else pl.lit(True)
    believed = energy.is_between(1, _MOST) & ~doubted("energy_j") & alone & (pl.col("core_seconds") > 0)
    return pl.when(believed).then(energy)


def _estimated(power: PowerModel) -> pl.Expr:
    draw = _gpu_watts(power) + _gib() * power.watts_per_gib
    return (pl.col("core_seconds") * power.watts_per_cpu + elapsed_seconds().fill_null(0) * draw).clip(0.0, _MOST)


def _gpu_watts(power: PowerModel) -> pl.Expr:
    """What the GPUs of a job draw; those of a type that is not named draw what any GPU does."""
    watts = pl.coalesce(positive("gpus"), positive("req_gpus"), 0) * power.watts_per_gpu
    for name, of_type in power.gpu_types.items():
        count = pl.col("alloc_tres").str.extract(rf"(?i)gres/gpu:{re.escape(name)}=(\d{{1,9}})(?:,|$)")
        watts = watts + count.cast(pl.Float64, strict=False).fill_null(0.0) * (of_type - power.watts_per_gpu)
    return watts.clip(0.0)


def _gib() -> pl.Expr:
    return pl.coalesce(positive("mem_bytes"), positive("req_mem_bytes"), 0) / _GIB
