"""The bench of faults put into a site's own CPU windows, and seen by the model in use."""

import numpy as np
import pytest

from stormpetrel.rehearse.site.rehearsal import RehearsalPlan, rehearse
from stormpetrel.rehearse.site.trace_faults import LASTS, TraceFaults
from tests.builders import make_site
from tests.lifecycle.traced_site import put_windows, train
from tests.traces.small import STEPS, small_windows

pytestmark = pytest.mark.needs("torch")
LEARNT, LATER = 110, 42


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A site whose model has learnt from 110 moments, and which keeps 42 later ones."""
    folder = tmp_path_factory.mktemp("windows") / "site"
    windows = small_windows(0, steps=(LEARNT + LATER) * STEPS, name="live")
    starts = np.unique(windows.start_s)
    settings = {"traces": {"window_s": float(STEPS), "alarm_share": 0.001}, "site": {"cluster": "alpha", "time_zone": "UTC"}}
    with make_site(folder, **settings) as site:
        put_windows(site, windows.take(windows.start_s < starts[LEARNT]))
        train(site)
        put_windows(site, windows.take(windows.start_s >= starts[LEARNT]))
        yield site


def test_only_windows_that_the_model_has_not_learnt_from_are_used(site):
    faults = TraceFaults(site)
    assert len(faults.moments) <= LATER and not faults.notes and not faults.missing


def test_a_fault_changes_one_node_for_some_moments_and_can_be_taken_back(site):
    faults = TraceFaults(site)
    before = faults.windows
    fault = faults.put("bad_io", "severe", faults.slots[0], np.random.default_rng(1))
    changed = faults.windows.join(before, on=before.columns, how="anti", nulls_equal=True)
    assert set(changed["node"]) == fault.subjects and changed["window_start"].n_unique() <= LASTS
    assert faults.windows.height == before.height and changed["iowait"].list.mean().mean() > 0.2
    faults.begin()
    assert faults.windows.equals(before)


def test_threads_that_wait_for_data_are_seen_and_what_is_not_seen_is_a_hole(site):
    result = rehearse(site, RehearsalPlan(kinds=("bad_io", "straggler", "node_down"), severities=("mild", "severe"), n=1))
    assert result.coverage["bad_io"]["severe"].recall == 1.0 and result.coverage["bad_io"]["severe"].paged is None
    straggler = result.coverage["straggler"]["mild"]
    assert any("A straggler in an MPI job" in hole for hole in result.holes) == (straggler.recall < 0.5)
    assert any("no job records" in hole or "too few" in hole for hole in result.holes)
