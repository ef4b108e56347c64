import gzip
import json
from pathlib import Path

import pytest

from stormpetrel.records.jobs import VALUES, never_started
from stormpetrel.sources.slurm.json_jobs import SlurmJson, fields_of
from stormpetrel.sources.slurm.sacct_text import SacctText
from tests.builders import Job, make_jobs, read_all, sacct_json_document, sacct_json_record, unread_in, wrapped

RECORDINGS = Path(__file__).parents[2] / "recordings"
ACCOUNTING = sorted(path for path in RECORDINGS.glob("*.json.gz") if path.name.startswith(("sacct-", "rest-")))
QUEUES = sorted(RECORDINGS.glob("squeue-*.json.gz"))
# What the cases of jobs-*.tsv became; the exit code is not believable before v0.0.40.
EXPECTED = {
    "completes": ("COMPLETED", 0, 0),
    "exit3": ("FAILED", 3, 0),
    "twosteps": ("FAILED", 7, 0),
    "segv": ("FAILED", 0, 11),
    "timeout": ("TIMEOUT", None, None),
    "cancel_running": ("CANCELLED", None, None),
}


def cases(path):
    version = path.name.split("-")[1]
    lines = (RECORDINGS / f"jobs-{version}.tsv").read_text().splitlines()
    return {name: int(number) for name, number in (line.split("\t")[:2] for line in lines)}


def believable(path):
    return path.name.split("-v0.0.")[1][:2] >= "40"


@pytest.mark.parametrize("path", ACCOUNTING, ids=lambda path: path.name)
def test_recorded_accounting_has_the_right_states_and_exit_codes(path):
    jobs, rejects, _, _ = read_all(SlurmJson(path))
    assert rejects.height == 0
    by_id = {row["job_id"]: row for row in jobs.iter_rows(named=True)}
    for name, (state, code, signal) in EXPECTED.items():
        row = by_id[cases(path)[name]]
        assert row["state"] == state, name
        if code is not None:
            assert row["exit_code"] == (code if believable(path) else None), name
            assert row["exit_signal"] == (signal if believable(path) else None), name


@pytest.mark.parametrize("path", ACCOUNTING, ids=lambda path: path.name)
def test_recorded_arrays_and_heterogeneous_jobs_keep_their_parts(path):
    jobs, *_ = read_all(SlurmJson(path))
    ids = cases(path)
    assert sorted(jobs.filter(job_id=ids["array"])["array_task"]) == [0, 1, 2]
    parts = jobs.filter(het_job_id=ids["het"]).sort("het_offset")
    assert parts.select("job_id", "het_offset").rows() == [(ids["het"], 0), (ids["het"] + 1, 1)]


@pytest.mark.parametrize("path", [path for path in ACCOUNTING if path.name.startswith("sacct-")], ids=lambda path: path.name)
def test_recorded_json_says_what_recorded_text_says(path):
    version = path.name.split("-")[1]
    from_json, *_ = read_all(SlurmJson(path))
    # The job whose name holds the delimiter is in quarantine as text.
    from_text, *_ = read_all(SacctText(RECORDINGS / f"sacct-{version}-epoch.txt.gz"))
    same = [
        "job_id", "array_task", "submit_time", "start_time", "end_time", "state", "elapsed_s", "cpus", "mem_bytes", "user",
        "account", "partition", "work_dir", "max_rss_bytes", "node_list", "het_offset", "cpu_limit_s", "req_cpus", "nodes",
    ]  # fmt: skip
    keys = ["job_id", "array_task", "submit_time"]
    wanted = from_text.select(same).sort(keys)
    found = from_json.join(wanted, on=keys, how="semi", nulls_equal=True).select(same).sort(keys)
    assert wanted.height >= 18
    for column in same:
        assert found[column].to_list() == wanted[column].to_list(), column


@pytest.mark.parametrize("path", QUEUES, ids=lambda path: path.name)
def test_recorded_queues_tell_what_waits_and_what_runs(path):
    source = SlurmJson(path)
    jobs, rejects, _, _ = read_all(source)
    assert rejects.height == 0
    assert "elapsed_s" not in source.fields() and "uid" in source.fields()
    waiting = jobs.filter(state="PENDING")
    assert waiting.height >= 1
    assert waiting["start_time"].null_count() == waiting.height, "the scheduler's guess is no start"
    running = jobs.filter(state="RUNNING")
    assert running["start_time"].null_count() == 0
    assert running["end_time"].null_count() == running.height
    assert jobs["user"].null_count() == 0 and jobs["uid"].null_count() == 0


