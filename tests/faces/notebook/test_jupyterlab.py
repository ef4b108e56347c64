"""The widget in a real JupyterLab in a real Chromium: it appears, and its buttons work."""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.parts import need, require
from tests.parts.browser import open_chromium

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]
_SECONDS = 60


@dataclass(frozen=True)
class Lab:
    port: int
    token: str

    def address(self, notebook: str) -> str:
        return f"http://127.0.0.1:{self.port}/lab/tree/{notebook}?token={self.token}"


def free_port() -> int:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return int(door.getsockname()[1])


def wait_until_open(port: int, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        assert server.poll() is None, "jupyter lab has ended"
        with socket.socket() as door:
            door.settimeout(1)
            if door.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)  # between two looks at a condition that has a limit
    pytest.fail("jupyter lab did not open its port")


@pytest.fixture
def lab(tmp_path: Path, practice_site: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """JupyterLab over a folder with one notebook, in the theme that the test names."""
    need("jupyterlab")
    require("chromium", install="chromium fonts-liberation")
    import nbformat  # a second of processor time, which whoever collects the tests would pay

    work, config = tmp_path / "work", tmp_path / "config"
    work.mkdir()
    code = f"from stormpetrel.faces.notebook import EarlyWarning\n\nEarlyWarning({str(practice_site)!r})"
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)], metadata=kernel), work / "try.ipynb")
    settings = config / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "themes.jupyterlab-settings").write_text(json.dumps({"theme": request.param}))
    (settings / "notification.jupyterlab-settings").write_text(json.dumps({"fetchNews": "false", "checkForUpdates": False}))
    (config / "labconfig").mkdir()
    # Dash brings a lab extension that JupyterLab would like to be built again for, and asks about in a dialog.
    (config / "labconfig" / "page_config.json").write_text(json.dumps({"buildCheck": False, "buildAvailable": False}))
    for name, folder in (("CONFIG_DIR", ""), ("DATA_DIR", "data"), ("RUNTIME_DIR", "run")):
        monkeypatch.setenv(f"JUPYTER_{name}", str(config / folder))
    monkeypatch.setenv("JUPYTERLAB_SETTINGS_DIR", str(config / "settings"))
    monkeypatch.setenv("JUPYTERLAB_WORKSPACES_DIR", str(config / "workspaces"))
    place = Lab(free_port(), secrets.token_hex(16))
    options = ("--no-browser", "--allow-root", "--ip=127.0.0.1", f"--ServerApp.port={place.port}")
    options += (f"--IdentityProvider.token={place.token}", f"--ServerApp.root_dir={work}")
    with (tmp_path / "lab.log").open("wb") as log:
        server = subprocess.Popen([sys.executable, "-m", "jupyterlab", *options], stdout=log, stderr=log)
        try:
            wait_until_open(place.port, server)
            yield place
        finally:
            server.terminate()
            server.wait(60)


@pytest.mark.parametrize("lab", ["JupyterLab Light", "JupyterLab Dark"], indirect=True)
def test_the_five_buttons_work_in_jupyterlab(lab, tmp_path):
    errors: list[str] = []
    with open_chromium("--no-sandbox", wait_ms=_SECONDS * 1000) as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 2200})
        page.set_default_timeout(_SECONDS * 1000)
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.goto(lab.address("try.ipynb"))
        try:
            press_the_buttons(page)
        finally:
            page.screenshot(path=tmp_path / "widget.png")
    assert errors == []


def press_the_buttons(page: Page) -> None:
    page.get_by_text("| Idle").wait_for()  # the kernel is there: before, JupyterLab would ask for one
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_text("Run All Cells", exact=True).click()
    for button, message in (
        ("Load data to predict", "Data loaded."),
        ("Prepare data", "Data prepared."),
        ("Get the latest model", "Model loaded: version 1"),
        ("Start prediction", "Prediction done"),
    ):
        page.get_by_role("button", name=button).click()
        page.get_by_text(message).wait_for()
    first = page.locator(".widget-html table").nth(1).locator("tbody td").first.inner_text()
    field = page.get_by_placeholder("job ID")
    field.fill(first)
    field.press("Enter")
    page.get_by_text(f"Search query submitted: {first}").wait_for()
    page.get_by_text("Risk of failing").wait_for()
    page.locator(".js-plotly-plot").get_by_text("risk of failing in %").wait_for()
