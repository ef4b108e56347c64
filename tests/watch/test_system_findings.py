"""What the watcher of the system hands on: maintenance that Slurm has reserved."""

from datetime import UTC, datetime, timedelta

import pytest

from stormpetrel.records.outages import MaintenanceWindow
from stormpetrel.store.source_health import SourceBook
from stormpetrel.watch.system_findings import SystemFindings
from tests.builders import make_site
from tests.parts.told_slurm import ToldSlurm

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
START, END = NOW - timedelta(hours=1), NOW + timedelta(hours=1)
WINDOW = MaintenanceWindow(START, END, frozenset({"n001"}), "petrel")
SAID = (
    f"ReservationName=r1 StartTime={START.timestamp():.0f} EndTime={END.timestamp():.0f} Nodes=n001 Flags=MAINT,SPEC_NODES "
    "State=ACTIVE"
)


@pytest.fixture
def slurm(tmp_path):
    told = ToldSlurm(tmp_path / "bin")
    told.script("scontrol", f'case "$*" in *reservation*) echo "{SAID}";; esac')
    return told


@pytest.fixture
def site(slurm, tmp_path):
    with make_site(tmp_path / "site", slurm=slurm.settings, site={"cluster": "petrel"}) as site:
        yield site


def test_reserved_maintenance_is_handed_on_and_holds_while_slurm_does_not_answer(slurm, site):
    heard = []
    watcher = SystemFindings(site, SourceBook(patience_s=60.0), note_reserved=heard.append)
    watcher.step(NOW)
    slurm.script("scontrol", "echo 'slurm_load_reservations error: Unable to contact slurm controller' >&2; exit 1")
    watcher.step(NOW + timedelta(minutes=2))
    assert heard == [(), (WINDOW,)]
    slurm.script("scontrol", "echo 'No reservations in the system'")
    watcher.step(NOW + timedelta(minutes=4))
    assert heard[2:] == [()]


def test_a_watch_that_starts_again_knows_of_the_maintenance_before_slurm_is_asked(site):
    watcher = SystemFindings(site, SourceBook(patience_s=60.0))
    watcher.step(NOW)
    heard = []
    SystemFindings(site, SourceBook(patience_s=60.0), state=watcher.state, note_reserved=heard.append)
    assert heard == [(WINDOW,)]