@pytest.mark.parametrize("path", [*ACCOUNTING, *QUEUES], ids=lambda path: path.name)
def test_no_column_is_filled_that_the_source_does_not_declare(path):
    source = SlurmJson(path)
    jobs, *_ = read_all(source)
    filled = {name for name in VALUES if jobs[name].null_count() < jobs.height}
    assert filled <= source.fields()


@pytest.mark.parametrize(
    "change",
    [
        {"job_id": 2**63 + 1},
        {"array": {"job_id": 2**63 + 4, "task_id": None}},
    ],
)
def test_an_id_that_fits_no_column_refuses_its_record_alone(tmp_path, change):
    records = [sacct_json_record(Job(job_id=n)) for n in (1, 2, 3)]
    records[1] |= change
    (tmp_path / "a.json").write_text(json.dumps({"jobs": records}))
    jobs, rejects, read_count, _ = read_all(SlurmJson(tmp_path / "a.json"))
    assert jobs["job_id"].to_list() == [1, 3]
    assert (rejects["rule"].to_list(), read_count) == (["bad_value"], 3)


@pytest.mark.parametrize(
    ("change", "column"),
    [
        ({"exit_code": {"return_code": wrapped(2**40), "signal": {"id": wrapped(0)}}}, "exit_code"),
        ({"exit_code": {"return_code": wrapped("one"), "signal": {"id": wrapped(0)}}}, "exit_code"),
        ({"exit_code": {"return_code": wrapped(1), "signal": [9]}}, "exit_code"),
        ({"tres": {"allocated": [{"type": "cpu", "count": 2**63 + 9}]}}, "cpus"),
        ({"tres": {"allocated": [{"type": "mem", "count": "many"}]}}, "mem_bytes"),
        ({"tres": {"requested": "cpu=4"}}, "req_tres"),
        ({"tres": 7}, "alloc_tres"),
        ({"het": {"job_id": 7, "job_offset": wrapped(2**40)}}, "het_offset"),
        ({"steps": [7]}, "max_rss_bytes"),
        ({"steps": [{"time": {"total": {"seconds": "9"}}}]}, "cpu_time_s"),
        ({"nodes": "node[1-"}, "node_list"),
        ({"time": {"submission": 1_709_539_200, "limit": wrapped("INVALID")}}, "time_limit_s"),
        ({"time": {"submission": 1_709_539_200, "elapsed": 9, "start": 10**15}}, "start_time"),
        ({"time": {"submission": 1_709_539_200, "end": "Unknown?"}}, "end_time"),
    ],
)
def test_a_value_that_cannot_be_read_costs_itself_and_not_its_record(tmp_path, change, column):
    records = [sacct_json_record(Job(job_id=n)) for n in (1, 2, 3)]
    records[1] |= change
    (tmp_path / "a.json").write_text(json.dumps({"jobs": records}))
    jobs, rejects, *_ = read_all(SlurmJson(tmp_path / "a.json"))
    assert (jobs["job_id"].to_list(), rejects.height) == ([1, 2, 3], 0)
    assert [list(unread_in(row)) for row in jobs.iter_rows(named=True)] == [[], [column], []]
    assert jobs[column][1] is None


@pytest.mark.parametrize(
    ("name", "value", "column"),
    [
        ("time_limit", "INVALID", "time_limit_s"),
        ("user_id", "ada", "uid"),
        ("memory_per_cpu", "?", "req_mem_bytes"),
        ("start_time", -(10**14), "start_time"),
        ("nodes", "node[1-", "node_list"),
        ("eligible_time", [1], "eligible_time"),
    ],
)
def test_a_value_of_the_queue_that_cannot_be_read_costs_itself_and_not_its_record(tmp_path, name, value, column):
    record = {"job_id": 1, "job_state": "RUNNING", "submit_time": 1_709_539_200, "user_name": "ada"}
    (tmp_path / "a.json").write_text(json.dumps({"jobs": [record | {name: value}]}))
    jobs, rejects, *_ = read_all(SlurmJson(tmp_path / "a.json"))
    assert (jobs["user"].to_list(), rejects.height) == (["ada"], 0)
    assert list(unread_in(jobs.row(0, named=True))) == [column]


