"""Settings of energy: what is drawn by what jobs hold, where nobody measured it, and what a kilowatt-hour means at the site."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field, field_validator

from stormpetrel.config.servers import Section

_MOST_WATTS = 10_000.0


class EnergySection(Section):
    """Kilowatt-hours in the waste ledger: measured where Slurm measures them, estimated elsewhere."""

    watts_per_cpu: float = Field(
        default=6.0, ge=0, le=1000, description="what a CPU of Slurm draws in a job, with its part of board, fans and supply"
    )
    watts_per_gpu: float = Field(default=300.0, ge=0, le=_MOST_WATTS, description="what a GPU draws in a job")
    watts_per_gpu_type: list[str] = Field(
        default=[], description='the same by type as AllocTRES names it (gres/gpu:a100=2), such as ["a100=400", "t4=70"]'
    )
    watts_per_gib: float = Field(default=0.37, ge=0, le=1000, description="what a GiB of memory draws that a job holds")
    shared_above: float = Field(
        default=3.0,
        ge=0,
        description="a measurement (of whole nodes) above so many times the estimate is of nodes that others shared: the "
        "estimate counts; 0: every measurement counts",
    )
    pue: float = Field(
        default=1.0, ge=1, le=10, description="energy of the whole site over that of its nodes; 1: the nodes alone, no cooling"
    )
    grams_co2_per_kwh: float = Field(
        default=0.0, ge=0, le=5000, description="grams of CO2 of a kilowatt-hour from your supplier or grid; 0: no CO2 is shown"
    )

    @field_validator("watts_per_gpu_type")
    @classmethod
    def _known_types(cls, types: list[str]) -> list[str]:
        names = [name.lower() for name, _ in _pairs(types)]
        twice = next((name for name in names if names.count(name) > 1), "")
        if twice:
            raise ValueError(f"'{twice}' stands there twice; expected each type once")
        return types

    @property
    def gpu_types(self) -> dict[str, float]:
        """Watts by type of GPU."""
        return dict(_pairs(self.watts_per_gpu_type))


def _pairs(types: list[str]) -> Iterator[tuple[str, float]]:
    for text in types:
        name, _, number = text.partition("=")
        try:
            watts = float(number)
        except ValueError:
            watts = -1.0
        if not name.strip() or not 0 <= watts <= _MOST_WATTS:
            raise ValueError(f"'{text}' is no type with its watts; expected such as 'a100=400'")
        yield name.strip(), watts
