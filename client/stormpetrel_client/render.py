"""The service's JSON as text for a terminal. Whatever comes from a job is hostile: control characters are never printed.

answer -> lines. A key that an older service does not send is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_BAR = 30
_REASONS = 5
Json = Mapping[str, Any]


def plain(value: object) -> str:
    """Text that does nothing to a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(value))


def percent(share: float | None) -> str:
    """A share of one in per cent; nothing is ever quite certain."""
    if share is None:
        return "–"
    if 0.0 < share < 0.01 or share > 0.99:
        return "under 1 %" if share < 0.5 else "over 99 %"
    return f"{100 * share:.0f} %"


def portion(share: float | None) -> str:
    """A share of what was counted, in per cent: all of it is 100 %."""
    return "100 %" if share == 1.0 else percent(share)


def span(seconds: float) -> str:
    """Seconds as a person says them."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.0f} {unit}" if seconds >= 10 * size else f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def size(size_bytes: float) -> str:
    """Bytes as a person says them."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}" if size_bytes >= 10 or unit == "bytes" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} TB"


def check_lines(answer: Json) -> Iterator[str]:
    """The check of a script on one screen."""
    yield f"{plain(answer.get('script', 'job'))} requests {_request(answer.get('request') or {})}"
    for warning in answer.get("warnings") or []:
        yield f"  warning: {plain(warning)}"
    yield from _fit(answer.get("cluster"))
    verdict = answer.get("verdict")
    if verdict:
        yield ""
        yield from _verdict(verdict)
    for note in answer.get("notes") or []:
        yield f"  {plain(note)}"
    yield from _components(answer.get("components") or [])
    yield from _outlook(answer)
    yield from _advice(answer.get("advice") or [])
    if not answer.get("advice"):
        yield ""
        yield "Advice: none. Past jobs support no change of this request."


def short_lines(answer: Json) -> list[str]:
    """Two lines for the terminal of somebody who is submitting: risk and wait, and the smallest change that helps."""
    fit = answer.get("cluster") or {}
    if fit.get("can_run") is False:
        problem: Json = next((one for one in fit.get("problems") or [] if one.get("never_runs")), {})
        return [f"This job cannot run as it stands. {plain(problem.get('words', ''))}", f"  {plain(problem.get('change', ''))}"]
    parts = []
    if answer.get("risk") is not None:
        parts.append(f"{percent(answer['risk'])} of such jobs fail")
    wait = answer.get("wait") or {}
    if wait.get("p50_s") is not None:
        parts.append(f"half start {within(wait['p50_s'])}")
    lines = [f"Stormpetrel: {', '.join(parts)}."] if parts else []
    advice = next((piece for piece in answer.get("advice") or []), None)
    if lines and advice:
        effect = _effect(advice)
        line = f" ({plain(advice['line'])})" if advice.get("line") else ""
        lines.append(f"  {plain(advice.get('sentence', ''))}{line}{f' {effect}.' if effect else ''}")
    return lines


