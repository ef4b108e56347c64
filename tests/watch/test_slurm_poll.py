"""What waits and runs in the table is what the controller lists; what it lists no more is closed, and never on half an answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stormpetrel.records.cursor import Cursor
from stormpetrel.records.jobs import never_started
from stormpetrel.sources.slurm.live import LiveSlurm
from stormpetrel.store.site import Site
from stormpetrel.store.upkeep.upkeep import forget
from stormpetrel.watch import slurm_poll
from stormpetrel.watch.reading import LiveReader, Read
from tests.builders import make_site, table_of
from tests.parts.told_slurm import SUBMITTED, Job, ToldSlurm, row

HELD = Job(7)


@pytest.fixture
def slurm(tmp_path) -> ToldSlurm:
    return ToldSlurm(tmp_path / "bin")


@pytest.fixture
def site(slurm, tmp_path, monkeypatch) -> Iterator[Site]:
    monkeypatch.setattr(slurm_poll, "_END_KNOWN_AFTER_S", 0.0)
    monkeypatch.setattr(slurm_poll, "_ACCOUNTING_LAG_S", (0.0, 15.0))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with make_site(tmp_path / "site", slurm=slurm.settings, watch={"address": ""}) as made:
        yield made


@pytest.fixture
def reader(site) -> LiveReader:
    return LiveReader(site)


def looks(reader: LiveReader, count: int = 1) -> Read:
    for _ in range(count):
        read = reader.read()
    return read


def states_of(site: Site) -> dict[tuple[int, int | None], str]:
    return {(job, task): state for job, task, state in table_of(site).select("job_id", "array_task", "state").iter_rows()}


def versions_of(site: Site) -> list[int]:
    return [table.version() for table in (site.jobs.table, site.jobs.sightings, site.quarantine.table, site.predictions.table)]


# Closing


def test_a_held_job_that_was_cancelled_is_closed_as_accounting_says_by_its_id(slurm, site, reader):
    slurm.queue(HELD)
    looks(reader)
    slurm.queue()
    slurm.accounting(by_id=(row(7, "CANCELLED by 0"),))
    looks(reader)
    (job,) = table_of(site).to_dicts()
    assert (job["state"], job["cancelled_by"], job["start_time"]) == ("CANCELLED", "0", None)
    assert job["end_time"].timestamp() == SUBMITTED + 100
    assert table_of(site).select(never_started()).item()


def test_a_job_that_nobody_knows_any_more_has_vanished_at_the_second_look(slurm, site, reader):
    slurm.queue(HELD)
    looks(reader)
    slurm.queue()
    assert looks(reader).again_s == 1.0 and states_of(site) == {(7, None): "PENDING"}
    looks(reader)
    (job,) = table_of(site).to_dicts()
    assert job["state"] == "VANISHED" and job["end_time"] is not None and job["user"] == "ada"


def test_a_vanished_job_that_shows_again_is_open_again(slurm, site, reader):
    slurm.queue(HELD)
    looks(reader)
    slurm.queue()
    looks(reader, 2)
    assert states_of(site) == {(7, None): "VANISHED"}
    slurm.queue(HELD)
    looks(reader)
    (job,) = table_of(site).to_dicts()
    assert (job["state"], job["end_time"], job["extra"]["reason"]) == ("PENDING", None, "JobHeldUser")


def test_what_accounting_says_later_wins_over_a_vanished_job(slurm, site, reader):
    slurm.queue(Job(7, "RUNNING"))
    looks(reader)
    slurm.queue()
    looks(reader, 3)
    assert states_of(site) == {(7, None): "VANISHED"}
    slurm.accounting(ended=(row(7, "FAILED", Start=SUBMITTED + 60, ExitCode="3:0"),))
    looks(reader)
    (job,) = table_of(site).to_dicts()
    assert (job["state"], job["exit_code"]) == ("FAILED", 3)


def test_a_waiting_task_that_left_its_array_without_a_trace_was_cancelled(slurm, site, reader):
    slurm.queue(Job(20, tasks="0-3"))
    looks(reader)
    slurm.queue(Job(20, tasks="0,2-3"))
    looks(reader, 2)
    assert states_of(site) == {(20, 0): "PENDING", (20, 1): "CANCELLED", (20, 2): "PENDING", (20, 3): "PENDING"}


def test_an_array_that_was_cancelled_whole_is_closed_with_one_question(slurm, site, reader):
    slurm.queue(Job(20, tasks="0-999"))
    looks(reader)
    slurm.queue()
    slurm.accounting(by_id=(row("20_[0-999]", "CANCELLED by 0"),))
    looks(reader)
    assert set(states_of(site).values()) == {"CANCELLED"} and slurm.asked_for() == ["--jobs=20"]


def test_a_job_that_ended_while_accounting_is_away_is_closed_as_the_controller_says(slurm, site, reader):
    slurm.queue(Job(7, "RUNNING"), Job(8))
    looks(reader)
    slurm.script("sacct", "echo 'sacct: error: slurmdbd is away' >&2; exit 1")
    slurm.queue(Job(7, "FAILED", more={"exit_code": 3 << 8}), Job(8))
    for _ in range(2):
        read = looks(reader)
        assert read.until is None and "slurmdbd is away" in read.problem
    assert states_of(site) == {(7, None): "FAILED", (8, None): "PENDING"}


def test_many_gone_jobs_are_asked_for_in_batches_of_bounded_length(slurm, site, reader):
    slurm.queue(*(Job(number) for number in range(1, 451)))
    looks(reader)
    slurm.queue()
    looks(reader)
    asked = [len(line.split(",")) for line in slurm.asked_for()]
    assert asked == [200, 200, 50]


# Not closing


@pytest.mark.parametrize(
    ("program", "script"),
    [("squeue", "exit 1"), ("squeue", "echo something else"), ("squeue", "kill -9 $$"), ("scontrol", "exit 1")],
)
def test_a_look_that_failed_closes_nothing_and_is_told(slurm, site, reader, program, script):
    slurm.queue(HELD, Job(20, tasks="0-3"))
    looks(reader)
    slurm.queue()
    slurm.script(program, script)
    assert looks(reader, 4).problem
    assert set(states_of(site).values()) == {"PENDING"}
    slurm.repair(program)
    looks(reader, 2)
    assert set(states_of(site).values()) == {"VANISHED"}


def test_nothing_is_concluded_while_accounting_is_away(slurm, site, reader):
    slurm.queue(HELD)
    looks(reader)
    slurm.queue()
    slurm.script("sacct", "exit 1")
    looks(reader, 4)
    assert states_of(site) == {(7, None): "PENDING"}


@pytest.mark.parametrize("private", ["jobs", "accounts,jobs,usage", "all"])
def test_a_list_that_private_data_limits_closes_nothing(slurm, site, reader, private):
    slurm.queue(HELD)
    looks(reader)
    slurm.config(private=private)
    slurm.queue()
    looks(reader, 4)
    assert states_of(site) == {(7, None): "PENDING"}


@pytest.mark.parametrize("level", ["Operator", "Administrator"])
def test_an_operator_sees_through_private_data(slurm, site, reader, level):
    slurm.queue(HELD)
    looks(reader)
    slurm.config(private="jobs", level=level)
    slurm.queue()
    looks(reader, 2)
    assert states_of(site) == {(7, None): "VANISHED"}


def test_jobs_that_accounting_tells_of_are_closed_even_where_private_data_limits_the_list(slurm, site, reader):
    slurm.queue(HELD)
    looks(reader)
    slurm.config(private="jobs")
    slurm.queue()
    slurm.accounting(by_id=(row(7, "CANCELLED by 0"),))
    looks(reader)
    assert states_of(site) == {(7, None): "CANCELLED"}


def test_a_job_of_another_cluster_is_not_closed_by_this_ones_list(slurm, site, reader):
    slurm.queue(Job(7, more={"cluster": "tern"}))
    looks(reader)
    slurm.queue()
    looks(reader, 3)
    assert states_of(site) == {(7, None): "PENDING"}


def test_a_job_that_accounting_believes_to_run_is_not_opened_again_by_it(slurm, site, reader):
    slurm.queue(Job(7, "RUNNING"))
    looks(reader)
    slurm.queue()
    slurm.accounting(going_on=(row(7, "RUNNING", Start=SUBMITTED + 60, End="Unknown"),))
    looks(reader, 6)
    assert states_of(site) == {(7, None): "VANISHED"}


def test_waiting_tasks_beyond_the_bound_are_told_to_be_cut_and_none_is_closed(slurm, tmp_path):
    settings = {**slurm.settings, "array_tasks": 3}
    with make_site(tmp_path / "small", slurm=settings, watch={"address": ""}) as site:
        reader = LiveReader(site)
        slurm.queue(Job(20, tasks="0-9"))
        assert any("array 20" in note for note in looks(reader).notes)
        slurm.queue(Job(20, tasks="0,5-9"))
        looks(reader, 3)
        assert set(states_of(site).values()) == {"PENDING"}


def test_a_cluster_whose_controller_is_out_of_reach_is_read_from_accounting_alone(slurm, tmp_path):
    slurm.script("sacctmgr", "echo petrel; echo tern")
    slurm.script(
        "squeue",
        'case "$*" in *tern*) echo "no way" >&2; exit 1;; *--json*) cat "$here/queue.json";; *) cat "$here/list.txt";; esac',
    )
    with make_site(tmp_path / "two", slurm={**slurm.settings, "clusters": ["petrel", "tern"]}, watch={"address": ""}) as site:
        reader = LiveReader(site)
        slurm.queue(HELD)
        slurm.accounting(ended=(row(9, "RUNNING", Cluster="tern", Start=SUBMITTED + 60, End="Unknown"),))
        read = looks(reader)
        assert read.problem is None and any("tern" in note for note in read.notes)
        slurm.queue()
        slurm.accounting()
        looks(reader, 3)
        assert states_of(site) == {(7, None): "VANISHED", (9, None): "RUNNING"}


def test_a_site_without_squeue_closes_nothing(slurm, site):
    (slurm.folder / "squeue").unlink()
    reader = LiveReader(site)
    slurm.accounting(ended=(row(7, "PENDING", End="Unknown", Eligible=SUBMITTED),))
    looks(reader)
    slurm.accounting()
    looks(reader, 3)
    assert states_of(site) == {(7, None): "PENDING"}


# One form of a waiting row


def test_where_nothing_happens_nothing_is_written(slurm, site, reader):
    slurm.queue(HELD, Job(8, "RUNNING"), Job(20, tasks="0-9"), Job(30, "COMPLETED"))
    going_on = (row(8, "RUNNING", Start=SUBMITTED + 60, End="Unknown"), row("20_[0-9]", "PENDING", End="Unknown"))
    slurm.accounting(going_on=going_on, ended=(row(30, "COMPLETED", Start=SUBMITTED + 60),))
    looks(reader, 2)
    before = versions_of(site)
    reads = [looks(reader) for _ in range(4)]
    assert versions_of(site) == before
    assert {(read.new, read.changed) for read in reads} == {(0, 0)}


def test_a_watch_that_is_started_again_writes_nothing_either(slurm, site, reader):
    slurm.queue(HELD, Job(8, "RUNNING"), Job(20, tasks="0-9"))
    looks(reader, 2)
    before = versions_of(site)
    looks(LiveReader(site), 2)
    assert versions_of(site) == before


def test_how_far_has_been_read_is_known_although_nothing_was_written(slurm, site, reader):
    looks(reader)
    first, version = site.jobs.cursor("slurm:local"), site.jobs.table.version()
    assert first is not None
    site.jobs.read_in_vain(Cursor("slurm:local", first + 60))
    assert site.jobs.cursor("slurm:local") == first + 60 and site.jobs.table.version() == version


@pytest.mark.parametrize("reason", ["Priority", "Resources", "None"])
def test_a_job_that_waits_its_turn_is_not_another_one_when_the_scheduler_says_so_in_other_words(slurm, site, reader, reason):
    slurm.queue(Job(7, reason="Priority"))
    looks(reader)
    before = versions_of(site)
    slurm.queue(Job(7, reason=reason))
    looks(reader)
    assert versions_of(site) == before


@pytest.mark.parametrize("reason", ["PartitionTimeLimit", "DependencyNeverSatisfied", "QOSMaxCpuPerUserLimit"])
def test_a_new_reason_to_wait_is_in_the_table_after_one_look(slurm, site, reader, reason):
    slurm.queue(Job(7, reason="Priority"))
    looks(reader)
    slurm.queue(Job(7, reason=reason))
    looks(reader)
    assert table_of(site)["extra"].to_list()[0]["reason"] == reason


def test_accounting_adds_what_the_controller_does_not_tell_and_overrules_nothing(slurm, site, reader):
    slurm.queue(Job(7, reason="Dependency"))
    slurm.accounting(going_on=(row(7, "PENDING", End="Unknown", Reason="None", Eligible=SUBMITTED),))
    looks(reader, 2)
    (job,) = table_of(site).to_dicts()
    assert (job["submit_line"], job["script_path"], job["extra"]["reason"]) == ("sbatch fit.sh", "fit.sh", "Dependency")
    assert job["exit_code"] is None and job["req_tres"] == "billing=1,cpu=1,mem=100M,node=1"


def test_the_job_of_a_forgotten_user_moves_no_version(slurm, site, reader):
    forget(site, "ada")
    slurm.queue(HELD)
    looks(reader, 2)
    before = versions_of(site)
    looks(reader, 2)
    assert table_of(site).is_empty() and versions_of(site) == before


@pytest.mark.parametrize(("many", "hours"), [(0, [24.0, 1 / 6, 1 / 60, 1 / 60]), (10, [24.0, 1 / 6, 1 / 6, 1 / 6])])
def test_where_very_many_records_are_read_again_only_one_look_a_minute_reaches_far_back(
    slurm, site, reader, monkeypatch, many, hours
):
    monkeypatch.setattr(slurm_poll, "_VERY_MANY", many)
    asked, sources = [], LiveSlurm.sources

    def noted(slurm, *args, overlap_hours, **more):
        asked.append(overlap_hours)
        return sources(slurm, *args, overlap_hours=overlap_hours, **more)

    monkeypatch.setattr(LiveSlurm, "sources", noted)
    slurm.queue()
    slurm.accounting(ended=(row(7, "FAILED", Start=SUBMITTED + 60, ExitCode="3:0"),))
    looks(reader, 4)
    assert asked == hours
