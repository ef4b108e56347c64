"""`stormpetrel` for users: check, why, jobs, me, waste, alarms, top, digest, tokens, asked of the site's service.

arguments -> main -> exit code: 0 fine, 2 wrong use or no service, 3 refused, or a risk above --fail-above, 4 cannot run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from stormpetrel_client import __version__, render
from stormpetrel_client.sbatch import Words, own_options_first, split_words
from stormpetrel_client.service import Service
from stormpetrel_client.where import ClientError, find_service

ABOVE = 3
CANNOT_RUN = 4
_MOST_SCRIPT = 300_000  # characters; directives come first
_WHICH = "Which script?"
_AS_FOR_SBATCH = "stormpetrel check job.sh, or as for sbatch: stormpetrel check -t 5 job.sh; - reads it from here."
_INTERRUPTED = 130
_OF_FIELD = re.compile(r"(?:query|body)\.([a-z_]+)(?:\.\d+)?: (.*)", re.DOTALL)
_OPTION_OF = {"scopes": "scope", "address": "to"}
_FLAGS_OF_CHECK = ("--json", "--short", "-h", "--help")
_VALUES_OF_CHECK = ("--timeout", "--kind", "--fail-above", "--above")


def program() -> int:
    """Run one command as a program: what a terminal cannot show is replaced; Ctrl-C and a closed pipe end it quietly."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        code = main()
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left is for nobody
        return 0
    return code


def main(arguments: Sequence[str] | None = None, *, prints: Callable[[str], None] = print) -> int:
    """Run one command."""
    options = parse_words(sys.argv[1:] if arguments is None else arguments)
    try:
        answer, lines, code = options.run(Service(find_service(os.environ), timeout_s=options.timeout), options)
    except ClientError as error:
        error = _about_option(error)
        print(f"error: {render.plain(error.what)}", file=sys.stderr)
        if error.hint:
            print(f"       {render.plain(error.hint)}", file=sys.stderr)
        return error.code
    if options.json:
        prints(json.dumps(answer, indent=2))
    else:
        for line in lines:
            prints(line)
    return int(code)


def _about_option(error: ClientError) -> ClientError:
    """What the service says of a field of the request, said of the option that it came from."""
    match = _OF_FIELD.fullmatch(error.what)
    if match is None:
        return error
    return ClientError(
        f"--{_OPTION_OF.get(match[1], match[1])}: {match[2]}", "With --help after the command it says more.", error.code
    )


