import numpy as np
import pytest

from stormpetrel.errors import UsageError
from stormpetrel.records.events import JOB_RECORD_KINDS, SEED_KINDS
from stormpetrel.simulate.grid.outages import AFTERMATH_HOURS, OUTAGES, SEVERITIES, load_outage

CLUSTER = tuple(map(str, SEED_KINDS))
LOG = tuple(map(str, JOB_RECORD_KINDS))
LEVEL = {"Submit": 5000, "Execute": 5000, "JobTerminated": 4800, "JobImageSize": 7000, "JobEvicted": 80, "JobAborted": 150,
         "JobHeld": 40, "JobRelease": 25, "ShadowException": 15, "RemoteError": 2, "JobDisconnected": 30, "JobReconnected": 27,
         "JobReconnectFailed": 3, "JobFailed": 400, "JobFailedFast": 50, "JobTimedOut": 60, "NodeFailed": 1}  # fmt: skip


def calm(kinds=CLUSTER, hours=8, level=1.0):
    rate = np.array([LEVEL[kind] * level for kind in kinds])
    return np.random.default_rng(5).poisson(rate, (hours + AFTERMATH_HOURS, len(kinds))).astype(float)


def change(name, kinds=CLUSTER, severity="severe", hours=8, seeds=30):
    """kind -> (during, after): the counts as a multiple of the calm ones, mean over seeds."""
    before = calm(kinds, hours)
    made = np.mean([OUTAGES[name](before, kinds, severity, seed) for seed in range(seeds)], axis=0)
    part = (slice(0, hours), slice(hours, None))
    return {kind: tuple(made[one, k].sum() / before[one, k].sum() for one in part) for k, kind in enumerate(kinds)}


@pytest.mark.parametrize("name", OUTAGES)
@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize(
    ("kinds", "hours", "level"), [(CLUSTER, 1, 1.0), (CLUSTER, 24, 1.0), (LOG, 6, 0.002), (("Execute",), 3, 1.0)]
)
def test_an_outage_gives_whole_counts_of_the_same_shape_and_repeats(name, severity, kinds, hours, level):
    before = calm(kinds, hours, level)
    kept = before.copy()
    made, again, other = (OUTAGES[name](before, kinds, severity, seed) for seed in (1, 1, 2))
    assert made.shape == before.shape and made.min() >= 0 and (made == np.rint(made)).all()
    assert np.array_equal(made, again) and np.array_equal(before, kept)
    assert level < 1 or not np.array_equal(made, other)


@pytest.mark.parametrize("kinds", [CLUSTER, LOG])
@pytest.mark.parametrize("name", OUTAGES)
def test_a_worse_outage_changes_more(name, kinds):
    scale = np.sqrt([LEVEL[kind] for kind in kinds])
    before = calm(kinds)
    far = [
        np.mean([np.abs((OUTAGES[name](before, kinds, severity, seed) - before) / scale).sum() for seed in range(20)])
        for severity in SEVERITIES
    ]
    assert far[0] < 0.8 * far[1] and far[1] < 0.9 * far[2]


@pytest.mark.parametrize("name", OUTAGES)
def test_a_mild_outage_leaves_most_jobs_alone(name):
    during = change(name, severity="mild")
    for kind in ("Submit", "Execute", "JobTerminated", "JobImageSize"):
        assert 0.65 < during[kind][0] < 1.45


def test_nodes_that_collapse_lose_their_jobs_and_start_anew_when_they_are_back():
    made = change("node_collapse")
    assert made["JobTerminated"][0] < 0.4 and made["JobImageSize"][0] < 0.4 and made["Execute"][0] < 0.4
    for kind in ("ShadowException", "JobEvicted", "JobDisconnected", "JobReconnectFailed"):
        assert made[kind][0] > 2
    assert made["Execute"][1] > 1.2 and made["Submit"] == (1, 1) and made["JobReconnected"] == (1, 1)


def test_an_unresponsive_submit_service_lets_the_queue_run_dry_and_has_a_backlog():
    before = calm()
    made = np.mean([OUTAGES["submit_unresponsive"](before, CLUSTER, "severe", seed) for seed in range(30)], axis=0)
    execute = made[:, CLUSTER.index("Execute")]
    assert execute[1] > 1.4 * execute[6]  # not at once
    during = change("submit_unresponsive")
    assert during["Submit"][0] < 0.35 and during["Submit"][1] > 1.4
    assert during["JobRelease"][0] < 0.5 and during["JobAborted"][0] < 0.5


