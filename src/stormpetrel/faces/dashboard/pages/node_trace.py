"""The part of the page of nodes about one window: its trace, what the model makes of it, and the threads around it.

key of a window -> WindowTraces -> card.
"""

from __future__ import annotations

from datetime import timedelta
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import numpy as np
from dash import html

from stormpetrel.answers.nodes.traces import window_traces
from stormpetrel.answers.schemas.nodes import ScoredWindow, WindowTraces
from stormpetrel.faces.dashboard.blocks import card, notice, plot
from stormpetrel.faces.dashboard.choices import PageLink, choice, chosen
from stormpetrel.faces.dashboard.pages.node_cards import PLAIN, job_cell, local, with_digits
from stormpetrel.faces.dashboard.tables import TableColumn, sortable_table, status_chip
from stormpetrel.figures.nodes import thread_modes
from stormpetrel.figures.trace_models import UNKNOWN_LABEL, trace_reconstruction
from stormpetrel.records.traces import MODES

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer

MODE_LABELS: Final = {mode: mode.capitalize() if mode != "iowait" else mode for mode in MODES}
_MARGIN: Final = {**PLAIN, "r": 24}
_LEGEND: Final = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}
_LINES_PX: Final = 470
_LONGEST_NODE: Final = 18


def trace_part(live: LiveSite, viewer: Viewer, key: str, mode: str) -> Component:
    """One window, as this viewer may see it."""
    view = window_traces(live, viewer, key)
    mode = chosen({"mode": mode}, "mode", MODES, MODES[0])
    window = _window(view)
    zone = ZoneInfo(live.settings.site.time_zone)
    begin = window.window_start.astimezone(zone)
    end = begin + timedelta(seconds=window.window_s)
    return card(
        f"Node {window.node}, CPU {window.cpu}",
        html.P(f"{begin:%d %b %Y, %H:%M:%S} to {end:%H:%M:%S}, {window.trace}.", className="soft small"),
        _facts(live, view),
        *([notice(view.error.what, view.error.hint, kind="warning")] if view.error else []),
        _lines(view, zone),
        *_threads(live, view, mode, zone),
        className="nodes-one",
    )


def _judgement(view: WindowTraces) -> Component:
    if not view.judged:
        return status_chip("–", "not judged", "chip-wait")
    return (
        status_chip("▲", "flagged", "chip-fail")
        if _window(view).flagged
        else status_chip("✓", "within the usual", "chip-complete")
    )


def _facts(live: LiveSite, view: WindowTraces) -> Component:
    window = _window(view)
    job = job_cell(live, window)
    named = html.A(f"job {job['job']}", href=job["job_link"]) if job["job_link"] else f"job {job['job']}"
    parts: list[Any] = [
        _judgement(view),
        html.Span(["Score ", html.B(f"{window.score:.3g}")]),
        html.Span(window.kind or UNKNOWN_LABEL),
        html.Span(named if job["job"] else "no job"),
    ]
    if window.max_iowait is not None:
        parts.append(html.Span(f"iowait up to {100 * window.max_iowait:.0f} %"))
    if window.region:
        parts.append(html.Span(["like ", html.B(window.region)]))
    return html.P(parts, className="nodes-facts")


def _lines(view: WindowTraces, zone: ZoneInfo) -> Component:
    thread = next(thread for thread in view.threads if thread.key == _window(view).key)
    drawn = thread.reconstruction
    original, reconstruction = np.array(thread.original).T, np.array(drawn or thread.original).T  # (steps, 4)
    figure = trace_reconstruction(_times(view, zone), original, reconstruction, "")
    if drawn is None:  # nothing to compare with: only what was measured
        figure.data = [trace for trace in figure.data if trace.name == "original"]
    figure.update_layout(title=None, margin=_MARGIN, legend=_LEGEND)
    figure.update_xaxes(title_text=None)
    summary = "Share of each mode over time, as it was" + (" and as the model reconstructs it." if drawn is not None else ".")
    return plot("nodes-lines", figure, summary, height=_LINES_PX)


