"""Every setting, command, error, format, rule, state and column has its place in the docs, and what the docs show works."""

from __future__ import annotations

import contextlib
import doctest
import functools
import importlib
import io
import pkgutil
import re
import shlex
import sys
import tomllib
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from stormpetrel_client.command import parse_words

import stormpetrel.errors
import stormpetrel.records
import stormpetrel.sources
from stormpetrel.config import Settings, parse_settings
from stormpetrel.records.jobs import BOOKKEEPING_COLUMNS, JOB_COLUMNS, VALUE_COLUMNS
from stormpetrel.records.states import JobState
from stormpetrel.sources.formats import FORMATS
from stormpetrel.sources.slurm import sacct_fields
from stormpetrel.sources.tables import column_map
from stormpetrel.sources.tables.mapped_table import MappedTable

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
_FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
ALL_PAGES = [*PAGES, *sorted((DOCS / "adr").glob("*.md"))]


def _load_generate() -> ModuleType:
    sys.path.insert(0, str(DOCS))
    return importlib.import_module("generate")


generate = _load_generate()


@functools.cache
def page(name: str) -> str:
    return str(generate.page(name))


@functools.cache
def _masked(text: str) -> str:
    return _FENCE.sub(lambda block: re.sub(r"[^\n]", ".", block.group()), text)


def section(text: str, heading: str) -> str:
    """The text from a heading to the next one of its level or above; `#` inside a fenced block is no heading."""
    level = heading.split(" ")[0]
    found = re.search(rf"^{re.escape(heading)}\n(.*?)(?=^#{{1,{len(level)}}} |\Z)", _masked(text), re.MULTILINE | re.DOTALL)
    assert found, f"there is no heading '{heading}'"
    return text[found.start(1) : found.end(1)]


def first_cells(text: str) -> list[str]:
    """What stands in code style in the first cell of each table row."""
    rows = [line for line in text.splitlines() if line.startswith("|") and "---" not in line]
    return [word for row in rows for word in re.findall(r"`([^`]+)`", re.split(r"(?<!\\)\|", row)[1])]


# --- what is generated --------------------------------------------------------------------------------------------------------


def test_a_page_gets_the_parts_that_it_asks_for():
    assert "```{generated}" not in page("commands.md")
    with pytest.raises(KeyError):
        generate.expand("```{generated} no-such-part\n```")


def test_every_part_that_a_page_asks_for_can_be_made():
    assert [path.name for path in generate.DOCS.glob("*.md") if "```{generated}" in page(path.name)] == []


def test_the_figures_of_the_jobs_page_hold_what_it_says_of_them():
    """The claims of docs/jobs.md, looked up in the results that its tables are made from."""
    quality = generate.measured_jobs.quality()
    for log in ("curie", "mira", "kth", "theta"):
        found = quality[log]["at"]["submit"]
        ours, rules = found["model"], found["baselines"]
        assert ours["roc_auc"] > rules["xgboost"]["roc_auc"] and ours["pr_auc"] > rules["xgboost"]["pr_auc"]
        assert ours["roc_auc"] > rules["user_rate"]["roc_auc"] and ours["f1"] >= rules["last_outcome"]["f1"] + 0.03
        assert found["calibration"]["brier_skill"] > 0 and ours["ece"] <= 0.03
        later = quality[log]["at"]["start"]
        assert later["model"]["roc_auc"] > later["same_jobs"]["submit"]["roc_auc"]


def test_the_figures_of_the_page_on_scale_are_drawn_from_its_results():
    """`python docs/measured_scale.py` draws them anew."""
    scale = generate.measured_scale
    drawn = {name: draw() for name, draw in scale.DRAWN.items()}
    assert [name for name, text in drawn.items() if (DOCS / "figures" / name).read_text(encoding="utf-8") != text] == []


def test_the_lines_of_the_page_on_scale_go_through_what_was_measured():
    line = generate.measured_scale.line_through([(1.0, 3.0), (2.0, 5.0), (3.0, 7.0)])
    assert (line.constant, line.slope, line.at(10.0)) == pytest.approx((1.0, 2.0, 21.0))
    through_zero = generate.measured_scale.line_through([(1.0, 1.0), (2.0, 4.0)])
    assert through_zero.constant == 0.0 and through_zero.slope == pytest.approx(1.8)


def test_every_generated_part_is_on_a_page():
    asked = {name for path in DOCS.glob("*.md") for name in generate.MARK.findall(path.read_text(encoding="utf-8"))}
    assert asked == set(generate.PARTS)


