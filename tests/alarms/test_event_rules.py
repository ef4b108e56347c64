from datetime import timedelta

import pytest

from stormpetrel.alarms.event_rules import Bucket, finding_of_score
from stormpetrel.events.finding import Finding as Reason
from stormpetrel.events.finding import FindingKind as ReasonKind
from stormpetrel.records.findings import Subject, SubjectKind
from tests.parts.alarm_jobs import at


def unusual(place, value, share):
    reason = Reason(
        ReasonKind.MORE, "", event_kind="JobHeld", count=50, expected=5, place=place, value=value, share=share, surprise=6.0
    )
    bucket = Bucket("c1", at(1), timedelta(hours=1))
    return finding_of_score(bucket, [reason], score=9.0, threshold=3.0, model="m/1", known_at=bucket.end)


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("group", SubjectKind.GROUP),
        ("node", SubjectKind.NODE),
        ("site", SubjectKind.PARTITION),
        ("submit_host", SubjectKind.SUBMIT_HOST),
    ],
)
def test_unusual_counts_are_the_clusters_and_name_where_most_of_them_lie(place, kind):
    assert unusual(place, "x", 0.9).subjects == (Subject(SubjectKind.CLUSTER, "c1"), Subject(kind, "x"))


def test_a_share_is_told_only_of_a_place():
    assert unusual("node", "x", 0.9).figure("share") == 0.9
    assert not unusual("", "", 0.0).has_figure("share")
