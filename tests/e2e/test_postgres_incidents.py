"""Incidents, their table and messages with a state in a real PostgreSQL: the claims of the tests of SQLite, made once more."""

from inspect import signature
from types import ModuleType

import pytest
import sqlalchemy as sa

from stormpetrel.store.site import open_site
from stormpetrel.watch.incident_keeper import record_incidents
from tests.builders import make_site
from tests.parts.alarm_findings import finding
from tests.parts.raised_incidents import raise_incidents
from tests.store.incidents import test_incidents, test_messages
from tests.watch import test_incident_keeper

pytestmark = [pytest.mark.postgres, pytest.mark.xdist_group("postgres")]
OF_SQLITE = {
    "test_incidents_come_back_out_of_their_table_when_the_state_is_lost",  # deletes its file
    "test_a_state_from_before_the_table_is_written_into_it_whole",
}


@pytest.fixture
def site(postgres, tmp_path):
    """A new site with an empty database of its own."""
    with make_site(tmp_path / "site", store={"state_url": postgres.new_database()}) as site:
        yield site


def claims_of(*modules: ModuleType) -> dict[str, object]:
    """The tests of modules that work on whatever site they are given; `sick_site` is one of their own."""
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if name.startswith("test_") and name not in OF_SQLITE and "sick_site" not in signature(value).parameters
    }


globals().update(claims_of(test_incidents, test_messages, test_incident_keeper))


def test_a_database_of_the_format_before_gets_the_new_column(site):
    raise_incidents(site, finding())
    with site.state.transaction() as connection:
        connection.execute(sa.text("ALTER TABLE incidents DROP COLUMN recorded"))
        connection.execute(sa.text("UPDATE meta SET value = '6' WHERE key = 'format'"))
    with open_site(site.folder) as again:
        assert record_incidents(again) == 1 and len(again.incidents.list()) == 1
