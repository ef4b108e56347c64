"""Job scripts of LSF: `#BSUB` lines -> what the job asks for, and back: a changed value -> the line to write.

`-n 32`, `-W 12:00`, `-R "span[ptile=16] rusage[mem=4GB]"`, `-gpu num=2` -> counts, seconds and memory of the whole job.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Final

from stormpetrel.sources.job_rows import MIB, whole
from stormpetrel.sources.lsf.job import program_of
from stormpetrel.sources.lsf.resources import gpu_count, memory_bytes, requested_hosts, size_bytes
from stormpetrel.sources.scripts.request import (
    MAX_COUNT,
    MAX_SECONDS,
    Directive,
    JobRequest,
    Reading,
    arguments_of,
    array_size,
    count_of,
    directive_lines,
    no_such_change,
    share,
    shown_word,
    wanted_number,
    wanted_word,
    written_size,
)

PREFIX: Final = "#BSUB"
_COLUMNS: Final = {
    "-J": "job_name", "-q": "partition", "-P": "account", "-sla": "qos", "-cwd": "work_dir", "-W": "time_limit_s",
    "-n": "req_cpus", "-nnodes": "req_nodes", "-M": "req_mem_bytes", "-gpu": "req_gpus",
}  # fmt: skip
_TEXTS: Final = {"job_name": "-J", "partition": "-q", "account": "-P", "qos": "-sla", "work_dir": "-cwd"}
_WITH_VALUE: Final = frozenset(
    "-a -alloc_flags -app -b -C -c -clusters -cn_cu -cn_mem -core_isolation -cwd -D -data -datagrp -E -Ep -e -env -eo -eptl -ext "
    "-F -f -freq -G -g -gpu -hostfile -i -is -J -Jd -jobaff -jsm -k -L -Lp -ln_mem -ln_slots -M -m -mig -n -network -nnodes "
    "-notify -o -oo -outdir -P -p -ptl -q -R -rnc -S -s -sla -smt -sp -stage -T -t -U -u -v -W -We -w -wa -wt".split()
)
_WITHOUT_VALUE: Final = frozenset(
    "-ar -B -csm -datachk -H -hl -I -Ip -IS -ISp -ISs -Is -IX -K -N -Ne -Q -r -rn -step_cgroup -ti -tty -ul -V -x -XF -Zs".split()
)
_GLUED: Final = re.compile(r"(-[nWM])([0-9].*)")  # -n4
_LIMIT: Final = re.compile(r"(?:(\d{1,7}):)?(\d{1,9})(?:/\S+)?", re.ASCII)
_NAME: Final = re.compile(r"([^\[]*)(?:\[([^\]]*)\](%\d+)?)?", re.ASCII)
_GPUS: Final = re.compile(r"(?:^|:)num=(\d{1,9})(?:/(task|host))?(?::|$)", re.ASCII)
_MEMORY: Final = re.compile(r"\bmem=(\d+(?:\.\d*)?\s*[KMGTPE]?B?)((?:/(?:job|host|task))?)", re.ASCII | re.IGNORECASE)


def read_lsf(reading: Reading, lines: list[str]) -> None:
    """Fill a reading from the lines of a job script."""
    directives = directive_lines(lines, PREFIX)
    if not (directives.early or directives.late):
        reading.warn("no #BSUB lines: the site's defaults apply")
    for number, line in (*directives.early, *directives.late):
        try:
            words = arguments_of(line, as_sbatch=False)
        except ValueError as error:
            reading.warn(f"{error}; the line is left out: {shown_word(PREFIX + line)}", number)
            continue
        reading.directives.extend(_directives(reading, number, words))
    _fill(reading, {directive.option: directive for directive in reading.directives})
    if "job_name" not in reading.columns:
        reading.put("job_name", program_of(";".join(lines)))


def lsf_line(request: JobRequest, column: str, value: object) -> str:
    """The `#BSUB` line that gives a column another value, in the form (per host, per task) that the script uses."""
    if column in _TEXTS:
        return f"{PREFIX} {_TEXTS[column]} {_quoted(wanted_word(column, value))}"
    changes: dict[str, Callable[[JobRequest, float], str]] = {
        "time_limit_s": lambda _, seconds: f"-W {_written_limit(seconds)}",
        "req_mem_bytes": _memory_change,
        "req_cpus": lambda _, count: f"-n {share(count, 1)}",
        "req_nodes": _nodes_change,
        "req_gpus": lambda job, count: f'-gpu "num={share(count, job.count("req_nodes"))}"',
    }
    if column not in changes:
        raise no_such_change("lsf", column, {*changes, *_TEXTS})
    return f"{PREFIX} {changes[column](request, wanted_number(column, value))}"


def _directives(reading: Reading, line: int, words: list[str]) -> Iterator[Directive]:
    waiting = iter(words)
    for word in waiting:
        glued = _GLUED.fullmatch(word)
        option, value = (glued[1], glued[2]) if glued else (word, "")
        if option in _WITH_VALUE:
            value = value or next(waiting, "")
            if not value:
                reading.warn(f"{shown_word(option)} has no value, and bsub refuses the script.", line)
                continue
            yield Directive(line, option, value, _column(option, value))
        elif option in _WITHOUT_VALUE:
            yield Directive(line, option, "", None)
        elif option.startswith("-"):
            reading.warn(f"unknown option {shown_word(option)}; the rest is read without it.", line)
        else:
            reading.warn(f"{shown_word(option)!r} is no option; it is left out.", line)


def _column(option: str, value: str) -> str | None:
    if option == "-R" and "mem=" in value:
        return "req_mem_bytes"
    return _COLUMNS.get(option)


def _fill(reading: Reading, directives: dict[str, Directive]) -> None:
    _put_texts(reading, directives)
    for option, column, parse in (
        ("-W", "time_limit_s", _limit_s),
        ("-n", "req_cpus", _slots),
        ("-nnodes", "req_nodes", count_of),
    ):
        if option in directives:
            reading.put(column, reading.checked(directives[option], parse(directives[option].value)))
    requirement = _requirement(reading)
    cpus = whole(reading.columns.get("req_cpus")) or 1
    if "req_nodes" not in reading.columns:
        reading.put("req_nodes", requested_hosts(requirement, cpus))
    hosts = whole(reading.columns.get("req_nodes")) or 1
    reading.put("req_gpus", _gpus(reading, directives, hosts, cpus) or gpu_count(requirement, hosts=hosts, tasks=cpus))
    memory = memory_bytes(requirement, hosts=hosts, tasks=cpus, unit=MIB)
    reading.put("req_mem_bytes", memory or _memory_limit(reading, directives.get("-M")))
    if memory is None and (asks := next((d for d in reading.directives if d.option == "-R" and d.column), None)):
        reading.checked(asks, None)
    if "-x" in directives:
        reading.put("exclusive", True)


def _put_texts(reading: Reading, directives: dict[str, Directive]) -> None:
    for column, option in _TEXTS.items():
        if option in directives:
            reading.put(column, directives[option].value)
    queues = reading.columns.get("partition")
    if isinstance(queues, str):
        reading.columns["partition"] = next(iter(queues.split()), queues)  # "short long": the first that will do
    if "-J" not in directives:
        return
    match = _NAME.fullmatch(directives["-J"].value)
    if match and match[2]:
        reading.put("job_name", match[1] or None)
        reading.put("array_tasks", reading.checked(directives["-J"], array_size(match[2])))


def _requirement(reading: Reading) -> str:
    """The requirements of all `-R` together, as LSF joins them."""
    return " ".join(directive.value for directive in reading.directives if directive.option == "-R")


def _limit_s(written: str) -> float | None:
    match = _LIMIT.fullmatch(written.strip())
    seconds = (int(match[1] or 0) * 60 + int(match[2])) * 60.0 if match else 0.0
    return seconds if 0 < seconds < MAX_SECONDS else None


def _slots(written: str) -> int | None:
    return count_of(written.partition(",")[0])  # least, most


def _gpus(reading: Reading, directives: dict[str, Directive], hosts: int, tasks: int) -> int | None:
    directive = directives.get("-gpu")
    if directive is None or directive.value == "-":
        return 1 if directive else None
    match = _GPUS.search(directive.value)
    if not match:
        return 1 if "num=" not in directive.value else reading.checked(directive, None)
    total = int(match[1]) * (tasks if match[2] == "task" else hosts)
    return reading.checked(directive, total if 0 < total <= MAX_COUNT else None)


def _memory_limit(reading: Reading, directive: Directive | None) -> int | None:
    """`-M` with a unit; without one it means what the site has set, which the script does not tell."""
    if directive is None:
        return None
    if directive.value.isdecimal():
        reading.warn(
            f"-M {shown_word(directive.value)} has no unit: it counts in the site's LSF_UNIT_FOR_LIMITS, and is left out here; "
            "write it with one, as in -M 4GB.",
            directive.line,
        )
        return None
    return reading.checked(directive, size_bytes(directive.value) or None)


# From a change to the line.


def _memory_change(request: JobRequest, wanted_bytes: float) -> str:
    """The memory to reserve on each host (or for each task), and the limit beside it where the script has one."""
    reserved = next((d for d in reversed(request.directives) if d.option == "-R" and d.column), None)
    has_limit = any(d.option == "-M" for d in request.directives)
    limit = f"-M {_size(share(wanted_bytes, 1))}" if has_limit else ""
    if reserved is None:
        return limit or f'-R "rusage[mem={_size(share(wanted_bytes, request.count("req_nodes")))}]"'
    match = _MEMORY.search(reserved.value)
    of_each = match[2].lower() if match else ""
    parts = {"/job": 1, "/task": request.count("req_cpus")}.get(of_each, request.count("req_nodes"))
    size = _size(share(wanted_bytes, parts))
    changed = _MEMORY.sub(lambda amount: f"mem={size}{amount[2]}", reserved.value, count=1)
    return f"{limit} -R {_quoted(changed)}".strip()


def _nodes_change(request: JobRequest, number: float) -> str:
    nodes, cpus = share(number, 1), request.count("req_cpus")
    return '-R "span[hosts=1]"' if nodes == 1 else f'-R "span[ptile={share(cpus, nodes)}]"'


def _written_limit(seconds: float) -> str:
    minutes = math.ceil(seconds / 60)
    return f"{minutes // 60}:{minutes % 60:02d}"


def _size(number: int) -> str:
    return written_size(number, units_called="{}B")


def _quoted(text: str) -> str:
    if re.fullmatch(r"[\w.,:/@%+=~^-]+", text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
