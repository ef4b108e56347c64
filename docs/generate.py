"""The parts of the pages that are made from the code: settings, commands, columns, states, errors.

code -> PARTS[name]() -> Markdown. A page asks for a part by an empty fenced block, ```{generated} NAME; `expand` puts it there.
"""

from __future__ import annotations

import ast
import re
import typing
from collections.abc import Callable, Iterable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any, Final

import measured_alarms
import measured_events
import measured_jobs
import measured_scale
import measured_synth
import measured_synth_private
import measured_traces
import polars as pl
import typer.main
from markdown_tables import code, table
from pydantic_core import PydanticUndefined

from stormpetrel import errors
from stormpetrel.config import Settings, _toml_value, settings_as_toml, table_type
from stormpetrel.faces.cli.main import app
from stormpetrel.records import doubts, jobs, states
from stormpetrel.records.states import DEFAULT_FAILURE_STATES, FINISHED, JobState
from stormpetrel.sources.formats import FORMATS, ReadOptions, open_source
from stormpetrel.sources.slurm import live as slurm_live
from stormpetrel.sources.slurm.json_jobs import fields_of
from stormpetrel.sources.tables import column_map
from stormpetrel.store.quarantine import QUARANTINE

DOCS: Final = Path(__file__).parent
SOURCE: Final = DOCS.parent / "src" / "stormpetrel"
MARK: Final = re.compile(r"^```\{generated\} ([a-z-]+)\n```$", re.MULTILINE)

STATE_MEANING: Final = {
    JobState.COMPLETED: "ended by itself with exit code 0",
    JobState.FAILED: "ended by itself with another exit code, or by a signal",
    JobState.TIMEOUT: "ended by the scheduler at its time limit",
    JobState.OUT_OF_MEMORY: "ended because it used more memory than it had",
    JobState.NODE_FAIL: "ended because a node failed under it",
    JobState.CANCELLED: "removed by its user or an administrator",
    JobState.PREEMPTED: "ended to make room for another job",
    JobState.DEADLINE: "ended because it could not meet its deadline",
    JobState.BOOT_FAIL: "its node did not boot",
    JobState.REVOKED: "taken over by another cluster of a federation",
    JobState.REQUEUED: "this run ended and the job went back to the queue; the next run is a row of its own",
    JobState.RUNNING: "has its nodes: starting, running or cleaning up",
    JobState.PENDING: "waits in the queue",
    JobState.SUSPENDED: "stopped for now, keeps its place",
    JobState.RESIZING: "is changing its size",
    JobState.HELD: "waits and will not start until it is released",
    JobState.UNKNOWN: "the source itself says that it does not know",
    JobState.VANISHED: "was open, and twice the scheduler did not know it any more; nobody says how it ended",
}


def expand(text: str) -> str:
    """A page with every part that it asks for in its place."""
    return MARK.sub(lambda found: PARTS[found.group(1)](), text)


def page(name: str) -> str:
    """A page of the docs as its reader sees it."""
    return expand((DOCS / name).read_text(encoding="utf-8"))


# --- settings -----------------------------------------------------------------------------------------------------------------


def settings_reference() -> str:
    """Every section and key of site.toml."""
    parts = []
    for name, info in Settings.model_fields.items():
        section: Any = info.annotation
        rows = [
            (code(f"{name}.{key}"), _type_name(field.annotation), code(_toml(section, key)), _meaning(field))
            for key, field in section.model_fields.items()
        ]
        parts += [f"## \\[{name}\\]", section.__doc__.strip(), table(("key", "type", "default", "meaning"), rows)]
        parts += [
            _table_keys(f"{name}.{key}", inner)
            for key, field in section.model_fields.items()
            if (inner := table_type(field.annotation))
        ]
    return "\n\n".join(parts)


def _table_keys(name: str, model: Any) -> str:
    """The keys of each table of a list of tables."""
    rows = (
        (
            code(f"{name}.{key}"),
            _type_name(field.annotation),
            "must be given" if field.is_required() else code(_toml_value(field.default)),
            _meaning(field),
        )
        for key, field in model.model_fields.items()
    )
    return f"Each table `[[{name}]]`:\n\n" + table(("key", "type", "default", "meaning"), rows)


