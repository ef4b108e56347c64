from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from stormpetrel.records.jobs import job_frame
from stormpetrel.records.quality import check
from tests.builders import T0

NOW = datetime(2024, 6, 1, tzinfo=UTC)


def rows(**changes):
    job = {"cluster": "c", "job_id": 1, "submit_time": T0, "restart": 0, "state": "COMPLETED", "start_time": T0, "end_time": T0}
    return job_frame([job | changes]).with_columns(line=pl.lit(7, dtype=pl.Int64))


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"job_id": None}, "no_job_id"),
        ({"job_id": -1}, "no_job_id"),
        ({"submit_time": None}, "no_submit_time"),
        ({"state": None}, "no_state"),
    ],
)
def test_a_row_without_identity_submit_time_or_state_is_refused_by_name(changes, rule):
    good, refused, _ = check(rows(**changes), now=NOW)
    assert good.height == 0
    assert refused.select("line", "rule").row(0) == (7, rule)


HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("changes", "column", "text"),
    [
        ({"cpus": -4}, "cpus", "-4"),
        ({"nodes": 4294967294}, "nodes", "4294967294"),
        ({"elapsed_s": -1.0}, "elapsed_s", "-1.0"),
        ({"time_limit_s": 2.6e11}, "time_limit_s", "260000000000.0"),
        ({"disk_read_bytes": -1}, "disk_read_bytes", "-1"),
        ({"end_time": T0 - HOUR}, "end_time", "2024-03-04 07:00:00.000000+00:00"),
        ({"start_time": T0 + HOUR, "end_time": T0, "elapsed_s": 9.0}, "end_time", "2024-03-04 08:00:00.000000+00:00"),
        ({"start_time": T0 + HOUR, "end_time": T0, "state": "CANCELLED"}, "start_time", "2024-03-04 09:00:00.000000+00:00"),
    ],
)
def test_a_value_that_cannot_be_true_is_taken_out_of_its_row_which_stays(changes, column, text):
    good, refused, _ = check(rows(**changes), now=NOW)
    assert (good.height, refused.height) == (1, 0)
    assert good[column].to_list() == [None]
    assert dict(good["unread"][0]) == {column: text}


def test_a_sound_row_passes():
    good, refused, warnings = check(rows(), now=NOW)
    assert (good.height, refused.height, warnings.counts) == (1, 0, {})


def test_a_time_in_the_future_is_kept_and_told():
    good, _, warnings = check(rows(submit_time=NOW + timedelta(days=3), start_time=None, end_time=None), now=NOW)
    assert good.height == 1
    assert warnings.counts == {"future_time": 1}


def test_impossible_memory_becomes_null_and_is_told():
    good, _, warnings = check(rows(req_mem_bytes=0xFFFFFFFE << 20, mem_bytes=1 << 30), now=NOW)
    assert good.select("req_mem_bytes", "mem_bytes", "quality").row(0) == (None, 1 << 30, "impossible_memory")
    assert warnings.counts == {"impossible_memory": 1}
