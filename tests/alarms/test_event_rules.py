"""Waves of holds and shadow exceptions: against the week before, without what one group got wrong."""

from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.alarms.event_rules import REACH, Bucket, event_waves, finding_of_score, finding_of_wave
from stormpetrel.events.finding import Finding as Reason
from stormpetrel.events.finding import FindingKind as ReasonKind
from stormpetrel.records.events import as_counts
from stormpetrel.records.findings import FindingKind, Subject, SubjectKind
from stormpetrel.simulate.grid.grid import GridSpec, simulate_grid
from tests.parts.alarm_jobs import at
from tests.parts.made_events import H0, HOUR, counts_of

HELD, SHADOW = "JobHeld", "ShadowException"
NODES = [f"n{number}" for number in range(20)]
GROUPS = ["nova", "dune", "icarus", "sbnd"]
NOW = 200


def unusual(place, value, share):
    reason = Reason(
        ReasonKind.MORE, "", event_kind="JobHeld", count=50, expected=5, place=place, value=value, share=share, surprise=6.0
    )
    bucket = Bucket("c1", at(1), timedelta(hours=1))
    return finding_of_score(bucket, [reason], score=9.0, threshold=3.0, model="m/1", known_at=bucket.end)


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("group", SubjectKind.GROUP),
        ("node", SubjectKind.NODE),
        ("site", SubjectKind.PARTITION),
        ("submit_host", SubjectKind.SUBMIT_HOST),
    ],
)
def test_unusual_counts_are_the_clusters_and_name_where_most_of_them_lie(place, kind):
    assert unusual(place, "x", 0.9).subjects == (Subject(SubjectKind.CLUSTER, "c1"), Subject(kind, "x"))


def test_a_share_is_told_only_of_a_place():
    assert unusual("node", "x", 0.9).figure("share") == 0.9
    assert not unusual("", "", 0.0).has_figure("share")


def events(hour, kind, nodes, groups):
    """Counts of one hour: node -> count, group -> count."""
    rows = [(hour, kind, sum(groups.values()), "", "")]
    rows += [(hour, kind, count, "node", name) for name, count in nodes.items()]
    return rows + [(hour, kind, count, "group", name) for name, count in groups.items()]


def quiet(kind, hours=NOW, seed=0):
    """Four or so an hour, anywhere, of anybody."""
    rng = np.random.default_rng(seed)
    rows = []
    for hour in range(hours):
        count = int(rng.poisson(4))
        nodes, groups = (
            dict(zip(*np.unique(rng.choice(names, count), return_counts=True), strict=True)) for names in (NODES, GROUPS)
        )
        rows += events(hour, kind, nodes, groups)
    return rows


def waves_of(rows, *, first=0, last=NOW, since=NOW - 24):
    counts = counts_of([(hour, kind, int(count), place, str(value)) for hour, kind, count, place, value in rows])
    return event_waves(counts, [H0 + hour * HOUR for hour in range(first, last)], HOUR, H0 + since * HOUR)


EVERYWHERE = dict.fromkeys(NODES, 3), dict.fromkeys(GROUPS, 15)


@pytest.mark.parametrize(("kind", "finding"), [(HELD, FindingKind.HOLD_WAVE), (SHADOW, FindingKind.SHADOW_WAVE)])
def test_many_more_than_in_the_week_before_are_a_wave_on_the_cluster(kind, finding):
    rows = quiet(kind)
    assert waves_of(rows) == []
    (wave,) = waves_of(rows + events(NOW, kind, *EVERYWHERE), last=NOW + 1)
    assert (wave.start, wave.kind, wave.node, wave.count) == (H0 + NOW * HOUR, finding, "", 60.0) and wave.expected < 4


def test_a_wave_is_told_in_each_of_its_hours_and_what_lasts_for_days_is_usual():
    rows = quiet(HELD) + [row for hour in range(NOW, NOW + 72) for row in events(hour, HELD, *EVERYWHERE)]
    told = [wave.start for wave in waves_of(rows, last=NOW + 72)]
    assert told == [H0 + (NOW + hour) * HOUR for hour in range(len(told))] and 20 <= len(told) <= 30


