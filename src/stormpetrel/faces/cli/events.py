"""`stormpetrel events`: is the grid as a whole in normal operation, what is wrong, since when, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from stormpetrel.faces.cli import events_evaluate, events_label, events_show
from stormpetrel.faces.cli.context import Context, Json, console, plain, print_json
from stormpetrel.faces.cli.trace_input import progress_shown

if TYPE_CHECKING:
    import polars as pl

    from stormpetrel.lifecycle.event_models import EventModelInUse

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
        typer.Option("--model", help="supervised, unsupervised or combined; events.model if left out.", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the model.")] = 0,
    as_json: Json = False,
) -> None:
    """Train a model on the site's event counts and make it current."""
    from stormpetrel.lifecycle.event_models import train_event_model

    chosen: Context = context.obj
    with chosen.open_site() as site, progress_shown(quiet=as_json) as progress:
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
    with chosen.open_site() as site, progress_shown(quiet=as_json) as progress:
        used = load_event_model(site)
        done = score_new_buckets(site, used, progress=progress)
        rows = site.event_scores.read(model=used.name, version=used.version).sort("bucket_start").collect()
    told = episodes_of(rows)
    if as_json:
        about = {"model": used.name, "version": used.version, "threshold": used.threshold}
        print_json({**about, "scored": done.scored, "alarms": done.alarms, "buckets": rows.height, "episodes": told[-last:]})
        return
    out = console()
    out.print(f"{done.scored:,} buckets scored by {plain(used.name)} version {used.version}, {done.alarms:,} of them alarms")
    _show(told[-last:], rows, used)


def episodes_of(rows: pl.DataFrame) -> list[dict[str, Any]]:
    """Alarms that belong together, oldest first: from, to, the highest score, and what its bucket says."""
    from datetime import timedelta

    import polars as pl

    from stormpetrel.events.alarm_budget import APART_HOURS
    from stormpetrel.events.finding import findings_of_json

    alarms = rows.filter("alarm").sort("bucket_start")
    apart = timedelta(hours=APART_HOURS) + pl.duration(seconds=pl.col("bucket_s"))
    number = (pl.col("bucket_start").diff() > apart).fill_null(False).cum_sum()
    told = []
    for _, part in alarms.with_columns(number.alias("number")).group_by("number", maintain_order=True):
        worst = part.row(int(part["score"].fill_null(0.0).arg_max() or 0), named=True)
        end = part["bucket_start"][-1] + timedelta(seconds=int(part["bucket_s"][-1]))
        words = [one.words for one in findings_of_json(worst["why"])]
        told.append({"from": part["bucket_start"][0].isoformat(), "to": end.isoformat(), "score": worst["score"], "why": words})
    return told


def _show(told: list[dict[str, Any]], rows: pl.DataFrame, used: EventModelInUse) -> None:
    out = console()
    if not rows.height:
        out.print("There is nothing to score yet. Take in events: stormpetrel ingest events --live")
        return
    newest = rows.row(-1, named=True)
    state = "ALARM" if newest["alarm"] else "calm"
    worth = "none" if newest["score"] is None else f"{newest['score']:.3g}"
    out.print(f"{newest['bucket_start']:%Y-%m-%d %H:%M} UTC: {state}, score {worth} (alarm above {used.threshold:.3g})")
    for one in told:
        out.print(f"  {one['from'][:16].replace('T', ' ')} to {one['to'][:16].replace('T', ' ')} UTC")
        for words in one["why"] or ["nothing stands out by itself; the kinds together are unusual"]:
            out.print(f"    {plain(words)}")
    out.print("Was it none? stormpetrel events label FROM TO --kind normal · the page Grid of stormpetrel serve shows it all")


app.command("show")(events_show.show)
app.command("label")(events_label.label)
app.command("evaluate")(events_evaluate.evaluate)
