"""Job scripts of PBS and Torque: `#PBS` lines -> what the job asks for, and back: a changed value -> the line to write.

`-l select=2:ncpus=16:mem=32gb` (PBS) and `-l nodes=2:ppn=16` (Torque) -> counts and memory of the whole job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from stormpetrel.sources.job_rows import clock_s, pbs_size_bytes, times, whole
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
    warn_of_ignored_lines,
    written_clock,
    written_size,
    written_word,
)

PREFIX: Final = "#PBS"
_COLUMNS: Final = {
    "-N": "job_name", "-q": "partition", "-A": "account", "-P": "account", "-d": "work_dir", "-w": "work_dir",
    "-J": "array_tasks", "-t": "array_tasks", "-l walltime": "time_limit_s", "-l qos": "qos", "-l nodect": "req_nodes",
    **dict.fromkeys(("-l ncpus", "-l procs", "-l select", "-l nodes"), "req_cpus"),
    **dict.fromkeys(("-l ngpus", "-l gpus"), "req_gpus"),
    **dict.fromkeys(("-l mem", "-l pmem"), "req_mem_bytes"),
}  # fmt: skip
_TEXTS: Final = {"job_name": ("-N",), "partition": ("-q",), "account": ("-A", "-P"), "work_dir": ("-d", "-w"), "qos": ("-l qos",)}
_WITH_VALUE: Final = "aAbcCdDeFjJkKlLmMNopPqrRStTuvwW"
_WITHOUT_VALUE: Final = "EfGhInVxXz"
_OTHER_RESOURCES: Final = frozenset(
    "place vmem pvmem cput pcput file nice arch host vnode software feature filesystems naccesspolicy partition min_walltime "
    "max_walltime soft_walltime mpiprocs ompthreads other advres gres tmpfs scratch ddisk depend".split()
)
_CPUS: Final = ("ncpus", "ppn")
_GPUS: Final = ("ngpus", "gpus")
_MAX_CHUNKS: Final = 4096

Chunk = tuple[int, str, str]  # how many, how that is written (`2`, or the name of a host), and what each is: `ncpus=16:mem=32gb`


def read_pbs(reading: Reading, lines: list[str]) -> None:
    """Fill a reading from the lines of a job script."""
    lines = ["#", *lines[1:]] if lines[0].startswith(":") else lines  # Torque skips such a first line
    directives = directive_lines(lines, PREFIX)
    warn_of_ignored_lines(reading, lines, directives, PREFIX, "PBS")
    if not directives.early:
        reading.warn("no #PBS lines: the site's defaults apply")
    for number, line in directives.early:
        try:
            words = arguments_of(line, as_sbatch=False)
        except ValueError as error:
            reading.warn(f"{error}; the line is left out: {shown_word(PREFIX + line)}", number)
            continue
        reading.directives.extend(_directives(reading, number, words))
    _fill(reading, {directive.option: directive for directive in reading.directives})


def pbs_line(request: JobRequest, column: str, value: object) -> str:
    """The `#PBS` line that gives a column another value, in the form (chunks, nodes or totals) that the script uses."""
    if column in _TEXTS:
        used = next((d.option for d in reversed(request.directives) if d.option in _TEXTS[column]), _TEXTS[column][0])
        return f"{PREFIX} {used}{'=' if used.startswith('-l') else ' '}{written_word(wanted_word(column, value))}"
    changes: dict[str, Callable[[JobRequest, float], str]] = {
        "time_limit_s": lambda _, number: f"walltime={written_clock(number, days=False)}",
        "req_mem_bytes": _memory_change,
        "req_cpus": lambda job, number: _count_change(job, "req_cpus", _CPUS, number),
        "req_gpus": lambda job, number: _count_change(job, "req_gpus", _GPUS, number),
        "req_nodes": _nodes_change,
    }
    if column not in changes:
        raise no_such_change("pbs", column, {*changes, *_TEXTS})
    return f"{PREFIX} -l {changes[column](request, wanted_number(column, value))}"


def _directives(reading: Reading, line: int, words: list[str]) -> Iterator[Directive]:
    waiting = iter(words)
    for word in waiting:
        letter = word[1:2]
        if not word.startswith("-") or not letter:
            reading.warn(f"{shown_word(word)!r} is no option; it is left out.", line)
        elif letter in _WITH_VALUE:
            value = word[2:] or next(waiting, "")
            if not value:
                reading.warn(f"{word} has no value, and qsub refuses the script.", line)
            elif letter == "l":
                yield from _resources(reading, line, value)
            else:
                yield Directive(line, f"-{letter}", value, _COLUMNS.get(f"-{letter}"))
        elif letter in _WITHOUT_VALUE:
            yield Directive(line, word[:2], "", None)
        else:
            reading.warn(f"unknown option {shown_word(word)}; the rest is read without it.", line)


def _resources(reading: Reading, line: int, written: str) -> Iterator[Directive]:
    for pair in written.split(","):
        name, equals, value = pair.strip().partition("=")
        option = f"-l {name}"
        if not equals or not value:
            reading.warn(f"-l {shown_word(pair)} has no value; it is left out.", line)
        elif option in _COLUMNS or name in _OTHER_RESOURCES:
            yield Directive(line, option, value, _COLUMNS.get(option))
        else:
            reading.warn(f"unknown resource {shown_word(name)}; the rest is read without it.", line)


def _fill(reading: Reading, directives: dict[str, Directive]) -> None:
    for column, options in _TEXTS.items():
        reading.put(column, next((directives[option].value for option in options if option in directives), None))
    queue = reading.columns.get("partition")
    if isinstance(queue, str):
        reading.columns["partition"] = queue.partition("@")[0] or queue  # `queue@server`
    for option in ("-J", "-t"):
        if option in directives:
            reading.put("array_tasks", reading.checked(directives[option], array_size(directives[option].value)))
    if "-l walltime" in directives:
        reading.put("time_limit_s", reading.checked(directives["-l walltime"], _limit_s(directives["-l walltime"].value)))
    chunks = _chunks(reading, directives)
    totals = {name: _number(reading, directives, f"-l {name}") for name in ("ncpus", "procs", "ngpus", "gpus", "nodect")}
    cpus = _total(chunks, _CPUS, default=1)
    reading.put("req_nodes", _whole_count(sum(many for many, _, _ in chunks)) or totals["nodect"])
    # Torque may say ncpus=1 next to nodes=2:ppn=8.
    reading.put("req_cpus", max((n for n in (cpus, totals["ncpus"], totals["procs"]) if n), default=None))
    reading.put("req_gpus", totals["ngpus"] or totals["gpus"] or _total(chunks, _GPUS, default=0))
    reading.put("req_mem_bytes", _memory(reading, directives, chunks))


def _number(reading: Reading, options: dict[str, Directive], option: str) -> int | None:
    return reading.checked(options[option], count_of(options[option].value)) if option in options else None


def _limit_s(written: str) -> float | None:
    seconds = clock_s(written)
    return seconds if seconds is not None and 0 < seconds < MAX_SECONDS else None


def _spec(options: dict[str, Directive]) -> Directive | None:
    return options.get("-l select") or options.get("-l nodes")


def _chunks(reading: Reading, options: dict[str, Directive]) -> list[Chunk]:
    """The chunks of `2:ncpus=4+1:ncpus=8`, or of Torque's `2:ppn=4+fast:ppn=8`; a name stands for one node."""
    directive = _spec(options)
    if directive is None:
        return []
    chunks = chunks_of(directive.value)
    reading.checked(directive, chunks)
    return chunks or []


