"""How far a source has been read in vain is known, and forgotten where the table knows better."""

from __future__ import annotations

import polars as pl
import pytest

from stormpetrel.records.cursor import Cursor
from stormpetrel.store.site import Site
from tests.builders import make_site

NAME = "slurm:local"


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as made:
        yield made


def commit(site: Site, position: int) -> None:
    site.jobs.table.append(pl.DataFrame(schema=site.jobs.table.spec.schema), cursor=Cursor(NAME, position))


def test_a_mark_goes_beyond_the_cursor_without_a_commit(site):
    commit(site, 100)
    version = site.jobs.table.version()
    site.jobs.read_in_vain(Cursor(NAME, 160))
    assert site.jobs.cursor(NAME) == 160 and site.jobs.table.version() == version


def test_a_source_that_never_had_anything_to_tell_has_been_read_all_the_same(site):
    site.jobs.read_in_vain(Cursor(NAME, 160))
    assert site.jobs.cursor(NAME) == 160


def test_a_cursor_that_was_committed_since_is_the_one_that_counts(site):
    commit(site, 100)
    site.jobs.read_in_vain(Cursor(NAME, 160))
    commit(site, 130)
    assert site.jobs.cursor(NAME) == 130


def test_a_mark_does_not_outlive_the_table_that_it_was_made_beside(site):
    """As after a restore of older tables: rows between their cursor and the mark would be lost for ever."""
    commit(site, 100)
    old = site.jobs.table.path
    commit(site, 200)
    site.jobs.read_in_vain(Cursor(NAME, 260))
    newest = max((old / "_delta_log").glob("*.json"))
    newest.unlink()
    assert site.jobs.cursor(NAME) == 100


def test_sources_of_long_names_do_not_share_a_mark(site):
    names = [f"slurm:{'x' * 80}{end}" for end in "ab"]
    site.jobs.read_in_vain(Cursor(names[0], 5))
    assert [site.jobs.cursor(name) for name in names] == [5, None]
