"""Made series with a rhythm: counts that rise and fall with day and week, grow, scatter, and break down on order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stormpetrel.events.evaluation import Dataset
from stormpetrel.events.event_metrics import outages_in
from stormpetrel.records.event_series import ANOMALY, NORMAL, EventSeries

MONDAY_S = 1_736_121_600  # 2025-01-06, 00:00 UTC
KINDS = ("Submit", "Execute", "JobDisconnected")


def rhythmic_series(weeks=8, *, seed=0, growth=1.5, bucket_s=3600, level=300.0):
    """Calm counts of three kinds; `growth` is the level of the last week against that of the first."""
    rng = np.random.default_rng(seed)
    buckets = weeks * 604_800 // bucket_s
    start_s = MONDAY_S + bucket_s * np.arange(buckets, dtype=np.int64)
    hour = (start_s % 86_400) / 3600
    rhythm = 1 + 0.5 * np.sin(2 * np.pi * (hour - 9) / 24) - 0.3 * ((start_s - MONDAY_S) // 86_400 % 7 >= 5)
    mean = level * rhythm * growth ** np.linspace(0, 1, buckets)
    means = np.stack([mean, mean * 0.9, np.full(buckets, 3.0)], axis=1)  # (buckets, kinds)
    counts = rng.poisson(means * rng.gamma(50, 1 / 50, means.shape)).astype(float)
    return EventSeries(start_s, bucket_s, KINDS, counts, np.full(buckets, NORMAL, dtype=np.int8))


def broken(series, *spans):
    """The same with outages from `first` to `last`: half of the work stops, and jobs lose their line."""
    counts, label = series.counts.copy(), series.label.copy()
    for first, last in spans:
        counts[first : last + 1, :2] = np.rint(counts[first : last + 1, :2] * 0.4)
        counts[first : last + 1, 2] += 40
        label[first : last + 1] = ANOMALY
    return replace(series, counts=counts, label=label)


def small_dataset(seed=0):
    """Twelve weeks: six to learn from, two for the threshold, four to be judged on."""
    every_week = [(week * 168 + 50 + 7 * week, week * 168 + 55 + 7 * week) for week in (*range(2, 6), *range(8, 12))]
    series = broken(rhythmic_series(12, seed=seed), *every_week)
    train, test = series.take(0, 6 * 168), series.take(8 * 168, len(series))
    return Dataset("made", seed, train, train.unlabelled(), series.take(6 * 168, 8 * 168), test, tuple(outages_in(test)))
