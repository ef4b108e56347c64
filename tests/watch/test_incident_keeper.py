"""A downtime of one machine holds messages back about that machine, where it is known; any other is of the whole cluster.

The table of incidents: written beside the loop, kept when the state store has let go.
"""

import json
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from stormpetrel.alarms.grouping import IncidentBook
from stormpetrel.answers.alarms.acts import act_on_incident
from stormpetrel.answers.alarms.incidents import list_incidents, show_incident
from stormpetrel.answers.schemas.alarms import IncidentQuestion
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.errors import NotThereError
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.records.findings import FindingKind, Subject, SubjectKind
from stormpetrel.records.incidents import ActKind, IncidentAct, Message, MessageKind, Mute, message_key
from stormpetrel.records.outages import Outage, OutageKind
from stormpetrel.sources.slurm.sacct_text import SacctText
from stormpetrel.store.site import open_site
from stormpetrel.store.sql_tables import sql_tables
from stormpetrel.store.upkeep import upkeep
from stormpetrel.store.upkeep.backup import backup, restore
from stormpetrel.store.upkeep.repair import repair
from stormpetrel.store.upkeep.upkeep import compact, forget, retain, tidy_incidents
from stormpetrel.watch.incident_keeper import IncidentKeeper, IncidentRecorder, KnownMachines, record_incidents
from stormpetrel.watch.job_findings import SETTLED, JobFindings
from stormpetrel.watch.past.replay import replay
from tests.builders import SACCT_FIELDS, make_jobs, make_site, sacct_line
from tests.parts.alarm_findings import batch_finding, finding
from tests.parts.alarm_jobs import at
from tests.parts.raised_incidents import raise_incidents
from tests.parts.replayed_site import SICK_FROM, SICK_NODE, replayed_site

