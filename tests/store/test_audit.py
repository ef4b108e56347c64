from datetime import UTC, datetime, timedelta

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


def test_what_is_done_again_within_an_hour_is_counted_in_one_row(tmp_path):
    state, now = open_state(tmp_path, lock_folder=tmp_path), [T0]
    audit = AuditTrail(state, clock=lambda: now[0])
    for minutes in (0, 10, 59, 61):
        now[0] = T0 + timedelta(minutes=minutes)
        audit.count("kim", "logged in", {"token": "a"})
        audit.count("kim", "logged in", {"token": "b"})
    assert [(entry.time, dict(entry.about)) for entry in audit.recent() if entry.about["token"] == "a"] == [
        (T0 + timedelta(minutes=61), {"token": "a"}),
        (T0, {"token": "a", "times": 3, "last": (T0 + timedelta(minutes=59)).isoformat()}),
    ]
    state.close()
