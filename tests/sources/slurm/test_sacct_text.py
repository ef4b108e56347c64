import gzip
from datetime import UTC, datetime

import pytest

from stormpetrel.errors import SourceError, SourceFormatError
from stormpetrel.sources.slurm.sacct_fields import script_of
from stormpetrel.sources.slurm.sacct_text import SacctText
from tests.builders import SACCT_FIELDS, Job, make_jobs, read_all, sacct_line, unread_in, write_sacct

STEP_FIELDS = (
    "JobID|JobName|User|Submit|Start|End|Elapsed|State|ExitCode|MaxRSS|TotalCPU|MaxDiskRead|MaxDiskWrite|NNodes|AllocCPUS"
)
TIMES = "2024-03-04T08:00:00|2024-03-04T08:01:00|2024-03-04T08:11:00|00:10:00"


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def read(path, **options):
    return read_all(SacctText(path, **options))


def test_a_header_names_the_columns(tmp_path):
    jobs, rejects, read_count, _ = read(write_sacct(tmp_path / "a", make_jobs(5, failed=2)))
    assert (jobs.height, rejects.height, read_count) == (5, 0, 5)
    assert jobs["state"].to_list() == ["FAILED", "FAILED", "COMPLETED", "COMPLETED", "COMPLETED"]
    first = jobs.row(0, named=True)
    assert first["submit_time"] == datetime(2024, 3, 4, 8, tzinfo=UTC)
    assert (first["elapsed_s"], first["time_limit_s"], first["cpus"]) == (600.0, 3600.0, 1)
    assert (first["req_mem_bytes"], first["mem_bytes"], first["exit_code"]) == (2048 << 20, 2048 << 20, 1)


@pytest.mark.parametrize("delimiter", ["|", "☃", "^^", "\t", ";", "||", "€|"])
def test_any_delimiter_is_found_from_the_header(tmp_path, delimiter):
    jobs, rejects, _, _ = read(write_sacct(tmp_path / "a", make_jobs(5), delimiter))
    assert (jobs.height, rejects.height) == (5, 0)


@pytest.mark.parametrize("delimiter", ["|", "☃", "^^"])
def test_without_a_header_fields_name_the_columns_and_the_delimiter_is_found(tmp_path, delimiter):
    text = "\n".join(sacct_line(job, delimiter) for job in make_jobs(5)) + "\n"
    jobs, rejects, _, _ = read(write(tmp_path / "a", text), fields=SACCT_FIELDS.split("|"))
    assert (jobs.height, rejects.height) == (5, 0)


def test_parsable_output_ends_each_line_with_a_delimiter(tmp_path):
    text = "\n".join(line + "|" for line in (SACCT_FIELDS, *map(sacct_line, make_jobs(3)))) + "\n"
    jobs, rejects, _, _ = read(write(tmp_path / "a", text))
    assert (jobs.height, rejects.height) == (3, 0)


def test_gzip_windows_line_ends_and_a_byte_order_mark_are_read(tmp_path):
    text = "\ufeff" + "\r\n".join((SACCT_FIELDS, *map(sacct_line, make_jobs(3)))) + "\r\n"
    (tmp_path / "a.gz").write_bytes(gzip.compress(text.encode()))
    jobs, rejects, _, _ = read(tmp_path / "a.gz")
    assert (jobs.height, rejects.height) == (3, 0)


