"""Known last words: what the end of a job's output says about why it died. The table is data: `error_messages.toml`.

text -> find_error_message -> ErrorMessage | None; mask_secrets -> text that can be shown. Nothing of it is kept.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

_LONGEST_LINE: Final = 500
_MOST_LINES: Final = 400  # from the end
_SHOWN: Final = 160
_SECRETS: Final = (
    re.compile(
        r"(?i)((?:password|passwd|token|secret|api[_-]?key|authorization|credential)\S{0,20}?\s{0,2}[=:]\s{0,2})(?:bearer )?\S+"
    ),
    re.compile(r"(?i)(bearer )[\w.~+/-]{8,}=*"),
    re.compile(r"(://[^\s:/@]{1,100}:)[^\s@/]{1,200}(?=@)"),
    re.compile(r"\b(AKIA|ghp_|glpat-|xox[abp]-|hf_|sk-)[\w-]{8,}"),
    re.compile(r"\b(eyJ)[\w-]{10,}\.[\w-]{4,}\.[\w-]*"),
)


@dataclass(frozen=True, slots=True)
class KnownMessage:
    """One entry of the table: how a message looks, and what it means."""

    name: str
    pattern: re.Pattern[str]
    kind: str
    fault: str
    sentence: str
    change: str


@dataclass(frozen=True, slots=True)
class ErrorMessage:
    """A message that was found: what it means, and the line itself with secrets masked."""

    meaning: KnownMessage
    line: str


@cache
def known_messages() -> tuple[KnownMessage, ...]:
    """Return the table of last words, in the order in which its entries decide."""
    table = tomllib.loads(files(__package__).joinpath("error_messages.toml").read_text(encoding="utf-8"))
    return tuple(KnownMessage(**{**entry, "pattern": re.compile(entry["pattern"])}) for entry in table["messages"])


def find_error_message(text: str) -> ErrorMessage | None:
    """Return the most telling message of the end of an output: of all that match, the entry that stands first in the table."""
    lines = [line[:_LONGEST_LINE] for line in text.splitlines()[-_MOST_LINES:]]
    for meaning in known_messages():
        for line in reversed(lines):
            if meaning.pattern.search(line):
                return ErrorMessage(meaning, shown_line(line))
    return None


def shown_line(line: str) -> str:
    """Return a line that can be shown: one line, short, printable, secrets masked."""
    plain = "".join(letter if letter.isprintable() else " " for letter in line).strip()
    return mask_secrets(plain)[:_SHOWN]


def mask_secrets(text: str) -> str:
    """Return a text with what looks like passwords, tokens and keys replaced by ***."""
    for pattern in _SECRETS:
        text = pattern.sub(r"\1***", text)
    return text