NOW = datetime.now(UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
ALL = IncidentQuestion(state="all")


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as site:
        yield site


def test_findings_of_two_watchers_about_one_node_are_one_incident(site):
    keeper = IncidentKeeper(site)
    keeper.take("jobs", [finding()], "", at(1))
    keeper.take("traces", [finding(FindingKind.WINDOWS_ODD, family="traces", when=at(1, hour=1))], "", at(1, hour=1))
    (incident,) = site.incidents.list()
    assert incident.families == ("jobs", "traces") and incident.kinds == (FindingKind.NODE_EATS_JOBS, FindingKind.WINDOWS_ODD)


def test_the_surge_of_failures_that_a_sick_node_makes_is_part_of_its_incident(site):
    keeper = IncidentKeeper(site)
    jobs = [f"{number}-1-0-c1" for number in range(20)]
    keeper.take("jobs", [finding(jobs=jobs)], "", at(1))
    surge = finding(FindingKind.COUNTS_ODD, (SubjectKind.CLUSTER, "c1"), family="events", when=at(1, hour=1), jobs=jobs[5:])
    keeper.take("events", [surge], "", at(1, hour=1))
    (incident,) = site.incidents.list()
    assert incident.families == ("jobs", "events")


def test_a_watch_that_starts_again_goes_on_with_the_incidents_and_the_state_of_the_one_before(site):
    IncidentKeeper(site).take("jobs", [finding()], '{"cursor": 7}', at(1))
    again = IncidentKeeper(site)
    assert again.state_of("jobs") == '{"cursor": 7}'
    (incident,) = again.take("jobs", [finding(when=at(1, hour=2))], "", at(1, hour=2))
    assert incident.id == 1 and incident.findings[0].figure("lost") == 6 and len(incident.paged_at) == 1


def test_an_incident_is_over_when_nobody_finds_anything_any_more(site):
    keeper = IncidentKeeper(site)
    keeper.take("jobs", [finding()], "", at(1))
    assert keeper.take("system", [], "", at(1, hour=12)) == []
    assert keeper.is_due("system", at(3)) and not keeper.is_due("system", at(1, hour=12))
    (over,) = keeper.take("system", [], "", at(3))
    assert over.resolved_at == at(2)


def test_what_is_muted_or_under_maintenance_is_kept_and_not_sent(site):
    site.incidents.mute(Mute(0, "c1", Subject(SubjectKind.NODE, "n017"), at(0), at(2), "root"))
    keeper = IncidentKeeper(site)
    (muted,) = keeper.take("jobs", [finding()], "", at(1))
    site.outages.add(Outage(at(4), at(5), OutageKind.MAINTENANCE, "new switches"))
    other = finding(FindingKind.NODE_EATS_JOBS, (SubjectKind.NODE, "n1"), when=at(4.5))
    worked_on = {one.id: one for one in keeper.take("jobs", [other], "", at(4.5))}[2]
    assert (muted.held_back, worked_on.held_back) == ("muted", "maintenance") and not muted.page and not worked_on.page


def test_a_user_who_is_forgotten_while_it_watches_is_not_written_again(site):
    keeper = IncidentKeeper(site)
    keeper.take("jobs", [batch_finding("ann")], "", at(1))
    forget(site, "ann")
    keeper.take("jobs", [finding(users=("bob",), when=at(1, hour=1))], "", at(1, hour=1))
    keeper.take("jobs", [], "", at(3))
    assert "ann" not in str(site.incidents.list()) and len(site.incidents.list()) == 2


@pytest.fixture(scope="module")
def sick_site(tmp_path_factory):
    with replayed_site(tmp_path_factory.mktemp("sick") / "site") as opened:
        yield opened


def test_looking_again_and_again_with_kills_between_ends_with_the_incidents_of_the_replay(sick_site):
    start, end = SICK_FROM - timedelta(days=1), SICK_FROM + timedelta(days=2)
    keeper, watcher, now = IncidentKeeper(sick_site), JobFindings(sick_site, start), start
    for look in range(1, 1000):
        now += timedelta(minutes=37)
        if now >= end:
            break
        findings = watcher.live_step(now + SETTLED, now)
        if look % 7 == 3:  # killed before what was found could be kept, and started again
            keeper = IncidentKeeper(sick_site)
            watcher = JobFindings(sick_site, start, state=keeper.state_of("jobs"))
            continue
        keeper.take("jobs", findings, watcher.state, now)
    live = sick_site.incidents.list()[::-1]
    until = now - timedelta(minutes=37)
    past = replay(sick_site, since=start, until=until, every=timedelta(minutes=37), families=("jobs",))
    assert [facts(one) for one in live] == [facts(one) for one in past.incidents] and len(live) > 1


def test_records_that_came_while_the_clock_ran_ahead_are_looked_at_when_it_is_put_right(sick_site):
    now = SICK_FROM + timedelta(hours=36)
    ahead = JobFindings(sick_site, now + timedelta(hours=2))  # as if all of it had been looked at
    found = ahead.live_step(now, now)
    assert SICK_NODE in {one.subject.name for one in found} and {one.known_at for one in found} == {now}
    assert ahead.live_step(now, now) == []


def test_a_clock_that_is_set_back_finds_nothing_twice(sick_site):
    now = SICK_FROM + timedelta(hours=36)
    watcher = JobFindings(sick_site, SICK_FROM - timedelta(days=1))
    assert SICK_NODE in {one.subject.name for one in watcher.live_step(now, now)}
    assert watcher.live_step(now - timedelta(hours=2), now - timedelta(hours=2)) == []


def facts(incident):
    counts = [(part.kind, part.subjects, part.figure("lost"), part.decided_at, part.until) for part in incident.findings]
    return incident.since, incident.until, counts, incident.severity, incident.blame, len(incident.paged_at)


def test_what_somebody_dismissed_is_not_raised_again_and_is_once_it_is_taken_back(site):
    keeper = IncidentKeeper(site)
    keeper.take("jobs", [batch_finding()], "", at(1))
    site.incidents.add_act(IncidentAct(1, at(2), "anna", ActKind.DISMISS))
    quiet = keeper.take("jobs", [batch_finding(when=at(3))], "", at(3))[-1]
    assert quiet.id == 2 and quiet.like == 1
    site.incidents.add_act(IncidentAct(1, at(3, hour=1), "anna", ActKind.WITHDRAW))
    (heard,) = keeper.take("system", [], "", at(3, hour=2))
    assert heard.id == 2 and heard.like is None


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


def rows_of(site):
    return site.incident_history.read().sort("id").collect().to_dicts()


def long_over(site, *findings):
    """Incidents that were raised and over long ago, in the state and in the table."""
    raise_incidents(site, *findings)
    book = IncidentBook(site.incidents.list(), first_id=site.incidents.next_number())
    site.incidents.commit(book.take([], NOW - 100 * DAY), watcher="jobs", watcher_state="{}", now=NOW - 100 * DAY)
    record_incidents(site)


def node(name):
    return (SubjectKind.NODE, name)


def test_an_incident_is_a_row_that_says_what_its_line_says(site):
    raise_incidents(site, finding(when=NOW - HOUR, users=("bob", "ann")), batch_finding("cat", when=NOW - HOUR))
    site.incidents.add_act(IncidentAct(1, NOW, "root", ActKind.ACKNOWLEDGE))
    site.incidents.add_act(IncidentAct(1, NOW, "eve", ActKind.CONFIRM, "the disk"))
    assert record_incidents(site) == 2
    first, second = rows_of(site)
    assert (first["id"], first["severity"], first["state"], first["verdict"]) == (1, "page", "acknowledged", "confirmed")
    assert (first["verdict_by"], first["acknowledged_by"], first["users"]) == ("eve", "root", "ann, bob")
    assert (first["subjects"], first["kinds"], first["families"]) == ("node:n017", "node_eats_jobs", "jobs")
    assert (first["lost"], first["tried"], first["pages"], first["late"]) == (3, 3, 1, False)
    assert first["title"].startswith("n017 fails every job") and first["resolved_at"] is None
    assert (second["subjects"], second["state"]) == ("user:cat, application:fit", "open")


def test_a_row_is_written_again_only_when_its_incident_changes_and_never_twice(site):
    raise_incidents(site, finding(when=NOW - 2 * HOUR))
    assert (record_incidents(site), record_incidents(site)) == (1, 0)
    version = site.incident_history.table.version()
    IncidentRecorder(site).step()
    assert site.incident_history.table.version() == version
    raise_incidents(site, finding(when=NOW - HOUR))
    act_on_incident(site, LOCAL, 1, "note", "hm")
    assert record_incidents(site) == 1
    (row,) = rows_of(site)
    assert row["until"] == NOW - HOUR


def test_what_changes_while_rows_are_written_is_written_afterwards(site):
    raise_incidents(site, finding(when=NOW - HOUR))
    token, _ = site.incidents.take_unrecorded(10)
    act_on_incident(site, LOCAL, 1, "confirm")
    site.incidents.note_recorded(token)
    assert record_incidents(site) == 1 and rows_of(site)[0]["verdict"] == "confirmed"


def test_a_kill_between_the_table_and_the_state_leaves_one_row(site):
    raise_incidents(site, finding(when=NOW - HOUR))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(site.incidents), "note_recorded", lambda *_: None)
        patched.setattr(type(site.incidents), "has_unrecorded", _once())
        record_incidents(site)
    assert record_incidents(site) == 1 and len(rows_of(site)) == 1


