"""The compiled scanner of event logs: equal to HTCondor's own reader, to our reader of jobs, and steady under damage."""

from __future__ import annotations

import gzip
import os
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import polars as pl
import pytest

from stormpetrel.records.events import EVENT_SCHEMA, PLACES
from stormpetrel.records.times import UTC_TIME
from stormpetrel.sources.htcondor import event_log
from stormpetrel.sources.htcondor.batches import _KIND_OF_CODE, EventBatch, _with_our_kinds
from stormpetrel.sources.htcondor.log_files import log_file
from stormpetrel.sources.htcondor.reference_reader import reference_batches
from stormpetrel.sources.htcondor.scan import PIECE_BYTES, TextScanner, year_of_first_date
from stormpetrel.sources.htcondor.scan_state import MOST_EVENT_BYTES
from stormpetrel.sources.lines import LineFile

RECORDINGS = Path(__file__).parents[2] / "recordings"
NOW = datetime(2026, 12, 1, tzinfo=UTC)
SUBMIT = "Job submitted from host: <10.0.0.1:9618?addrs=10.0.0.1-9618&alias=ap1&noUDP>"
EXECUTE = 'Job executing on host: <10.0.0.7:9618?alias=n7&x>\n\tSlotName: slot1_1@n7\n\tScratch = "/d"\n\tCpus = 8'
USAGE = "\n".join(
    f"\t\tUsr 0 00:00:01, Sys 0 00:00:00  -  {span} {place} Usage" for span in ("Run", "Total") for place in ("Remote", "Local")
)
SIGNAL = f"Job terminated.\n\t(0) Abnormal termination (signal 11)\n\t(0) No core file\n{USAGE}"
HELD = "Job was held.\n\tOver memory.\n\tCode 34 Subcode 0"
ERROR_HELD = "Job was held.\n\tError from slot1_2@n9: Failed to execute 'x@y': (errno=22)\n\tCode 6 Subcode 22"
SHADOW = "Shadow exception!\n\tError from starter on slot4@n8: no answer\n\t0  -  Run Bytes Sent By Job"
SHADOW += "\n\t0  -  Run Bytes Received By Job"
REMOTE = "Error from starter on slot1@n8:\n\tFailed to open the output file\n\tCode 13 Subcode 2"
EVICTED = f"Job was evicted.\n\t(0) CPU times\n{USAGE}\n\t0  -  Run Bytes Sent By Job\n\t0  -  Run Bytes Received By Job"


def events_of(batch: EventBatch) -> pl.DataFrame:
    """A batch as raw events (EVENT_SCHEMA); a failed end is two or three of them."""
    rows, codes = _with_our_kinds(batch)
    names = pl.Series([name or None for name in batch.names] + [None], dtype=pl.String)  # the last one is for -1
    return pl.DataFrame(
        {
            "time": pl.Series(batch.time_us[rows]).cast(UTC_TIME),
            "kind": _KIND_OF_CODE.gather(codes),
            **{name: names.gather(batch.places[rows, place] % len(names)) for place, name in enumerate(PLACES)},
        },
        schema=EVENT_SCHEMA,
    )


def ended(value: int = 0) -> str:
    return f"Job terminated.\n\t(1) Normal termination (return value {value})\n{USAGE}"


def event(number: int, text: str, at: str = "2026-03-04 08:00:00", job: str = "007.000.000") -> str:
    return f"{number:03} ({job}) {at} {text}\n...\n"


def ad(trigger: int, at: str = "2026-03-04 08:00:00", job: str = "007.000.000", **attributes: object) -> str:
    lines = [f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}" for name, value in attributes.items()]
    lines += [f'TriggerEventTypeName = "ULOG_{trigger}"', f"TriggerEventTypeNumber = {trigger}"]
    return event(28, "Job ad information event triggered.\n" + "\n".join(lines), at, job)


def scan(
    text: str | bytes, *, zone: str = "UTC", year: int = 2026, cut: int = PIECE_BYTES, host: str = ""
) -> tuple[pl.DataFrame, Counter[str]]:
    scanner = TextScanner(time_zone=zone, fast_failure_s=60, now=NOW, submit_host=host)
    scanner.begin_file(year=year)
    raw = text.encode() if isinstance(text, str) else text
    frames, aside = [pl.DataFrame(schema=EVENT_SCHEMA)], Counter[str]()
    for at in range(0, max(1, len(raw)), cut):
        batch = scanner.feed(raw[at : at + cut])
        frames += [events_of(batch)] if batch.number.size else []
        aside.update(batch.quarantined)
    return pl.concat(frames), aside


