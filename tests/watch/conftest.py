"""A site that was read and learnt from, ready to be watched; each test has its own copy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stormpetrel.store.site import Site
from tests.parts.watched_site import copy_site, make_watched_site


@pytest.fixture(scope="session")
def prepared(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("prepared") / "site"
    make_watched_site(folder).close()
    return folder


@pytest.fixture
def site(prepared, tmp_path) -> Iterator[Site]:
    with copy_site(prepared, tmp_path / "site") as copied:
        yield copied