def test_steps_are_folded_into_their_job(tmp_path):
    text = f"""{STEP_FIELDS}
7|fit|ada|{TIMES}|FAILED|2:0||00:05:00|||1|4
7.batch|batch||{TIMES}|FAILED|2:0|2000K|00:01:00|1.00M|0|1|4
7.extern|extern||{TIMES}|COMPLETED|0:0|10K|00:00:00|0|0|1|4
7.0|sim||{TIMES}|COMPLETED|0:0|9000K|00:03:00|5.50M|2.00M|1|4
7.1|sim||{TIMES}|FAILED|2:9|3000K|00:01:00|0|0|1|4
"""
    jobs, rejects, read_count, folded = read(write(tmp_path / "a", text))
    assert (jobs.height, rejects.height, read_count, folded) == (1, 0, 5, 4)
    job = jobs.row(0, named=True)
    assert job["max_rss_bytes"] == 9000 << 10
    assert job["cpu_time_s"] == 300.0
    assert job["disk_read_bytes"] == int(5.5 * (1 << 20))
    assert (job["failed_step"], job["failed_step_exit_code"], job["failed_step_exit_signal"]) == ("1", 2, 9)


def test_cpu_time_is_summed_over_steps_where_the_job_has_none(tmp_path):
    text = f"{STEP_FIELDS}\n7|fit|ada|{TIMES}|COMPLETED|0:0||00:00:00|||1|4\n"
    text += f"7.batch|b||{TIMES}|COMPLETED|0:0||00:01:00|||1|4\n7.0|s||{TIMES}|COMPLETED|0:0||00:00:30|||1|4\n"
    jobs, _, _, _ = read(write(tmp_path / "a", text))
    assert jobs["cpu_time_s"].to_list() == [90.0]


@pytest.mark.parametrize("block_bytes", [200, 333, 1000, 10_000])
def test_where_blocks_end_does_not_matter(tmp_path, block_bytes):
    lines = [STEP_FIELDS]
    for job_id in range(10, 40):
        lines.append(f"{job_id}|fit|ada|{TIMES}|COMPLETED|0:0||00:05:00|||1|4")
        lines += [f"{job_id}.{step}|s||{TIMES}|COMPLETED|0:0|{job_id}K|00:01:00|||1|4" for step in ("batch", "0", "1")]
    path = write(tmp_path / "a", "\n".join(lines) + "\n")
    jobs, rejects, read_count, folded = read(path, block_bytes=block_bytes)
    assert (jobs.height, rejects.height, read_count, folded) == (30, 0, 120, 90)
    assert jobs["max_rss_bytes"].to_list() == [job_id << 10 for job_id in range(10, 40)]


def test_steps_find_their_job_in_a_sorted_file(tmp_path):
    lines = [f"{n}|fit|ada|{TIMES}|COMPLETED|0:0||00:05:00|||1|4" for n in (12, 123)]
    lines += [f"{n}.0|s||{TIMES}|COMPLETED|0:0|{n}K|00:01:00|||1|4" for n in (12, 123)]
    jobs, rejects, _, folded = read(write(tmp_path / "a", "\n".join([STEP_FIELDS, *sorted(lines)]) + "\n"))
    assert (rejects.height, folded) == (0, 2)
    assert sorted(jobs.select("job_id", "max_rss_bytes").rows()) == [(12, 12 << 10), (123, 123 << 10)]


def test_a_step_whose_job_is_not_there_is_refused_and_the_others_kept(tmp_path):
    text = f"{STEP_FIELDS}\n8.0|s||{TIMES}|COMPLETED|0:0|1K||||1|4\n7|fit|ada|{TIMES}|COMPLETED|0:0|||||1|4\n"
    jobs, rejects, read_count, folded = read(write(tmp_path / "a", text))
    assert jobs["job_id"].to_list() == [7]
    assert rejects["rule"].to_list() == ["step_without_job"]
    assert read_count == jobs.height + folded + rejects.height


def test_arrays_and_heterogeneous_jobs_have_ids_of_their_own(tmp_path):
    header = "JobID|JobIDRaw|State|Submit"
    rows = ["50_3|61", "50_[4-9%2]|50", "70+0|70", "70+1|71", "80|80"]
    text = "\n".join([header, *(f"{row}|COMPLETED|2024-03-04T08:00:00" for row in rows)]) + "\n"
    jobs, _, _, _ = read(write(tmp_path / "a", text))
    assert jobs.select("job_id", "array_task", "het_job_id", "het_offset", "job_id_raw").rows() == [
        (50, 3, None, None, 61),
        (50, None, None, None, 50),
        (70, None, 70, 0, 70),
        (71, None, 70, 1, 71),
        (80, None, None, None, 80),
    ]
    assert jobs["extra"][1] == {"pending_tasks": "4-9%2"}


