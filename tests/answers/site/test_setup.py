"""Making a site, anew or out of a backup: receipts say what is around it, and what it reaches."""

from __future__ import annotations

import json

import pytest

from stormpetrel.answers.schemas.administration import NewSite, Restoration
from stormpetrel.answers.site.administration import back_up, make_site, restore_site
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.errors import AccessError
from stormpetrel.sources.discover import Found
from stormpetrel.store.site import open_site

KIM = Viewer("kim", is_admin=False)


@pytest.fixture
def machine(monkeypatch):
    found = Found("Europe/Berlin", sacct="/opt/bin/sacct", cluster="petrel", lines=("sacct: /opt/bin/sacct",))
    monkeypatch.setattr("stormpetrel.answers.site.administration.discover", lambda: found)


def test_a_new_site_has_the_settings_of_its_machine_unless_somebody_says_otherwise(machine, tmp_path):
    receipt = make_site(tmp_path / "one", LOCAL, NewSite(time_zone="UTC"))
    with open_site(tmp_path / "one") as site:
        assert (site.settings.site.time_zone, site.settings.site.cluster) == ("UTC", "petrel")
        assert site.settings.slurm.sacct == "/opt/bin/sacct"
    assert receipt.machine_time_zone == "Europe/Berlin" and receipt.has_slurm
    assert json.loads(receipt.model_dump_json()) == {
        "site": str(tmp_path / "one"), "time_zone": "UTC", "cluster": "petrel", "found": ["sacct: /opt/bin/sacct"],
    }  # fmt: skip


def test_a_restored_site_names_what_its_settings_reach(machine, tmp_path):
    make_site(tmp_path / "one", LOCAL, NewSite())
    with open_site(tmp_path / "one") as site:
        back_up(site, LOCAL, tmp_path / "one.tar")
    receipt = restore_site(tmp_path / "two", LOCAL, tmp_path / "one.tar", Restoration())
    assert (receipt.site, receipt.jobs) == (str(tmp_path / "two"), 0)
    assert ("command", "slurm.sacct", "/opt/bin/sacct") in {(entry.kind, entry.name, entry.value) for entry in receipt.outside}


def test_who_does_not_manage_makes_no_site(machine, tmp_path):
    for act in (
        lambda: make_site(tmp_path / "site", KIM, NewSite()),
        lambda: restore_site(tmp_path / "site", KIM, tmp_path / "one.tar", Restoration()),
    ):
        with pytest.raises(AccessError):
            act()
    assert not (tmp_path / "site").exists()
