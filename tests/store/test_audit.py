from datetime import UTC, datetime

import pytest

from stormpetrel.store.audit import AuditEntry, AuditTrail
from stormpetrel.store.state import open_state

T0 = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def audit(tmp_path):
    state = open_state(tmp_path, lock_folder=tmp_path)
    yield AuditTrail(state, clock=lambda: T0)
    state.close()


def test_the_trail_says_who_did_what_newest_first(audit):
    audit.record("kim", "logged in")
    audit.record("root", "promoted", {"model": "jobs-submit", "version": 3, "when": T0})
    assert audit.recent() == [
        AuditEntry(T0, "root", "promoted", {"model": "jobs-submit", "version": 3, "when": str(T0)}),
        AuditEntry(T0, "kim", "logged in", {}),
    ]
    assert len(audit.recent(1)) == 1