def test_a_storm_cuts_lines_of_which_most_are_found_again():
    made = change("disconnect_storm")
    assert 15 < made["JobDisconnected"][0] < 55 and made["JobReconnected"][0] > 10 and made["JobReconnectFailed"][0] > 5
    assert made["ShadowException"][0] > 2 and made["Submit"] == (1, 1)
    assert 4 < change("disconnect_storm", severity="mild")["JobDisconnected"][0] < 11


def test_a_black_hole_starts_and_ends_jobs_that_nobody_has_submitted():
    made = change("black_hole")
    assert made["Execute"][0] > 2.5 and made["JobTerminated"][0] > 2.5 and made["Submit"] == (1, 1)
    assert made["JobHeld"][1] > 2


def test_slow_storage_comes_gradually_and_lets_time_limits_strike():
    before = calm()
    made = np.mean([OUTAGES["slow_storage"](before, CLUSTER, "severe", seed) for seed in range(30)], axis=0)
    ended = made[:, CLUSTER.index("JobTerminated")]
    assert ended[0] > 1.5 * ended[5] and ended[8] > before[8, CLUSTER.index("JobTerminated")]
    during = change("slow_storage")
    assert during["JobHeld"][0] > 1.5 and during["JobImageSize"] == (1, 1) and during["Execute"][0] < 0.8


@pytest.mark.parametrize(
    ("name", "more", "fewer"),
    [
        ("node_collapse", "NodeFailed", "JobTerminated"),
        ("submit_unresponsive", None, "Submit"),
        ("disconnect_storm", "JobFailed", "JobTerminated"),
        ("black_hole", "JobFailedFast", None),
        ("slow_storage", "JobTimedOut", "JobTerminated"),
    ],
)
def test_a_job_log_shows_an_outage_through_its_own_kinds(name, more, fewer):
    made = change(name, LOG)
    assert more is None or made[more][0] > 1.4
    assert fewer is None or made[fewer][0] < 0.95


@pytest.mark.parametrize(("severity", "hours"), [("terrible", 8), ("mild", 0)])
def test_an_order_that_makes_no_sense_is_refused(severity, hours):
    with pytest.raises(UsageError):
        OUTAGES["black_hole"](calm(hours=hours), CLUSTER, severity, 0)


@pytest.fixture
def plug_ins(tmp_path, monkeypatch):
    (tmp_path / "odd_outages.py").write_text(
        "def good(counts, kinds, severity, seed): return counts * 2\n"
        "def short(counts, kinds, severity, seed): return counts[1:]\n"
        "def half(counts, kinds, severity, seed): return counts + .5\n"
        "def below(counts, kinds, severity, seed): return counts * 0 - 1\n"
        "def endless(counts, kinds, severity, seed): return counts * float('inf')\n"
        "def words(counts, kinds, severity, seed): return 'calm'\n"
        "def spoils(counts, kinds, severity, seed):\n    counts[:] = -5\n    return counts * 0\n"
        "number = 5\n"
    )
    (tmp_path / "broken_outages.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("plug_ins")
def test_an_outage_of_others_is_loaded_by_its_name():
    before = calm()
    assert np.array_equal(load_outage("odd_outages:good")(before, CLUSTER, "mild", 0), before * 2)
    load_outage("odd_outages:spoils")(before, CLUSTER, "mild", 0)
    assert before.min() >= 0  # it was given a copy


@pytest.mark.usefixtures("plug_ins")
@pytest.mark.parametrize(
    ("name", "words"),
    [("short", "shape"), ("half", "whole"), ("below", "whole"), ("endless", "whole"), ("words", "failed .ValueError")],
)
def test_what_an_outage_of_others_returns_is_checked(name, words):
    with np.errstate(invalid="ignore"), pytest.raises(UsageError, match=words):
        load_outage(f"odd_outages:{name}")(calm(), CLUSTER, "mild", 0)


@pytest.mark.usefixtures("plug_ins")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("odd_outages:number", "no function"),
        ("odd_outages:nothing", "cannot be loaded"),
        ("no_such_module:x", "cannot be loaded"),
        ("broken_outages:x", "ZeroDivisionError"),
        ("odd_outages", "names no outage"),
        ("os:system('x')", "names no outage"),
    ],
)
def test_a_name_that_leads_nowhere_is_one_sentence(name, words):
    with pytest.raises(UsageError, match=words) as caught:
        load_outage(name)
    assert "\n" not in str(caught.value)
