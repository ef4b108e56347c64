"""Batch scripts of Slurm: `#SBATCH` lines -> what the job asks for, and back: a changed value -> the line to write.

The words are cut and the options looked up as sbatch does it (getopt: `--opt=value`, `--opt value`, `-N2`, clear abbreviations).

What a batch script of Slurm asks of a cluster: JobRequest -> ResourceRequest, with how CPUs, memory and GPUs lie on nodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from stormpetrel.records.cluster import ResourceRequest
from stormpetrel.records.units import NO_LIMIT
from stormpetrel.sources.job_rows import times
from stormpetrel.sources.scripts.request import (
    COMMAND_LINE,
    MAX_SECONDS,
    Directive,
    JobRequest,
    Reading,
    array_size,
    count_of,
    directive_lines,
    no_such_change,
    product,
    share,
    size_of,
    wanted_number,
    wanted_word,
    warn_of_ignored_lines,
    written_clock,
    written_size,
    written_word,
)
from stormpetrel.sources.scripts.slurm_options import PREFIX, Options, Word, components_of, deciding, full_name, options_in

_MOST_COMPONENTS: Final = 16
_TEXTS: Final = {"job_name": "job-name", "account": "account", "partition": "partition", "qos": "qos", "work_dir": "chdir"}
_NOT_COUNTED: Final = frozenset("gpus-per-socket tres-per-task mincpus sockets-per-node extra-node-info".split())
_REASONS: Final = {"hold": "JobHeldUser", "dependency": "Dependency", "reservation": "Reservation", "begin": "BeginTime"}
_TIME: Final = re.compile(r"(?:(\d{1,7})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?", re.ASCII)
_MEMORY: Final = re.compile(r"\d{1,18}[KMGT]?B?", re.ASCII | re.IGNORECASE)  # no fractions: sbatch refuses 1.5G
_GPUS: Final = re.compile(r"(?:[A-Za-z][\w.-]*)?(?:(?:^|[:=])(\d{1,9}))?", re.ASCII)
_GPU_OPTIONS: Final = ("gpus", "gpus-per-node", "gres", "gpus-per-task")
_MEMORY_PARTS: Final = {"mem": "req_nodes", "mem-per-cpu": "req_cpus", "mem-per-gpu": "req_gpus"}
_GPU: Final = re.compile(r"(?:gres[/:])?gpu(?:[:=]([A-Za-z][\w.-]{0,63}))?(?:[:=](\d{1,9}))?", re.ASCII)
_TYPED: Final = re.compile(r"(?:([A-Za-z][\w.-]{0,63})(?::(\d{1,9}))?|(\d{1,9}))", re.ASCII)
_FEATURES: Final = re.compile(r"[\w.-]+(?:&[\w.-]+)*", re.ASCII)  # nothing but names that are all wanted


def read_slurm(reading: Reading, lines: list[str], arguments: Sequence[str] = ()) -> None:
    """Fill a reading from the lines of a batch script, and from the options before it, which win."""
    directives = directive_lines(lines, PREFIX)
    if not lines[0].startswith("#!"):
        reading.warn("The first line does not begin with #!, and sbatch refuses such a script; write #!/bin/bash above it.")
    warn_of_ignored_lines(reading, lines, directives, PREFIX, "Slurm")
    if not directives.early and not arguments:
        reading.warn("no #SBATCH lines: the site's defaults apply")
    in_script, before_it = components_of(reading, directives.early), _components_before(arguments)
    count = max(len(in_script), len(before_it))
    if count > _MOST_COMPONENTS:
        reading.warn(f"{count} components: those after the first {_MOST_COMPONENTS} are not looked at.")
    reading.others += [Reading(reading.kind, reading.name, dict(reading.columns)) for _ in range(1, min(count, _MOST_COMPONENTS))]
    for number, one in enumerate([reading, *reading.others]):
        for words in (in_script, before_it):  # those of the command line win
            if number < len(words):
                one.directives.extend(options_in(one, words[number]))
        _fill(one, deciding(one.directives))
    for other in reading.others:
        if "job_name" in reading.columns:
            other.columns.setdefault("job_name", reading.columns["job_name"])


def _components_before(arguments: Sequence[str]) -> list[list[Word]]:
    """The words of a command line, a list for each component of a heterogeneous job."""
    components: list[list[Word]] = [[]]
    for word in arguments:
        if word == ":":
            components.append([])
        else:
            components[-1].append((COMMAND_LINE, word))
    return components


def slurm_line(request: JobRequest, column: str, value: object) -> str:
    """The `#SBATCH` line that gives a column another value, with the option that the script already uses for it."""
    if column in _TEXTS:
        return _line(request, column, _TEXTS[column], written_word(wanted_word(column, value)))
    changes: dict[str, Callable[[JobRequest, float], tuple[str, str]]] = {
        "time_limit_s": _time_change,
        "req_mem_bytes": _memory_change,
        "req_cpus": _cpus_change,
        "req_gpus": _gpus_change,
        "req_nodes": lambda _, number: ("nodes", f"{share(number, 1)}"),
    }
    if column not in changes:
        raise no_such_change("slurm", column, {*changes, *_TEXTS})
    option, written = changes[column](request, wanted_number(column, value))
    return _line(request, column, option, written)


def _line(request: JobRequest, column: str, option: str, written: str) -> str:
    """The line, spelled as the script spells the option: `-t 10` stays short, and one of the command line has no #SBATCH."""
    used = [directive for directive in request.directives if directive.column == column and full_name(directive) == option]
    place = "" if used and used[-1].line == COMMAND_LINE else f"{PREFIX} "
    if used and not used[-1].option.startswith("--"):
        return f"{place}{used[-1].option} {written}"
    return f"{place}--{option}={written}"


