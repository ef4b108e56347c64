"""Submit description files of HTCondor: `name = value` lines up to `queue` -> what each job asks for, and back.

Macros `$(x)` are put in from the file's own assignments; functions, includes and conditions are never evaluated.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Final

from stormpetrel.sources.job_rows import real
from stormpetrel.sources.scripts.request import (
    MAX_SECONDS,
    Directive,
    JobRequest,
    Reading,
    count_of,
    no_such_change,
    product,
    share,
    shown_word,
    size_of,
    wanted_number,
    wanted_word,
    written_size,
)

# Names have no case and, for most commands, no need of their underscores. A leading + (or My.) is an attribute of the job.
_TEXTS: Final = {
    "executable": "script_path", "initialdir": "work_dir", "accountinggroup": "account", "batchname": "job_name",
    "jobbatchname": "job_name", "+jobbatchname": "job_name", "+accountinggroup": "account", "+acctgroup": "account",
    "+projectname": "account",
}  # fmt: skip
# Sites name the limit as they like; the unit goes with the name.
_LIMIT_UNIT_S: Final = {
    "allowedjobduration": 1, "allowedexecuteduration": 1, "+maxruntime": 1, "+requestruntime": 1, "+requestwalltime": 1,
    "+maxwalltime": 60, "+maxwalltimemins": 60, "+maxruntimehours": 3600,
}  # fmt: skip
_FLAVOURS_S: Final = {
    "espresso": 1200, "microcentury": 3600, "longlunch": 7200, "workday": 28800, "tomorrow": 86400, "testmatch": 259200,
    "nextweek": 604800,
}  # fmt: skip
_COUNTS: Final = {"requestcpus": "req_cpus", "requestgpus": "req_gpus"}
_SIZES: Final = {"requestmemory": ("req_mem_bytes", "M"), "requestdisk": ("req_disk_bytes", "K")}
_COLUMNS: Final = {
    **_TEXTS, **_COUNTS, **dict.fromkeys(_LIMIT_UNIT_S, "time_limit_s"), "+jobflavour": "time_limit_s",
    **{name: column for name, (column, _) in _SIZES.items()}, "queue": "array_tasks",
}  # fmt: skip
_OTHER_COMMANDS: Final = frozenset(
    name.replace("_", "")
    for name in (
        "accounting_group_user arguments batch_id batch_project checkpoint_exit_code concurrency_limits concurrency_limits_expr "
        "container_image copy_to_spool core_size cron_day_of_month cron_day_of_week cron_hour cron_minute cron_month "
        "cuda_version deferral_prep_time deferral_time deferral_window description docker_image docker_network_type "
        "dont_encrypt_input_files dont_encrypt_output_files email_attributes encrypt_execute_directory encrypt_input_files "
        "encrypt_output_files env environment erase_output_and_error_on_restart error err getenv gpus_maximum_capability "
        "gpus_minimum_capability gpus_minimum_memory gpus_minimum_runtime grid_resource hold hold_kill_sig hook_keyword in "
        "input job_ad_information_attrs job_lease_duration job_machine_attrs job_max_vacate_time keep_claim_idle kill_sig "
        "kill_sig_timeout leave_in_queue load_profile log log_xml machine_count manifest manifest_dir match_list_length "
        "max_idle max_job_retirement_time max_materialize max_retries max_transfer_input_mb max_transfer_output_mb "
        "next_job_start_delay nice_user noop_job noop_job_exit_code notification notify_user on_exit_hold on_exit_hold_reason "
        "on_exit_hold_subcode on_exit_remove on_exit_remove_reason output output_destination out periodic_hold "
        "periodic_hold_reason periodic_hold_subcode periodic_release periodic_remove periodic_remove_reason periodic_vacate "
        "preserve_relative_paths prio priority rank remote_initialdir remove_kill_sig require_gpus requirements retry_until "
        "run_as_owner should_transfer_files skip_filechecks stack_size starter_debug starter_log stream_error stream_input "
        "stream_output submit_event_notes submit_event_user_notes success_exit_code suspend_job_at_exec "
        "transfer_checkpoint_files transfer_container transfer_error transfer_executable transfer_input transfer_input_files "
        "transfer_output transfer_output_files transfer_output_remaps transfer_plugins universe use_oauth_services "
        "use_x509userproxy want_graceful_removal want_io_proxy when_to_transfer_output x509userproxy"
    ).split()
)
_ASSIGNMENT: Final = re.compile(r"[ \t]*(\+?[A-Za-z_][\w.]*)[ \t]*=[ \t]*(.*)", re.ASCII | re.DOTALL)
_BLOCK: Final = re.compile(r"[ \t]*([A-Za-z_][\w.]*)[ \t]*@=[ \t]*(\w+)[ \t]*", re.ASCII)
_QUEUE: Final = re.compile(r"[ \t]*queue(?:[ \t]+(.*)|[ \t]*)", re.IGNORECASE | re.DOTALL)
_MACRO: Final = re.compile(r"\$\(([\w.]+)(?::([^()$]*))?\)", re.ASCII)
_ITEMS: Final = re.compile(r"(\d{0,9})[ \t]*[\w, \t]*?\bin[ \t]*\(([^()]*)\)", re.ASCII | re.IGNORECASE)
_MAX_LETTERS: Final = 4096
_MAX_DEPTH: Final = 16

Line = tuple[int, str]


def read_condor(reading: Reading, lines: list[str]) -> None:
    """Fill a reading from the lines of a submit description, up to its first `queue`."""
    macros: dict[str, str] = {}
    settings: dict[str, Directive] = {}
    queue: Line | None = None
    for number, line in _statements(reading, lines):
        if queue is not None:
            if _QUEUE.fullmatch(line):
                reading.warn("another queue statement: only the jobs of the first are looked at.", number)
            continue
        if _QUEUE.fullmatch(line):
            queue = (number, line)
        else:
            _assign(reading, number, line, macros, settings)
    _warn_of_unused(reading, settings, lines)
    reading.directives.extend(sorted(settings.values(), key=lambda directive: directive.line))
    _fill(reading, settings, macros)
    _fill_queue(reading, queue, macros)


def condor_line(request: JobRequest, column: str, value: object) -> str:
    """The line of the submit description that gives a column another value, under the name that the file uses for it."""
    used = request.last(column)
    written = _CHANGES.get(column)
    if written is None:
        raise no_such_change("condor", column, _CHANGES)
    usual, write = written
    name = used.option if used else usual
    return f"queue {write(name, value)}" if column == "array_tasks" else f"{name} = {write(name, value)}"


def resembles_submit_description(lines: list[str]) -> bool:
    """Whether lines are those of a submit description: a `queue`, or at least two of its commands, and no shell script."""
    if lines[0].startswith("#!"):
        return False
    assignments = (_ASSIGNMENT.fullmatch(line) for line in lines)
    commands = sum(key_of(match[1]) in _COLUMNS.keys() | _OTHER_COMMANDS for match in assignments if match)
    return commands >= 2 or (commands == 1 and any(_QUEUE.fullmatch(line) for line in lines))


def key_of(name: str) -> str:
    """The one spelling of a command or attribute: `Request_Memory` and `RequestMemory`, `+X` and `My.X`."""
    name = name.lower()
    return f"+{name[3:]}" if name.startswith("my.") else name.replace("_", "")


def _statements(reading: Reading, lines: list[str]) -> Iterator[Line]:
    """Whole statements: continued lines joined, comments, conditions and included files left out."""
    depth, first, held = 0, 0, ""
    closing = ""
    for number, line in enumerate(lines, start=1):
        if closing:
            closing = "" if line.strip().lower() == closing else closing
            continue
        if line.lstrip().startswith("#"):
            continue
        first = number if not held else first
        if line.rstrip().endswith("\\") and len(held) < _MAX_LETTERS:
            held += line.rstrip()[:-1]
            continue
        statement, held = (held + line).strip(), ""
        word = re.split(r"[\s:(=]", statement, maxsplit=1)[0].lower()
        block = _BLOCK.fullmatch(statement[:_MAX_LETTERS])
        if block:
            closing = f"@{block[2].lower()}"
        elif statement.lower().endswith("from (") and word == "queue":
            closing = ")"
            yield first, statement
        elif word in ("if", "elif", "else", "endif"):
            depth = _condition(reading, first, word, depth)
        elif statement and not depth:
            yield first, statement
    if held.strip() and not depth:
        yield first, held.strip()


def _condition(reading: Reading, number: int, word: str, depth: int) -> int:
    """How deep in conditions the next line is; said once for each outermost `if`."""
    if word == "if":
        if not depth:
            reading.warn("a condition: what stands between if and endif is not looked at.", number)
        return depth + 1
    return max(0, depth - 1) if word == "endif" else depth


def _assign(reading: Reading, number: int, line: str, macros: dict[str, str], settings: dict[str, Directive]) -> None:
    match = _ASSIGNMENT.fullmatch(line)
    if not match:
        word = line.split(maxsplit=1)[0].lower().partition(":")[0]
        why = "other files are not read" if word in ("include", "use") else "it is no assignment"
        reading.warn(f"{shown_word(line)} is left out: {why}.", number)
        return
    name, value = match[1], match[2].strip()
    before = macros.get(name.lower(), "")
    if len(value) + len(before) <= _MAX_LETTERS:  # `x = $(x) more` means the x of before, at once
        value = re.sub(rf"\$\({re.escape(name)}\)", lambda _: before, value, count=1, flags=re.IGNORECASE)
    macros[name.lower()] = value
    key = key_of(name)
    settings[key] = Directive(number, name, value, _COLUMNS.get(key))


def _warn_of_unused(reading: Reading, settings: dict[str, Directive], lines: list[str]) -> None:
    """As condor_submit does: a name that is no command, and that no macro uses, is likely a slip of the pen."""
    used = {name.lower() for line in lines for name, _ in _MACRO.findall(line[:_MAX_LETTERS])}
    for key, directive in settings.items():
        is_known = key.startswith("+") or key in _COLUMNS or key in _OTHER_COMMANDS
        if not is_known and directive.option.lower() not in used:
            reading.warn(f"unknown option {shown_word(directive.option)}, and no macro uses it; it is left out.", directive.line)


def _expanded(reading: Reading, directive: Directive, macros: dict[str, str]) -> str | None:
    """The value with its macros put in; None where that takes more than the file says."""
    value = directive.value
    for _ in range(_MAX_DEPTH):
        if len(value) > _MAX_LETTERS or "$" not in value:
            break
        value = _MACRO.sub(lambda macro: macros.get(macro[1].lower(), macro[2] or macro[0])[:_MAX_LETTERS], value)
    if "$" in value or len(value) > _MAX_LETTERS:
        what = shown_word(f"{directive.option} = {directive.value}")
        reading.warn(f"{what} is left out: its macros are not simple ones of this file.", directive.line)
        return None
    return value.strip()


def _fill(reading: Reading, settings: dict[str, Directive], macros: dict[str, str]) -> None:
    for key, directive in settings.items():
        column = _COLUMNS.get(key)
        value = _expanded(reading, directive, macros) if column else None
        if column is None or value is None:
            continue
        if column in _TEXTS.values():
            reading.put(column, value.strip('"') or None)
        elif key == "requestgpus" and value == "0":
            reading.put(column, 0)
        else:
            reading.put(column, reading.checked(directive, _measured(key, value.strip('"'))))


def _measured(key: str, value: str) -> int | float | None:
    """A count, a size or a limit; None for expressions, which are not evaluated."""
    if key in _COUNTS:
        return count_of(value)
    if key in _SIZES:
        return size_of(value, default_unit=_SIZES[key][1]) or None
    if key == "+jobflavour":
        return _FLAVOURS_S.get(value.lower())
    factors = [real(part.strip()) for part in value.split("*")] if len(value) < 80 else [None]  # people write 4 * 60 * 60
    seconds = math.prod(factor or 0.0 for factor in factors) * _LIMIT_UNIT_S[key]
    return seconds if 0 < seconds < MAX_SECONDS else None


def _fill_queue(reading: Reading, queue: Line | None, macros: dict[str, str]) -> None:
    if queue is None:
        reading.warn("there is no queue statement, and condor_submit refuses the file without one.")
        return
    match = _QUEUE.fullmatch(queue[1])
    assert match is not None
    directive = Directive(queue[0], "queue", (match[1] or "").strip(), "array_tasks")
    reading.directives.append(directive)
    written = _expanded(reading, directive, macros) if "$" in directive.value.partition("(")[0] else directive.value
    if not written:
        return
    items = _ITEMS.fullmatch(written[:_MAX_LETTERS])
    tasks = product(len(re.findall(r"[^\s,]+", items[2])), int(items[1] or 1)) if items else count_of(written)
    if tasks is None:
        reading.warn(f"how many jobs {shown_word(queue[1])!r} makes is not known from the file.", queue[0])
    elif tasks > 1:
        reading.put("array_tasks", tasks)


# From a change to the line.


def _written_limit(name: str, value: object) -> str:
    seconds = wanted_number("time_limit_s", value)
    if key_of(name) == "+jobflavour":
        long_enough = [flavour for flavour, limit in _FLAVOURS_S.items() if limit >= seconds]
        return f'"{long_enough[0] if long_enough else "nextweek"}"'
    return f"{share(seconds, _LIMIT_UNIT_S.get(key_of(name), 1))}"


def _written_size(_: str, value: object) -> str:
    return written_size(share(wanted_number("req_mem_bytes", value), 1), units_called=" {}B")


def _written_count(_: str, value: object) -> str:
    return f"{share(wanted_number('count', value), 1)}"


def _written_text(name: str, value: object) -> str:
    word = wanted_word(name, value)
    return '"{}"'.format(word.replace('"', "'")) if name.startswith("+") else word


_CHANGES: Final[dict[str, tuple[str, Callable[[str, object], str]]]] = {
    "time_limit_s": ("allowed_job_duration", _written_limit),
    "req_mem_bytes": ("request_memory", _written_size),
    "req_disk_bytes": ("request_disk", _written_size),
    "req_cpus": ("request_cpus", _written_count),
    "req_gpus": ("request_gpus", _written_count),
    "array_tasks": ("queue", _written_count),
    "account": ("accounting_group", _written_text),
    "job_name": ("batch_name", _written_text),
    "work_dir": ("initialdir", _written_text),
    "script_path": ("executable", _written_text),
}
