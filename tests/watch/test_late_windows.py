import numpy as np
import pytest

from stormpetrel.records.window_frames import WINDOW_KEY
from stormpetrel.sources.prometheus.query import Series
from tests.parts.made_counters import T0
from tests.sources.prometheus.test_live import SlowServer, node
from tests.watch.test_trace_findings import follow, site_at, tables


class HeldBackServer(SlowServer):
    """A server that receives the samples of one node much later than those of the others."""

    def __init__(self, series, *, late_node, late_s):
        super().__init__(series)
        self.late_node, self.late_s = late_node, late_s

    def _within(self, metric, start_s, end_s):
        series = []
        for one in super()._within(metric, start_s, end_s):
            is_late = one.labels["instance"].startswith(self.late_node)
            seen = one.time_s <= self.now - (self.late_s if is_late else 0.0)
            if seen.any():
                series.append(Series(one.labels, one.time_s[seen], one.values[seen]))
        return series


@pytest.fixture(scope="module")
def counters():
    rng = np.random.default_rng(3)
    return [one for name in range(3) for one in node(rng, f"n{name}", seconds=220, cpus=2)]


def test_samples_that_come_after_a_window_was_scored_are_read_again_within_the_overlap(tmp_path, counters):
    with site_at(tmp_path / "late") as late, site_at(tmp_path / "calm") as calm:
        for site in (late, calm):
            site.settings.prometheus.__dict__["overlap_s"] = 60.0
        moments_s = np.arange(1, 180, 1.7)
        follow(late, HeldBackServer(counters, late_node="n1", late_s=25.0), moments_s)
        follow(calm, SlowServer(counters), moments_s)
        windows, expected = tables(late)[0], tables(calm)[0]
        settled = windows["window_start"].dt.timestamp("us") < (T0 + 100) * 1_000_000
        early = expected["window_start"].dt.timestamp("us") < (T0 + 100) * 1_000_000
        assert windows.filter(settled).select(WINDOW_KEY).equals(expected.filter(early).select(WINDOW_KEY))