# From directives to columns.


def _fill(reading: Reading, options: Options) -> None:
    for column, option in _TEXTS.items():
        reading.put(column, (options[option].value or None) if option in options else None)
    if "time" in options:
        reading.put("time_limit_s", _time_limit_s(reading, options["time"]))
    reading.put("reason", _waits_for(options))
    if "array" in options:
        reading.put("array_tasks", reading.checked(options["array"], array_size(options["array"].value)))
    if "exclusive" in options and options["exclusive"].value in ("", "exclusive"):  # not `user` or `mcs`
        reading.put("exclusive", True)
        reading.warn("--exclusive takes whole nodes: the job holds all their CPUs, whatever it says.", options["exclusive"].line)
    for option in sorted(_NOT_COUNTED & options.keys()):
        reading.warn(f"--{option} is not counted here: CPUs, memory and GPUs may be more than shown.", options[option].line)
    nodes = reading.checked(options["nodes"], _fewest_nodes(options["nodes"].value)) if "nodes" in options else None
    reading.put("req_nodes", nodes)
    tasks = _tasks(reading, options, nodes)
    reading.put("req_gpus", _gpus(reading, options, nodes, tasks))
    reading.put("req_cpus", _cpus(reading, options, tasks))
    reading.put("req_mem_bytes", _memory(reading, options))


def _waits_for(options: Options) -> str | None:
    """What the job will wait for before it is its turn, as Slurm will call it; None for its turn alone."""
    for option, reason in _REASONS.items():
        value = options[option].value.strip().lower() if option in options else None
        if value is not None and not (option == "begin" and value == "now"):
            return reason
    return None


def _number(reading: Reading, options: Options, option: str) -> int | None:
    return reading.checked(options[option], count_of(options[option].value)) if option in options else None


