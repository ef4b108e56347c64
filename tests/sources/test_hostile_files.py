"""Files of less than a megabyte that would like gigabytes or minutes: read or refused within a bounded memory and time.

Each case is read in a process of its own whose memory and CPU time are limited, as `ingest` would read it.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from stormpetrel.errors import SourceFormatError
from stormpetrel.records.quality import MOST_REJECTS, bounded_rejects, rejects
from stormpetrel.sources.formats import ReadOptions, open_source
from stormpetrel.sources.lines import LineFile
from stormpetrel.sources.tables.parquet_bounds import check_parquet
from tests.builders import make_jobs, make_site, table_of, write_sacct

MIB = 1024 * 1024
HEADER = b"JobID|JobName|User|Submit|Start|End|State|ExitCode|Elapsed\n"
LIMIT_BYTES, LIMIT_CPU_S = 1024 * MIB, 10

# What is resident is what counts; a limit on addresses would count what allocators only reserve.
READ = """
import resource, sys, threading, time
from pathlib import Path
def watch():
    while True:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        if pages * 4096 > {most}:
            print("TOO MUCH MEMORY"); sys.stdout.flush(); import os; os._exit(3)
        time.sleep(0.02)
threading.Thread(target=watch, daemon=True).start()
resource.setrlimit(resource.RLIMIT_CPU, ({cpu}, {cpu}))
from stormpetrel.errors import StormpetrelError
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.sources.formats import ReadOptions, open_source
from stormpetrel.store.site import open_site
try:
    with open_site(Path(sys.argv[1])) as site:
        report = ingest_jobs(site, open_source(sys.argv[2], sys.argv[3], ReadOptions()))
        print("READ", report.read, report.kept, sum(report.quarantined.values()))
except StormpetrelError as error:
    print("REFUSED", error)
