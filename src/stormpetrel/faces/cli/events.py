"""`stormpetrel events`: is the grid as a whole in normal operation, what is wrong, since when, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final
from zoneinfo import ZoneInfo

import typer

from stormpetrel.faces.cli import events_evaluate, events_label, events_show
from stormpetrel.faces.cli.context import Context, Json, console, plain, print_json
from stormpetrel.faces.cli.event_alarms import alarm_span, label_command
from stormpetrel.faces.cli.trace_input import progress_shown

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.events import EventScoring

_BARELY: Final = 1.1  # times the threshold

app = typer.Typer(
    help="Whether the grid as a whole is in normal operation: alarms from counts of job events.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("train")
def train(
    context: typer.Context,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="combined, unsupervised, supervised or recurrent_forecast; events.model if left out.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the model.")] = 0,
    as_json: Json = False,
) -> None:
    """Train a model on the site's event counts and make it current."""
    from stormpetrel.answers.site.training import train_events
    from stormpetrel.answers.viewer import LOCAL

    chosen: Context = context.obj
    with chosen.open_site(to_write=True) as site, progress_shown(quiet=as_json) as progress:
        receipt = train_events(site, LOCAL, model, seed=seed, progress=progress)
    if as_json:
        print_json(receipt)
        return
    out, about = console(), receipt.about
    out.print(
        f"{plain(receipt.name)} version {receipt.version}: {about['buckets']:,} buckets of {about['bucket_s'] // 60} minutes, "
        f"{len(about['kinds'])} kinds, {about['labelled_outage_buckets']:,} buckets of labelled outages"
    )
    out.print(
        f"Alarm from a score of {about['threshold']:.3g} on: at most {about['alarms_per_week']:g} a week in the "
        f"{about['calm_buckets']:,} newest calm buckets, which it has not learnt from."
    )
    if about["labels_newer"]:
        out.print(
            f"{about['labels_newer']:,} labelled spans are newer than what is learnt from: outages and maintenance among them "
            "keep the threshold honest, and are learnt from later."
        )
    out.print("Next: stormpetrel events score")


@app.command("score")
def score(
    context: typer.Context,
    last: Annotated[int, typer.Option("--last", min=1, help="How many alarms to show.")] = 10,
    as_json: Json = False,
) -> None:
    """Score the buckets that the current model has not seen, and say what is wrong, since when, and where."""
    from stormpetrel.answers.grid.scoring import score_events
    from stormpetrel.answers.viewer import LOCAL

    chosen: Context = context.obj
    with chosen.open_site(to_write=True) as site, progress_shown(quiet=as_json) as progress:
        scoring, zone = score_events(site, LOCAL, last=last, progress=progress), site.settings.site.time_zone
    if as_json:
        print_json(scoring)
        return
    _show(scoring, zone)


def _show(scoring: EventScoring, zone: str) -> None:
    out = console()
    by = f"{plain(scoring.model)} version {scoring.version}"
    out.print(f"{scoring.scored:,} buckets scored by {by}, {scoring.alarms:,} of them alarms")
    if scoring.newest is None:
        out.print("There is nothing to score yet. Take in events: stormpetrel ingest events --live")
        return
    state = "ALARM" if scoring.newest_alarm else "calm"
    score = "none" if scoring.newest_score is None else f"{scoring.newest_score:.3g}"
    moment = scoring.newest.astimezone(ZoneInfo(zone))
    out.print(f"{moment:%Y-%m-%d %H:%M} ({plain(zone)}): {state}, score {score} (alarm above {scoring.threshold:.3g})")
    alarms = scoring.episodes
    if not alarms:
        out.print("No alarm so far.")
        return
    newest = f", the newest {len(alarms):,}" if scoring.episodes_in_all > len(alarms) else ""
    out.print(f"{scoring.episodes_in_all:,} alarms in all{newest}:")
    for alarm in alarms:
        times = alarm.score / alarm.threshold if alarm.score is not None and alarm.threshold else 0.0
        barely = ", barely above the threshold" if 1 <= times < _BARELY else ""
        labels = f" [{plain('; '.join(alarm.labels))}]" if alarm.labels else ""
        out.print(f"  {alarm_span(alarm, zone)}{barely}{labels}")
        for finding in alarm.findings or ["nothing stands out by itself; the kinds together are unusual"]:
            out.print(f"    {plain(finding)}")
    out.print(f"Was the last one none? {label_command(alarms[-1], zone)}")


app.command("show")(events_show.show)
app.command("label")(events_label.label)
app.command("evaluate")(events_evaluate.evaluate)