def _time_limit_s(reading: Reading, directive: Directive) -> float | None:
    """`minutes`, `m:s`, `h:m:s`, `d-h`, `d-h:m`, `d-h:m:s`; up to the next minute, as Slurm keeps it. None for no limit."""
    written = directive.value.strip()
    if written in ("0", "-1") or written.upper() in (word.upper() for word in NO_LIMIT):
        return None
    match = _TIME.fullmatch(written)
    if match:
        days, *clock = (int(part) if part else 0 for part in match.groups())
        if match[1] or match[4]:
            hours, minutes, seconds = clock
        else:
            hours, minutes, seconds = 0, clock[0], clock[1]
        total = -(-(days * 86400 + hours * 3600 + minutes * 60 + seconds) // 60) * 60
        if 0 < total < MAX_SECONDS:
            return float(total)
    reading.checked(directive, None)
    return None


def _fewest_nodes(written: str) -> int | None:
    """The least of `4`, `2-4` or `1k`: what the job can start with."""
    first = written.strip().partition("-")[0]
    factor = {"k": 1024, "m": 1024**2}.get(first[-1:].lower(), 1)
    return product(count_of(first[:-1] if factor > 1 else first), factor)


def _tasks(reading: Reading, options: Options, nodes: int | None) -> int | None:
    """Tasks of the job: as many as it says, else per node, else one on each node."""
    tasks = _number(reading, options, "ntasks")
    per_node = _number(reading, options, "ntasks-per-node")
    return tasks if tasks is not None else product(per_node, nodes or 1) if per_node is not None else nodes


def _gpus(reading: Reading, options: Options, nodes: int | None, tasks: int | None) -> int | None:
    factors = (1, nodes or 1, nodes or 1, tasks or 1)
    for option, factor in zip(_GPU_OPTIONS, factors, strict=True):
        if option in options:
            each = _gpus_in_gres(options[option].value) if option == "gres" else _gpus_in_list(options[option].value)
            if reading.checked(options[option], each):
                return product(each, factor)
    return None


def _gpus_in_gres(written: str) -> int | None:
    """GPUs in `gpu:a100:2,nvme:100`; 0 where it asks for other things only."""
    named = [entry.strip().removeprefix("gres/").removeprefix("gres:") for entry in written.split(",")]
    gpus = [entry.removeprefix("gpu").lstrip(":=") for entry in named if re.match(r"gpu(?:$|[:=(])", entry)]
    return _gpus_in_list(",".join(gpus)) if gpus else (0 if written and "$" not in written else None)


def _gpus_in_list(written: str) -> int | None:
    """GPUs in `2`, `a100:2` or `a100:1,v100:2`; a type without a number is one."""
    total = 0
    for entry in written.split(","):
        match = _GPUS.fullmatch(re.sub(r"\([^()]*\)$", "", entry.strip()))
        if not match:
            return None
        total += int(match[1]) if match[1] else 1
    return total


def _cpus(reading: Reading, options: Options, tasks: int | None) -> int | None:
    per_task = _number(reading, options, "cpus-per-task")
    per_gpu = _number(reading, options, "cpus-per-gpu")
    gpus = reading.columns.get("req_gpus")
    if per_gpu is not None and isinstance(gpus, int):
        return product(per_gpu, gpus)
    if "ntasks" not in options and "ntasks-per-gpu" in options and isinstance(gpus, int):
        tasks = product(_number(reading, options, "ntasks-per-gpu"), gpus)
    if tasks is None and per_task is None:
        return None
    return product(tasks or 1, per_task or 1)


def _memory(reading: Reading, options: Options) -> int | None:
    """Memory of the whole job: --mem is per node, the others per CPU and per GPU."""
    forms = [name for name in options if name in _MEMORY_PARTS]
    if not forms:
        return None
    if len(forms) > 1:
        names = " and ".join(f"--{name}" for name in forms)
        reading.warn(f"{names} exclude each other, and sbatch refuses the script; the last is taken.", options[forms[-1]].line)
    directive, parts = options[forms[-1]], _MEMORY_PARTS[forms[-1]]
    written = directive.value.strip()
    each = reading.checked(directive, size_of(written, default_unit="M") if _MEMORY.fullmatch(written) else None)
    if each == 0:
        reading.warn(f"--{forms[-1]}=0 asks for all the memory of a node, however much that is.", directive.line)
    if not each:
        return None
    if parts == "req_gpus" and parts not in reading.columns:
        reading.warn("--mem-per-gpu without a number of GPUs: the memory of the job is not known.", directive.line)
        return None
    many = reading.columns.get(parts)
    return reading.checked(directive, times(each, many if isinstance(many, int) else 1))


# From a change to the line.


def _time_change(_: JobRequest, seconds: float) -> tuple[str, str]:
    return "time", written_clock(-(-seconds // 60) * 60, days=True)


def _memory_change(request: JobRequest, size_bytes: float) -> tuple[str, str]:
    used = [name for name in deciding(request.directives) if name in _MEMORY_PARTS]
    option = used[-1] if used else "mem"
    return option, written_size(share(size_bytes, request.count(_MEMORY_PARTS[option])), units_called="{}")


def _cpus_change(request: JobRequest, cpus: float) -> tuple[str, str]:
    """The option the script counts CPUs with; CPUs of one task where it has none."""
    options = deciding(request.directives)
    per_task = count_of(options["cpus-per-task"].value) if "cpus-per-task" in options else None
    if "cpus-per-gpu" in options:
        return "cpus-per-gpu", f"{share(cpus, request.count('req_gpus'))}"
    if per_task is None and "ntasks" in options:
        return "ntasks", f"{share(cpus, 1)}"
    if per_task is None and "ntasks-per-node" in options:
        return "ntasks-per-node", f"{share(cpus, request.count('req_nodes'))}"
    return "cpus-per-task", f"{share(cpus, request.count('req_cpus') // (per_task or 1))}"


def _gpus_change(request: JobRequest, gpus: float) -> tuple[str, str]:
    """The option the script counts GPUs with, and their type where it names one."""
    options = deciding(request.directives)
    option = next((name for name in _GPU_OPTIONS if name in options), "gpus")
    written = options[option].value if option in options else ""
    each = (_gpus_in_gres(written) if option == "gres" else _gpus_in_list(written)) if written else None
    number = f"{share(gpus, request.count('req_gpus') // each if each else 1)}"
    if option == "gres":
        changed = re.sub(r"\bgpu((?::[A-Za-z][\w.-]*)?)(?:[:=]\d+)?(?=[,(]|$)", rf"gpu\g<1>:{number}", written, count=1)
        return option, written_word(changed) if changed != written else f"gpu:{number}"
    typed = re.match(r"[A-Za-z][\w.-]*(?=:|$)", written)
    return option, f"{typed[0]}:{number}" if typed else number


def resource_request(request: JobRequest) -> ResourceRequest:
    """The request of a Slurm script; what the text does not say, or says in a way that is not read, is None."""
    directives, columns = deciding(request.directives), request.columns
    least, most = _node_range(directives)
    return ResourceRequest(
        partitions=tuple(name for name in str(columns.get("partition") or "").split(",") if name),
        account=_text(columns.get("account")),
        qos=_text(columns.get("qos")),
        time_limit_s=_option_number(columns.get("time_limit_s")),
        no_time_limit="time" in directives and directives["time"].value.strip().upper() in {"0", "-1", *NO_LIMIT},
        min_nodes=least,
        max_nodes=most,
        cpus=_whole(columns.get("req_cpus")) or 1,
        cpus_per_task=_count(directives, "cpus-per-task"),
        tasks_per_node=_count(directives, "ntasks-per-node"),
        mem_per_node_bytes=_size(directives, "mem"),
        mem_per_cpu_bytes=_size(directives, "mem-per-cpu"),
        mem_bytes=_whole(columns.get("req_mem_bytes")),
        gpus=_whole(columns.get("req_gpus")),
        gpus_per_node=_gpus_per_node(directives),
        features=_features(directives),
    )


def _node_range(options: Options) -> tuple[int | None, int | None]:
    """The fewest and the most nodes in `4`, `2-4` or `1k`."""
    if "nodes" not in options:
        return None, None
    least, dash, most = options["nodes"].value.strip().partition("-")
    first = _with_suffix(least)
    return first, _with_suffix(most) if dash else first


def _with_suffix(word: str) -> int | None:
    factor = {"k": 1024, "m": 1024**2}.get(word[-1:].lower(), 1)
    count = count_of(word[:-1] if factor > 1 else word)
    return None if count is None else count * factor


def _gpus_per_node(options: Options) -> dict[str, int]:
    """GPUs of one node by type; those that are asked for per job or per task may lie anywhere."""
    gpus: dict[str, int] = {}
    if "gpus-per-node" in options:
        for entry in options["gpus-per-node"].value.split(","):
            match = _TYPED.fullmatch(entry.strip())
            if match:
                gpus[match[1] or ""] = gpus.get(match[1] or "", 0) + int(match[2] or match[3] or 1)
    elif "gres" in options:
        for entry in re.sub(r"\([^()]*\)", "", options["gres"].value).split(","):
            match = _GPU.fullmatch(entry.strip())
            if match:
                gpus[match[1] or ""] = gpus.get(match[1] or "", 0) + int(match[2] or 1)
    return {name: count for name, count in gpus.items() if count}


def _features(options: Options) -> tuple[str, ...]:
    written = options["constraint"].value.strip() if "constraint" in options else ""
    return tuple(written.split("&")) if _FEATURES.fullmatch(written) else ()


def _count(options: Options, option: str) -> int | None:
    return count_of(options[option].value) if option in options else None


def _size(options: Options, option: str) -> int | None:
    return (size_of(options[option].value.strip(), default_unit="M") or None) if option in options else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _option_number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