def kinds(text: str | bytes, **options: int) -> list[str]:
    return scan(text, **options)[0]["kind"].to_list()  # type: ignore[arg-type]


def theirs(path: Path) -> pl.DataFrame:
    pytest.importorskip("htcondor2")
    file = log_file(path, time_zone="UTC", now=NOW)
    assert file
    found: list[EventBatch] = [
        batch for batch, _, _ in reference_batches(file, 0, time_zone="UTC", year=None, now=NOW, fast_failure_s=60)
    ]
    return pl.concat([events_of(batch) for batch in found])


@pytest.mark.parametrize("name", ["condor-eventlog-23.9.log.gz", "condor-userlog-23.9.log.gz"])
def test_recorded_log_gives_what_htcondors_own_reader_gives(name: str) -> None:
    raw = gzip.decompress((RECORDINGS / name).read_bytes())
    ours, aside = scan(raw)
    assert ours.equals(theirs(RECORDINGS / name)) and not aside
    assert ours.height > 150


@pytest.mark.parametrize("cut", [17, 1000])
def test_pieces_may_be_cut_anywhere(cut: int) -> None:
    raw = gzip.decompress((RECORDINGS / "condor-eventlog-23.9.log.gz").read_bytes())
    raw = raw[: 500 * cut]
    names = ["time", "kind", "node"]  # the submit host may come with an 028 in a later piece, when its event has been told
    assert scan(raw, cut=cut)[0].select(names).sort(names).equals(scan(raw)[0].select(names).sort(names))


def test_both_recordings_of_the_same_jobs_have_the_same_counts() -> None:
    both = [
        scan(gzip.decompress((RECORDINGS / f"condor-{name}-23.9.log.gz").read_bytes()))[0] for name in ("eventlog", "userlog")
    ]
    assert both[0]["kind"].value_counts().sort("kind").equals(both[1]["kind"].value_counts().sort("kind"))


@pytest.mark.parametrize(
    "log",
    [
        event(0, SUBMIT) + event(1, EXECUTE) + event(5, SIGNAL),
        event(0, SUBMIT) + event(1, EXECUTE) + event(4, EVICTED) + event(1, EXECUTE) + event(5, ended(1)),
        event(0, SUBMIT) + ad(0, AcctGroup="nova") + event(1, EXECUTE) + ad(1, GLIDEIN_Site="FNAL") + event(5, ended()) + ad(5),
        event(0, SUBMIT) + event(12, HELD) + event(13, "Job was released.\n\tvia condor_release"),
        event(0, SUBMIT) + event(12, ERROR_HELD) + event(13, "Job was released.\n\tvia condor_release"),
        event(7, SHADOW) + event(21, REMOTE) + event(12, ERROR_HELD),
        event(0, SUBMIT) + event(1, EXECUTE) + event(7, SHADOW) + event(7, SHADOW),
    ],
)  # fmt: skip
def test_made_log_gives_what_htcondors_own_reader_gives(tmp_path: Path, log: str) -> None:
    path = tmp_path / "made.log"
    path.write_text(log)
    assert scan(log)[0].equals(theirs(path))


def test_event_028_that_repeats_another_counts_once_and_one_that_stands_alone_counts_too() -> None:
    assert kinds(event(0, SUBMIT) + ad(0)) == ["Submit"]
    assert kinds(ad(0)) == ["Submit"]
    assert kinds(event(6, "Image size") + ad(6) + event(6, "Image size") + ad(6)) == ["JobImageSize"] * 2
    assert kinds(event(28, "Job ad information event triggered.")) == ["JobAdInformation"]


def test_places_of_an_028_go_to_the_event_that_it_repeats_and_stay_with_the_job() -> None:
    log = (
        event(0, SUBMIT)
        + ad(0, Jobsub_Group="nova")
        + event(1, EXECUTE)
        + ad(1, MachineAttrGLIDEIN_Site0="FNAL")
        + event(5, ended())
    )
    rows = scan(log)[0].to_dicts()
    assert [(row["site"], row["group"], row["submit_host"], row["node"]) for row in rows] == [
        (None, "nova", "ap1", None),
        ("FNAL", "nova", "ap1", "n7"),
        ("FNAL", "nova", "ap1", "n7"),
    ]


def test_failure_is_told_beside_the_end_and_a_fast_one_once_more() -> None:
    start, soon, late = (f"2026-03-04 08:{minute}:00" for minute in ("00", "01", "02"))
    begun = event(0, SUBMIT, start) + event(1, EXECUTE, start)
    assert kinds(begun + event(5, SIGNAL, soon))[2:] == ["JobTerminated", "JobFailed", "JobFailedFast"]
    assert kinds(begun + event(5, ended(3), late))[2:] == ["JobTerminated", "JobFailed"]
    assert kinds(begun + event(5, ended(0), soon))[2:] == ["JobTerminated"]
    assert kinds(event(5, ended(3), soon)) == ["JobTerminated", "JobFailed"]  # its start was never seen