@pytest.mark.parametrize("job_id", ["5_99999999999999999999", "5+99999999999", "99999999999999999999"])
def test_an_id_that_fits_nowhere_is_refused(tmp_path, job_id):
    text = f"JobID|State|Submit\n{job_id}|COMPLETED|2024-03-04T08:00:00\n7|COMPLETED|2024-03-04T08:00:00\n"
    jobs, rejects, *_ = read(write(tmp_path / "a", text))
    assert (jobs["job_id"].to_list(), rejects["rule"].to_list()) == ([7], ["bad_value"])


def test_requeued_runs_are_jobs_of_their_own_and_words_for_nothing_are_null(tmp_path):
    header = "JobID|State|Submit|Start|End|Timelimit|NodeList"
    text = f"""{header}
14|REQUEUED|2024-03-04T08:00:00|2024-03-04T08:01:00|2024-03-04T08:02:00|UNLIMITED|n1
14|CANCELLED by 0|2024-03-04T08:02:05|None|2024-03-04T08:30:00|Partition_Limit|None assigned
15|PENDING|2024-03-04T08:02:05|Unknown|Unknown|00:10:00|None assigned
"""
    jobs, rejects, _, _ = read(write(tmp_path / "a", text))
    assert rejects.height == 0
    assert jobs["state"].to_list() == ["REQUEUED", "CANCELLED", "PENDING"]
    assert jobs["cancelled_by"].to_list() == [None, "0", None]
    assert jobs["start_time"].null_count() == 2
    assert jobs["time_limit_s"].to_list() == [None, None, 600.0]
    assert jobs["node_list"].to_list() == ["n1", None, None]
    assert jobs["extra"].to_list() == [{"timelimit": "UNLIMITED"}, {"timelimit": "Partition_Limit"}, None]


def test_the_start_of_a_cancelled_job_that_had_no_node_is_none(tmp_path):
    """As Slurm 22.05 prints an array of which one task had been cancelled before the others, and a job that ran for no second."""
    header = "JobID|State|Submit|Start|End|Elapsed|NodeList|AllocCPUS|NNodes"
    times = "2024-03-04T08:00:00|2024-03-04T08:30:00|2024-03-04T08:30:00|00:00:00"
    rows = [f"3_[0-1,3-4]|CANCELLED by 0|{times}|None assigned|2|1", f"4|CANCELLED by 0|{times}|n1|2|1", f"5|FAILED|{times}||2|1"]
    jobs, rejects, _, _ = read(write(tmp_path / "a", "\n".join([header, *rows]) + "\n"))
    assert rejects.height == 0
    assert jobs["start_time"].is_null().to_list() == [True, False, False]
    assert jobs["cpus"].to_list() == [None, 2, 2]


def test_a_run_time_that_no_field_tells_is_from_start_to_end(tmp_path):
    text = "JobID|User|Submit|Start|End|State\n"
    text += "1|ada|2024-03-04T08:00:00|2024-03-04T08:01:00|2024-03-04T08:11:00|COMPLETED\n"
    text += "2|ada|2024-03-04T08:00:00|2024-03-04T08:01:00|Unknown|RUNNING\n"
    source = SacctText(write(tmp_path / "a", text))
    jobs, *_ = read_all(source)
    assert jobs["elapsed_s"].to_list() == [600.0, None]


def test_a_run_time_is_not_made_up_where_jobs_may_have_been_suspended(tmp_path):
    text = "JobID|Submit|Start|End|State|Suspended\n"
    text += "1|2024-03-04T08:00:00|2024-03-04T08:01:00|2024-03-04T08:11:00|COMPLETED|00:05:00\n"
    assert read(write(tmp_path / "a", text))[0]["elapsed_s"].to_list() == [None]