def chunks_of(spec: str) -> list[Chunk] | None:
    """The chunks of a `select` or `nodes` request; None where it cannot be read."""
    chunks: list[Chunk] = []
    for part in spec.split("+")[:_MAX_CHUNKS]:
        head, _, rest = part.partition(":")
        if not head or "$" in part:
            return None
        if head[0].isdigit():
            many = count_of(head)
            if many is None:
                return None
            chunks.append((many, head, rest))
        else:  # a host, or `ncpus=4` with its number left out
            chunks.append((1, "1", part) if "=" in head else (1, head, rest))
    return chunks


def _entry(resources: str, names: tuple[str, ...]) -> str | None:
    amounts = dict(entry.split("=", 1) for entry in resources.split(":") if "=" in entry)
    return next((amounts[name] for name in names if name in amounts), None)


def _total(chunks: list[Chunk], names: tuple[str, ...], *, default: int) -> int | None:
    total = 0
    for many, _, resources in chunks:
        written = _entry(resources, names)
        each = default if written is None else whole(written)
        total += times(each, many) or 0
    return _whole_count(total)


def _whole_count(total: int) -> int | None:
    return total if 0 < total <= MAX_COUNT else None


def _memory(reading: Reading, options: dict[str, Directive], chunks: list[Chunk]) -> int | None:
    """Memory of the whole job: `-l mem`, else the sum over the chunks, else `-l pmem` for each process."""
    if "-l mem" in options:
        return reading.checked(options["-l mem"], pbs_size_bytes(options["-l mem"].value) or None)
    written = [(many, _entry(resources, ("mem",))) for many, _, resources in chunks]
    if any(size is not None for _, size in written):
        sizes = [times(pbs_size_bytes(size), many) for many, size in written if size is not None]
        total = sum(size or 0 for size in sizes) if None not in sizes else 0
        directive = _spec(options)
        assert directive is not None
        return reading.checked(directive, total if 0 < total < 2**62 else None)
    if "-l pmem" in options:
        cpus = whole(reading.columns.get("req_cpus")) or 1
        return reading.checked(options["-l pmem"], times(pbs_size_bytes(options["-l pmem"].value) or None, cpus))
    return None


