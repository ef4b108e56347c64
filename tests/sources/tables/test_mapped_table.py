import gzip
from datetime import timedelta

import polars as pl
import pytest

from stormpetrel.errors import SourceFormatError
from stormpetrel.sources.tables.column_map import SHIPPED, load_map
from stormpetrel.sources.tables.mapped_table import MappedTable
from tests.builders import T0, Job, lumos_document, make_jobs, read_all, unread_in

OWN_MAP = """
[columns]
job_id = { from = "id", as = "integer" }
submit_time = { from = "queued", as = "local" }
end_time = { from = "done", as = "local" }
req_mem_bytes = { from = "mem_gb", as = "gib" }
time_limit_s = { from = "limit_h", as = "hours" }
user = { from = "who", missing = ["anonymous"] }
[state]
from = "how"
words = { ok = "COMPLETED", oom = "OUT_OF_MEMORY" }
otherwise = "FAILED"
"""


def own_map(tmp_path, text=OWN_MAP):
    (tmp_path / "map.toml").write_text(text)
    return str(tmp_path / "map.toml")


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_maps_load(name):
    assert {"job_id", "submit_time"} <= set(load_map(name).columns)


def test_the_lumos_map_reads_times_states_and_masked_users(tmp_path):
    path = lumos_document(
        [Job(), Job(job_id=2, state="CANCELLED", run_s=3600, limit_s=3600), Job(job_id=3, state="CANCELLED")]
    ).write(tmp_path / "a.csv")
    path.write_text(path.read_text().replace("2,3,", "2,3,").replace(",3,97", ",3,0.0"))
    jobs, rejects, _, _ = read_all(MappedTable(path, column_map="lumos"))
    assert rejects.height == 0
    assert jobs["state"].to_list() == ["COMPLETED", "TIMEOUT", "CANCELLED"]
    assert jobs["state_raw"].to_list() == ["Pass", "Killed", "Killed"]
    assert jobs["submit_time"][0] == T0
    assert jobs["end_time"][0] == T0 + timedelta(seconds=660)
    assert (jobs["cpus"][0], jobs["elapsed_s"][0], jobs["time_limit_s"][0]) == (4, 600.0, 3600.0)


def test_the_alcf_map_reads_local_times_and_exit_codes(tmp_path):
    header = (
        "JOB_NAME,COBALT_JOBID,MACHINE_NAME,QUEUED_TIMESTAMP,START_TIMESTAMP,END_TIMESTAMP,USERNAME_GENID,PROJECT_NAME_GENID,"
        "QUEUE_NAME,WALLTIME_SECONDS,RUNTIME_SECONDS,NODES_USED,NODES_REQUESTED,CORES_USED,CORES_REQUESTED,LOCATION,EXIT_STATUS"
    )
    rows = [
        '"a.1",11,mira,2018-08-27 05:33:37,2018-08-27 06:00:00,2018-08-27 06:10:00,35.0,45.0,prod,600,600.0,512,512,8192,8192,'
        '"R1,R2",0',
        "b,12,mira,2018-08-27 05:33:37,2018-08-27 06:00:00,2018-08-27 06:10:00,35,45,prod,600,600.0,512,512,8192,8192,R3,143",
        "c,13,mira,2018-08-27 05:33:37,2018-08-27 06:00:00,2018-08-27 06:05:00,35,45,prod,600,300.0,512,512,8192,8192,R3,1",
    ]
    (tmp_path / "a.csv").write_text("\n".join([header, *rows]) + "\n")
    jobs, rejects, _, _ = read_all(MappedTable(tmp_path / "a.csv", column_map="alcf-djc", time_zone="America/Chicago"))
    assert rejects.height == 0
    assert jobs["state"].to_list() == ["COMPLETED", "TIMEOUT", "FAILED"]
    assert jobs["submit_time"][0].isoformat() == "2018-08-27T10:33:37+00:00"
    assert jobs["node_list"].to_list() == ["R1,R2", "R3", "R3"]
    assert jobs["user"].to_list() == ["35", "35", "35"]
    assert jobs["cluster"].to_list() == ["mira"] * 3


