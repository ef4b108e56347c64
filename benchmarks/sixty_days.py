"""Sixty simulated days of watch, nightly and verdicts in one accelerated run, against models that were trained once.

`python -m benchmarks.sixty_days [--days 60] [--seed 30] [--no-traces] [--folder DIR]`. A site of six nodes, 14 days of history,
then day by day: the records of the day are read, the watchers of jobs and events and the budget decide what is sent, an
administrator confirms what was broken on purpose and dismisses what else was sent, and the night trains again (`run_nightly`).

What happens on the way: work grows all the time (six tenths of it are there at first); from day 20 on a new group of users comes
with an application of its own; from day 35 on applications that did well fail in part (drift); nodes go down with their jobs
on days 16 and 44. CPU windows of three nodes come every day; from day 35 on more of their time is system time.
Autoencoders are `fast`, ensembles of three, each night started from yesterday's weights; one of ten is trained once, at the end.

A model is judged on the day after its training: forecasts at submission as the live loop makes them, windows by their error and
by the bench of faults. Ends after `--days`, and goes on where it stopped if `--folder` names the folder of an earlier run.
Results by seed in benchmarks/results/sixty_days.json, the figure (of seed 30) in docs/figures/sixty-days.svg.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel.answers.alarms.acts import act_on_incident
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.config import Settings
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.jobs.changes import NEW_FOR
from stormpetrel.jobs.training import counted_failed
from stormpetrel.learn.metrics import expected_calibration_error, pr_auc, roc_auc
from stormpetrel.lifecycle.changes import Changes, changes_at, explanation
from stormpetrel.lifecycle.job_models import JOBS, FittedModels, fit_job_models, training_settings
from stormpetrel.lifecycle.nightly import run_nightly
from stormpetrel.lifecycle.retraining import forecasts_after
from stormpetrel.records.findings import Finding
from stormpetrel.records.incidents import Incident
from stormpetrel.records.jobs import ref_text
from stormpetrel.records.times import FEED_FILE, FEED_FORMAT, fixed_clock
from stormpetrel.rehearse.site.injection import Injection
from stormpetrel.rehearse.site.job_faults import choose_job_fault, put_into_jobs
from stormpetrel.simulate.cluster import ClusterSpec, simulate
from stormpetrel.simulate.writing import write_sacct
from stormpetrel.sources.slurm.sacct_text import SacctText
from stormpetrel.store.site import Site, create_site, open_site
from stormpetrel.watch.event_findings import EventFindings, GridWatch
from stormpetrel.watch.incident_keeper import IncidentKeeper
from stormpetrel.watch.job_findings import JobFindings
from stormpetrel.watch.page_budget import DailyBudgets

RESULTS: Final = Path(__file__).parent / "results" / "sixty_days.json"
FIGURE: Final = Path(__file__).parents[1] / "docs" / "figures" / "sixty-days.svg"
SEED: Final = 30  # of the figure
START: Final = datetime(2026, 1, 5, tzinfo=UTC)
DAY: Final = timedelta(days=1)
LOOK: Final = timedelta(seconds=5)  # from a decision to the look that finds it
HISTORY: Final = 14  # days before the first
NODES: Final = 6
RETRAIN_JOBS: Final = 800  # that must have ended since the last training
NEWCOMERS, DRIFT = 20, 35  # days
FIRST_CUT, SECOND_CUT = 16, 44  # days on which nodes go down with their jobs
NEW_APPLICATION: Final = "lattice-sweep"
NEW_ACCOUNT: Final = "qcd-new"
_DRIFTED: Final = 0.25  # share of the jobs of drifting applications that fail


@dataclass
class Diary:
    """What is kept from day to day, beside the site."""

    day: int = 0
    seconds: list[float] = field(default_factory=list)  # CPU of each day, its night included
    trainings: list[str] = field(default_factory=list)  # in use when each day began
    confirmed: list[int] = field(default_factory=list)
    dismissed: list[int] = field(default_factory=list)
    promoted: list[str] = field(default_factory=list)
    states: dict[str, str] = field(default_factory=dict)
    traces: list[dict[str, Any]] = field(default_factory=list)


def workload(days: int, seed: int) -> tuple[pl.DataFrame, list[Injection]]:
    """All job records of the run, and the faults that were put into them."""
    whole = HISTORY + days + 1
    rng = np.random.default_rng([seed, 60])
    base = pl.concat(
        simulate(ClusterSpec(nodes=NODES, days=whole, load=0.8, users=24, seed=seed, start=START, growth_per_year=0.0))
    )
    base = _growing(base, days, rng)
    begin = START + (HISTORY + NEWCOMERS) * DAY
    left = max(1.0, float(days - NEWCOMERS + 1))
    guests = pl.concat(
        simulate(ClusterSpec(nodes=NODES, days=left, load=0.25, users=6, seed=seed + 1000, start=begin, first_job_id=5_000_001))
    ).with_columns(
        user=pl.concat_str(pl.lit("new-"), pl.col("user")), account=pl.lit(NEW_ACCOUNT), job_name=pl.lit(NEW_APPLICATION)
    )
    jobs = _drifting(pl.concat([base, guests]), rng).sort("submit_time", "job_id")
    faults = []
    for severity, day in (("moderate", FIRST_CUT), ("severe", SECOND_CUT)):
        if day < days:
            at = START + (HISTORY + day) * DAY + timedelta(hours=9)
            chosen = choose_job_fault(jobs, "node_down", severity, at, rng)
            if chosen is not None:
                jobs, fault = put_into_jobs(jobs, chosen)
                faults.append(fault)
    return jobs, faults


def _growing(jobs: pl.DataFrame, days: int, rng: np.random.Generator) -> pl.DataFrame:
    """Six tenths of the jobs at first, all of them at the end."""
    age = (jobs["submit_time"] - START).dt.total_seconds().to_numpy() / 86_400 - HISTORY
    keep = 0.6 + 0.4 * np.clip(age / max(days, 1), 0, 1)
    return jobs.filter(pl.Series(rng.random(jobs.height) < keep))


def _drifting(jobs: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """From a day on a part of the jobs of some applications fails half-way."""
    names = sorted(set(jobs["job_name"].drop_nulls()) - {NEW_APPLICATION})
    drifting = [name for place, name in enumerate(names) if place % 3 == 0]
    late = pl.col("submit_time") >= START + (HISTORY + DRIFT) * DAY
    hit = (
        late
        & pl.col("job_name").is_in(drifting)
        & (pl.col("state") == "COMPLETED")
        & pl.Series(rng.random(jobs.height) < _DRIFTED)
    )
    end = pl.col("start_time") + (pl.col("end_time") - pl.col("start_time")) / 2
    changed = jobs.with_columns(
        state=pl.when(hit).then(pl.lit("FAILED")).otherwise("state"),
        state_raw=pl.when(hit).then(pl.lit("FAILED")).otherwise("state_raw"),
        end_time=pl.when(hit).then(end).otherwise("end_time").cast(jobs.schema["end_time"]),
    )
    elapsed = (pl.col("end_time") - pl.col("start_time")).dt.total_seconds().cast(jobs.schema["elapsed_s"])
    return changed.with_columns(elapsed_s=elapsed)


class AcceleratedSite:
    """The site of a run: one day after the other."""

    def __init__(self, folder: Path, jobs: pl.DataFrame, faults: Sequence[Injection]) -> None:
        self.folder, self.jobs, self.faults = folder, jobs, faults
        self._diary_file = folder / "diary.json"
        self.diary = Diary(**json.loads(self._diary_file.read_text())) if self._diary_file.exists() else Diary()
        self._feed = folder / "feed"
        self._feed.mkdir(parents=True, exist_ok=True)
        self.set_clock(START + HISTORY * DAY + self.diary.day * DAY)
        self.site = self._opened()
        budgets = DailyBudgets(self.site)
        self.keeper = IncidentKeeper(self.site, budgets)
        states = self.diary.states
        self._jobs = JobFindings(self.site, START, state=states.get("jobs", ""))
        self._events = EventFindings(self.site, GridWatch(self.site), state=states.get("events", ""))

    def _opened(self) -> Site:
        if (self.folder / "site").exists():
            return open_site(self.folder / "site")
        settings = Settings.model_validate(
            {
                "site": {"time_zone": "UTC", "feed": str(self._feed)},
                "watch": {"retrain_min_jobs": RETRAIN_JOBS},
                "traces": {"window_s": 100},
            }
        )
        site = create_site(self.folder / "site", settings)
        self._read(START, START + HISTORY * DAY, site)
        return site

    def set_clock(self, now: datetime) -> None:
        """Let the site live at a moment."""
        (self._feed / FEED_FILE).write_text(json.dumps({"format": FEED_FORMAT, "clock": asdict(fixed_clock(now))}))

    def _read(self, since: datetime, until: datetime, site: Site) -> None:
        ended = self.jobs.filter(pl.col("end_time").is_between(since, until, closed="left"))
        if ended.height:
            path = self.folder / "day.txt"
            write_sacct([ended], path)
            ingest_jobs(site, SacctText(path))
            path.unlink()

    def live_one_day(self) -> None:
        """Read the day, watch it, judge what was raised, and train at night."""
        began, diary, day = time.process_time(), self.diary, self.diary.day
        start = START + (HISTORY + day) * DAY
        now = start + DAY
        current = self.site.models.current_training(JOBS.name)
        diary.trainings.append(current.name if current else "")
        self.set_clock(now)
        self._read(start, now, self.site)
        self._watch(now)
        self._give_verdicts(start)
        night = run_nightly(self.site, progress=lambda _text: None)
        diary.promoted.append(night.jobs.why if night.jobs.promoted else "")
        diary.seconds.append(round(time.process_time() - began, 2))
        diary.day += 1
        self._diary_file.write_text(json.dumps(asdict(diary)))

    def _watch(self, now: datetime) -> None:
        """Look at the day once, and take each finding at the time at which a watch that looks every few seconds would have it."""
        settle = timedelta(minutes=self.site.settings.events.settle_minutes)
        findings: list[tuple[datetime, str, Finding]] = []
        for watcher, wait in ((self._jobs, LOOK), (self._events, settle + LOOK)):
            for finding in watcher.step(now):
                known = min(finding.decided_at + wait, now)
                findings.append((known, watcher.name, replace(finding, known_at=known)))
            self.diary.states[watcher.name] = watcher.state
        for known, name, finding in sorted(findings, key=lambda one: one[0]):
            self.keeper.take(name, [finding], self.diary.states[name], known)
        self.keeper.take(self._jobs.name, [], self.diary.states[self._jobs.name], now)

    def _give_verdicts(self, since: datetime) -> None:
        """Confirm what was broken on purpose; dismiss whatever else was sent."""
        for incident in self.site.incidents.list(resolved_after=since - 7 * DAY):
            if incident.id in (*self.diary.confirmed, *self.diary.dismissed):
                continue
            if any(is_about(incident, fault) for fault in self.faults):
                act_on_incident(self.site, LOCAL, incident.id, "confirm", "broken on purpose")
                self.diary.confirmed.append(incident.id)
            elif incident.paged_at:
                act_on_incident(self.site, LOCAL, incident.id, "dismiss", "nothing of ours was broken")
                self.diary.dismissed.append(incident.id)


def is_about(incident: Incident, fault: Injection) -> bool:
    """Whether an incident tells of a fault that was put in."""
    return incident.until >= fault.since and incident.since <= fault.last_chance and any(map(fault.is_about, incident.findings))


def job_quality(run: AcceleratedSite) -> list[dict[str, Any]]:
    """Each day: forecasts at submission of the models that were in use, and of those of the first night.

    Models that were put in use are fitted again as that night did, from what was known then: old ones are pruned on the way.
    """
    settings, rows, pooled = training_settings(run.site.settings), list[dict[str, Any]](), list[pl.DataFrame]()
    once: FittedModels | None = None
    nightly: FittedModels | None = None
    for day, promoted in enumerate(run.diary.promoted):
        start = START + (HISTORY + day) * DAY
        if once is not None and nightly is not None:
            known = run.jobs.filter(pl.col("submit_time") < start + DAY)
            of_night, of_first = (forecasts_after(fitted, known, cut=start, now=start + DAY) for fitted in (nightly, once))
            truth = of_night.select(counted_failed(settings))
            pooled.append(truth.with_columns(nightly=of_night["submit"], once=of_first["submit"]).drop_nulls())
            rows.append({"day": day, **_scores(pl.concat(pooled[-7:]))})
        if promoted:
            nightly = fit_job_models(run.site, until=start + DAY)
            once = once or nightly
    return rows


def _scores(frame: pl.DataFrame) -> dict[str, Any]:
    """Figures of a week: PR and ROC area, calibration error, of both."""
    truth = frame["failed"].to_numpy().astype(bool)
    answer: dict[str, Any] = {"jobs": frame.height, "failed_share": round(float(truth.mean()), 4) if truth.size else None}
    for who in ("nightly", "once"):
        risk = frame[who].to_numpy()
        area, roc = (pr_auc(truth, risk), roc_auc(truth, risk)) if truth.size else (None, None)
        answer[who] = {
            "pr_auc": None if area is None else round(area, 4),
            "roc_auc": None if roc is None else round(roc, 4),
            "ece": round(expected_calibration_error(truth, risk), 4) if truth.size else None,
        }
    return answer


def pages(run: AcceleratedSite) -> list[float]:
    """Pages of the seven days up to each day."""
    sent = [moment for incident in run.site.incidents.list() for moment in incident.paged_at]
    ends = [START + (HISTORY + day + 1) * DAY for day in range(run.diary.day)]
    return [sum(end - 7 * DAY < moment <= end for moment in sent) for end in ends]


def told_apart(run: AcceleratedSite) -> dict[str, Any]:
    """What is new at the end of each week, and which incidents are explained by a change rather than by trouble."""
    weeks: list[dict[str, Any]] = []
    for day in range(6, run.diary.day, 7):
        changes = changes_at(run.site, START + (HISTORY + day + 1) * DAY)
        weeks.append({"day": day + 1, **_changes(changes)})
    incidents = run.site.incidents.list()
    explained = {one.id: text for one in incidents if (text := explanation(run.site, one))}
    about_faults = [one.id for one in incidents if any(is_about(one, fault) for fault in run.faults)]
    guests = {*run.jobs.filter(pl.col("account") == NEW_ACCOUNT).select(ref_text())["ref"]}
    came = START + (HISTORY + NEWCOMERS) * DAY
    of_guests = [one.id for one in incidents if came <= one.raised_at < came + NEW_FOR and _is_of(one, guests)]
    return {
        "weeks": weeks,
        "incidents": len(incidents),
        "explained_by_change": explained,
        "of_the_new_group": of_guests,
        "of_these_explained": [number for number in of_guests if number in explained],
        "faults_explained_away": [number for number in about_faults if number in explained],
    }


def _is_of(incident: Incident, jobs: set[str]) -> bool:
    """Whether most jobs that an incident rests on are among these."""
    lost = {ref for finding in incident.findings for ref in finding.jobs}
    return bool(lost) and 2 * len(lost & jobs) >= len(lost)


def _changes(changes: Changes) -> dict[str, Any]:
    load = changes.load
    return {
        "new": [
            {"by": one.by, "name": one.name, "share_of_load": round(one.share_of_load, 3), "jobs": one.jobs}
            for one in changes.newcomers[:6]
        ],
        "load": None if load is None else {"ratio": round(load.ratio, 3), "low": round(load.low, 3), "high": round(load.high, 3)},
    }


def drawn(answer: dict[str, Any]) -> str:
    """The figure: PR area of the last week by day, and pages a week against the budget."""
    days = answer["days"]
    quality = answer["jobs"]
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 330" font-family="sans-serif" font-size="12" fill="#777">']
    left: list[tuple[str, str, list[tuple[float, float | None]]]] = [
        ("nightly", "#0072B2", [(row["day"] + 1, row["nightly"]["pr_auc"]) for row in quality]),
        ("trained once", "#D55E00", [(row["day"] + 1, row["once"]["pr_auc"]) for row in quality]),
    ]
    parts += _panel(60, "PR area of job forecasts, last 7 days", left, days, (0.0, 1.0), 5)
    most = max([answer["budget_a_week"] * 3, *answer["pages_a_week"], 1])
    sent: list[tuple[str, str, list[tuple[float, float | None]]]] = [
        ("pages of the last 7 days", "#0072B2", [(day + 1, value) for day, value in enumerate(answer["pages_a_week"])])
    ]
    sent.append(("budget", "#999999", [(1, answer["budget_a_week"]), (days, answer["budget_a_week"])]))
    parts += _panel(440, "Pages a week", sent, days, (0.0, float(most)), 4)
    marks = ((FIRST_CUT, "nodes down"), (NEWCOMERS, "new users"), (DRIFT, "drift"), (SECOND_CUT, "nodes down"))
    for left_px in (60, 440):
        for day, text in marks:
            if day < days:
                x = left_px + 280 * day / days
                parts.append(f'<path d="M{x:.0f} 40v220" stroke="#777" stroke-opacity=".5" stroke-dasharray="3 3"/>')
                parts.append(f'<text x="{x + 3:.0f}" y="52" font-size="10">{text}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _panel(
    left: int, title: str, lines: Sequence[tuple[str, str, list[tuple[float, float | None]]]], days: int,
    span: tuple[float, float], steps: int,
) -> list[str]:  # fmt: skip
    low, high = span
    parts = [f'<text x="{left}" y="18" font-size="14">{title}</text>']
    for step in range(steps + 1):
        value = low + (high - low) * step / steps
        y = 260 - 220 * step / steps
        parts.append(f'<path d="M{left} {y:.0f}h280" stroke="#777" stroke-opacity=".3"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.0f}" text-anchor="end">{value:.2g}</text>')
    parts += [
        f'<text x="{left + 280 * day / days:.0f}" y="276" text-anchor="middle">{day}</text>' for day in range(0, days + 1, 10)
    ]
    parts.append(f'<text x="{left + 140}" y="294" text-anchor="middle">day</text>')
    for place, (name, colour, points) in enumerate(lines):
        path = " ".join(
            f"{left + 280 * day / days:.1f},{260 - 220 * (value - low) / (high - low):.1f}"
            for day, value in points
            if value is not None
        )
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        x = left + 150 * place
        parts.append(f'<path d="M{x} 316h20" stroke="{colour}" stroke-width="2"/><text x="{x + 26}" y="320">{name}</text>')
    return parts


def summary(run: AcceleratedSite, traces: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Everything that the run came to."""
    quality = job_quality(run)
    late = [row for row in quality if row["day"] >= DRIFT + 7]
    return {
        "days": run.diary.day,
        "jobs": quality,
        "pages_a_week": pages(run),
        "budget_a_week": run.site.settings.alarms.pages_per_week,
        "confirmed": len(run.diary.confirmed),
        "dismissed": len(run.diary.dismissed),
        "trainings_in_use": len(set(run.diary.trainings) - {""}),
        "promotions": [{"day": day + 1, "why": why} for day, why in enumerate(run.diary.promoted) if why],
        "after_drift": {
            who: {key: _mean([row[who][key] for row in late]) for key in ("pr_auc", "roc_auc", "ece")}
            for who in ("nightly", "once")
        },
        "changes": told_apart(run),
        "traces": list(traces),
        "cpu_s_a_day": {"median": float(np.median(run.diary.seconds)), "most": max(run.diary.seconds)},
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(float(np.mean(known)), 4) if known else None


def main() -> None:
    """Live the days, print the figures, write them down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=60)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--folder", type=Path, help="where the site is kept; a later run goes on from there")
    parser.add_argument("--most-minutes", type=float, default=40.0, help="of wall time; what is not reached then is left out")
    parser.add_argument("--traces", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    began = time.monotonic()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="sixty-days-"))
    try:
        jobs, faults = workload(options.days, options.seed)
        run = AcceleratedSite(folder, jobs, faults)
        while run.diary.day < options.days and time.monotonic() - began < options.most_minutes * 60:
            run.live_one_day()
            print(f"day {run.diary.day}: {run.diary.seconds[-1]:.1f} s of CPU; {run.diary.promoted[-1] or 'kept'}", flush=True)
        traces: list[dict[str, Any]] = []
        if options.traces:
            from benchmarks.sixty_days_traces import live_with_traces

            traces = live_with_traces(run.diary.day, DRIFT, options.seed)
        kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        answer = kept[str(options.seed)] = {"seed": options.seed, **summary(run, traces)}
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
        if options.seed == SEED:
            FIGURE.write_text(drawn(answer))
        run.site.close()
        shown = ("days", "confirmed", "dismissed", "trainings_in_use", "after_drift", "cpu_s_a_day")
        print(json.dumps({key: answer[key] for key in shown}, indent=1))
    finally:
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
