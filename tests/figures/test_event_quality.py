"""Figures of how good the alarm of the cluster is."""

from __future__ import annotations

import pytest

from stormpetrel.answers.schemas.events import EventDataset
from stormpetrel.events.evaluation import MODEL_NAMES, Run, summary
from stormpetrel.events.event_metrics import Caught
from stormpetrel.figures.event_quality import model_comparison, outage_cells, recall_by_outage

EVIL = "<b onclick='x'>log</b>"


@pytest.fixture
def found():
    severe, mild = Caught("slow_storage", "severe", 1.0), Caught("slow_storage", "mild", None)
    own = Caught("mine:cold", "recorded", 2.0)
    runs = [
        Run(EVIL, 0, "unsupervised", {"pr_auc": 0.8}, (severe, mild, own)),
        Run(EVIL, 1, "unsupervised", {"pr_auc": 0.6}, (severe, mild)),
        Run(EVIL, 0, "pca", {"pr_auc": 0.3}, (severe, mild)),
        Run(EVIL, 0, "supervised", {}, error="no outage"),
    ]
    return EventDataset.model_validate(summary(runs, order=MODEL_NAMES)["datasets"][EVIL])


def test_models_and_baselines_have_bars_with_their_spread(found):
    figure = model_comparison(EVIL, found)
    models, baselines = figure.data
    assert models.x == ("unsupervised",) and models.y == (0.7,) and models.error_y.array == pytest.approx((0.1,))
    assert baselines.x == ("pca",) and baselines.y == (0.3,)


def test_outages_stand_from_mild_to_severe(found):
    assert outage_cells(found) == [("mine:cold", "recorded"), ("slow_storage", "mild"), ("slow_storage", "severe")]


def test_the_map_tells_the_share_raised_of_each_outage_and_nothing_where_there_was_none(found):
    (heat,) = recall_by_outage(EVIL, found).data
    assert heat.x == ("supervised", "unsupervised", "pca")
    assert [list(row) for row in heat.z] == [[None, 1.0, None], [None, 0.0, 0.0], [None, 1.0, 1.0]]
    assert heat.text[1][1] == "0%" and heat.text[0][0] == ""


def test_names_are_shown_and_never_obeyed(found):
    for figure in (model_comparison(EVIL, found), recall_by_outage(EVIL, found)):
        assert "<b onclick" not in figure.to_json()
