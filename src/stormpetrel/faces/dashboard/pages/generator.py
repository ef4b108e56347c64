"""The page Generator: a generator of jobs like those of the site, how good it is, and new jobs out of it.

link: column -> workload_answer, workload_board -> state, form, scorecard, real against synthetic. For administrators.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from dash import Dash, Input, Output, State, ctx, dcc, html, no_update

from stormpetrel.answers.viewer import current_viewer
from stormpetrel.answers.workload.fit import start_fit
from stormpetrel.answers.workload.workload import current_board, workload_answer, workload_board
from stormpetrel.errors import StormpetrelError
from stormpetrel.faces.dashboard.blocks import notice, page_head
from stormpetrel.faces.dashboard.choices import PageLink, chosen
from stormpetrel.faces.dashboard.filling import SOON_MS, Filling, as_of, fill, register_filling
from stormpetrel.faces.dashboard.page import DashboardPage
from stormpetrel.faces.dashboard.pages import generator_cards as cards
from stormpetrel.faces.dashboard.pages.generator_form import sample_form

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from stormpetrel.answers.background import Snapshot
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.schemas.workload import WorkloadAnswer
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.answers.workload.workload import WorkloadBoard

_LEAD: Final = (
    "Synthetic jobs like those of this site: to test a scheduler, to size a machine, to share with others. "
    "A generator learns how users here work, and generates any number of new jobs."
)
_NOT_YOURS: Final = "A generator learns from all users' jobs, so this page is for administrators."
_BEAT_MS: Final = 1_500


def layout(live: LiveSite, viewer: Viewer, query: Mapping[str, str]) -> Component:
    """The page of a link."""
    if not viewer.is_admin:
        return html.Div(
            [page_head("Generator", _LEAD), notice(_NOT_YOURS, "Administrators are listed in site.toml: serve.admins.")]
        )
    answer = workload_answer(live, viewer)
    return html.Div(
        [
            page_head("Generator", _LEAD),
            html.Div(cards.state_card(live, viewer, answer), id="generator-state"),
            dcc.Interval(id="generator-beat", interval=_BEAT_MS, disabled=not answer.fitting.running),
            dcc.Store(id="generator-known", data=_known(answer)),
            *fill(_filling(live), viewer, query),
        ],
        className="generator-page",
    )


def register(app: Dash, live: LiveSite) -> None:
    """Add what the page answers to."""
    register_filling(app, _filling(live))

    @app.callback(
        Output("generator-state", "children"),
        Output("generator-beat", "disabled"),
        Output("generator-known", "data"),
        Output("generator-stamp", "data", allow_duplicate=True),
        Output("generator-tick", "interval", allow_duplicate=True),
        Input("generator-fit", "n_clicks"),
        Input("generator-beat", "n_intervals"),
        State("generator-known", "data"),
        prevent_initial_call=True,
    )
    def follow(clicks: int | None, _: int | None, known: str | None) -> Any:
        """Begin to fit where the button was pressed; show how far it is, and once it is done what came of it."""
        viewer = current_viewer()
        problem = ""
        if ctx.triggered_id == "generator-fit":
            if not clicks:
                return (no_update,) * 5
            try:
                start_fit(live, viewer)
            except StormpetrelError as error:
                problem = str(error)
        answer = workload_answer(live, viewer)
        card = cards.state_card(live, viewer, answer, problem=problem)
        same = _known(answer) == known
        return card, not answer.fitting.running, _known(answer), no_update if same else None, no_update if same else SOON_MS


PAGE: Final = DashboardPage("/generator", "Generator", 1, layout, register, heading="Plan", earlier_paths=("/workload",))


def _known(answer: WorkloadAnswer) -> str:
    return "" if answer.generator is None else answer.generator.training


def _filling(live: LiveSite) -> Filling:
    def stamp(viewer: Viewer) -> str | None:
        board = current_board(live, viewer)
        return None if board is None else f"of {board.training}"

    def body(viewer: Viewer, query: Mapping[str, str]) -> list[Component]:
        return _body(live, workload_answer(live, viewer), workload_board(live, viewer), query, viewer)

    return Filling("generator", stamp, body, "Jobs to compare are")


def _body(
    live: LiveSite, answer: WorkloadAnswer, latest: Snapshot[WorkloadBoard], query: Mapping[str, str], viewer: Viewer
) -> list[Component]:
    board, generator = latest.value, answer.generator
    if generator is None or board.real is None or board.synthetic is None:
        return []
    columns = cards.columns_shown(board)
    column = chosen(query, "column", columns, next(iter(columns)))
    link = PageLink.of(live, "/generator", query)
    # No graph is put into the answers that are kept with the board: Dash fills in what it is given.
    drawn = latest.answer(("generator figures", column), lambda: cards.figures(board, column))
    return [
        sample_form(live, viewer, generator),
        cards.scorecard(generator),
        cards.distributions(columns, column, link, drawn),
        cards.order_and_rhythm(drawn),
        as_of(live, latest.at, cards.comparison_text(board)),
    ]
