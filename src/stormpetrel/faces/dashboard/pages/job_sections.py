"""The sections of the open job: verdict, advice, other tries, profile, history, record. JobInFull -> components.

Names, records and logs are hostile text: they are only ever children of elements, never markup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dash import dcc, html

from stormpetrel.faces.dashboard.blocks import attributes, notice
from stormpetrel.faces.dashboard.pages.job_table import STATE_LABELS, state_text
from stormpetrel.faces.dashboard.pages.job_text import (
    REQUEST_LABELS,
    headline,
    percent,
    raw_text,
    value_text,
)
from stormpetrel.jobs.advice.text import effect_text, need_texts, wait_texts
from stormpetrel.jobs.moments import MOMENTS
from stormpetrel.records.states import UNFINISHED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from zoneinfo import ZoneInfo

    from dash.development.base_component import Component

    from stormpetrel.answers.schemas.job import Change, JobInFull, StoredPrediction
    from stormpetrel.answers.schemas.jobs import JobRow
    from stormpetrel.answers.schemas.predictions import Advice

_GOING_ON: Final = frozenset(str(state) for state in UNFINISHED)
_STEP_LABELS: Final = {"submit": "Submission", "start": "Start", "2min": "2 min in"}


def section(title: str, *children: Any, is_open: bool = True, id: str) -> Component:  # noqa: A002 (Dash's name)
    """A part that can be folded away."""
    inside = html.Div(list(children), className="fold-inside")
    return html.Details([html.Summary(html.H3(title)), inside], open=is_open, className="fold", id=id)


def head(details: JobInFull) -> Component:
    """Which job it is."""
    job = details.overview
    close = html.Button(
        html.Span(className="tool-icon icon-close"),
        type="button",
        className="tool",
        title="Close",
        **attributes(data_close_job="yes", aria_label="Close the job"),
    )
    whose = [f" · {job[name]}" for name in ("user", "account", "partition") if job[name]]
    return html.Div(
        [
            html.Div([html.H2(f"Job {details.overview.job}", className="job-title"), close], className="job-top"),
            html.P([html.Span(job.job_name or "without a name", className="job-name"), *whose]),
        ],
        className="job-head",
    )


def cancelling(details: JobInFull) -> Component | None:
    """How to cancel it: folded away, and its id has to be written once more; None for a job that has ended."""
    if details.overview.state not in _GOING_ON:
        return None
    job = details.overview.job
    confirm = dcc.Input(id="panel-cancel-confirm", type="text", value="", maxLength=40, className="input", autoComplete="off")
    return section(
        "Cancel",
        html.P(f"Job {job} ends at once, and unsaved results are lost. It is recorded who did it."),
        html.Label(f"Write {job} to confirm", htmlFor="panel-cancel-confirm", className="field-label"),
        html.Div([confirm, html.Button("Cancel the job", id="panel-cancel", type="button", className="button button-danger")]),
        html.P(id="panel-cancel-message", className="small", role="status"),
        is_open=False,
        id="panel-cancelling",
    )


def waiting(details: JobInFull) -> Component | None:
    """The scheduler's reason for a job that has not started, and what to do; before any forecast."""
    why = details.waiting
    if why is None:
        return None
    tone = "fail" if why.never_runs else "open"
    parts: list[Any] = [html.P(why.sentence, className="verdict-words")]
    if why.change:
        parts.append(html.P(why.change))
    if why.command:
        copy = html.Button(
            "Copy", type="button", className="plain-button", **attributes(data_copy=why.command, aria_label="Copy the command")
        )
        parts.append(html.Div([html.Code(why.command, className="advice-line"), copy], className="advice-write"))
    parts.append(html.P(f"The scheduler says: {why.reason}", className="small soft"))
    return html.Div(parts, className=f"verdict verdict-{tone}", id="panel-waiting")


def cause(details: JobInFull) -> Component | None:
    """Why it failed, how sure that is, whose fault, and what helped others; None for jobs that did not fail."""
    why = details.cause
    if why is None:
        return None
    parts = [
        html.P(why.sentence),
        html.P(why.change),
        html.Ul([html.Li(text) for text in (*why.evidence, *(remedy.sentence for remedy in details.remedies))]),
    ]
    return section("What happened", *parts, id="panel-cause")


def verdict(details: JobInFull, zone: ZoneInfo) -> Component:
    """The headline, and the risk at each moment of the job's life."""
    shown = headline(details)
    parts: list[Any] = [html.P(shown.words, className="verdict-words")]
    if shown.behind:
        parts.append(html.P(shown.behind, className="soft small"))
    if details.predictions:
        parts.append(_steps(details.predictions, zone))
    parts += [html.P(note, className="small soft") for note in details.notes]
    return html.Div(parts, className=f"verdict verdict-{shown.tone}", **attributes(aria_live="polite"))


def _steps(predictions: Sequence[StoredPrediction], zone: ZoneInfo) -> Component:
    by_moment = {prediction.moment: prediction for prediction in predictions}
    steps = [_step(str(moment), by_moment.get(str(moment)), zone) for moment in MOMENTS]
    return html.Ol(steps, className="steps", **attributes(aria_label="Risk of failure"))


