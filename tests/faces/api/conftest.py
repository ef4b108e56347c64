"""One served site for all tests of the API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faces.api.made import World, make_api_site, open_world
from tests.jobs.logs import one_thread


@pytest.fixture(scope="session")
def api_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.getbasetemp() / "api-site"
    if not folder.exists():  # the tests of the client use the same one
        with one_thread():
            make_api_site(folder)
    return folder


@pytest.fixture(scope="session")
def world(api_folder: Path) -> Iterator[World]:
    served = open_world(api_folder)
    yield served
    served.site.close()
