"""Settings of autoencoders: refused where they make no sense, kept whole in a record, and their FLOP counted."""

from __future__ import annotations

import json

import pytest

from stormpetrel.errors import ModelError
from stormpetrel.traces.networks.architecture import Architecture, AutoencoderSettings, flops_per_window
from tests.traces.small import tiny


def test_the_default_network_is_as_large_as_the_papers_kind():
    assert 5_000_000 <= flops_per_window(AutoencoderSettings()) <= 6_000_000


@pytest.mark.parametrize("steps", [8, 30, 37, 99, 100, 101])
def test_any_length_of_window_is_filled_up_to_what_the_blocks_divide(steps):
    settings = AutoencoderSettings(steps=steps)
    assert 0 <= settings.padded_steps - steps < 4 and settings.innermost_steps * 4 == settings.padded_steps


@pytest.mark.parametrize("architecture", Architecture)
def test_settings_survive_their_record(architecture):
    settings = tiny(architecture, seed=7)
    assert AutoencoderSettings.of_record(json.loads(json.dumps(settings.record()))) == settings


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": 7}, {"steps": 100.0}, {"steps": True}, {"steps": 10**9}, {"kernel": 4}, {"channels": ()}, {"channels": (16, 0)},
        {"channels": "x"}, {"embedding": 0}, {"learning_rate": 0.0}, {"learning_rate": float("nan")}, {"seed": -1},
        {"patience": 0}, {"architecture": "vanilla"},
    ],
    ids=str,
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused_in_one_sentence(changes):
    with pytest.raises(ModelError, match=next(iter(changes))) as caught:
        AutoencoderSettings(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "record",
    [
        None,
        [],
        {},
        {**tiny().record(), "more": 1},
        {**tiny().record(), "architecture": "lstm"},
        {**tiny().record(), "channels": 4},
    ],
    ids=["none", "list", "empty", "one more", "unknown architecture", "channels"],
)
def test_a_record_that_is_none_is_refused(record):
    with pytest.raises(ModelError):
        AutoencoderSettings.of_record(record)
