from contextlib import nullcontext

import polars as pl
import pytest

from stormpetrel.records.events import EVENT_SCORE_SCHEMA
from stormpetrel.store.traces import EventScoreStore
from stormpetrel.store.upkeep.upkeep import forget
from tests.builders import make_site
from tests.parts.made_events import H0, HOUR


@pytest.fixture
def store(tmp_path):
    made = EventScoreStore(tmp_path, nullcontext)
    made.create()
    return made


def scores(first, last, *, version=1, score=0.5, why="[]"):
    rows = [
        {
            "bucket_start": H0 + HOUR * hour,
            "bucket_s": 3600,
            "model": "events-unsupervised",
            "model_version": version,
            "score": score,
            "threshold": 3.0,
            "alarm": score > 3,
            "said_at": H0 + HOUR * (hour + 1),
            "kinds": ["Submit", "Execute"],
            "counts": [1.0, 2.0],
            "expected": [1.5, 2.5],
            "low": [0.0, 0.0],
            "high": [5.0, None],
            "surprise": [-0.1, 0.1],
            "why": why,
        }
        for hour in range(first, last)
    ]
    return pl.DataFrame(rows, schema=EVENT_SCORE_SCHEMA)


def test_scores_come_back_as_they_went_in(store):
    frame = scores(0, 24)
    assert store.append(frame) == 24
    assert store.read().collect().sort("bucket_start").equals(frame)


def test_a_bucket_is_scored_once_per_version_and_stays_as_it_was_said(store):
    store.append(scores(0, 3))
    assert store.append(scores(1, 5, score=9.0)) == 2
    assert store.read().collect().sort("bucket_start")["score"].to_list() == [0.5, 0.5, 0.5, 9.0, 9.0]
    assert store.append(scores(0, 3, version=2)) == 3
    assert store.append(scores(0, 0)) == 0


def test_scores_are_read_by_span_and_model(store):
    store.append(pl.concat([scores(0, 6), scores(0, 6, version=2)]))
    assert store.read(since=H0 + HOUR * 2, until=H0 + HOUR * 4, version=2).collect().height == 2
    assert store.read(model="another").collect().height == 0


def test_a_forgotten_user_is_in_no_finding(tmp_path):
    with make_site(tmp_path / "site") as site:
        site.event_scores.append(scores(0, 1, why='[{"words": "JobHeld 9 times, all of ada, none of adam"}]'))
        forget(site, "ada")
        assert site.event_scores.read().collect()["why"].to_list() == [
            '[{"words": "JobHeld 9 times, all of (other), none of adam"}]'
        ]
