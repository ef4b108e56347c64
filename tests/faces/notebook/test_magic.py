"""The magic: a script in a file or in a cell is checked, by a site or by its service; what goes wrong is one sentence."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from stormpetrel_client.where import ClientError

from stormpetrel.faces import notebook
from stormpetrel.faces.notebook import ScriptCheck, magic
from stormpetrel.faces.notebook.magic import Problem, StormpetrelMagic
from tests.faces.notebook.hostile import HOSTILE, assert_is_text

SCRIPT = "#!/bin/bash\n#SBATCH --ntasks=4\n#SBATCH --mem=2G\n#SBATCH --time=30\nsrun ./fit\n"


@pytest.fixture(autouse=True)
def _nothing_is_named(monkeypatch):
    monkeypatch.delenv("STORMPETREL_SITE", raising=False)


def test_loading_the_extension_registers_a_magic_for_lines_and_cells():
    known = {}
    shell = SimpleNamespace(register_magic_function=lambda function, kind, name: known.update({name: (kind, function)}))
    notebook.load_ipython_extension(shell)
    assert known["stormpetrel"][0] == "line_cell"


def test_a_file_is_checked_by_the_site_that_is_named(practice_site, tmp_path):
    (tmp_path / "job.sh").write_text(SCRIPT)
    check = StormpetrelMagic()(f"check --site={practice_site} --user ada '{tmp_path / 'job.sh'}'")
    assert isinstance(check, ScriptCheck) and 0 < check.risk < 1 and check.text == SCRIPT


def test_a_cell_is_checked_by_the_site_that_was_named_before(practice_site):
    run = StormpetrelMagic()
    assert "practice" in str(run(f"site {practice_site}")) or str(practice_site) in str(run(f"site {practice_site}"))
    check = run("check --user ada", SCRIPT)
    assert isinstance(check, ScriptCheck) and check.request.name == "this cell"
    assert "risk of failing" in check._repr_html_()


def test_the_environment_names_a_site(practice_site, monkeypatch):
    monkeypatch.setenv("STORMPETREL_SITE", str(practice_site))
    assert isinstance(StormpetrelMagic()("check --user ada", SCRIPT), ScriptCheck)


def test_without_a_site_the_service_is_asked_as_the_user_who_asks(practice_site, monkeypatch):
    told = StormpetrelMagic()(f"check --site {practice_site}", SCRIPT)
    asked = []

    class Service:
        def __init__(self, where):
            self.where = where

        def ask(self, method, path, *, body):
            asked.append((method, path, body["text"]))
            return told.answer.model_dump(mode="json")

    monkeypatch.setattr(magic, "Service", Service)
    monkeypatch.setattr(magic, "find_service", lambda environment: "somewhere")
    check = StormpetrelMagic()("check", SCRIPT)
    assert asked == [("POST", "/predict/script", SCRIPT)] and check.answer == told.answer
    refused = StormpetrelMagic()("check --user somebody-else", SCRIPT)
    assert isinstance(refused, Problem) and "answers for you alone" in repr(refused)


def test_no_service_is_a_sentence_with_a_way_out(monkeypatch):
    def nowhere(environment):
        raise ClientError("No service is named.")

    monkeypatch.setattr(magic, "find_service", nowhere)
    assert "%stormpetrel site DIR" in repr(StormpetrelMagic()("check", SCRIPT))


@pytest.mark.parametrize(
    ("line", "cell", "words"),
    [
        ("", None, "cannot ''"),
        ("chekc job.sh", None, "cannot 'chekc'"),
        ("check", None, "One script is expected"),
        ("check a.sh b.sh", None, "One script is expected"),
        ("check a.sh", SCRIPT, "The script is the cell"),
        ("check --shell=yes", SCRIPT, "no option '--shell'"),
        ("check --user", SCRIPT, "--user needs a value"),
        ("check 'open", None, "cannot be read"),
        ("check no-such-file.sh", None, "cannot be read: no such file"),
        ("site", None, "One folder of a site is expected"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(line, cell, words):
    problem = StormpetrelMagic()(line, cell)
    assert isinstance(problem, Problem) and words in repr(problem)


def test_hostile_words_stay_text():
    assert_is_text(StormpetrelMagic()(f"check '{HOSTILE.replace(chr(39), '')}'")._repr_html_())
