"""Families of models: their names, and the commands that make a model of each."""

from __future__ import annotations

import pytest

from stormpetrel.records.model_families import ModelFamily, family_of, how_to_train, train_command


@pytest.mark.parametrize(
    ("name", "family"), [("jobs-submit", "jobs"), ("synth-copulagan-sessions", "synth"), ("traces-7", "traces")]
)
def test_a_model_and_a_training_are_kept_under_the_name_of_their_family(name, family):
    assert family_of(name) == family


def test_each_family_has_its_command():
    assert [train_command(family) for family in ModelFamily] == [
        "stormpetrel jobs train", "stormpetrel traces train", "stormpetrel events train", "stormpetrel synth fit",
    ]  # fmt: skip
    assert how_to_train("synth") == "Fit one: stormpetrel synth fit" and how_to_train("jobs").startswith("Train one: ")
