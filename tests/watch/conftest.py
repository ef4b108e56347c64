"""A site that was read and learnt from, ready to be watched; each test has its own copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stormpetrel.store.site import Site
from stormpetrel.watch.loop import Watch
from tests.parts.made_once import made_once
from tests.parts.quick_sacct import answering
from tests.parts.watched_site import copy_site, watched_site_once


@pytest.fixture(scope="session")
def sacct() -> Iterator[str]:
    """Where a quick `sacct` gets its answers: this process."""
    with answering() as address:
        yield address


@pytest.fixture(scope="session")
def prepared(tmp_path_factory) -> Path:
    """The site, trained."""
    return watched_site_once(tmp_path_factory)


@pytest.fixture(scope="session")
def untrained(tmp_path_factory) -> Path:
    """The site before its first training."""
    return watched_site_once(tmp_path_factory, trained=False)


@pytest.fixture(scope="session")
def begun(tmp_path_factory, prepared, sacct) -> Path:
    """The site once a watch has looked at it for the first time."""

    def watch_once(folder: Path) -> None:
        with copy_site(prepared, folder, sacct=sacct) as site:
            Watch(site).step()

    return made_once(tmp_path_factory, "watched-site-begun", watch_once)


@pytest.fixture
def copied(tmp_path, sacct) -> Iterator[Callable[..., Site]]:
    """Copy a site, with settings of the test's own, closed at the end: copied(untrained, watch={…})."""
    opened: list[Site] = []

    def copy(original: Path, **sections) -> Site:
        opened.append(copy_site(original, tmp_path / f"site{len(opened) or ''}", sacct=sacct, **sections))
        return opened[-1]

    yield copy
    for site in opened:
        site.close()


@pytest.fixture
def site(prepared, copied) -> Site:
    return copied(prepared)