def job_lines(answer: Json) -> Iterator[str]:
    """Everything about one job: what happened, why, what was known in time, what to change."""
    job = answer.get("job") or {}
    row = answer.get("overview") or {}
    name = plain(row.get("job") or job.get("job_id", "?"))
    yield (
        f"Job {name} ({plain(job.get('job_name') or 'no name')}) of {plain(job.get('user') or 'unknown user')}: "
        f"{plain(job.get('state') or 'unknown')}"
    )
    facts = [
        _count(job["cpus"], "CPU") if job.get("cpus") else "",
        f"ran {span(job['elapsed_s'])}" if job.get("elapsed_s") is not None else "",
        f"limit {span(job['time_limit_s'])}" if job.get("time_limit_s") else "",
        f"memory {size(job['max_rss_bytes'])} of {size(job['req_mem_bytes'])}"
        if job.get("max_rss_bytes") and job.get("req_mem_bytes")
        else "",
        f"on {plain(job['node_list'])}" if job.get("node_list") else "",
    ]
    if any(facts):
        yield f"  {', '.join(filter(None, facts))}"
    waiting = answer.get("waiting")
    if waiting:
        yield f"  {plain(waiting.get('sentence', ''))}"
        yield from (f"    {plain(waiting[key])}" for key in ("change", "command") if waiting.get(key))
    cause = answer.get("cause")
    if cause:
        yield f"  {plain(cause.get('sentence', ''))} {plain(cause.get('change', ''))}"
        yield from (f"    {plain(evidence)}" for evidence in cause.get("evidence") or [])
    yield from (f"  {plain(remedy.get('sentence', ''))}" for remedy in answer.get("remedies") or [])
    for prediction in answer.get("predictions") or []:
        flagged = "  flagged" if prediction.get("flagged") else ""
        yield f"  at {plain(prediction.get('moment', '?')):<7}{_bar(prediction['risk'])} {percent(prediction['risk'])}{flagged}"
    latest = (answer.get("predictions") or [None])[-1]
    if latest:
        yield from _reasons(latest)
    if answer.get("next"):
        yield ""
        yield f"Next time: {plain(answer['next'].get('sentence', ''))}"
        yield from _write(answer["next"])
    yield from _outlook(answer)
    yield from _advice(answer.get("advice") or [])
    yield from (f"  {plain(note)}" for note in answer.get("notes") or [])


def jobs_lines(rows: Sequence[Json]) -> Iterator[str]:
    """A table of jobs."""
    yield from _table(
        ("job", "name", "state", "submitted", "risk", "likeliest"),
        [
            (
                row.get("job", "?"),
                (row.get("job_name") or "")[:24],
                row.get("state") or "",
                (row.get("submit_time") or "")[:16].replace("T", " "),
                percent(row["risk"]) if row.get("risk") is not None else "",
                (row.get("likeliest") or "") if row.get("flagged") else "",
            )
            for row in rows
        ],
    )


def job_ids(rows: Sequence[Json]) -> Iterator[str]:
    """The ids of jobs, once each; what is not made of digits alone is left out, since shells expand what they complete with."""
    ids = (str(row.get("job", "")) for row in rows)
    yield from dict.fromkeys(one for one in ids if one.isascii() and one.replace("_", "", 1).isdecimal())


def waste_lines(answer: Json) -> Iterator[str]:
    """The waste ledger in core-hours, with its energy where the service tells it."""
    groups, total, energy = answer.get("groups") or [], answer.get("total") or {}, answer.get("energy") or {}
    heading = f"kWh lost{_known(energy)}"
    yield from _table(
        (str(answer.get("by", "group")), "jobs", "failed", "core-hours lost", "of all", *((heading,) if energy else ())),
        [
            (
                group.get("group", ""),
                f"{group.get('jobs', 0):,}",
                f"{group.get('failed_jobs', 0):,}",
                f"{group.get('lost_core_seconds', 0) / 3600:,.1f}",
                portion(group.get("share")),
                *((_amount(group.get("lost_kwh")),) if energy else ()),
            )
            for group in groups
        ],
    )
    if total:
        hours = total.get("lost_core_seconds", 0) / 3600
        yield f"In all {hours:,.1f} core-hours lost by {total.get('failed_jobs', 0):,} failed jobs."
    if total and energy:
        yield f"In energy: {_lost_energy(total, energy)}. {plain(energy.get('words', ''))}"


def _lost_energy(sums: Json, energy: Json) -> str:
    co2 = f", {_amount(sums['lost_co2_kg'])} kg of CO2" if sums.get("lost_co2_kg") is not None else ""
    return f"{_amount(sums.get('lost_kwh'))} of {_amount(sums.get('kwh'))} kWh{_known(energy)}{co2}"


def _known(energy: Json) -> str:
    """How energy is known, behind a figure; nothing where all of it was measured."""
    known = plain(energy.get("known", "estimated"))
    return "" if known == "measured" else f" ({known})"


