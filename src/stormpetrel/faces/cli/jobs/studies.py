"""`stormpetrel jobs profiles | features | trends | waste`: studies of a job log, as tables, figures and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from stormpetrel.answers.schemas.job_studies import (
    FeatureStudy,
    ProfileQuestion,
    ProfileStudy,
    TrendStudy,
    WasteStudy,
    WrittenFeatures,
)
from stormpetrel.answers.studies.feature_table import write_features
from stormpetrel.answers.studies.job_evaluation import JobInput
from stormpetrel.answers.studies.job_studies import feature_study, policy_replay, profile_study, trend_study, waste_study
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.engine import Engine
from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.heavy_work import engine_of
from stormpetrel.faces.cli.jobs.input import Files, read_input
from stormpetrel.faces.cli.options import Drop, EngineName, Failed, Fields, Format, Json, Plot, SinceDay, Workers
from stormpetrel.faces.cli.output import draw_page, emit, plain, show_table
from stormpetrel.faces.cli.progress import share_bar, step_spinner
from stormpetrel.faces.cli.site import open_site
from stormpetrel.faces.report import job_tables as tables
from stormpetrel.faces.report.job_tables import trend_table
from stormpetrel.faces.report.jobs_figures import (
    feature_drawings,
    policy_drawings,
    profile_drawings,
    trend_drawings,
    waste_drawings,
)
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.lifecycle.feature_table import PARTS


class Columns(StrEnum):
    """What profiles are found by."""

    END = "end"
    SUBMIT = "submit"


class Method(StrEnum):
    """How profiles are found."""

    GMM = "gmm"
    KMEANS = "kmeans"


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


def profiles(
    context: typer.Context,
    files: Files = None,
    columns: Annotated[Columns, typer.Option("--columns", help="What is known at the end, or at submission.")] = Columns.END,
    method: Annotated[Method, typer.Option("--method", help="Gaussian mixture, or K-means.")] = Method.GMM,
    format_name: Format = None,
    fields: Fields = None,
    failed: Failed = None,
    drop: Drop = None,
    since: SinceDay = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Find the kinds of jobs that a site runs, and how each ends."""
    data = read_input(
        context, files, format_name=format_name, fields=fields, failed=failed, drop=drop, since=since, quiet=as_json
    )
    with step_spinner(quiet=as_json) as step:
        step("looking for profiles")
        study = profile_study(data, ProfileQuestion(columns=columns.value, method=method.value))
    emit(
        study,
        lambda out: _print_profiles(out, data, study),
        as_json=as_json,
        plot=plot,
        draw=lambda path: draw_page(path, "Job profiles", tuple(profile_drawings(study))),
        next_step="stormpetrel jobs train (to forecast failures)",
    )


