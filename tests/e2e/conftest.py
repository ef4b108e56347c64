"""Servers that the end-to-end tests share: each is started once, when the first test asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.parts.postgres import RealPostgres
from tests.parts.slurm import RealSlurm


@pytest.fixture(scope="session")
def slurm() -> Iterator[RealSlurm]:
    """A cluster of two nodes with accounting."""
    with RealSlurm(nodes=2) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def postgres() -> Iterator[RealPostgres]:
    """A PostgreSQL server."""
    with RealPostgres() as server:
        yield server
