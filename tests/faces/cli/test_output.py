"""One way out: text for people, JSON for programs, figures in a file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from stormpetrel.faces.cli import output
from stormpetrel.faces.cli.output import emit, one_line, plain

COMMANDS = Path(output.__file__).parent


class Answer(BaseModel):
    name: str
    share: float


def test_a_model_is_printed_as_compact_json_and_plain_values_as_python_writes_them(capsys):
    emit(Answer(name="ä", share=0.5), "not shown", as_json=True)
    emit([{"name": "ä", "share": 0.5}], "not shown", as_json=True)
    assert capsys.readouterr().out == '{"name":"ä","share":0.5}\n[{"name": "ä", "share": 0.5}]\n'


def test_people_read_the_text_then_where_the_figures_are_then_what_to_do_next(capsys, tmp_path):
    path = tmp_path / "page.html"
    drawn = []
    emit(None, lambda out: out.print("text"), as_json=False, plot=path, draw=drawn.append, next_step="stormpetrel jobs train")
    assert drawn == [path]
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["text", f"{path}: the figures, to be opened in a browser", "Next: stormpetrel jobs train"]


def test_figures_are_drawn_for_programs_too_and_nothing_is_printed_but_json(capsys, tmp_path):
    drawn = []
    emit({"jobs": 1}, "text", as_json=True, plot=tmp_path / "page.html", draw=drawn.append, next_step="not shown")
    assert len(drawn) == 1 and json.loads(capsys.readouterr().out) == {"jobs": 1}


@pytest.mark.parametrize(
    ("text", "shown"), [("a\x1b[31mb", "a\\x1b[31mb"), ("a\nb", "a\\x0ab"), ("[bold]x[/bold]", "[bold]x[/bold]")]
)
def test_control_characters_of_a_log_are_shown_and_not_obeyed(text, shown):
    assert plain(text) == shown


def test_a_note_of_several_lines_is_shown_on_one():
    assert one_line("a\n  b\tc") == "a b c"


def test_every_command_with_json_ends_in_emit():
    """`print_json` is called by `emit` alone, and no command chooses between text and JSON by itself."""
    offenders = [
        str(path.relative_to(COMMANDS))
        for path in COMMANDS.rglob("*.py")
        if path.name != "output.py" and re.search(r"print_json|^    if as_json:", path.read_text("utf-8"), re.MULTILINE)
    ]
    assert offenders == []


def test_command_modules_import_at_the_top():
    late = {
        str(path.relative_to(COMMANDS)): lines
        for path in COMMANDS.rglob("*.py")
        if path.name != "lazy_group.py"
        and (lines := re.findall(r"^ +(?:from \S+ )?import .*", path.read_text("utf-8"), re.MULTILINE))
    }
    assert late == {}
