"""Known last words: every entry has a message that it recognises, and what is shown holds no secret."""

from __future__ import annotations

from pathlib import Path

from stormpetrel.jobs.causes.error_messages import find_error_message, known_messages, mask_secrets

LINES = [line.split("\t") for line in (Path(__file__).parent / "error_messages.txt").read_text().splitlines()]


def test_every_entry_has_a_message_of_its_own() -> None:
    assert [entry.name for entry in known_messages()] == [name for name, _ in LINES]


def test_each_message_is_taken_for_what_it_is() -> None:
    mistaken = {
        name: words and words.meaning.name
        for name, line in LINES
        if not (words := find_error_message(line)) or words.meaning.name != name
    }
    assert mistaken == {}


def test_of_several_messages_the_more_telling_one_counts() -> None:
    words = find_error_message(
        "ValueError: bad\nslurmstepd: error: Detected 1 oom-kill event(s) in StepId=12.batch.\nSegmentation fault\n"
    )
    assert words is not None and words.meaning.kind == "memory"


def test_ordinary_output_says_nothing() -> None:
    assert find_error_message("step 1 of 10\nall is well\n") is None


def test_only_the_end_of_a_long_output_counts() -> None:
    assert find_error_message("Segmentation fault\n" + "fine\n" * 1000) is None


def test_passwords_tokens_and_keys_are_masked() -> None:
    texts = {
        "password=hunter2 failed": "password=*** failed",
        "Authorization: Bearer abcdef1234567890": "Authorization: ***",
        "postgres://wren:secret@db/x": "postgres://wren:***@db/x",
        "using ghp_0123456789abcdef": "using ghp_***",
    }
    assert {text: mask_secrets(text) for text in texts} == texts


def test_a_line_full_of_nothing_takes_no_time() -> None:
    assert find_error_message(("a" * 10_000 + "\n") * 400) is None
