"""What a mail about ended jobs says: what happened, why, what to ask for next time, how well the request was used.

rows of a job or array + JobWhy -> job_values, array_values -> the values of a template. It is what `why` answers, to its owner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from statistics import median
from typing import Any, Final
from urllib.parse import urlencode

import polars as pl

from stormpetrel.answers.jobs.why import explain_job
from stormpetrel.answers.schemas.job import JobWhy
from stormpetrel.answers.schemas.predictions import Advice
from stormpetrel.answers.viewer import READ, Viewer
from stormpetrel.errors import StormpetrelError
from stormpetrel.jobs.advice.text import job_facts
from stormpetrel.jobs.outcomes import failed
from stormpetrel.records.jobs import JobRef, was_never_started
from stormpetrel.records.states import FINISHED
from stormpetrel.store.site import Site

_MOST_ADVICE: Final = 2
_MOST_TASKS: Final = 10  # that are named
_LONG_S: Final = 300.0  # of a job that ran for less, low use says nothing
_LOW: Final = 0.25  # below this part of the request a line says so
_ENDED: Final = sorted(state.value for state in FINISHED)


def job_values(site: Site, row: pl.DataFrame, now: datetime) -> dict[str, str]:
    """Return what is told of one ended job."""
    job = row.row(0, named=True)
    ref, why = JobRef.of(job), _why(site, job, now)
    facts = ", ".join(job_facts(job, never_started=was_never_started(job)))
    return {
        **_named(site, job, ref.job),
        "state": str(job["state"]),
        "happened": f"Job {ref.job} ({job['job_name'] or 'no name'}): {job['state']}" + (f"; {facts}." if facts else "."),
        "why": _why_text(why),
        "next": _next_text(why),
        "efficiency": "\n".join(_efficiency_lines(row)),
        "link": _link(site, {"view": "all", "job": str(ref)}),
    }


def array_values(site: Site, rows: pl.DataFrame, now: datetime) -> dict[str, str]:
    """Return what is told of an array: how many tasks ended how, and of the commonest failure why."""
    job = rows.row(0, named=True)
    counts = Counter(rows["state"].fill_null("UNKNOWN").to_list())
    outcome = ", ".join(f"{count} {state}" for state, count in counts.most_common())
    bad = rows.filter(failed(site.settings.jobs.failure_states).fill_null(False)).sort("end_time")
    lines = [f"Array {job['job_id']} ({job['job_name'] or 'no name'}) of {rows.height} tasks: {outcome}."]
    still = rows.filter(~pl.col("state").is_in(_ENDED)).height
    if still:
        lines.append(f"{still} of them had not ended when this was written.")
    why = ""
    following = ""
    if bad.height:
        common = Counter(bad["state"].to_list()).most_common(1)[0][0]
        shown = bad.filter(pl.col("state") == common).tail(1).row(0, named=True)
        answer = _why(site, shown, now)
        named = sorted(bad["array_task"].drop_nulls().to_list())
        more = f" and {len(named) - _MOST_TASKS} more" if len(named) > _MOST_TASKS else ""
        lines.append(f"Failed tasks: {', '.join(str(task) for task in named[:_MOST_TASKS])}{more}.")
        about = _why_text(answer)
        why = f"Task {shown['array_task']} ({common}):\n{about}" if about else ""
        following = _next_text(answer)
    else:
        following = _next_text(_why(site, rows.sort("end_time", nulls_last=False).tail(1).row(0, named=True), now))
    return {
        **_named(site, job, str(job["job_id"])),
        "state": outcome,
        "count": str(rows.height),
        "happened": "\n".join(lines),
        "why": why,
        "next": following,
        "efficiency": "\n".join(_efficiency_lines(rows)),
        "link": _link(site, {"view": "all", "job_id": f"equals:{job['job_id']}"}),
    }


def unknown_values(site: Site, facts: Mapping[str, str]) -> dict[str, str]:
    """Return what is told where accounting has no row: what Slurm said in its call."""
    subject = facts.get("subject", "")
    return {
        "job": facts.get("array") or facts.get("job", ""),
        "name": facts.get("name", ""),
        "state": facts.get("state") or facts.get("type", "ended"),
        "user": facts.get("user", ""),
        "cluster": facts.get("cluster", ""),
        "subject": subject,
        "happened": f"{subject}\nAccounting has no record of it yet.",
        "why": f"Later: stormpetrel why {facts.get('job', '')}",
        "site": site.settings.site.name,
    }


def efficiency(rows: pl.DataFrame) -> dict[str, float]:
    """Return the part of the request that was used: `cpu`, `time` (sums over the jobs), `memory` (the median)."""
    shares: dict[str, float] = {}
    ran = rows.filter((pl.col("elapsed_s") > 0) & (pl.col("cpus") > 0))
    measured = ran.filter(pl.col("cpu_time_s").is_not_null())
    held = float((measured["elapsed_s"] * measured["cpus"]).sum() or 0.0)
    if held > 0:
        shares["cpu"] = float(measured["cpu_time_s"].sum()) / held
    memory = ran.filter((pl.col("req_mem_bytes") > 0) & (pl.col("max_rss_bytes") > 0))
    if memory.height:
        shares["memory"] = float(median((memory["max_rss_bytes"] / memory["req_mem_bytes"]).to_list()))
    limited = ran.filter(pl.col("time_limit_s") > 0)
    if limited.height:
        shares["time"] = float(limited["elapsed_s"].sum()) / float(limited["time_limit_s"].sum())
    return shares


_WORDS: Final = {"cpu": ("CPU", "of the cores' time"), "memory": ("Memory", "of the request"), "time": ("Time", "of the limit")}


def _efficiency_lines(rows: pl.DataFrame) -> list[str]:
    shares, ran_s = efficiency(rows), float(rows["elapsed_s"].max() or 0.0)  # type: ignore[arg-type]  # a column of floats
    lines = []
    for name, (title, whole) in _WORDS.items():
        if name in shares:
            low = "  (low)" if shares[name] < _LOW and ran_s >= _LONG_S else ""
            lines.append(f"  {title:<8}{100 * shares[name]:>4.0f} % {whole}{low}")
    return ["Used:", *lines] if lines else []


def _why(site: Site, job: Mapping[str, Any], now: datetime) -> JobWhy | None:
    """What `why` says to the job's owner; None where it cannot say anything."""
    viewer = Viewer(str(job["user"] or ""), is_admin=False, scopes=frozenset({READ}))
    try:
        return explain_job(site, viewer, JobRef.of(dict(job)).job, now=now)
    except StormpetrelError:
        return None


