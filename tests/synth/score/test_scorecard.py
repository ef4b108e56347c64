"""The scorecard: its JSON, its lines for people, and the published Theta traces."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import polars as pl
import pytest

from stormpetrel.synth.score.scorecard import floor_scorecard, odd_even_split, scorecard
from stormpetrel.synth.workload import Workload
from tests.synth.made_workloads import made_workload, shuffled, workload_at

KEYS = [
    *("columns", "lag1", "acf_mae", "dispersion", "hour_profile_tv", "same_user_share", "c2st_row", "c2st_sequence"),
    *("exact_copies", "nearest_record_ratio", "membership_auc", "tstr", "floor"),
]


@pytest.fixture(scope="module")
def card():
    real = made_workload(600)
    odd, even = odd_even_split(real)
    return scorecard(even, shuffled(odd), train=odd, held_out=even, floor=floor_scorecard(odd, even))


def test_the_json_has_every_key_of_the_design_in_its_shape(card):
    made = json.loads(json.dumps(card.as_dict(), allow_nan=False))
    assert set(KEYS) <= set(made) and set(KEYS) <= set(made["floor"])
    assert set(made["columns"]["interval_s"]) == {"ks", "w1"}
    assert set(made["lag1"]) == set(made["dispersion"]) == set(made["same_user_share"]) == {"real", "synthetic"}
    assert set(made["exact_copies"]) == {"synthetic", "natural"}
    assert made["floor"]["floor"] is None and made["tstr"] is None


def test_what_other_rooms_measure_is_put_in_beside(card):
    full = replace(card, tstr={"pr_auc": 0.4}, schedule={"wait_s": 3.0})
    assert full.as_dict()["tstr"] == {"pr_auc": 0.4} and full.as_dict()["schedule"] == {"wait_s": 3.0}


def test_every_figure_has_a_line_with_its_ideal_and_floor(card):
    rows = {row.figure: row for row in card.summary_rows()}
    assert rows["interval_s KS"].ideal == 0 and rows["interval_s KS"].floor is not None
    assert rows["dispersion"].ideal == rows["dispersion"].real == card.fidelity.dispersion.real
    assert rows["C2ST, sequence"].synthetic == card.c2st_sequence and rows["C2ST, sequence"].floor == card.floor.c2st_sequence
    assert rows["exact copies"].synthetic == card.copies.exact
    assert rows["membership attack"].floor is None
    assert all(row.words for row in rows.values()) and len(rows) == len(card.summary_rows())


def test_without_training_jobs_odd_weeks_stand_in_and_membership_is_unknown():
    real = made_workload(600)
    card = scorecard(real, real)
    assert card.copies.membership_auc is None
    assert any(note.startswith("The jobs learnt from are not known") for note in card.notes)
    odd, even = odd_even_split(real)
    # All odd weeks are in the real log, and even weeks repeat as often as they do.
    share = odd.height / real.height
    assert card.copies.exact == pytest.approx(share + (1 - share) * card.copies.natural, abs=0.02)
    assert even.height and card.copies.natural < 0.1


def test_the_floor_is_not_asked_for_copies():
    floor = floor_scorecard(*odd_even_split(made_workload(300)))
    assert floor.as_dict()["exact_copies"] == {"synthetic": None, "natural": None}
    assert (floor.jobs.real, floor.jobs.synthetic) == tuple(part.height for part in odd_even_split(made_workload(300)))[::-1]


@pytest.mark.parametrize(
    "synthetic",
    [
        workload_at(np.zeros(1)),
        workload_at(np.zeros(30), cores=[1] * 30),
        workload_at(np.repeat(np.arange(20) * 1000, 5), user=["a"] * 100),
        Workload(made_workload(30).jobs[:0]),
    ],
    ids=["one job", "all at once", "mostly zero intervals", "none"],
)
def test_odd_workloads_are_judged_without_a_crash_or_nan(synthetic):
    real = made_workload(120)
    for pair in ((real, synthetic), (synthetic, real)):
        made = json.dumps(scorecard(*pair).as_dict(), allow_nan=False)
        assert json.loads(made)["notes"]


def theta(folder, name):
    """A published Theta trace, its first 50 rows left out: intervals only, so the clock is counted from a Monday."""
    table = pl.read_csv(folder / "synthetic" / f"theta_{name}.csv.gz")[50:]
    numbers = table.select("interval", "cpu_num", "node_num", "run_time", "wall_time").cast(pl.Float64)
    return workload_at(
        np.cumsum(numbers["interval"].to_numpy()),
        has_clock=False,
        user=table["user"].cast(pl.String),
        cores=numbers["cpu_num"].round(),
        nodes=numbers["node_num"].round(),
        time_limit_s=numbers["wall_time"],
        runtime_s=numbers["run_time"],
        state=table["new_status"],
    )


@pytest.mark.realdata
def test_the_published_copula_gan_has_its_known_faults(public_logs):
    card = scorecard(theta(public_logs, "real"), theta(public_logs, "cg"))
    like = card.fidelity
    assert like.columns["interval_s"].ks == pytest.approx(0.123, abs=0.001)
    assert (like.lag1.real, like.lag1.synthetic) == pytest.approx((0.443, 0.010), abs=0.001)
    assert (like.dispersion.real, like.dispersion.synthetic) == pytest.approx((5.8, 2.7), abs=0.05)
    assert card.c2st_row == pytest.approx(0.999, abs=0.001)
    assert card.c2st_sequence == pytest.approx(1.0, abs=0.001)
    assert card.copies.exact == 0


@pytest.mark.realdata
def test_no_published_generator_keeps_the_order_of_theta(public_logs):
    from stormpetrel.synth.score.fidelity import fidelity

    real = theta(public_logs, "real")
    found = {name: fidelity(real, theta(public_logs, name)) for name in ("cg", "ctgan", "tvae", "gc")}
    assert all(abs(like.lag1.synthetic) < 0.02 and like.dispersion.synthetic < 3 for like in found.values())
    ks = [found[name].columns["interval_s"].ks for name in ("gc", "ctgan", "cg", "tvae")]
    assert all(one < other for one, other in pairwise(ks))
