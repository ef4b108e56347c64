"""Templates of mail: plain text with $names out of a fixed list, a subject in the first line. Nothing in them is executed.

folder -> load_templates -> MailTemplates.fill(name, values) -> subject, text. A file of the site replaces ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Final

from stormpetrel.alarms.notices import clean_line
from stormpetrel.errors import SettingsError

_LONGEST_SUBJECT: Final = 200
_MOST_CHARACTERS: Final = 20_000
_BEGINS: Final = "Subject: "
_END: Final = "\n--\nSent by Stormpetrel at $site.\n"
OURS: Final = {
    "job": "Subject: $job $name: $state\n\n$happened\n\n$why\n\n$next\n\n$efficiency\n\n$link\n" + _END,
    "array": "Subject: Array $job $name: $state\n\n$happened\n\n$why\n\n$next\n\n$efficiency\n\n$link\n" + _END,
    "several": "Subject: $count jobs have ended: $state\n\nMore mails than you get in an hour; this is the rest.\n\n$jobs\n"
    + _END,
    "plain": "Subject: $subject\n\n$subject\n" + _END,
    "digest": "Subject: Your week on $site: $failed of $jobs jobs failed\n\nHello $user,\n\nyour week from $first to $last.\n\n"
    "$failures\n\n$waste\n\n$next\n\n$incidents\n\n$link\n\nYou asked for this mail. To stop it: $stop\n" + _END,
}
_OF_JOB: Final = frozenset("job name state user cluster happened why next efficiency link subject site".split())
NAMES: Final = {
    "job": _OF_JOB,
    "array": _OF_JOB | {"count"},
    "several": frozenset("count state jobs link site".split()),
    "plain": frozenset("subject name job user cluster site".split()),
    "digest": frozenset("user site first last jobs failed failures waste next incidents link stop".split()),
}


class MailTemplates:
    """The templates in force: those of the site's folder, ours where it has none."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = dict(texts)

    def fill(self, name: str, values: Mapping[str, str]) -> tuple[str, str]:
        """Return subject and text of a mail; what a value holds is never read as a template."""
        subject, _, body = self._texts[name].partition("\n")
        filled = {key: values.get(key, "") for key in NAMES[name]}
        line = clean_line(Template(subject.removeprefix(_BEGINS)).substitute({k: clean_line(v) for k, v in filled.items()}))
        text = Template(body).substitute({key: _clean_text(value) for key, value in filled.items()})
        return line[:_LONGEST_SUBJECT], re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"


def load_templates(folder: str) -> MailTemplates:
    """Return the templates of a folder over ours; SettingsError where one of them cannot work."""
    return MailTemplates({name: _text(Path(folder) / f"{name}.txt", name) if folder else ours for name, ours in OURS.items()})


def _text(path: Path, name: str) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return OURS[name]
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"The template {path} cannot be read: {error}.", hint="Set mail.templates in site.toml.") from None
    known = ", ".join(f"${placeholder}" for placeholder in sorted(NAMES[name]))
    if not text.startswith(_BEGINS) or len(text) > _MOST_CHARACTERS:
        raise SettingsError(
            f"The template {path} does not begin with '{_BEGINS}…', or is too long.", hint="Its first line is the subject."
        )
    template = Template(text)
    if not template.is_valid():
        raise SettingsError(
            f"The template {path} has a $ that begins no name.", hint=f"Write $$ for a dollar sign. Known: {known}"
        )
    unknown = sorted(set(template.get_identifiers()) - NAMES[name])
    if unknown:
        raise SettingsError(f"The template {path} uses ${unknown[0]}, which is not known.", hint=f"Known: {known}")
    return text


def _clean_text(text: str) -> str:
    """Lines of printable characters: no value can add a header or move a cursor."""
    lines = ("".join(letter if letter.isprintable() else " " for letter in line).rstrip() for line in text.split("\n"))
    return "\n".join(lines)