def test_a_hold_or_error_is_placed_on_the_host_that_its_text_names_and_nothing_after_it_is() -> None:
    log = event(12, ERROR_HELD) + event(13, "Job was released.") + event(7, SHADOW) + event(21, REMOTE) + event(6, "Image size")
    assert scan(log)[0]["node"].to_list() == ["n9", None, "n8", "n8", None]


def test_the_host_of_a_job_that_is_known_to_run_goes_before_the_one_in_the_text() -> None:
    assert scan(event(1, EXECUTE) + event(12, ERROR_HELD))[0]["node"].to_list() == ["n7", "n7"]


@pytest.mark.parametrize(
    "words", ["Error from n9: away", "Error from slot1@n9", "Error from slot1@n 9: away", "An Error from a@n9: x"]
)
def test_what_names_no_slot_names_no_host(words: str) -> None:
    assert scan(event(12, f"Job was held.\n\t{words}\n\tCode 1 Subcode 0"))[0]["node"].to_list() == [None]


def test_every_hold_of_a_recorded_log_that_names_a_slot_has_its_host() -> None:
    rows = scan(gzip.decompress((RECORDINGS / "condor-eventlog-23.9.log.gz").read_bytes()))[0]
    assert sorted(rows.filter(pl.col("kind") == "JobHeld")["node"].fill_null("")) == ["", *["vm"] * 13]  # one by condor_hold


def test_node_of_an_end_is_that_of_its_start_and_nobodys_after_it() -> None:
    log = event(0, SUBMIT) + event(1, EXECUTE) + event(12, HELD) + event(13, "Job was released.")
    assert scan(log)[0]["node"].to_list() == [None, "n7", "n7", None]


def test_kind_never_seen_is_kept_under_its_number() -> None:
    assert kinds(event(99, "Something new\n\twith a body")) == ["Event099"]


def test_submit_host_that_no_event_tells_is_the_one_given() -> None:
    assert scan(event(5, ended()), host="ap9")[0]["submit_host"].to_list() == ["ap9"]


@pytest.mark.parametrize(
    ("written", "zone", "expected"),
    [
        ("2026-03-04 08:00:00", "UTC", "2026-03-04T08:00:00+00:00"),
        ("2026-03-04 08:00:00.250", "UTC", "2026-03-04T08:00:00.250000+00:00"),
        ("2026-03-04T08:00:00+01:00", "UTC", "2026-03-04T07:00:00+00:00"),
        ("2026-03-04T08:00:00.5-0600", "Europe/Berlin", "2026-03-04T14:00:00.500000+00:00"),
        ("2026-03-04T08:00:00Z", "Europe/Berlin", "2026-03-04T08:00:00+00:00"),
        ("03/04 08:00:00", "UTC", "2026-03-04T08:00:00+00:00"),
        ("2026-07-04 08:00:00", "Europe/Berlin", "2026-07-04T06:00:00+00:00"),
        ("2026-03-29 02:30:00", "Europe/Berlin", "2026-03-29T01:30:00+00:00"),  # an hour that is not there
        ("2025-10-26 02:30:00", "Europe/Berlin", "2025-10-26T00:30:00+00:00"),  # one that is there twice: its first pass
        ("2024-02-29 00:00:00", "UTC", "2024-02-29T00:00:00+00:00"),
    ],
)
def test_time_is_read_in_every_style(written: str, zone: str, expected: str) -> None:
    found = scan(event(0, SUBMIT, written), zone=zone)[0]["time"].to_list()
    assert found == [datetime.fromisoformat(expected)]


@pytest.mark.parametrize(
    "dates",
    [
        ["12/30", "12/31", "01/01", "12/31", "01/02"],  # over new year, with a writer that is late
        ["03/01", "11/30", "02/03", "07/01"],
        ["02/28", "03/01"],
    ],
)
def test_years_are_restored_as_for_jobs(tmp_path: Path, dates: list[str]) -> None:
    log = "".join(event(0, SUBMIT, f"{date} 08:00:00", f"{place:03}.000.000") for place, date in enumerate(dates))
    path = tmp_path / "legacy.log"
    path.write_text(log)
    os.utime(path, (NOW.timestamp(), datetime(2026, 8, 1, tzinfo=UTC).timestamp()))
    file = LineFile(path)
    jobs = [found.time for found, _ in event_log.events_in(file, zone=ZoneInfo("UTC")) if not isinstance(found, tuple)]
    year = year_of_first_date([log.encode()], as_of=file.as_of, time_zone="UTC")
    assert scan(log, year=year)[0]["time"].to_list() == jobs