def settings_file() -> str:
    """The site.toml that `init` writes, with the defaults."""
    return f"```toml\n{settings_as_toml(Settings()).rstrip()}\n```"


def _type_name(annotation: Any) -> str:
    names = {str: "text", int: "whole number", float: "number", bool: "true or false"}
    if typing.get_origin(annotation) is typing.Literal:
        return " or ".join(code(word) for word in typing.get_args(annotation))
    if table_type(annotation):
        return "tables"
    if typing.get_origin(inner := (typing.get_args(annotation) or (None,))[0]) is typing.Literal:
        return f"list of {_type_name(inner)}"
    return names.get(annotation) or f"list of {names[typing.get_args(annotation)[0]]}"


def _toml(section: Any, key: str) -> str:
    if table_type(section.model_fields[key].annotation):
        return "[]"
    text = settings_as_toml(Settings())
    found = re.search(rf"^\[{_section_name(section)}\].*?^{key} = (.*?)$", text, re.MULTILINE | re.DOTALL)
    assert found
    return found.group(1)


def _section_name(section: Any) -> str:
    return next(name for name, info in Settings.model_fields.items() if info.annotation is section)


def _meaning(field: Any) -> str:
    limits = []
    for bound in field.metadata:
        for name, words in (("ge", "at least"), ("gt", "more than"), ("le", "at most"), ("lt", "less than")):
            value = getattr(bound, name, PydanticUndefined)
            limits += [f"{words} {value:g}"] if isinstance(value, int | float) else []
    return field.description + (f" ({', '.join(limits)})" if limits else "")


# --- commands -----------------------------------------------------------------------------------------------------------------


def commands() -> Iterator[tuple[str, Any]]:
    """Every command and group as (words, command), the program itself first."""

    def walk(words: str, command: Any) -> Iterator[tuple[str, Any]]:
        yield words, command
        for name, child in getattr(command, "commands", {}).items():
            yield from walk(f"{words} {name}", child)

    yield from walk("stormpetrel", typer.main.get_command(app))


def command_reference() -> str:
    """Every command with its help, arguments and options."""
    return "\n\n".join(_command(words, command) for words, command in commands())


def _command(words: str, command: Any) -> str:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    children = list(getattr(command, "commands", {}))
    usage = [words, *(["[OPTIONS]"] if options else []), *(_argument_usage(argument) for argument in arguments)]
    usage += ["COMMAND …"] if children else []
    parts = [f"## {words}", " ".join((command.help or "").split()), f"```text\n{' '.join(usage)}\n```"]
    if children:
        parts.append("Commands: " + ", ".join(code(f"{words} {child}") for child in children) + ".")
    rows = [(code(_argument_usage(argument)), _default(argument), argument.help or "") for argument in arguments]
    rows += [(_option_names(option), _default(option), _option_help(option)) for option in options if not option.hidden]
    if rows:
        parts.append(table(("argument or option", "default", "meaning"), rows))
    return "\n\n".join(parts)


def _argument_usage(argument: Any) -> str:
    name = argument.name.upper()
    name = f"{name}…" if argument.nargs == -1 else name
    return name if argument.required else f"[{name}]"


def _option_names(option: Any) -> str:
    value = "" if option.is_flag else f" {option.name.upper().removesuffix('_NAME')}"
    return " / ".join(code(name + value) for name in (*option.opts, *option.secondary_opts))


def _option_help(option: Any) -> str:
    return f"{option.help or ''} Environment: `{option.envvar}`." if option.envvar else option.help or ""


def _default(parameter: Any) -> str:
    if isinstance(parameter.show_default, str):
        return parameter.show_default
    if parameter.default in (None, "", False) or not parameter.show_default:
        return ""
    if parameter.default is True:
        return code(parameter.opts[0])
    return code(parameter.default)


# --- the store ----------------------------------------------------------------------------------------------------------------


def _columns(columns: Iterable[jobs.Column]) -> str:
    rows = ((code(column.name), _dtype(column.dtype), column.meaning) for column in columns)
    return table(("column", "type", "meaning"), rows)


