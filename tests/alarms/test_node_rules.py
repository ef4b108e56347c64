from datetime import timedelta

import polars as pl
import pytest

from stormpetrel.alarms import node_rules
from stormpetrel.alarms.known_jobs import by_node, touching
from stormpetrel.alarms.node_rules import THRESHOLD, lost_at_once, node_failures
from tests.parts.alarm_jobs import DAY0, as_at_once, asked, assert_same, at, everyday, job, known, lost

USERS = ("ann", "bob", "cat")
END = at(8)


def elsewhere(*, each=8):
    """Jobs on other nodes that start while a node is looked at, and survive."""
    return [job(user, f"n{2 + k % 4}", at(6, hour=8, minute=k % 6)) for user in USERS for k in range(each * 3)]


def named(*rows, after=DAY0, now=END):
    return lost_at_once(known(*rows), after, now).rows


def test_a_node_is_named_at_the_third_loss_whose_like_survive_elsewhere():
    losses = [lost(user, "n1", at(6, hour=8, minute=4 * k)) for k, user in enumerate(USERS)]
    quick = [job("cat", "n5", at(6, hour=8, minute=8), run_s=8.0) for _ in range(8)]
    rows = named(everyday(), losses, elsewhere(), quick)
    assert rows.select("name", "at").rows() == [("n1", losses[2]["end_time"])]
    assert rows["score"][0] >= THRESHOLD and rows["since"][0] == losses[0]["start_time"]
    assert rows["usual"][0] == 0.0  # none of the others was lost: what is expected of few jobs is nobody's to read


def test_two_losses_name_nobody():
    assert not named(everyday(), [lost(user, "n1", at(6, hour=8)) for user in USERS[:2]], elsewhere()).height


def test_a_broken_batch_of_one_user_does_not_convict_the_node_that_it_runs_on():
    batch = [lost("ann", "n1", at(6, hour=8, minute=k)) for k in range(30)]
    assert not named(everyday(), batch).height


def test_one_users_batch_convicts_a_node_when_the_rest_of_it_survives_elsewhere_at_the_same_time():
    batch = [lost("ann", "n1", at(6, hour=8, minute=3 * k)) for k in range(12)]
    rest = [job("ann", f"n{2 + k % 4}", at(6, hour=8, minute=k / 2)) for k in range(60)]
    assert named(everyday(), batch, rest)["name"].unique().to_list() == ["n1"]


def test_a_script_that_was_broken_for_a_while_convicts_no_node_although_it_ran_before_and_runs_after():
    before = [job("ann", f"n{2 + k % 4}", at(6, hour=8, minute=k / 2)) for k in range(40)]
    batch = [lost("ann", "n1", at(6, hour=8, minute=30 + k)) for k in range(12)]
    after = [job("ann", f"n{2 + k % 4}", at(6, hour=8, minute=50 + k / 2)) for k in range(40)]
    late = lost("ann", "n1", at(6, hour=11))
    assert not named(everyday(), batch, before, after, late).height


def test_the_jobs_of_a_second_user_convict_a_node_that_a_mended_script_does_not():
    batch = [lost("ann", "n1", at(6, hour=8, minute=30 + k)) for k in range(12)]
    after = [job("ann", f"n{2 + k % 4}", at(6, hour=8, minute=50 + k / 2)) for k in range(40)]
    second = [lost("bob", "n1", at(6, hour=9, minute=20 + k)) for k in range(4)]
    well = [job("bob", f"n{2 + k % 4}", at(6, hour=9, minute=15 + k / 2)) for k in range(40)]
    assert named(everyday(), batch, after, second, well)["name"].unique().to_list() == ["n1"]


def test_a_batch_that_is_lost_everywhere_names_no_node():
    batch = [lost("ann", f"n{1 + k % 5}", at(6, hour=8, minute=k)) for k in range(60)]
    assert not named(everyday(), batch).height


def test_a_node_where_jobs_survive_in_between_is_not_named():
    mixed = [(lost if k % 2 else job)(USERS[k % 3], "n1", at(6, hour=8, minute=3 * k)) for k in range(24)]
    assert not named(everyday(), mixed, elsewhere()).height


def test_jobs_that_fail_after_ten_minutes_are_not_lost_at_once():
    slow = [job(user, "n1", at(6, hour=8, minute=k), run_s=600, state="FAILED") for k in range(8) for user in USERS]
    assert not named(everyday(), slow, elsewhere()).height


@pytest.mark.parametrize("state", ["CANCELLED", "OUT_OF_MEMORY", "TIMEOUT"])
def test_only_failures_count_as_losses(state):
    ended = [job(user, "n1", at(6, hour=8, minute=k), run_s=10, state=state) for k in range(8) for user in USERS]
    assert not named(everyday(), ended, elsewhere()).height


