"""Incidents in a terminal, readable at 80 columns.

IncidentList -> print_list; IncidentAnswer -> print_incident. What comes from logs and notes is shown, never obeyed.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable
from typing import Final

from rich.console import Console

from stormpetrel.answers.schemas.alarms import IncidentLine, IncidentList
from stormpetrel.answers.schemas.incident import IncidentAnswer, IncidentFigure, IncidentFinding, SimilarIncident
from stormpetrel.faces.cli.output import format_time, one_line, plain

_INDENT: Final = "      "
_MOST_JOBS: Final = 12
_MUTED_KINDS: Final = ("node", "user", "application", "partition", "submit_host", "cluster")


def print_list(out: Console, answer: IncidentList, zone: str, *, everything: bool, narrowed: bool, limit: int) -> None:
    """Print incidents, two lines and more each, and what to do next."""
    for incident in answer.incidents:
        if not incident.change:
            out.print(_head(incident, zone))
            wrapped(out, incident.title)
    changes = [incident for incident in answer.incidents if incident.change]
    if changes:
        out.print("Changes, not anomalies:")
    for incident in changes:
        out.print(_head(incident, zone))
        wrapped(out, incident.title)
        wrapped(out, f"What changed: {incident.change}")
    out.print(_sum(answer, zone, everything=everything, narrowed=narrowed, limit=limit))
    for line in _since_verdicts(answer):
        out.print(line)
    for line in _next_of_list(answer, everything=everything, narrowed=narrowed):
        out.print(line)


def print_incident(out: Console, answer: IncidentAnswer, zone: str) -> None:
    """Print one incident in full, and what to do next."""
    verdict = f", {answer.verdict}" if answer.verdict else ""
    out.print(f"Incident {answer.id}: {answer.severity}, {answer.state}{verdict}")
    wrapped(out, answer.title, indent="  ")
    if answer.change:
        wrapped(out, f"A change, not an anomaly. {answer.change}", indent="  ")
    if answer.held_back_words:
        out.print(f"  Not sent. {plain(answer.held_back_words)}")
    out.print(f"  Cluster {plain(answer.cluster)}; times in {plain(zone)}")
    _part(
        out,
        f"Why {answer.blame} is suspected" if answer.blame != "unclear" else "Why the cause is unclear",
        _figures(answer.reasons),
    )
    for finding in answer.findings:
        _part(out, f"Seen by {plain(finding.family)}: {plain(finding.kind.replace('_', ' '))}", _finding(finding, zone))
    _part(out, "What happened", (f"{format_time(entry.time, zone)}  {one_line(entry.words)}" for entry in answer.timeline))
    if answer.jobs:
        more = f", the newest of {answer.jobs_total:,}" if answer.jobs_total > _MOST_JOBS else ""
        _part(out, f"Lost jobs{more}", [" ".join(plain(job.job) for job in answer.jobs[:_MOST_JOBS])])
    _part(out, "Like it before", (line for incident in answer.similar for line in _similar(incident, zone)))
    _part(out, "Messages", (_delivery(sent.route, sent.kind, sent.state, sent.problem) for sent in answer.deliveries))
    _part(out, "Next", _next(answer))


def _head(incident: IncidentLine, zone: str) -> str:
    verdict = f", {incident.verdict}" if incident.verdict else ""
    sent = "sent" if incident.page else "late" if incident.late else "listed only"
    sent = sent if incident.like is None else f"not sent: like {incident.like}"
    state = f"{incident.state}{verdict}"
    return f"{incident.id:>4}  {incident.severity:<7}  {state:<24}  raised {format_time(incident.raised_at, zone)}, {sent}"


def _sum(answer: IncidentList, zone: str, *, everything: bool, narrowed: bool, limit: int) -> str:
    count, which = len(answer.incidents), "" if everything else "open "
    if not count:
        return f"No such {which}incident." if narrowed else f"There is no {which}incident."
    incidents = f"1 {which}incident" if count == 1 else f"{count:,} {which}incidents"
    shown = f"The newest {incidents}; --limit shows more" if count == limit else incidents
    rate = f"; {answer.rate_text}" if answer.rate_text else ""
    return f"{shown}{rate}. Times in {plain(zone)}."


def _since_verdicts(answer: IncidentList) -> Iterable[str]:
    """What verdicts have changed, and what is not listed because of them."""
    if answer.verdicts.words:
        yield f"{answer.verdicts.words[0].upper()}{plain(answer.verdicts.words[1:])}."
    yield from (f"  {plain(effect.words)}" for effect in answer.verdicts.verdicts)
    if answer.quiet:
        yield f"Open and not listed, as like dismissed ones: {answer.quiet:,}. Show them: stormpetrel alarms list --quiet"


def _next_of_list(answer: IncidentList, *, everything: bool, narrowed: bool) -> list[str]:
    if not answer.incidents:
        if everything and not narrowed:
            return ["stormpetrel watch raises them. What it would have raised so far: stormpetrel alarms replay"]
        return [] if everything else ["Also resolved ones: stormpetrel alarms list --all"]
    newest = answer.incidents[0].id
    lines = [f"Show one: stormpetrel alarms show {newest}"]
    if (waiting := next((incident.id for incident in answer.incidents if incident.state == "open"), None)) is not None:
        lines.append(f"Acknowledge it: stormpetrel alarms ack {waiting}")
    return lines


def _finding(finding: IncidentFinding, zone: str) -> Iterable[str]:
    yield ", ".join(f"{plain(subject.kind)} {plain(subject.name)}" for subject in finding.subjects)
    yield f"{format_time(finding.since, zone)} to {format_time(finding.until, zone)}, by {plain(finding.rule)}"
    yield from _figures(finding.evidence)
    yield from (plain(subject.link) for subject in finding.subjects[:1] if subject.link)


def _figures(figures: Iterable[IncidentFigure]) -> Iterable[str]:
    return (f"{plain(figure.label)}: {plain(figure.text)}" for figure in figures)


def _similar(similar: SimilarIncident, zone: str) -> Iterable[str]:
    verdict = f" ({similar.verdict})" if similar.verdict else ""
    yield f"{similar.id}{verdict}: {one_line(similar.title)}"
    for act in similar.acts:
        if act.note:
            yield f"  {format_time(act.time, zone)} {plain(act.user)}: {one_line(act.note)}"


def _delivery(route: str, kind: str, state: str, problem: str) -> str:
    return f"{plain(route)}: {plain(kind)}, {plain(state.replace('_', ' '))}{f': {one_line(problem)}' if problem else ''}"


def _next(answer: IncidentAnswer) -> Iterable[str]:
    command = "stormpetrel alarms"
    if answer.state == "open":
        yield f"Acknowledge it: {command} ack {answer.id}"
    if answer.verdict is None:
        yield f"It is one: {command} confirm {answer.id}; it is none: {command} dismiss {answer.id}"
    about = answer.subjects[0] if answer.subjects else None
    if answer.state != "resolved" and about is not None and about.kind in _MUTED_KINDS:
        yield f"No messages about it: {command} mute {shlex.quote(plain(f'{about.kind}:{about.name}'))} --for 8h"
    if answer.verdict is not None:
        yield f"Take the verdict back: {command} withdraw {answer.id}"
    yield f'Write down what was done: {command} note {answer.id} "…"'


def _part(out: Console, heading: str, lines: Iterable[str]) -> None:
    """Print a heading and its lines; nothing where there are none."""
    listed = list(lines)
    if listed:
        out.print(f"\n{heading}")
    for line in listed:
        wrapped(out, line, indent="  ")


def wrapped(out: Console, text: str, *, indent: str = _INDENT) -> None:
    """Print a text that may be longer than the terminal is wide; words that would be copied stay whole."""
    lead = indent + " " * (len(text) - len(text.lstrip()))
    lines = textwrap.wrap(
        plain(text.strip()),
        out.width,
        initial_indent=lead,
        subsequent_indent=lead,
        break_long_words=False,
        break_on_hyphens=False,
    )
    for line in lines:
        out.print(line)
