"""What to do with a held HTCondor job: release it, raise memory or disk, repair its input, remove it, or leave a sick host.

held job row (+ past jobs) -> hold_advice -> HoldAdvice. The hold's code and text say what happened; the other jobs of its cluster
id, the jobs on the same host and those of the same user say whether the job or its host is to blame.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

import polars as pl

from stormpetrel.jobs.causes.cause import mask_secrets
from stormpetrel.records.states import DEFAULT_FAILURE_STATES, JobState
from stormpetrel.records.units import MIB, format_memory

REASON, CODE, SUBCODE = "HoldReason", "HoldReasonCode", "HoldReasonSubCode"
HOLD_EXTRA: Final = (REASON, CODE, SUBCODE, "RequestDisk", "DiskUsage", "NumHolds")
_HOST_SPAN: Final = timedelta(hours=24)
_FEWEST_ON_HOST: Final = 3  # jobs of others that must have gone wrong on a host before it is called sick
_SICK_SHARE: Final = 0.8
_HELD_AGAIN: Final = 3  # holds after which releasing once more is no advice
_MARGIN: Final = 1.2
_KIB: Final = 1024
_NO_SUCH_FILE, _NO_PERMISSION, _NO_SPACE, _QUOTA = 2, 13, 28, 122
_HOST: Final = re.compile(
    "(?:Error from|Transfer (?:in|out)put files failure at execution point) "
    "(?:[^ @]+@)?([A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9_-])?)[:. ]"
)
_MEGABYTES: Final = re.compile(r"(?:limit of|[Pp]eak usage:?|usage of) (\d{1,9}) (?:megabytes|MB)", re.ASCII)
_DURATION: Final = re.compile(r"duration of (?:(\d{1,4})\+)?(\d{1,4}):(\d\d)(?::(\d\d))?", re.ASCII)
_PATH: Final = re.compile(r"(?:reading from|writing to|open|execute|directory)(?: file)? '?(/[^\s:;']{1,400})")
_AT_SUBMIT_SIDE: Final = re.compile(
    r"SHADOW at \S+ failed to (?:send|write)|\(AP\) .*(?:read|open)|reading from|failure at access point", re.ASCII
)
_SHOWN_TEXT: Final = 300
_DISK: Final = re.compile(r"\bdisk\b|DiskUsage|RequestDisk", re.IGNORECASE | re.ASCII)
_FAILED: Final = tuple(state.value for state in DEFAULT_FAILURE_STATES)


class HoldAction(StrEnum):
    """What is advised for a held job."""

    RELEASE = "release"
    MORE_MEMORY = "raise memory"
    MORE_DISK = "raise disk"
    MORE_TIME = "raise the time"
    REPAIR = "repair and release"
    REMOVE = "remove"
    OTHER_HOST = "the host is sick"
    WAIT = "wait"
    ASK = "ask the administrator"


@dataclass(frozen=True, slots=True)
class HoldAdvice:
    """Advice about one held job: what happened (after "Held: "), what to do, the lines to type, and what speaks for it."""

    action: HoldAction
    code: str  # 34.102
    cause: str
    change: str
    commands: tuple[str, ...]
    evidence: tuple[str, ...] = ()
    host: str | None = None
    text: str = ""  # the reason in HTCondor's words, in one line that can be shown


# condor_holdcodes.h: what a code means, and what is done about it if nothing else is known.
_CODES: Final[dict[int, tuple[str, HoldAction]]] = {
    1: ("by its user", HoldAction.RELEASE),
    3: ("by a policy of the job itself", HoldAction.REPAIR),
    4: ("because its credential cannot be used", HoldAction.REPAIR),
    5: ("because a policy of the job cannot be worked out", HoldAction.REPAIR),
    6: ("because it could not be started", HoldAction.REPAIR),
    7: ("because its output file cannot be opened", HoldAction.REPAIR),
    8: ("because its input file cannot be opened", HoldAction.REPAIR),
    9: ("because its output stream cannot be opened", HoldAction.REPAIR),
    10: ("because its input stream cannot be opened", HoldAction.REPAIR),
    11: ("because a file transfer broke off", HoldAction.RELEASE),
    12: ("because its output could not be brought back", HoldAction.REPAIR),
    13: ("because its input could not be sent", HoldAction.REPAIR),
    14: ("because its initial directory cannot be entered", HoldAction.REPAIR),
    15: ("since it was submitted on hold", HoldAction.RELEASE),
    16: ("while its input is spooled", HoldAction.WAIT),
    18: ("because a file transfer was refused", HoldAction.RELEASE),
    19: ("because a hook of the host that prepares jobs failed", HoldAction.ASK),
    20: ("because it missed its start time", HoldAction.REMOVE),
    21: ("by the host that ran it", HoldAction.ASK),
    22: ("because its log cannot be written", HoldAction.REPAIR),
    23: ("because its user's account cannot be used", HoldAction.ASK),
    26: ("by a policy of the site", HoldAction.ASK),
    27: ("because a policy of the site cannot be worked out", HoldAction.ASK),
    32: ("because its input is larger than it may be", HoldAction.REPAIR),
    33: ("because its output is larger than it may be", HoldAction.REPAIR),
    34: ("because it outgrew its memory", HoldAction.MORE_MEMORY),
    35: ("because its container image cannot be used", HoldAction.REPAIR),
    36: ("because its checkpoint could not be written", HoldAction.REPAIR),
    45: ("because the host cannot run containers", HoldAction.OTHER_HOST),
    46: ("because it ran longer than its allowed duration", HoldAction.MORE_TIME),
    47: ("because it executed longer than its allowed duration", HoldAction.MORE_TIME),
}
_OUT_OF_RESOURCES: Final = 34
_SUBCODE_DISK: Final = 104
_FILES: Final = frozenset({6, 7, 8, 9, 10, 12, 13, 14, 22})
_REPAIRS: Final = {
    (12, _NO_SUCH_FILE): "Let the job write that file, or take it off its outputs.",
    (None, _QUOTA): "Free some space or get more quota, then release it.",
    (None, _NO_SPACE): "Free some space where its files lie, then release it.",
}
_ERRNO: Final = {
    _NO_SUCH_FILE: "there is no such file",
    _NO_PERMISSION: "it may not be read or written",
    _NO_SPACE: "the disk is full",
    _QUOTA: "the quota is used up",
}


def hold_advice(job: Mapping[str, Any], past: pl.DataFrame | None = None) -> HoldAdvice | None:
    """Return what to do about a held HTCondor job; None where it is not held, or its scheduler gave no code.

    `past` are job records known by now, this job's own may be among them; without them the hold's own words decide.
    """
    extra = job.get("extra") or {}
    code, subcode = _whole(extra.get(CODE)), _whole(extra.get(SUBCODE)) or 0
    if job.get("state") != JobState.HELD or code is None:
        return None
    text = str(extra.get(REASON) or "")[:2000]
    host = _HOST.match(text)
    hold = _Hold(job, extra, code, subcode, text, _name(job), host[1] if host else None)
    advice = replace(_by_code(hold), text=mask_secrets(_shown(" ".join(text.split())))[:_SHOWN_TEXT])
    return advice if past is None or past.is_empty() else _with_others(hold, advice, past)


@dataclass(frozen=True, slots=True)
class _Hold:
    job: Mapping[str, Any]
    extra: Mapping[str, Any]
    code: int
    subcode: int
    text: str
    name: str  # 12.3
    host: str | None

    @property
    def release(self) -> str:
        return f"condor_release {self.name}"

    def edit(self, attribute: str, value: str) -> str:
        return f"condor_qedit {self.name} {attribute} {value}"


# What the hold says by itself.


def _by_code(hold: _Hold) -> HoldAdvice:
    cause, action = _CODES.get(hold.code, ("for a reason that HTCondor gives as text only", HoldAction.ASK))
    if hold.code == _OUT_OF_RESOURCES:
        return _resources(hold)
    if hold.code in _FILES:
        return _files(hold, cause)
    change, commands = _ACTIONS[action](hold)
    return HoldAdvice(action, _number(hold), cause, change, commands, host=hold.host)


def _resources(hold: _Hold) -> HoldAdvice:
    if hold.subcode == _SUBCODE_DISK or (hold.subcode == 0 and _DISK.search(hold.text)):
        named = [int(number) * _KIB for number in _MEGABYTES.findall(hold.text)]
        sizes = [*named, *(_whole(hold.extra.get(name)) or 0 for name in ("RequestDisk", "DiskUsage"))]
        new_kib = _rounded(2 * max(*sizes, 1 << 20))
        change = f"Ask for {format_memory(new_kib * _KIB)} of disk."
        commands = (hold.edit("RequestDisk", str(new_kib)), hold.release)
        return HoldAdvice(HoldAction.MORE_DISK, _number(hold), "because it outgrew its disk", change, commands, host=hold.host)
    new_mib = _rounded(2 * max(_outgrown_mib(hold), 512.0))
    change = f"Ask for {format_memory(new_mib * MIB)} of memory."
    commands = (hold.edit("RequestMemory", str(new_mib)), hold.release)
    return HoldAdvice(HoldAction.MORE_MEMORY, _number(hold), _CODES[34][0], change, commands, host=hold.host)


def _outgrown_mib(hold: _Hold) -> float:
    """The memory that was too little, in MiB: what the hold names, what was asked for, or what was used."""
    named = [int(number) for number in _MEGABYTES.findall(hold.text)]
    return max(*named, (hold.job.get("req_mem_bytes") or 0) / MIB, (hold.job.get("max_rss_bytes") or 0) / MIB, 0.0)


def _files(hold: _Hold, cause: str) -> HoldAdvice:
    path = _PATH.search(hold.text)
    what = _ERRNO.get(hold.subcode)
    detail = f": {what}" + (f" ({_shown(path[1])})" if path else "") if what else ""
    if hold.subcode == _NO_SPACE and hold.host and not _AT_SUBMIT_SIDE.search(hold.text):
        change, commands = _leave_host(hold)
        return HoldAdvice(HoldAction.OTHER_HOST, _number(hold), cause + detail, change, commands, host=hold.host)
    if what:
        change = _REPAIRS.get((hold.code, hold.subcode)) or _REPAIRS.get((None, hold.subcode), "Put that right, then release it.")
        return HoldAdvice(HoldAction.REPAIR, _number(hold), cause + detail, change, (hold.release,), host=hold.host)
    return HoldAdvice(
        HoldAction.RELEASE, _number(hold), cause, "Release it once; if it is held again, repair what the text names.",
        (hold.release,), host=hold.host,
    )  # fmt: skip


def _released(hold: _Hold) -> tuple[str, tuple[str, ...]]:
    return "Release it when it should run.", (hold.release,)


def _removed(hold: _Hold) -> tuple[str, tuple[str, ...]]:
    return "Remove it and submit it again.", (f"condor_rm {hold.name}",)


def _repaired(hold: _Hold) -> tuple[str, tuple[str, ...]]:
    return "Repair what the text names, then release it.", (hold.release,)


def _longer(hold: _Hold) -> tuple[str, tuple[str, ...]]:
    attribute = "AllowedJobDuration" if hold.code == 46 else "AllowedExecuteDuration"
    ran_s = max(hold.job.get("elapsed_s") or 0.0, hold.job.get("time_limit_s") or 0.0, _allowed_s(hold.text))
    if not ran_s:
        return f"Raise {attribute} (in seconds), or remove it.", (hold.edit(attribute, "SECONDS"), hold.release)
    return f"Allow it twice the time, or remove it if it hangs: {attribute}.", (
        hold.edit(attribute, f"{2 * ran_s:.0f}"),
        hold.release,
    )


def _allowed_s(text: str) -> float:
    """The duration that a hold names, in seconds: `1+02:00` in days, hours and minutes, or `1:00:00`; 0 where it names none."""
    match = _DURATION.search(text)
    if match is None or (match[1] is None and match[4] is None):
        return 0.0
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return 86400.0 * days + 3600.0 * hours + 60.0 * minutes + seconds


def _leave_host(hold: _Hold) -> tuple[str, tuple[str, ...]]:
    if hold.host is None:
        return "Tell the administrator which host it was, then release it.", (hold.release,)
    elsewhere = f"'(Machine != \"{hold.host}\")'"
    change = f"Keep it off {hold.host} (add what its Requirements were), release it, and tell the administrator about that host."
    return change, (hold.edit("Requirements", elsewhere), hold.release)


def _waited(hold: _Hold) -> tuple[str, tuple[str, ...]]:
    return "Wait: it is released by itself.", ()


def _administrator(hold: _Hold) -> tuple[str, tuple[str, ...]]:
    return "Ask the administrator of the pool before you release it.", (hold.release,)


_ACTIONS: Final = {
    HoldAction.RELEASE: _released,
    HoldAction.REMOVE: _removed,
    HoldAction.REPAIR: _repaired,
    HoldAction.MORE_TIME: _longer,
    HoldAction.OTHER_HOST: _leave_host,
    HoldAction.WAIT: _waited,
    HoldAction.ASK: _administrator,
}


# What other jobs add.


def _with_others(hold: _Hold, advice: HoldAdvice, past: pl.DataFrame) -> HoldAdvice:
    """The advice in the light of the other jobs of its cluster id and of those on its host."""
    jobs = past.with_columns(
        _code=pl.col("extra").map.get(CODE).cast(pl.Int64, strict=False),
        _host=pl.coalesce(pl.col("extra").map.get(REASON).str.extract(_HOST.pattern, 1), pl.col("node_list")),
    )
    siblings, evidence = _siblings(hold, jobs)
    on_host = _host_evidence(hold, jobs)
    all_alike = siblings.held > 0 and siblings.hosts > 1 and siblings.completed == 0
    if on_host and not all_alike:
        change, commands = _leave_host(hold)
        advice = replace(advice, action=HoldAction.OTHER_HOST, change=change, commands=commands)
        evidence = (on_host, *evidence)
    elif advice.action is HoldAction.MORE_MEMORY:
        advice, seen = _memory_of_siblings(hold, advice, jobs)
        evidence = (*seen, *evidence)
    elif (_whole(hold.extra.get("NumHolds")) or 0) >= _HELD_AGAIN and advice.action in (HoldAction.RELEASE, HoldAction.REPAIR):
        change, commands = _removed(hold)
        advice = replace(advice, action=HoldAction.REMOVE, change=change, commands=commands)
        evidence = (f"it was held {hold.extra['NumHolds']} times", *evidence)
    return replace(advice, evidence=evidence)


@dataclass(frozen=True, slots=True)
class _Siblings:
    held: int
    completed: int
    hosts: int


def _siblings(hold: _Hold, jobs: pl.DataFrame) -> tuple[_Siblings, tuple[str, ...]]:
    """The other jobs of the same cluster id: how many met the same hold, on how many hosts, and how many completed."""
    job = hold.job
    same = (pl.col("cluster") == job["cluster"]) & (pl.col("job_id") == job["job_id"])
    others = jobs.filter(same & (pl.col("submit_time") == job["submit_time"]) & ~_is(job))
    alike = others.filter(pl.col("_code") == hold.code)
    completed = others.filter(pl.col("state") == JobState.COMPLETED.value).height
    evidence = []
    if alike.height:
        evidence.append(f"{alike.height} of the {others.height} other jobs of cluster {job['job_id']} met the same hold")
    if completed:
        evidence.append(f"{completed} of the {others.height} other jobs of cluster {job['job_id']} completed")
    hosts = alike["_host"].drop_nulls().to_list()
    return _Siblings(alike.height, completed, len({*hosts, *([hold.host] if hold.host else [])})), tuple(evidence)


def _host_evidence(hold: _Hold, jobs: pl.DataFrame) -> str | None:
    """What speaks against the host: nearly all that others ran there lately went wrong, and far less of it elsewhere."""
    if hold.host is None:
        return None
    newest = jobs.select(pl.max_horizontal("start_time", "end_time", "submit_time").max()).item()
    lately = jobs.filter(pl.max_horizontal("start_time", "end_time") >= newest - _HOST_SPAN)
    others = lately.filter(pl.col("job_id") != hold.job["job_id"])
    bad = (pl.col("state").is_in(_FAILED) | pl.col("_code").is_not_null()) & (pl.col("_code").fill_null(0) != 1)
    ended = others.filter(pl.col("end_time").is_not_null() | pl.col("_code").is_not_null())
    here, there = ended.filter(pl.col("_host") == hold.host), ended.filter(pl.col("_host") != hold.host)
    wrong = here.filter(bad)
    if wrong.height < _FEWEST_ON_HOST or wrong["job_id"].n_unique() < 2 or wrong.height < _SICK_SHARE * here.height:
        return None
    elsewhere = there.filter(bad).height / there.height if there.height else 0.0
    if elsewhere > _SICK_SHARE / 2:
        return None
    return f"{wrong.height} of {here.height} jobs of others on {hold.host} went wrong within a day; elsewhere {elsewhere:.0%}"


def _memory_of_siblings(hold: _Hold, advice: HoldAdvice, jobs: pl.DataFrame) -> tuple[HoldAdvice, tuple[str, ...]]:
    """More memory by what jobs like this one needed, where that is known."""
    job = hold.job
    like = jobs.filter((pl.col("job_id") == job["job_id"]) | (_same("user", job) & _same("job_name", job)).fill_null(False))
    done = like.filter((pl.col("state") == JobState.COMPLETED.value) & pl.col("max_rss_bytes").is_not_null())
    most = done["max_rss_bytes"].max()
    if done.height < _FEWEST_ON_HOST or not isinstance(most, int):
        return advice, ()
    outgrown_mib = _outgrown_mib(hold)
    seen = f"the {done.height} jobs like it that completed used {format_memory(most)} at most"
    if 2 * most / MIB < outgrown_mib:  # they never came near what it outgrew, so they do not tell what it needs
        return advice, (f"{seen}: this one is unlike them",)
    new_mib = _rounded(_MARGIN * max(most / MIB, outgrown_mib))
    change = f"Ask for {format_memory(new_mib * MIB)} of memory."
    commands = (hold.edit("RequestMemory", str(new_mib)), hold.release)
    return replace(advice, change=change, commands=commands), (seen,)


def _same(column: str, job: Mapping[str, Any]) -> pl.Expr:
    return pl.col(column) == pl.lit(job.get(column), dtype=pl.String)


def _is(job: Mapping[str, Any]) -> pl.Expr:
    return pl.col("array_task").eq_missing(pl.lit(job.get("array_task"), dtype=pl.Int64))


def _name(job: Mapping[str, Any]) -> str:
    return f"{job.get('job_id')}.{job.get('array_task') or 0}"


def _number(hold: _Hold) -> str:
    return f"{hold.code}.{hold.subcode}"


def _rounded(size: float) -> int:
    """The next of 1, 1.5, 2, 3, 4, 6, 8, 12, … times a power of two: what people write in a request."""
    step = 1
    while step < size:
        if step * 3 // 2 >= size and step > 1:
            return step * 3 // 2
        step *= 2
    return step


def _shown(path: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in path)


def _whole(value: object) -> int | None:
    text = str(value).strip() if value is not None else ""
    return int(text) if text.isdecimal() and len(text) < 10 else None
