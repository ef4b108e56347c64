"""`stormpetrel jobs profiles|features|trends|waste`: what a log tells about its jobs, as tables, figures and JSON."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.context import Context, Json, Workers, console, plain, print_json
from stormpetrel.faces.cli.job_input import Drop, Failed, Fields, Files, Format, Since, read_input, steps_shown

if TYPE_CHECKING:
    from rich.console import Console

    from stormpetrel.answers.schemas.job_studies import FeatureStudy, ProfileStudy, TrendStudy, WasteStudy
    from stormpetrel.answers.studies.job_input import JobInput
    from stormpetrel.faces.report.blocks import Section

Plot = Annotated[
    Path | None,
    typer.Option("--plot", help="Also draw the figures into this HTML file.", show_default=False),
]


class Columns(StrEnum):
    """What profiles are found by."""

    END = "end"
    SUBMIT = "submit"


class Method(StrEnum):
    """How profiles are found."""

    GMM = "gmm"
    KMEANS = "kmeans"


class At(StrEnum):
    """When a forecast is made; the words of `jobs.moments.Moment`, which is too heavy for --help."""

    SUBMIT = "submit"
    START = "start"
    TWO_MINUTES = "2min"


class TrendBy(StrEnum):
    """Whose failure rate is followed."""

    USER = "user"
    ACCOUNT = "account"
    FAMILY = "family"
    NODE = "node"
    PROFILE = "profile"
    PARTITION = "partition"


class WasteBy(StrEnum):
    """What the loss is broken down by."""

    USER = "user"
    FAMILY = "family"
    ACCOUNT = "account"
    PARTITION = "partition"
    PROFILE = "profile"
    WEEK = "week"
    OUTCOME = "outcome"


def register(app: typer.Typer) -> None:
    """Add the study commands to the noun `jobs`."""
    app.command("profiles")(profiles)
    app.command("features")(features)
    app.command("trends")(trends)
    app.command("waste")(waste)


def profiles(
    context: typer.Context,
    files: Files = None,
    columns: Annotated[Columns, typer.Option("--columns", help="What is known at the end, or at submission.")] = Columns.END,
    method: Annotated[Method, typer.Option("--method", help="Gaussian mixture, or K-means.")] = Method.GMM,
    format_name: Format = None,
    fields: Fields = None,
    failed: Failed = None,
    drop: Drop = None,
    since: Since = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Find the kinds of jobs that a site runs, and say how each ends."""
    data = _read(context, files, format_name, fields, failed, drop, since, as_json)
    with steps_shown(quiet=as_json) as step:
        step("looking for profiles")
        from stormpetrel.answers.schemas.job_studies import ProfileQuestion
        from stormpetrel.answers.studies.job_studies import profile_study

        study = profile_study(data, ProfileQuestion(columns=columns.value, method=method.value))
    if plot:
        from stormpetrel.faces.report.jobs_figures import profile_drawings

        _draw(plot, "Job profiles", profile_drawings(study))
    if as_json:
        print_json(study)
        return
    _show_profiles(console(), data, study)
    _close(console(), plot, "to forecast failures: stormpetrel jobs train")


