"""The nightly contest of event models: recall at the budget on the same outages, labelled or injected."""

from __future__ import annotations

import shutil
from datetime import timedelta

import numpy as np
import pytest

from stormpetrel.lifecycle.contests import events
from stormpetrel.lifecycle.contests.events import Watched, contest_events
from stormpetrel.lifecycle.event_models import train_event_model
from stormpetrel.store.site import create_site, open_site
from tests.answers.cluster_sites import put_counts, sample_grid

HOURS = 1000
ENOUGH = 40  # outages that are injected


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    folder = tmp_path_factory.mktemp("contest") / "site"
    with create_site(folder) as site:
        put_counts(site, sample_grid(HOURS))
        train_event_model(site, "unsupervised")
    return folder


@pytest.fixture
def site(before, tmp_path):
    shutil.copytree(before, tmp_path / "site")
    with open_site(tmp_path / "site") as opened:
        yield opened


def contest(site, *, days: float = 2):
    return contest_events(site, now=site.now() + timedelta(days=days))


def judged(monkeypatch, *caught: float, false_alarms: int = 0) -> None:
    """Champion first: what each model would have caught of the same outages."""
    shares = iter(caught)

    def watched(*_args):
        return Watched(np.arange(ENOUGH) < next(shares) * ENOUGH, false_alarms)

    monkeypatch.setattr(events, "_watched", watched)


@pytest.fixture
def one_challenger(monkeypatch):
    monkeypatch.setattr(events._Contest, "_challengers", lambda *_: [("unsupervised, everything", "unsupervised", 0)])


def test_the_first_model_is_put_in_use_without_a_comparison(tmp_path):
    with create_site(tmp_path / "site") as site:
        put_counts(site, sample_grid(700))
        night = contest(site)
    assert night.promoted and night.why == "the first model"


def test_champion_and_challengers_are_judged_on_the_same_injected_outages(site):
    night = contest(site)
    assert {challenger["outages"] for challenger in night.challengers} == {ENOUGH}
    assert len({challenger["champion"]["recall"] for challenger in night.challengers}) == 1
    assert "injected outages" in night.why
    assert {challenger["name"].split(",")[0] for challenger in night.challengers} == {"unsupervised", "combined"}


def test_one_that_catches_clearly_more_is_trained_on_everything_and_put_in_use(site, monkeypatch, one_challenger):
    judged(monkeypatch, 0.4, 0.9)
    night = contest(site)
    assert night.promoted and site.models.current_training("events").name == night.training == "events-2"
    assert site.audit.recent()[0].action == "nightly"


def test_one_that_is_not_clearly_better_is_kept_beside_the_champion(site, monkeypatch, one_challenger):
    judged(monkeypatch, 0.5, 0.525)
    night = contest(site)
    assert not night.promoted and site.models.current_training("events").name == "events-1"
    assert "not clearly better" in night.why and site.models.training(night.training).why == night.why


def test_one_that_cries_wolf_is_not_put_in_use_however_much_it_catches(site, monkeypatch, one_challenger):
    judged(monkeypatch, 0.4, 0.9, false_alarms=9)
    monkeypatch.setattr(events, "_MORE_FALSE_ALARMS", -1)
    assert "false alarms in the judged week" in contest(site).why


def test_a_day_must_have_passed_or_labels_have_changed(site):
    assert "less than a day old" in contest(site, days=0).why


def test_a_site_without_counts_has_no_contest(tmp_path):
    with create_site(tmp_path / "site") as site:
        assert contest(site) is None