def parse_words(words: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; what sbatch would get of `check` is in `sbatch`. SystemExit where it is wrong."""
    own = list(words)
    after: list[str] = []
    if own[:1] == ["check"]:
        own, after = own_options_first(own[1:], flags=_FLAGS_OF_CHECK, with_value=_VALUES_OF_CHECK)
        own.insert(0, "check")
    options = _parser().parse_args(own)
    options.sbatch = after
    return options


Result = tuple[Any, Iterable[str], int]  # the answer, what people read of it, the exit code


def _check(service: Service, options: Any) -> Result:
    words = split_words(options.sbatch)
    late = next((word for word in words.arguments if word.startswith("-")), None)
    if late is not None:
        note = f"note: {render.plain(late)} stands after the script, which gets it itself; sbatch's options go first."
        print(note, file=sys.stderr)
    body = {"folder": str(Path.cwd()), "arguments": words.options, **_script(words)}
    if options.kind:
        body["kind"] = options.kind
    answer = service.ask("POST", "/predict/script", body=body)
    fit, risk = answer.get("cluster") or {}, answer.get("risk")
    code = CANNOT_RUN if fit.get("can_run") is False else 0
    if not code and options.fail_above is not None and risk is not None and risk > options.fail_above:
        code = ABOVE
    lines: Iterable[str] = render.check_lines(answer)
    if options.short:
        quiet = not code and (risk is None or risk < options.above)
        lines = [] if quiet else render.short_lines(answer)
    return answer, lines, code


def _script(words: Words) -> dict[str, str]:
    if words.wrap is not None:
        return {"text": f"#!/bin/sh\n{words.wrap}\n", "name": "wrap", "kind": "slurm"}
    script, as_for_sbatch = words.script, _AS_FOR_SBATCH
    if script is None and len(words.options) > 1 and Path(words.options[-1]).is_file():
        as_for_sbatch = f"{words.options[-1]} was taken as the value of {words.options[-2]}. {_AS_FOR_SBATCH}"
    if script is None and not sys.stdin.isatty():  # as sbatch does where no script is named
        script = "-"
    if script is None:
        raise ClientError(_WHICH, as_for_sbatch)
    try:
        text = _beginning(sys.stdin.buffer) if script == "-" else _beginning_of(script)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        why = getattr(error, "strerror", None) or str(error)
        raise ClientError(f"{script} cannot be read: {why}.", "Name the script that you submit.") from error
    if not text.strip():
        if script == "-":
            raise ClientError(f"{_WHICH} Standard input is empty.", as_for_sbatch)
        raise ClientError(f"{script} is empty: there is no job in it.", "Name the script that you submit.")
    return {"text": text, "name": "stdin" if script == "-" else str(Path.cwd() / script)}


def _beginning_of(script: str) -> str:
    with Path(script).open("rb") as file:
        return _beginning(file)


def _beginning(file: BinaryIO) -> str:
    data = file.read(_MOST_SCRIPT + 1)
    if len(data) > _MOST_SCRIPT:
        data = data[:_MOST_SCRIPT].rpartition(b"\n")[0] or data[:_MOST_SCRIPT]
    return data.decode("utf-8", "replace")


def _show_job(service: Service, options: Any) -> Result:
    found = service.ask("GET", "/find", query={"id": options.job}).get("items") or []
    if not found:
        raise ClientError(f"There is no job {options.job} that you may see.", "Check the id: stormpetrel jobs list", code=3)
    answer = service.ask("GET", f"/jobs/{found[0]['ref']}")
    return answer, render.job_lines(answer), 0


def _list_jobs(service: Service, options: Any) -> Result:
    query = {"limit": options.limit, "search": options.search, "flagged": "true" if options.at_risk else None}
    answer = service.ask("GET", "/jobs", query=query)
    rows = answer.get("items") or []
    return answer, render.job_ids(rows) if options.ids else render.jobs_lines(rows), 0


def _waste(service: Service, options: Any) -> Result:
    answer = service.ask("GET", "/waste", query={"by": options.by, "weeks": options.weeks})
    return answer, render.waste_lines(answer), 0


def _alarms(service: Service, options: Any) -> Result:
    answer = service.ask("GET", "/alarms", query={"state": options.state, "limit": options.limit})
    return answer, render.alarm_lines(answer), 0


def _show_alarm(service: Service, options: Any) -> Result:
    answer = service.ask("GET", f"/alarms/{options.number}")
    return answer, render.incident_lines(answer), 0


def _top(service: Service, options: Any) -> Result:
    import shutil

    from stormpetrel_client import page  # with curses, which other commands do not need

    if options.once or options.json:
        look = page.look_at_service(service, page.Question())
        return look, page.once_lines(look, page.Question(), shutil.get_terminal_size((100, 24)).columns), 0
    from stormpetrel_client.screen import show

    show(partial(page.look_at_service, service), partial(_more_about, service), every_s=options.every)
    return {}, [], 0


def _more_about(service: Service, kind: str, key: str) -> Iterable[str]:
    if kind == "job":
        return render.job_lines(service.ask("GET", f"/jobs/{key}"))
    return render.incident_lines(service.ask("GET", f"/alarms/{key}"))


def _me(service: Service, options: Any) -> Result:
    answer = service.ask("GET", "/me", query={"weeks": options.weeks})
    return answer, render.me_lines(answer), 0


def _digest(service: Service, options: Any) -> Result:
    if options.choice is None:
        answer = service.ask("GET", "/me", query={"weeks": "1"}).get("digest") or {}
    else:
        answer = service.ask("PUT", "/me/digest", body={"wanted": options.choice == "on", "address": options.to})
    return answer, render.digest_lines(answer), 0


def _create_token(service: Service, options: Any) -> Result:
    service.require_socket("Tokens are made over the service's Unix socket only.")
    body = {"name": options.name, "scopes": options.scope or ["predict", "read"], "days": options.days}
    if not options.output:
        answer = service.ask("POST", "/tokens", body=body)
        print("This is the only time it is shown: keep it in a file that only you can read.", file=sys.stderr)
        return answer, [str(answer.get("token", ""))], 0
    with _new_file(options.output) as file:  # before the token is made, which nobody can read twice
        try:
            answer = dict(service.ask("POST", "/tokens", body=body))
            file.write(f"{answer.pop('token')}\n")
        except BaseException:
            Path(options.output).unlink()
            raise
    return answer, [f"The token is in {options.output}. STORMPETREL_TOKEN_FILE names it to this program elsewhere."], 0


def _new_file(path: str) -> TextIO:
    """A file for us alone that was not there before."""
    try:
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w", encoding="ascii")
    except OSError as error:
        raise ClientError(f"{path} cannot be made: {error.strerror}.", "Name a file that is not there yet.") from error


def _list_tokens(service: Service, options: Any) -> Result:
    answer = service.ask("GET", "/tokens")
    return answer, render.token_lines(answer.get("tokens") or []), 0


def _revoke_token(service: Service, options: Any) -> Result:
    answer = service.ask("DELETE", f"/tokens/{options.name}")
    return answer, [f"The token '{options.name}' is revoked."], 0


def _narrow_alarms(command: argparse.ArgumentParser) -> None:
    command.add_argument("--state", default=None, choices=("open", "acknowledged", "resolved"))
    command.add_argument("--limit", type=int, default=20)


def _seconds(text: str) -> float:
    """A time of up to an hour."""
    with suppress(ValueError):
        if 0.0 < float(text) <= 3600.0:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no time of up to 3600 seconds")


def _pause(text: str) -> float:
    """Seconds between two looks."""
    if _seconds(text) < 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is no pause of 1 to 3600 seconds")
    return _seconds(text)


def _token_name(text: str) -> str:
    """A name of a token, as the service takes it."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no name of letters, digits, dots, - and _, such as notebook")
    return text