def _amount(amount: float | None) -> str:
    """Kilowatt-hours or kilograms; a service that does not tell them has none."""
    if amount is None:
        return "–"
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.1f}" if amount >= 1 else f"{amount:.2g}"


def me_lines(answer: Json) -> Iterator[str]:
    """A person's own page on one screen."""
    weeks = answer.get("weeks", "?")
    yield f"{plain(answer.get('user', '?'))}, the last {'week' if weeks == 1 else f'{plain(weeks)} weeks'}"
    share, peers = answer.get("failed_share"), answer.get("peers") or {}
    yield f"  Failures  {answer.get('failed_jobs', 0):,} of {answer.get('jobs', 0):,} jobs" + (
        f" ({portion(share)})" if share is not None else ""
    )
    if peers.get("failed_share") is not None:
        yield f"            {portion(peers['failed_share'])} of others at your mix of groups and applications"
    yield from (f"            {plain(note)}" for note in answer.get("notes") or [])
    lost, held = answer.get("lost_core_hours", 0), answer.get("core_hours", 0)
    yield f"  Waste     {lost:,.1f} of {held:,.1f} core hours, held by failed jobs"
    if answer.get("kwh") and answer.get("energy"):
        yield f"            {_lost_energy(answer, answer['energy'])}"
    nouns = {"cpu": "of the cores' time", "memory": "of the memory", "time": "of the time limits"}
    used = [
        f"{portion(value)} {nouns[name]}"
        for name, value in (answer.get("used") or {}).items()
        if name in nouns and value is not None
    ]
    if used:
        yield f"  Used      {', '.join(used)} that you asked for"
    applications = answer.get("applications") or []
    if applications:
        yield ""
        header = ("application", "jobs", "failed", "others fail", "core hours lost")
        yield from _table(header, [_application(one) for one in applications])
    for change in answer.get("changes") or []:
        yield ""
        application, job, state = (plain(change.get(key, "?")) for key in ("application", "job", "state"))
        yield f"Change {application}: job {job} was {state}."
        yield from (f"    {plain(change[key])}" for key in ("why", "sentence") if change.get(key))
        yield from _write(change)
    incidents = answer.get("incidents") or []
    if incidents:
        yield ""
        yield "Incidents that concerned your jobs:"
        yield from alarm_lines({"incidents": incidents})
    yield ""
    yield from digest_lines(answer.get("digest") or {})


def _application(one: Json) -> tuple[str, ...]:
    failed = portion(one.get("failed_jobs", 0) / one["jobs"]) if one.get("jobs") else "–"
    others = one.get("peers_failed_share")
    name, lost = str(one.get("application", "?"))[:30], f"{one.get('lost_core_hours', 0):,.1f}"
    return name, f"{one.get('jobs', 0):,}", failed, "" if others is None else portion(others), lost


def digest_lines(answer: Json) -> Iterator[str]:
    """Whether the week comes by mail."""
    if answer.get("wanted"):
        due = f"; the next one {plain(answer['next'])[:16].replace('T', ' ')}" if answer.get("next") else ""
        yield f"Your week comes by mail to {plain(answer.get('address', '?'))}{due}. To stop it: stormpetrel digest off"
    elif answer.get("possible"):
        yield "Your week by mail: stormpetrel digest on"
    else:
        yield "This site sends no digests."


def token_lines(tokens: Sequence[Json]) -> Iterator[str]:
    """A table of tokens, which are not in it themselves."""
    if not tokens:
        yield "You have no tokens. Make one: stormpetrel tokens create NAME"
        return
    rows = []
    for token in tokens:
        until = (token.get("expires") or "for ever")[:10] + (" (over)" if token.get("expired") else "")
        rows.append((token.get("name", ""), ", ".join(token.get("scopes") or []), until))
    yield from _table(("token", "may", "until"), rows)


