"""Orders are checked when they are made: no hostile name becomes an argument of a command."""

import pytest

from stormpetrel.errors import UsageError
from stormpetrel.records.actions.acts import Order, harmless_line
from stormpetrel.records.actions.policies import Action

HOSTILE_NODES = [
    "",
    "ALL",
    "all",
    "n[1-999]",
    "n1,n2",
    "-a",
    "n1 State=DOWN",
    "n1\nn2",
    "$(reboot)",
    "n1;reboot",
    "../n1",
    "n1=",
    "é1",
]


def test_what_is_not_the_name_of_one_node_is_refused():
    passed = []
    for name in HOSTILE_NODES:
        for action in (Action.DRAIN, Action.REQUEUE):
            try:
                Order(action, 7, node=name)
            except UsageError:
                continue
            passed.append(name)
    assert passed == []


@pytest.mark.parametrize(("job", "task"), [(0, None), (-1, None), (2**60, None), (7, -1)])
def test_what_is_no_id_of_a_job_is_refused(job, task):
    with pytest.raises(UsageError):
        Order(Action.CANCEL, job, task)


def test_a_text_for_people_is_one_line_of_plain_marks():
    assert harmless_line('a\nb "c" $(d) `e` State=DOWN \x1b[31m ' + "x" * 500) == ("a b c (d) e StateDOWN 31m " + "x" * 500)[:200]