def test_a_map_of_ones_own_reads_csv_and_the_rest_goes_to_extra(tmp_path):
    (tmp_path / "a.csv").write_text(
        "id,queued,done,mem_gb,limit_h,who,how,colour\n"
        "1,2024-03-04T08:00:00,2024-03-04T09:00:00,1.5,2,ada,ok,blue\n"
        "2,2024-03-04T08:00:00,,,,anonymous,oom,\n"
        "3,2024-03-04T08:00:00,,,,bo,whatever,\n"
    )
    jobs, rejects, _, _ = read_all(MappedTable(tmp_path / "a.csv", column_map=own_map(tmp_path)))
    assert rejects.height == 0
    assert jobs["state"].to_list() == ["COMPLETED", "OUT_OF_MEMORY", "FAILED"]
    assert jobs["req_mem_bytes"].to_list() == [3 << 29, None, None]
    assert jobs["time_limit_s"].to_list() == [7200.0, None, None]
    assert jobs["user"].to_list() == ["ada", None, "bo"]
    assert jobs["extra"].to_list() == [{"colour": "blue"}, None, None]


def test_parquet_reads_like_csv(tmp_path):
    path = lumos_document(make_jobs(50, failed=7)).write(tmp_path / "a.csv")
    pl.read_csv(path).write_parquet(tmp_path / "a.parquet")
    plain, *_ = read_all(MappedTable(path, column_map="lumos"))
    typed, rejects, *_ = read_all(MappedTable(tmp_path / "a.parquet", column_map="lumos"))
    assert rejects.height == 0
    same = [name for name in plain.columns if name not in ("extra", "line", "record")]
    assert typed.select(same).equals(plain.select(same))


def test_half_a_parquet_is_one_sentence(tmp_path):
    pl.DataFrame({"job": [1]}).write_parquet(tmp_path / "a.parquet")
    data = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(data[: len(data) // 2])
    with pytest.raises(SourceFormatError, match="no Parquet file"):
        read_all(MappedTable(tmp_path / "a.parquet", column_map="lumos"))


def test_quoted_fields_may_hold_the_delimiter(tmp_path):
    (tmp_path / "a.csv").write_text('id,queued,who,how\n1,2024-03-04T08:00:00,"a,""b""",ok\n')
    jobs, *_ = read_all(MappedTable(tmp_path / "a.csv", column_map=own_map(tmp_path)))
    assert jobs["user"].to_list() == ['a,"b"']


@pytest.mark.parametrize(
    ("damage", "rule"),
    [
        (lambda line: line + ",more", "wrong_column_count"),
        (lambda line: line.replace("1002", "two"), "bad_value"),
        (lambda line: line.replace("Pass", "Perhaps"), "bad_value"),
        (lambda line: line[:20], "wrong_column_count"),
    ],
)
def test_a_damaged_row_is_refused_and_its_neighbours_are_kept(tmp_path, damage, rule):
    document = lumos_document(make_jobs(5))
    document.records[2] = damage(document.records[2].decode()).encode()
    jobs, rejects, read_count, _ = read_all(MappedTable(document.write(tmp_path / "a.csv"), column_map="lumos"))
    assert jobs["job_id"].to_list() == [1000, 1001, 1003, 1004]
    assert (rejects["rule"].to_list(), read_count) == ([rule], 5)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[columns]\n", "wrong at 'state'"),
        (OWN_MAP.replace("user =", "usr ="), "Did you mean 'user'"),
        (OWN_MAP.replace('as = "gib"', 'as = "stone"'), "req_mem_bytes"),
        (OWN_MAP.replace("job_id =", "gid ="), "does not say where job_id comes from"),
        ("not toml", "not valid TOML"),
    ],
)
def test_a_map_that_is_wrong_is_one_sentence(tmp_path, text, says):
    with pytest.raises(SourceFormatError, match=says):
        load_map(own_map(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (OWN_MAP.replace('as = "integer"', 'as = "text"'), "reads job_id as 'text'"),
        (
            OWN_MAP.replace('submit_time = { from = "queued", as = "local" }', 'submit_time = { from = "queued" }'),
            "submit_time as 'text'",
        ),
        ('delimiter = "||"\n' + OWN_MAP, "wrong at 'delimiter'"),
    ],
)
def test_a_map_that_reads_a_column_as_what_it_cannot_be_is_refused(tmp_path, text, says):
    with pytest.raises(SourceFormatError, match=says.replace("'", ".")):
        load_map(own_map(tmp_path, text))


