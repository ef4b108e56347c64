"""The magic of the notebook: a script is checked where it is written.

%load_ext stormpetrel.faces.notebook, then `%stormpetrel check job.sh`, or `%%stormpetrel check` above a script in a cell ->
ScriptCheck, which the cell shows. With a site (--site DIR, `%stormpetrel site DIR`, STORMPETREL_SITE) its models answer; without
one the site's service does, for the user who asks.
"""

from __future__ import annotations

import getpass
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from stormpetrel_client.service import Service
from stormpetrel_client.where import ClientError, find_service

from stormpetrel.answers.schemas.predictions import ScriptAnswer
from stormpetrel.errors import StormpetrelError, UsageError
from stormpetrel.faces.notebook import markup
from stormpetrel.faces.notebook.script_check import ScriptCheck, check_script
from stormpetrel.sources.scripts.job_script import parse_job_script

_USAGE: Final = (
    "%stormpetrel check [--site DIR] [--user NAME] [--name JOB] job.sh, or %%stormpetrel check above a script in a cell."
)
_OPTIONS: Final = ("--site", "--user", "--name")
_CELL: Final = "this cell"
_MOST_SCRIPT: Final = 300_000  # characters, as the service takes


class Problem:
    """What went wrong, as a sentence in the cell instead of a trace."""

    def __init__(self, error: StormpetrelError) -> None:
        self._error = error

    def __repr__(self) -> str:
        return str(self._error)

    def _repr_html_(self) -> str:
        return markup.page(markup.wrong(self._error))


class StormpetrelMagic:
    """`%stormpetrel` and `%%stormpetrel`; remembers the site that `%stormpetrel site DIR` named."""

    def __init__(self) -> None:
        self._site: Path | None = None

    def __call__(self, line: str, cell: str | None = None) -> ScriptCheck | Problem | str:
        """Run one line, with the text below it where it was a cell."""
        try:
            return self._run(line, cell)
        except StormpetrelError as error:
            return Problem(error)

    def _run(self, line: str, cell: str | None) -> ScriptCheck | str:
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise UsageError(f"The line cannot be read: {error}.", hint=_USAGE) from None
        verbs: dict[str, Callable[[list[str], str | None], ScriptCheck | str]] = {"check": self._check, "site": self._use}
        if not words or words[0] not in verbs:
            raise UsageError(f"%stormpetrel cannot '{words[0] if words else ''}'.", hint=_USAGE)
        return verbs[words[0]](words[1:], cell)

    def _use(self, words: list[str], _cell: str | None) -> str:
        if len(words) != 1:
            raise UsageError("One folder of a site is expected.", hint="%stormpetrel site mysite")
        self._site = Path(words[0]).expanduser()
        return f"Scripts are checked with the models of {self._site}."

    def _check(self, words: list[str], cell: str | None) -> ScriptCheck:
        options, files = _options(words)
        if cell is None and len(files) != 1:
            raise UsageError("One script is expected.", hint=_USAGE)
        if cell is not None and files:
            raise UsageError("The script is the cell; no file is expected.", hint=_USAGE)
        named = options.get("--site") or self._site or os.environ.get("STORMPETREL_SITE")
        name, text = (Path(files[0]).name, _text_of(Path(files[0]).expanduser())) if cell is None else (_CELL, cell)
        name = options.get("--name", name)
        if named is None:
            return _ask_service(text, name, options.get("--user"))
        return check_script(Path(named).expanduser(), text, user=options.get("--user"), name=name)


def load_magic(ipython: Any) -> None:
    """Register the magic: as a line, and as a cell."""
    magic = StormpetrelMagic()
    ipython.register_magic_function(magic, "line_cell", "stormpetrel")


def _options(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Options with their values, in either spelling, and what is left."""
    options: dict[str, str] = {}
    files: list[str] = []
    rest = iter(words)
    for word in rest:
        name, has_value, value = word.partition("=")
        if not word.startswith("-"):
            files.append(word)
        elif name not in _OPTIONS:
            raise UsageError(f"There is no option '{name}'.", hint=_USAGE)
        else:
            options[name] = value if has_value else next(rest, "")
            if not options[name]:
                raise UsageError(f"{name} needs a value.", hint=_USAGE)
    return options, files


def _text_of(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as script:
            text = script.read(_MOST_SCRIPT + 1)
    except OSError as error:
        reason = (error.strerror or "it failed").lower()
        raise UsageError(f"{path} cannot be read: {reason}.", hint="Name a job script.") from None
    if len(text) > _MOST_SCRIPT:
        raise UsageError(f"{path} is too long for a script.", hint=f"At most {_MOST_SCRIPT:,} characters are read.")
    return text


def _ask_service(text: str, name: str, user: str | None) -> ScriptCheck:
    """Ask the site's service, which knows by the socket or the token who asks."""
    if user is not None and user != getpass.getuser():
        raise UsageError("The service answers for you alone.", hint="Leave out --user, or name a site with --site.")
    request = parse_job_script(text, name=name)
    body = {"text": text, "name": name, "folder": str(Path.cwd()), "arguments": []}
    try:
        answer = Service(find_service(os.environ)).ask("POST", "/predict/script", body=body)
    except ClientError as error:
        raise UsageError(error.what, hint=error.hint or "Or name a site: %stormpetrel site DIR") from None
    return ScriptCheck(text, request, ScriptAnswer.model_validate(answer))
