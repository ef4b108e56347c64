from tests.parts import need

need("torch")

import numpy as np
import pytest
from benchmarks.thread_forecast import (
    ForecastSettings,
    TraceForecaster,
    goes_on,
    past_and_future,
    steps_needed,
    steps_per_second,
)

from stormpetrel.errors import ModelError, UsageError
from stormpetrel.records.windows import Windows, cut_windows
from tests.traces.small import one_torch_thread, small_trace

SMALL = {"past_steps": 24, "seconds": 4, "embedding": 8, "batch_windows": 64, "max_epochs": 6, "learning_rate": 3e-3}


@pytest.fixture(autouse=True)
def one_thread():
    with one_torch_thread():
        yield


def windows(seed=0, steps=400) -> Windows:
    return cut_windows(small_trace(seed, steps=steps), steps=28, stride=7)


def error(foretold, future):
    return float(((foretold - future) ** 2).mean())


@pytest.mark.parametrize("neighbours", [False, True])
def test_a_wave_is_foretold_better_than_by_going_on(neighbours):
    model = TraceForecaster(ForecastSettings(neighbours=neighbours, **SMALL)).fit(windows(0), windows(1), device="cpu")
    past, future = past_and_future(windows(2).of_normal(), model.settings)
    foretold = model.forecast(past)
    assert foretold.shape == future.shape and np.allclose(foretold.sum(axis=2), 1, atol=1e-5)
    assert error(foretold, future) < 0.7 * error(goes_on(past, seconds=4), future)


def test_untrained_weights_say_that_it_goes_on():
    settings = ForecastSettings(**(SMALL | {"max_epochs": 1, "learning_rate": 1e-12}))
    model = TraceForecaster(settings).fit(windows(0), windows(1), device="cpu")
    past, _ = past_and_future(windows(2), settings)
    assert np.allclose(model.forecast(past), goes_on(past, seconds=4), atol=0.01)


def test_the_same_seed_foretells_the_same():
    past, _ = past_and_future(windows(2), ForecastSettings(**SMALL))
    one, again = (
        TraceForecaster(ForecastSettings(neighbours=True, **(SMALL | {"max_epochs": 2}))).fit(
            windows(0), windows(1), device="cpu"
        )
        for _ in range(2)
    )
    assert np.array_equal(one.forecast(past), again.forecast(past)) and one.history_ == again.history_


def test_only_the_threads_of_the_same_job_are_heard():
    model = TraceForecaster(ForecastSettings(neighbours=True, **(SMALL | {"max_epochs": 2}))).fit(
        windows(0), windows(1), device="cpu"
    )
    past, _ = past_and_future(windows(2), model.settings)
    before = model.forecast(past)
    loud = past.job == 0  # the MPI job of the first node
    first = np.flatnonzero(loud)[0]
    past.rates[first] = [0.0, 0.0, 1.0, 0.0]
    changed = np.abs(model.forecast(past) - before).max(axis=(1, 2)) > 1e-6
    together = past.job_graphs() == past.job_graphs()[first]
    assert changed[together].all() and not changed[~together].any()


def test_past_and_future_share_no_step():
    whole = windows(0)
    past, future = past_and_future(whole, ForecastSettings(**SMALL))
    assert np.array_equal(past.rates, whole.rates[:, :24]) and np.array_equal(future, whole.rates[:, 24:])


def test_ten_steps_a_second_are_foretold_as_means_of_seconds():
    assert steps_needed(ForecastSettings(), 0.1) == 200 and steps_needed(ForecastSettings(), 1.0) == 110
    assert steps_per_second(0.1) == 10
    with pytest.raises(UsageError):
        steps_per_second(0.3)


def test_windows_of_another_length_are_refused():
    with pytest.raises(UsageError, match="110 are needed"):
        past_and_future(windows(0), ForecastSettings())


def test_nothing_is_foretold_before_training():
    with pytest.raises(ModelError, match="not been trained"):
        TraceForecaster().forecast(windows(0))
    bad = windows(0)
    with pytest.raises(ModelError, match="no normal windows"):
        TraceForecaster(ForecastSettings(**SMALL)).fit(bad.take(bad.is_anomalous()), bad, device="cpu")
