"""Event models of a site: trained, entered, loaded, and every bucket scored once, with its reasons."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from stormpetrel.errors import ModelError
from stormpetrel.events.finding import FindingKind, findings_of_json
from stormpetrel.lifecycle.event_models import EVENTS, load_event_model, train_event_model
from stormpetrel.lifecycle.event_scoring import score_new_buckets
from stormpetrel.records.outages import OutageKind
from stormpetrel.store.site import Site, create_site
from tests.answers.cluster_sites import HOUR, SOURCE, put_counts, sample_grid

HOURS = 700


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with create_site(tmp_path_factory.mktemp("events") / "site") as site:
        put_counts(site, sample_grid(HOURS))
        for outage in sample_grid(HOURS).outages:
            site.outages.add(outage)
        train_event_model(site, "combined")
        yield site


def _scores(site: Site) -> pl.DataFrame:
    return site.event_scores.read().sort("bucket_start").collect()


def test_a_site_without_counts_is_told_what_to_do(tmp_path: Path) -> None:
    with create_site(tmp_path / "site") as site, pytest.raises(ModelError, match="ingest events --live"):
        train_event_model(site)


def test_a_trained_model_is_current_and_keeps_its_threshold_kinds_and_labels(trained: Site) -> None:
    used = load_event_model(trained)
    about = trained.models.current("events-combined").about
    assert (used.name, used.threshold, used.bucket_s) == ("events-combined", about["threshold"], 3600)
    assert len(used.kinds) == 13
    assert about["labelled_outage_buckets"] > 0 and about["labels"] == len(sample_grid(HOURS).outages)


def test_every_bucket_is_scored_once_and_severe_outages_are_alarms_with_reasons(trained: Site) -> None:
    used = load_event_model(trained)
    first = score_new_buckets(trained, used)
    again = score_new_buckets(trained, used)
    rows = _scores(trained)
    assert (first.scored, again.scored, rows.height) == (HOURS, 0, HOURS)
    severe = [one for one in sample_grid(HOURS).outages if one.severity == "severe" and one.start >= rows["bucket_start"][400]]
    assert severe
    for outage in severe:
        during = rows.filter(pl.col("bucket_start").is_between(outage.start, outage.end, closed="left"), "alarm")
        assert during.height, outage
        assert any(findings_of_json(why) for why in during["why"])


def test_an_announced_maintenance_is_never_an_alarm(trained: Site) -> None:
    score_new_buckets(trained, load_event_model(trained))
    rows = _scores(trained)
    spans = [one for one in sample_grid(HOURS).outages if one.kind is OutageKind.MAINTENANCE]
    assert spans
    for span in spans:
        assert not rows.filter(pl.col("bucket_start").is_between(span.start, span.end, closed="left"))["alarm"].any()


def test_scoring_hour_by_hour_says_what_scoring_at_once_says(trained: Site, tmp_path: Path) -> None:
    score_new_buckets(trained, load_event_model(trained))
    at_once = _scores(trained)
    used, grid = load_event_model(trained), sample_grid(HOURS)
    with create_site(tmp_path / "later") as site:
        for outage in grid.outages:
            site.outages.add(outage)
        for unseen in ((HOURS - 3, HOURS - 1), None):  # first without two of the last hours, then with them
            put_counts(site, grid, unseen=unseen)
            score_new_buckets(site, used)
        rows = _scores(site)
    assert rows.height == HOURS
    # The last hour was scored when the two before it were still a gap: it stays as it was said.
    assert np.allclose(rows["score"][-10:-1], at_once["score"][-10:-1])
    assert rows["alarm"].to_list()[:-1] == at_once["alarm"].to_list()[:-1]


def test_a_gap_that_is_filled_later_is_scored_then(trained: Site, tmp_path: Path) -> None:
    used, grid = load_event_model(trained), sample_grid(HOURS)
    with create_site(tmp_path / "gap") as site:
        put_counts(site, grid, unseen=(600, 606))
        assert score_new_buckets(site, used).scored == HOURS - 6
        put_counts(site, grid)
        filled = score_new_buckets(site, used)
    assert filled.rows["bucket_start"].to_list() == [grid.series.moment(hour) for hour in range(600, 606)]


def test_a_black_hole_is_an_alarm_whatever_the_score(trained: Site, tmp_path: Path) -> None:
    used, grid = load_event_model(trained), sample_grid(HOURS)
    hour = next(place for place in range(HOURS - 100, HOURS) if grid.series.label[place] == 0)
    with create_site(tmp_path / "hole") as site:
        put_counts(site, grid)
        start = grid.series.moment(hour)
        extra = {"bucket_s": 3600, "source": "condor:other", "place": "node", "value": "sick-1"}
        rows = [{**extra, "bucket_start": start, "kind": kind, "count": 900} for kind in ("Execute", "JobFailedFast")]
        mark = {**extra, "bucket_start": start, "kind": "", "place": "", "value": "", "count": 900}
        told = pl.DataFrame([*rows, mark], schema=site.event_counts.read().collect_schema())
        site.event_counts.replace(told, source="condor:other", start=start, end=start + HOUR, bucket_s=3600)
        score_new_buckets(site, used)
        (row,) = _scores(site).filter(pl.col("bucket_start") == start).to_dicts()
    assert row["alarm"]
    assert FindingKind.BLACK_HOLE in {one.kind for one in findings_of_json(row["why"])}
    assert SOURCE != "condor:other"


def test_training_promoting_and_going_back(trained: Site) -> None:
    before = trained.models.current_training("events")
    assert before is not None
    after = train_event_model(trained, "unsupervised")
    assert load_event_model(trained).name == "events-unsupervised"
    assert EVENTS.roll_back(trained).name == before.name
    assert EVENTS.promote(trained, after.name).name == after.name
    EVENTS.promote(trained, before.name)


def test_a_model_for_other_buckets_is_refused_with_what_to_do(trained: Site, tmp_path: Path) -> None:
    from stormpetrel.config import settings_from

    used = load_event_model(trained)
    with (
        create_site(tmp_path / "minutes", settings_from({"events": {"bucket_minutes": 15}})) as site,
        pytest.raises(ModelError, match="per 60 minutes"),
    ):
        score_new_buckets(site, used)
