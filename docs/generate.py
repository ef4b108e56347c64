"""The parts of the pages that are made from the code: settings, commands, columns, states, errors.

code -> PARTS[name]() -> Markdown. A page asks for a part by an empty fenced block, ```{generated} NAME; `expand` puts it there.
"""

from __future__ import annotations

import ast
import json
import re
import typing
from collections.abc import Callable, Iterable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any, Final

import polars as pl
import typer.main
from pydantic_core import PydanticUndefined

from stormpetrel import errors
from stormpetrel.config import Settings, settings_as_toml
from stormpetrel.faces.cli.main import app
from stormpetrel.jobs.seed_protocol import SEED_TABLE_ONE
from stormpetrel.records import jobs, states
from stormpetrel.records.states import DEFAULT_FAILURE_STATES, FINISHED, JobState
from stormpetrel.sources import column_map, slurm_live
from stormpetrel.sources.formats import FORMATS, ReadOptions, open_source
from stormpetrel.sources.slurm_json import fields_of
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
}


def expand(text: str) -> str:
    """A page with every part that it asks for in its place."""
    return MARK.sub(lambda found: PARTS[found.group(1)](), text)


def page(name: str) -> str:
    """A page of the docs as its reader sees it."""
    return expand((DOCS / name).read_text(encoding="utf-8"))


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table; bars in cells are escaped."""
    lines = [list(head)]
    lines.append(["---"] * len(lines[0]))
    lines += [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def code(text: object) -> str:
    """Text in code style."""
    return f"`{text}`"


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
    return "\n\n".join(parts)


def settings_file() -> str:
    """The site.toml that `init` writes, with the defaults."""
    return f"```toml\n{settings_as_toml(Settings()).rstrip()}\n```"


def _type_name(annotation: Any) -> str:
    names = {str: "text", int: "whole number", float: "number", bool: "true or false"}
    if typing.get_origin(annotation) is typing.Literal:
        return " or ".join(code(word) for word in typing.get_args(annotation))
    return names.get(annotation) or f"list of {names[typing.get_args(annotation)[0]]}"


def _toml(section: Any, key: str) -> str:
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
        text = resources.files("stormpetrel.sources").joinpath("maps", f"{name}.toml").read_text("utf-8")
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
    for path in [*sorted((SOURCE / "sources").glob("*.py")), SOURCE / "records" / "quality.py", SOURCE / "store" / "ingest.py"]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            found.update(word for word in _rules_in(node, path.name) if _RULE.fullmatch(word))
    return found


def warning_rules() -> set[str]:
    """Every oddity that is counted while the row is kept."""
    tree = ast.parse((SOURCE / "records" / "quality.py").read_text(encoding="utf-8"))
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and _name_of(node.func) == "_count")
    return {word for call in calls for word in _words(call.args[2])}


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


# --- figures of the jobs family -----------------------------------------------------------------------------------------------

_QUALITY: Final = DOCS.parent / "benchmarks" / "results" / "jobs_quality.json"
_LOGS: Final = {"curie": "Curie", "mira": "Mira", "kth": "KTH", "theta": "Theta"}
_WHO: Final = {
    "model": "**Stormpetrel**", "xgboost": "untuned XGBoost", "user_rate": "user's rate", "last_outcome": "user's last outcome",
}  # fmt: skip


def _quality() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_QUALITY.read_text(encoding="utf-8"))
    return found


def job_quality() -> str:
    """ROC area, PR area and F1 of the model and its baselines, on four public logs, rolling."""
    rows = []
    for log, title in _LOGS.items():
        for moment, found in _quality()[log]["at"].items():
            forecasters = {"model": found["model"], **found["baselines"]}
            cells = [" / ".join(f"{forecasters[who][name]:.3f}" for name in ("roc_auc", "pr_auc", "f1")) for who in _WHO]
            rows.append((title, code(moment), f"{found['model']['n_test']:,}", *cells))
    return table(("log", "at", "jobs", *(f"{who}: ROC / PR / F1" for who in _WHO.values())), rows)


def job_calibration() -> str:
    """Brier skill, slope and ECE of the model, and the gain of a later moment on the same jobs."""
    rows = []
    for log, title in _LOGS.items():
        for moment, found in _quality()[log]["at"].items():
            gains = [
                f"{earlier}: {figures['roc_auc']:.3f} → {found['model']['roc_auc']:.3f}"
                for earlier, figures in found["same_jobs"].items()
            ]
            calibration = found["calibration"]
            numbers = (calibration["brier_skill"], calibration["reliability_slope"], found["model"]["ece"])
            rows.append((title, code(moment), *(f"{number:.3f}" for number in numbers), "; ".join(gains) or "–"))
    return table(("log", "at", "Brier skill", "slope", "ECE", "ROC of earlier moments on the same jobs"), rows)


def job_table_one() -> str:
    """Table I on Curie at random and by time, beside the published one."""
    quality = _quality()["seed"]["table1"]
    by_time = {row["model"]: row for row in quality if row["split"] == "time" and row["part"] == "test"}
    rows = []
    for row in quality:
        if row["split"] == "random" and row["part"] == "test":
            later, published = by_time[row["model"]], SEED_TABLE_ONE.get(row["model"])
            other = f"{published.accuracy:.2f} / {published.f1_failed:.2f} / {published.roc_auc or '–'}" if published else "–"
            rows.append((row["title"], _accuracy(row), _accuracy(later), other))
    return table(("model", "at random: accuracy / F1 of failed / ROC", "by time", "as published, on another log"), rows)


def _accuracy(row: dict[str, Any]) -> str:
    return " / ".join(f"{row[name]:.3f}" for name in ("accuracy", "f1_failed", "roc_auc"))


def job_refit() -> str:
    """Weekly refits against one fit, on Curie at submission."""
    rows = [
        (row["begin"][:10], f"{row['jobs']:,}", f"{row['failed']:,}", *(_area(row[name]) for name in _AREAS))
        for row in _quality()["refit"]["refit"]
    ]
    return table(("week from", "jobs", "failed", "ROC, one fit", "ROC, weekly", "PR, one fit", "PR, weekly"), rows)


def job_speed() -> str:
    """What was asked and what was measured, on Curie's first 300,000 jobs."""
    found = json.loads((_QUALITY.parent / "jobs.json").read_text(encoding="utf-8"))["pieces"]
    fit, single, batch = found["fit"], found["single"], found["batch"]
    steps = fit["steps_s"]
    one = steps["history and features"] + steps["model at submit"] + steps["threshold at submit"]
    rows = [
        ("table to fitted models, three moments, with thresholds", "at most 90 s", f"{fit['total_s']:.0f} s"),
        ("the same, at submission only", "at most 90 s", f"{one:.0f} s"),
        ("one forecast with its explanation, p50 / p99", "p99 at most 20 ms", _milliseconds(single["judge"])),
        ("XGBoost alone on a ready row, p50 / p99", "–", _milliseconds(single["xgboost_ready_row"])),
        ("forecasts with features", "at least 50,000 jobs/s", f"{batch['jobs_per_second']['stormpetrel']:,.0f} jobs/s"),
    ]
    return table(("what", "asked", "measured"), rows)


def _milliseconds(times: dict[str, float]) -> str:
    return f"{times['p50_ms']:.1f} / {times['p99_ms']:.1f} ms"


_AREAS: Final = ("roc_once", "roc_weekly", "pr_once", "pr_weekly")


def _area(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


PARTS: Final[dict[str, Callable[[], str]]] = {
    "job-quality": job_quality,
    "job-calibration": job_calibration,
    "job-table-one": job_table_one,
    "job-refit": job_refit,
    "job-speed": job_speed,
    "settings": settings_reference,
    "settings-file": settings_file,
    "commands": command_reference,
    "key-columns": lambda: _columns(jobs.KEY_COLUMNS),
    "value-columns": lambda: _columns(jobs.VALUE_COLUMNS),
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
