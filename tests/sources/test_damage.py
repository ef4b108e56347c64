"""Random records in every format, some damaged in ways a reader can detect: exactly the others come back."""

import contextlib
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stormpetrel.errors import SourceFormatError
from stormpetrel.sources.formats import ReadOptions, open_source, sniff_format
from tests.builders import DOCUMENTS, T0, Job, number_of, read_all

NAMES = st.text(
    st.characters(
        codec="utf-8", exclude_characters='|\x00\n\r,;"\\= \t\x1c\x1d\x1e\x1f', exclude_categories=("Cs", "Cc", "Zl", "Zp", "Zs")
    ),
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


def in_words(record: bytes, separator: bytes, change):
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
    "a lost column": lambda sep: lambda record: in_words(record, sep, lambda words: words[:-1]),
    "half a line": lambda sep: lambda record: in_words(record, sep, lambda words: words[: len(words) // 2]),
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
        "no time": lambda record: in_words(record, b"|", lambda words: [*words[:5], b"sometime", *words[6:]]),
        "no state": lambda record: in_words(record, b"|", lambda words: [*words[:9], b"EXPLODED", *words[10:]]),
        "an absurd number": lambda record: in_words(record, b"|", lambda words: [*words[:13], b"9" * 30, *words[14:]]),
        "an end before its start": lambda record: in_words(
            record, b"|", lambda words: [*words[:7], b"1999-01-01T00:00:00", *words[8:]]
        ),
    },
    "swf": {
        **LINE_DAMAGE,
        **{name: make(b" ") for name, make in DELIMITED_DAMAGE.items()},
        "no number": lambda record: in_words(record, b" ", lambda words: [*words[:3], b"soon", *words[4:]]),
        "no such status": lambda record: in_words(record, b" ", lambda words: [*words[:10], b"42", *words[11:]]),
    },
    "lumos": {
        **LINE_DAMAGE,
        **{name: make(b",") for name, make in DELIMITED_DAMAGE.items()},
        "no number": lambda record: in_words(record, b",", lambda words: [*words[:10], b"soon", *words[11:]]),
        "no such status": lambda record: in_words(record, b",", lambda words: [*words[:13], b"Perhaps"]),
    },
    "alcf-djc": {
        **LINE_DAMAGE,
        **{name: make(b",") for name, make in DELIMITED_DAMAGE.items()},
        "no time": lambda record: in_words(record, b",", lambda words: [*words[:3], b"sometime", *words[4:]]),
        "no number": lambda record: in_words(record, b",", lambda words: [*words[:10], b"soon", *words[11:]]),
    },
    "supercloud": {
        **LINE_DAMAGE,
        "a column too many": lambda record: record + b",9",
        "half a line": lambda record: record[:30],
        "an open quote": lambda record: record.rstrip(b'"'),
        "no such state": lambda record: in_words(record, b",", lambda words: [*words[:5], b"77", *words[6:]]),
        "no number": lambda record: in_words(record, b",", lambda words: [*words[:7], b"soon", *words[8:]]),
    },
    "pbs": {
        **LINE_DAMAGE,
        "half a line": lambda record: record[:25],
        "no kind": lambda record: record.replace(b";E;", b";", 1),
        "no time": lambda record: record.replace(b"ctime=", b"ctime=x").replace(b"qtime=", b"qtime=x"),
        "an absurd number": lambda record: record.replace(b"Resource_List.ncpus=", b"Resource_List.ncpus=999999999999999999999"),
    },
    "sacct-json": JSON_DAMAGE
    | {
        "a wrong type": lambda record: record.replace(b'"submission": ', b'"submission": "x", "was": '),
        "no state": lambda record: record.replace(b'"current": [\n', b'"current": ["EXPLODED",\n'),
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
CASES = [(name, kind) for name, kinds in DAMAGE.items() for kind in kinds]


def test_every_format_is_tried():
    assert set(DAMAGE) == set(DOCUMENTS)


@pytest.mark.parametrize(("name", "kind"), CASES, ids=[f"{name}: {kind}" for name, kind in CASES])
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(jobs=job_lists(), data=st.data())
def test_damaged_records_are_refused_and_exactly_the_others_come_back(tmp_path, name, kind, jobs, data):
    jobs = [Job(job_id=10**9 + 1), *jobs]  # a file of nothing but damage is not of the format at all
    damaged = data.draw(st.sets(st.sampled_from(range(1, len(jobs)))), label="damaged")
    document = DOCUMENTS[name](jobs)
    for position in damaged:
        document.records[position] = DAMAGE[name][kind](document.records[position])
    path = document.write(tmp_path / f"log{document.suffix}")
    found, rejects, read, folded = read_all(open_source(str(path), name, ReadOptions()))
    good = {job.job_id: job for position, job in enumerate(jobs) if position not in damaged}
    assert sorted(found["job_id"]) == sorted(good)
    assert read == found.height + folded + rejects.height
    assert bool(damaged) == bool(rejects.height)
    for row in found.iter_rows(named=True):
        job = good[row["job_id"]]
        assert (row["submit_time"], row["start_time"], row["end_time"]) == (job.submit, job.start, job.end)
        assert row["state"] == job.state or name in ("condor-history", "condor-events", "pbs")
        numbered = name in ("swf", "lumos", "alcf-djc", "supercloud")
        assert row["user"] == (str(number_of(job.user)) if numbered else None if name == "condor-events" else job.user)


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
