"""kWh and CO2 of a ledger: out of joules in one place, with a sentence on how they are known."""

import pytest

from stormpetrel.answers.history.energy import amount_text, basis_of, energy_of, lost_text, power_of
from stormpetrel.config import EnergySection, parse_settings
from stormpetrel.errors import SettingsError
from stormpetrel.jobs.held.energy import PowerModel

SUMS = {"joules": 7_200_000, "lost_joules": 3_600_000, "measured_joules": 1_800_000, "lost_measured_joules": 0}


def section(**values):
    return EnergySection.model_validate(values)


def test_joules_become_kwh_times_the_pue():
    figures = energy_of(SUMS, section(pue=1.5))
    assert (figures["kwh"], figures["lost_kwh"], figures["measured_share"]) == (3.0, 1.5, 0.25)


def test_there_is_co2_only_where_the_site_says_what_a_kwh_is():
    assert energy_of(SUMS, section())["lost_co2_kg"] is None
    figures = energy_of(SUMS, section(grams_co2_per_kwh=400, pue=1.5))
    assert (figures["co2_kg"], figures["lost_co2_kg"]) == pytest.approx((1.2, 0.6))


def test_of_no_energy_no_part_was_measured():
    assert energy_of(dict.fromkeys(SUMS, 0), section())["measured_share"] is None


@pytest.mark.parametrize(
    ("measured", "known", "words"),
    [
        (0, "estimated", "Energy is estimated by what jobs held: 6 W a CPU, 300 W a GPU, 0.37 W a GiB; cooling is not in it."),
        (7_200_000, "measured", "Energy was measured, by whole nodes; cooling is not in it."),
        (
            1_800_000,
            "partly estimated",
            "25 % of the energy was measured, by whole nodes; the rest is estimated by what jobs held: 6 W a CPU, 300 W a GPU, "
            "0.37 W a GiB; cooling is not in it.",
        ),
    ],
)
def test_a_sentence_says_how_energy_is_known(measured, known, words):
    basis = basis_of({**SUMS, "measured_joules": measured}, section())
    assert (basis.known, basis.words) == (known, words)


def test_the_sentence_names_cooling_co2_and_types():
    words = basis_of(SUMS, section(pue=1.3, grams_co2_per_kwh=40, watts_per_gpu_type=["a100=400"])).words
    assert "400 W a a100" in words
    assert words.endswith("; all of it times 1.3 for the site around them (PUE). CO2 at 40 g a kWh.")


def test_what_was_lost_is_told_in_a_clause():
    assert lost_text(12.34, 1234.5, 4.9, "partly estimated") == "12.3 of 1,234 kWh (partly estimated), 4.9 kg of CO2"
    assert lost_text(0.031, 0.5, None, "measured") == "0.031 of 0.5 kWh"
    assert amount_text(0.0) == "0"


def test_the_settings_are_those_that_the_model_is_made_for():
    assert power_of(EnergySection()) == PowerModel()
    types = power_of(section(watts_per_gpu_type=["a100=400", "t4 =70"])).gpu_types
    assert types == {"a100": 400.0, "t4": 70.0}


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ('watts_per_gpu_type = ["a100"]', "'a100' is no type with its watts; expected such as 'a100=400'"),
        ('watts_per_gpu_type = ["a100=nan"]', "is no type with its watts"),
        ('watts_per_gpu_type = ["a100=1", "A100=2"]', "'a100' stands there twice"),
        ("watts_per_cpu = -1", "energy.watts_per_cpu"),
        ("watts_per_cpu = nan", "energy.watts_per_cpu"),
        ("pue = 0.9", "energy.pue"),
        ("grams_co2_per_kwh = 1e9", "energy.grams_co2_per_kwh"),
        ("watts_per_cpus = 5", "Did you mean 'watts_per_cpu'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(line, match):
    with pytest.raises(SettingsError, match=match):
        parse_settings(f"[energy]\n{line}\n")
