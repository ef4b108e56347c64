"""What the detector says of a site's newest windows."""

from __future__ import annotations

from dataclasses import replace
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from stormpetrel.answers.nodes.traces import odd_nodes
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.lifecycle.odd_nodes import LiveDetector, newest_findings
from stormpetrel.lifecycle.trace_models import load_trace_model
from stormpetrel.records.window_frames import frame_of
from stormpetrel.store.site import open_site
from tests.builders import make_site
from tests.lifecycle.traced_site import put_windows, train
from tests.traces.small import STEPS, small_windows


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A site that has learnt from 110 moments, and then saw four more; node n0 waits for files in the last of them."""
    folder = tmp_path_factory.mktemp("odd") / "site"
    whole = small_windows(0, steps=114 * STEPS, name="live")
    moments = np.unique(whole.start_s)
    with make_site(folder, site={"time_zone": "Asia/Kolkata"}, traces={"window_s": float(STEPS), "alarm_share": 0.01}) as site:
        put_windows(site, whole.take(whole.start_s < moments[110]))
        train(site)
        late = whole.take(whole.start_s >= moments[110])
        rates = late.rates.copy()
        rows = (late.start_s == moments[-1]) & (late.node == 0) & (late.cpu < 4)
        waits = np.random.default_rng(0).uniform(0.7, 0.95, (int(rows.sum()), STEPS - 6))
        rates[rows, 6:] = np.stack([0 * waits, 0 * waits, waits, 1 - waits], axis=2)
        put_windows(site, replace(late, rates=rates))
    return folder


@pytest.mark.needs("torch")
def test_a_trained_model_has_a_detector_that_names_the_node_in_a_sentence(folder):
    with open_site(folder) as site:
        model = load_trace_model(site)
        assert model.detector is not None
        first = (newest_findings(site, model) or [])[0]
        answer = odd_nodes(site, LOCAL, model)
    assert first.node == "n0" and first.mode == "iowait" and set(first.threads) >= {0, 1, 2, 3}
    assert "threads wait for files (iowait" in first.sentence
    assert answer and answer[0].sentence == first.sentence and answer[0].since >= answer[0].window_start
    assert len({finding.node for finding in answer}) == len(answer)

    local = answer[0].since.astimezone(ZoneInfo("Asia/Kolkata"))
    assert f" since {local:%H:%M:%S}" in first.sentence  # the site's time, as beside it on the page


def test_a_site_with_the_shipped_encoder_has_no_findings(tmp_path):
    with make_site(tmp_path / "site", traces={"window_s": float(STEPS)}) as site:
        put_windows(site, small_windows(0, name="live"))
        assert newest_findings(site, load_trace_model(site)) is None


@pytest.mark.needs("torch")
def test_live_a_node_is_told_of_when_it_is_odd_twice_and_as_long_as_it_lasts(folder):
    later = small_windows(0, steps=126 * STEPS, name="live")
    moments = np.unique(later.start_s)[110:]
    with open_site(folder) as site:
        model = load_trace_model(site)
    live, told = LiveDetector(0.001), []
    for number, start_s in enumerate(moments):
        windows = later.take(later.start_s == start_s)
        if number >= 10:
            waits = np.random.default_rng(number).uniform(0.7, 0.95, (4, STEPS))
            rates = windows.rates.copy()
            rates[(windows.node == 1) & (windows.cpu < 4)] = np.stack([0 * waits, 0 * waits, waits, 1 - waits], axis=2)
            windows = replace(windows, rates=rates)
        told.append([finding.node for finding in live.step(model, frame_of(windows, cluster="c"))])
    assert not any("n1" in nodes for nodes in told[:11])
    assert all("n1" in nodes for nodes in told[11:])


@pytest.mark.needs("torch")
def test_live_a_detector_that_has_seen_little_calls_nobody(tmp_path):
    windows = small_windows(0, steps=32 * STEPS, name="live")
    starts = np.unique(windows.start_s)
    with make_site(tmp_path / "site", traces={"window_s": float(STEPS)}) as site:
        put_windows(site, windows.take(windows.start_s < starts[30]))
        train(site)
        model = load_trace_model(site)
    assert model.detector is not None and model.detector.calm_nodes == 60
    idle = replace(windows, rates=np.broadcast_to(np.array([0, 0, 0, 1], dtype=np.float32), windows.rates.shape).copy())
    live = LiveDetector(0.001)
    assert not any(live.step(model, frame_of(idle.take(idle.start_s == start_s), cluster="c")) for start_s in starts[30:])
