from datetime import timedelta

import polars as pl

from stormpetrel.store.doctor.store_checks import check_events
from tests.builders import make_site
from tests.parts.made_events import H0, HOUR, seen_of


def findings(site):
    return [(finding.level, finding.what) for finding in check_events(site)]


def test_a_site_that_counts_no_events_is_not_ill_unless_it_names_where_they_are(tmp_path):
    with make_site(tmp_path / "a") as site:
        assert findings(site) == [("ok", "no events of the cluster are counted yet")]
    with make_site(tmp_path / "b", htcondor={"event_log": "/var/log/condor/EventLog"}) as site:
        assert findings(site)[0][0] == "warning"


def test_the_doctor_tells_the_gaps_of_the_last_week_with_their_reason(tmp_path):
    with make_site(tmp_path / "site") as site:
        first = site.now().replace(minute=0, second=0, microsecond=0) - timedelta(hours=10)
        counts = seen_of([(0, "Submit", 5)], 0, 6, unseen=[3]).with_columns(pl.col("bucket_start") + (first - H0))
        site.event_counts.replace(counts, source="made", start=first, end=first + HOUR * 6, bucket_s=3600)
        seen = site.event_counts.coverage(bucket_s=3600)
        gap = (first + HOUR * 3, first + HOUR * 4, "no index")
        site.event_counts.reasons.update("made", [gap], seen=seen, now=site.now())
        (good, bad) = findings(site)
        assert good[0] == "ok" and f"{first + HOUR * 6:%H:%M}" in good[1]
        assert bad[0] == "warning" and f"{first + HOUR * 3:%H:%M}" in bad[1] and "no index" in bad[1]
