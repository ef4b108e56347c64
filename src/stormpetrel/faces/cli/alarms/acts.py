"""`stormpetrel alarms ack | confirm | dismiss | note | mute | unmute | mutes`: what people do about incidents."""

from __future__ import annotations

import shlex
from typing import Annotated, get_args

import typer
from rich.console import Console

from stormpetrel.answers.alarms.acts import act_on_incident, list_mutes, mute_subject, unmute_subject
from stormpetrel.answers.schemas.incident import (
    LONGEST_NAME,
    MOST_MUTE_HOURS,
    ActReceipt,
    MutedKind,
    MuteLine,
    MuteReceipt,
    Mutes,
    NewMute,
)
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.options import Json
from stormpetrel.faces.cli.output import emit, format_time, one_line, plain
from stormpetrel.faces.cli.site import open_site, parse_site_time
from stormpetrel.sources.outages.entries import duration_of

Number = Annotated[
    int, typer.Argument(min=1, max=2**31 - 1, help="The number of the incident; alarms list shows it.", show_default=False)
]
Note = Annotated[str, typer.Option("--note", help="Why, or what was done.", show_default=False)]
Named = Annotated[str, typer.Argument(metavar="SUBJECT", help="The subject: node:n017, user:ann.", show_default=False)]
InCluster = Annotated[str | None, typer.Option("--cluster", help="The cluster, if the site has several.", show_default=False)]


def acknowledge(context: typer.Context, number: Number, note: Note = "", as_json: Json = False) -> None:
    """Acknowledge an incident; it stays on the list, and others see that it is yours."""
    receipt = _act(context, number, "acknowledge", note)
    _emit_act(receipt, f"When you know what it was: stormpetrel alarms confirm {number}, or dismiss {number}", as_json=as_json)


def confirm(context: typer.Context, number: Number, note: Note = "", as_json: Json = False) -> None:
    """Confirm that an incident is real; your note is shown when the same happens again."""
    receipt = _act(context, number, "confirm", note)
    hint = "" if note else f'What was done about it: stormpetrel alarms note {number} "…"'
    _emit_act(receipt, hint, as_json=as_json)


def dismiss(context: typer.Context, number: Number, note: Note = "", as_json: Json = False) -> None:
    """Dismiss a false alarm: it is resolved and stays so, also when more of the same is found."""
    receipt = _act(context, number, "dismiss", note)
    _emit_act(receipt, f"If it was real after all: stormpetrel alarms confirm {number}", as_json=as_json)


def withdraw(context: typer.Context, number: Number, note: Note = "", as_json: Json = False) -> None:
    """Withdraw the verdict on an incident, with its effects."""
    receipt = _act(context, number, "withdraw", note)
    _emit_act(receipt, f"Judge it again: stormpetrel alarms confirm {number}, or dismiss {number}", as_json=as_json)


def note(
    context: typer.Context,
    number: Number,
    text: Annotated[str, typer.Argument(help="What to write, in quotes.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Add a note to an incident; its state does not change."""
    _emit_act(_act(context, number, "note", text), "", as_json=as_json)


def mute(
    context: typer.Context,
    subject: Named,
    lasting: Annotated[str | None, typer.Option("--for", help="For how long: 8h, 90m, 2d.", show_default=False)] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="Until when, in the site's zone: 2026-01-31T14:00.", show_default=False)
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why, for other administrators.", show_default=False)] = "",
    cluster: InCluster = None,
    as_json: Json = False,
) -> None:
    """Send no messages about a subject for a time; its incidents are still listed."""
    kind, name = _subject(subject)
    hours = None if lasting is None else _hours(lasting)
    with open_site(context, to_write=True) as site:
        zone = site.settings.site.time_zone
        end = parse_site_time(until, zone, "--until")
        wanted = {"kind": kind, "name": name, "until": end, "hours": hours, "reason": reason, "cluster": cluster}
        receipt = mute_subject(site, LOCAL, NewMute.model_validate(wanted))
    emit(receipt, lambda out: _print_mute(out, receipt, zone), as_json=as_json)


def unmute(context: typer.Context, subject: Named, cluster: InCluster = None, as_json: Json = False) -> None:
    """End the mute of a subject at once."""
    kind, name = _subject(subject)
    with open_site(context, to_write=True) as site:
        receipt = unmute_subject(site, LOCAL, kind, name, cluster)
    emit(receipt, f"{_name(receipt.mute)} is no longer muted.", as_json=as_json)


def mutes(context: typer.Context, as_json: Json = False) -> None:
    """List what is muted: until when, by whom, and why."""
    with open_site(context) as site:
        zone = site.settings.site.time_zone
        answer = list_mutes(site, LOCAL)
    emit(answer, lambda out: _print_mutes(out, answer, zone), as_json=as_json)


def _print_mutes(out: Console, answer: Mutes, zone: str) -> None:
    if not answer.mutes:
        out.print("Nothing is muted. To mute a node: stormpetrel alarms mute node:NAME --for 8h")
    for line in answer.mutes:
        why = f": {one_line(line.reason)}" if line.reason else ""
        out.print(f"{_name(line)} in {plain(line.cluster)} until {format_time(line.until, zone)}, by {plain(line.user)}{why}")


def _act(context: typer.Context, number: int, kind: str, text: str) -> ActReceipt:
    with open_site(context, to_write=True) as site:
        return act_on_incident(site, LOCAL, number, kind, text)


def _emit_act(receipt: ActReceipt, hint: str, *, as_json: bool) -> None:
    verdict = f", {receipt.verdict}" if receipt.verdict else ""
    what = "The note is kept. " if receipt.act.kind == "note" else ""
    text = f"{what}Incident {receipt.incident} is {receipt.state}{verdict}."
    emit(receipt, f"{text}\n{hint}" if hint else text, as_json=as_json)


def _print_mute(out: Console, receipt: MuteReceipt, zone: str) -> None:
    line = receipt.mute
    out.print(f"Nothing is sent about {_name(line)} until {format_time(line.until, zone)} ({plain(zone)}).")
    held = ", ".join(map(str, receipt.holds_back))
    out.print(f"It holds back: {held}." if held else "No open incident is about it: is the name right?")
    out.print(f"To end it: stormpetrel alarms unmute {shlex.quote(_name(line))}")


def _subject(text: str) -> tuple[str, str]:
    """Return the kind and the name in `node:n017`."""
    kinds = get_args(MutedKind)
    kind, colon, name = text.partition(":")
    if not colon or kind not in kinds or not name.strip():
        raise UsageError(
            f"{plain(text[:80])!r} is not a subject.", hint=f"Write KIND:NAME, such as node:n017. Kinds: {', '.join(kinds)}."
        )
    if len(name) > LONGEST_NAME:
        raise UsageError(f"The name has {len(name):,} characters.", hint=f"At most {LONGEST_NAME} are kept.")
    return kind, name


def _hours(text: str) -> float:
    lasting = duration_of(text)
    hours = 0.0 if lasting is None else lasting.total_seconds() / 3600
    if not 0 < hours <= MOST_MUTE_HOURS:
        raise UsageError(f"--for {plain(text[:80])!r} is not a valid time.", hint="Write 8h, 90m or 2d; at most a year.")
    return hours


def _name(line: MuteLine) -> str:
    return plain(f"{line.kind}:{line.name}")
