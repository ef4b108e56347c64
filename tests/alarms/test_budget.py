from datetime import timedelta

import pytest

from stormpetrel.alarms.budget import BUDGET, PageBudget
from stormpetrel.alarms.grouping import IncidentBook
from stormpetrel.records.incidents import Severity
from tests.parts.alarm_findings import batch_finding, finding
from tests.parts.alarm_jobs import at

HOUR = timedelta(hours=1)


def batches(scores, *, start=1.0, apart=1.0):
    """One batch of another user each time, with these scores."""
    return [
        batch_finding(f"user{number}", when=at(start + number * apart), deciding_score=score)
        for number, score in enumerate(scores)
    ]


def book_with(per_week, findings, **more):
    book = IncidentBook()
    book.budget = PageBudget(per_week, at(0), **more)
    for one in findings:
        book.take([one], one.known_at)
    return book


def test_in_the_first_two_weeks_only_what_a_rule_calls_a_page_is_sent():
    book = book_with(3.0, [*batches([50.0] * 8), finding(when=at(9))])
    assert [one.page for one in book] == [False] * 8 + [True]


def test_a_batch_is_sent_if_it_is_among_the_few_that_the_promise_has_room_for():
    book = book_with(1.0, batches([10.0, 20.0, 30.0, 40.0] * 7))  # 40 comes more often than once a week
    later = batches([25.0, 41.0], start=40.0)
    before = len(list(book))
    for one in later:
        book.take([one], one.known_at)
    assert [one.page for one in list(book)[before:]] == [False, True]
    assert list(book)[-1].severity == Severity.PAGE


def test_the_first_word_of_a_stream_that_never_spoke_is_sent():
    quiet = book_with(3.0, batches([10.0], start=30.0))
    assert [one.page for one in quiet] == [True]


def test_pages_of_rules_take_room_from_the_others():
    nodes = [finding(when=at(day), users=(f"u{day}",), jobs=(f"{day}",)) for day in range(1, 28, 9)]
    scores = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0] * 4
    with_rules = book_with(1.0, sorted([*nodes, *batches(scores)], key=lambda one: one.decided_at))
    alone = book_with(1.0, batches(scores))
    sent = [sum(one.page for one in book if one.findings[0].subject.kind == "user") for book in (with_rules, alone)]
    assert sent[0] < sent[1]


def test_what_the_thresholds_let_through_is_about_what_was_promised():
    import random

    chance = random.Random(4)
    findings = batches([chance.expovariate(0.1) for _ in range(500)], apart=0.25)  # 125 days, four a day
    book = book_with(3.0, findings)
    book.budget.has_room = lambda at, by_rule: True
    judged = [one for one in book if one.raised_at > at(30)]
    weeks = 95 / 7
    assert 1.5 < sum(one.page for one in judged) / weeks < 3.6


def test_a_week_never_has_more_than_was_promised_and_what_is_above_says_why():
    book = book_with(2.0, [*batches([1.0] * 14), *batches([90.0, 91.0, 92.0, 93.0], start=20.0, apart=0.1)])
    sent, held = list(book)[-4:-2], list(book)[-2:]
    assert all(one.page for one in sent) and [one.held_back for one in held] == [BUDGET, BUDGET]


def test_what_a_rule_calls_a_page_is_held_back_only_far_beyond_the_promise():
    from stormpetrel.records.findings import FindingKind, SubjectKind

    nodes = [
        finding(FindingKind.NODE_EATS_JOBS, (SubjectKind.NODE, f"n{number}"), when=at(20, hour=number), jobs=(f"{number}",))
        for number in range(12)
    ]
    book = book_with(3.0, nodes)
    assert sum(one.page for one in book) == 9 and list(book)[-1].held_back == BUDGET


def test_a_budget_opened_with_past_incidents_decides_as_the_one_that_saw_them():
    findings = batches([10.0, 20.0, 30.0, 40.0] * 7)
    book = book_with(1.0, findings)
    again = PageBudget(1.0, at(0), list(book))
    for score in (15.0, 25.0, 35.0, 45.0):
        (new,) = batches([score], start=40.0)
        assert again.is_page(new) == book.budget.is_page(new)


@pytest.mark.parametrize("looks", [1, 3])
def test_how_often_somebody_looks_changes_nothing(looks):
    findings = batches([10.0, 20.0, 30.0, 40.0] * 10)
    book = IncidentBook()
    book.budget = PageBudget(1.0, at(0))
    for begin in range(0, len(findings), looks):
        part = findings[begin : begin + looks]
        book.take(part, part[-1].known_at)
    one_by_one = book_with(1.0, findings)
    assert [one.page for one in book] == [one.page for one in one_by_one]


def test_a_stream_that_began_late_takes_as_much_room_as_it_has_had_since_then():
    from stormpetrel.records.findings import FindingKind, SubjectKind

    odd = [
        finding(FindingKind.COUNTS_ODD, (SubjectKind.CLUSTER, f"c{number}"), when=at(25 + number), jobs=(f"odd{number}",))
        for number in range(4)
    ]
    usual = batches([float(score) for score in range(1, 25)])
    late, alone = book_with(3.0, [*usual, *odd]), book_with(3.0, usual)
    new = batches([17.0, 30.0], start=30.0)
    assert [late.budget.is_page(one) for one in new] == [False, True]  # three a week from its first word on, not one
    assert [alone.budget.is_page(one) for one in new] == [True, True]
