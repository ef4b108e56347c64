"""Kilowatt-hours and CO2 of sums of joules, the same in every face, and how they are known.

EnergySection -> power_of -> PowerModel; SUMS + EnergySection -> energy_of -> the figures of one line; -> basis_of -> EnergyBasis.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from stormpetrel.answers.schemas.history import EnergyBasis
from stormpetrel.jobs.held.energy import PowerModel

if TYPE_CHECKING:
    from stormpetrel.config import EnergySection

_J_PER_KWH: Final = 3_600_000
_G_PER_KG: Final = 1000


def power_of(section: EnergySection) -> PowerModel:
    """Return the settings as the model that estimates."""
    return PowerModel(
        section.watts_per_cpu, section.watts_per_gpu, section.watts_per_gib, section.gpu_types, section.shared_above
    )


def energy_of(sums: Mapping[str, Any], section: EnergySection) -> dict[str, Any]:
    """Return the kWh of sums of joules, times the PUE, their CO2 where the site says what a kWh is, and the measured share."""
    kwh, lost_kwh = (sums[name] / _J_PER_KWH * section.pue for name in ("joules", "lost_joules"))
    grams = section.grams_co2_per_kwh
    return {
        "kwh": kwh,
        "lost_kwh": lost_kwh,
        "co2_kg": kwh * grams / _G_PER_KG if grams else None,
        "lost_co2_kg": lost_kwh * grams / _G_PER_KG if grams else None,
        "measured_share": sums["measured_joules"] / sums["joules"] if sums["joules"] else None,
    }


def basis_of(sums: Mapping[str, Any], section: EnergySection) -> EnergyBasis:
    """Return how the energy of these sums is known."""
    total, measured = sums["joules"], sums["measured_joules"]
    known = "estimated" if not measured else "measured" if measured == total else "partly estimated"
    return EnergyBasis.model_validate(
        {
            **section.model_dump(),
            "grams_co2_per_kwh": section.grams_co2_per_kwh or None,
            "known": known,
            "measured_share": measured / total if total else None,
            "words": _words(known, measured / total if total else 0.0, section),
        }
    )


def lost_text(lost_kwh: float, kwh: float, lost_co2_kg: float | None, known: str) -> str:
    """Return what was lost in a clause: `12 of 80 kWh (estimated), 4.8 kg of CO2`."""
    co2 = "" if lost_co2_kg is None else f", {amount_text(lost_co2_kg)} kg of CO2"
    return f"{amount_text(lost_kwh)} of {amount_text(kwh)} kWh{known_suffix(known)}{co2}"


def known_suffix(known: str) -> str:
    """Return how energy is known, to stand behind a figure or a heading; nothing where all of it was measured."""
    return "" if known == "measured" else f" ({known})"


def amount_text(amount: float) -> str:
    """Return kWh or kg: whole above a hundred, with a tenth above one, else two digits."""
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.1f}" if amount >= 1 else f"{amount:.2g}"


def _words(known: str, share: float, section: EnergySection) -> str:
    types = "".join(f", {watts:g} W a {name}" for name, watts in section.gpu_types.items())
    watts = f"{section.watts_per_cpu:g} W a CPU, {section.watts_per_gpu:g} W a GPU{types}, {section.watts_per_gib:g} W a GiB"
    by_what, whole_nodes = f"by what jobs held: {watts}", "by whole nodes"
    text = {
        "estimated": f"Energy is estimated {by_what}",
        "measured": f"Energy was measured, {whole_nodes}",
        "partly estimated": f"{100 * share:.0f} % of the energy was measured, {whole_nodes}; the rest is estimated {by_what}",
    }[known]
    around = "; cooling is not in it" if section.pue == 1 else f"; all of it times {section.pue:g} for the site around them (PUE)"
    co2 = f" CO2 at {section.grams_co2_per_kwh:g} g a kWh." if section.grams_co2_per_kwh else ""
    return f"{text}{around}.{co2}"
