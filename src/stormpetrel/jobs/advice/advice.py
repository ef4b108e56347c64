"""Advice: the smallest change of a request that past jobs support, with its evidence.

one-row job frame + past jobs -> `advise` -> at most three `Advice`, best first; a job that ran out -> `next_request` -> `Advice`.

How useful people find each sort of advice: what they reject is shown less.

opinions -> AdviceUsefulness.chosen(pieces) -> the pieces to show, the rest counted. Opinions are kept as sentences; those that
differ in their figures and names of partitions only are one sort. Each person has one voice per sort, the mean of his opinions:
nobody hides advice from others by clicking. Shares are drawn towards 0.75, as if four people had spoken: three useful, one not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from itertools import takewhile
from math import ceil
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.errors import UsageError
from stormpetrel.jobs.advice import kinds
from stormpetrel.jobs.advice.kinds import Kind, Need, Row, better_places, floats, same_nodes, same_size, upper
from stormpetrel.jobs.advice.text import (
    MEMORY,
    TIME,
    Resource,
    clean,
    format_duration,
    format_exit,
    format_gpus,
    format_job_count,
    format_share,
    last_jobs_text,
    short_text,
    tried_text,
)
from stormpetrel.jobs.outcomes import COMPLETED
from stormpetrel.records.jobs import KEY
from stormpetrel.records.units import format_memory

RiskOf = Callable[[pl.DataFrame], npt.NDArray[np.float64]]
MOST: Final = 3
_MEMORY_HEAD_ROOM: Final = 1.15
_TIME_HEAD_ROOM: Final = 1.2
_SAVING_HEAD_ROOM: Final = 1.25
_TIME_SAVING_HEAD_ROOM: Final = 1.5  # a run time varies more than the memory of the same work
_FEWEST_FOR_SAVING: Final = 10  # completed jobs behind a smaller request
_LIMIT_TOO_LONG: Final = 4.0  # times the longest run
_WITHIN_SECONDS: Final = 30.0
_FEWEST_BROKEN: Final = 3
_IDLE_GPU: Final = 0.01  # busy GPUs in a job, below which it used none
_SHORTEST_FOR_CPU_S: Final = 60.0  # shorter runs say little about how well their CPUs were used
PRIOR_SHARE: Final = 0.75
PRIOR_VOICES: Final = 4.0
LAST_BELOW: Final = 0.5  # a sort that fewer find useful comes after the others
HIDDEN_BELOW: Final = 0.35  # and below this is not shown, unless somebody ran out of something
_FIGURE: Final = re.compile(r"\d[\d.,:-]*\s?(?:[KMGT]i?B|min|h|s|d|days?|hours?|cores?|CPUs?)?\b(?:\s\d+\s?(?:min|h|s))?")
_PLACE: Final = re.compile(r"\b(partition|queue|QOS|qos)\s+\S+|\binstead of \S+?(?=[:;.]|$)")


@dataclass(frozen=True, slots=True)
class Advice:
    """One change of a request: `column` from `now` to `proposed`, as a sentence, with the past jobs that speak for it.

    `column` is None where no change of the request helps, `proposed` is None where past jobs support no value. `support` counts
    the past jobs behind it. `saves` marks a request that is larger than need be. Risks are from 0 to 1, None without a model.
    """

    column: str | None
    now: int | float | str | None
    proposed: int | float | str | None
    sentence: str
    evidence: tuple[str, ...]
    support: int
    kind: str
    saves: bool = False
    risk_before: float | None = None
    risk_after: float | None = None
    experiment: bool = False  # one run that tells what others need
    wait_before_s: float | None = None  # p50 of the wait as requested, and with the change
    wait_after_s: float | None = None
    core_hours_saved: float | None = None


def advise(
    request: pl.DataFrame,
    past: pl.DataFrame | pl.LazyFrame,
    *,
    now: datetime,
    risk_of: RiskOf | None = None,
    kind: Kind | None = None,
) -> list[Advice]:
    """At most three pieces of advice on a request, best first; empty where past jobs speak for it as it is.

    Only jobs that ended before `now` count. With `risk_of`, a change that does not lower the risk is offered only if it saves, or
    if past jobs show that the memory or time requested is too little: what they needed is a fact, the risk a forecast. `kind`
    saves looking for the comparable ones again.
    """
    _check(request, now)
    kind = kind or kinds.find_kind(request, past, now=now)
    return advise_from(kind, lambda: kinds.longest_limits(past, now=now), request, risk_of=risk_of)


def advise_from(
    kind: Kind, limits_of: Callable[[], dict[str, float]], request: pl.DataFrame, *, risk_of: RiskOf | None = None
) -> list[Advice]:
    """The same from the comparable jobs, and the longest time limit (seconds) of each partition, which not all advice needs."""
    row = kinds.prepared_request(request)
    if not kind.known:
        return [_too_little(kind, row)]
    broken = _broken_script(kind)
    if broken is not None:
        return [broken]
    limits = limits_of()
    offers = [
        _memory(kind, row),
        _time(kind, row, limits),
        _place(kind, row, limits),
        _fewer_cpus(kind, row),
        _fewer_gpus(kind, row),
    ]
    judged = _with_risk([offer for offer in offers if offer is not None], request, risk_of)
    best_of_column = {offer.column: offer for offer in sorted(judged, key=_rank, reverse=True)}
    return sorted(best_of_column.values(), key=_rank)[:MOST]


def next_request(ended_job: pl.DataFrame, past: pl.DataFrame | pl.LazyFrame, *, now: datetime) -> Advice | None:
    """What to ask for after a job ran out of memory or time; None if it ended otherwise.

    Without past jobs that completed with more, the answer is a rule of thumb, and says so.
    """
    _check(ended_job, now)
    this = kinds.prepared(ended_job)
    shortage = this["outcome"].first()
    if shortage not in ("OUT_OF_MEMORY", "TIMEOUT"):
        return None
    kind = kinds.find_kind(ended_job, past, now=now)
    known = pl.concat([this, kind.jobs]).unique(KEY, keep="first", maintain_order=True)
    kind = replace(kind, jobs=known)
    row = kinds.prepared_request(ended_job)
    if shortage == "TIMEOUT":
        requested = _positive(row["time_limit_s"]) or _positive(row["elapsed_s"])
        limits = kinds.longest_limits(past, now=now)
        longest = limits.get(str(row["partition"]))
        advice = _after_shortage(TIME, kind, kinds.time_need(known, _TIME_HEAD_ROOM), requested, factor=1.5, most=longest)
        return _within_partition(advice, kind, row, limits)
    requested = _positive(row["asked_mem"]) or _positive(row["max_rss_bytes"])
    need = kinds.memory_need(same_nodes(known, row), _MEMORY_HEAD_ROOM)
    advice = _after_shortage(MEMORY, kind, need, requested, factor=2.0)
    if row["state"] != "OUT_OF_MEMORY":
        disguised = "it looks like an out-of-memory kill that was recorded as FAILED: its memory was full when it was killed"
        advice = replace(advice, evidence=(disguised, *advice.evidence))
    return advice


def _memory(kind: Kind, row: Row) -> Advice | None:
    """More memory where jobs of this kind ran out of it, less where none came near it."""
    requested = _positive(row["asked_mem"])
    jobs = same_nodes(kind.jobs, row)
    if requested is None or jobs.is_empty():
        return None
    more = _more(MEMORY, kind, kinds.memory_need(jobs, _MEMORY_HEAD_ROOM), requested)
    if more is not None:
        return more
    need = kinds.memory_need(same_size(jobs, row), 1.0)
    # What a job had at most: every task as large as the largest, unless it completed with less.
    had = np.fmin(need.asked, need.used * (_positive(row["size_cpus"]) or np.nan))
    as_much = need.asked >= kinds.ABOUT * requested
    known = had[need.completed & as_much & ~np.isnan(need.used) & ~np.isnan(had)]
    if known.size < _FEWEST_FOR_SAVING or (kind.jobs["outcome"] == "OUT_OF_MEMORY").any():
        return None
    enough = max(_SAVING_HEAD_ROOM * upper(known), 1.1 * float(np.nanmax(had[as_much])))
    used = float(np.nanmax(need.used[as_much]))
    jobs_like_it = format_share(kind, known.size, need.asked.size)
    fact = f"{jobs_like_it} asked for about as much and completed, with at most {format_memory(used)} in the largest task"
    return _less(MEMORY, kind, requested, enough, fact, known.size)


def _time(kind: Kind, row: Row, limits: dict[str, float]) -> Advice | None:
    """A longer limit where jobs of this kind ran into theirs, a shorter one where none came near it."""
    requested = _positive(row["time_limit_s"])
    if requested is None:
        return None
    more = _more(TIME, kind, kinds.time_need(kind.jobs, _TIME_HEAD_ROOM), requested)
    if more is not None:
        return _within_partition(more, kind, row, limits)
    need = kinds.time_need(same_size(kind.jobs, row), 1.0)
    as_long = (need.asked >= kinds.ABOUT * requested) & ~np.isnan(need.used)
    runs, completed = need.used[as_long], int(np.sum(need.completed & as_long))
    if completed < _FEWEST_FOR_SAVING or (kind.jobs["outcome"] == "TIMEOUT").any() or requested <= _LIMIT_TOO_LONG * runs.max():
        return None
    share = format_share(kind, runs.size, need.asked.size)
    fact = f"{share} asked for about as much and ran for at most {format_duration(runs.max())}"
    return _less(TIME, kind, requested, _TIME_SAVING_HEAD_ROOM * float(runs.max()), fact, completed)


def _more(resource: Resource, kind: Kind, need: Need, requested: float) -> Advice | None:
    """More of a resource, if enough jobs needed more; without a value if none of them has shown which one does."""
    if not need.too_little(requested):
        return None
    short = int(need.needed_more(requested).sum())
    text = resource.words
    fact = short_text(resource, kind, need, requested)
    value = need.smallest_enough(requested, resource.ladder, resource.step)
    now = _as_column(resource, requested)
    if value is None:
        sentence = (
            f"{text(requested)} of {resource.what} is likely too little, but past jobs of this kind do not show what is enough."
        )
        hint = f"too few have completed with more than {text(max(requested, need.wall))}"
        return Advice(resource.column, now, None, sentence, (fact, hint), short, kind.name)
    tried = need.tried(requested)
    sentence = f"Ask for {text(value)} of {resource.what} instead of {text(requested)}."
    evidence = (fact, tried_text(resource, need, requested, value))
    return Advice(resource.column, now, _as_column(resource, value), sentence, evidence, int(tried.sum()), kind.name)


def _less(resource: Resource, kind: Kind, requested: float, enough: float, fact: str, support: int) -> Advice | None:
    """Less of a resource, if half of the request or less would do; other applications cannot tell."""
    value = next((step for step in resource.ladder if step >= enough), None)
    if value is None or value > requested / 2 or kind.name == kinds.ANY_APPLICATION:
        return None
    text = resource.words
    sentence = f"{text(value)} of {resource.what} would do instead of {text(requested)}; the job may start sooner."
    now, proposed = _as_column(resource, requested), _as_column(resource, value)
    return Advice(resource.column, now, proposed, sentence, (fact,), support, kind.name, saves=True)


def _after_shortage(
    resource: Resource, kind: Kind, need: Need, requested: float | None, *, factor: float, most: float | None = None
) -> Advice:
    """The next request after a shortage: from past jobs where they tell, else by rule of thumb."""
    if requested is None:
        sentence = f"The job {resource.shortage}, but its record does not say how much it had: ask for twice as much."
        return Advice(resource.column, None, None, sentence, ("this is a rule of thumb",), 1, kind.name)
    text = resource.words
    fact = f"the job {resource.shortage} with {text(requested)}"
    value = need.smallest_enough(requested, resource.ladder, resource.step)
    if value is not None:
        evidence = (fact, tried_text(resource, need, requested, value))
        support = int(need.tried(requested).sum())
    else:
        wall = max(requested, need.wall)
        value = _rule_of_thumb(resource, wall, factor, most)
        thumb = f"too few past jobs of this kind completed with more than {text(wall)}: this is a rule of thumb, not evidence"
        evidence, support = (fact, thumb), int(need.ran_out.sum())
    sentence = f"Ask for {text(value)} of {resource.what} next time."
    now, proposed = _as_column(resource, requested), _as_column(resource, value)
    return Advice(resource.column, now, proposed, sentence, evidence, support, kind.name)


def _rule_of_thumb(resource: Resource, wall: float, factor: float, most: float | None) -> float:
    """A friendly value of at least `factor` times what was too little, within what the partition gives if that is more."""
    value = next((step for step in resource.ladder if step >= factor * wall), 2.0 * wall)
    return min(value, most) if most is not None and most > wall else value


def _within_partition(advice: Advice, kind: Kind, row: Row, limits: dict[str, float]) -> Advice:
    """Advice on a time limit that the partition allows, as far as past jobs show; else where to go instead."""
    longest = limits.get(str(row["partition"]))
    if longest is None or not isinstance(advice.proposed, float) or advice.proposed <= longest:
        return advice
    here = clean(row["partition"])
    fact = f"no job on partition {here} has ever asked for more than {format_duration(longest)}"
    used = kind.jobs["partition"].drop_nulls().unique(maintain_order=True).to_list()
    elsewhere = [name for name in used if limits.get(name, 0.0) >= advice.proposed]
    needs = f"Jobs of this kind need about {format_duration(advice.proposed)}, which partition {here} seems not to give"
    if elsewhere:
        sentence = f"{needs}: use partition {clean(elsewhere[0])} with a limit of {format_duration(advice.proposed)}."
        changed = replace(advice, column="partition", now=str(row["partition"]), proposed=elsewhere[0], sentence=sentence)
        return replace(changed, evidence=(*advice.evidence, fact))
    sentence = f"{needs}: let the job save its state (checkpoint) and go on in a second job."
    return replace(advice, proposed=None, sentence=sentence, evidence=(*advice.evidence, fact))


def _place(kind: Kind, row: Row, limits: dict[str, float]) -> Advice | None:
    """Another partition or QOS, where jobs of this kind fail much less there than here and chance does not explain it."""
    gpus = _positive(row["req_gpus"]) or 0
    ends = zip(kind.jobs["req_gpus"].to_list(), kind.jobs["outcome"].to_list(), strict=True)
    judged = kind.jobs[[at for at, (has, end) in enumerate(ends) if (has or 0) == gpus and end not in (None, "CANCELLED")]]
    offers = [_better_place(column, kind, judged, row, limits) for column in ("partition", "qos")]
    return next((offer for offer in offers if offer is not None), None)


def _better_place(column: str, kind: Kind, jobs: pl.DataFrame, row: Row, limits: dict[str, float]) -> Advice | None:
    requested = _positive(row["time_limit_s"]) or 0.0
    for place in better_places(jobs, column, row[column]):
        if column == "partition" and limits.get(place.name, 0.0) < requested:
            continue
        place_kind = "QOS" if column == "qos" else "partition"
        here, there = clean(row[column]), clean(place.name)
        sentence = f"Use {place_kind} {there} instead of {here}: jobs of this kind fail less there."
        evidence = (
            f"{place.failed_here} of {format_job_count(place.jobs_here)} of this kind failed on {here}",
            f"{place.failed_there} of {format_job_count(place.jobs_there)} of this kind failed on {there}",
        )
        return Advice(column, str(row[column]), place.name, sentence, evidence, place.jobs_there, kind.name)
    return None


def _fewer_cpus(kind: Kind, row: Row) -> Advice | None:
    """Fewer CPUs, where jobs of this kind leave half of them idle and some with fewer completed."""
    requested = _positive(row["size_cpus"])
    relatives = same_nodes(kind.relatives, row)
    if requested is None or relatives.is_empty():
        return None
    elapsed_s, cpu_time_s, cpus = (floats(relatives[name]) for name in ("elapsed_s", "cpu_time_s", "size_cpus"))
    completed = (relatives["outcome"] == COMPLETED).to_numpy().astype(np.bool_)
    long_runs = completed & (elapsed_s >= _SHORTEST_FOR_CPU_S) & ~np.isnan(cpu_time_s)
    used = (cpu_time_s / elapsed_s)[long_runs & (cpus == requested)]
    if used.size < _FEWEST_FOR_SAVING or upper(used) > requested / 2:
        return None
    done = (pl.col("outcome") == COMPLETED).sum()
    sizes = relatives.group_by("size_cpus").agg(done=done, share=done / pl.len())
    share_now = sizes.filter(pl.col("size_cpus") == requested)["share"].item()
    fits = pl.col("size_cpus").is_between(upper(used), requested / 2)
    proven = (pl.col("done") >= _FEWEST_BROKEN) & (pl.col("share") >= share_now)
    better = sizes.filter(fits & proven).sort("size_cpus")
    if better.is_empty():
        return None
    fewer, jobs, _ = better.row(0)
    few = "1 CPU" if fewer == 1 else f"{fewer} CPUs"
    sentence = f"{few} would do instead of {requested:.0f}; the job may start sooner."
    evidence = (
        f"{format_job_count(used.size)} of this application kept about {upper(used):.1f} of {requested:.0f} CPUs busy at most",
        f"{format_job_count(jobs)} of this application completed with {few}",
    )
    return Advice("req_cpus", int(requested), fewer, sentence, evidence, jobs, kind.name, saves=True)


def _fewer_gpus(kind: Kind, row: Row) -> Advice | None:
    """Fewer GPUs, where no sample of any run saw more than half of them busy; none, where no run ever used one."""
    requested = _positive(row["size_gpus"])
    if requested is None or kind.name == kinds.ANY_APPLICATION:
        return None
    alike = kind.relatives.filter((pl.col("size_gpus") == requested) & (pl.col("elapsed_s") >= _SHORTEST_FOR_CPU_S))
    busy = alike["busy_gpus"].drop_nulls().to_numpy()
    if busy.size < _FEWEST_FOR_SAVING:
        return None
    most, had, last = float(busy.max()), format_gpus(requested), last_jobs_text(kind.name, busy.size)
    if most < _IDLE_GPU:
        sentence = f"These jobs use none of the GPUs that they hold ({had}): ask for none, or see why the program finds none."
        fact = f"{last} that tell it kept no GPU busy in any sample"
        return Advice("req_gpus", int(requested), None, sentence, (fact,), busy.size, kind.name, saves=True)
    enough = ceil(most)
    if enough > requested / 2:
        return None
    sentence = f"{format_gpus(enough)} would do instead of {had}; the job may start sooner."
    fact = f"{last} that tell it kept at most {most:.1f} of {had} busy in any sample"
    return Advice("req_gpus", int(requested), enough, sentence, (fact,), busy.size, kind.name, saves=True)


def _broken_script(kind: Kind) -> Advice | None:
    """The last runs all crashed at once: no request would have helped them."""
    ends = zip(kind.jobs["outcome"].to_list(), floats(kind.jobs["elapsed_s"]).tolist(), strict=True)
    streak = kind.jobs.head(len([*takewhile(lambda end: end[0] == "FAILED" and end[1] <= _WITHIN_SECONDS, ends)]))
    if streak.height < _FEWEST_BROKEN or kind.name == kinds.ANY_APPLICATION:
        return None
    codes = streak.select(pl.col("exit_code", "exit_signal").fill_null(0)).unique()
    exits = f", {format_exit(*codes.row(0))}" if codes.height == 1 and any(codes.row(0)) else ""
    longest = float(streak["elapsed_s"].to_numpy().max())
    fact = f"{last_jobs_text(kind.name, streak.height)} ended within {format_duration(max(1.0, longest))}{exits}"
    sentence = "The request is not the problem: look at the script and at the job's output."
    return Advice(None, None, None, sentence, (fact,), streak.height, kind.name)


def _too_little(kind: Kind, row: Row) -> Advice:
    name = clean(row["job_name"]) if row["job_name"] is not None else ""
    like = f" such as '{name}'" if name else ""
    sentence = f"I know too little about jobs of this kind{like} ({kind.jobs.height} so far)."
    return Advice(None, None, None, sentence, (), kind.jobs.height, kind.name)


def _with_risk(offers: list[Advice], request: pl.DataFrame, risk_of: RiskOf | None) -> list[Advice]:
    """The offers with the model's risk before and after; those that neither the model nor a shortage speaks for are dropped."""
    if risk_of is None or not offers:
        return offers
    changed = [
        request
        if offer.proposed is None or offer.column is None
        else request.with_columns(pl.lit(offer.proposed).cast(request.schema[offer.column]).alias(offer.column))
        for offer in offers
    ]
    before, *after = (float(risk) for risk in risk_of(pl.concat([request, *changed])))
    judged = [
        replace(offer, risk_before=before, risk_after=None if offer.proposed is None else risk)
        for offer, risk in zip(offers, after, strict=True)
    ]
    return [
        offer
        for offer in judged
        if offer.saves or offer.risk_after is None or offer.risk_after < before or offer.column in _SHORTAGES
    ]