def _why_text(why: JobWhy | None) -> str:
    if why is None:
        return ""
    lines: list[str] = []
    if why.cause is not None:
        lines += [f"{why.cause.sentence} {why.cause.change}".strip(), *(f"  {line}" for line in why.cause.evidence[:3])]
    lines += [remedy.sentence for remedy in why.remedies[:2]]
    return "\n".join(lines)


def says_something(piece: Advice) -> bool:
    """Whether a piece of advice is for a mail: no experiment, and more than that too little is known."""
    return not piece.experiment and (piece.column is not None or bool(piece.evidence))


def _next_text(why: JobWhy | None) -> str:
    if why is None:
        return ""
    pieces = [piece for piece in (why.next, *why.advice[:_MOST_ADVICE]) if piece is not None and says_something(piece)]
    lines = [text for piece in pieces for text in (piece.sentence, f"    {piece.line}" if piece.line else "") if text]
    return "\n".join(["Next time:", *lines]) if lines else ""


def _named(site: Site, job: Mapping[str, Any], name: str) -> dict[str, str]:
    return {
        "job": name,
        "name": str(job["job_name"] or ""),
        "user": str(job["user"] or ""),
        "cluster": str(job["cluster"]),
        "site": site.settings.site.name,
    }


def _link(site: Site, query: Mapping[str, str]) -> str:
    url = site.settings.notify.public_url.rstrip("/")
    return f"{url}/jobs?{urlencode(query)}" if url else ""


def rows_of(site: Site, facts: Sequence[Mapping[str, str]], user: str, now: datetime) -> pl.DataFrame:
    """Return the job's row, or those of all tasks of an array, that calls of one topic are about; of its latest submission."""
    first = next((fact for fact in facts if fact.get("array")), facts[0])
    array, raw = first.get("array"), [int(fact["job"]) for fact in facts if fact.get("job")]
    is_it = (pl.col("job_id") == int(array)) if array else pl.col("job_id").is_in(raw) | pl.col("job_id_raw").is_in(raw)
    rows = site.jobs.read_jobs(until=now).filter(is_it)
    if user:
        rows = rows.filter(pl.col("user") == user)
    if first.get("cluster"):
        rows = rows.filter(
            (pl.col("cluster") == first["cluster"]) | (pl.col("cluster") == (site.settings.site.cluster or "cluster"))
        )
    latest = rows.collect().sort("submit_time", "restart")
    if latest.is_empty():
        return latest
    newest = latest.filter(pl.col("submit_time") == pl.col("submit_time").max())
    if newest["array_task"].is_not_null().any():  # slurmdbd may show a task before it knows that it is one
        newest = newest.filter(pl.col("array_task").is_not_null())
    return newest.group_by("array_task", maintain_order=True).last().select(latest.columns)