def _dtype(dtype: Any) -> str:
    if isinstance(dtype, pl.Datetime):
        return "time, UTC, µs"
    if isinstance(dtype, pl.List):
        return "list of structs"
    if isinstance(dtype, pl.Map):
        return "map, text to text"
    names = {pl.String: "text", pl.Int64: "int64", pl.Int32: "int32", pl.Float64: "float64", pl.Int8: "int8"}
    return next(name for known, name in names.items() if dtype == known)


def quarantine_columns() -> str:
    """The columns of the quarantine table."""
    meanings = {
        "id": "digest of source, line, rule and text: a record is kept once however often it is read",
        "source": "file or address the record came from",
        "line": "line of the file; number of the record in JSON",
        "rule": "the rule that refused it, see below",
        "reason": "the same in a sentence, with the value where there is one",
        "raw": "the beginning of the record, at most 4096 bytes, control characters escaped; null with pseudonyms",
    }
    return table(
        ("column", "type", "meaning"),
        ((code(name), _dtype(dtype), meanings[name]) for name, dtype in QUARANTINE.schema.items()),
    )


def state_table() -> str:
    """Every state of the common vocabulary."""
    rows = (
        (
            code(state.value),
            "yes" if state in FINISHED else "no",
            "yes" if state in DEFAULT_FAILURE_STATES else "no",
            STATE_MEANING[state],
        )
        for state in JobState
    )
    return table(("state", "finished", "failure by default", "meaning"), rows)


def foreign_states() -> str:
    """Which labels of which scheduler become which state."""
    labels: dict[str, dict[JobState, list[str]]] = {}
    slurm = {**states._SLURM_LONG, **states._SLURM_SHORT}
    for name, known in (("Slurm", slurm), ("SWF status", states._SWF_STATUS), ("HTCondor JobStatus", states._CONDOR_STATUS)):
        for label, state in known.items():
            labels.setdefault(name, {}).setdefault(state, []).append(code(label))
    for status, state in states._PBS_NEGATIVE_EXIT.items():
        labels.setdefault("PBS Exit_status", {}).setdefault(state, []).append(code(status))
    for label, state in {**states._LSF_STATUS, **states._LSF_REASON_STATES}.items():
        labels.setdefault("LSF", {}).setdefault(state, []).append(code(label))
    rows = (
        (code(state.value), *(", ".join(found.get(state, ())) for found in labels.values()))
        for state in JobState
        if any(state in found for found in labels.values())
    )
    return table(("state", *labels), rows)


# --- sources ------------------------------------------------------------------------------------------------------------------


def format_columns() -> str:
    """Which format can fill which column of the job table."""
    filled = {name: fields_filled(name) for name in FORMATS}
    rows = (
        (code(column), *("●" if column in fields else "" for fields in filled.values()))
        for column in jobs.VALUES
        if column != "source"
    )
    return table(("column", *filled), rows)


def fields_filled(format_name: str) -> frozenset[str]:
    """The value columns that a format can fill, at its best."""
    if format_name == "sacct-json":
        return fields_of({"exit_code": {"return_code": {}}, "submit_line": ""})
    return frozenset(open_source("-", format_name, ReadOptions(fields=slurm_live.WANTED)).fields())


def shipped_maps() -> str:
    """The column maps that come with the package."""
    rows = []
    for name in column_map.SHIPPED:
        text = resources.files("stormpetrel.sources.tables").joinpath("maps", f"{name}.toml").read_text("utf-8")
        about = text.splitlines()[0].removeprefix("#").strip()
        rows.append((code(name), about, ", ".join(code(column) for column in column_map.load_map(name).needs)))
    return table(("map", "for", "recognised by the columns"), rows)


def live_fields() -> str:
    """The sacct fields that a live run asks for."""
    return "```text\n" + _wrapped(", ".join(slurm_live.WANTED)) + "\n```"


def _wrapped(text: str, width: int = 110) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(text, width))


# --- rules --------------------------------------------------------------------------------------------------------------------

_RULE: Final = re.compile(r"[a-z]+(_[a-z0-9]+)+")


def quarantine_rules() -> set[str]:
    """Every rule by which the code refuses a record, out of its syntax tree."""
    found: set[str] = set()
    for path in [*sorted((SOURCE / "sources").rglob("*.py")), SOURCE / "records" / "quality.py", SOURCE / "ingest" / "jobs.py"]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            found.update(word for word in _rules_in(node, path.name) if _RULE.fullmatch(word))
    return found