GOOD = event(0, SUBMIT, job="001.000.000")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("hello\n...\n", "bad_record"),
        ("000 (001.000.000) 2026-03-04 08:00:00x text\n...\n", "bad_record"),
        (event(0, SUBMIT, "2026-02-30 08:00:00"), "bad_time"),
        (event(0, SUBMIT, "2026-03-04 24:00:00"), "bad_time"),
        (event(0, SUBMIT, "1969-03-04 08:00:00"), "bad_time"),
        (event(0, SUBMIT, "2031-03-04 08:00:00"), "future"),
        (event(0, SUBMIT).replace("...\n", ""), "truncated_record"),
        ("\0" * 100 + "\n...\n", "bad_record"),
        (event(12, "Job was held.\n\ta\0b"), "nul_byte"),
        (event(12, "Job was held.\n" + "x" * MOST_EVENT_BYTES), "record_too_long"),
        (event(12, "Job was held.\n" + "line\n" * (MOST_EVENT_BYTES // 4)), "record_too_long"),
    ],
)
@pytest.mark.parametrize("cut", [1 << 20, PIECE_BYTES])
def test_damaged_event_is_set_aside_and_its_neighbours_count(damage: str, reason: str, cut: int) -> None:
    found, aside = scan(GOOD + damage + event(0, SUBMIT, job="002.000.000"), cut=cut)
    assert (found.height, dict(aside)) == (2, {reason: 1})


def test_text_in_another_encoding_does_no_harm() -> None:
    held = event(12, "Job was held.\n\tr\u00e9ason\n\tCode 1 Subcode 0").encode("latin-1")
    execute = event(1, EXECUTE.replace("@n7", "@n\u00e9")).encode("latin-1")
    assert kinds(held) == ["JobHeld"]
    assert scan(execute)[0]["node"].to_list() == ["n\\xe9"]


def test_windows_line_ends_and_blank_lines_are_taken() -> None:
    log = (event(0, SUBMIT) + "\n\n" + event(1, EXECUTE) + event(5, ended(2))).replace("\n", "\r\n")
    found, aside = scan(log)
    assert found["kind"].to_list() == ["Submit", "Execute", "JobTerminated", "JobFailed", "JobFailedFast"] and not aside
    assert found["submit_host"].unique().to_list() == ["ap1"]


def test_last_event_waits_until_it_is_whole() -> None:
    scanner = TextScanner(time_zone="UTC", fast_failure_s=60, now=NOW)
    raw = (event(0, SUBMIT) + event(1, EXECUTE)).encode()
    assert scanner.feed(raw[:-5]).number.tolist() == [0]
    assert scanner.position == len(event(0, SUBMIT)) and scanner.waiting_bytes
    assert scanner.feed(raw[-5:]).number.tolist() == [1]
    assert scanner.position == len(raw) and not scanner.waiting_bytes


def test_more_names_than_fit_are_forgotten_except_those_of_jobs_that_run() -> None:
    scanner = TextScanner(time_zone="UTC", fast_failure_s=60, now=NOW)
    scanner.feed((event(0, SUBMIT) + event(1, EXECUTE)).encode())
    other = EXECUTE.replace("@n7", "@n{}")
    gone = event(7, "Shadow exception!", job="008.000.000")
    for first in range(0, 50_000, 10_000):
        log = "".join(event(1, other.format(node), job="008.000.000") + gone for node in range(first, first + 10_000))
        batch = scanner.feed(log.encode())
        assert batch.names[batch.places[-1, 3]] == f"n{first + 9999}"
    assert len(batch.names) < 40_000
    batch = scanner.feed(event(5, ended(1)).encode())
    assert events_of(batch)["node"].unique().to_list() == ["n7"]


def test_running_jobs_beyond_the_table_cost_a_pairing_and_nothing_else() -> None:
    scanner = TextScanner(time_zone="UTC", fast_failure_s=60, now=NOW, most_jobs=16)
    begun = "".join(
        event(1, EXECUTE, (NOW - timedelta(seconds=90 - place)).isoformat(), f"{place:03}.000.000") for place in range(40)
    )
    scanner.feed(begun.encode())
    ends = "".join(event(5, ended(1), NOW.isoformat(), f"{place:03}.000.000") for place in range(40))
    batch = scanner.feed(ends.encode())
    assert batch.number.size == 40 and bool((batch.mark & 1).all())
