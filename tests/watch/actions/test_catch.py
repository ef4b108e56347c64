"""The safety catch: noted before it is done, done once whatever is killed, and only if it is still the same job."""

import subprocess
import sys
from contextlib import contextmanager
from datetime import timedelta

import pytest

from stormpetrel.records.actions.acts import Act, ActState, Mode
from stormpetrel.records.actions.policies import Action
from stormpetrel.records.jobs import JobRef
from stormpetrel.store.actions import Caps
from stormpetrel.watch.actions import catch
from stormpetrel.watch.actions.catch import Catch
from tests.builders import T0, make_site
from tests.parts.acting_slurm import ActingSlurm

REF = JobRef("petrel", 7, None, T0, 0)


@pytest.fixture
def slurm(tmp_path):
    return ActingSlurm(tmp_path / "slurm")


@pytest.fixture
def site(tmp_path, slurm):
    with make_site(tmp_path / "site", slurm=slurm.settings) as made:
        yield made


def act(site, action=Action.CANCEL, **more):
    subject, user = ("n017", "") if action == Action.DRAIN else (str(REF), "ada")
    values = {
        "key": "k", "policy": "p", "digest": "d", "mode": Mode.LIVE, "action": action, "cluster": "petrel", "subject": subject,
        "user": user, "by": "policy:p", "decided": site.now(), "evidence": {}, "state": ActState.INTENDED,
        "node": "" if action == Action.CANCEL else "n017",
    }  # fmt: skip
    return Act(**(values | more))


def perform(site, one):
    return Catch(site).perform(one, Caps())


def test_it_is_done_once_with_plain_arguments_and_the_answer_is_kept(site, slurm):
    slurm.lists("RUNNING", T0)
    slurm.answers("scancel says so")
    done = perform(site, act(site))
    again = perform(site, act(site))
    assert (done.state, done.steps[0].code, done.steps[0].answer) == (ActState.DONE, 0, "scancel says so")
    assert again == done and slurm.calls() == ["scancel 7"]
    assert [(entry.user, entry.action) for entry in site.audit.recent()] == [("policy:p", "action cancel")]


@pytest.mark.parametrize(
    ("state", "submit", "user", "why"),
    [
        ("", None, "ada", "lists no job 7"),
        ("RUNNING", T0 + timedelta(days=9), "ada", "submitted at another time"),
        ("RUNNING", T0, "bob", "of another user"),
        ("COMPLETED", T0, "ada", "COMPLETED by now"),
    ],
)
def test_a_job_that_is_another_one_by_now_is_left_alone(site, slurm, state, submit, user, why):
    slurm.lists(state, submit, user=user)
    refused = perform(site, act(site))
    assert refused.state == ActState.REFUSED and why in refused.why and slurm.calls() == []


def test_what_the_scheduler_refuses_is_kept_in_its_words(site, slurm):
    slurm.lists("RUNNING", T0)
    slurm.answers("error: Access/permission denied", code=1)
    assert (perform(site, act(site)).state, site.actions.get("k").why) == ("failed", "error: Access/permission denied")


def test_a_scheduler_that_is_away_holds_it_back_and_it_is_tried_again(site, slurm):
    slurm.script("squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    assert perform(site, act(site)).state == ActState.HELD_BACK
    slurm.script("squeue", 'cat "$here/queue.txt"')
    slurm.lists("RUNNING", T0)
    assert perform(site, act(site)).state == ActState.DONE


def test_the_switch_is_honoured_between_decision_and_act(site, slurm):
    slurm.lists("RUNNING", T0)
    slurm.script("squeue", f'touch "{site.folder}/ACTIONS_OFF"; cat "$here/queue.txt"')  # turned off while it is planned
    assert perform(site, act(site)).state == ActState.OFF and slurm.calls() == []


@pytest.mark.parametrize("node", ["ALL", "n[001-999]", "n1 State=DOWN", "-M other"])
def test_a_hostile_node_is_refused_before_anything_is_run(site, slurm, node):
    assert perform(site, act(site, Action.DRAIN, node=node)).state == ActState.REFUSED
    assert slurm.calls() == []


def test_a_node_that_is_drained_already_keeps_its_reason(site, slurm):
    refused = perform(site, act(site, Action.DRAIN, node="n018"))
    assert refused.state == ActState.REFUSED and "new disk" in refused.why and slurm.calls() == []


def test_a_job_that_was_requeued_is_released_even_if_the_node_could_not_be_excluded(site, slurm):
    slurm.lists("RUNNING", T0)
    slurm.script("scontrol", 'echo "$*" >> "$here/calls.txt"; case "$*" in *ExcNodeList*) exit 1;; esac')
    assert perform(site, act(site, Action.REQUEUE)).state == ActState.FAILED
    assert slurm.calls() == ["requeuehold 7", "update JobId=7 ExcNodeList=n017", "release 7"]


@contextmanager
def killed_at(monkeypatch, number):
    """Let the process be killed while it waits for the answer to its command of this number."""
    given = []

    def run(words, timeout_s):
        given.append(words)
        if len(given) == number:
            raise KeyboardInterrupt
        return real(words, timeout_s)

    real = catch.run_command
    with monkeypatch.context() as patch:
        patch.setattr(catch, "run_command", run)
        yield


def test_after_a_kill_a_cancel_is_not_given_twice(site, slurm, monkeypatch):
    slurm.lists("RUNNING", T0)
    with killed_at(monkeypatch, 1), pytest.raises(KeyboardInterrupt):
        perform(site, act(site))
    assert [one.state for one in site.actions.unfinished()] == [ActState.RUNNING]
    (after,) = Catch(site).resume(lambda act: True)
    assert after.state == ActState.INTERRUPTED and "not known" in after.why and slurm.calls() == []
    assert perform(site, act(site)).state == ActState.INTERRUPTED


def test_after_a_kill_in_the_middle_a_requeued_job_is_released(site, slurm, monkeypatch):
    slurm.lists("RUNNING", T0)
    with killed_at(monkeypatch, 2), pytest.raises(KeyboardInterrupt):
        perform(site, act(site, Action.REQUEUE))
    (after,) = Catch(site).resume(lambda act: True)
    assert after.state == ActState.DONE
    assert [call.split()[1] for call in slurm.calls()] == ["requeuehold", "update", "release"]


@pytest.mark.parametrize(("armed", "minutes", "state"), [(True, 1, "done"), (True, 20, "expired"), (False, 1, "expired")])
def test_what_was_noted_and_not_begun_is_done_only_while_it_is_wanted(site, slurm, armed, minutes, state):
    slurm.lists("RUNNING", T0)
    site.actions.intend(act(site), Caps(), site.now() - timedelta(minutes=minutes))
    assert [one.state for one in Catch(site).resume(lambda act: armed)] == [state]
    assert len(slurm.calls()) == (state == "done")


def test_a_process_that_is_really_killed_leaves_word_of_what_it_had_begun(site, slurm):
    slurm.lists("RUNNING", T0)
    slurm.script("scancel", 'echo "scancel $*" >> "$here/calls.txt"; kill -9 $PPID')
    code = (
        "import sys; from pathlib import Path; from stormpetrel.store.site import open_site\n"
        "from tests.watch.actions.test_catch import act, perform\n"
        "site = open_site(Path(sys.argv[1])); perform(site, act(site))"
    )
    assert subprocess.run([sys.executable, "-c", code, str(site.folder)]).returncode == -9
    (after,) = Catch(site).resume(lambda act: True)
    assert after.state == ActState.INTERRUPTED and slurm.calls() == ["scancel 7"]
