"""Every answer asks for its scope itself, before it looks at anything: no face can forget it."""

import importlib
import inspect
import pkgutil
from unittest.mock import MagicMock

import pytest

from stormpetrel import answers as room
from stormpetrel.answers.viewer import MANAGE, PREDICT, READ, SCOPES, WRITE, Viewer
from stormpetrel.errors import AccessError

ALLOWED = {
    "Overview.require_own": (READ, WRITE),  # who may write an opinion may know that the job is their own
    "check_request": (PREDICT,),
    "check_script": (PREDICT,),
    "check_submission": (PREDICT,),
    "choose_digest": (WRITE,),
    "create_token": (WRITE,),
    "delete_view": (WRITE,),
    "judge_requests": (PREDICT,),
    "keep_opinion": (WRITE,),
    "revoke_own_token": (WRITE,),
    "save_view": (WRITE,),
}
NO_ANSWERS = {"for_viewer", "user_for", "seen_by", "may_cancel"}  # say who is asking, for whom, and what is shown to whom


def answers():
    """Every public function and method of the room that is asked by a viewer, by its name."""
    found = {}
    for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
        for thing in vars(importlib.import_module(module.name)).values():
            if getattr(thing, "__module__", None) != module.name or thing is Viewer:
                continue
            members = vars(thing).values() if inspect.isclass(thing) else [thing]
            for function in filter(inspect.isfunction, members):
                parameters = inspect.signature(function).parameters
                if "viewer" in parameters and not function.__name__.startswith("_") and function.__name__ not in NO_ANSWERS:
                    found[function.__qualname__] = function
    return found


def ask(function, viewer):
    """Call it with things that stand for anything at all: what is refused is refused before they are looked at."""
    parameters = inspect.signature(function).parameters.values()
    needed = {one.name: MagicMock() for one in parameters if one.default is inspect.Parameter.empty}
    return function(**needed | {"viewer": viewer})


def test_there_are_answers_at_all():
    assert {"job_details", "Overview.page", "LiveSite.jobs", "waste", "nodes", "cluster_now", "capacity", "health"} <= set(
        answers()
    )


@pytest.mark.parametrize("name", sorted(answers()))
@pytest.mark.parametrize("scope", ["", PREDICT, WRITE])
def test_no_answer_is_given_to_an_administrator_who_may_not_read(name, scope):
    if scope in ALLOWED.get(name, ()):
        return
    with pytest.raises(AccessError, match="needs the scope"):
        ask(answers()[name], Viewer("root", is_admin=True, scopes=frozenset([scope])))


def test_who_may_not_read_sees_no_rows():
    for scope in set(SCOPES) - {READ}:
        with pytest.raises(AccessError, match=f"'{READ}'"):
            Viewer("root", is_admin=True, scopes=frozenset([scope])).sees()
    assert MANAGE in SCOPES