def alarm_lines(answer: Json) -> Iterator[str]:
    """Incidents, the newest first."""
    incidents = answer.get("incidents") or []
    for incident in incidents:
        yield (
            f"{incident.get('id', '?'):>5}  {plain(incident.get('state', '')):<12} {plain(incident.get('severity', '')):<8} "
            f"{plain(incident.get('raised_at', ''))[:16].replace('T', ' ')}  {plain(incident.get('title', ''))}"
        )
    if not incidents:
        yield "No incidents."


def incident_lines(answer: Json) -> Iterator[str]:
    """One incident: what it is, what it rests on, what happened."""
    yield f"Incident {plain(answer.get('id', '?'))}: {plain(answer.get('severity', ''))}, {plain(answer.get('state', ''))}"
    yield f"  {plain(answer.get('title', ''))}"
    yield from (f"  {plain(answer[key])}" for key in ("change", "held_back_words") if answer.get(key))
    blame = answer.get("blame")
    if blame:
        yield "  The cause is unclear." if blame == "unclear" else f"  Suspected: {plain(blame)}"
    yield from (f"    {plain(one.get('label', ''))}: {plain(one.get('text', ''))}" for one in answer.get("reasons") or [])
    moments = answer.get("timeline") or []
    if moments:
        yield ""
        yield "What happened"
    for moment in moments:
        yield f"  {plain(moment.get('time', ''))[:16].replace('T', ' ')}  {plain(' '.join(str(moment.get('words', '')).split()))}"
    jobs = answer.get("jobs") or []
    if jobs:
        yield ""
        yield f"Lost jobs: {' '.join(plain(job.get('job', '?')) for job in jobs[:12])}"


def _fit(fit: Json | None) -> Iterator[str]:
    if not fit:
        return
    if fit.get("can_run") is False:
        yield ""
        yield "The cluster cannot run it as it stands:"
    elif fit.get("problems"):
        yield ""
        yield "It would have to wait:"
    elif fit.get("can_run"):
        yield "  It fits the cluster's partitions, nodes and limits."
    for problem in fit.get("problems") or []:
        mark = "✕" if problem.get("never_runs") else "·"
        yield f"  {mark} {plain(problem.get('words', ''))} {plain(problem.get('change', ''))}"
        yield from _write(problem)
    if fit.get("note"):
        yield f"  {plain(fit['note'])}"


def _components(components: Sequence[Json]) -> Iterator[str]:
    if components:
        yield ""
    for one in components:
        risk = f", {percent(one['risk'])} of such jobs fail" if one.get("risk") is not None else ""
        cannot = ", CANNOT RUN as it stands" if one.get("can_run") is False else ""
        yield f"Component {plain(one.get('number', '?'))}: {_request(one.get('request') or {})}{risk}{cannot}"


def _verdict(verdict: Json) -> Iterator[str]:
    flagged = "flagged" if verdict.get("flagged") else "not flagged"
    threshold = verdict.get("threshold")
    limit = f" from {percent(threshold)} on" if threshold is not None else ""
    yield f"  {_bar(verdict['risk'])} {percent(verdict['risk'])} of such jobs fail; {flagged}{limit}"
    if verdict.get("profile"):
        yield f"  It is one of the {plain(verdict['profile'])}."
    yield from _reasons(verdict)


def _reasons(verdict: Json) -> Iterator[str]:
    reasons = verdict.get("reasons") or []
    if reasons:
        yield f"  What raises ▲ and lowers ▽ it most, from the {percent(verdict.get('base_risk'))} of the average job on:"
    for reason in reasons[:_REASONS]:
        points = reason.get("points")
        effect = f"{points:+.0f} points: " if points is not None else ""
        yield f"  {'▲' if reason.get('contribution', 0) > 0 else '▽'} {effect}{plain(reason.get('words', ''))}"


