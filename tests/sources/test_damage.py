"""Records in every format, some damaged in ways a reader can detect, some with an odd value in a side field.

A damaged record (its columns do not line up, its bytes are broken, it does not say which job, when or how it ended) is refused,
and exactly the others come back. An odd value costs itself: its record comes back without it, and says what stood there.
"""

import contextlib
import re
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stormpetrel.errors import SourceFormatError
from stormpetrel.sources.formats import ReadOptions, open_source, sniff_format
from tests.builders import DOCUMENTS, T0, Job, number_of, read_all, unread_in

NAMES = st.text(
    # Without surrogates (Cs) whatever is drawn can be written as UTF-8; to ask for that codec by name takes hypothesis a second.
    st.characters(exclude_characters='|\x00\n\r,;"\\= \t\x1c\x1d\x1e\x1f', exclude_categories=("Cs", "Cc", "Zl", "Zp", "Zs")),
    min_size=1,
    max_size=12,
)
USERS = st.text("abcdefghijklmnopqrstuvwxyz0123456789_-", min_size=1, max_size=8).filter(lambda name: name[0].isalpha())


@st.composite
def job_lists(draw):
    count = draw(st.integers(1, 8))
    ids = draw(st.lists(st.integers(1, 10**9), min_size=count, max_size=count, unique=True))
    return [
        Job(
            job_id=job_id,
            user=draw(USERS),
            name=draw(NAMES),
            submit=T0 + timedelta(seconds=draw(st.integers(0, 10**7))),
            wait_s=draw(st.integers(0, 10**5)),
            run_s=draw(st.integers(0, 3500)),
            state=draw(st.sampled_from(["COMPLETED", "FAILED"])),
            exit_code=0,
            cpus=draw(st.integers(1, 10**5)),
            limit_s=3600,
        )
        for job_id in ids
    ]


def feature_text(record: bytes, separator: bytes, change):
    words = record.split(separator)
    return separator.join(change(words))