def _once():
    answers = iter([True])
    return lambda _self: next(answers, False)


def test_the_table_can_be_asked_in_sql_and_keeps_the_body_to_itself(site):
    raise_incidents(site, finding(when=NOW - HOUR))
    record_incidents(site)
    answer = pl.SQLContext(sql_tables(site)).execute("select id, title from incidents where subjects like '%n017%'").collect()
    assert answer["id"].to_list() == [1]
    assert {"body", "acts", "month"}.isdisjoint(sql_tables(site)["incidents"].collect_schema())


def test_the_state_lets_go_of_what_is_long_over_and_in_the_table(site, monkeypatch):
    monkeypatch.setattr(upkeep, "NEWEST_INCIDENTS", 1)
    old = [finding(finding().kind, node(f"n{number:03d}"), when=NOW - (200 - number) * DAY) for number in range(3)]
    long_over(site, *old)
    tidy_incidents(site)
    assert [one.id for one in site.incidents.list()] == [3] and len(rows_of(site)) == 3
    assert site.incidents.next_number() == 4


def test_what_the_state_has_let_go_of_is_still_listed_shown_and_counted_from(site, monkeypatch):
    monkeypatch.setattr(upkeep, "NEWEST_INCIDENTS", 1)
    long_over(site, finding(finding().kind, node("n1"), when=NOW - 200 * DAY, users=("ann",)))
    act_on_incident(site, LOCAL, 1, "acknowledge", "disk replaced")
    record_incidents(site)
    raise_incidents(site, finding(finding().kind, node("n2"), when=NOW - 2 * DAY, users=("bob",)))
    before = list_incidents(site, LOCAL, ALL).incidents, show_incident(site, LOCAL, 1)
    tidy_incidents(site)
    with pytest.raises(NotThereError):
        site.incidents.get(1)
    after = list_incidents(site, LOCAL, ALL)
    assert (after.incidents, show_incident(site, LOCAL, 1)) == before
    assert after.weeks == pytest.approx(90 / 7, abs=0.01)
    assert [one.id for one in list_incidents(site, LOCAL).incidents] == [2]
    assert [one.id for one in list_incidents(site, LOCAL, replace_since(ALL, NOW - 10 * DAY)).incidents] == [2]
    assert [one.id for one in list_incidents(site, Viewer("ann", is_admin=False), ALL).incidents] == [1]
    with pytest.raises(NotThereError):
        show_incident(site, Viewer("bob", is_admin=False), 1)
    with pytest.raises(NotThereError, match="no notes and verdicts any more"):
        act_on_incident(site, LOCAL, 1, "dismiss")


def replace_since(question, since):
    return question.model_copy(update={"since": since})


