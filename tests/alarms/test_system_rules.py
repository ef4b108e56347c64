from datetime import timedelta

import pytest

from stormpetrel.alarms.system_rules import SourceLag, SystemRules
from stormpetrel.records.findings import FindingKind, SubjectKind
from stormpetrel.records.nodes import NodeState
from tests.parts.alarm_jobs import at

UP, DOWN = frozenset({"IDLE"}), frozenset({"DOWN", "NOT_RESPONDING"})


def minute(count):
    return at(1, minute=count)


def seen(rules, *looks):
    """What is found at looks a minute apart; each is the states of node n1."""
    return [bool(rules.nodes([NodeState("n1", states)], minute(number))) for number, states in enumerate(looks)]


def test_a_node_that_goes_down_is_told_when_it_has_stayed_so():
    assert seen(SystemRules("c1"), UP, DOWN, DOWN, DOWN, DOWN) == [False, False, False, True, False]


def test_what_was_down_before_anybody_watched_is_no_news():
    assert not any(seen(SystemRules("c1"), DOWN, DOWN, DOWN, DOWN, DOWN))


def test_a_reboot_is_no_outage_and_neither_is_what_was_done_on_purpose():
    assert not any(seen(SystemRules("c1"), UP, DOWN, DOWN, UP, DOWN, UP))
    assert not any(seen(SystemRules("c1"), UP, *[frozenset({"DOWN", "POWERED_DOWN"})] * 5))
    assert not any(seen(SystemRules("c1"), UP, *[frozenset({"IDLE", "DRAIN"})] * 5))


def test_a_node_that_stays_down_is_found_again_now_and_then_also_after_a_restart():
    rules = SystemRules("c1")
    assert sum(seen(rules, UP, *[DOWN] * 24)) == 3
    again = SystemRules("c1", rules.lasting)
    assert not again.nodes([NodeState("n1", DOWN)], minute(25))
    for number in range(26, 40):
        if found := again.nodes([NodeState("n1", DOWN, since=minute(1))], minute(number)):
            assert found[0].continues and found[0].since == minute(1)
            break
    else:
        pytest.fail("it was not found again")


def test_a_source_is_gone_when_it_has_been_away_for_long():
    rules = SystemRules("c1")
    lag = SourceLag("sacct", minute(0), minute(0))
    assert not rules.sources([lag], minute(4))
    (gone,) = rules.sources([lag], minute(6))
    assert gone.kind == FindingKind.SOURCE_GONE and (gone.subject.kind, gone.subject.name) == (SubjectKind.SOURCE, "sacct")
    assert gone.since == minute(0) and not rules.sources([lag], minute(7)) and not rules.sources([], minute(8))
    assert rules.lasting == [] and rules.sources([lag], minute(9)) != []


def test_hours_without_a_source_are_one_incident():
    from stormpetrel.alarms.grouping import IncidentBook

    rules, book = SystemRules("c1"), IncidentBook()
    for number in range(0, 300, 5):
        book.take(rules.sources([SourceLag("sacct", None, minute(0))], minute(number)), minute(number))
    (incident,) = book
    assert incident.resolved_at is None
    book.take([], minute(300) + timedelta(hours=1))
    assert next(iter(book)).resolved_at is not None