def _threads(live: LiveSite, view: WindowTraces, mode: str, zone: ZoneInfo) -> list[Component]:
    """The threads around it at the same moment: one mode of each as it was and as the model draws it, and in numbers."""
    link = PageLink.of(live, "/nodes", {"pick": _window(view).key})
    number = MODES.index(mode)
    heats = [_heat("nodes-threads", "As it was", view, [thread.original[number] for thread in view.threads], mode, zone)]
    drawn = [thread.reconstruction[number] for thread in view.threads if thread.reconstruction is not None]
    if drawn:
        heats.append(_heat("nodes-threads-made", "As the model reconstructs it", view, drawn, mode, zone))
    return [
        html.H3("The threads around it", className="nodes-around"),
        html.P(_around(view), className="soft small"),
        choice("Mode", MODE_LABELS, mode, link, "mode"),
        html.Div(heats, className="nodes-pair"),
        _thread_table(live, view),
    ]


def _heat(
    id: str,  # noqa: A002 (Dash's name)
    title: str,
    view: WindowTraces,
    shares: list[list[float]],  # (threads, steps)
    mode: str,
    zone: ZoneInfo,
) -> Component:
    threads = view.threads
    figure = thread_modes(_thread_names(view), _times(view, zone), np.array(shares, dtype=np.float32), mode)
    figure.update_layout(title=None, margin=_MARGIN, meta={"keys": [thread.key for thread in threads]})
    figure.update_xaxes(title_text=None).update_yaxes(title_text=None)
    height = 90 + min(16 * len(threads), 520)
    summary = f"{title}: share of {mode} of {len(threads)} threads over time."
    return html.Div([html.H4(title), plot(id, figure, summary, height=max(150, height))], className="nodes-half")


def _thread_names(view: WindowTraces) -> list[str]:
    """What stands next to the rows: short, and no two alike."""
    several = len({thread.node for thread in view.threads}) > 1
    names = [f"{_short(thread.node)} CPU {thread.cpu}" if several else f"CPU {thread.cpu}" for thread in view.threads]
    if len(set(names)) < len(names):
        names = [f"{number}: {name}" for number, name in enumerate(names, 1)]
    is_chosen = [thread.key == _window(view).key for thread in view.threads]
    return [f"{name} ◀" if chosen else name for name, chosen in zip(names, is_chosen, strict=True)]


def _short(node: str) -> str:
    return node if len(node) <= _LONGEST_NODE else f"{node[: _LONGEST_NODE // 2]}…{node[-_LONGEST_NODE // 2 + 1 :]}"


def _thread_table(live: LiveSite, view: WindowTraces) -> Component:
    columns = (
        TableColumn("thread", "Thread", "link", 150),
        TableColumn("kind", "Job type", width=120),
        TableColumn("job", "Job", "link", 120),
        TableColumn("score", "Score", "number", 95),
        *(TableColumn(mode, f"Mean {mode}", "percent", 125) for mode in MODES[:3]),
    )
    link = PageLink.of(live, "/nodes")
    rows = [
        {
            "thread": f"{thread.node} CPU {thread.cpu}",
            "thread_link": link.to(pick=thread.key),
            "kind": thread.kind or UNKNOWN_LABEL,
            "score": thread.score,
            **job_cell(live, thread),
            **{mode: 100 * fmean(thread.original[number]) for number, mode in enumerate(MODES[:3])},
        }
        for thread in view.threads
    ]
    return with_digits(sortable_table("nodes-thread-table", columns, rows, label="Threads at this moment", most_px=330), "score")


def _around(view: WindowTraces) -> str:
    shown, job = len(view.threads), sum(thread.same_job for thread in view.threads)
    cut = (
        f"{shown} of {view.of_threads} threads" if shown < view.of_threads else f"{shown} {'thread' if shown == 1 else 'threads'}"
    )
    of_job = f"; the first {job} are of the same job" if job > 1 else ""
    return f"{cut} at the same moment{of_job}. A click on a row shows that thread."


def _times(view: WindowTraces, zone: ZoneInfo) -> list[Any]:
    begin = local(view.window_start, zone)
    return [begin + timedelta(seconds=view.step_s * (step + 1)) for step in range(len(view.threads[0].original[0]))]


def _window(view: WindowTraces) -> ScoredWindow:
    """The window that was requested: a server one version older than its client leaves it out, our own never does."""
    assert view.window is not None
    return view.window
