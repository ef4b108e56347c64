"""Which cases administrators should judge: those whose answer teaches most, also from below the threshold.

Site + Viewer -> ask_cases -> CaseList; + NewCaseAnswer -> answer_case -> CaseReceipt. As in `jobs/active_learning.py` the worth
of a case is how undecided we are (1 − |2p − 1|) times how populated its region is; of one user's jobs of one name the best is
asked about, and each sort of cases has some. Cases are incidents that nobody has judged, jobs that ended, hours of nodes with
unusual windows that raised nothing, and buckets of events below the threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from stormpetrel.alarms.budget import score_of
from stormpetrel.alarms.titles import title
from stormpetrel.alarms.verdict_memory import VerdictMemory
from stormpetrel.answers.alarms.acts import act_on_incident, signed
from stormpetrel.answers.alarms.incidents import job_link, subject_link
from stormpetrel.answers.schemas.alarms import CaseLine, CaseList, CaseQuestion, CaseReceipt, NewCaseAnswer
from stormpetrel.answers.viewer import MANAGE, READ
from stormpetrel.errors import NotThereError
from stormpetrel.jobs.active_learning import informativeness, region_density
from stormpetrel.lifecycle.case_answers import BUCKET, HOUR, JOB, NodeHour, node_hour
from stormpetrel.lifecycle.trace_regions import add_region, remove_region
from stormpetrel.records.findings import FindingKind, Subject, SubjectKind
from stormpetrel.records.incidents import ActKind, standing_verdict
from stormpetrel.records.jobs import KEY, job_text, ref_text
from stormpetrel.records.model_families import ModelFamily
from stormpetrel.records.outages import Outage, OutageKind
from stormpetrel.records.regions import RegionScope
from stormpetrel.store.case_answers import CaseAnswer

if TYPE_CHECKING:
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.records.incidents import Incident
    from stormpetrel.store.site import Site

RECENT: Final = timedelta(days=28)  # cases are of the last weeks: people remember them
BY_CASE: Final = "case"  # the source of labels of buckets that somebody was asked about
_MOST_INCIDENTS: Final = 300
_MOST_JOBS: Final = 20_000
_MOST_HOURS: Final = 2_000
_ODD_IN_A_ROW: Final = 3  # flagged moments that the rule over CPU windows needs before it speaks
_LOWEST: Final = 0.3  # of the threshold: what is lower nobody doubts
_OF_EACH_SORT: Final = 2  # cases of ten, where there are any
_SEED: Final = 0
_KINDS: Final = tuple(FindingKind)
_REF: Final = "job_ref"


@dataclass(frozen=True, slots=True)
class _Case:
    """A candidate: what is shown of it, how likely it is trouble, and where it lies among its kind."""

    case: str
    family: str
    kind: str
    about: str
    at: datetime
    score: float
    threshold: float | None
    raised: bool
    chance: float
    words: str
    link: str | None
    place: tuple[float, ...] = field(default=())
    work: str = ""  # what is the same work as another case's


def ask_cases(site: Site, viewer: Viewer, question: CaseQuestion | None = None) -> CaseList:
    """Return the cases whose answer helps most, what helps most first; administrators only."""
    viewer.require(READ)
    viewer.require_admin()
    wanted, answered = question or CaseQuestion(), site.case_answers.standing()
    groups = [_incidents(site), _jobs(site), _node_hours(site), _buckets(site)]
    open_groups = [[case for case in group if case.case not in answered] for group in groups]
    return CaseList(
        cases=_chosen([_weighed(group) for group in open_groups if group], wanted.limit),
        candidates=sum(map(len, open_groups)),
        answered=len(answered) + len(site.incidents.judged()),
    )


def answer_case(site: Site, viewer: Viewer, wanted: NewCaseAnswer) -> CaseReceipt:
    """Keep what an administrator says of a case, where what learns will find it; it stands in the audit trail."""
    viewer.require(MANAGE)
    kind, _, rest = wanted.case.partition(":")
    if kind == "incident":
        if not (rest.isascii() and rest.isdecimal() and len(rest) <= 9):
            raise _unknown(wanted.case)
        act = act_on_incident(site, viewer, int(rest), wanted.answer, wanted.note)
        words = f"Incident {rest} is {act.state}{f', {act.verdict}' if act.verdict else ''}."
        return CaseReceipt(case=wanted.case, answer=wanted.answer, incident=int(rest), words=words)
    act_kind = ActKind(wanted.answer)
    if act_kind == ActKind.WITHDRAW and wanted.case not in site.case_answers.standing():
        raise NotThereError(f"Nothing was answered on {wanted.case[:80]!r}.", hint="See what is asked: stormpetrel alarms ask")
    user = signed(site, viewer)
    words = _taught(site, wanted, act_kind, user)
    site.case_answers.add(CaseAnswer(wanted.case, site.now(), user, act_kind, wanted.note))
    site.audit.record(user, f"case {act_kind.value}", {"case": wanted.case})
    return CaseReceipt(case=wanted.case, answer=wanted.answer, words=words)


def _taught(site: Site, wanted: NewCaseAnswer, act: ActKind, user: str) -> str:
    """Put an answer where it is learnt from, and say what it changes."""
    kind, _, rest = wanted.case.partition(":")
    if kind == JOB:
        return _taught_job(site, wanted.case, rest, act)
    if kind == BUCKET and rest.isascii() and rest.isdecimal() and len(rest) <= 10:
        return _taught_bucket(site, int(rest), act, wanted.note)
    hour = node_hour(wanted.case)
    if hour is None:
        raise _unknown(wanted.case)
    return _taught_hour(site, hour, act, wanted.note, user)


def _taught_job(site: Site, case: str, ref: str, act: ActKind) -> str:
    known = site.jobs.table.scan().select(ref_text()).filter(pl.col("ref") == ref).head(1).collect()
    if not known.height:
        raise _unknown(case)
    label = {ActKind.CONFIRM: "a failure", ActKind.DISMISS: "no failure"}.get(act)
    return f"It counts as {label} in the next training." if label else "What accounting says of it counts again."


def _taught_bucket(site: Site, second: int, act: ActKind, note: str) -> str:
    start = datetime.fromtimestamp(second, UTC)
    length = timedelta(minutes=site.settings.events.bucket_minutes)
    uid = str(second)
    if act == ActKind.WITHDRAW:
        with suppress(NotThereError):  # somebody has taken the label away by hand
            site.outages.remove(BY_CASE, uid)
        return "The label of this bucket is gone."
    kind = OutageKind.OUTAGE if act == ActKind.CONFIRM else OutageKind.NORMAL
    site.outages.add(Outage(start, start + length, kind, note or "asked", source=BY_CASE, uid=uid))
    return f"The bucket is labelled: {kind.value}."


def _taught_hour(site: Site, hour: NodeHour, act: ActKind, note: str, user: str) -> str:

    name = _region_name(hour)
    if any(region.name == name for region in site.trace_regions.list()):
        remove_region(site, name)
    if act != ActKind.CONFIRM:
        return "Its windows are calm ones to learn from." if act == ActKind.DISMISS else "The answer is taken back."
    scope = RegionScope(node=hour.node, since=hour.since, until=hour.since + HOUR)
    add_region(site, name, scope, user=user)
    return f"Its windows are a known region, {name!r}, and are never learnt as normal."


def _region_name(hour: NodeHour) -> str:
    return f"{hour.node} {hour.since:%Y-%m-%d %H:%M}"


def _unknown(case: str) -> NotThereError:
    return NotThereError(f"There is no case {case[:80]!r}.", hint="See what is asked: stormpetrel alarms ask")


def _chosen(sorts: Sequence[Sequence[CaseLine]], limit: int) -> list[CaseLine]:
    """Those of most worth, what is worth most first; each sort has some: densities are told apart within a sort only."""
    kept = max(1, min(_OF_EACH_SORT, limit // max(1, len(sorts))))
    first = [line for lines in sorts for line in lines[:kept]]
    rest = sorted((line for lines in sorts for line in lines[kept:]), key=_by_worth)
    return sorted([*sorted(first, key=_by_worth), *rest][:limit], key=_by_worth)


def _by_worth(line: CaseLine) -> tuple[float, str]:
    return (-line.worth, line.case)


def _weighed(cases: Sequence[_Case]) -> list[CaseLine]:
    """Cases of one sort with their worth, how undecided times how populated the region among them is, what is worth most first.

    Of those that are the same work one is enough: the second answer would teach little.
    """
    chance = np.array([case.chance for case in cases])
    places = np.array([case.place for case in cases], dtype=np.float32)
    density = region_density(places, _SEED) if len(cases) > 1 else np.ones(1)
    worth = informativeness(chance, density)
    lines = [
        CaseLine(
            case=case.case, family=case.family, kind=case.kind, about=case.about, at=case.at, score=case.score,
            threshold=case.threshold, raised=case.raised, chance=case.chance, uncertainty=1 - abs(2 * case.chance - 1),
            density=float(density[number]), worth=float(worth[number]), words=case.words, link=case.link,
        )
        for number, case in enumerate(cases)
    ]  # fmt: skip
    work = {case.case: case.work or case.case for case in cases}
    best: dict[str, CaseLine] = {}
    for line in sorted(lines, key=_by_worth):
        best.setdefault(work[line.case], line)
    return list(best.values())


def _incidents(site: Site) -> list[_Case]:
    """Incidents of the last weeks that nobody has judged, on the list or not."""
    recent = site.incidents.list(resolved_after=site.now() - RECENT, limit=_MOST_INCIDENTS)
    acts = site.incidents.acts(incident.id for incident in recent)
    memory, zone = VerdictMemory(site.incidents.judged()), site.settings.site.time_zone
    return [_incident(incident, memory, site.now(), zone) for incident in recent if standing_verdict(acts[incident.id]) is None]


def _incident(incident: Incident, memory: VerdictMemory, now: datetime, zone: str) -> _Case:
    finding = incident.findings[0]
    size = max(finding.figure(name) for name in ("lost", "flagged", "count"))
    quiet = f" Not on the list: like incident {incident.like}." if incident.is_quiet else ""
    return _Case(
        case=f"incident:{incident.id}",
        family=finding.family,
        kind=finding.kind.value,
        about=_about(finding.subject),
        at=incident.raised_at,
        score=score_of(finding),
        threshold=finding.threshold,
        raised=True,
        chance=memory.chance(finding, now),
        words=f"{title(incident, zone)}.{quiet}",
        link=f"/alarms?incident={incident.id}",
        place=(4.0 * _KINDS.index(finding.kind), float(np.log1p(max(0.0, score_of(finding)))), float(np.log1p(size))),
    )


def _jobs(site: Site) -> list[_Case]:
    """Jobs that ended in the last weeks and were forecast: the risk at the last moment, and what became of them."""
    since = site.now() - RECENT
    last = site.predictions.read(since=since).sort("moment_time").group_by(KEY).agg(pl.col("risk", "threshold").last())
    columns = ("user", "job_name", "state", "end_time", "req_cpus", "time_limit_s", "req_mem_bytes", "elapsed_s")
    there = [name for name in columns if name in site.jobs.table.scan().collect_schema()]
    ended = site.jobs.table.scan().filter(pl.col("end_time") >= since).select(*KEY, *there)
    rows = (
        ended.join(last, on=list(KEY), how="inner", nulls_equal=True)
        .sort("end_time", descending=True)
        .head(_MOST_JOBS)
        .with_columns(ref_text().alias(_REF), job_text().alias("job_shown"))
        .collect()
    )
    return [_job(row) for row in rows.iter_rows(named=True)]


def _job(row: dict[str, object]) -> _Case:
    risk, threshold = float(row["risk"]), float(row["threshold"])  # type: ignore[arg-type]
    sizes = [float(np.log1p(max(0.0, float(row.get(name) or 0)))) for name in ("req_cpus", "time_limit_s", "req_mem_bytes")]  # type: ignore[arg-type]
    whose = f" of {row['user']}" if row.get("user") else ""
    what = f" ({row['job_name']})" if row.get("job_name") else ""
    flagged = "flagged" if risk >= threshold else "not flagged"
    return _Case(
        case=f"{JOB}:{row[_REF]}",
        family=ModelFamily.JOBS.value,
        kind="job_outcome",
        about=f"job {row['job_shown']}",
        at=row["end_time"],  # type: ignore[arg-type]
        score=risk,
        threshold=threshold,
        raised=risk >= threshold,
        chance=risk,
        words=f"job {row['job_shown']}{whose}{what} ended {row['state']}; risk {risk:.0%}, {flagged}. A real failure?",
        link=job_link(str(row[_REF])),
        place=(risk, *sizes),
        work=f"{row.get('user')}/{row.get('job_name')}" if row.get("job_name") else "",
    )


def _node_hours(site: Site) -> list[_Case]:
    """Hours in which some windows of a node were flagged, and no incident is about that node at that time."""
    since, zone = site.now() - RECENT, site.settings.site.time_zone
    start = pl.col("window_start").dt.truncate("1h")
    moments = (
        site.trace_scores.read(since=since)
        .group_by("node", "window_start")
        .agg(odd=pl.col("flagged").any(), score=pl.col("score").max())
        .group_by("node", hour=start)
        .agg(odd=pl.col("odd").sum(), moments=pl.len(), score=pl.col("score").max())
        .filter(pl.col("odd") > 0)
        .sort("hour", descending=True)
        .head(_MOST_HOURS)
        .collect()
    )
    known = _seen_nodes(site, since)
    cases = []
    for row in moments.iter_rows(named=True):
        hour = NodeHour(row["node"], row["hour"].astimezone(UTC))
        if any(first < hour.since + HOUR and hour.since <= last for first, last in known.get(hour.node, ())):
            continue
        node = Subject(SubjectKind.NODE, hour.node)
        cases.append(
            _Case(
                case=hour.case,
                family=ModelFamily.TRACES.value,
                kind=FindingKind.WINDOWS_ODD.value,
                about=_about(node),
                at=hour.since,
                score=float(row["score"]),
                threshold=None,
                raised=False,
                chance=0.5 * min(1.0, row["odd"] / _ODD_IN_A_ROW),
                words=f"node {hour.node}: unusual windows at {row['odd']} of {row['moments']} moments of this hour. Trouble?",
                link=subject_link(node, hour.since, hour.since + HOUR, zone),
                place=(row["odd"] / row["moments"], float(np.log1p(max(0.0, row["score"])))),
            )
        )
    return cases


def _seen_nodes(site: Site, since: datetime) -> dict[str, list[tuple[datetime, datetime]]]:
    """When incidents were about which nodes."""
    spans: dict[str, list[tuple[datetime, datetime]]] = {}
    for incident in site.incidents.list(resolved_after=since):
        for subject in incident.subjects:
            if subject.kind == SubjectKind.NODE:
                spans.setdefault(subject.name, []).append((incident.since, incident.until))
    return spans


def _buckets(site: Site) -> list[_Case]:
    """Buckets of events whose score came near the threshold and stayed below it, as the newest model sees them."""
    since = site.now() - RECENT
    rows = site.event_scores.read(since=since).filter(pl.col("score").is_not_null() & ~pl.col("alarm")).collect()
    if not rows.height:
        return []
    newest = rows.sort("said_at").group_by("bucket_start").last()
    near = newest.filter(pl.col("threshold") > 0, pl.col("score") >= _LOWEST * pl.col("threshold")).sort("bucket_start")
    labelled = [(outage.start, outage.end or site.now()) for outage in site.outages.list(since=since)]
    return [
        _bucket(row)
        for row in near.iter_rows(named=True)
        if not any(first <= row["bucket_start"] < last for first, last in labelled)
    ]


def _bucket(row: dict[str, object]) -> _Case:
    start: datetime = row["bucket_start"]  # type: ignore[assignment]
    score, threshold = float(row["score"]), float(row["threshold"])  # type: ignore[arg-type]
    share = score / threshold
    return _Case(
        case=f"{BUCKET}:{int(start.timestamp())}",
        family=ModelFamily.EVENTS.value,
        kind=FindingKind.COUNTS_ODD.value,
        about="the cluster",
        at=start,
        score=score,
        threshold=threshold,
        raised=False,
        chance=0.5 * min(1.0, share),
        words=f"events of this bucket: score {score:.3g}, alarms from {threshold:.3g} on. Was there trouble?",
        link=f"/cluster?at={int(start.timestamp())}",
        place=(share, float(np.sin(2 * np.pi * start.hour / 24)), float(np.cos(2 * np.pi * start.hour / 24))),
    )


def _about(subject: Subject) -> str:
    return f"{subject.kind.value.replace('_', ' ')} {subject.name}"