def test_a_sick_node_does_not_take_the_other_nodes_of_its_jobs_along():
    wide = [lost(USERS[k % 3], f"n1,n{2 + k % 4}", at(6, hour=8, minute=4 * k)) for k in range(16)]
    fine = [job(user, f"n{2 + k % 4}", at(6, hour=8, minute=4 * k + 1)) for user in USERS for k in range(16)]
    assert named(everyday(), wide, fine)["name"].unique().to_list() == ["n1"]


def test_nodes_of_the_same_name_in_two_clusters_are_two_nodes():
    losses = [lost(user, "n1", at(6, hour=8, minute=k)) | {"cluster": f"c{1 + k % 2}"} for k, user in enumerate(USERS)]
    assert not named(everyday(), losses, elsewhere()).height


def test_a_node_that_goes_down_is_named_with_its_jobs():
    gone = [job(user, "n2", at(1), run_s=5000 + k, state="NODE_FAIL") for k, user in enumerate(USERS)]
    triggers = node_failures(known(everyday(), gone), DAY0, END)
    assert triggers.rows["name"].to_list() == ["n2"] * 3 and triggers.members.height == 3


def test_of_the_nodes_of_a_wide_job_the_one_that_took_others_along_went_down():
    wide, narrow = (
        job("ann", "n[1-4]", at(1), run_s=5000, state="NODE_FAIL"),
        job("bob", "n3", at(1), run_s=4990, state="NODE_FAIL"),
    )
    assert node_failures(known(wide, narrow), DAY0, END).rows["name"].unique().to_list() == ["n3"]
    assert not node_failures(known(wide), DAY0, END).rows.height  # any of the four


def test_jobs_without_nodes_or_starts_are_no_trouble():
    odd = [lost("ann", "n1", at(6)) | {"node_list": None}, job("bob", "n1", at(6)) | {"start_time": None, "end_time": None}]
    assert not named(odd).height and not node_failures(known(odd), DAY0, END).rows.height


def test_a_survivor_among_the_last_losses_hides_no_sick_node_from_a_look_at_the_last_one():
    users = [f"u{k}" for k in range(8)]
    losses = [lost(user, "n1", at(6, hour=8, minute=5 * k)) for k, user in enumerate(users)]
    kept = job("zoe", "n1", at(6, hour=8, minute=24))  # survives at 8:26, before the last two
    others = [job(user, f"n{2 + k % 4}", at(6, hour=8, minute=k % 30)) for user in users for k in range(24)]
    last = losses[-1]["end_time"]
    rows = named(everyday(users), losses, kept, others, after=last - timedelta(seconds=5))
    assert rows.select("name", "at").rows() == [("n1", last)]


@pytest.mark.parametrize(("earlier", "expected"), [(5, []), (0, ["n1"])])
def test_a_lost_job_of_two_nodes_speaks_against_the_one_that_lost_more_before_the_look(earlier, expected):
    of_n2 = [lost("dan", "n2", at(6, hour=2, minute=5 * k)) for k in range(earlier)]
    fine_since = [job("dan", "n2", at(6, hour=5, minute=k)) for k in range(5)]
    losses = [lost(user, "n1", at(6, hour=8, minute=4 * k)) for k, user in enumerate(USERS[:2])]
    shared = lost("cat", "n[1-2]", at(6, hour=8, minute=8))
    quick = [job("cat", "n5", at(6, hour=8, minute=8), run_s=8.0) for _ in range(8)]
    rows = named(
        everyday(), of_n2, fine_since, losses, shared, elsewhere(), quick, after=shared["end_time"] - timedelta(seconds=5)
    )
    assert rows["name"].to_list() == expected


def test_a_look_at_suspects_alone_names_whom_a_look_at_every_node_names(monkeypatch):
    given = list(asked(lost_at_once))
    monkeypatch.setattr(node_rules, "_suspects", lambda jobs, _after, _now: by_node(jobs).select("cluster", "node").unique())
    assert_same(given, asked(lost_at_once))


def test_a_look_at_a_few_seconds_tells_of_the_nodes_that_a_look_at_weeks_says_went_down():
    assert_same(asked(node_failures), asked(as_at_once(node_failures)))


def test_what_touches_a_node_is_found_in_lists_of_its_own_cluster():
    jobs = pl.DataFrame({"cluster": ["a", "a", "b", "a"], "node_list": ["n[1-3]", "n4", "n[1-3]", None]})
    nodes = pl.DataFrame({"cluster": ["a"], "node": ["n2"]})
    assert touching(jobs, nodes).to_list() == [True, False, False, False]
