"""The energy that jobs took: as accounting measured it, else estimated from what they held.

job frame + PowerModel -> measured_joules, joules: whole joules at the nodes, so that sums are exact; COLUMNS says what is needed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from stormpetrel.jobs.held import core_seconds, elapsed_seconds, positive
from stormpetrel.records.doubts import doubted

COLUMNS: Final = ("energy_j", "gpus", "req_gpus", "mem_bytes", "req_mem_bytes")
_GIB: Final = 2**30
_MOST: Final = float(2**53)  # joules of one job: beyond it a float is no longer exact


@dataclass(frozen=True, slots=True)
class PowerModel:
    """What is drawn by what a job holds, in watts at the node; `gpu_types` by the name that AllocTRES gives to a type.

    docs/jobs says where the numbers come from.
    """

    watts_per_cpu: float = 6.0
    watts_per_gpu: float = 300.0
    watts_per_gib: float = 0.37
    gpu_types: Mapping[str, float] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that an estimate needs, besides those of `core_seconds`."""
        return (*COLUMNS, "alloc_tres") if self.gpu_types else COLUMNS


def measured_joules() -> pl.Expr:
    """The joules that accounting measured, 0 of a job that ran for no time; null where it did not, or in a way that is doubted."""
    believed = (pl.col("energy_j") > 0) & ~doubted("energy_j") & (pl.col("energy_j") <= _MOST)
    measured = pl.when(believed).then(pl.col("energy_j"))
    return pl.when(core_seconds() == 0).then(pl.lit(0, pl.Int64)).otherwise(measured).alias("measured_joules")


def joules(power: PowerModel) -> pl.Expr:
    """The joules that a job took, measured or estimated; null where nobody knows what it held (`core_seconds`)."""
    held = core_seconds()
    draw = _gpu_watts(power) + _gib() * power.watts_per_gib
    estimated = held * power.watts_per_cpu + elapsed_seconds().fill_null(0) * draw
    whole = estimated.clip(0.0, _MOST).round().cast(pl.Int64, strict=False)
    return pl.when(held.is_not_null()).then(pl.coalesce(measured_joules(), whole)).alias("joules")


def _gpu_watts(power: PowerModel) -> pl.Expr:
    """What the GPUs of a job draw; those of a type that is not named draw what any GPU does."""
    watts = pl.coalesce(positive("gpus"), positive("req_gpus"), 0) * power.watts_per_gpu
    for name, of_type in power.gpu_types.items():
        count = pl.col("alloc_tres").str.extract(rf"(?i)gres/gpu:{re.escape(name)}=(\d{{1,9}})(?:,|$)")
        watts = watts + count.cast(pl.Float64, strict=False).fill_null(0.0) * (of_type - power.watts_per_gpu)
    return watts.clip(0.0)


def _gib() -> pl.Expr:
    return pl.coalesce(positive("mem_bytes"), positive("req_mem_bytes"), 0) / _GIB