def test_requested_memory_counts_nodes_and_cpus(tmp_path):
    header = "JobID|State|Submit|ReqMem|NNodes|AllocCPUS"
    rows = ["1|COMPLETED|2024-03-04T08:00:00|4000Mn|2|8", "2|COMPLETED|2024-03-04T08:00:00|2Gc|2|8"]
    rows += ["3|COMPLETED|2024-03-04T08:00:00|62.50G|2|8"]
    jobs, _, _, _ = read(write(tmp_path / "a", "\n".join([header, *rows]) + "\n"))
    assert jobs["req_mem_bytes"].to_list() == [8000 << 20, 16 << 30, int(62.5 * (1 << 30))]


def test_a_submit_line_with_newlines_is_one_record(tmp_path):
    text = """JobID|State|Submit|SubmitLine|User
1|COMPLETED|2024-03-04T08:00:00|sbatch --wrap echo a
echo b
echo c|ada
2|COMPLETED|2024-03-04T08:00:00|sbatch run.sh|bo
"""
    jobs, rejects, read_count, _ = read(write(tmp_path / "a", text))
    assert (jobs.height, rejects.height, read_count) == (2, 0, 2)
    assert jobs["submit_line"][0] == "sbatch --wrap echo a\necho b\necho c"
    assert jobs["user"].to_list() == ["ada", "bo"]


def test_two_damaged_neighbours_never_make_one_false_record(tmp_path):
    text = """JobID|State|Submit|SubmitLine|User
1|COMPLETED|2024-03-04T08:00:00|sbatch
2|COMPLETED|2024-03-04T08:00:00|sbatch run.sh|bo|more
"""
    jobs, rejects, _, _ = read(write(tmp_path / "a", text))
    assert (jobs.height, rejects.height) == (0, 2)


def test_fields_that_have_no_column_go_to_extra(tmp_path):
    text = "JobID|State|Submit|WCKey|Reservation\n1|COMPLETED|2024-03-04T08:00:00|blue|\n"
    jobs, _, _, _ = read(write(tmp_path / "a", text))
    assert jobs["extra"].to_list() == [{"wckey": "blue"}]


def test_times_are_read_in_the_zone_of_the_site(tmp_path):
    jobs, _, _, _ = read(write_sacct(tmp_path / "a", make_jobs(1)), time_zone="Europe/Berlin")
    assert jobs["submit_time"].to_list() == [datetime(2024, 3, 4, 7, tzinfo=UTC)]