"""


def packed(data: bytes) -> bytes:
    return gzip.compress(data, 9)


def deep(opening: bytes, times: int) -> bytes:
    return b'{"jobs": [' + opening * times + b"]}"


# Made when they are asked for: some take seconds to pack.
CASES = {
    "nul-lines": ("sacct", lambda: packed(HEADER + b"\0\n" * (32 * MIB))),
    "nul-lines-of-thirty": ("sacct", lambda: packed(HEADER + (b"\0" * 29 + b"\n") * (2 * MIB))),
    "blank-lines": ("sacct", lambda: packed(HEADER + b"\n" * (1000 * MIB // 2))),
    "short-lines": ("swf", lambda: packed(b"; Version: 2\n" + b"1\n" * (30 * MIB))),
    "wrong-columns": ("sacct", lambda: packed(HEADER + b"1|a|b|c\n" * (7 * MIB))),
    "one-endless-line": ("sacct", lambda: packed(HEADER + b"x" * (900 * MIB // 2))),
    "bad-states": ("sacct", lambda: packed(HEADER + b"1|n|u|2024-01-01T00:00:00|||NOTHING|0:0|0\n" * (MIB // 2))),
    "many-columns": (
        "lumos",
        lambda: packed(b",".join(b"c%d" % k for k in range(100_000)) + b"\n" + (b"," * 99_999 + b"\n") * 500),
    ),
    "deep-objects": ("sacct-json", lambda: deep(b'{"a":', 250_000)),
    "deep-lists": ("sacct-json", lambda: deep(b"[", 900_000)),
    "half-open-objects": ("sacct-json", lambda: deep(b'{"job_id":1,', 80_000)),
    "broken-objects": ("sacct-json", lambda: deep(b'{"job_id":}, ', 70_000)),
    "open-strings": ("sacct-json", lambda: deep(b'{"a":"', 150_000)),
    "broken-objects-packed": ("condor-history", lambda: packed(b"[" + b'{"ClusterId":x}, ' * 3_000_000)),
}


@pytest.fixture(scope="module")
def site_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("hostile") / "site"
    make_site(folder).close()
    return folder


def read_bounded(folder: Path, path: Path, format_name: str) -> str:
    """What came of it; a process that needed too much has said something else, or nothing."""
    code = READ.format(most=LIMIT_BYTES, cpu=LIMIT_CPU_S)
    done = subprocess.run([sys.executable, "-c", code, folder, path, format_name], capture_output=True, text=True, timeout=240)
    assert done.stdout.startswith(("READ", "REFUSED")), (done.returncode, done.stdout[-300:], done.stderr[-300:])
    return done.stdout


# One of each kind; the others are long proofs.
QUICK = {"nul-lines", "wrong-columns", "one-endless-line", "half-open-objects"}


@pytest.mark.parametrize("case", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in sorted(CASES)])
def test_a_hostile_file_needs_neither_a_gigabyte_nor_ten_seconds(site_folder, tmp_path, case):
    format_name, make = CASES[case]
    content = make()
    path = tmp_path / f"hostile.{case}"
    path.write_bytes(content)
    assert len(content) < 1.2 * MIB
    assert read_bounded(site_folder, path, format_name)


@pytest.mark.parametrize(
    ("rows", "columns", "compression"), [(30_000_000, 1, "zstd"), (1_000_000, 40, "zstd"), (30_000_000, 1, "uncompressed")]
)
def test_a_parquet_file_that_claims_more_rows_than_it_can_hold_is_refused(tmp_path, rows, columns, compression):
    path = tmp_path / "jobs.parquet"
    frame = pl.select(pl.repeat(1, rows, dtype=pl.Int8).alias("c0")).lazy()
    frame = frame.with_columns(pl.col("c0").alias(f"c{k}") for k in range(columns))
    frame.sink_parquet(path, compression=compression, row_group_size=rows)
    if path.stat().st_size > 3 * MIB:
        pytest.fail("the file is not small")
    with pytest.raises(SourceFormatError, match="no log does"):
        check_parquet(path)


def test_a_parquet_page_that_unpacks_to_gigabytes_is_refused(tmp_path):
    path = tmp_path / "jobs.parquet"
    pl.DataFrame({"name": ["x" * (150 * MIB)]}).write_parquet(path, compression="zstd", statistics=False)
    assert path.stat().st_size < MIB
    with pytest.raises(SourceFormatError, match="no log does"):
        check_parquet(path)


@pytest.mark.parametrize("compression", ["zstd", "snappy", "lz4", "gzip", "uncompressed"])
def test_an_ordinary_parquet_file_passes(tmp_path, compression):
    path = tmp_path / "jobs.parquet"
    frame = pl.DataFrame({"id": range(30_000), "user": ["ada", "bob", None] * 10_000, "same": [1.5] * 30_000})
    frame.with_columns(tags=pl.lit(["a", "b"])).write_parquet(path, compression=compression, row_group_size=7_000)
    check_parquet(path)


def test_a_parquet_file_with_any_byte_changed_is_refused_or_passes_and_never_more(tmp_path):
    path, changed = tmp_path / "jobs.parquet", tmp_path / "changed.parquet"
    pl.DataFrame({"id": range(50), "user": ["ada", "bob"] * 25}).write_parquet(path)
    whole = path.read_bytes()
    for place in range(len(whole)):
        changed.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with contextlib.suppress(SourceFormatError):
            check_parquet(changed)


def test_the_rows_before_the_end_of_patience_are_kept(tmp_path):
    good = write_sacct(tmp_path / "good.txt", make_jobs(20)).read_bytes()
    path = tmp_path / "mixed.txt"
    path.write_bytes(good + b"this is no record of sacct\n" * 700_000)
    with make_site(tmp_path / "site") as site:
        from stormpetrel.ingest.jobs import ingest_jobs

        with pytest.raises(SourceFormatError, match=r"records were refused and \d+ could be read"):
            ingest_jobs(site, open_source(str(path), "sacct", ReadOptions()))
        assert table_of(site).height >= 19, "the last one may have been waiting for its steps"
        assert site.quarantine.read().collect().height <= 3 * (MOST_REJECTS + 1)


def test_refused_records_beyond_the_bound_are_counted_in_words():
    rows = [(number, "bad_value" if number % 2 else "nul_byte", "because", "raw") for number in range(MOST_REJECTS + 501)]
    bounded = bounded_rejects(rejects(rows))
    assert bounded.height == MOST_REJECTS + 2
    assert sorted(bounded["reason"].tail(2)) == [
        "250 more records from here on were refused by the same rule",
        "251 more records from here on were refused by the same rule",
    ]


def test_a_log_that_repeats_itself_is_read_whole(tmp_path):
    path = tmp_path / "array.txt.gz"
    path.write_bytes(packed(b"".join(b"%d|sweep|ada|COMPLETED\n" % number for number in range(400_000))))
    assert sum(block.lines for block in LineFile(path).blocks()) == 400_000


@pytest.mark.parametrize("stray", ["]", "],", "] ]", "\n]\n"])
@pytest.mark.parametrize("key", [None, "jobs"])
def test_a_stray_bracket_costs_no_record(tmp_path, stray, key):
    from stormpetrel.sources.json_records import records_in

    one = [json.dumps({"job_id": number}) for number in range(6)]
    inside = ", ".join(one[:3]) + stray + ", ".join(one[3:])
    path = tmp_path / "jobs.json"
    path.write_text(f"[{inside}]" if key is None else f'{{"jobs": [{inside}], "errors": []}}')
    found = [record for _, record, _ in records_in(LineFile(path), key=key, is_record=lambda record: "job_id" in record)]
    assert [record["job_id"] for record in found if isinstance(record, dict)] == list(range(6))
    assert [refused[1] for refused in found if isinstance(refused, tuple)] == ["stray_bracket"] * stray.count("]")


def test_a_damaged_record_among_many_costs_only_itself(tmp_path):
    from stormpetrel.sources.json_records import records_in

    text = ", ".join(json.dumps({"job_id": number, "tags": [{"a": {}}] * 5}) for number in range(2_000))
    path = tmp_path / "jobs.json"
    path.write_text("[" + text.replace('"job_id": 77,', '"job_id": 77') + "]")
    found = [record for _, record, _ in records_in(LineFile(path), key=None, is_record=lambda record: "job_id" in record)]
    assert len([record for record in found if isinstance(record, dict)]) == 1_999


def test_an_event_nested_a_thousand_deep_is_one_bad_row(tmp_path):
    from collections import Counter

    from stormpetrel.sources.tables.event_frames import frames_of

    path, aside = tmp_path / "events.ndjson", Counter()
    path.write_text('{"kind": "Submit"}\n{"kind": ' + "[" * 1000 + "]" * 1000 + '}\n{"kind": "Execute"}\n')
    frames = list(frames_of(path, aside))
    assert pl.concat(frames)["kind"].to_list() == ["Submit", "Execute"]
    assert aside == {"bad_record": 1}


def test_an_answer_of_slurmrestd_that_does_not_end_is_given_up(tmp_path):
    from stormpetrel.config import SlurmSection
    from stormpetrel.errors import SourceUnavailableError
    from stormpetrel.sources.slurm.rest import SlurmRest
    from tests.parts.loopback import served

    endless = served(lambda *_: (200, b"x" * 20 * MIB, {}))
    with endless as url, (tmp_path / "answer").open("w+b") as out, SlurmRest(SlurmSection(rest_url=url)) as server:
        with pytest.raises(SourceUnavailableError, match="answered with more than 8 MiB"):
            server.fetch("/slurmdb/jobs", {}, out, most_bytes=8 * MIB)
        assert out.tell() <= 8 * MIB
