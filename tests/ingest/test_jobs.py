import json
import os
from datetime import UTC, datetime

import polars as pl
import pytest

from stormpetrel.ingest.jobs import IngestReport, fingerprints, ingest_jobs, sum_job_reports
from stormpetrel.sources.slurm.json_jobs import SlurmJson
from stormpetrel.sources.slurm.sacct_text import SacctText
from stormpetrel.sources.swf import SwfLog
from tests.builders import SACCT_FIELDS, T0, Job, make_jobs, make_site, sacct_json_record, sacct_line, table_of, write_sacct


def take(site, path, **options):
    return ingest_jobs(site, SacctText(path, **options))


def counts(report: IngestReport):
    return report.kept, report.known, report.changed


def at(path, second):
    """Set the file's time: what it says was true at that second."""
    os.utime(path, (1_700_000_000 + second, 1_700_000_000 + second))
    return path


def adds_up(report: IngestReport):
    return report.read == report.kept + report.known + report.changed + report.folded + sum(report.quarantined.values())


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as opened:
        yield opened


def test_new_rows_are_kept_and_counted(site, tmp_path):
    report = take(site, write_sacct(tmp_path / "a", make_jobs(20, failed=3)))
    assert counts(report) == (20, 0, 0)
    assert dict(report.states) == {"FAILED": 3, "COMPLETED": 17}
    assert (report.first, report.last) == (T0, datetime(2024, 3, 4, 8, 19, tzinfo=UTC))
    assert table_of(site).height == 20
    assert adds_up(report)


def test_the_same_file_twice_changes_nothing(site, tmp_path):
    path = write_sacct(tmp_path / "a", make_jobs(20, failed=3))
    take(site, path)
    before, version = table_of(site), site.jobs.table.version()
    report = take(site, path)
    assert counts(report) == (0, 20, 0)
    assert dict(report.states) == {"FAILED": 3, "COMPLETED": 17}
    assert table_of(site).equals(before)
    assert site.jobs.table.version() == version, "no commit was needed"


def test_the_same_rows_in_another_format_are_known(site, tmp_path):
    take(site, write_sacct(tmp_path / "a", make_jobs(20)), cluster="petrel")
    (tmp_path / "b.json").write_text(json.dumps({"jobs": [sacct_json_record(job) for job in make_jobs(20)]}))
    report = ingest_jobs(site, SlurmJson(tmp_path / "b.json"))
    assert report.kept == 0
    assert table_of(site).height == 20


def test_a_correction_replaces_the_row_and_is_counted(site, tmp_path):
    take(site, at(write_sacct(tmp_path / "a", make_jobs(5)), 0))
    corrected = [*make_jobs(4), Job(job_id=1004, state="FAILED", exit_code=15, submit=make_jobs(5)[4].submit)]
    report = take(site, at(write_sacct(tmp_path / "b", corrected), 1))
    assert counts(report) == (0, 4, 1)
    assert table_of(site).filter(job_id=1004).select("state", "exit_code").row(0) == ("FAILED", 15)
    assert table_of(site).height == 5


def test_an_older_file_does_not_undo_a_correction(site, tmp_path):
    old = at(write_sacct(tmp_path / "a", [Job(exit_code=0)]), 0)
    new = at(write_sacct(tmp_path / "b", [Job(exit_code=0, user="bo")]), 1)
    take(site, new)
    assert counts(take(site, old)) == (0, 1, 0)
    assert table_of(site)["user"].to_list() == ["bo"]


def test_a_record_seen_again_later_counts_as_newer(site, tmp_path):
    first = at(write_sacct(tmp_path / "a", [Job(user="ada")]), 0)
    take(site, first)
    take(site, at(write_sacct(tmp_path / "c", [Job(user="ada")]), 2))
    report = take(site, at(write_sacct(tmp_path / "b", [Job(user="bo")]), 1))
    assert counts(report) == (0, 1, 0)
    assert table_of(site)["user"].to_list() == ["ada"]


def test_a_finished_job_is_not_made_unfinished_by_a_later_copy(site, tmp_path):
    take(site, at(write_sacct(tmp_path / "a", [Job()]), 0))
    running = sacct_line(Job(state="RUNNING")).replace(f"{Job().end:%Y-%m-%dT%H:%M:%S}", "Unknown")
    (tmp_path / "b").write_text(f"{SACCT_FIELDS}\n{running}\n")
    take(site, at(tmp_path / "b", 5))
    assert table_of(site)["state"].to_list() == ["COMPLETED"]


