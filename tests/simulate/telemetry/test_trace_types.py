import numpy as np
import pytest

from stormpetrel.simulate.telemetry.kernel_ticks import counted, with_node_noise
from stormpetrel.simulate.telemetry.trace_types import JOB_SHARES, JobShape, likelihood_fit, mean_per_step


def test_short_phases_fill_their_part_of_a_step():
    shape = JobShape(threads=1, steps=3, step_s=1.0)
    means = mean_per_step(np.array([0.7, 0.3, 1.5, 9.0]), np.array([[1.0], [0.0], [0.5], [0.2]]), shape)
    assert np.allclose(means[:, 0], [0.7, 0.5, 0.5 * 0.5 + 0.5 * 0.2])


@pytest.mark.parametrize("kind", JOB_SHARES)
@pytest.mark.parametrize(("threads", "steps", "step_s"), [(1, 1, 1.0), (3, 700, 1.0), (2, 500, 0.1)])
def test_every_type_gives_shares_of_any_shape(kind, threads, steps, step_s):
    shares = JOB_SHARES[kind](np.random.default_rng(0), JobShape(threads, steps, step_s))
    assert shares.shape == (steps, threads, 3) and shares.dtype == np.float32
    assert np.isfinite(shares).all() and shares.min() >= 0 and shares.sum(axis=2).max() < 1.3  # the node cuts it to one


def test_a_starved_fit_waits_more_than_a_healthy_one():
    healthy, starved = (likelihood_fit(np.random.default_rng(1), JobShape(4, 900, 1.0, one)) for one in (False, True))
    assert starved[:, :, 2].mean() > 5 * healthy[:, :, 2].mean()


def test_counting_in_ticks_keeps_the_level_and_the_sum():
    rng = np.random.default_rng(0)
    shares = np.broadcast_to(np.float32([0.6, 0.2, 0.1]), (4000, 4, 3))
    rates = with_node_noise(rng, shares, 1.0)
    seen = counted(rng, rates, 1.0)
    assert np.allclose(seen.sum(axis=2), 1, atol=1e-5)
    assert np.allclose(seen.mean(axis=(0, 1)), rates.mean(axis=(0, 1)), atol=0.002)
    assert 0.005 < seen[:, :, 0].std() < 0.06


def test_interrupts_go_to_the_first_thread_of_each_socket():
    shares = np.broadcast_to(np.float32([0.0, 0.1, 0.8]), (2000, 16, 3))
    system = with_node_noise(np.random.default_rng(0), shares, 1.0)[:, :, 1].mean(axis=0)
    assert set(np.argsort(system)[-2:]) == {0, 4}  # 8 cores, 4 in each socket
