import pytest

from stormpetrel.alarms.blame import pointers
from stormpetrel.events.finding import Finding as Reason
from stormpetrel.events.finding import FindingKind as ReasonKind


def more(kind, place=""):
    return Reason(
        ReasonKind.MORE, "", event_kind=kind, count=50, expected=5, place=place, value="x" if place else "", surprise=6.0
    )


def fewer(kind, place=""):
    return Reason(
        ReasonKind.FEWER, "", event_kind=kind, count=5, expected=50, place=place, value="x" if place else "", surprise=-6.0
    )


def suspects(*reasons):
    figures = pointers(reasons)
    return [figure.name for figure in sorted(figures, key=lambda figure: -figure.value)]


@pytest.mark.parametrize(
    ("reasons", "suspect"),
    [
        ([more("JobDisconnected", "submit_host"), more("JobReconnected", "submit_host")], "points_at_scheduler"),
        ([fewer("Submit"), fewer("Execute")], "points_at_scheduler"),
        ([more("JobReconnectFailed", "site"), fewer("JobTerminated"), fewer("JobImageSize")], "points_at_node"),
        ([more("JobFailedFast", "node"), more("JobHeld", "group"), more("Execute", "node")], "points_at_node"),
        ([fewer("JobTerminated"), fewer("Execute")], "points_at_storage"),
        ([more("JobHeld", "group"), more("JobAborted", "group")], "points_at_user"),
    ],
)
def test_kinds_and_places_of_unusual_events_point_at_a_suspect(reasons, suspect):
    assert suspects(*reasons)[0] == suspect


def test_events_that_are_spread_over_all_places_point_at_nobody():
    assert suspects(more("JobHeld"), more("JobDisconnected"), fewer("JobFailedFast"), more("JobImageSize")) == []


def test_a_group_whose_jobs_lose_their_line_is_not_suspected():
    assert suspects(more("JobDisconnected", "group")) == []


def test_a_kind_that_is_a_thousand_times_as_frequent_counts_no_more_than_one_that_is_telling():
    loud = Reason(ReasonKind.MORE, "", event_kind="JobHeld", count=5000, expected=5, place="node", value="n1", surprise=300.0)
    assert pointers([loud])[0].value == 8.0
