"""CopulaGAN in order: what follows what."""

import numpy as np

from stormpetrel.synth.choose import new_generator
from stormpetrel.synth.contract import Wanted, sample
from stormpetrel.synth.rows.copula_gan_sessions import mark_same_user, name_users
from stormpetrel.synth.rows.row_table import Table
from stormpetrel.synth.score.fidelity import autocorrelation, same_user_share
from stormpetrel.synth.workload import Workload
from tests.parts import need
from tests.synth.made_workloads import workload_at


def in_sessions(jobs: int = 2000) -> Workload:
    """Sessions of about twenty jobs, each of one user and of one pace: seconds or hours."""
    rng = np.random.default_rng(0)
    session = np.cumsum(rng.random(jobs) < 1 / 20)
    fast = (rng.random(session.max() + 1) < 0.5)[session]
    user = rng.integers(0, 4, session.max() + 1)[session]
    interval = np.round(rng.exponential(np.where(fast, 10, 3600))) + 1
    return workload_at(np.cumsum(interval), user=[f"u{one}" for one in user], cores=2**user)


def test_intervals_and_users_follow_those_before_where_rows_forget_them():
    need("torch")
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    real = in_sessions()
    settings = {"batch_size": 100, "device": "cpu"}
    rows, ordered = (
        sample(new_generator(name, epochs=epochs, **settings).fit(real), Wanted(jobs=4000))
        for name, epochs in (("copulagan", 1), ("copulagan-sessions", 6))
    )
    torch.set_num_threads(threads)
    lag1 = [autocorrelation(one.interval_s(), 1)[0] for one in (real, rows, ordered)]
    assert lag1[0] > 0.7 and abs(lag1[1]) < 0.08 and lag1[2] > 0.2  # a short training: the share of the way grows with epochs
    assert same_user_share(ordered) > 0.7 > 0.5 > same_user_share(rows)


def test_users_marked_as_the_same_come_back_also_across_batches():
    users = np.array([2, 2, 0, 0, 0, 1, 2])
    marked = mark_same_user(Table({}, {"user": users}, {"user": 3}))
    assert marked.codes["user"].tolist() == [3, 0, 1, 0, 0, 2, 3] and marked.sizes == {"user": 4}
    assert name_users(marked, 0).codes["user"].tolist() == users.tolist()
    assert name_users(Table({}, {"user": np.array([0, 0, 1])}, {"user": 4}), 2).codes["user"].tolist() == [2, 2, 0]


def test_a_log_without_users_is_left_as_it_is():
    table = Table({"cores": np.ones(3)}, {}, {})
    assert mark_same_user(table) is table and name_users(table, 0) is table
