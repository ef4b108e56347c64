"""Campaigns: the receipt holds what is known about each, beside its path."""

from __future__ import annotations

import json

import pytest

from stormpetrel.answers.schemas.trace_study import CampaignReceipt, CampaignSimulation
from stormpetrel.answers.studies.trace_study import simulate_campaigns
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.errors import AccessError

SMALL = CampaignSimulation(train=1, validation=0, test=1, nodes=1, threads=2, minutes=2.0)


def test_what_is_known_about_a_campaign_stands_beside_its_path(tmp_path):
    steps = []
    receipt = simulate_campaigns(tmp_path, LOCAL, SMALL, progress=lambda share, name: steps.append((share, name)))
    assert [campaign.facts["split"] for campaign in receipt.campaigns] == ["train", "test"] and steps[-1][0] == 1.0
    printed = json.loads(receipt.model_dump_json())["campaigns"][0]
    assert printed == {"path": str(tmp_path / "train-1.npz"), **json.loads((tmp_path / "train-1.json").read_text())}
    assert CampaignReceipt.model_validate_json(receipt.model_dump_json()) == receipt


def test_who_does_not_manage_records_nothing(tmp_path):
    with pytest.raises(AccessError):
        simulate_campaigns(tmp_path / "campaigns", Viewer("kim", is_admin=False), SMALL)
    assert not (tmp_path / "campaigns").exists()
