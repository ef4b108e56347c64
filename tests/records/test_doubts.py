"""Each rule of data quality: which rows it touches, what it doubts, and what whoever builds on the rows is left with."""

from datetime import UTC, datetime, timedelta
from itertools import permutations

import polars as pl
import pytest

from stormpetrel.records.doubts import DOUBTED, END_WITHOUT_WAIT, RULES, doubted, trusted, with_rules
from stormpetrel.records.jobs import JOB_SCHEMA, VALUES, job_frame
from stormpetrel.records.quality import check
from stormpetrel.records.units import unflagged_texts, without_flag
from tests.builders import T0

NOW = datetime(2024, 6, 1, tzinfo=UTC)
HOUR = 3600.0
GB = 1 << 30
SOUND = {
    "cluster": "c", "job_id": 1, "submit_time": T0, "restart": 0, "state": "COMPLETED", "start_time": T0,
    "end_time": T0 + timedelta(hours=1), "elapsed_s": HOUR, "time_limit_s": 2 * HOUR, "cpus": 4, "cpu_time_s": 3 * HOUR,
    "req_mem_bytes": 8 * GB, "mem_bytes": 8 * GB, "max_rss_bytes": 4 * GB,
}  # fmt: skip


def judged(*jobs, **changes):
    rows = [{**SOUND, **changes}] if not jobs else [{**SOUND, "job_id": 1 + n, **job} for n, job in enumerate(jobs)]
    good, _, warnings = check(job_frame(rows).with_columns(line=pl.int_range(len(rows))), now=NOW)
    return good, warnings


def quality(**changes):
    good, _ = judged(**changes)
    return good["quality"].item()


def test_a_sound_row_meets_no_rule():
    assert quality() is None


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"req_mem_bytes": ((1 << 31) + 3000) << 20}, "memory_per_cpu_flag"),
        ({"max_rss_bytes": 2 << 50}, "impossible_memory"),
        ({"max_rss_bytes": 9 * GB}, "rss_above_allocation"),
        ({"max_rss_bytes": 9 * GB, "mem_bytes": None}, "rss_above_allocation"),
        ({"cpu_time_s": 5 * HOUR}, "cpu_time_above_held"),
        ({"elapsed_s": 3 * HOUR, "end_time": T0 + timedelta(hours=3)}, "elapsed_above_limit"),
        ({"elapsed_s": HOUR / 2, "cpu_time_s": 0.0}, "elapsed_off_span"),
        ({"elapsed_s": 1.5 * HOUR}, "elapsed_off_span"),
    ],
)
def test_a_value_that_accounting_gets_wrong_is_named(changes, rule):
    assert rule in quality(**changes).split(",")


@pytest.mark.parametrize(
    "changes",
    [
        {"max_rss_bytes": 9 * GB, "state": "OUT_OF_MEMORY"},
        {"max_rss_bytes": 9 * GB, "state": "FAILED", "exit_signal": 9},
        {"max_rss_bytes": 9 * GB, "mem_bytes": None, "req_mem_bytes": 0},
        {"max_rss_bytes": int(8.1 * GB)},
        {"cpu_time_s": 4 * HOUR + 5},
        {"cpu_time_s": 0.5, "elapsed_s": 0.0, "end_time": T0},
        {"cpu_time_s": 5 * HOUR, "cpus": None},
        {"elapsed_s": 2 * HOUR + 300, "end_time": T0 + timedelta(hours=2, minutes=5)},
        {"elapsed_s": 50 * HOUR, "end_time": T0 + timedelta(hours=50), "time_limit_s": None},
        {"elapsed_s": HOUR - 1},
        {"elapsed_s": HOUR / 2, "cpu_time_s": 0.0, "extra": {"suspended_s": "1800.0"}},
        {"elapsed_s": HOUR, "start_time": None},
    ],
)
def test_what_can_be_true_is_not_doubted(changes):
    assert quality(**changes) is None


def test_memory_with_the_flag_is_that_per_cpu_times_the_cpus():
    good, warnings = judged(req_mem_bytes=((1 << 31) + 3000) << 20, cpus=4)
    assert good["req_mem_bytes"].item() == 4 * 3000 << 20
    assert warnings.counts == {"memory_per_cpu_flag": 1}


def test_every_rule_is_counted_by_itself_with_examples():
    _, warnings = judged({"max_rss_bytes": 9 * GB}, {}, {"max_rss_bytes": 9 * GB, "cpu_time_s": 9 * HOUR})
    assert warnings.counts == {"rss_above_allocation": 2, "cpu_time_above_held": 1}
    assert warnings.examples["cpu_time_above_held"] == [f"line 2: job 3, cpu_time_s {9 * HOUR}"]


def test_whoever_builds_on_rows_does_not_get_doubted_values():
    good, _ = judged({"max_rss_bytes": 9 * GB}, {})
    assert trusted(good).select("max_rss_bytes", "elapsed_s").rows() == [(None, HOUR), (4 * GB, HOUR)]
    assert good["max_rss_bytes"].to_list() == [9 * GB, 4 * GB]


def test_the_table_keeps_the_doubted_value_and_says_so():
    good, _ = judged(cpu_time_s=5 * HOUR)
    assert good.select("cpu_time_s", "quality").row(0) == (5 * HOUR, "cpu_time_above_held")
    assert good.select(doubted("cpu_time_s").alias("doubted"))["doubted"].to_list() == [True]


def test_a_rule_of_the_reader_stays_beside_those_of_the_values():
    row = job_frame([{**SOUND, "max_rss_bytes": 9 * GB}]).with_columns(line=pl.lit(1))
    good, _, warnings = check(with_rules(row, {END_WITHOUT_WAIT: pl.Series([True])}), now=NOW)
    assert good["quality"].item() == "rss_above_allocation,end_without_wait"
    assert warnings.counts == {"rss_above_allocation": 1, "end_without_wait": 1}


def test_judging_twice_says_the_same():
    once, _ = judged(max_rss_bytes=9 * GB, req_mem_bytes=((1 << 31) + 3000) << 20)
    twice, _, _ = check(once, now=NOW)
    assert twice.equals(once)


def test_no_name_of_a_rule_is_part_of_another():
    assert not [(one, other) for one, other in permutations([rule.name for rule in RULES], 2) if one in other]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_speaks_of_columns_that_there_are(rule):
    assert rule.about in VALUES
    assert set(rule.doubts) <= set(JOB_SCHEMA)
    assert set(rule.doubts) <= set(DOUBTED)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("2147486648Mn", "3000Mc"),
        ("2147486648M", "3000Mc"),
        ("9223372036854778808Mn", "3000Mc"),
        ("9223372036854778808", "3000Mc"),
        ("4294967294Mn", "4294967294Mn"),
        ("18446744073709551614Mn", "18446744073709551614Mn"),
        ("4000Mn", "4000Mn"),
        ("2Gc", "2Gc"),
        ("62.50G", "62.50G"),
        ("?", "?"),
    ],
)
def test_the_flag_is_taken_off_whatever_its_width(text, read):
    texts, flagged = unflagged_texts(pl.Series("reqmem", [text, None]))
    assert texts.to_list() == [read, None]
    assert flagged.to_list() == [read != text, False]


def test_marks_for_no_value_are_not_taken_for_the_flag():
    assert without_flag(0xFFFFFFFE) == (0xFFFFFFFE, False)
    assert without_flag(0xFFFFFFFFFFFFFFFE) == (0xFFFFFFFFFFFFFFFE, False)
