"""What docs/api.md shows works: its Python runs against a live server, and its table is the API."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stormpetrel.faces.api.endpoint import PREFIX, SCOPE
from tests.faces.api.sample_site import ADMIN

TEXT = (Path(__file__).parents[3] / "docs" / "api.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
SCRIPT = "#!/bin/bash\n#SBATCH --time=0:20:00 --mem=2G --job-name=fit_3\nsrun fit\n"


def test_the_python_on_the_page_runs(url, world, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sh").write_text(SCRIPT)
    names: dict[str, object] = {}
    for block in BLOCKS:
        code = block.replace("http://127.0.0.1:8050", url).replace("sp_…", world.token(ADMIN))
        exec(compile(code, "docs/api.md", "exec"), names)
    assert len(BLOCKS) >= 7
    assert len(names["risks"]) == 4 and names["worst"] and names["advice"]["ref"]
    assert "There is no job 1 that you may see." in capsys.readouterr().out


def test_the_table_of_endpoints_is_the_api(world):
    rows = re.findall(r"^\| `(\w+) (\S+)` \| `(\w+)` \|", TEXT, re.MULTILINE)
    declared = [
        (method.upper(), path.removeprefix(PREFIX), operation[SCOPE])
        for path, methods in world.app.openapi()["paths"].items()
        for method, operation in methods.items()
    ]
    assert sorted(rows) == sorted(declared)


@pytest.mark.parametrize("path", sorted(set(re.findall(r"'?http://127\.0\.0\.1:8050(/api/v1/[^'\s>]+)", TEXT))))
def test_the_addresses_on_the_page_exist(world, path):
    answer = world.ask("GET", path.removeprefix(PREFIX))
    assert answer.status_code in ((405,) if path.startswith(f"{PREFIX}/predict") else (200,))
