import numpy as np
import pytest

from stormpetrel.errors import SourceFormatError, UsageError
from stormpetrel.records.traces import BAD_IO, IDLE, MIXED, NO_JOB, UNKNOWN_JOB, Trace, TraceJob, mpi
from stormpetrel.records.window_frames import CPU_WINDOW_SCHEMA, frame_of, windows_of
from stormpetrel.records.windows import bridge, cut_windows, join_windows


def made_trace(steps: int = 25, *, name: str = "run", start: float = 1_000.0, seed: int = 0) -> Trace:
    """Two nodes of two threads; CPU 0 of each runs an MPI job, n1's CPU 1 a Bad IO job from step 10 on."""
    rates = np.random.default_rng(seed).dirichlet(np.ones(4), size=(steps, 4)).astype(np.float32)
    job = np.full((steps, 4), NO_JOB, dtype=np.int32)
    job[:, [0, 2]] = 0
    job[10:, 1] = 1
    return Trace(
        name=name,
        step_s=1.0,
        time_s=start + 1.0 + np.arange(steps),
        nodes=("n1", "n1", "n2", "n2"),
        cpus=(0, 1, 0, 1),
        rates=rates,
        job=job,
        jobs=(TraceJob("7", mpi(2)), TraceJob("8", BAD_IO)),
    ).checked()


def test_windows_are_cut_side_by_side_and_carry_their_job():
    trace = made_trace()
    windows = cut_windows(trace, steps=10)
    assert len(windows) == 8
    assert windows.start_s.tolist() == [1000.0] * 4 + [1010.0] * 4
    assert windows.job_types().tolist() == ["MPI 2", IDLE, "MPI 2", IDLE, "MPI 2", BAD_IO, "MPI 2", IDLE]
    assert np.array_equal(windows.rates[5], trace.rates[10:20, 1])
    assert windows.is_anomalous().sum() == 1


def test_a_window_in_which_the_thread_changes_hands_is_mixed_and_not_learnt_from():
    windows = cut_windows(made_trace(), steps=12)
    assert windows.job_types()[1] == MIXED
    assert len(windows.of_normal()) == len(windows) - 2  # the mixed one, and the Bad IO one after it


def test_a_short_gap_is_bridged_and_a_long_one_costs_its_window():
    trace = made_trace()
    trace.rates[3:5, 0] = np.nan
    trace.rates[12:17, 3] = np.nan
    windows = cut_windows(trace, steps=10, bridge_steps=3)
    assert len(windows) == 7 and windows.left_out == {"gap": 1} and windows.bridged == 1
    assert np.allclose(windows.rates.sum(axis=2), 1, atol=1e-5)
    assert np.allclose(windows.rates[0, 3], 2 / 3 * trace.rates[2, 0] + 1 / 3 * trace.rates[5, 0], atol=1e-6)


def test_a_gap_at_an_end_is_never_bridged():
    trace = made_trace()
    trace.rates[0, 0] = np.nan
    assert np.isnan(bridge(trace.rates, 3)[0][0, 0]).all()


def test_a_trace_shorter_than_a_window_gives_none_and_says_so():
    windows = cut_windows(made_trace(5), steps=10)
    assert len(windows) == 0 and windows.left_out == {"too short": 4}


def test_graphs_join_the_threads_of_a_node_and_those_of_a_job_on_it():
    windows = cut_windows(made_trace(), steps=10)
    node, job = windows.node_graphs(), windows.job_graphs()
    assert node[0] == node[1] and node[0] != node[2] and node[0] != node[4]
    assert len(set(job.tolist())) == 8  # the MPI job's threads are on two nodes, idle threads are alone


def test_joined_windows_keep_their_campaigns_apart():
    joined = join_windows([cut_windows(made_trace(name=name, seed=seed), steps=10) for seed, name in enumerate(("a", "b"))])
    assert joined.traces == ("a", "b") and len(joined.jobs) == 4
    assert len(set(joined.node_graphs().tolist())) == 8


def test_windows_of_different_lengths_are_not_joined():
    with pytest.raises(UsageError, match="different lengths"):
        join_windows([cut_windows(made_trace(), steps=10), cut_windows(made_trace(), steps=12)])


def test_a_frame_gives_the_same_windows_back():
    trace = made_trace()
    trace.job[:, 3] = UNKNOWN_JOB
    windows = cut_windows(trace, steps=12)
    frame = frame_of(windows, cluster="c")
    assert frame.schema == CPU_WINDOW_SCHEMA
    again = windows_of(frame)
    assert np.allclose(again.rates, windows.rates, atol=1e-6)
    for name in ("start_s", "cpu", "node"):
        assert np.array_equal(getattr(again, name), getattr(windows, name))
    assert again.job_types().tolist() == windows.job_types().tolist()
    assert np.array_equal(again.job_graphs(), windows.job_graphs())


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda trace: trace.rates.__setitem__((2, 1, 0), 3.0), "sum to one"),
        (lambda trace: trace.rates.__setitem__((2, 1, 0), np.nan), "some modes missing"),
        (lambda trace: trace.time_s.__setitem__(4, 0.0), "regular grid"),
        (lambda trace: trace.job.__setitem__((0, 0), 9), "job that it does not list"),
    ],
)
def test_a_trace_that_breaks_its_promise_is_refused(damage, said):
    trace = made_trace()
    damage(trace)
    with pytest.raises(SourceFormatError, match=said):
        trace.checked()
