"""One served site for all tests of the API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faces.api.sample_site import World, api_site_once, open_world
from tests.parts.watched_site import copy_site


@pytest.fixture(scope="session")
def api_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("api") / "site"
    copy_site(api_site_once(tmp_path_factory), folder).close()
    return folder


@pytest.fixture(scope="session")
def world(api_folder: Path) -> Iterator[World]:
    served = open_world(api_folder)
    yield served
    served.site.close()
