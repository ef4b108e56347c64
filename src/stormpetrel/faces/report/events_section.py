"""The cluster's events in the report: outages over time, counts against their forecast, alarms, and the model in use.

Site -> site_event_sections -> Section. A site without event counts has none.

Tables of how good the alarm of the cluster is: EventDataset -> Table.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from stormpetrel.answers.cluster.board import FAMILY, ClusterArrays, read_board
from stormpetrel.answers.cluster.cluster import all_alarms, counts_of, now_of, period_of
from stormpetrel.answers.schemas.cluster import ClusterCounts, ClusterNow, ClusterPeriod, ClusterQuestion
from stormpetrel.errors import StormpetrelError
from stormpetrel.faces.report.blocks import NOTHING, Block, Column, Drawing, Paragraph, Section, Table
from stormpetrel.figures.cluster.background import background_height
from stormpetrel.figures.cluster.counts import counts_height, outage_timeline
from stormpetrel.figures.cluster.drawn import (
    background_over_time,
    counts_over_time,
    has_forecast,
    on_wall,
    score_over_time,
    time_spans,
)
from stormpetrel.figures.event_quality import outage_cells
from stormpetrel.figures.time_axis import NAMES, kinds_of
from stormpetrel.records.outages import OutageKind

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.events import EventDataset, EventModelQuality, OverSeeds
    from stormpetrel.store.site import Site

Progress = Callable[[str], None]
TITLE: Final = "The cluster's events"
_DRAWN: Final = timedelta(days=28)  # of counts and scores: what can still be read on paper
_MOST_BUCKETS: Final = 48  # of the newest day
_MOST_ROWS: Final = 40
_GAP: Final = "gap"
MODEL_LABELS: Final = {
    "supervised": "supervised LSTM",
    "unsupervised": "unsupervised",
    "combined": "combined",
    "seasonal": "seasonal z-score",
    "pca": "PCA",
    "iforest": "Isolation Forest",
    "xgboost": "XGBoost on lags",
}
# name, heading, form, and whether the spread over seeds is told too: all of it would not fit into a terminal.
_FIGURES: Final = (
    ("pr_auc", "PR area", ".3f", True),
    ("roc_auc", "ROC", ".3f", False),
    ("recall_at_one_per_week", "raised", ".2f", True),
    ("false_alarms_per_week", "false a week", ".2f", True),
    ("delay_hours", "delay, h", ".1f", True),
)
_NOTE: Final = (
    "Mean ± standard deviation over seeds. Raised: share of outages with at least one alarm while they lasted, at a threshold "
    "that allows one false alarm a week on calm hours before the test part. False a week: what that gave in the test part. "
    "Delay: median, to the end of the alarming hour. Indented: baselines."
)


def site_event_sections(site: Site, *, progress: Progress = lambda _: None) -> list[Section]:
    """What there is to say about the events of a site's cluster; nothing where none were taken in."""
    progress("events")
    try:
        board = read_board(site)
    except StormpetrelError as error:
        return [Section(TITLE, "", (Paragraph(f"The event counts cannot be read: {error.what}"),))]
    now = now_of(site, board, in_full=True)
    if now.latest is None:
        return []
    alarms, day = all_alarms(site, board, in_full=True), max(1, min(_MOST_BUCKETS, round(86_400 / now.bucket_s)))
    whole = period_of(site, board, alarms, ClusterQuestion(span="all"), in_full=True)
    assert whole.start is not None and whole.end is not None
    lately = period_of(site, board, alarms, ClusterQuestion(since=now.latest - _DRAWN, until=now.latest), in_full=True)
    newest = ClusterQuestion(since=whole.end - day * timedelta(seconds=now.bucket_s), until=whole.end)
    zone = site.settings.site.time_zone
    intro = (
        f"Events of {len(whole.kinds)} kinds in buckets of {now.bucket_s // 60} minutes, "
        f"from {_clock(whole.start, zone)} to {_clock(whole.end, zone)} ({zone}). {now.headline}"
    )
    timeline = _timeline(whole, zone)
    blocks: list[Block] = [
        _figures(now, whole),
        *timeline,
        _newest_day(counts_of(board, newest, limit=day, in_full=True), zone),
        *_drawings(lately, board.arrays.between(lately.start, lately.end), zone),
        *([_alarm_table(whole, zone)] if whole.alarms else []),
        *([_outage_table(whole, zone)] if whole.outages else []),
        *_model(site),
    ]
    missing = {} if timeline else {"gpgrid-fig-6": "no outage is known and no alarm was raised: stormpetrel events label"}
    return [Section(TITLE, intro, tuple(blocks), missing)]


