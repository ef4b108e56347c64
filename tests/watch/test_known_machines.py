"""A downtime of one machine holds messages back about that machine, where it is known; any other is of the whole cluster."""

import pytest

from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.records.findings import FindingKind, SubjectKind
from stormpetrel.records.outages import Outage, OutageKind
from stormpetrel.sources.slurm.sacct_text import SacctText
from stormpetrel.store.sql_tables import sql_tables
from stormpetrel.watch.incident_keeper import IncidentKeeper
from stormpetrel.watch.known_machines import KnownMachines
from tests.builders import SACCT_FIELDS, make_jobs, make_site, sacct_line
from tests.parts.alarm_findings import finding
from tests.parts.alarm_jobs import at


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as site:
        yield site


def downtime_of(resource):
    return Outage(at(1), at(2), OutageKind.MAINTENANCE, f"{resource}: new disk", "file:downtimes", "7", resource=resource)


@pytest.mark.parametrize(
    ("resource", "held_back"),
    [("n017", ["maintenance", ""]), ("N017.example.org", ["maintenance", ""]), ("CE_03", ["maintenance", "maintenance"])],
)
def test_a_downtime_of_a_machine_that_is_known_is_of_that_machine_and_any_other_of_the_cluster(
    site, monkeypatch, resource, held_back
):
    monkeypatch.setattr(KnownMachines, "_read", lambda _self: frozenset({"n017", "n018"}))
    site.outages.add(downtime_of(resource))
    keeper = IncidentKeeper(site)
    node = finding(FindingKind.NODE_EATS_JOBS, (SubjectKind.NODE, "n017"), when=at(1, hour=2))
    other = finding(FindingKind.NODE_EATS_JOBS, (SubjectKind.NODE, "n018"), when=at(1, hour=5))
    found = [keeper.take("jobs", [one], "", one.known_at)[0] for one in (node, other)]
    assert [one.held_back for one in found] == held_back


def test_a_submit_host_under_maintenance_is_not_paged_about(site, monkeypatch):
    monkeypatch.setattr(KnownMachines, "_read", lambda _self: frozenset({"schedd-1.example.org"}))
    site.outages.add(downtime_of("schedd-1"))
    silent = finding(FindingKind.SILENCE, (SubjectKind.SUBMIT_HOST, "schedd-1.example.org"), when=at(1, hour=2), family="events")
    (incident,) = IncidentKeeper(site).take("events", [silent], "", silent.known_at)
    assert incident.held_back == "maintenance"


def test_machines_that_are_known_are_those_of_the_last_months_jobs(site, tmp_path):
    (job,) = make_jobs(1, start=site.now())
    (tmp_path / "jobs.txt").write_text(f"{SACCT_FIELDS}|NodeList\n{sacct_line(job)}|n[1-2]\n")
    ingest_jobs(site, SacctText(tmp_path / "jobs.txt"))
    known = KnownMachines(site)
    assert known.named("n2.example.org") == {"n2"} and known.named("n3") == frozenset()


def test_the_resource_is_kept_and_can_be_asked_for(site):
    kept = site.outages.add(downtime_of("CE_03"))
    assert site.outages.list() == [kept] and kept.resource == "CE_03"
    assert sql_tables(site)["outages"].collect()["resource"].to_list() == ["CE_03"]