def _share(text: str) -> float:
    """A risk from 0 to 1."""
    with suppress(ValueError):
        if 0.0 <= float(text) <= 1.0:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no risk from 0 to 1, such as 0.3")


def _parser() -> argparse.ArgumentParser:
    """The commands of the light client."""
    parser = argparse.ArgumentParser(
        prog="stormpetrel",
        allow_abbrev=False,
        description="Early warning for compute clusters, from your site's service.",
        epilog="The service is named by STORMPETREL_SERVICE or /etc/stormpetrel/client.toml.",
    )
    parser.add_argument("--version", action="version", version=f"stormpetrel-client {__version__}")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="print the answer as JSON")
    common.add_argument("--timeout", type=_seconds, default=10.0, metavar="S", help="give up after so many seconds")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, run: Callable[..., Any], text: str, under: Any = commands) -> argparse.ArgumentParser:
        command: argparse.ArgumentParser = under.add_parser(
            name, parents=[common], help=text, description=text, allow_abbrev=False
        )
        command.set_defaults(run=run)
        return command

    check = add("check", _check, "Judge a job script before it is submitted: stormpetrel check [whatever sbatch takes] job.sh")
    check.usage = "stormpetrel check [--json] [--short] [--fail-above RISK] [--kind KIND] [OPTIONS OF SBATCH] [SCRIPT]"
    check.epilog = "SCRIPT - or none reads it from standard input. After -- everything is for sbatch."
    check.add_argument("--kind", choices=("slurm", "pbs", "lsf", "condor"), help="found from the script if left out")
    check.add_argument("--fail-above", type=_share, metavar="RISK", help="exit with 3 if the risk is above this, such as 0.3")
    check.add_argument("--short", action="store_true", help="two lines")
    check.add_argument("--above", type=_share, default=0.0, metavar="RISK", help="with --short: nothing below this risk")
    why = add("why", _show_job, "Explain what happened to a job, and what to change.")
    why.add_argument("job", help="its id, such as 12345 or 12345_7")
    jobs = commands.add_parser("jobs", help="Your jobs.").add_subparsers(dest="jobs", required=True, metavar="list|show")
    listed = add("list", _list_jobs, "List your jobs, the newest first.", jobs)
    listed.add_argument("--limit", type=int, default=20)
    listed.add_argument("--search", default=None, help="in ids, names, partitions")
    listed.add_argument("--at-risk", action="store_true", help="only those whose risk reaches the threshold")
    listed.add_argument("--ids", action="store_true", help="only their ids, a line each: for completion in a shell")
    shown = add("show", _show_job, "Show one job.", jobs)
    shown.add_argument("job")
    me = add("me", _me, "Your own page: failures beside people alike, waste, what to change, incidents.")
    me.add_argument("--weeks", default="4", choices=("1", "4", "12", "52"), help="of jobs that ended in the last so many (4)")
    waste = add("waste", _waste, "Show what your failed jobs held.")
    waste.add_argument("--by", default="application", choices=("user", "account", "application", "partition", "outcome", "week"))
    waste.add_argument("--weeks", type=int, default=None)
    alarms = add("alarms", _alarms, "List incidents that concern your jobs, or show one: stormpetrel alarms show NUMBER")
    _narrow_alarms(alarms)
    parts = alarms.add_subparsers(metavar="list|show")
    _narrow_alarms(add("list", _alarms, "List incidents that concern your jobs.", parts))
    add("show", _show_alarm, "Show one incident.", parts).add_argument("number", type=int)
    top = add("top", _top, "Watch incidents, jobs at risk and your jobs on this terminal, until q.")
    top.add_argument("--every", type=_pause, default=10.0, metavar="S", help="seconds between two looks (10)")
    top.add_argument("--once", action="store_true", help="print the page once, for scripts")
    digest = add("digest", _digest, "Your week by mail: on, off, or (left out) whether you get it.")
    digest.add_argument("choice", nargs="?", choices=("on", "off"))
    digest.add_argument("--to", default=None, metavar="ADDRESS", help="with on: where to, instead of your address at the site")
    own = commands.add_parser("tokens", help="Your tokens for API and notebook.")
    tokens = own.add_subparsers(dest="tokens", required=True, metavar="create|list|revoke")
    create = add("create", _create_token, "Make a token of your own and print it, once.", tokens)
    create.add_argument("name", type=_token_name, help="what you call it, such as notebook")
    create.add_argument("--scope", action="append", metavar="SCOPE", help="read, predict, write or act; may be repeated")
    create.add_argument("--days", type=int, default=30, help="for which it is valid (30)")
    create.add_argument("-o", "--output", metavar="FILE", help="write it there, for you alone, instead of printing it")
    add("list", _list_tokens, "List your tokens: what they may do, until when.", tokens)
    add("revoke", _revoke_token, "Make one of your tokens worthless.", tokens).add_argument("name", type=_token_name)
    return parser
