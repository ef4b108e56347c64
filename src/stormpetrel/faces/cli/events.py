"""`stormpetrel events`: is the grid as a whole in normal operation, what is wrong, since when, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final
from zoneinfo import ZoneInfo

import typer

from stormpetrel.faces.cli import events_evaluate, events_label, events_show
from stormpetrel.faces.cli.context import Context, Json, console, plain, print_json
from stormpetrel.faces.cli.event_episodes import Episode, episodes_of
from stormpetrel.faces.cli.trace_input import progress_shown

if TYPE_CHECKING:
    import polars as pl

    from stormpetrel.lifecycle.event_models import EventModelInUse

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
    from stormpetrel.lifecycle.event_models import train_event_model

    chosen: Context = context.obj
    with chosen.open_site(to_write=True) as site, progress_shown(quiet=as_json) as progress:
        training = train_event_model(site, model, seed=seed, progress=progress)
    entry = next(one for one in training.models if one.about.get("role") != "forecast")
    if as_json:
        print_json({"training": training.name, "name": entry.name, "version": entry.version, **entry.about})
        return
    out, about = console(), entry.about
    out.print(
        f"{plain(entry.name)} version {entry.version}: {about['buckets']:,} buckets of {about['bucket_s'] // 60} minutes, "
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
    from stormpetrel.lifecycle.event_models import load_event_model
    from stormpetrel.lifecycle.event_scoring import score_new_buckets

    chosen: Context = context.obj
    with chosen.open_site(to_write=True) as site, progress_shown(quiet=as_json) as progress:
        used = load_event_model(site)
        done = score_new_buckets(site, used, progress=progress)
        rows = site.event_scores.read(model=used.name, version=used.version).sort("bucket_start").collect()
        told, zone = episodes_of(rows, site.outages.list()), site.settings.site.time_zone
    if as_json:
        about = {"model": used.name, "version": used.version, "threshold": used.threshold}
        print_json(
            {
                **about,
                "scored": done.scored,
                "alarms": done.alarms,
                "buckets": rows.height,
                "episodes": [one.as_dict() for one in told[-last:]],
            }
        )
        return
    out = console()
    out.print(f"{done.scored:,} buckets scored by {plain(used.name)} version {used.version}, {done.alarms:,} of them alarms")
    _show(told, last, rows, used, zone)


def _show(told: list[Episode], last: int, rows: pl.DataFrame, used: EventModelInUse, zone: str) -> None:
    out = console()
    if not rows.height:
        out.print("There is nothing to score yet. Take in events: stormpetrel ingest events --live")
        return
    newest = rows.row(-1, named=True)
    state = "ALARM" if newest["alarm"] else "calm"
    worth = "none" if newest["score"] is None else f"{newest['score']:.3g}"
    moment = newest["bucket_start"].astimezone(ZoneInfo(zone))
    out.print(f"{moment:%Y-%m-%d %H:%M} ({plain(zone)}): {state}, score {worth} (alarm above {used.threshold:.3g})")
    if not told:
        out.print("No alarm so far.")
        return
    out.print(f"{len(told):,} alarms in all" + (f", the newest {last}:" if len(told) > last else ":"))
    for one in told[-last:]:
        barely = ", barely above the threshold" if one.times_threshold and 1 <= one.times_threshold < _BARELY else ""
        labels = f" [{plain('; '.join(one.labels))}]" if one.labels else ""
        out.print(f"  {one.span(zone)}{barely}{labels}")
        for words in one.why or ["nothing stands out by itself; the kinds together are unusual"]:
            out.print(f"    {plain(words)}")
    out.print(f"Was the last one none? {told[-1].label_command(zone)}")


app.command("show")(events_show.show)
app.command("label")(events_label.label)
app.command("evaluate")(events_evaluate.evaluate)