def features(
    context: typer.Context,
    files: Files = None,
    at: Annotated[
        Moment | None,
        typer.Option(
            "--at", help="What is known at submission (the default), at the start, or two minutes in.", show_default=False
        ),
    ] = None,
    target: Annotated[
        Path | None,
        typer.Option(
            "--write",
            help="Instead write the features of all jobs of the site to this new folder, as Parquet; at all three moments "
            "without --at.",
            show_default=False,
        ),
    ] = None,
    parts: Annotated[
        int,
        typer.Option(
            "--parts", min=1, max=4096, help="With --write: how many parts users are divided into, an item of work each."
        ),
    ] = PARTS,
    format_name: Format = None,
    fields: Fields = None,
    failed: Failed = None,
    drop: Drop = None,
    since: SinceDay = None,
    workers: Workers = None,
    engine: EngineName = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Rank the features by correlation with failure and by effect on the forecast.

    With --write, write them for all jobs of the site instead.
    """
    place = engine_of(context, engine, workers)
    if target is not None:
        if files or format_name or fields or failed or drop or since or plot:
            raise UsageError(
                "--write takes all jobs of a site, as its settings count them.", hint="Read a log into a site: stormpetrel ingest"
            )
        _write_features(context, target, (at,) if at else MOMENTS, parts, place, as_json=as_json)
        return
    data = read_input(
        context, files, format_name=format_name, fields=fields, failed=failed, drop=drop, since=since, quiet=as_json
    )
    with step_spinner(quiet=as_json) as step:
        step("history and features")
        study = feature_study(data, at or Moment.SUBMIT, progress=step, engine=place)
    emit(
        study,
        lambda out: _print_features(out, data, study),
        as_json=as_json,
        plot=plot,
        draw=lambda path: draw_page(path, f"Features at {study.at}", tuple(feature_drawings(study))),
        next_step="stormpetrel jobs evaluate (how good the forecast is)",
    )


def _write_features(
    context: typer.Context, target: Path, moments: Sequence[Moment], parts: int, engine: Engine, *, as_json: bool
) -> None:
    with open_site(context) as site, share_bar(quiet=as_json) as progress:
        receipt = write_features(site, LOCAL, target, moments=moments, parts=parts, engine=engine, progress=progress)
    emit(receipt, lambda out: _print_written(out, receipt), as_json=as_json)


def _print_written(out: Console, receipt: WrittenFeatures) -> None:
    for moment, rows in receipt.rows.items():
        out.print(f"{plain(receipt.output)}/{moment}-*.parquet: {rows:,} jobs × {receipt.features[moment]} features")
    out.print(
        f"{receipt.jobs:,} jobs in {receipt.pieces} pieces and {receipt.shards} shards, {receipt.seconds:,.0f} s; "
        f"no process held more than {receipt.peak_bytes / 1e6:,.0f} MB"
    )


def trends(
    context: typer.Context,
    by: Annotated[TrendBy, typer.Option("--by", help="Whose failure rate to follow.")],
    files: Files = None,
    every: Annotated[str, typer.Option("--every", help="Length of a period: 1d, 1w, 1mo, 1q, 1y, or a multiple.")] = "1w",
    format_name: Format = None,
    fields: Fields = None,
    failed: Failed = None,
    drop: Drop = None,
    since: SinceDay = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Follow failure rates over time, and name those that changed."""
    data = read_input(
        context, files, format_name=format_name, fields=fields, failed=failed, drop=drop, since=since, quiet=as_json
    )
    with step_spinner(quiet=as_json) as step:
        step("counting")
        study = trend_study(data, _breakdown(by), every)
    emit(
        study,
        lambda out: _print_trends(out, data, study),
        as_json=as_json,
        plot=plot,
        draw=lambda path: draw_page(path, f"Failure rate by {by.value}", tuple(trend_drawings(study))),
        next_step=f"stormpetrel jobs waste --by {'user' if by is TrendBy.NODE else by.value} (what it costs)",
    )


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
    since: SinceDay = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Add up the core-hours lost to failed jobs, and what cancelling early would have saved."""
    if tau is not None and not policy:
        raise UsageError("--tau is a threshold of the cancel policy.", hint="Add --policy.")
    data = read_input(
        context, files, format_name=format_name, fields=fields, failed=failed, drop=drop, since=since, quiet=as_json
    )
    with step_spinner(quiet=as_json) as step:
        step("adding up")
        replay, curve = policy_replay(data, tau=tau, progress=step) if policy else (None, None)
        study = waste_study(data, _breakdown(by), policy=replay)

    def draw(path: Path) -> None:
        drawings = waste_drawings(data, study)
        drawings += policy_drawings(replay, curve) if replay is not None and curve is not None else ()
        draw_page(path, "What failed jobs cost", tuple(drawings))

    emit(
        study,
        lambda out: _print_waste(out, data, study),
        as_json=as_json,
        plot=plot,
        draw=draw,
        next_step="stormpetrel jobs trends --by user"
        if policy
        else "stormpetrel jobs waste --policy (what early cancelling saves)",
    )


def _breakdown(by: TrendBy | WasteBy) -> str:
    return "application" if by.value == "family" else by.value


def _print_profiles(out: Console, data: JobInput, study: ProfileStudy) -> None:
    _begin(out, data)
    shares = tables.label_shares(study)
    show_table(out, tables.preparation_table(study))
    show_table(out, tables.states_table(study))
    over_before = tables.never_started_count(study)
    apart = f"; {over_before:,} never started" if over_before else ""
    out.print("  " + ", ".join(f"{shares[name]:.1%} {name}" for name in ("Completed", "Failed", "Other")) + f"{apart}\n")
    show_table(out, tables.elbow_table(study))
    out.print(f"  {tables.why_k(study)}\n")
    for table in (*tables.profile_tables(study), tables.profile_descriptions(study)):
        show_table(out, table)


def _print_features(out: Console, data: JobInput, study: FeatureStudy) -> None:
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


def _print_trends(out: Console, data: JobInput, study: TrendStudy) -> None:
    _begin(out, data)
    if not study.trend:
        out.print(f"No {study.by} is known with enough jobs that ended (20), so there is nothing to follow.")
        return
    show_table(out, trend_table(study))
    for change in study.changes:
        out.print(f"  {plain(change)}")
    for mover in study.movers[:20]:
        out.print(f"  {plain(mover.sentence)}")
    if not study.movers:
        out.print("  Nobody's failure rate in the last period differs from what it was before by more than chance.")
    out.print()


def _print_waste(out: Console, data: JobInput, study: WasteStudy) -> None:
    _begin(out, data)
    show_table(out, tables.waste_table(study))
    for line in tables.waste_text(study):
        out.print(f"  {line}")
    out.print()
    if study.policy is not None:
        show_table(out, tables.policy_table(study.policy))


def _begin(out: Console, data: JobInput) -> None:
    for note in data.notes:
        out.print(plain(note))
    first, last = data.jobs["submit_time"].min(), data.jobs["submit_time"].max()
    out.print(f"{data.jobs.height:,} jobs, submitted {str(first)[:10]} to {str(last)[:10]}\n")