def warning_rules() -> set[str]:
    """Every oddity that is counted while the row is kept."""
    tree = ast.parse((SOURCE / "records" / "quality.py").read_text(encoding="utf-8"))
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and _name_of(node.func) == "_count")
    return {word for call in calls for word in _words(call.args[2])} | {rule.name for rule in doubts.RULES}


def quality_rules() -> str:
    """The rules of data quality: what each means, and what nothing is built on where it holds."""
    rows = ((code(rule.name), rule.meaning, ", ".join(map(code, rule.doubts)) or "nothing") for rule in doubts.RULES)
    return table(("rule", "meaning", "what is doubted"), rows)


def _rules_in(node: ast.AST, file_name: str) -> Iterator[str]:
    match node:
        case ast.Tuple(elts=[first, second, _, _]) if not isinstance(first, ast.Constant):  # Refused: line, rule, reason, raw
            yield from _words(second)
        case ast.Return(value=ast.Tuple(elts=[first, _])) if file_name == "lines.py":  # rule, reason
            yield from _words(first)
        case ast.Assign(targets=[ast.Name(id="rule")], value=value) if file_name != "quality.py":
            yield from (word for part in ast.walk(value) for word in _words(part))
        case ast.keyword(arg="rule", value=ast.Call(args=[word])):  # rule=pl.lit("…")
            yield from _words(word)
        case ast.Subscript(value=ast.Attribute(attr="quarantined"), slice=word):
            yield from _words(word)
        case ast.Call(func=func, args=arguments):
            yield from _rules_in_call(_name_of(func), arguments, file_name)


def _rules_in_call(name: str, arguments: list[ast.expr], file_name: str) -> Iterator[str]:
    if name in ("refuse", "_refuse") or name.startswith("refuse_"):
        for argument in arguments[:2]:
            yield from _words(argument)
    if name == "then" and file_name == "quality.py":
        match arguments:
            case [ast.Call(args=[word])]:
                yield from _words(word)


def _words(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def _name_of(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


# --- errors -------------------------------------------------------------------------------------------------------------------


def error_tree() -> str:
    """The tree as it is drawn in errors.py."""
    drawn = (errors.__doc__ or "").partition("::\n")[2]
    lines = [line.removeprefix("    ") for line in drawn.strip("\n").splitlines()]
    return "```text\n" + "\n".join(lines) + "\n```"


def error_classes() -> dict[str, type[errors.StormpetrelError]]:
    """Every error of ours by its name."""
    members = vars(errors).values()
    return {kind.__name__: kind for kind in members if isinstance(kind, type) and issubclass(kind, errors.StormpetrelError)}


def error_table() -> str:
    """Exit code of each error, and whether it helps to try again."""
    rows = (
        (code(name), str(kind.exit_code), "yes" if kind.retry_helps else "no", (kind.__doc__ or "").strip())
        for name, kind in error_classes().items()
    )
    return table(("error", "exit code", "retry helps", "meaning"), rows)


PARTS: Final[dict[str, Callable[[], str]]] = {
    **measured_alarms.PARTS,
    **measured_jobs.PARTS,
    **measured_traces.PARTS,
    **measured_scale.PARTS,
    **measured_events.PARTS,
    **measured_synth.PARTS,
    **measured_synth_private.PARTS,
    "settings": settings_reference,
    "settings-file": settings_file,
    "commands": command_reference,
    "key-columns": lambda: _columns(jobs.KEY_COLUMNS),
    "value-columns": lambda: _columns((*jobs.VALUE_COLUMNS, jobs.QUALITY_COLUMN)),
    "quality-rules": quality_rules,
    "bookkeeping-columns": lambda: _columns(jobs.BOOKKEEPING_COLUMNS),
    "quarantine-columns": quarantine_columns,
    "states": state_table,
    "foreign-states": foreign_states,
    "format-columns": format_columns,
    "shipped-maps": shipped_maps,
    "live-fields": live_fields,
    "error-tree": error_tree,
    "error-table": error_table,
}