def test_one_node_that_has_them_all_is_named_and_the_cluster_is_not():
    rows = quiet(SHADOW) + events(NOW, SHADOW, {"n7": 30, "n3": 2}, dict.fromkeys(GROUPS, 8))
    (wave,) = waves_of(rows, last=NOW + 1)
    assert (wave.node, wave.count) == ("n7", 30.0)


@pytest.mark.parametrize("nodes", [{"n7": 90}, dict.fromkeys(NODES, 5)])
def test_a_batch_of_one_group_that_is_held_is_neither_the_clusters_nor_a_nodes_trouble(nodes):
    rows = quiet(HELD) + events(NOW, HELD, nodes, {"nova": 92, "dune": 1, "icarus": 2})
    assert waves_of(rows, last=NOW + 1) == []


def test_nothing_is_said_without_two_days_of_counts_or_about_hours_that_were_not_seen():
    rows = quiet(HELD) + events(NOW, HELD, *EVERYWHERE)
    assert waves_of(rows, first=NOW - 40, last=NOW + 1) == [] and waves_of(rows, last=NOW) == []
    assert len(waves_of(rows, first=NOW - 60, last=NOW + 1)) == 1


@pytest.mark.parametrize("node", ["n7", ""])
def test_a_wave_is_a_finding_about_its_node_or_the_cluster(node):
    rows = quiet(SHADOW) + (
        events(NOW, SHADOW, {"n7": 40}, dict.fromkeys(GROUPS, 10)) if node else events(NOW, SHADOW, *EVERYWHERE)
    )
    (wave,) = waves_of(rows, last=NOW + 1)
    finding = finding_of_wave(Bucket("c1", wave.start, HOUR), wave, wave.start + 2 * HOUR)
    assert (finding.subject.kind, finding.subject.name) == ((SubjectKind.NODE, "n7") if node else (SubjectKind.CLUSTER, "c1"))
    assert finding.figure("count") == wave.count and finding.decided_at == wave.start + HOUR and finding.score > finding.threshold


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_calm_weeks_of_a_simulated_grid_raise_none(seed):
    grid = simulate_grid(GridSpec(hours=5 * 168, seed=seed, nodes=100, sites=4, groups=4, slots=2000, outages_per_week=0.0))
    hours = len(grid.series)
    places = {"": ([""], grid.series.counts[:, :, None]), **grid.places(0, hours)}
    frames = [counted(grid.series, kind, place, *told) for kind in (HELD, SHADOW) for place, told in places.items()]
    seen = [grid.series.moment(hour) for hour in range(hours)]
    assert event_waves(pl.concat(frames), seen, HOUR, seen[0]) == [] and seen[-1] - seen[0] > REACH + timedelta(days=20)


def counted(series, kind, place, values, counts):
    """The counts of one kind and place as rows of the table."""
    amount = np.asarray(counts)[:, series.kinds.index(kind), :]
    hour, value = np.nonzero(amount)
    start = [series.moment(int(one)) for one in hour]
    names = [str(values[one]) for one in value]
    frame = pl.DataFrame({"bucket_start": start, "value": names, "count": amount[hour, value].astype(np.int64)})
    return as_counts(frame.with_columns(kind=pl.lit(kind), place=pl.lit(place)), "made", 3600)


def test_nodes_and_groups_of_the_future_change_nothing_and_known_waves_need_not_be_found_again():
    rows = quiet(HELD) + events(NOW, HELD, {"n7": 30, "n3": 2}, dict.fromkeys(GROUPS, 8)) + events(NOW + 1, HELD, *EVERYWHERE)
    later = events(NOW + 3, HELD, {f"m{number}": 9 for number in range(300)}, {"new": 2700})
    told = waves_of(rows, last=NOW + 3)
    assert told and waves_of(rows + later, last=NOW + 4)[: len(told)] == told
    counts = counts_of([(hour, kind, int(count), place, str(value)) for hour, kind, count, place, value in rows])
    seen = [H0 + hour * HOUR for hour in range(NOW + 3)]
    known = {(wave.kind, wave.start) for wave in told if wave.start < seen[NOW + 1]}
    assert known
    after = event_waves(counts, seen, HOUR, seen[NOW + 1], before=known)
    assert after == [wave for wave in told if wave.start >= seen[NOW + 1]]
