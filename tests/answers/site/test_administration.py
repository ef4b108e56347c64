"""Looking after a site's memory: receipts say what was done, and only who manages the site may do it."""

from __future__ import annotations

import pytest

from stormpetrel.answers.site import administration
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.errors import AccessError, UsageError
from tests.answers.live_sites import put_jobs
from tests.builders import make_site
from tests.jobs.logs import made_jobs


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as site:
        put_jobs(site, made_jobs(*({"job_id": k, "user": "ada" if k % 2 else "kim", "submit": k} for k in range(1, 6))))
        yield site


def test_compaction_names_every_table_with_its_files(site):
    tables = administration.compact_tables(site, LOCAL).tables
    assert "jobs" in {table.table for table in tables} and all(table.files_after <= table.files_before for table in tables)


def test_a_user_is_forgotten_and_jobs_to_come_are_refused_unless_only_the_past_is_meant(site):
    assert administration.forget_user(site, LOCAL, "kim", past_only=True).model_dump() == {"deleted": 2, "future": "kept"}
    assert administration.forget_user(site, LOCAL, "ada").model_dump() == {"deleted": 3, "future": "refused"}


def test_how_long_jobs_are_kept_is_that_of_the_site_where_nobody_says(site):
    with pytest.raises(UsageError):
        administration.delete_old_jobs(site, LOCAL)
    assert administration.delete_old_jobs(site, LOCAL, days=1).deleted == 5


def test_a_backup_is_as_large_as_its_file(site, tmp_path):
    receipt = administration.back_up(site, LOCAL, tmp_path / "site.tar")
    assert receipt.bytes == (tmp_path / "site.tar").stat().st_size > 0


def test_a_site_that_is_whole_has_nothing_to_repair(tmp_path):
    make_site(tmp_path / "whole").close()
    receipt = administration.repair_site(tmp_path / "whole", LOCAL)
    assert not receipt.rebuilt and receipt.gone == []


def test_a_user_may_do_none_of_it(site, tmp_path):
    kim = Viewer("kim", is_admin=False)
    for act in (
        lambda: administration.forget_user(site, kim, "ada"),
        lambda: administration.back_up(site, kim, tmp_path / "stolen.tar"),
        lambda: administration.repair_site(tmp_path / "site", kim),
    ):
        with pytest.raises(AccessError):
            act()
    assert not (tmp_path / "stolen.tar").exists()