# What a service may say a job needs, each in its unit; what a newer one forecasts besides is left out.
_NEEDS = {
    "memory": ("Memory", size),
    "time": ("Run time", span),
    "cpus": ("CPUs", lambda count: _count(float(f"{count:.1f}"), "CPU")),
    "gpus": ("GPUs", lambda count: _count(float(f"{count:.1f}"), "GPU")),
    "gpu_memory": ("Memory of GPUs", size),
}


def _outlook(answer: Json) -> Iterator[str]:
    needs = [(_NEEDS[name], need) for name, need in (answer.get("needs") or {}).items() if name in _NEEDS]
    if needs:
        yield ""
    for (noun, shown), need in needs:
        request = f" (it asks for {shown(need['request'])})" if need.get("request") else ""
        verb = "keep busy" if noun in ("CPUs", "GPUs") else "need"
        yield f"{noun}: half such jobs {verb} up to {shown(need['p50'])}, nine in ten up to {shown(need['p90'])}{request}"
    wait = answer.get("wait") or {}
    if wait.get("p50_s") is not None and wait.get("p90_s") is not None:
        yield from [] if needs else [""]
        most = within(wait["p90_s"]) if wait["p50_s"] < 1.0 else span(wait["p90_s"])
        yield f"Starts {within(wait['p50_s'])} (half of such jobs), {most} (nine in ten) of its submission"
    elif wait.get("reason"):
        yield from [] if needs else [""]
        yield plain(wait["reason"])


def within(seconds: float) -> str:
    """How soon something begins."""
    return "at once" if seconds < 1.0 else f"within {span(seconds)}"


def _advice(pieces: Sequence[Json]) -> Iterator[str]:
    for number, piece in enumerate(pieces, 1):
        yield ""
        yield f"{'Experiment' if piece.get('experiment') else 'Advice'} {number}: {plain(piece.get('sentence', ''))}"
        yield from _write(piece)
        effect = _effect(piece)
        if effect:
            yield f"    {effect}"
        yield from (f"    {plain(evidence)}" for evidence in piece.get("evidence") or [])


def _effect(piece: Json) -> str:
    parts = []
    before, after = piece.get("risk_before"), piece.get("risk_after")
    if before is not None and after is not None and after < before - 0.005:
        parts.append(f"risk {percent(before)} → {percent(after)}")
    before, after = piece.get("wait_before_s"), piece.get("wait_after_s")
    if before is not None and after is not None and after < 0.95 * before:
        parts.append(f"starts {within(after)} instead of {'within ' * (after < 1.0)}{span(before)}")
    if piece.get("core_hours_saved"):
        parts.append(f"{piece['core_hours_saved']:,.1f} core-hours saved")
    return ", ".join(parts)


def _write(piece: Json) -> Iterator[str]:
    yield from (f"    write: {plain(piece[key])}" for key in ("line", "mem_update") if piece.get(key))


def _request(columns: Json) -> str:
    nouns = {"req_nodes": "node", "req_cpus": "CPU", "req_gpus": "GPU", "array_tasks": "array task"}
    parts = [_count(columns[name], noun) for name, noun in nouns.items() if columns.get(name) is not None]
    if columns.get("req_mem_bytes"):
        parts.append(size(columns["req_mem_bytes"]))
    if columns.get("time_limit_s"):
        parts.append(span(columns["time_limit_s"]))
    if columns.get("partition"):
        parts.append(f"partition {plain(columns['partition'])}")
    return ", ".join(parts) or "nothing; the defaults of the site apply"


def _count(number: Any, noun: str) -> str:
    shown = f"{number:g}" if isinstance(number, float) else plain(number)
    return f"{shown} {noun}{'' if shown == '1' else 's'}"


def _bar(risk: float) -> str:
    filled = round(risk * _BAR)
    return "█" * filled + "·" * (_BAR - filled)


def _table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    if not rows:
        yield "None."
        return
    cells = [list(header), *([plain(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    for row in cells:
        yield "  ".join(value.ljust(width) for value, width in zip(row, widths)).rstrip()
