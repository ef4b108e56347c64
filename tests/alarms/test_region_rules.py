from datetime import timedelta

import polars as pl

from stormpetrel.alarms.grouping import IncidentBook
from stormpetrel.alarms.titles import title
from stormpetrel.alarms.trace_rules import known_troubles, region_moments
from stormpetrel.records.findings import FindingKind, Subject, SubjectKind
from stormpetrel.records.incidents import Severity
from tests.parts.alarm_jobs import at

WINDOW = timedelta(seconds=100)


def windows(region, *, nodes=3, moments=10, threads=8):
    """`region(node, moment, thread)` names the region of a window, or None."""
    rows = [
        {"cluster": "c1", "node": f"n{node}", "window_start": at(1) + moment * WINDOW, "window_s": 100.0, "stands_for": None,
         "region": region(node, moment, thread)}
        for node in range(nodes) for moment in range(moments) for thread in range(threads)
    ]  # fmt: skip
    return pl.DataFrame(rows, schema_overrides={"region": pl.String, "stands_for": pl.Int32})


def found(frame, after=at(0), now=at(9)):
    return known_troubles(region_moments(frame), after, now, model="m/1")


def hung(node, moment, thread):
    return "hung allreduce" if node == 1 and moment >= 4 and thread < 4 else None


def test_a_node_whose_windows_stay_in_a_region_raises_its_name_at_the_third_moment():
    (finding,) = found(windows(hung))
    assert finding.kind is FindingKind.WINDOWS_KNOWN and finding.subject == Subject(SubjectKind.NODE, "n1")
    assert (finding.label, finding.since, finding.decided_at) == ("hung allreduce", at(1) + 4 * WINDOW, at(1) + 7 * WINDOW)
    (incident,) = IncidentBook().take([finding], at(9))
    assert incident.severity is Severity.WARNING and "look like hung allreduce" in title(incident, "UTC")


def test_two_moments_or_single_windows_raise_nothing():
    assert not found(windows(lambda node, moment, thread: hung(node, moment, thread) if moment in (4, 5, 7, 8) else None))
    assert not found(windows(lambda node, moment, thread: "odd" if thread == moment % 8 else None))


def test_a_node_of_one_thread_raises_a_name_too():
    assert len(found(windows(lambda node, moment, thread: "odd" if node == 0 else None, threads=1))) == 1


def test_what_was_found_before_is_not_found_again_and_what_goes_on_is():
    frame = windows(hung)
    assert found(frame, after=at(1) + 10 * WINDOW) == []
    (finding,) = found(frame, after=at(1) + 9 * WINDOW)
    assert finding.decided_at == at(1) + 10 * WINDOW and finding.figure("inside") == 4 and finding.figure("windows") == 8


def test_a_decision_looks_at_nothing_that_comes_later():
    frame, cut = windows(hung), at(1) + 8 * WINDOW
    assert found(frame, now=cut) == found(frame.filter(pl.col("window_start") + WINDOW <= cut), now=cut)
