"""`stormpetrel events train` and `score`: is the cluster as a whole in normal operation; if not: what, since when, where."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from rich.console import Console

from stormpetrel.answers.cluster.scoring import score_events
from stormpetrel.answers.schemas.events import EventScoring, ScoredAlarm
from stormpetrel.answers.schemas.registry import NewTraining
from stormpetrel.answers.site.registry import train_events
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.faces.cli.options import Json, Seed
from stormpetrel.faces.cli.output import emit, format_time, plain
from stormpetrel.faces.cli.progress import share_spinner
from stormpetrel.faces.cli.site import open_site

_BARELY: Final = 1.1  # times the threshold


def train(
    context: typer.Context,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="combined, unsupervised or supervised; events.model if left out.",
            show_default=False,
        ),
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Train a model on the site's event counts and make it current."""
    with open_site(context, to_write=True) as site, share_spinner(quiet=as_json) as progress:
        receipt = train_events(site, LOCAL, model, seed=seed, progress=progress)
    emit(receipt, lambda out: _print_training(out, receipt), as_json=as_json, next_step="stormpetrel events score")


def _print_training(out: Console, receipt: NewTraining) -> None:
    about = receipt.about
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


def score(
    context: typer.Context,
    last: Annotated[int, typer.Option("--last", min=1, help="How many alarms to show.")] = 10,
    as_json: Json = False,
) -> None:
    """Score the buckets that the current model has not scored, and report what is wrong, since when, and where."""
    with open_site(context, to_write=True) as site, share_spinner(quiet=as_json) as progress:
        scoring, zone = score_events(site, LOCAL, last=last, progress=progress), site.settings.site.time_zone
    emit(scoring, lambda out: _print_scoring(out, scoring, zone), as_json=as_json)


def _print_scoring(out: Console, scoring: EventScoring, zone: str) -> None:
    by = f"{plain(scoring.model)} version {scoring.version}"
    out.print(f"{scoring.scored:,} buckets scored by {by}, {scoring.alarms:,} of them alarms")
    if scoring.newest is None:
        out.print("There is nothing to score yet. Ingest events: stormpetrel ingest events --live")
        return
    state = "ALARM" if scoring.newest_alarm else "calm"
    score = "none" if scoring.newest_score is None else f"{scoring.newest_score:.3g}"
    out.print(
        f"{format_time(scoring.newest, zone)} ({plain(zone)}): {state}, score {score} (alarm above {scoring.threshold:.3g})"
    )
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
        for finding in alarm.findings or ["no single kind stands out; the kinds together are unusual"]:
            out.print(f"    {plain(finding)}")
    out.print(f"Was the last one none? {label_command(alarms[-1], zone)}")


def alarm_span(alarm: ScoredAlarm, zone: str) -> str:
    """Return the start and the end of an alarm, in the site's zone."""
    return f"{format_time(alarm.start, zone)} to {format_time(alarm.end, zone)}"


def label_command(alarm: ScoredAlarm, zone: str) -> str:
    """Return the command that labels the time of an alarm as normal."""
    return f"stormpetrel events label '{format_time(alarm.start, zone)}' '{format_time(alarm.end, zone)}' --kind normal"
