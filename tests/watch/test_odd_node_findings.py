"""The watch and the detector: a node that is odd at two moments in a row is a finding, with what its threads do."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from stormpetrel.ingest.live_windows import LiveMoment
from stormpetrel.ingest.traces import TraceReport
from stormpetrel.records.cursor import Cursor
from stormpetrel.records.findings import FindingKind, Subject, SubjectKind
from stormpetrel.records.window_frames import frame_of
from stormpetrel.sources.prometheus.cpu_traces import CURSOR
from stormpetrel.watch.trace_findings import TraceFindings
from tests.builders import make_site
from tests.lifecycle.traced_site import put_windows, train
from tests.traces.small import STEPS, small_windows

LEARNT, BEFORE = 110, 5  # moments that are learnt from, and calm ones that the watch sees before the trouble


def moment_of(windows, start_s):
    now = windows.take(windows.start_s == start_s)
    start, end = (datetime.fromtimestamp(at_s, UTC) for at_s in (start_s, start_s + STEPS))
    return LiveMoment(start, end, frame_of(now, cluster="alpha"), Cursor(CURSOR, round((start_s + STEPS) * 1e6)), TraceReport())


@pytest.mark.needs("torch")
def test_a_node_that_stays_odd_is_found_with_what_its_threads_do(tmp_path):
    windows = small_windows(0, steps=(LEARNT + BEFORE + 3) * STEPS, name="live")
    starts = np.unique(windows.start_s)
    rates = windows.rates.copy()
    sick = (windows.start_s >= starts[LEARNT + BEFORE]) & (windows.node == 1) & (windows.cpu < 4)
    waits = np.random.default_rng(1).uniform(0.7, 0.95, (int(sick.sum()), STEPS))
    rates[sick] = np.stack([0 * waits, 0 * waits, waits, 1 - waits], axis=2)
    windows = replace(windows, rates=rates)
    with make_site(tmp_path / "site", traces={"window_s": float(STEPS), "alarm_share": 0.001}, site={"cluster": "alpha"}) as site:
        put_windows(site, windows.take(windows.start_s < starts[LEARNT]))
        train(site)
        watcher, found = TraceFindings(site), []
        for start_s in starts[LEARNT:]:
            watcher._take(moment_of(windows, start_s))
            found.append(watcher._odd_nodes(datetime.fromtimestamp(start_s + STEPS + 3, UTC)))
    assert not any(found[: BEFORE + 1])
    for findings in found[BEFORE + 1 :]:
        (finding,) = findings
        assert finding.subject == Subject(SubjectKind.NODE, "n1") and finding.kind == FindingKind.WINDOWS_ODD
        assert "threads wait for files (iowait" in finding.label and finding.score >= finding.threshold
        assert finding.since <= finding.decided_at <= finding.known_at and finding.figure("flagged") >= 4