def _timeline(period: ClusterPeriod, zone: str) -> list[Block]:
    spans = time_spans(period, zone)
    text = "As Fig. 6 of the published study, with the alarms above the outages that they belong to."
    height = 130 + 34 * len(kinds_of(spans))
    return [Drawing(outage_timeline(spans), text, height, ("gpgrid-fig-6",))] if spans else []


def _figures(now: ClusterNow, period: ClusterPeriod) -> Table:
    outages = [outage for outage in period.outages if outage.kind == OutageKind.OUTAGE]
    judged = [outage for outage in outages if outage.raised is not None]
    delays = [outage.delay_s / 3600 for outage in judged if outage.delay_s is not None]
    weeks = period.judged_buckets * period.bucket_s / 604_800
    alone = [alarm for alarm in period.alarms if not alarm.outages]
    rows: list[tuple[str, str, str]] = [
        ("kinds of events", f"{len(period.kinds):,}", "13"),
        ("hours", f"{period.buckets * period.bucket_s / 3600:,.0f}", "about 4,200"),
        ("buckets", f"{period.buckets:,}", "one an hour"),
        ("of these without data", f"{period.gap_buckets:,}", NOTHING),
        ("events", f"{period.events:,.0f}", NOTHING),
        ("outages", f"{len(outages):,}", "read off a Grafana page by hand"),
    ]
    if now.model:
        raised = f"{sum(bool(outage.raised) for outage in judged):,} of {len(judged):,} judged"
        rows += [
            ("outages that raised an alarm", raised, "no result: the model was not finished"),
            ("hours until they did, median", f"{median(delays):.1f}" if delays else NOTHING, NOTHING),
            ("alarms", f"{len(period.alarms):,}", NOTHING),
            (
                "of these outside of any outage",
                f"{len(alone):,} ({len(alone) / weeks:.2f} a week)" if weeks else NOTHING,
                NOTHING,
            ),
        ]
    return Table("Figures", (Column(""), Column("this site", ""), Column("published", "")), tuple(rows))


def _newest_day(counts: ClusterCounts, zone: str) -> Table:
    """The newest day as a table, as Fig. 5 of the published study has it: a row per bucket, a column per kind."""
    gap = [_GAP] * len(counts.kinds)
    rows = tuple((_clock(bucket.start, zone), *(gap if bucket.counts is None else bucket.counts)) for bucket in counts.buckets)
    columns = (Column(f"from ({zone})"), *(Column(kind, ",.0f") for kind in counts.kinds))
    note = "A gap is time of which there is no data."
    return Table("Counts of the newest buckets (Fig. 5)", columns, rows, note, ("gpgrid-fig-5",))


def _drawings(period: ClusterPeriod, arrays: ClusterArrays, zone: str) -> list[Block]:
    """Scores and counts of the last weeks, against threshold and forecast."""
    if not period.buckets:
        return []
    drawings: list[Block] = []
    if period.judged_buckets:
        figure = score_over_time(arrays, period, zone)
        figure.update_layout(title_text="Score and threshold, the last four weeks")
        drawings.append(Drawing(figure, "Scores above five times the threshold stand at the edge as triangles.", 340))
    figure = counts_over_time(arrays, period, zone)
    figure.update_layout(title_text="Counts of each kind, the last four weeks")
    band = "The band holds 99 % of calm counts; it is forecast from the buckets before."
    drawings.append(Drawing(figure, band if has_forecast(arrays) else "There is no forecast.", counts_height(len(period.kinds))))
    background = background_over_time(arrays, period, zone)
    if background is not None:
        figure, names = background
        figure.update_layout(title_text="Background, the last four weeks")
        text = "The mean of each bucket, to understand alarms by; the alarm itself is made of the events."
        drawings.append(Drawing(figure, text, background_height(len(names))))
    return drawings


def _alarm_table(period: ClusterPeriod, zone: str) -> Table:
    rows = tuple(
        (
            _clock(alarm.start, zone), (alarm.end - alarm.start) / timedelta(hours=1),
            None if alarm.score is None or not alarm.threshold else alarm.score / alarm.threshold,
            "; ".join(alarm.findings), "; ".join(alarm.outages),
        )
        for alarm in period.alarms[:_MOST_ROWS]
    )  # fmt: skip
    columns = (
        Column(f"began ({zone})"), Column("hours", ",.1f"), Column("score ÷ threshold", ",.1f"), Column("what was wrong"),
        Column("outage"),
    )  # fmt: skip
    return Table("Alarms", columns, rows, _newest(len(period.alarms)))


