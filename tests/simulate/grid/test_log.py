import re
from collections import Counter

import numpy as np
import pytest

from stormpetrel.errors import UsageError
from stormpetrel.simulate.grid.grid import GridSpec, simulate_grid
from stormpetrel.simulate.grid.places import focus_of
from stormpetrel.simulate.grid.spec import GRID_KINDS
from stormpetrel.sources.htcondor.event_jobs import CondorEvents
from tests.parts.grid_event_log import FIRST_CLUSTER, write_event_log

NUMBER = dict(zip(GRID_KINDS, (0, 1, 4, 5, 6, 7, 9, 12, 13, 21, 22, 23, 24), strict=True))
HEADER = re.compile(r"^(\d{3}) \((\d+)\.(\d+)\.000\) (\d{4}-\d\d-\d\d) (\d\d):(\d\d):(\d\d) (.*)$", re.MULTILINE)


@pytest.fixture(scope="module")
def grid():
    return simulate_grid(
        GridSpec(hours=500, seed=2, slots=400, nodes=40, sites=4, outages_per_week=3, outage_types=("black_hole",))
    )


@pytest.fixture(scope="module")
def log(grid, tmp_path_factory):
    return write_event_log(grid, tmp_path_factory.mktemp("log") / "EventLog", 30, 54, most_events=6000)


def events(path):
    """(number, (cluster, proc), seconds since midnight, text of the first line) of each event."""
    found = HEADER.findall(path.read_text())
    return [(int(e[0]), (int(e[1]), int(e[2])), int(e[4]) * 3600 + int(e[5]) * 60 + int(e[6]), e[7], e[3]) for e in found]


def test_the_log_has_the_events_of_its_hours(grid, log):
    assert log.events == 6000 and (log.counts <= grid.series.counts[30:54]).all()
    counted = Counter(number for number, *_ in events(log.path))
    assert counted == {NUMBER[kind]: n for kind, n in zip(log.kinds, log.counts.sum(axis=0).tolist(), strict=True) if n}
    by_hour = Counter((e[4], e[2] // 3600) for e in events(log.path) if e[0] == 0)
    assert list(by_hour.values()) == log.counts[:, 0][log.counts[:, 0] > 0].tolist()


def test_htcondor_reads_the_same_events(log):
    htcondor = pytest.importorskip("htcondor2")
    read = Counter(int(one.type) for one in htcondor.JobEventLog(str(log.path)).events(stop_after=0))
    assert read == {**Counter(number for number, *_ in events(log.path)), 8: 1}


def test_our_reader_of_jobs_refuses_nothing(log):
    chunks = list(CondorEvents(log.path).chunks())
    assert sum(len(chunk.records) for chunk in chunks) > 300 and not any(len(chunk.rejects) for chunk in chunks)


def test_without_a_limit_every_event_is_told(tmp_path, grid):
    made = write_event_log(grid, tmp_path / "EventLog", 30, 32)
    assert np.array_equal(made.counts, grid.series.counts[30:32])


def test_events_are_in_the_order_of_time(log):
    times = [(e[4], e[2]) for e in events(log.path)]
    assert times == sorted(times)


def test_a_start_follows_a_submission_and_an_end_follows_a_start(log):
    submitted, running, over = set(), set(), set()
    new = 0  # starts of jobs that the log has seen from their beginning
    for number, job, *_ in events(log.path):
        assert job not in over
        if number == 0:
            assert job not in submitted
            submitted.add(job)
        elif job[0] >= FIRST_CLUSTER:  # not of the past
            assert job in submitted
            if number == 1:
                assert job not in running
            elif number in (4, 5, 6, 7, 12, 21, 22, 23, 24):
                assert job in running
        if number == 1:
            new += job[0] >= FIRST_CLUSTER
            running.add(job)
        elif number in (4, 5, 7, 12, 24):
            running.discard(job)
        if number in (5, 9):
            over.add(job)
    assert new > 300 and len(over) > 300


def test_a_black_hole_fails_its_jobs_within_seconds(tmp_path, grid):
    planned = next(one for one in grid.plan if one.severity == "severe")
    _, node = focus_of(grid.spec, planned)
    log = write_event_log(grid, tmp_path / "EventLog", planned.first, planned.last)
    text = log.path.read_text()
    begun, runs = {}, []
    for block in text.split("\n...\n"):
        head = HEADER.match(block)
        if not head:
            continue
        job, second = head[2] + "." + head[3], int(head[6]) * 60 + int(head[7]) + 3600 * int(head[5])
        if head[1] == "001" and f"@{node}\n" in block:
            begun[job] = second
        elif head[1] == "005" and job in begun:
            runs.append((second - begun.pop(job), "return value 1" in block))
    assert len(runs) > 30
    assert np.median([run for run, failed in runs if failed]) < 120


def test_a_sample_has_as_many_events_as_asked_for_and_repeats(tmp_path, grid):
    made = [write_event_log(grid, tmp_path / name, 0, 48, most_events=2000) for name in ("a", "b")]
    assert made[0].events == 2000 and made[0].counts.shape == (48, 13)
    assert made[0].path.read_bytes() == made[1].path.read_bytes()
    share = made[0].counts.sum(axis=0) / grid.series.counts[:48].sum(axis=0)
    assert share[0] == pytest.approx(2000 / grid.series.counts[:48].sum(), rel=0.3)


def test_job_ads_tell_group_and_site(tmp_path, grid):
    log = write_event_log(grid, tmp_path / "EventLog", 0, 4, most_events=500, with_ads=True)
    text = log.path.read_text()
    assert text.count("\n028 (") == 500 and set(re.findall(r'Jobsub_Group = "(.*)"', text)) <= {
        f"group-0{n}" for n in range(1, 9)
    }
    assert set(re.findall(r'GLIDEIN_Site0 = "(.*)"', text)) == {f"site-0{n}" for n in range(1, 5)}
    htcondor = pytest.importorskip("htcondor2")
    triggers = Counter(
        one["TriggerEventTypeNumber"] for one in htcondor.JobEventLog(str(log.path)).events(stop_after=0) if int(one.type) == 28
    )
    assert triggers == Counter(number for number, *_ in events(log.path) if number != 28)


def test_dates_can_be_written_without_a_year(tmp_path, grid):
    log = write_event_log(grid, tmp_path / "EventLog", 0, 2, most_events=50, dates_without_year=True)
    lines = re.findall(r"^\d{3} \(.*\) (\S+) ", log.path.read_text(), re.MULTILINE)
    assert len(lines) == 51 and set(lines) == {"01/06"}


@pytest.mark.parametrize(("first", "last", "most"), [(5, 5, None), (-1, 3, None), (0, 501, None), (0, 5, 0)])
def test_an_order_that_makes_no_sense_is_refused(tmp_path, grid, first, last, most):
    with pytest.raises(UsageError):
        write_event_log(grid, tmp_path / "EventLog", first, last, most_events=most)
    assert not (tmp_path / "EventLog").exists()
