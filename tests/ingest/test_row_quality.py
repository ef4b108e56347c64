"""The rules of data quality that a row meets are in the table, go with the value they speak of, and are told by the report."""

import os

import pytest

from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.sources.slurm.sacct_text import SacctText
from tests.builders import make_site, table_of

TIMES = "2024-03-04T08:00:00|2024-03-04T08:01:00|2024-03-04T08:11:00|00:10:00"
FULL = f"""JobID|Submit|Start|End|Elapsed|State|AllocCPUS|MaxRSS|NTasks
1|{TIMES}|COMPLETED|4||
1.0|{TIMES}|COMPLETED|4|300M|4
"""
WITHOUT_RSS = """JobID|Submit|State|AllocCPUS|JobName
1|2024-03-04T08:00:00|COMPLETED|4|fit
"""
WITH_LESS_RSS = FULL.replace("|300M|4", "|400M|1")


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as made:
        yield made


def take(site, tmp_path, text, *, name, age):
    path = tmp_path / name
    path.write_text(text)
    os.utime(path, (1_710_000_000 + age, 1_710_000_000 + age))
    return ingest_jobs(site, SacctText(path))


def test_the_report_counts_each_rule_and_says_what_it_doubts(site, tmp_path):
    report = take(site, tmp_path, FULL, name="a", age=0).as_dict()
    assert report["quality"] == {"rss_of_one_task": {"rows": 1, "doubts": ["max_rss_bytes"]}}
    assert report["warnings"] == {"rss_of_one_task": 1}


def test_the_table_names_the_rules_of_a_row(site, tmp_path):
    take(site, tmp_path, FULL, name="a", age=0)
    assert table_of(site)["quality"].to_list() == ["rss_of_one_task"]


@pytest.mark.parametrize("ages", [(0, 1), (1, 0)], ids=["later", "earlier"])
def test_a_record_without_the_value_does_not_take_the_doubt_away(site, tmp_path, ages):
    take(site, tmp_path, FULL, name="a", age=ages[0])
    take(site, tmp_path, WITHOUT_RSS, name="b", age=ages[1])
    assert table_of(site).select("job_name", "max_rss_bytes", "quality").rows() == [("fit", 300 << 20, "rss_of_one_task")]


def test_a_later_record_that_has_the_value_brings_its_own_quality(site, tmp_path):
    take(site, tmp_path, FULL, name="a", age=0)
    take(site, tmp_path, WITH_LESS_RSS, name="b", age=1)
    assert table_of(site).select("max_rss_bytes", "quality").rows() == [(400 << 20, None)]
