"""Pages: the service's JSON -> HTML in which everything that came from a job is text. No script, no inline style.

answer -> page, or the fragment that the dashboard's widget shows (Bootstrap's own classes, version 4 and 5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import urlencode

from stormpetrel_client import render

Json = Mapping[str, Any]
WASTE_GROUPS = ("application", "partition", "outcome", "week")
_LONGEST = 60
_BUSY = "Not ready: the service is busy. Load the page again in a while."
_MENU = (("/", "Overview"), ("/jobs", "Jobs at risk"), ("/waste", "Waste"), ("/advice", "Advice"), ("/check", "Check a script"),
         ("/why", "Why a job"))  # fmt: skip


def text(value: object, longest: int = 1000) -> str:
    """A value as HTML: escaped, without control characters, cut where it is very long."""
    shown = render.plain(value)
    return escape(shown if len(shown) <= longest else shown[: longest - 1] + "…")


def overview_page(base: str, at_risk: Json, waste: Json, advised: Sequence[Json] | None) -> str:
    """The three things that a user wants to know, on one page."""
    return _page(
        base, "/", "Your jobs",
        _everybody(waste),
        f"<h2>Jobs at risk</h2>{_jobs_table(base, at_risk['items'])}{_more(at_risk, base)}",
        f"<h2>Waste of the last four weeks</h2>{_waste_sentence(waste)}{_waste_table(waste, 5)}",
        f"<h2>Advice</h2>{_advice_cards(base, advised)}",
    )  # fmt: skip


def jobs_page(base: str, at_risk: Json) -> str:
    """The open jobs at risk."""
    return _page(base, "/jobs", "Jobs at risk", _jobs_table(base, at_risk["items"]), _more(at_risk, base))


def waste_page(base: str, waste: Json) -> str:
    """What failed jobs held."""
    links = " ".join(
        f'<a href="{_url(base, "/waste", by=name)}"{_current(name == waste.get("by"))}>by {name}</a>' for name in WASTE_GROUPS
    )
    return _page(base, "/waste", "Waste of the last four weeks", _everybody(waste), f'<p class="tabs">{links}</p>',
                 _waste_sentence(waste), _waste_table(waste, 100))  # fmt: skip


def advice_page(base: str, advised: Sequence[Json] | None) -> str:
    """What to request instead."""
    return _page(base, "/advice", "Advice", _advice_cards(base, advised))


def check_page(base: str, token: str, script: str = "", answer: Json | None = None) -> str:
    """The form for a script, and what was said about it."""
    form = (
        f'<form method="post" action="{_url(base, "/check")}"><input type="hidden" name="token" value="{text(token)}">'
        f'<label for="script">Paste the script that you would submit. It is read, never run.</label>'
        f'<textarea id="script" name="script" rows="14" spellcheck="false" required>\n{escape(script)}</textarea>'
        f"<button>Check</button></form>"
    )
    return _page(base, "/check", "Check a script", "" if answer is None else _checked(answer), form)


def why_page(base: str, job: str, answer: Json | None = None) -> str:
    """One job: what happened, why, what to change."""
    form = (
        f'<form method="get" action="{_url(base, "/why")}"><label for="job">Job id</label> '
        f'<input id="job" name="job" value="{text(job)}" inputmode="numeric" placeholder="12345 or 12345_7" required>'
        f" <button>Explain</button></form>"
    )
    return _page(base, "/why", f"Why job {text(job)}" if job else "Why a job", form, "" if answer is None else _explained(answer))


def error_page(base: str, what: str, hint: str) -> str:
    """What went wrong, and what to do."""
    return _page(
        base, "", "This did not work", f'<div class="card wrong" role="alert"><p>{text(what)}</p><p>{text(hint)}</p></div>'
    )


def widget(base: str, at_risk: Json, waste: Json, advised: Sequence[Json] | None) -> str:
    """The fragment that the dashboard shows."""
    rows = "".join(
        f'<li class="list-group-item d-flex justify-content-between"><a href="{_why_url(base, row)}">{text(row.get("job", "?"))} '
        f"{text(row.get('job_name') or '', 30)}</a> <span>{render.percent(row.get('risk'))}</span></li>"
        for row in at_risk["items"]
    )
    listed = (
        f'<ul class="list-group list-group-flush">{rows}</ul>' if rows else '<p class="mb-2">None of your jobs is at risk.</p>'
    )
    advice = "".join(
        f'<p class="mb-1">{_name(one["job"], 30)}: {text(one["advice"].get("sentence", ""))}</p>' for one in advised or []
    )
    nothing = _BUSY if advised is None else "None."
    return (
        f'<div class="stormpetrel-widget"><h4 class="h6">Jobs at risk ({int(at_risk.get("total") or 0):,})</h4>{listed}'
        f'<h4 class="h6 mt-3">Waste, last four weeks</h4>{_waste_sentence(waste)}'
        f'<h4 class="h6 mt-3">Advice</h4>{advice or f"<p>{nothing}</p>"}'
        f'<a href="{_url(base, "/")}">More</a> · <a href="{_url(base, "/check")}">Check a script</a></div>'
    )


def widget_error(what: str) -> str:
    """The fragment where the service does not answer."""
    return f'<p class="mb-0 text-muted">{text(what)}</p>'


def _page(base: str, current: str, title: str, *parts: str) -> str:
    menu = "".join(f'<a href="{_url(base, path)}"{_current(path == current)}>{name}</a>' for path, name in _MENU)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<title>{title} · Stormpetrel</title><link rel="icon" href="{_url(base, "/icon.svg")}">'
        f'<link rel="stylesheet" href="{_url(base, "/style.css")}"></head><body><header>'
        f'<a class="home" href="/pun/sys/dashboard">Open OnDemand</a>'
        f'<strong>Stormpetrel</strong><nav aria-label="Pages">{menu}</nav></header><main><h1>{title}</h1>'
        f"{''.join(parts)}</main></body></html>"
    )


def _everybody(waste: Json) -> str:
    return (
        '<p class="quiet">You are an administrator: these are the jobs of everybody.</p>'
        if waste.get("own_only") is False
        else ""
    )


def _jobs_table(base: str, rows: Sequence[Json]) -> str:
    cells = [
        (
            f'<a href="{_why_url(base, row)}">{text(row.get("job", "?"))}</a>', text(row.get("job_name") or "", _LONGEST),
            text(row.get("state") or ""), text((row.get("submit_time") or "")[:16].replace("T", " ")), _meter(row.get("risk")),
            text(str(row.get("likeliest") or "").replace("_", " ").lower()),
        )
        for row in rows
    ]  # fmt: skip
    return _table(("Job", "Name", "State", "Submitted", "Risk", "Likeliest failure"), cells, "None of your jobs is at risk.")


def _more(at_risk: Json, base: str) -> str:
    total, shown = int(at_risk.get("total") or 0), len(at_risk["items"])
    return f'<p class="quiet">{shown:,} of {total:,}. <a href="{_url(base, "/jobs")}">All</a></p>' if total > shown else ""


def _waste_sentence(waste: Json) -> str:
    total = waste.get("total") or {}
    lost, held = total.get("lost_core_seconds", 0) / 3600, total.get("core_seconds", 0) / 3600
    share = f", {render.percent(lost / held)} of what your jobs held" if held else ""
    return f"<p>{total.get('failed_jobs', 0):,} failed jobs held {lost:,.1f} core-hours{share}{_energy(waste)}.</p>"


def _energy(waste: Json) -> str:
    """The energy of the same jobs; nothing where the service is older than that."""
    total, energy = waste.get("total") or {}, waste.get("energy") or {}
    kwh = total.get("lost_kwh")
    return "" if not energy or kwh is None else f" and took {kwh:,.1f} kWh ({text(energy.get('known', 'estimated'))})"


def _waste_table(waste: Json, most: int) -> str:
    cells = [
        (text(group.get("group", ""), _LONGEST), f"{group.get('jobs', 0):,}", f"{group.get('failed_jobs', 0):,}",
         f"{group.get('lost_core_seconds', 0) / 3600:,.1f}", _meter(group.get("share")))
        for group in (waste.get("groups") or [])[:most]
    ]  # fmt: skip
    heads = (text(str(waste.get("by", "group")).capitalize()), "Jobs", "Failed", "Core-hours lost", "Of all lost")
    return _table(heads, cells, "Nothing was lost.")


def _advice_cards(base: str, advised: Sequence[Json] | None) -> str:
    if advised is None:
        return f"<p>{_BUSY}</p>"
    if not advised:
        return "<p>None. Past jobs support no change of your requests.</p>"
    return "".join(
        f'<div class="card"><h3><a href="{_why_url(base, one["job"])}">{_name(one["job"])}</a></h3>{_piece(one["advice"])}</div>'
        for one in advised
    )


def _piece(piece: Json) -> str:
    line = f"<p>Write: <code>{text(piece['line'])}</code></p>" if piece.get("line") else ""
    before, after = piece.get("risk_before"), piece.get("risk_after")
    falls = before is not None and after is not None and after < before - 0.005
    effect = f"<p>Risk {render.percent(before)} → {render.percent(after)}</p>" if falls else ""
    return f"<p><strong>{text(piece.get('sentence', ''))}</strong></p>{line}{effect}{_list(piece.get('evidence') or [])}"


def _checked(answer: Json) -> str:
    fit = answer.get("cluster") or {}
    problems = [f"{problem.get('words', '')} {problem.get('change', '')}" for problem in fit.get("problems") or []]
    impossible = '<p class="wrong">The cluster cannot run it as it stands.</p>' if fit.get("can_run") is False else ""
    advice = "".join(f'<div class="card">{_piece(piece)}</div>' for piece in answer.get("advice") or [])
    wait = answer.get("wait") or {}
    starts = f"<p>Half of such jobs start {render.within(wait['p50_s'])}.</p>" if wait.get("p50_s") is not None else ""
    return (
        f'<section id="answer">{_list(answer.get("warnings") or [])}{impossible}{_list(problems)}'
        f"{_verdict(answer.get('verdict'))}{starts}<h2>Advice</h2>"
        f"{advice or '<p>None. Past jobs support no change of this request.</p>'}"
        f"{_details(render.check_lines(answer))}</section>"
    )


def _explained(answer: Json) -> str:
    job, cause = answer.get("job") or {}, answer.get("cause")
    said = [*(f"{remedy.get('sentence', '')}" for remedy in answer.get("remedies") or [])]
    happened = (
        f"<p>{text(cause.get('sentence', ''))} {text(cause.get('change', ''))}</p>{_list(cause.get('evidence') or [])}"
        if cause
        else ""
    )
    pieces = [piece for piece in (answer.get("next"), *(answer.get("advice") or [])) if piece]
    advice = "".join(f'<div class="card">{_piece(piece)}</div>' for piece in pieces)
    return (
        f'<section id="answer"><p><strong>{_name(job)}</strong>: '
        f"{text(str(job.get('state') or 'unknown').replace('_', ' ').lower())}</p>{happened}{_list(said)}"
        f"{_verdict((answer.get('predictions') or [None])[-1])}{f'<h2>What to change</h2>{advice}' if advice else ''}"
        f"{_details(render.job_lines(answer))}</section>"
    )


def _verdict(verdict: Json | None) -> str:
    if not verdict:
        return ""
    reasons = [
        f"{'▲' if reason.get('contribution', 0) > 0 else '▽'} {reason.get('words', '')}"
        for reason in (verdict.get("reasons") or [])[:5]
    ]
    flagged = ", flagged" if verdict.get("flagged") else ""
    return f'<p class="risk">Risk of failing: {_meter(verdict.get("risk"))}{flagged}</p>{_list(reasons)}'


def _details(lines: Iterable[str]) -> str:
    inside = escape("\n".join(lines))
    return f"<details><summary>Everything that is known</summary><pre>{inside}</pre></details>"


def _meter(share: float | None) -> str:
    if share is None:
        return "–"
    words = render.percent(share)
    return f'<meter min="0" max="1" value="{float(share):.3f}" aria-label="{words}"></meter> {words}'


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], nothing: str) -> str:
    if not rows:
        return f"<p>{nothing}</p>"
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _list(lines: Sequence[object]) -> str:
    return f"<ul>{''.join(f'<li>{text(line)}</li>' for line in lines)}</ul>" if lines else ""


def _name(job: Json, longest: int = _LONGEST) -> str:
    return text(job.get("job_name") or "no name", longest)


def _current(is_current: bool) -> str:
    return ' aria-current="page"' if is_current else ""


def _why_url(base: str, row: Json) -> str:
    return _url(base, "/why", job=str(row.get("job", "")))


def _url(base: str, path: str, **query: str) -> str:
    return escape(f"{base}{path}{'?' + urlencode(query) if query else ''}")