def features(
    context: typer.Context,
    files: Files = None,
    at: Annotated[At, typer.Option("--at", help="What is known at submission, at the start, or two minutes in.")] = At.SUBMIT,
    format_name: Format = None,
    fields: Fields = None,
    failed: Failed = None,
    drop: Drop = None,
    since: Since = None,
    workers: Workers = 1,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Say which features hang together with failing, which move the forecast, and which can go."""
    data = _read(context, files, format_name, fields, failed, drop, since, as_json)
    with steps_shown(quiet=as_json) as step:
        step("history and features")
        from stormpetrel.answers.studies.job_studies import feature_study
        from stormpetrel.engine import Engine
        from stormpetrel.jobs.moments import Moment

        study = feature_study(data, Moment(at.value), progress=step, engine=Engine(workers))
    if plot:
        from stormpetrel.faces.report.jobs_figures import feature_drawings

        _draw(plot, f"Features at {study.at}", feature_drawings(study))
    if as_json:
        print_json(study)
        return
    _show_features(console(), data, study)
    _close(console(), plot, "how good the forecast is: stormpetrel jobs evaluate")


def trends(
    context: typer.Context,
    by: Annotated[TrendBy, typer.Option("--by", help="Whose failure rate to follow.")],
    files: Files = None,
    every: Annotated[str, typer.Option("--every", help="Length of a period: 1d, 1w, 1mo, 1q, 1y, or a multiple.")] = "1w",
    format_name: Format = None,
    fields: Fields = None,
    failed: Failed = None,
    drop: Drop = None,
    since: Since = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Follow failure rates over time, and name those that changed."""
    data = _read(context, files, format_name, fields, failed, drop, since, as_json)
    with steps_shown(quiet=as_json) as step:
        step("counting")
        from stormpetrel.answers.studies.job_studies import trend_study

        study = trend_study(data, _breakdown(by), every)
    if plot:
        from stormpetrel.faces.report.jobs_figures import trend_drawings

        _draw(plot, f"Failure rate by {by.value}", trend_drawings(study))
    if as_json:
        print_json(study)
        return
    _show_trends(console(), data, study)
    _close(console(), plot, f"what it costs: stormpetrel jobs waste --by {'user' if by is TrendBy.NODE else by.value}")


def waste(
    context: typer.Context,
    files: Files = None,
    by: Annotated[WasteBy, typer.Option("--by", help="What to break the loss down by.")] = WasteBy.USER,
    policy: Annotated[
        bool, typer.Option("--policy", help="Also replay: cancel at two minutes if the forecast risk is above a threshold.")
    ] = False,
    tau: Annotated[
        float | None, typer.Option("--tau", min=0.0, max=1.0, help="Also show this threshold; with --policy.", show_default=False)
    ] = None,
    format_name: Format = None,
    fields: Fields = None,
    failed: Failed = None,
    drop: Drop = None,
    since: Since = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Add up the core-hours that failed jobs held, and what cancelling early would have saved."""
    if tau is not None and not policy:
        raise UsageError("--tau is a threshold of the cancel policy.", hint="Add --policy.")
    data = _read(context, files, format_name, fields, failed, drop, since, as_json)
    with steps_shown(quiet=as_json) as step:
        step("adding up")
        from stormpetrel.answers.studies.job_studies import policy_replay, waste_study

        replay, curve = policy_replay(data, tau=tau, progress=step) if policy else (None, None)
        study = waste_study(data, _breakdown(by), policy=replay)
    if plot:
        from stormpetrel.faces.report.jobs_figures import policy_drawings, waste_drawings

        drawings = waste_drawings(data, study)
        drawings += policy_drawings(replay, curve) if replay is not None and curve is not None else ()
        _draw(plot, "What failed jobs cost", drawings)
    if as_json:
        print_json(study)
        return
    _show_waste(console(), data, study)
    following = "stormpetrel jobs trends --by user" if policy else "stormpetrel jobs waste --policy (what early cancelling saves)"
    _close(console(), plot, following)


def _read(
    context: typer.Context,
    files: list[str] | None,
    format_name: str | None,
    fields: str | None,
    failed: str | None,
    drop: str | None,
    since: str | None,
    quiet: bool,
) -> JobInput:
    chosen: Context = context.obj
    return read_input(chosen, files, format_name=format_name, fields=fields, failed=failed, drop=drop, since=since, quiet=quiet)


def _breakdown(by: TrendBy | WasteBy) -> str:
    return "application" if by.value == "family" else by.value


def _show_profiles(out: Console, data: JobInput, study: ProfileStudy) -> None:
    from stormpetrel.faces.cli.tables import show_table
    from stormpetrel.faces.report import job_tables as tables

    _begin(out, data)
    shares = tables.label_shares(study)
    show_table(out, tables.preparation_table(study))
    show_table(out, tables.states_table(study))
    over_before = tables.never_started_count(study)
    apart = f"; {over_before:,} never started" if over_before else ""
    out.print("  " + ", ".join(f"{shares[name]:.1%} {name}" for name in ("Completed", "Failed", "Other")) + f"{apart}\n")
    show_table(out, tables.elbow_table(study))
    out.print(f"  {tables.why_k(study)}\n")
    for table in (*tables.profile_tables(study), tables.profile_words(study)):
        show_table(out, table)


def _show_features(out: Console, data: JobInput, study: FeatureStudy) -> None:
    from stormpetrel.faces.cli.tables import show_table
    from stormpetrel.faces.report import job_tables as tables

    _begin(out, data)
    out.print(f"{study.jobs:,} jobs that ended and reached '{study.at}', in the order of submission\n")
    shown = (
        tables.correlation_table(study),
        tables.importance_table(study),
        tables.ablation_table(study),
        tables.verdict_table(study),
    )
    for table in shown:
        if table is not None:
            show_table(out, table)


def _show_trends(out: Console, data: JobInput, study: TrendStudy) -> None:
    from stormpetrel.faces.cli.tables import show_table
    from stormpetrel.faces.report.job_tables import trend_table

    _begin(out, data)
    if not study.trend:
        out.print(f"No {study.by} is known with enough jobs that ended (20), so there is nothing to follow.")
        return
    show_table(out, trend_table(study))
    for mover in study.movers[:20]:
        out.print(f"  {plain(mover.sentence)}")
    if not study.movers:
        out.print("  Nobody's failure rate in the last period differs from what it was before by more than chance.")
    out.print()


def _show_waste(out: Console, data: JobInput, study: WasteStudy) -> None:
    from stormpetrel.faces.cli.tables import show_table
    from stormpetrel.faces.report import job_tables as tables

    _begin(out, data)
    show_table(out, tables.waste_table(study))
    for line in tables.waste_words(study):
        out.print(f"  {line}")
    out.print()
    if study.policy is not None:
        show_table(out, tables.policy_table(study.policy))


def _begin(out: Console, data: JobInput) -> None:
    for note in data.notes:
        out.print(plain(note))
    first, last = data.jobs["submit_time"].min(), data.jobs["submit_time"].max()
    out.print(f"{data.jobs.height:,} jobs, submitted {str(first)[:10]} to {str(last)[:10]}\n")


def _close(out: Console, plot: Path | None, following: str) -> None:
    if plot:
        out.print(f"{plot}: the figures, to be opened in a browser")
    out.print(f"Next, {following}")


def _draw(path: Path, title: str, drawings: Iterable[Any]) -> None:
    from stormpetrel.faces.report.blocks import Section as Part
    from stormpetrel.faces.report.page import write_page

    sections: list[Section] = [Part(title, "", tuple(drawings))]
    write_page(path, title, sections)