def test_half_a_surrogate_pair_in_a_name_is_no_reason_to_lose_the_job(tmp_path):
    record = json.dumps(sacct_json_record(Job(name="NAME"))).replace("NAME", "\\ud800x")
    (tmp_path / "a.json").write_text('{"jobs": [' + record + "]}")
    jobs, rejects, *_ = read_all(SlurmJson(tmp_path / "a.json"))
    assert (jobs.height, rejects.height) == (1, 0)


def test_exit_codes_before_version_40_are_not_among_the_columns():
    old = {"job_id": 1, "state": {}, "time": {}, "exit_code": {"status": "SUCCESS", "return_code": 0}}
    assert "exit_code" not in fields_of(old)
    assert "exit_code" in fields_of(sacct_json_record(Job()))


def test_a_record_that_is_no_json_is_refused_and_the_next_is_found(tmp_path):
    document = sacct_json_document(make_jobs(5))
    document.records[1] = document.records[1].replace(b'"job_id"', b'"job_id', 1)
    document.records[3] = document.records[3].rstrip(b"}")
    jobs, rejects, read_count, _ = read_all(SlurmJson(document.write(tmp_path / "a.json")))
    assert jobs["job_id"].to_list() == [1000, 1002, 1004]
    assert (rejects["rule"].to_list(), read_count) == (["invalid_json", "invalid_json"], 5)


@pytest.mark.parametrize(
    "change",
    [
        {"job_id": "seven"},
        {"job_id": 10**30},
        {"time": None},
        {"time": {"submission": "now"}},
        {"state": "COMPLETED"},
    ],
)
def test_a_record_without_id_submit_time_or_state_is_refused_and_its_neighbours_are_kept(tmp_path, change):
    records = [sacct_json_record(Job(job_id=n)) for n in (1, 2, 3)]
    records[1] |= change
    (tmp_path / "a.json").write_text(json.dumps({"jobs": records}))
    jobs, rejects, read_count, _ = read_all(SlurmJson(tmp_path / "a.json"))
    assert jobs["job_id"].to_list() == [1, 3]
    assert (rejects.height, read_count) == (1, 3)


def test_a_document_cut_off_keeps_all_records_before_the_cut(tmp_path):
    data = sacct_json_document(make_jobs(50)).write(tmp_path / "a.json").read_bytes()
    (tmp_path / "a.json").write_bytes(data[: len(data) // 2])
    jobs, rejects, *_ = read_all(SlurmJson(tmp_path / "a.json"))
    assert 20 <= jobs.height < 26
    assert rejects["rule"].to_list() == ["truncated_record"]
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(data)[:-200])
    jobs, rejects, *_ = read_all(SlurmJson(tmp_path / "b.json.gz"))
    assert jobs.height > 5
    assert rejects["rule"].to_list()[-1] in ("truncated_record", "truncated_file")


def test_an_endless_nest_is_refused_without_a_trace(tmp_path):
    (tmp_path / "a.json").write_text('{"jobs": [' + "[" * 100_000 + "]}")
    jobs, rejects, *_ = read_all(SlurmJson(tmp_path / "a.json"))
    assert (jobs.height, rejects.height) == (0, 1)


def test_a_document_without_jobs_gives_none(tmp_path):
    (tmp_path / "a.json").write_text('{"jobs": [], "errors": []}')
    jobs, rejects, read_count, _ = read_all(SlurmJson(tmp_path / "a.json"))
    assert (jobs.height, rejects.height, read_count) == (0, 0, 0)


@pytest.mark.parametrize("path", [*ACCOUNTING, *QUEUES], ids=lambda path: path.name)
def test_recorded_jobs_cancelled_while_they_waited_never_started(path):
    jobs, *_ = read_all(SlurmJson(path))
    cancelled = jobs.filter(state="CANCELLED")
    ran = cancelled["node_list"].is_not_null()
    assert (cancelled.select(never_started()).to_series() == ~ran).all()
    assert cancelled.filter(~ran).select("start_time", "nodes", "cpus").null_count().row(0) == ((~ran).sum(),) * 3


def test_recorded_queues_hold_jobs_whose_start_is_when_they_were_cancelled():
    document = json.loads(gzip.decompress((RECORDINGS / "squeue-22.05-v0.0.38.json.gz").read_bytes()))
    (raw,) = [job for job in document["jobs"] if job["job_state"] == "CANCELLED"]
    assert raw["start_time"] == raw["end_time"] > 0 and not raw["nodes"]
