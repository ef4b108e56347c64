"""The form that asks for new jobs: how many, what should be different, and as which file; `assets/generator.js` sends it.

WorkloadGenerator -> sample_form -> POST /api/v1/workload/sample -> a download.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from dash import dcc, html

from stormpetrel.answers.schemas.workload import MOST_JOBS
from stormpetrel.answers.viewer import MANAGE
from stormpetrel.faces.dashboard.blocks import attributes, card, field, notice

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.schemas.workload import WorkloadGenerator
    from stormpetrel.answers.viewer import Viewer

_FORMATS: Final = {"swf": "SWF", "sacct": "sacct text", "csv": "CSV", "parquet": "Parquet"}
_UNITS: Final = {"jobs": "jobs", "days": "days"}
_WAITS: Final = {"": "left out", "yes": "by a simulated scheduler"}
_ADDRESS: Final = "/api/v1/workload/sample"


def sample_form(live: LiveSite, viewer: Viewer, generator: WorkloadGenerator) -> Component:
    """What to ask of the generator, and the button that makes the file."""
    if MANAGE not in viewer.scopes:
        return card("New jobs", notice("This needs the scope 'manage'.", "Ask for a token that has it."))
    prefix = live.settings.serve.prefix.rstrip("/")
    how_many = [field("How many", _number("amount", str(min(generator.jobs, 10_000)))), field("Of", _select("unit", _UNITS))]
    return card(
        "New jobs",
        html.P(
            f"Users, groups and projects get new names. At most {MOST_JOBS:,} jobs here; any number: stormpetrel synth sample",
            className="soft small",
        ),
        html.Div([*how_many, *_conditions(generator)], className="generator-form"),
        html.Div(
            [
                html.Button(
                    "Generate and download",
                    id="generator-make",
                    type="button",
                    className="button button-main",
                    **attributes(data_address=f"{prefix}{_ADDRESS}"),
                ),
                html.P("", id="generator-message", role="status", className="generator-message"),
            ],
            className="generator-send",
        ),
        id="generator-sample",
    )


def _conditions(generator: WorkloadGenerator) -> list[Component]:
    fields = [
        field("First day", _input("start", "", placeholder="as in the log"), hint="such as 2027-01-01"),
        field("Times as many users", _number("users", "1")),
    ]
    if "gpus" in generator.columns:
        fields.append(field("Times as many GPU jobs", _number("gpu_jobs", "1")))
    if generator.groups:
        groups = {"": "everybody", **{group.name: f"{group.name}: {group.words}"[:80] for group in generator.groups}}
        fields.append(field("Only the group", _select("group", groups)))
    return [
        *fields,
        field("Years later", _number("later_years", "0"), hint="at the log's own growth"),
        field("Starts and waits", _select("waits", _WAITS)),
        field("Cores of its machine", _input("cores", "", placeholder="70 % busy", inputMode="numeric")),
        field("Seed", _number("seed", "0"), hint="the same seed, the same jobs"),
        field("Format", _select("format", _FORMATS)),
    ]


def _number(name: str, value: str) -> Any:
    return _input(name, value, inputMode="decimal")


def _input(name: str, value: str, **options: Any) -> Any:
    return dcc.Input(
        id=f"generator-{name}", type="text", value=value, maxLength=40, autoComplete="off", className="input", **options
    )


def _select(name: str, options: Mapping[str, str]) -> Any:
    """A native choice: it is read where the form is sent, and nobody else listens to it."""
    return html.Select(
        [html.Option(text, value=value) for value, text in options.items()], id=f"generator-{name}", className="input"
    )
