"""What a threshold may promise: no more than the calm windows behind it allow."""

from __future__ import annotations

import numpy as np
import pytest

from stormpetrel.traces.promise import Calm, Promise, needed_windows, percent, promised


def of(windows: int, *, asked: float = 0.001, independent: int | None = None, seed: int = 0, hours: float = 2.0) -> Promise:
    scores = np.random.default_rng(seed).lognormal(size=windows)
    return promised(scores, Calm(windows, windows if independent is None else independent, hours), asked)


def test_a_share_of_one_in_a_thousand_takes_three_thousand_windows():
    assert needed_windows(0.001) == 2995 and needed_windows(0.05) == 59
    assert of(2995).is_kept and not of(2994).is_kept


@pytest.mark.parametrize("windows", [0, 2, 16, 58])
def test_with_few_windows_nothing_is_promised(windows):
    promise = of(windows)
    assert promise.threshold is None and promise.share is None and not promise.is_kept


def test_between_the_two_the_smallest_share_that_can_be_kept_is_promised():
    promise = of(300)
    assert promise.share == pytest.approx(0.00994, abs=1e-4) and not promise.is_kept
    assert promise.threshold == np.random.default_rng(0).lognormal(size=300).max()


def test_a_promise_is_kept_on_windows_that_were_not_seen_nineteen_times_in_twenty():
    fresh = np.random.default_rng(1).lognormal(size=200_000)
    for windows, asked in ((300, 0.02), (4000, 0.01), (4000, 0.001)):
        broken = [(fresh > of(windows, asked=asked, seed=seed).threshold).mean() > asked for seed in range(2, 202)]
        assert np.mean(broken) <= 0.1


def test_threads_that_do_the_same_count_once():
    assert of(5000).is_kept and not of(5000, independent=50 * 5).is_kept and of(5000, independent=40).threshold is None


def test_the_words_say_what_is_needed_and_how_long_that_takes():
    words = of(16, hours=0.5).words()
    assert "Nothing is flagged, and the scores are a ranking: 16 independent calm windows over 30 minutes" in words
    assert "59 for the first" in words and "it takes 2,995, about 93.6 hours like these" in words
    partly = of(300).words()
    assert "at most 1.00 % of calm ones, which is all that 300 independent calm windows over 2.0 hours can promise" in partly
    assert "For 0.10 % (traces.alarm_share) it takes 2,995" in partly
    assert of(5000).words().endswith("at most 0.10 % of calm ones, by 5,000 independent calm windows over 2.0 hours.")


def test_a_promise_is_rounded_up():
    assert (percent(0.001), percent(0.00991), percent(0.0123), percent(0.05)) == ("0.10 %", "1.00 %", "1.3 %", "5.0 %")


def test_a_promise_is_the_same_after_it_was_kept():
    for promise in (of(5), of(300), of(5000)):
        assert Promise.of_record(promise.as_dict()) == promise