def test_nothing_is_let_go_that_is_open_new_or_not_in_the_table(site, monkeypatch):
    monkeypatch.setattr(upkeep, "NEWEST_INCIDENTS", 0)
    raise_incidents(site, finding(when=NOW - HOUR))
    record_incidents(site)
    tidy_incidents(site)
    assert len(site.incidents.list()) == 1


def test_no_number_comes_again_after_retention_or_a_lost_state(site, tmp_path):
    long_over(site, finding(when=NOW - 200 * DAY))
    retain(site, 120)
    assert (rows_of(site), site.incidents.list(), site.incidents.next_number()) != ([], [], 1)
    retain(site, 30)
    assert (rows_of(site), site.incidents.list(), site.incidents.next_number()) == ([], [], 2)


def test_incidents_come_back_out_of_their_table_when_the_state_is_lost(site):
    long_over(site, finding(finding().kind, node("n1"), when=NOW - 200 * DAY))
    raise_incidents(site, finding(finding().kind, node("n2"), when=NOW - HOUR))
    act_on_incident(site, LOCAL, 2, "acknowledge", "on my way")
    record_incidents(site)
    before = list_incidents(site, LOCAL, ALL).incidents, show_incident(site, LOCAL, 2)
    site.close()
    for path in site.folder.glob("state.db*"):
        path.unlink()
    report = repair(site.folder, problem_of=lambda _site, _training: None, user="root")
    assert any("2 incidents" in line for line in report.done)
    with open_site(site.folder) as again:
        assert (list_incidents(again, LOCAL, ALL).incidents, show_incident(again, LOCAL, 2)) == before
        assert again.incidents.next_number() == 3


def test_a_forgotten_user_is_in_no_file_of_the_table(site):
    raise_incidents(site, finding(when=NOW - HOUR, users=("zacharias", "bob")), batch_finding("zacharias", when=NOW - HOUR))
    record_incidents(site)
    act_on_incident(site, LOCAL, 1, "note", "zacharias knows")
    record_incidents(site)
    forget(site, "zacharias")
    texts = [
        json.dumps(pl.read_parquet(path, hive_partitioning=False).to_dicts(), default=str)
        for path in site.incident_history.table.path.rglob("*.parquet")
    ]
    assert texts and not any("zacharias" in text for text in texts)
    assert [row["users"] for row in rows_of(site)] == ["[forgotten], bob", "[forgotten]"]
    assert rows_of(site)[1]["subjects"] == "user:[forgotten], application:fit"
    record_incidents(site)
    assert [one.id for one in list_incidents(site, LOCAL, ALL).incidents] == [2, 1]


def test_a_user_called_like_a_word_of_a_row_leaves_it_readable(site):
    raise_incidents(site, finding(when=NOW - HOUR, users=("node", "bob")))
    record_incidents(site)
    forget(site, "node")
    (row,) = rows_of(site)
    assert (row["subjects"], row["users"], row["kinds"]) == ("node:n017", "[forgotten], bob", "node_eats_jobs")


def test_the_table_is_in_a_backup_and_survives_compaction(site, tmp_path):
    raise_incidents(site, finding(when=NOW - HOUR))
    record_incidents(site)
    before = rows_of(site)
    assert "incidents" in {done.table for done in compact(site)}
    backup(site, tmp_path / "b.tar")
    with restore(tmp_path / "b.tar", tmp_path / "copy") as copy:
        assert rows_of(copy) == before and not copy.incidents.has_unrecorded()


def test_many_changes_leave_few_files(site):
    for minute in range(5):
        raise_incidents(site, finding(when=NOW - HOUR + timedelta(minutes=minute)))
        record_incidents(site)
    tidy_incidents(site)
    assert site.incident_history.table.file_count() == 1


def test_messages_go_after_their_incident_not_while_it_lasts(site, monkeypatch):
    raise_incidents(site, finding(finding().kind, node("n1"), when=NOW - HOUR))
    old = NOW - 50 * DAY
    told = [Message(message_key(n, 0, MessageKind.FIRING, "ops"), "ops", MessageKind.FIRING, n, 0, old) for n in (1, 7, 8)]
    site.messages.insert(told)
    site.messages.delivered([told[0].key, told[1].key], old)
    tidy_incidents(site)
    assert {one.incident for one in site.messages.list()} == {1, 8}  # 7 is over and gone, 8 still waits


def test_a_state_from_before_the_table_is_written_into_it_whole(tmp_path):
    with make_site(tmp_path / "site") as site:
        raise_incidents(site, finding(when=NOW - HOUR))
        with site.state.transaction() as connection:
            connection.exec_driver_sql("ALTER TABLE incidents DROP COLUMN recorded")
            connection.exec_driver_sql("UPDATE meta SET value = '6' WHERE key = 'format'")
    with open_site(tmp_path / "site") as site:
        assert record_incidents(site) == 1 and len(rows_of(site)) == 1
