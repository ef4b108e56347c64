"""How many flagged jobs get a prescription or an experiment, and what a week comes to if the advice is taken.

python -m benchmarks.jobs_advice --site DEMO [--json]     the jobs of a site that wait or run and are flagged
python -m benchmarks.jobs_advice [--seeds 31,32,33]       simulated weeks; writes benchmarks/results/jobs_advice.json

A simulated site runs for six weeks; models of failures, needs and waits are trained on them. Every flagged submission of the
seventh week gets the advice that was known at the latest full six hours before it. The week is then run again by the same
scheduler and the same users, with each first submission that was advised to ask for more or less memory or time doing so. Where
a short test was advised, one is submitted before the others of that burst; where it meets the error, the user mends it as often
as the simulator's users do after a failure, and the rest of the burst is submitted mended. Resubmissions stay as they were.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

import polars as pl

from stormpetrel.answers.jobs.outlook import site_outlook
from stormpetrel.jobs.advice.advice import Advice, advise
from stormpetrel.jobs.advice.kinds import find_kind
from stormpetrel.jobs.advice.outlook import JobOutlook
from stormpetrel.jobs.advice.prescription import Prescribed, prescribe
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.needs.training import train_outlook
from stormpetrel.jobs.predictor import JobPredictor, known_by
from stormpetrel.jobs.training import TrainingSettings, train
from stormpetrel.lifecycle.job_models import load_predictor
from stormpetrel.records.states import DEFAULT_FAILURE_STATES, UNFINISHED
from stormpetrel.simulate.arrivals import NEVER, Submission
from stormpetrel.simulate.cluster import ended_jobs
from stormpetrel.simulate.frames import FrameMaker
from stormpetrel.simulate.population import Population, make_population
from stormpetrel.simulate.scheduler import EndedJob
from stormpetrel.simulate.spec import DAY_S, ClusterSpec
from stormpetrel.store.site import open_site

RESULT: Final = Path(__file__).parent / "results" / "jobs_advice.json"
SEEDS: Final = (31, 32, 33)
LEARNT_DAYS: Final = 42
WEEK_DAYS: Final = 7
NODES: Final = 12
STEP: Final = timedelta(hours=6)
_MIB: Final = 1 << 20
_TEST: Final = 9  # the attempt that marks a test: nobody submits it again
_FAILURES: Final = frozenset(state.value for state in DEFAULT_FAILURE_STATES)
_LATER: Final = ("start_time", "end_time", "elapsed_s", "max_rss_bytes", "cpus", "nodes", "mem_bytes", "cpu_time_s")


@dataclass(frozen=True, slots=True)
class AdvisedJob:
    """A flagged job and what it was advised."""

    job: dict[str, Any]
    pieces: list[Advice]
    notes: list[str]

    @property
    def answer(self) -> str:
        """What sort of answer it got: a change, an experiment, tight, look elsewhere, or nothing."""
        changes = [piece for piece in self.pieces if piece.proposed is not None]
        if any(not piece.experiment and not piece.saves for piece in changes):
            return "prescription"
        if any(piece.experiment for piece in changes):
            return "experiment"
        if changes:
            return "saving only"
        if self.pieces:
            return "no change: " + ("script" if "script" in self.pieces[0].sentence else "not known")
        return "tight" if self.notes else "nothing"


def advised(
    jobs: pl.DataFrame, past: pl.DataFrame, predictor: JobPredictor, outlook: JobOutlook, now: datetime
) -> list[AdvisedJob]:
    """What each of these jobs would be advised if it were submitted now and is flagged."""
    requests = jobs.with_columns(
        *(pl.lit(None, dtype=jobs.schema[name]).alias(name) for name in _LATER),
        submit_time=pl.lit(now).cast(jobs.schema["submit_time"]),
        state=pl.lit("PENDING"),
    )
    answers = []
    for row, verdict in enumerate(predictor.judge_many(requests, Moment.SUBMIT, now, explain=False)):
        if not verdict.flagged:
            continue
        job = requests[row]
        kind = find_kind(job, past, now=now)
        advice = advise(job, past, now=now, risk_of=lambda each: predictor.risk(each, Moment.SUBMIT, now), kind=kind)
        pieces, notes = prescribe(job, outlook, Prescribed(advice, lambda: True, now, kind))
        answers.append(AdvisedJob(jobs.row(row, named=True), pieces, notes))
    return answers


def shares(answers: list[AdvisedJob]) -> dict[str, Any]:
    """How many were answered how, and the share that got a prescription or an experiment."""
    counts = Counter(each.answer for each in answers)
    useful = counts["prescription"] + counts["experiment"]
    return {
        "flagged": len(answers),
        "helped_share": useful / len(answers) if answers else None,
        "answers": dict(counts.most_common()),
    }


def of_site(folder: Path) -> dict[str, Any]:
    """The jobs of a site that wait or run and are flagged, as the page shows them."""
    with open_site(folder) as site:
        now = site.now()
        past = site.jobs.read_jobs(until=now).collect()
        predictor, outlook = load_predictor(site, now=now, moments=[Moment.SUBMIT]), site_outlook(site, now)
        assert outlook is not None, "this site has no models of needs and waits: stormpetrel jobs train"
        open_jobs = past.filter(pl.col("state").is_in([str(state) for state in UNFINISHED]))
        return shares(advised(open_jobs, past, predictor, outlook, now)) | {"open": open_jobs.height, "at": now.isoformat()}


def key_of(job: Submission) -> tuple[int, ...]:
    """What tells a first submission from all others."""
    return job.submit_s, job.user, job.application, job.campaign, job.array_task


def burst_of(job: Submission) -> tuple[int, ...]:
    """What a user submits of one work within an hour."""
    return job.user, job.application, job.campaign, job.submit_s // 3600


class Week:
    """One simulated site, its advice for the last week, and that week again with the advice taken."""

    def __init__(self, seed: int) -> None:
        self.spec = ClusterSpec(nodes=NODES, days=LEARNT_DAYS + WEEK_DAYS, seed=seed)
        self.people: Population = make_population(self.spec, seed)
        self.ended = list(ended_jobs(self.spec, self.people))
        self.jobs = FrameMaker(self.spec, self.people).frame(self.ended)
        self.first = self.spec.start + timedelta(days=LEARNT_DAYS)

    def advise_flagged(self) -> list[AdvisedJob]:
        """What the flagged submissions of the week were advised."""
        known = known_by(self.jobs, self.first)
        models, labelled = train(known, TrainingSettings(), [Moment.SUBMIT])
        trained = train_outlook(known, now=self.first.timestamp())
        answers: list[AdvisedJob] = []
        for step in range(WEEK_DAYS * 24 // 6):
            now = self.first + step * STEP
            rows = self.jobs.filter(pl.col("submit_time").is_between(now, now + STEP, closed="left"))
            past = known_by(self.jobs, now)
            predictor = JobPredictor(models, labelled.profiles, past, now=now)
            answers += advised(rows, past, predictor, JobOutlook(trained.needs, trained.wait, past, now=now), now)
        return answers

    def tests(self, answers: list[AdvisedJob]) -> tuple[list[Submission], set[tuple[int, ...]]]:
        """The short tests that were advised, one for each burst, in time order; and the bursts that were mended after one."""
        by_id = {job.raw_id: job.submission for job in self.ended}
        tests, mended = {}, set()
        for answer in answers:
            piece = next((each for each in answer.pieces if each.experiment), None)
            job = by_id[answer.job["job_id_raw"]]
            if piece is None or piece.column != "time_limit_s" or not _is_short_test(piece) or burst_of(job) in tests:
                continue
            limit_s = int(float(piece.proposed or 0))
            tests[burst_of(job)] = job._replace(limit_s=limit_s, array_task=0, array_size=0, attempt=_TEST)
            skill = self.people.users[job.user].skill
            if job.crash_s <= limit_s and Random(f"{self.spec.seed}/tests/{burst_of(job)}").random() < 0.35 + 0.6 * skill:
                mended.add(burst_of(job))
        return sorted(tests.values()), mended

    def again(self, answers: list[AdvisedJob]) -> list[EndedJob]:
        """All jobs of the site, run again with the advice taken."""
        by_id = {(job.raw_id): job.submission for job in self.ended}
        changes = {key_of(by_id[each.job["job_id_raw"]]): _taken(each) for each in answers if _taken(each)}
        tests, mended = self.tests(answers)
        most_mib = self.spec.mem_per_node_mib

        def change(job: Submission) -> Submission:
            if job.attempt == 0 and burst_of(job) in mended:
                job = job._replace(crash_s=NEVER)
            new = changes.get(key_of(job)) if job.attempt == 0 else None
            if not new:
                return job
            memory = new.get("req_mem_bytes")
            mem_mib = job.mem_mib if memory is None else min(most_mib, int(memory) // max(1, job.nodes) // _MIB)
            return job._replace(mem_mib=mem_mib, limit_s=int(new.get("time_limit_s", job.limit_s)))

        return list(ended_jobs(self.spec, self.people, more=tests, change=change))


def _taken(answer: AdvisedJob) -> dict[str, Any]:
    """The changes of memory and time that a user takes up: the first of each that is no experiment."""
    taken: dict[str, Any] = {}
    for piece in answer.pieces:
        if piece.column in ("req_mem_bytes", "time_limit_s") and piece.proposed is not None and not piece.experiment:
            taken.setdefault(piece.column, piece.proposed)
    return taken


def figures(ended: list[EndedJob], keys: set[tuple[int, ...]], spec: ClusterSpec) -> dict[str, Any]:
    """Failures and waste of the first submissions with these keys."""
    attempts = (0, _TEST)
    chosen = [job for job in ended if job.submission.attempt in attempts and key_of(job.submission) in keys and job.start_s >= 0]
    tests = sum(job.submission.attempt == _TEST for job in chosen)
    failed = [job for job in chosen if job.outcome.state.value in _FAILURES and not _is_test_that_held(job)]
    run_s = {id(job): job.end_s - job.start_s for job in chosen}
    used = sum(min(job.submission.need_mib, job.submission.mem_mib) * run_s[id(job)] for job in chosen)
    asked = sum(job.submission.mem_mib * run_s[id(job)] for job in chosen)
    lost = sum((job.submission.nodes * spec.cores_per_node or job.submission.cores) * run_s[id(job)] for job in failed) / 3600
    return {
        "jobs": len(chosen),
        "tests": tests,
        "failure_rate": len(failed) / (len(chosen) - tests)
        if chosen
        else None,  # a test that fails counts, one that holds is none
        "failures": dict(Counter(job.outcome.state.value for job in failed).most_common()),
        "memory_waste_ratio": (asked - used) / used if used else None,
        "core_hours_lost": round(lost, 1),
        "median_wait_s": float(pl.Series([job.start_s - job.submission.submit_s for job in chosen]).median() or 0.0)  # type: ignore[arg-type]
        if chosen
        else None,
    }


def _is_short_test(piece: Advice) -> bool:
    return isinstance(piece.proposed, float) and isinstance(piece.now, float) and piece.proposed < piece.now


def _is_test_that_held(job: EndedJob) -> bool:
    """Whether a test ran until its short limit without an error: that is what it is for."""
    return job.submission.attempt == _TEST and job.outcome.state.value == "TIMEOUT"


def of_seed(seed: int) -> dict[str, Any]:
    """One simulated site: who was helped, and the week before and after."""
    week = Week(seed)
    answers = week.advise_flagged()
    by_id = {job.raw_id: job.submission for job in week.ended}
    since_s = LEARNT_DAYS * DAY_S
    everyone = {key_of(job.submission) for job in week.ended if job.submission.submit_s >= since_s}
    tested = {burst_of(job) for job in week.tests(answers)[0]}
    followed = {key_of(by_id[each.job["job_id_raw"]]) for each in answers if _taken(each)}
    followed |= {
        key for key, burst in ((key_of(job), burst_of(job)) for job in by_id.values() if job.attempt == 0) if burst in tested
    }
    again = week.again(answers)
    return {
        **shares(answers),
        "followed": len(followed),
        "week": {"before": figures(week.ended, everyone, week.spec), "after": figures(again, everyone, week.spec)},
        "followers": {"before": figures(week.ended, followed, week.spec), "after": figures(again, followed, week.spec)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", type=Path, help="a site, such as the demo's; without it simulated weeks")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    results: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}
    for name in ["demo"] if given.site else given.seeds.split(","):
        began = time.monotonic()
        answer = of_site(given.site) if given.site else of_seed(int(name))
        results[name if given.site else f"seed_{name}"] = answer
        given.out.write_text(json.dumps(results, indent=1) + "\n")
        print(
            f"{name}: {time.monotonic() - began:.0f} s, load {os.getloadavg()[0]:.1f}\n{json.dumps(answer, indent=1)}", flush=True
        )


if __name__ == "__main__":
    main()