def _step(moment: str, prediction: StoredPrediction | None, zone: ZoneInfo) -> Component:
    name = html.Span(_STEP_LABELS[moment], className="step-name")
    if prediction is None:
        return html.Li([html.Span("–", className="step-risk soft"), html.Span(className="step-bar"), name], className="step")
    tone = "bar-fail" if prediction.flagged else "bar-complete"
    level = html.Span(className=tone, style={"height": f"{max(2, 100 * prediction.risk):.0f}%"})
    flagged_from = f"Flagged from {percent(prediction.threshold)} on"
    threshold_line = html.Span(
        className="step-threshold", style={"bottom": f"{100 * prediction.threshold:.0f}%"}, title=flagged_from
    )
    risk = html.Span([html.Span("risk ", className="hidden"), percent(prediction.risk)], className="step-risk")
    when = html.Span(f"{prediction.moment_time.astimezone(zone):%d %b %H:%M}", className="step-time")
    return html.Li([risk, html.Span([level, threshold_line], className="step-bar"), name, when], className="step")


def all_advice(details: JobInFull) -> list[Advice]:
    """What to ask for next time first, then the rest."""
    return [*([details.next] if details.next else []), *details.advice]


def advice(details: JobInFull, opinions: Mapping[str, bool]) -> Component:
    """What to change, with its evidence, the line to write, and the question whether it helped."""
    pieces = all_advice(details)
    if not pieces:
        return section("Advice", html.P("No change is advised: past jobs support the request."), id="panel-advice")
    cards = [_piece(number, piece, opinions.get(piece.sentence)) for number, piece in enumerate(pieces)]
    return section("Advice", *cards, id="panel-advice")


def outlook(details: JobInFull) -> Component | None:
    """What the job will need beside what it asks for, and when it will start or why nobody can say; None without models."""
    lines = [*need_texts(details.needs), *wait_texts(details.wait)]
    return section("Needs and start", html.Ul([html.Li(line) for line in lines]), id="panel-outlook") if lines else None


def _piece(number: int, piece: Advice, opinion: bool | None) -> Component:
    title = [html.Strong("Experiment: ")] if piece.experiment else []
    parts: list[Any] = [html.P([*title, piece.sentence], className="advice-sentence")]
    for line in filter(None, (piece.line, piece.mem_update)):
        copied = attributes(data_copy=line, aria_label="Copy the line")
        copy = html.Button("Copy", type="button", className="plain-button", **copied)
        parts.append(html.Div([html.Code(line, className="advice-line"), copy], className="advice-write"))
    effect = effect_text(piece)
    if effect is not None:
        parts.append(html.P(f"{effect[0].upper()}{effect[1:]}.", className="small"))
    if piece.evidence:
        parts.append(html.Ul([html.Li(text) for text in piece.evidence], className="evidence"))
    return html.Div([*parts, _question(number, opinion)], className="advice")


def _question(number: int, opinion: bool | None) -> Component:
    def button(text: str, answer: str) -> Component:
        return html.Button(text, id={"opinion": number, "part": answer}, type="button", className="plain-button")

    message = "" if opinion is None else f"You found it {'' if opinion else 'not '}useful."
    return html.Div(
        [
            html.Span("Was this advice useful?", className="small soft"),
            button("Yes", "yes"),
            button("No", "no"),
            html.Span(message, id={"opinion": number, "part": "said"}, role="status", className="small"),
        ],
        className="opinion",
    )


def retry(details: JobInFull) -> Component | None:
    """The same work tried before and after, what was changed, and the risk at submission of each try; None for a single run."""
    if not details.earlier and not details.later:
        return None
    changes = [attempt.changes for attempt in details.earlier]  # each from that try to the next one
    own_risk = details.earlier[0].risk_after if details.earlier else details.later[0].risk_before
    rows = [
        _try_row(
            attempt.job, attempt.ref, attempt.state, attempt.risk_before, changes[place + 1] if place + 1 < len(changes) else None
        )
        for place, attempt in reversed(list(enumerate(details.earlier)))
    ]
    rows.append(_try_row(details.overview.job, None, details.overview.state, own_risk, changes[0] if changes else None))
    rows += [_try_row(attempt.job, attempt.ref, attempt.state, attempt.risk_after, attempt.changes) for attempt in details.later]
    table = _table(("Try", "State", "Changed", "Risk"), rows, "Tries of the same work")
    return section("Other tries", _before_after(details), table, id="panel-retry")


def _before_after(details: JobInFull) -> Component:
    pair = details.earlier[0] if details.earlier else details.later[0]
    before, after = ("the earlier try", "this job") if details.earlier else ("this job", "the next try")
    if pair.risk_before is None or pair.risk_after is None:
        return html.P("The same work was tried more than once.", className="small soft")
    tone = "lower" if pair.risk_after < pair.risk_before else "higher"
    then, now = percent(pair.risk_before), percent(pair.risk_after)
    parts: list[Any] = [f"Risk at submission: {then} for {before} → ", html.Strong(f"{now} for {after}"), f" ({tone})."]
    return html.P(parts, className="before-after")