def test_a_log_without_a_field_does_not_erase_it(site, tmp_path):
    take(site, at(write_sacct(tmp_path / "a", [Job()]), 0))
    (tmp_path / "b").write_text("JobID|State|Submit|User\n1000|FAILED|2024-03-04T08:00:00|bo\n")
    report = take(site, at(tmp_path / "b", 1))
    assert counts(report) == (0, 0, 1)
    row = table_of(site).row(0, named=True)
    assert (row["state"], row["user"], row["cpus"], row["job_name"]) == ("FAILED", "bo", 4, "fit")


def test_a_newer_copy_without_steps_does_not_erase_what_the_steps_told(site, tmp_path):
    fields = "JobID|Submit|State|ExitCode|MaxRSS"
    job = "1|2024-03-04T08:00:00|FAILED|2:0|"
    (tmp_path / "a").write_text(f"{fields}\n{job}\n1.0|2024-03-04T08:00:00|FAILED|2:0|7K\n")
    (tmp_path / "b").write_text(f"{fields}\n{job}\n")
    take(site, at(tmp_path / "a", 0))
    take(site, at(tmp_path / "b", 1))
    assert table_of(site).select("max_rss_bytes", "failed_step").row(0) == (7 << 10, "0")


def test_one_job_twice_in_a_file_is_one_row(site, tmp_path):
    running = sacct_line(Job(state="RUNNING"))
    (tmp_path / "a").write_text("\n".join([SACCT_FIELDS, running, sacct_line(Job()), sacct_line(Job())]) + "\n")
    report = take(site, tmp_path / "a")
    assert counts(report) == (1, 1, 1)
    assert adds_up(report)
    assert table_of(site)["state"].to_list() == ["COMPLETED"]


def test_ids_that_wrap_around_are_told_apart_by_their_submit_time(site, tmp_path):
    later = Job(submit=datetime(2025, 3, 4, tzinfo=UTC))
    take(site, write_sacct(tmp_path / "a", [Job(), later]))
    assert table_of(site)["job_id"].to_list() == [1000, 1000]


def test_clusters_are_told_apart(site, tmp_path):
    path = write_sacct(tmp_path / "a", [Job()])
    assert take(site, path, cluster="one").kept == 1
    assert take(site, path, cluster="two").kept == 1
    assert table_of(site)["cluster"].to_list() == ["one", "two"]


def test_the_same_text_under_other_column_names_is_another_record(site, tmp_path):
    for name, column in (("a", "ReqCPUS"), ("b", "AllocCPUS")):
        (tmp_path / name).write_text(f"JobID|Submit|State|{column}\n1|2024-03-04T08:00:00|COMPLETED|7\n")
        take(site, tmp_path / name)
    assert table_of(site).select("req_cpus", "cpus").rows() == [(7, 7)]


def test_the_same_line_under_another_swf_header_is_another_job(site, tmp_path):
    line = "1 0 10 60 4 -1 -1 4 120 -1 1 5 2 7 1 2 -1 -1"
    for start in (1_600_000_000, 1_700_000_000):
        (tmp_path / str(start)).write_text(f"; UnixStartTime: {start}\n{line}\n")
        assert ingest_jobs(site, SwfLog(tmp_path / str(start))).kept == 1


def test_refused_rows_are_in_quarantine_once_with_rule_and_reason(site, tmp_path):
    lines = [SACCT_FIELDS, sacct_line(Job()), "1|2|3", sacct_line(Job(job_id=2)).replace("COMPLETED", "EXPLODED")]
    (tmp_path / "a").write_text("\n".join(lines) + "\n")
    for _ in range(2):
        report = take(site, tmp_path / "a")
        assert dict(report.quarantined) == {"wrong_column_count": 1, "bad_value": 1}
        assert adds_up(report)
    kept = site.quarantine.read().sort("line").collect()
    assert kept.select("line", "rule").rows() == [(3, "wrong_column_count"), (4, "bad_value")]
    assert "EXPLODED" in kept["reason"][1]


def test_the_report_shows_three_examples_of_each_rule(site, tmp_path):
    (tmp_path / "a").write_text("\n".join([SACCT_FIELDS, sacct_line(Job()), *["1|2|3"] * 9]) + "\n")
    report = take(site, tmp_path / "a")
    assert report.quarantined["wrong_column_count"] == 9
    assert len(report.examples["wrong_column_count"]) == 3


