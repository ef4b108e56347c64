"""The page of the threat model: every rule is numbered and names tests, and every test that it names exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "threat-model.md").read_text("utf-8")


def rules():
    """Number of each rule -> the tests that hold it."""
    parts = re.split(r"^\*\*R(\d+)\*\* ", PAGE.partition("## What is not defended")[0], flags=re.MULTILINE)[1:]
    return {int(number): re.findall(r"`(test_\w+)`", text) for number, text in zip(parts[::2], parts[1::2], strict=True)}


def names_of_tests():
    return {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^\s*(?:async )?def (test_\w+)\(", path.read_text("utf-8"), re.MULTILINE)
    }


def test_the_rules_are_numbered_without_gaps_and_each_is_held_by_a_test():
    assert list(rules()) == list(range(1, len(rules()) + 1)) and len(rules()) >= 20
    assert [number for number, tests in rules().items() if not tests] == []


def test_every_test_that_a_rule_names_exists():
    assert {name for tests in rules().values() for name in tests} - names_of_tests() == set()


def test_what_is_not_defended_says_loudly_that_loopback_is_shared():
    access = (ROOT / "docs" / "access.md").read_text("utf-8")
    assert "**Without a login every user of the machine is the administrator.**" in access
    assert "Every local user is the administrator" in PAGE.partition("## What is not defended")[2]


@pytest.mark.parametrize(
    ("heading", "letter", "fewest"),
    [("files", "F", 9), ("messages that leave the site", "M", 4), ("acting", "A", 8), ("a Ray cluster", "C", 3)],
)
def test_the_other_rules_are_numbered_and_each_is_held_by_tests_that_exist(heading, letter, fewest):
    text = PAGE.partition(f"## Rules: {heading}\n")[2].partition("\n## ")[0]
    parts = re.split(rf"^\*\*{letter}(\d+)\*\* ", text, flags=re.MULTILINE)[1:]
    held = {int(number): set(re.findall(r"`(test_\w+)`", rule)) for number, rule in zip(parts[::2], parts[1::2], strict=True)}
    assert list(held) == list(range(1, len(held) + 1)) and len(held) >= fewest
    assert all(held.values()) and set().union(*held.values()) - names_of_tests() == set()


def test_no_rule_has_a_letter_that_is_not_looked_at():
    assert set(re.findall(r"^\*\*([A-Z])\d+\*\*", PAGE, re.MULTILINE)) == {"R", "F", "M", "A", "C"}
