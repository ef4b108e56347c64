"""A site's first day: windows are scored by the shipped encoder, which flags nothing before the site's own windows allow it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import polars as pl
import pytest

from stormpetrel.lifecycle.trace_models import load_trace_model, score_new_windows
from stormpetrel.records.traces import BAD_IO
from stormpetrel.records.windows import Windows, cut_windows
from stormpetrel.simulate.telemetry.campaigns import CampaignSpec, simulate_campaign
from stormpetrel.store.site import Site
from tests.builders import make_site
from tests.lifecycle.traced_site import put_windows
from tests.parts.hidden_torch import HIDE_TORCH

SCORE = (
    HIDE_TORCH
    + """
sys.argv = ["stormpetrel", "--site", sys.argv[1], "traces", "score"]
from stormpetrel.faces.cli.main import main
main()
"""
)


def live_windows(*, minutes: float = 30.0, seed: int = 5) -> Windows:
    """Windows of two nodes with sixteen threads, as a server would tell them."""
    spec = CampaignSpec(name="live", nodes=2, threads_per_node=16, minutes=minutes, seed=seed)
    return cut_windows(simulate_campaign(spec))


WINDOWS = live_windows()


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as opened:
        yield opened


def scores(site: Site) -> pl.DataFrame:
    return site.trace_scores.read().collect()


def test_a_site_without_a_model_is_scored_by_the_shipped_encoder(site):
    put_windows(site, WINDOWS)
    model = load_trace_model(site)
    done = score_new_windows(site, model)
    assert model.is_shipped and done.shipped and "not trained on this site" in model.title
    assert done.scored == len(WINDOWS) and done.other_length == 0
    rows = scores(site)
    assert set(rows["model"]) == {"traces-shipped"} and rows["bad_io_distance"].null_count() == 0
    assert rows.filter(job_type=BAD_IO)["score"].median() > 5 * rows.filter(pl.col("job_type") != BAD_IO)["score"].median()


def test_it_flags_nothing_on_the_first_windows(site):
    put_windows(site, live_windows(minutes=10))
    done = score_new_windows(site, load_trace_model(site))
    assert done.flagged == 0 and not scores(site)["flagged"].any()


def test_once_there_are_enough_calm_windows_it_promises_what_they_allow_and_flags_by_it(site):
    put_windows(site, WINDOWS)
    first = score_new_windows(site, load_trace_model(site))
    assert first.promise.threshold is not None and 0.001 < first.promise.share <= 0.05
    assert load_trace_model(site).threshold == first.promise.threshold
    rows = scores(site)
    flagged = rows.filter("flagged")
    assert not set(flagged["job_type"]) - set(rows.filter(pl.col("job_type") != "Mixed")["job_type"])
    assert rows.sort("window_start")["flagged"].head(len(WINDOWS) // 8).sum() == 0


def test_a_promise_that_is_kept_stays_as_it_is(site):
    site.settings = site.settings.model_copy(update={"traces": site.settings.traces.model_copy(update={"alarm_share": 0.05})})
    put_windows(site, WINDOWS)
    first = score_new_windows(site, load_trace_model(site)).promise
    put_windows(site, replace(live_windows(seed=6), start_s=WINDOWS.start_s + 86_400.0))
    assert first.is_kept and score_new_windows(site, load_trace_model(site)).promise == first


def test_windows_of_any_step_are_scored_on_the_first_day(site):
    spec = CampaignSpec(name="slow", nodes=1, threads_per_node=8, minutes=20, step_s=15.0)
    put_windows(site, cut_windows(simulate_campaign(spec), steps=7))
    done = score_new_windows(site, load_trace_model(site))
    assert done.scored == scores(site).height > 0 and done.other_length == 0


def test_traces_score_runs_without_torch(site):
    put_windows(site, live_windows(minutes=10))
    ran = subprocess.run([sys.executable, "-c", SCORE, str(site.folder)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "the shipped encoder, not trained on this site" in " ".join(ran.stdout.split())
