"""What a wrapper of sbatch or condor_submit asks before it runs the real program: words + script -> two lines, or a refusal.

Everything that goes wrong here means that the job is submitted as ever: `advice_on` returns None, and raises nothing but bugs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from stormpetrel_client.sbatch import split_words
from stormpetrel_client.unix_http import ExchangeError, exchange

LIMIT_S = 0.15
USUAL_SOCKET = "/run/stormpetrel/api.sock"
MOST_SCRIPT = 300_000  # characters; directives come first
_ANSWER = re.compile(r"(show|refuse)\n(.*)", re.DOTALL)
_WITH_VALUE = frozenset("a append name remote addr pool disable dump batch-name maxjobs maxidle stm dry-run".split())
_ASSIGNMENT = re.compile(r"[+A-Za-z_][\w.]*\s*=.*", re.DOTALL)
_OF_ENVIRONMENT = {  # what sbatch takes from the environment, weaker than its command line
    "SBATCH_ACCOUNT": "account", "SBATCH_PARTITION": "partition", "SBATCH_QOS": "qos", "SBATCH_TIMELIMIT": "time",
    "SBATCH_JOB_NAME": "job-name", "SBATCH_ARRAY_INX": "array", "SBATCH_GPUS": "gpus", "SBATCH_GPUS_PER_NODE": "gpus-per-node",
    "SBATCH_MEM_PER_CPU": "mem-per-cpu", "SBATCH_MEM_PER_NODE": "mem", "SBATCH_CONSTRAINT": "constraint",
}  # fmt: skip


class Advice(NamedTuple):
    """What the service says: lines for the terminal, and whether the site refuses the job."""

    lines: list[str]
    refuses: bool


def wants_input(program: str, words: Sequence[str]) -> bool:
    """Whether the script comes from standard input."""
    if program == "condor_submit":
        return submit_file(words) in (None, "-") and not _is_only_asking(words)
    cut = split_words(words)
    return cut.script in (None, "-") and cut.wrap is None and not _is_only_asking(words)


def advice_on(
    program: str, words: Sequence[str], given: str | None, environment: Mapping[str, str], *, limit_s: float = LIMIT_S
) -> Advice | None:
    """What the service says of a submission; `given` is the beginning of what came on standard input. None: nothing to say."""
    if environment.get("STORMPETREL_SUBMIT") == "off" or _is_only_asking(words):
        return None
    try:
        script = (_condor_script if program == "condor_submit" else _slurm_script)(words, given, environment)
        if script is None:
            return None
        body = json.dumps({"script": {**script, "folder": str(Path.cwd())}}).encode()
        headers = {"Content-Type": "application/json", "Accept": "text/plain"}
        socket_path = environment.get("STORMPETREL_SOCKET") or USUAL_SOCKET
        status, answer = exchange(socket_path, "POST", "/api/v1/predict/submit", headers=headers, body=body, limit_s=limit_s)
    except (ExchangeError, OSError, ValueError):
        return None
    match = _ANSWER.fullmatch(answer.decode("utf-8", "replace")) if status == 200 else None
    if match is None:
        return None
    lines = ["".join(letter if letter.isprintable() else "?" for letter in line) for line in match[2].splitlines()]
    return Advice([line for line in lines if line][:10], match[1] == "refuse")


def _is_only_asking(words: Sequence[str]) -> bool:
    return any(word in ("--help", "-h", "--usage", "--version", "-V", "-help", "-version", "--test-only") for word in words)


def _slurm_script(words: Sequence[str], given: str | None, environment: Mapping[str, str]) -> dict[str, object] | None:
    cut = split_words(words)
    text = f"#!/bin/sh\n{cut.wrap}\n" if cut.wrap is not None else _text(cut.script, given)
    if text is None:
        return None
    weak = [f"--{option}={environment[name]}" for name, option in _OF_ENVIRONMENT.items() if environment.get(name)]
    name = "wrap" if cut.wrap is not None else cut.script if cut.script not in (None, "-") else "stdin"
    return {"text": text, "name": name, "kind": "slurm", "arguments": [*weak, *cut.options]}


def submit_file(words: Sequence[str]) -> str | None:
    """The submit description file among the words of condor_submit."""
    waiting = iter(words)
    for word in waiting:
        option = word.lstrip("-")
        if word.startswith("-") and word != "-":
            if option in ("queue", "q"):
                return None
            if option in _WITH_VALUE:
                next(waiting, None)
        elif not _ASSIGNMENT.fullmatch(word):
            return word
    return None


def _condor_script(words: Sequence[str], given: str | None, environment: Mapping[str, str]) -> dict[str, object] | None:
    """The description as condor_submit puts it together: `name=value` words before it, `-append` lines before its `queue`."""
    name = submit_file(words)
    text = _text(name, given)
    if text is None:
        return None
    appended = [words[place + 1] for place, word in enumerate(words[:-1]) if word.lstrip("-") in ("a", "append")]
    values = set(appended)
    first = [word for word in words if _ASSIGNMENT.fullmatch(word) and word not in values]
    lines = text.splitlines()
    place = next((number for number, line in enumerate(lines) if line.strip().lower().split(" ")[:1] == ["queue"]), len(lines))
    return {"text": "\n".join([*first, *lines[:place], *appended, *lines[place:], ""]), "name": name or "stdin", "kind": "condor"}


def _text(script: str | None, given: str | None) -> str | None:
    """The beginning of a script; None where there is none that could be judged."""
    if script in (None, "-"):
        return given or None
    with Path(str(script)).open("rb") as file:
        data = file.read(MOST_SCRIPT + 1)
    if len(data) > MOST_SCRIPT:
        data = data[:MOST_SCRIPT].rpartition(b"\n")[0]
    return data.decode("utf-8", "replace") or None
