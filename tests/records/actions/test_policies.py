"""Policies in site.toml: off by default, checked, allow-lists, and what makes a policy another one."""

import pytest

from stormpetrel.config import Settings, parse_settings
from stormpetrel.errors import SettingsError
from stormpetrel.records.actions.policies import Policy


def policy(**more):
    return Policy(**{"name": "p", "action": "cancel", **more})


def test_by_default_there_is_no_policy_and_nobody_cancels_from_here():
    actions = Settings().actions
    assert actions.policies == [] and actions.cancel_by == "nobody"


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ('name = "A b"\naction = "drain"', "small letters"),
        ('name = "a"\naction = "reboot"', "drain"),
        ('name = "a"\naction = "hold"\nmoment = "2min"', "not done at '2min'"),
        ('name = "a"\naction = "drain"\nusers = ["ada"]', "is about nodes"),
        ('name = "a"\naction = "drain"\nkinds = ["gremlins"]', "node_eats_jobs"),
        ('name = "a"\naction = "drain"\nnodes = ["n1,n2"]', "expected names"),
        ('name = "a"\naction = "cancel"\nper_hour = 0', "greater than or equal to 1"),
    ],
)
def test_a_policy_that_cannot_be_is_refused_with_its_key(lines, problem):
    with pytest.raises(SettingsError, match=problem):
        parse_settings(f"[[actions.policies]]\n{lines}\n")


def test_two_policies_have_two_names():
    text = '[[actions.policies]]\nname = "a"\naction = "drain"\n'
    with pytest.raises(SettingsError, match="two policies are called 'a'"):
        parse_settings(text * 2)


def test_a_job_has_to_fit_every_list_that_is_not_empty():
    listed = policy(partitions=["debug"], users=["a*"])
    assert listed.allows_job(user="ada", account="x", partition="debug", nodes=[])
    assert not listed.allows_job(user="bob", account="x", partition="debug", nodes=[])
    assert not listed.allows_job(user="ada", account="x", partition="gpu", nodes=[])


def test_a_policy_without_an_allow_list_names_nobody():
    assert policy().names_nobody and not policy(users=["*"]).names_nobody
    assert Policy(name="d", action="drain").names_nobody and not Policy(name="d", action="drain", nodes=["n*"]).names_nobody


def test_any_change_makes_it_another_policy():
    assert policy().digest == policy().digest != policy(tau=0.9).digest