@pytest.mark.parametrize(
    ("damage", "rule"),
    [
        (lambda line: line[: len(line) // 2], "wrong_column_count"),
        (lambda line: line + "|more", "wrong_column_count"),
        (lambda line: line.replace("ada", "a\0da"), "nul_byte"),
        (lambda line: line.replace("2024-03-04T08:00:00", "not a time", 1), "bad_value"),
        (lambda line: line.replace("COMPLETED", "EXPLODED"), "bad_value"),
        (lambda line: line.replace("fit", "x" * 2_000_000), "line_too_long"),
    ],
)
def test_a_damaged_line_is_refused_by_name_and_its_neighbours_are_kept(tmp_path, damage, rule):
    good = [sacct_line(job) for job in make_jobs(4, first_id=1)]
    lines = [SACCT_FIELDS, *good[:2], damage(sacct_line(Job(job_id=99))), *good[2:]]
    jobs, rejects, read_count, _ = read(write(tmp_path / "a", "\n".join(lines) + "\n"))
    assert jobs["job_id"].to_list() == [1, 2, 3, 4]
    assert rejects.select("line", "rule").rows() == [(4, rule)]
    assert read_count == 5


@pytest.mark.parametrize(
    ("field", "text", "column"),
    [
        ("Elapsed", "ten minutes", "elapsed_s"),
        ("AllocCPUS", "99999999999999999999", "cpus"),
        ("AllocCPUS", "-4", "cpus"),
        ("ReqNodes", "1.5.2K", "req_nodes"),
        ("TotalCPU", "cpu=4,mem=2048M,node=1", "cpu_time_s"),  # every value has moved by a column
        ("ReqMem", "?", "req_mem_bytes"),
        ("NodeList", "node[1-", "node_list"),
        ("Timelimit", "INVALID", "time_limit_s"),
        ("ExitCode", "none", "exit_code"),
        ("MaxRSS", "12Q", "max_rss_bytes"),
        ("Start", "yesterday", "start_time"),
        ("End", "9999-99-99T00:00:00", "end_time"),
        ("UID", "ada", "uid"),
        ("JobIDRaw", "x7", "job_id_raw"),
    ],
)
def test_a_value_that_cannot_be_read_costs_itself_and_not_its_row(tmp_path, field, text, column):
    fields = ["JobID", "State", "Submit", "User", field]
    lines = ["|".join(fields), f"1|COMPLETED|2024-03-04T08:00:00|ada|{text}", "2|COMPLETED|2024-03-04T08:00:00|bob|"]
    jobs, rejects, *_ = read(write(tmp_path / "a", "\n".join(lines) + "\n"))
    assert (jobs["user"].to_list(), rejects.height) == (["ada", "bob"], 0)
    assert jobs[column].to_list() == [None, None]
    assert [unread_in(row) for row in jobs.iter_rows(named=True)] == [{column: text}, {}]


@pytest.mark.parametrize("word", ["Unknown", "None", "", "N/A"])
def test_a_word_for_nothing_is_no_unread_value(tmp_path, word):
    lines = ["JobID|State|Submit|Start|End|Timelimit|NCPUS|Eligible", f"1|CANCELLED|2024-03-04T08:00:00{f'|{word}' * 5}"]
    jobs, *_ = read(write(tmp_path / "a", "\n".join(lines) + "\n"))
    assert unread_in(jobs.row(0, named=True)) == {}


def test_counts_with_units_are_read_and_an_exact_one_of_the_trackable_resources_wins(tmp_path):
    lines = ["JobID|State|Submit|Start|ReqNodes|AllocCPUS|AllocTRES"]
    when = "COMPLETED|2024-03-04T08:00:00|2024-03-04T08:00:00"
    lines += [f"1|{when}|0.00K|2.00K|cpu=2047,node=1", f"2|{when}|4K|2.00K|", f"3|{when}|1|1.50M|node=1"]
    jobs, rejects, *_ = read(write(tmp_path / "a", "\n".join(lines) + "\n"))
    assert rejects.height == 0
    assert jobs.select("req_nodes", "cpus").rows() == [(0, 2047), (4096, 2048), (1, 1_572_864)]


def test_a_second_field_tells_what_the_first_does_not(tmp_path):
    text = "JobID|State|Submit|Elapsed|ElapsedRaw\n1|COMPLETED|2024-03-04T08:00:00|INVALID|61\n"
    job = read(write(tmp_path / "a", text))[0].row(0, named=True)
    assert (job["elapsed_s"], unread_in(job)) == (61.0, {})


def test_a_job_whose_start_cannot_be_read_keeps_what_it_was_given(tmp_path):
    text = "JobID|State|Submit|Start|NCPUS|NodeList\n1|CANCELLED|2024-03-04T08:00:00|soon|8|n[1-2]\n"
    job = read(write(tmp_path / "a", text))[0].row(0, named=True)
    assert (job["start_time"], job["cpus"], unread_in(job)) == (None, 8, {"start_time": "soon"})


def test_what_cannot_be_read_in_a_step_is_noted_at_its_job(tmp_path):
    text = """JobID|State|Submit|MaxRSS|TotalCPU
1|COMPLETED|2024-03-04T08:00:00||00:00:09
1.batch|COMPLETED|2024-03-04T08:00:00|?K|often
1.0|COMPLETED|2024-03-04T08:00:00|??|00:00:03
2|COMPLETED|2024-03-04T08:00:00||
2.batch|COMPLETED|2024-03-04T08:00:00|2K|00:00:01
"""
    jobs, *_ = read(write(tmp_path / "a", text))
    assert [unread_in(row) for row in jobs.iter_rows(named=True)] == [{"max_rss_bytes": "?K"}, {}]


def test_a_hostile_text_that_cannot_be_read_is_kept_short_and_harmless(tmp_path):
    hostile = "\x1b[31m\u202e<script>" + "x" * 5000
    text = f"JobID|State|Submit|NCPUS\n1|COMPLETED|2024-03-04T08:00:00|{hostile}\n"
    kept = unread_in(read(write(tmp_path / "a", text))[0].row(0, named=True))["cpus"]
    assert kept.startswith("?[31m?<script>xxx") and len(kept) == 200


def test_invalid_utf8_is_refused_line_by_line(tmp_path):
    data = write_sacct(tmp_path / "a", make_jobs(3)).read_bytes().replace(b"user1", b"us\xff\xfe1")
    (tmp_path / "a").write_bytes(data)
    jobs, rejects, _, _ = read(tmp_path / "a")
    assert jobs.height == 2
    assert rejects.select("rule", "raw").row(0)[0] == "invalid_utf8"
    assert "\\xff" in rejects["raw"][0]


def test_half_a_gzip_gives_every_whole_line_of_that_half(tmp_path):
    text = write_sacct(tmp_path / "a", make_jobs(20_000)).read_bytes()
    packed = gzip.compress(text)
    (tmp_path / "b.gz").write_bytes(packed[: len(packed) // 2])
    jobs, rejects, read_count, _ = read(tmp_path / "b.gz")
    assert 5_000 < jobs.height < 19_000
    assert rejects["rule"].to_list() == ["truncated_file"]
    assert read_count == jobs.height + 1
    assert jobs["job_id"].to_list() == list(range(1000, 1000 + jobs.height))


def test_a_name_with_markup_and_escapes_is_kept_as_it_is(tmp_path):
    hostile = "<script>alert(1)</script>\x1b[31m[red]"
    jobs, _, _, _ = read(write_sacct(tmp_path / "a", [Job(name=hostile)]))
    assert jobs["job_name"].to_list() == [hostile]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"JobID|User\n1|ada\n", "Column 'Submit' is missing"),
        (b"hello world\nthis is no log\n", "not a header of sacct"),
    ],
)
def test_a_file_that_is_no_sacct_output_is_one_sentence(tmp_path, content, says):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(SourceFormatError, match=says) as raised:
        read(tmp_path / "a")
    assert raised.value.hint


def test_too_few_names_for_the_columns_is_one_sentence(tmp_path):
    path = write(tmp_path / "a", sacct_line(Job()) + "\n")
    with pytest.raises(SourceFormatError, match="3 fields were named"):
        read(path, fields=["JobID", "State", "Submit"])


def test_a_missing_file_and_a_folder_are_one_sentence_each(tmp_path):
    with pytest.raises(SourceError, match="There is no file"):
        SacctText(tmp_path / "nothing")
    with pytest.raises(SourceError, match="is a folder"):
        SacctText(tmp_path)


@pytest.mark.parametrize(
    ("line", "script"),
    [
        ("sbatch run.sh", "run.sh"),
        ("sbatch -N 2 --time=1:00 --mem 4G run/fit.sh --fast", "run/fit.sh"),
        ("sbatch --hold -Jname run.sh", "run.sh"),
        ("sbatch --wrap sleep 2", None),
        ("srun hostname", None),
        ("sbatch 'unclosed", None),
        (None, None),
    ],
)
def test_the_script_is_found_in_the_submit_line(line, script):
    assert script_of(line) == script