def cut(record: bytes) -> bytes:
    return record[: len(record) // 2]


LINE_DAMAGE = {
    "a NUL byte": lambda record: record[:5] + b"\0" + record[5:],
    "invalid UTF-8": lambda record: record[:5] + b"\xff\xfe" + record[5:],
    "a very long line": lambda record: record + b" " + b"x" * 1_100_000,
}
DELIMITED_DAMAGE = {
    "a lost column": lambda sep: lambda record: feature_text(record, sep, lambda words: words[:-1]),
    "half a line": lambda sep: lambda record: feature_text(record, sep, lambda words: words[: len(words) // 2]),
    "a column too many": lambda sep: lambda record: record + sep + b"9",
}
JSON_DAMAGE = {
    "cut in the middle": cut,
    "a lost quote": lambda record: record.replace(b'"', b"", 1),
    "no end": lambda record: record.rstrip(b"}"),
    "a NUL byte": lambda record: record[:5] + b"\0" + record[5:],
    "no object": lambda record: b"[1, 2]",
    "invalid UTF-8": lambda record: record[:3] + b'"\xff\xfe": 1,' + record[3:],
}
DAMAGE = {
    "sacct": {
        **LINE_DAMAGE,
        **{name: make(b"|") for name, make in DELIMITED_DAMAGE.items()},
        "no time": lambda record: feature_text(record, b"|", lambda words: [*words[:5], b"sometime", *words[6:]]),
        "no state": lambda record: feature_text(record, b"|", lambda words: [*words[:9], b"EXPLODED", *words[10:]]),
    },
    "swf": {
        **LINE_DAMAGE,
        **{name: make(b" ") for name, make in DELIMITED_DAMAGE.items()},
        "no number": lambda record: feature_text(record, b" ", lambda words: [*words[:1], b"soon", *words[2:]]),
        "no such status": lambda record: feature_text(record, b" ", lambda words: [*words[:10], b"42", *words[11:]]),
    },
    "lumos": {
        **LINE_DAMAGE,
        **{name: make(b",") for name, make in DELIMITED_DAMAGE.items()},
        "no number": lambda record: feature_text(record, b",", lambda words: [*words[:8], b"soon", *words[9:]]),
        "no such status": lambda record: feature_text(record, b",", lambda words: [*words[:13], b"Perhaps"]),
    },
    "alcf-djc": {
        **LINE_DAMAGE,
        **{name: make(b",") for name, make in DELIMITED_DAMAGE.items()},
        "no time": lambda record: feature_text(record, b",", lambda words: [*words[:3], b"sometime", *words[4:]]),
    },
    "supercloud": {
        **LINE_DAMAGE,
        "a column too many": lambda record: record + b",9",
        "half a line": lambda record: record[:30],
        "an open quote": lambda record: record.rstrip(b'"'),
        "no such state": lambda record: feature_text(record, b",", lambda words: [*words[:5], b"77", *words[6:]]),
        "no number": lambda record: feature_text(record, b",", lambda words: [*words[:7], b"soon", *words[8:]]),
    },
    "pbs": {
        **LINE_DAMAGE,
        "half a line": lambda record: record[:25],
        "no kind": lambda record: record.replace(b";E;", b";", 1),
        "no time": lambda record: record.replace(b"ctime=", b"ctime=x").replace(b"qtime=", b"qtime=x"),
    },
    "lsf": {
        **LINE_DAMAGE,
        "half a line": cut,
        "an open quote": lambda record: record.replace(b'"normal"', b'"normal', 1),
        "no length": lambda record: record.replace(b" 0 1 ", b" 0 many ", 1),
        "no time": lambda record: re.sub(rb'("JOB_FINISH" "[0-9.]+") \d+', rb"\1 soon", record),
        "no such status": lambda record: re.sub(rb" (64|32) 100.0 ", b" 5 100.0 ", record),
    },
    "slurmctld": {
        "a NUL byte": lambda record: record.replace(b"submit", b"sub\0mit"),
        "invalid UTF-8": lambda record: record.replace(b"submit", b"sub\xff\xfemit"),
        "no such time": lambda record: re.sub(rb"T\d\d:", b"T25:", record),
        "no submission": lambda record: record.split(b"\n", 1)[1],
    },
    "sacct-json": JSON_DAMAGE
    | {
        "a wrong type": lambda record: record.replace(b'"submission": ', b'"submission": "x", "was": '),
        "no state": lambda record: record.replace(b'"current": [\n', b'"current": ["EXPLODED",\n'),
    },
    "jobcomp": JSON_DAMAGE
    | {
        "a wrong type": lambda record: record.replace(b'"jobid": ', b'"jobid": "x", "was": '),
        "no such time": lambda record: record.replace(b'"@submit": "', b'"@submit": "sometime", "was": "'),
        "no such state": lambda record: re.sub(rb'"state": "[A-Z]+"', b'"state": "EXPLODED"', record),
    },
    "condor-history": JSON_DAMAGE
    | {
        "a wrong type": lambda record: record.replace(b'"QDate": ', b'"QDate": "x", "was": '),
    },
    "condor-events": {
        "a NUL byte": lambda record: record.replace(b"submitted", b"sub\0mitted"),
        "invalid UTF-8": lambda record: record.replace(b"submitted", b"sub\xff\xfemitted"),
        "no time": lambda record: record.replace(b"-", b"?"),
        "no submit event": lambda record: record.split(b"...\n", 1)[1],
    },
}


def word(separator: bytes, position: int, text: bytes):
    """A record with another text in one of its columns."""
    return lambda record: feature_text(record, separator, lambda words: [*words[:position], text, *words[position + 1 :]])


def swapped(before: bytes, after: bytes):
    return lambda record: re.sub(before, after, record, count=1)


# format -> column that is lost -> what stands there; the row stays.
ODD = {
    "sacct": {
        "cpus": lambda record: word(b"|", 16, b"")(word(b"|", 13, b"9" * 30)(record)),
        "nodes": lambda record: word(b"|", 16, b"")(word(b"|", 14, b"-7")(record)),
        "end_time": word(b"|", 7, b"1999-01-01T00:00:00"),
        "elapsed_s": word(b"|", 8, b"INVALID"),
        "time_limit_s": word(b"|", 11, b"soon"),
        "req_mem_bytes": word(b"|", 15, b"?"),
        "exit_code": word(b"|", 10, b"none"),
    },
    "swf": {"elapsed_s": word(b" ", 3, b"soon"), "cpus": word(b" ", 4, b"4K"), "time_limit_s": word(b" ", 8, b"nan")},
    "lumos": {"elapsed_s": word(b",", 10, b"soon"), "cpus": word(b",", 6, b"four"), "time_limit_s": word(b",", 11, b"-3")},
    "alcf-djc": {
        "elapsed_s": word(b",", 10, b"soon"),
        "start_time": word(b",", 4, b"sometime"),
        "nodes": word(b",", 11, b"1e99"),
    },
    "supercloud": {"req_cpus": word(b",", 3, b"soon"), "time_limit_s": word(b",", 6, b"1:00"), "end_time": word(b",", 9, b"17")},
    "pbs": {
        "req_mem_bytes": swapped(rb"(Resource_List.mem)=\S+", rb"\1=lots"),
        "time_limit_s": swapped(rb"(Resource_List.walltime)=\S+", rb"\1=1:2:3:4:5"),
        "start_time": swapped(rb" start=\S+", b" start=9" + b"9" * 20),
    },
    "lsf": {
        "start_time": swapped(rb' \d+ "(?=[a-z0-9_-]+" "normal")', b' soon "'),
        "user_cpu_s": swapped(rb"1100.5 99.5", b"lots 99.5"),
        "time_limit_s": swapped(rb" \d+ 4194304 ", b" 1e99 4194304 "),
        "max_rss_bytes": swapped(rb' 1024 0 "" ', b' 10.5 0 "" '),
    },
    "slurmctld": {},  # a line that says something else is another line: there is no column in it to be lost
    "sacct-json": {
        "start_time": swapped(rb'"start": \d+', b'"start": "soon"'),
        "elapsed_s": swapped(rb'"elapsed": \d+', b'"elapsed": [1]'),
        "node_list": swapped(rb'"n001"', b'"n[1-"'),
    },
    "jobcomp": {
        "start_time": swapped(rb'"@start": "[^"]+"', b'"@start": {"a": 1}'),
        "elapsed_s": swapped(rb'"elapsed": \d+', b'"elapsed": [1]'),
        "exit_code": swapped(rb'"exit_code": "[^"]+"', b'"exit_code": "none"'),
        "time_limit_s": swapped(rb'"time_limit": \d+', b'"time_limit": "soon"'),
        "node_list": swapped(rb'"n001"', b'"n[1-"'),
    },
    "condor-history": {
        "elapsed_s": swapped(rb'("RemoteWallClockTime"): \S+', rb'\1: "soon",'),
        "req_cpus": swapped(rb'("RequestCpus"): \S+', rb"\1: -5,"),
        "req_mem_bytes": swapped(rb'("RequestMemory"): \S+', rb'\1: {"a": 1},'),
    },
    "condor-events": {"cpu_time_s": swapped(rb"Usr 0 00:00:01", b"Usr 0 soon")},
}


def read_document(folder, name, document):
    return read_all(open_source(str(document.write(folder / f"log{document.suffix}")), name, ReadOptions()))


def same(row, job, name, *, without=()):
    """Whether a row says what its job was, but for some columns."""
    numbered = name in ("swf", "lumos", "alcf-djc", "supercloud")
    user = str(number_of(job.user)) if numbered else None if name in ("condor-events", "slurmctld") else job.user
    told = {"submit_time": job.submit, "start_time": job.start, "end_time": job.end, "user": user}
    told |= {"state": job.state} if name not in ("condor-history", "condor-events", "pbs", "slurmctld") else {}
    return all(row[column] == value for column, value in told.items() if column not in without)


def test_every_format_is_tried():
    assert set(DAMAGE) == set(DOCUMENTS) == set(ODD)


@pytest.mark.parametrize("name", sorted(DAMAGE))
def test_a_damaged_record_is_refused_and_its_neighbours_come_back(tmp_path, name):
    jobs = [Job(job_id=1000), Job(job_id=1001), Job(job_id=1002)]
    for kind, damage in DAMAGE[name].items():
        document = DOCUMENTS[name](jobs)
        document.records[1] = damage(document.records[1])
        found, rejects, read, folded = read_document(tmp_path, name, document)
        assert [row["job_id"] for row in found.iter_rows(named=True) if same(row, jobs[0], name)] == [1000, 1002], kind
        assert found.height == 2 and rejects.height and read == found.height + folded + rejects.height, kind


@pytest.mark.parametrize("name", sorted(ODD))
def test_an_odd_value_costs_itself_and_its_record_comes_back(tmp_path, name):
    jobs = [Job(job_id=1000), Job(job_id=1001), Job(job_id=1002)]
    for column, change in ODD[name].items():
        document = DOCUMENTS[name](jobs)
        document.records[1] = change(document.records[1])
        assert document.records[1] != DOCUMENTS[name](jobs).records[1], column
        found, rejects, *_ = read_document(tmp_path, name, document)
        assert (found["job_id"].to_list(), rejects.height) == ([1000, 1001, 1002], 0), column
        assert found[column].is_null().to_list()[1] and column in unread_in(found.row(1, named=True)), column
        assert [unread_in(found.row(at, named=True)) for at in (0, 2)] == [{}, {}], column


_UNHURRIED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@pytest.mark.parametrize("name", sorted(DAMAGE))
@settings(max_examples=5, deadline=None, suppress_health_check=_UNHURRIED)
@given(jobs=job_lists(), data=st.data())
def test_of_any_mixture_exactly_the_records_that_are_not_damaged_come_back(tmp_path, name, jobs, data):
    exactly_the_others_come_back(tmp_path, name, jobs, data)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(DAMAGE))
@settings(max_examples=40, deadline=None, suppress_health_check=_UNHURRIED)
@given(jobs=job_lists(), data=st.data())
def test_of_many_more_mixtures_exactly_those_records_come_back(tmp_path, name, jobs, data):
    exactly_the_others_come_back(tmp_path, name, jobs, data)


def exactly_the_others_come_back(tmp_path, name, jobs, data):
    jobs = [Job(job_id=10**9 + 1), *jobs]  # a file of nothing but damage is not of the format at all
    kinds = [*(kind for kind in DAMAGE[name] if kind != "a very long line"), *ODD[name], ""]
    chosen = {place: data.draw(st.sampled_from(kinds), label=f"record {place}") for place in range(1, len(jobs))}
    document = DOCUMENTS[name](jobs)
    for place, kind in chosen.items():
        change = DAMAGE[name].get(kind) or ODD[name].get(kind) or (lambda record: record)
        document.records[place] = change(document.records[place])
    found, rejects, read, folded = read_document(tmp_path, name, document)
    good = {job.job_id: (job, chosen.get(place, "")) for place, job in enumerate(jobs) if chosen.get(place) not in DAMAGE[name]}
    assert sorted(found["job_id"]) == sorted(good)
    assert read == found.height + folded + rejects.height
    assert bool(len(jobs) - len(good)) == bool(rejects.height)
    for row in found.iter_rows(named=True):
        job, kind = good[row["job_id"]]
        lost = {"start_time", "end_time"} if kind in ("start_time", "elapsed_s", "cpus") else {kind}
        assert same(row, job, name, without=lost if kind else ())


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_the_format_is_found_from_the_file(tmp_path, name):
    document = DOCUMENTS[name]([Job(), Job(job_id=2)])
    assert sniff_format(str(document.write(tmp_path / "log"))) == name


@pytest.mark.parametrize("name", ["sacct", "sacct-json", "pbs"])
def test_text_that_is_hostile_to_terminals_and_pages_passes_through_untouched(tmp_path, name):
    hostile = "<b>\x1b[31m</b>&amp;"
    path = DOCUMENTS[name]([Job(name=hostile)]).write(tmp_path / "log")
    found, *_ = read_all(open_source(str(path), name, ReadOptions()))
    assert found["job_name"].to_list() == [hostile]


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_an_empty_file_gives_no_jobs_or_one_clear_sentence(tmp_path, name):
    (tmp_path / "empty").write_bytes(b"")
    with contextlib.suppress(SourceFormatError):
        found, _, read, _ = read_all(open_source(str(tmp_path / "empty"), name, ReadOptions()))
        assert (found.height, read) == (0, 0)
