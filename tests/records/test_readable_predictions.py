"""A prediction is late by the time from which on it can be read, in seconds of the people who wait for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from stormpetrel.records.predictions import readable_from

MOMENT = datetime(2026, 3, 2, 9, tzinfo=UTC)


@pytest.mark.parametrize(("delay_s", "pace", "late"), [(9, 1.0, False), (11, 1.0, True), (290, 30.0, False), (310, 30.0, True)])
def test_only_what_can_be_read_too_late_is_called_late(delay_s, pace, late):
    said = readable_from(pl.DataFrame({"moment_time": [MOMENT]}), MOMENT + timedelta(seconds=delay_s), pace=pace)
    assert said["late"].to_list() == [late]
    assert said["predicted_at"].to_list() == [MOMENT + timedelta(seconds=delay_s)]
