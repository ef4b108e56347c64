"""A server that the client really talks to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stormpetrel.faces.client import Client
from tests.faces.api.conftest import api_folder, world  # noqa: F401 - fixtures
from tests.faces.api.sample_site import ADMIN, World
from tests.faces.web.sample_site import running


@pytest.fixture(scope="session")
def url(world: World) -> Iterator[str]:  # noqa: F811
    with running(world.app) as address:
        yield address


@pytest.fixture
def client(url: str, world: World) -> Iterator[Client]:  # noqa: F811
    with Client(url, world.token(ADMIN)) as made:
        yield made