@pytest.mark.parametrize("name", Settings.model_fields)
def test_settings_of_a_section_are_documented(name):
    rows = section(page("site-toml.md"), f"## \\[{name}\\]")
    fields = Settings.model_fields[name].annotation.model_fields
    assert {f"{name}.{key}" for key in fields} - set(first_cells(rows)) == set()
    assert [key for key, field in fields.items() if field.description not in rows] == []


def test_the_whole_file_on_the_settings_page_is_a_valid_one():
    (text,) = re.findall(r"```toml\n(.*?)```", section(page("site-toml.md"), "## The whole file"), re.DOTALL)
    assert parse_settings(text) == Settings()


COMMANDS = dict(generate.commands())


def help_of(words: str) -> str:
    """What a command prints with --help."""
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        COMMANDS["stormpetrel"].main([*words.split()[1:], "--help"], "stormpetrel", standalone_mode=False)
    assert "--help" in shown.getvalue(), words
    return shown.getvalue()


def test_every_command_is_documented_with_every_option_that_its_help_shows():
    undocumented = {}
    for words, command in COMMANDS.items():
        described = section(page("commands.md"), f"## {words}")
        options = set(re.findall(r"^\s+(?:-\w, )?(--[a-z-]+)", help_of(words), re.MULTILINE)) - {"--help"}
        missing = options - {name.split(" ")[0] for name in first_cells(described)}
        if missing or command.help.split(".")[0].split("\n")[0] not in described:
            undocumented[words] = missing or "what it does"
    assert undocumented == {}


def test_the_walk_over_commands_finds_nouns_and_verbs():
    assert {"stormpetrel", "stormpetrel init", "stormpetrel ingest jobs", "stormpetrel store forget"} <= set(COMMANDS)


def test_every_job_column_is_documented():
    columns = {column.name for column in (*JOB_COLUMNS, *BOOKKEEPING_COLUMNS)}
    assert columns - set(first_cells(section(page("store.md"), "## The job table"))) == set()


def test_some_format_fills_every_column():
    """`pbs` fills no uid, but something must: a column that nothing fills is a mistake here or there."""
    columns = {column.name for column in VALUE_COLUMNS if column.name != "source"}
    assert columns - {column for name in FORMATS for column in generate.fields_filled(name)} == set()
    assert columns - set(first_cells(section(page("sources.md"), "## Which format fills which column"))) == set()


def test_every_job_state_is_documented():
    assert {state.value for state in JobState} - set(first_cells(section(page("store.md"), "## States"))) == set()
    assert [state for state in JobState if not generate.STATE_MEANING[state]] == []


def test_every_error_has_advice_and_nothing_else_has():
    advised = set(re.findall(r"^### (\w+)$", section(page("errors.md"), "## What to do"), re.MULTILINE))
    assert advised == set(generate.error_classes())
    assert advised <= set(first_cells(page("errors.md")))


def test_the_drawn_tree_of_errors_is_the_real_one():
    drawn: dict[str, str] = {}
    parents = {-1: "Exception"}
    for line in generate.error_tree().splitlines()[1:-1]:
        name = re.search(r"\w+", line)
        assert name
        depth = name.start() // 4
        parents[depth] = name.group()
        drawn[name.group()] = parents[depth - 1]
    assert drawn == {name: kind.__base__.__name__ for name, kind in generate.error_classes().items()}


def test_the_public_errors_are_these():
    assert {name for name in vars(stormpetrel.errors) if name.endswith("Error")} == {
        "StormpetrelError",
        "SettingsError",
        "UsageError",
        "NotThereError",
        "AccessError",
        "MissingExtraError",
        "SourceError",
        "SourceFormatError",
        "SourceUnavailableError",
        "NoSamplesError",
        "ModelError",
        "NotEnoughJobsError",
        "LeakError",
        "ModelFormatError",
        "ModelOutdatedError",
        "ModelVersionError",
        "ModelBusyError",
        "StoreError",
        "StoreVersionError",
        "StateLostError",
        "StoreBusyError",
        "StateAwayError",
        "StoreNotWritableError",
        "DiskFullError",
        "EngineError",
        "ReadOnlySiteError",
        "NetworkFilesystemError",
    }


def test_every_page_is_in_the_list_of_pages():
    listed = (DOCS / "index.md").read_text(encoding="utf-8")
    table, toctrees = listed.split("```{toctree}", 1)
    pages = {path.stem for path in DOCS.glob("*.md")} - {"index"}
    assert pages - set(re.findall(r"\(([\w-]+)\.md", table)) == set(), "in the table of docs/index.md"
    assert pages - set(toctrees.split()) == set(), "in the navigation"