_SHORTAGES: Final = ("req_mem_bytes", "time_limit_s")


def _rank(advice: Advice) -> tuple[bool, bool, float, int]:
    gain = (advice.risk_before or 0.0) - (advice.risk_after or 0.0) if advice.risk_after is not None else 0.0
    return advice.saves, advice.proposed is None, -gain, -advice.support


def _positive(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and value > 0 else None


def _as_column(resource: Resource, value: float) -> int | float:
    return int(value) if resource is MEMORY else float(value)


def _check(request: pl.DataFrame, now: datetime) -> None:
    if request.height != 1:
        raise UsageError(f"Advice is about one request, but {request.height} were given.", hint="Pass a job frame of one row.")
    if now.tzinfo is None:
        raise UsageError(f"The moment {now} has no time zone.", hint="Pass one, for instance datetime.now(UTC).")


class AdviceUsefulness:
    """What people said of advice so far; without opinions everything is shown as before."""

    def __init__(self, opinions: Iterable[tuple[str, str, bool]] = ()) -> None:
        voices: dict[str, dict[str, list[bool]]] = {}
        for user, sentence, useful in opinions:
            voices.setdefault(sort_of(sentence), {}).setdefault(user, []).append(useful)
        self._shares = {sort: _share([sum(votes) / len(votes) for votes in of.values()]) for sort, of in voices.items()}

    def share(self, sentence: str) -> float:
        """Return which share of people find advice of this sort useful, drawn towards PRIOR_SHARE."""
        return self._shares.get(sort_of(sentence), PRIOR_SHARE)

    def chosen(self, pieces: Sequence[Advice]) -> tuple[tuple[Advice, ...], int]:
        """Return the pieces to show, those that people reject last, and how many are left out.

        A piece that rests on jobs that ran out of memory or time is a fact, and is shown whatever people think of its sort.
        """
        shown = [piece for piece in pieces if self.share(piece.sentence) >= HIDDEN_BELOW or not _may_be_hidden(piece)]
        ordered = sorted(shown, key=lambda piece: self.share(piece.sentence) < LAST_BELOW)
        return tuple(ordered), len(pieces) - len(shown)


@lru_cache(maxsize=8192)  # a service reads the same opinions again and again
def sort_of(sentence: str) -> str:
    """Return what is left of a sentence without its figures and names."""
    return _FIGURE.sub("#", _PLACE.sub("@", sentence)).strip()


def _share(voices: Sequence[float]) -> float:
    return (sum(voices) + PRIOR_SHARE * PRIOR_VOICES) / (len(voices) + PRIOR_VOICES)


def _may_be_hidden(piece: Advice) -> bool:
    """Whether a piece is a proposal: it saves something, or moves the job elsewhere."""
    return piece.saves or piece.column in ("partition", "qos") or piece.column is None
