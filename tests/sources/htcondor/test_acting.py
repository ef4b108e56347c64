"""Acting on HTCondor, against answers that were written down: those of its programs' sources and manual, not of a live pool."""

import pytest

from stormpetrel.config import HtcondorSection
from stormpetrel.errors import SourceUnavailableError
from stormpetrel.records.actions.acts import Order
from stormpetrel.records.actions.policies import Action
from stormpetrel.sources.acting import run_command
from stormpetrel.sources.htcondor.acting import CondorActor
from tests.builders import T0

QUEUED = int(T0.timestamp())
RUNNING = f"2,{QUEUED},ada,slot1_2@n017\n"
REQUIREMENTS = '(TARGET.Arch == "X86_64") && (TARGET.Memory >= RequestMemory)\n'
ANSWERS = {  # as condor_rm, condor_hold, condor_qedit, condor_vacate_job and condor_drain print them
    "condor_rm": "Job 12.3 marked for removal",
    "condor_hold": "Job 12.3 held",
    "condor_qedit": 'Set attribute "Requirements" for 1 matching jobs.',
    "condor_vacate_job": "Job 12.3 vacated",
    "condor_drain": "Sent request to drain the startd <127.0.0.1:9618> with n017. This only affects the single startd; "
    "any other startds running on the same host will not be drained.",
}


@pytest.fixture
def pool(tmp_path):
    """The programs of a pool as scripts that print what was written down, and write down what they are given."""

    def script(name, text):
        path = tmp_path / name
        path.write_text(f'#!/bin/sh\nfor word in "$@"; do printf "%s|" "$word" >> "{tmp_path}/{name}.args"; done\n{text}\n')
        path.chmod(0o755)

    for name, answer in ANSWERS.items():
        script(name, f"cat <<'END'\n{answer}\nEND")
    (tmp_path / "queue").write_text(RUNNING)
    (tmp_path / "requirements").write_text(REQUIREMENTS)
    (tmp_path / "machines").write_text("n017,Claimed\nn017,Unclaimed\n")
    script("condor_q", f'case "$*" in *Requirements*) cat "{tmp_path}/requirements";; *) cat "{tmp_path}/queue";; esac')
    script("condor_status", f'cat "{tmp_path}/machines"')
    script("condor_config_val", "echo root, condor")
    script("condor_ping", "exit 1")
    return tmp_path


def actor(pool):
    return CondorActor(HtcondorSection(condor_q=str(pool / "condor_q")))


def order(action, **more):
    values = {"job_id": 12, "array_task": 3, "submit_time": T0, "user": "ada", "node": "n017", "text": "stormpetrel: risk 95%"}
    return Order(action, **(values | more))


def words_of(pool, action, **more):
    return [
        [command.words[0].rpartition("/")[2], *command.words[1:]] for command in actor(pool).plan(order(action, **more)).commands
    ]


def test_a_job_is_removed_held_or_told_by_its_cluster_and_process(pool):
    why = "stormpetrel: risk 95%"
    assert words_of(pool, Action.CANCEL) == [["condor_rm", "-reason", why, "12.3"]]
    assert words_of(pool, Action.NOTIFY) == [["condor_qedit", "12.3", "StormpetrelNotice", f'"{why}"']]
    (pool / "queue").write_text(f"1,{QUEUED},ada,undefined\n")
    assert words_of(pool, Action.HOLD) == [["condor_hold", "-reason", why, "12.3"]]


def test_a_job_is_kept_off_the_node_before_it_is_sent_away(pool):
    edit, vacate = words_of(pool, Action.REQUEUE)
    assert edit == ["condor_qedit", "12.3", "Requirements", f'({REQUIREMENTS.strip()}) && (TARGET.Machine =!= "n017")']
    assert vacate == ["condor_vacate_job", "12.3"]


def test_a_machine_is_drained_gracefully_and_its_answer_is_kept(pool):
    (command,) = actor(pool).plan(order(Action.DRAIN)).commands
    answer = run_command(command.words, 10)
    assert answer.ok and answer.text.startswith("Sent request to drain the startd")
    assert (pool / "condor_drain.args").read_text() == "-graceful|-reason|stormpetrel: risk 95%|n017|"


@pytest.mark.parametrize(
    ("queue", "refusal"),
    [("", "lists no job 12.3"), (f"2,{QUEUED + 1},ada,slot1@n017", "another time"),
     (f"2,{QUEUED},bob,slot1@n017", "another user"), (f"4,{QUEUED},ada,undefined", "completed by now")],
)  # fmt: skip
def test_a_job_that_is_another_one_by_now_is_left_alone(pool, queue, refusal):
    (pool / "queue").write_text(queue + "\n")
    plan = actor(pool).plan(order(Action.CANCEL))
    assert refusal in plan.refusal and not plan.commands


def test_a_job_that_does_not_run_on_the_node_is_not_sent_away(pool):
    (pool / "queue").write_text(f"2,{QUEUED},ada,slot1@n018\n")
    assert "does not run on n017" in actor(pool).plan(order(Action.REQUEUE)).refusal


@pytest.mark.parametrize(("machines", "refusal"), [("", "knows no machine"), ("n017,Drained\n", "drained already")])
def test_a_machine_that_is_not_there_or_drained_is_not_drained(pool, machines, refusal):
    (pool / "machines").write_text(machines)
    assert refusal in actor(pool).plan(order(Action.DRAIN)).refusal


def test_a_missing_right_is_one_sentence(pool, monkeypatch):
    monkeypatch.setattr("stormpetrel.sources.htcondor.acting.os.geteuid", lambda: 1000)
    monkeypatch.setattr("stormpetrel.sources.htcondor.acting.own_user_name", lambda: "petrel")
    assert "petrel in QUEUE_SUPER_USERS" in actor(pool).missing_right(Action.CANCEL)
    assert "needs the right ADMINISTRATOR" in actor(pool).missing_right(Action.DRAIN)


def test_without_its_programs_it_says_so(tmp_path):
    with pytest.raises(SourceUnavailableError, match="There is no condor_q"):
        CondorActor(HtcondorSection(condor_q=str(tmp_path / "condor_q")))