def _try_row(job: str, ref: str | None, state: str | None, risk: float | None, changes: Sequence[Change] | None) -> Component:
    name = html.A(job, href=f"?job={ref}", **attributes(data_job=ref)) if ref else html.Strong(f"{job} (this)")
    parts: Any = "–" if changes is None else "nothing"
    if changes:
        parts = [html.Div(_change(change)) for change in changes]
    cells = [html.Td(STATE_LABELS.get(state or "", state or "–")), html.Td(parts), html.Td(percent(risk))]
    return html.Tr([html.Th(name, scope="row"), *cells], className="" if ref else "this-try")


def _change(change: Change) -> str:
    before, after = (value_text(change.column, value) for value in (change.before, change.after))
    return f"{REQUEST_LABELS.get(change.column, change.column)}: {before} → {after}"


def profile(details: JobInFull) -> Component:
    """What kind of job it is, and where its figures stand among jobs like it."""
    kind = details.profile
    if kind is None:
        return section("Profile", html.P("Its request does not show which kind of job it is."), id="panel-profile")
    share = "" if kind.failed_share is None else f" {percent(kind.failed_share)} of them failed."
    rows = [
        html.Tr(
            [
                html.Th(REQUEST_LABELS.get(name, name), scope="row"),
                html.Td(value_text(name, figure.value)),
                html.Td(value_text(name, figure.median)),
                html.Td(f"{value_text(name, figure.low)} – {value_text(name, figure.high)}", className="soft"),
            ]
        )
        for name, figure in kind.figures.items()
        if figure.value is not None or figure.median is not None
    ]
    return section(
        "Profile",
        html.P(f"One of the {kind.words}."),
        html.P(f"Compared with {kind.jobs:,} jobs like it.{share}", className="soft small"),
        _table(("Figure", "This job", "Median", "Middle half"), rows, "This job next to jobs like it"),
        id="panel-profile",
    )


def history(details: JobInFull, zone: ZoneInfo) -> Component:
    """The jobs that the same user submitted before, the latest ones as a row of marks."""
    past = details.history
    user = past.user or "this user"
    if not past.jobs:
        return section("History", html.P(f"This is the first job of {user}."), id="panel-history")
    text = f"{user} had submitted {past.jobs:,} {'job' if past.jobs == 1 else 'jobs'} before."
    if past.ended:
        text += f" {past.failed:,} of the {past.ended:,} that ended failed ({percent(past.failed / past.ended)})."
    if past.never_started:
        text += f" {past.never_started:,} never started."
    symbols = [_symbol(row, zone) for row in reversed(past.recent)]
    return section(
        "History",
        html.P(text),
        html.P(f"The last {len(symbols)}, oldest first:", className="soft small"),
        html.Ol(symbols, className="marks"),
        id="panel-history",
    )


def _symbol(row: JobRow, zone: ZoneInfo) -> Component:
    tone, symbol = {True: ("bad", "✕"), False: ("good", "✓"), None: ("open", "·")}[row.failed]
    text = f"Job {row.job}, {row.submit_time.astimezone(zone):%d %b %H:%M}: {state_text(row)}" if row.submit_time else row.job
    named = attributes(data_job=row.ref, aria_label=text)
    return html.Li(html.A(symbol, href=f"?job={row.ref}", className=f"mark mark-{tone}", title=text, **named))


def record(details: JobInFull) -> Component:
    """Every field of the record, as it is stored."""
    rows = [
        html.Tr([html.Th(name, scope="row"), html.Td(raw_text(value), className="mono")]) for name, value in details.job.items()
    ]
    return section(
        "Record",
        html.Label("Show fields with", htmlFor="record-filter", className="field-label"),
        dcc.Input(id="record-filter", type="text", className="input", autoComplete="off", placeholder="mem, time, exit …"),
        _scrolled(html.Table(html.Tbody(rows, id="record-fields"), className="table"), "Fields of the record"),
        is_open=False,
        id="panel-record",
    )


def _table(columns: Sequence[str], rows: Sequence[Component], label: str) -> Component:
    header = html.Thead(html.Tr([html.Th(text, scope="col") for text in columns]))
    table = html.Table([header, html.Tbody(list(rows))], className="table")
    return _scrolled(table, label)


def _scrolled(table: Component, label: str) -> Component:
    """A table that may be wider than a phone: the keyboard must be able to scroll it."""
    return html.Div(table, className="table-box", tabIndex="0", role="region", **attributes(aria_label=label))


def missing(what: str, hint: str) -> list[Component]:
    """What stands there for a job that is not there."""
    close = html.Button("Close", type="button", className="button", **attributes(data_close_job="yes"))
    return [html.H2("No such job", className="job-title"), notice(what, hint, kind="error"), close]


def still_reading() -> list[Component]:
    """What stands there until the server has read the history, which it does once, when it starts."""
    return [notice("The server has just started and is still reading the history.", "The job is shown as soon as that is done.")]