# From a change to the line.


def _form(request: JobRequest) -> Directive | None:
    return _spec({directive.option: directive for directive in request.directives})


def _rewritten(spec: Directive, names: tuple[str, ...], written: Callable[[str | None], str]) -> str:
    """The chunks with one resource of each written anew; `written` is given what it was."""
    usual = names[-1] if spec.option == "-l nodes" else names[0]  # ncpus and ngpus for PBS, ppn and gpus for Torque
    parts = []
    for _, head, resources in chunks_of(spec.value) or [(1, "1", "")]:
        entries = [entry for entry in resources.split(":") if entry]
        name = next((entry.partition("=")[0] for entry in entries if entry.partition("=")[0] in names), usual)
        changed = f"{name}={written(_entry(resources, names))}"
        kept = [changed if entry.startswith(f"{name}=") else entry for entry in entries]
        parts.append(":".join([head, *kept, *([] if changed in kept else [changed])]))
    return f"{spec.option[3:]}={'+'.join(parts)}"


def _count_change(request: JobRequest, column: str, names: tuple[str, ...], number: float) -> str:
    spec, used = _form(request), request.last(column)
    total = used.option[3:] if used is not None and used.option not in ("-l select", "-l nodes") else None
    if spec is None or total:
        return f"{total or names[0]}={share(number, 1)}"
    if column not in request.columns:
        return _rewritten(spec, names, lambda _: f"{share(number, request.count('req_nodes'))}")
    return _rewritten(spec, names, lambda was: f"{share(number * (whole(was) or 1), request.count(column))}")


def _memory_change(request: JobRequest, size_bytes: float) -> str:
    spec, used = _form(request), request.last("req_mem_bytes")
    if used is not None and used.option == "-l pmem":
        return f"pmem={_size(share(size_bytes, request.count('req_cpus')))}"
    if spec is None or used is not None or spec.option == "-l nodes":
        return f"mem={_size(share(size_bytes, 1))}"
    now = request.columns.get("req_mem_bytes")
    if not isinstance(now, int) or now < 1:
        return _rewritten(spec, ("mem",), lambda _: _size(share(size_bytes, request.count("req_nodes"))))
    scale = size_bytes / now
    return _rewritten(spec, ("mem",), lambda was: _size(share((pbs_size_bytes(was) or 1) * scale, 1)))


def _nodes_change(request: JobRequest, number: float) -> str:
    spec = _form(request)
    chunks = chunks_of(spec.value) if spec else None
    if spec is None or not chunks:
        return f"select={share(number, 1)}"
    now = sum(many for many, _, _ in chunks)
    parts = [f"{share(many * number, now)}{':' if resources else ''}{resources}" for many, _, resources in chunks]
    return f"{spec.option[3:]}={'+'.join(parts)}"


def _size(size_bytes: int) -> str:
    return written_size(size_bytes, units_called="{}b")