def test_the_quality_in_the_readme_is_the_measured_one():
    """The row of the README holds the figures of benchmarks/results/jobs_quality.json, in the order of its columns."""
    (row,) = re.findall(r"^\| Stormpetrel · the rule .*$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    quality = generate.measured_jobs.quality()
    at_submit = [quality[log]["at"]["submit"] for log in ("curie", "mira", "kth", "theta")]
    pairs = [(cell["model"], cell["baselines"]["last_outcome"]) for cell in at_submit]
    measured = [" · ".join(f"{figures['roc_auc']:.3f}".lstrip("0") for figures in pair) for pair in pairs]
    assert [cell.strip() for cell in row.strip("|").split("|")][1:] == measured


# --- sources ------------------------------------------------------------------------------------------------------------------


def test_every_extra_is_in_the_table_of_extras():
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    assert sorted(first_cells(section(page("install.md"), "## Extras"))) == sorted(extras)


def test_every_format_is_in_the_table_of_formats():
    before_first_heading = page("sources.md").split("\n## ")[0]
    listed = set(first_cells(before_first_heading)) - {"--format", "--live", ".toml"}
    assert listed == set(FORMATS)


def test_the_help_of_ingest_names_every_format():
    (option,) = [parameter for parameter in COMMANDS["stormpetrel ingest jobs"].params if parameter.name == "format_name"]
    assert set(FORMATS) <= set(re.findall(r"[a-z-]+", option.help))


def test_every_shipped_map_is_documented():
    files = {path.stem for path in (ROOT / "src/stormpetrel/sources/tables/maps").glob("*.toml")}
    assert files == set(column_map.SHIPPED)
    assert files <= set(first_cells(section(page("sources.md"), "## Column maps").split("\n### ")[0]))


def test_every_kind_of_a_mapped_column_is_documented():
    assert set(typing.get_args(column_map.Kind)) - set(first_cells(section(page("sources.md"), "### A map of your own"))) == set()


@pytest.mark.parametrize("model", [column_map.ColumnRule, column_map.StateRule])
def test_keys_of_a_map_are_documented(model):
    keys = {field.alias or name for name, field in model.model_fields.items()}
    assert keys <= set(first_cells(section(page("sources.md"), "### A map of your own")))


def test_the_map_in_the_docs_reads_the_table_in_the_docs(tmp_path):
    text = section(page("sources.md"), "### A map of your own")
    (table,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    (toml,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "accounting.csv").write_text(table)
    (tmp_path / "ours.toml").write_text(toml)
    source = MappedTable(tmp_path / "accounting.csv", column_map=str(tmp_path / "ours.toml"), time_zone="Europe/Berlin")
    ((chunk),) = list(source.chunks())
    jobs, refused = chunk.translate(chunk.records, None)
    assert refused.is_empty()
    assert jobs["state"].to_list() == ["TIMEOUT", "COMPLETED"]
    assert jobs["req_mem_bytes"].to_list() == [16 * 2**30, None]
    assert jobs["submit_time"].dt.hour().to_list() == [9, 9]


@pytest.mark.parametrize("name", ["quickstart.md", "sources.md"])
def test_sacct_fields_in_the_docs_are_ones_that_fill_a_column(name):
    (line,) = set(re.findall(r"-o (JobID,\S+)", page(name)))
    unknown = [field for field in line.split(",") if "extra" in sacct_fields.columns_from([field.lower()])]
    assert unknown == []


# --- rules --------------------------------------------------------------------------------------------------------------------


def test_every_rule_of_the_quarantine_is_documented():
    rules = generate.quarantine_rules()
    assert {"bad_value", "line_too_long", "no_job_id", "step_without_job", "invalid_json", "forgotten_user"} <= rules
    told = section(page("store.md"), "## Quarantine").split("\n### ")[0].partition("| rule | meaning | what to do |")[2]
    assert set(first_cells(told)) == rules


def test_every_warning_is_documented():
    told = [*first_cells(section(page("store.md"), "### Warnings")), *first_cells(section(page("store.md"), "### Data quality"))]
    assert set(told) == generate.warning_rules()
    assert {"future_time", "impossible_memory", "rss_of_one_task"} <= set(told)


# --- commands in the text -----------------------------------------------------------------------------------------------------

_SHELLS = ("", "bash", "sh", "shell", "console", "text", "ini")
_BEFORE_A_COMMAND = re.compile(r"\w+=.*|[\d*/,-]+|sudo|exec|time|nice|\$")
_ENDS_A_COMMAND = re.compile(r"[&|;()]+")
_PLACEHOLDERS = ("…", "...", "COMMAND", "[OPTIONS]")


def commands_in(text: str) -> Iterator[list[str]]:
    """Every `stormpetrel …` of a page, in fenced blocks and in the running text, as its words."""
    for language, block in _FENCE.findall(text):
        if language.strip() in _SHELLS:
            for line in block.replace("\\\n", " ").splitlines():
                yield from _commands_of_line(line.removeprefix("ExecStart="))
    for span in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", _FENCE.sub("", text)):
        yield from _commands_of_line(span)


def _commands_of_line(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:
        return  # prose or output, not a command
    command: list[str] = []
    for word in [*words, ";"]:
        if not _ENDS_A_COMMAND.fullmatch(word):
            command.append(word)
            continue
        while command and _BEFORE_A_COMMAND.fullmatch(command[0]):
            command.pop(0)
        if command and command[0].rpartition("/")[2] == "stormpetrel":
            redirect = next((at for at, part in enumerate(command) if part in ("<", ">", ">>")), len(command))
            yield command[1:redirect]
        command = []


def is_for_users(words: list[str]) -> bool:
    """Whether the light client takes the words."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            parse_words(words)
    except SystemExit:
        return False
    return True


def problem_with(words: list[str]) -> str | None:
    """What is wrong with the words after `stormpetrel`; None if the command line takes them."""
    if is_for_users(words):
        return None
    command = COMMANDS["stormpetrel"]
    waiting = iter(words)
    for word in waiting:
        options = {name: parameter for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        children = getattr(command, "commands", None)
        if word in _PLACEHOLDERS or word in ("-", "-h", "--help"):
            continue
        if word.startswith("-"):
            option = options.get(word.partition("=")[0])
            if option is None:
                return f"{command.name} has no option {word}"
            if not option.is_flag and "=" not in word:
                next(waiting, None)
        elif children is not None:
            if word not in children:
                return f"{command.name} has no command {word}"
            command = children[word]
    return None


def test_commands_in_the_text_exist():
    problems = [
        f"{path.name}: {shlex.join(words)}: {problem}"
        for path in PAGES
        for words in commands_in(path.read_text("utf-8"))
        if (problem := problem_with(words))
    ]
    assert problems == []


def test_the_check_of_commands_finds_commands_and_mistakes():
    line = "X=1 ~/v/bin/stormpetrel --site s ingest jobs a.txt --jsn > out && stormpetrel stoer compact"
    text = f"```bash\n{line}\n```\n`stormpetrel sql --limit 3 q`"
    found = list(commands_in(text))
    assert found == [["--site", "s", "ingest", "jobs", "a.txt", "--jsn"], ["stoer", "compact"], ["sql", "--limit", "3", "q"]]
    assert [problem_with(words) is None for words in found] == [False, False, True]
    assert list(commands_in("```bash\npip install stormpetrel\n```")) == []
    assert sum(1 for path in PAGES for _ in commands_in(path.read_text("utf-8"))) > 30


def test_toml_in_the_docs_is_valid():
    for path in PAGES:
        for language, block in _FENCE.findall(path.read_text("utf-8")):
            if language == "toml":
                values = tomllib.loads(block)
                if set(values) <= set(Settings.model_fields):
                    parse_settings(block, where=path.name)


# --- links --------------------------------------------------------------------------------------------------------------------


def broken_links(text: str, folder: Path) -> list[str]:
    """Relative links that lead to no file, or to a heading that is not there."""
    broken = []
    for target in re.findall(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)", _FENCE.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = folder / name
        inside = text if not name else path.read_text("utf-8") if path.is_file() and path.suffix == ".md" else ""
        if (name and not path.exists()) or (anchor and anchor not in _anchors(inside)):
            broken.append(target)
    return broken


@functools.cache
def _anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", generate.expand(text)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere():
    broken = {path.name: broken_links(path.read_text("utf-8"), path.parent) for path in ALL_PAGES}
    assert {name: links for name, links in broken.items() if links} == {}


def test_the_check_of_links_finds_broken_ones():
    text = "[a](store.md) [b](store.md#states) [c](nope.md) [d](store.md#nope) [e](https://example.org) [f](#here)\n\n# Here\n"
    assert broken_links(text, DOCS) == ["nope.md", "store.md#nope"]


# --- examples in docstrings ---------------------------------------------------------------------------------------------------

_MODULES = [
    name
    for package in (stormpetrel.records, stormpetrel.sources)
    for _, name, _ in pkgutil.iter_modules(package.__path__, package.__name__ + ".")
]


def test_examples_in_docstrings_run():
    results = {name: doctest.testmod(importlib.import_module(name), report=False) for name in _MODULES}
    assert [name for name, result in results.items() if result.failed] == []
    assert sum(result.attempted for result in results.values()) >= 3, "there are examples to run"