@pytest.mark.parametrize("value", ["inf", "nan", "1e999"])
def test_numbers_beyond_all_bounds_are_empty_and_noted(tmp_path, value):
    (tmp_path / "a.csv").write_text(f"id,queued,limit_h,how\n1,2024-03-04T08:00:00,{value},ok\n2,2024-03-04T08:00:00,3,ok\n")
    jobs, rejects, *_ = read_all(MappedTable(tmp_path / "a.csv", column_map=own_map(tmp_path)))
    assert (jobs["time_limit_s"].to_list(), rejects.height) == ([None, 10800.0], 0)
    assert [unread_in(row) for row in jobs.iter_rows(named=True)] == [{"time_limit_s": value}, {}]


def test_a_time_that_is_a_sum_is_noted_with_all_its_parts(tmp_path):
    document = lumos_document([Job(wait_s=7)])
    document.records[0] = document.records[0].replace(b",7,600.0,", b",soon,600.0,")
    jobs, rejects, *_ = read_all(MappedTable(document.write(tmp_path / "a.csv"), column_map="lumos"))
    assert rejects.height == 0
    assert unread_in(jobs.row(0, named=True)) == {"start_time": "1709539200.0 + soon", "end_time": "1709539200.0 + soon + 600.0"}


def test_parquet_of_odd_types_is_read_as_far_as_it_can_be(tmp_path):
    frame = pl.DataFrame(
        {
            "id": [1],
            "queued": [T0.replace(tzinfo=None)],
            "how": pl.Series(["ok"], dtype=pl.Categorical),
            "took": [timedelta(hours=1)],
            "parts": [[1, 2]],
            "nothing": [None],
            "day": [T0.date()],
        }
    )
    frame.write_parquet(tmp_path / "a.parquet")
    jobs, rejects, *_ = read_all(MappedTable(tmp_path / "a.parquet", column_map=own_map(tmp_path), time_zone="Europe/Berlin"))
    assert rejects.height == 0
    assert jobs["submit_time"].to_list() == [T0 - timedelta(hours=1)], "a time without a zone is local where the map says so"
    assert jobs["extra"][0]["took"] == "3600.0"


def test_a_map_that_is_not_there_names_those_that_are():
    with pytest.raises(SourceFormatError, match="Did you mean 'lumos'"):
        load_map("lumoss")


def test_a_file_that_does_not_fit_its_map_names_what_is_missing(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n"))
    with pytest.raises(SourceFormatError, match="Column 'job' of the map 'lumos' is missing"):
        read_all(MappedTable(tmp_path / "a.csv.gz", column_map="lumos"))


def test_a_header_that_differs_from_the_map_in_case_or_spacing_is_recognised(tmp_path):
    path, parquet = tmp_path / "own.csv", tmp_path / "own.parquet"
    path.write_text("ID,Queued,DONE,Mem GB,who,How,id2\n7,2026-01-05T10:00:00,2026-01-05T11:00:00,2,ann,ok,9\n")
    pl.read_csv(path).write_parquet(parquet)
    for file in (path, parquet):
        (row,) = read_all(MappedTable(file, column_map=own_map(tmp_path)))[0].iter_rows(named=True)
        assert (row["job_id"], row["user"], row["state"], row["req_mem_bytes"]) == (7, "ann", "COMPLETED", 2 * 1024**3)