def _outage_table(period: ClusterPeriod, zone: str) -> Table:
    raised = {None: "not judged", True: "yes", False: "no"}
    rows = tuple(
        (
            _clock(outage.start, zone), _clock(outage.end, zone), NAMES[outage.kind].lower(), outage.title,
            "" if outage.kind == OutageKind.MAINTENANCE else raised[outage.raised],
            None if outage.delay_s is None else outage.delay_s / 3600,
        )
        for outage in period.outages[:_MOST_ROWS]
    )  # fmt: skip
    columns = (
        Column(f"began ({zone})"), Column("ended"), Column("kind"), Column("title"), Column("alarm raised"),
        Column("after (h)", ",.1f"),
    )  # fmt: skip
    return Table("Outages and maintenance", columns, rows, _newest(len(period.outages)))


def _model(site: Site) -> list[Block]:
    """What the registry knows of the model in use."""
    training = site.models.current_training(FAMILY)
    if training is None:
        return [Paragraph("There is no model of events yet. Train one: stormpetrel events train")]
    rows: list[tuple[Any, ...]] = []
    for model in training.models:
        known = {name: _plain(value) for name, value in model.about.items() if name in _ABOUT}
        rows += [(f"{model.name}, version {model.version}", _ABOUT[name], value) for name, value in known.items() if value]
    return [Table("The model in use", (Column("model"), Column(""), Column("")), tuple(rows))]


_ABOUT: Final = {
    "trained_until": "learnt from buckets until", "buckets": "buckets learnt from",
    "labelled_outage_buckets": "of these labelled as outage", "calm_buckets": "calm buckets that set the threshold",
    "threshold": "threshold", "alarms_per_week": "false alarms a week that it allows", "why": "why it was trained",
}  # fmt: skip


def _plain(value: object) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _newest(count: int) -> str:
    return f"The newest {_MOST_ROWS} of {count:,}." if count > _MOST_ROWS else ""


def _clock(moment: datetime | None, zone: str) -> str:
    return "goes on" if moment is None else f"{on_wall(moment, zone):%Y-%m-%d %H:%M}"


def quality_table(name: str, dataset: EventDataset) -> Table:
    """Every model and baseline with its figures."""
    rows = [(MODEL_LABELS.get(model, model), *_cells(quality)) for model, quality in dataset.models.items()]
    rows += [("  " + MODEL_LABELS.get(model, model), *_cells(quality)) for model, quality in dataset.baselines.items()]
    seeds = len(dataset.seeds)
    title = f"{name}: {seeds} seed{'s' if seeds != 1 else ''}"
    columns = (Column("model"), *(Column(heading, "") for _, heading, _, _ in _FIGURES))
    return Table(title, columns, tuple(rows), f"{_NOTE} {_chance(dataset)}".strip())


def outages_table(name: str, dataset: EventDataset) -> Table:
    """The share of outages that each model raised, by type and severity."""
    models = [*dataset.models, *dataset.baselines]
    rows = []
    for kind, severity in outage_cells(dataset):
        recalls = dataset.by_outage[kind][severity]
        number = max(recall.n for recall in recalls.values())
        shares = (recalls[model].recall if model in recalls else None for model in models)
        rows.append((kind.replace("_", " "), severity, number, *shares))
    columns = [Column("outage"), Column("severity"), Column("n", "d")]
    columns += [Column(MODEL_LABELS.get(model, model), ".2f") for model in models]
    return Table(f"{name}: outages raised, by type and severity", tuple(columns), tuple(rows), "Over all seeds together.")


def failures(name: str, dataset: EventDataset) -> list[str]:
    """A line for each model that could not be judged, with the reason."""
    lines = []
    for model, quality in (dataset.models | dataset.baselines).items():
        if quality.errors:
            label, first = MODEL_LABELS.get(model, model), next(iter(quality.errors.values()))
            lines.append(f"{name}: {label} failed with {len(quality.errors)} of {len(dataset.seeds)} seeds: {first}")
    return lines


def _chance(dataset: EventDataset) -> str:
    shares = [quality.outage_share for quality in (dataset.models | dataset.baselines).values()]
    known = [share.mean for share in shares if share.n]
    return f"By chance, the PR area would be {known[0]:.3f}." if known else ""


def _cells(quality: EventModelQuality) -> list[str]:
    return [_written(getattr(quality, name), form, spread=spread) for name, _, form, spread in _FIGURES]


def _written(figure: OverSeeds, form: str, *, spread: bool) -> str:
    if not figure.n:
        return NOTHING
    return f"{figure.mean:{form}} ± {figure.std:{form}}" if spread and figure.n > 1 else f"{figure.mean:{form}}"