def odd_sacct(path, count, field="ReqMem", text="?"):
    """Jobs of which one field cannot be read."""
    header = SACCT_FIELDS.split("|")
    lines = [sacct_line(job).split("|") for job in make_jobs(count)]
    for words in lines:
        words[header.index(field)] = text
        words[header.index("AllocTRES")] = ""
    path.write_text("\n".join([SACCT_FIELDS, *("|".join(words) for words in lines)]) + "\n")
    return path


def test_what_cannot_be_read_is_counted_by_column_with_three_examples(site, tmp_path):
    report = take(site, odd_sacct(tmp_path / "a", 5))
    told = report.as_dict()
    assert adds_up(report) and (report.kept, dict(report.quarantined)) == (5, {})
    assert (told["unread"], told["unread_of"]) == ({"req_mem_bytes": 5}, {"req_mem_bytes": 5})
    assert told["unread_examples"] == {"req_mem_bytes": [f"line {n + 2}: job {1000 + n}, ?" for n in range(3)]}
    assert table_of(site)["extra"].map.get("unread.req_mem_bytes").to_list() == ["?"] * 5


def test_known_records_are_not_counted_as_unread_once_more(site, tmp_path):
    for expected in (5, 0):
        assert take(site, odd_sacct(tmp_path / "a", 5)).unread.counts.get("req_mem_bytes", 0) == expected
    field = site.unread_fields.shares()[0]
    assert (field.format, field.column, field.unread, field.filled) == ("sacct", "req_mem_bytes", 5, 5)


def test_a_column_that_can_be_read_again_is_believed_again(site, tmp_path):
    take(site, odd_sacct(tmp_path / "a", 5))
    take(site, write_sacct(tmp_path / "b", make_jobs(95, first_id=5000)))
    assert site.unread_fields.shares()[0].share == 0.05


def test_days_without_submissions_are_told(site, tmp_path):
    jobs = [*make_jobs(3), *make_jobs(3, first_id=50, start=datetime(2024, 3, 9, tzinfo=UTC))]
    report = take(site, write_sacct(tmp_path / "a", jobs))
    assert report.gaps == [(datetime(2024, 3, 4, 9, tzinfo=UTC), datetime(2024, 3, 9, tzinfo=UTC))]


def test_every_ingest_is_remembered(site, tmp_path):
    take(site, write_sacct(tmp_path / "a", make_jobs(3)))
    past = site.state.past_ingests()
    assert (past[0]["kept"], past[0]["source"]) == (3, str(tmp_path / "a"))


def test_reports_of_several_files_add_up(site, tmp_path):
    reports = [take(site, write_sacct(tmp_path / str(n), make_jobs(5, first_id=n * 10))) for n in range(3)]
    total = sum_job_reports(reports)
    assert (total.read, total.kept, total.states["COMPLETED"]) == (15, 15, 15)
    assert total.first == reports[0].first


def test_changing_the_time_zone_makes_known_files_be_read_again(tmp_path):
    path = write_sacct(tmp_path / "a", make_jobs(3))
    with make_site(tmp_path / "one") as site:
        take(site, path)
    toml = tmp_path / "one" / "site.toml"
    toml.write_text(toml.read_text().replace('time_zone = "UTC"', 'time_zone = "Europe/Berlin"'))
    from stormpetrel.store.site import open_site

    with open_site(tmp_path / "one") as site:
        assert take(site, path, time_zone=site.settings.site.time_zone).kept == 3


def test_a_trained_model_can_name_the_version_it_saw(site, tmp_path):
    take(site, write_sacct(tmp_path / "a", make_jobs(3)))
    version = site.jobs.table.version()
    take(site, write_sacct(tmp_path / "b", make_jobs(3, first_id=50)))
    then = pl.read_delta(str(site.jobs.table.path), version=version)
    assert then.height == 3


def test_a_record_without_steps_is_the_same_whatever_stands_beside_it():
    records = pl.DataFrame({"record": [1, 2], "line": [1, 2], "jobid": ["1", "2"], "state": ["RUNNING", "FAILED"]})
    steps = pl.DataFrame({"record": [2], "line": [3], "jobid": ["2.0"], "state": ["FAILED"]})
    alone = fingerprints(records.head(1), None, seed=7)
    beside = fingerprints(records, steps, seed=7)
    assert alone[0] == beside[0]
    assert beside[1] != fingerprints(records, None, seed=7)[1]
