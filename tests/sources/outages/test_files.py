from datetime import UTC, datetime, timedelta

import pytest

from stormpetrel.errors import SourceError, SourceFormatError
from stormpetrel.ingest.events import ingest_outages
from stormpetrel.records.outages import OutageKind
from stormpetrel.sources.outages import files as incident_files
from stormpetrel.sources.outages.entries import kind_in
from stormpetrel.sources.outages.files import incident_file
from tests.builders import make_site

NOW = datetime(2026, 11, 2, 10, tzinfo=UTC)
HEADER = "start,end,kind,title\n"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "incidents.csv"


def read(path, text, **more):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    source = incident_file(path, **{"zone": "Europe/Berlin", "now": NOW, **more})
    return source.outages(*source.span), source.notes


def spans(outages):
    return [(f"{one.start:%m-%d %H:%M}", f"{one.end:%m-%d %H:%M}" if one.end else None, str(one.kind)) for one in outages]


def test_times_without_a_zone_are_the_sites_and_an_offset_is_believed(path):
    text = HEADER + "2026-01-31 14:00,2026-01-31 16:00,outage,a\n2026-07-31T14:00+00:00,2026-07-31T15:00Z,maintenance,b\n"
    found, notes = read(path, text)
    assert spans(found) == [("01-31 13:00", "01-31 15:00", "outage"), ("07-31 14:00", "07-31 15:00", "maintenance")]
    assert found[0].source == "file:incidents.csv" and not notes


@pytest.mark.parametrize(
    "text",
    [
        "From;To;Type;Summary\r\n31.01.2026 14:00;31.01.2026 16:00;Störung;Lustre\r\n",
        "begin\tduration\tdescription\n2026-01-31T13:00:00Z\t2h\tLustre\n",
        "Ticket,Start Time,End Time,Subject\nINC-7,1769864400,1769871600000,Lustre\n",
        '\ufeffstart,end,title\n"2026-01-31 14:00",120m,Lustre\n',
    ],
)
def test_the_usual_names_delimiters_and_times_are_understood(path, text):
    found, notes = read(path, text)
    assert spans(found) == [("01-31 13:00", "01-31 15:00", "outage")] and not notes
    assert found[0].title == "Lustre"


def test_bad_rows_are_told_with_their_line_and_good_ones_are_kept(path):
    rows = [
        "2026-01-31 14:00,3h,outage,good",
        "yesterday,3h,outage,a",
        "2026-01-31 14:00,2026-01-31 13:00,outage,b",
        "2026-01-31 14:00,2026-06-30,outage,c",
        "2031-01-31,3h,maintenance,d",
        "01/31/2026 14:00,3h,outage,e",
        "",
        "2026-03-01 14:00,,maintenance,f",
        "2026-01-01,,outage,g",
        '2026-02-01,1h,outage,"two',
        'lines"',
    ]
    found, notes = read(path, HEADER + "\n".join(rows))
    assert [one.title for one in found] == ["good", "two\nlines"]
    said = {note.partition(":")[0]: note for note in notes}
    assert list(said) == [f"line {number}" for number in (3, 4, 5, 6, 7, 9, 10)]
    assert "'yesterday' is not a time" in said["line 3"] and "before the start" in said["line 4"]
    assert "149 days" in said["line 5"] and "more than a year away" in said["line 6"]


def test_a_long_list_of_bad_rows_is_cut(path):
    _, notes = read(path, HEADER + "x,y,outage,z\n" * 50)
    assert len(notes) == 21 and notes[-1] == "30 more entries were left out."


def test_an_outage_without_an_end_lasts(path):
    found, _ = read(path, HEADER + "2026-11-02 08:00,,outage,a\n")
    assert spans(found) == [("11-02 07:00", None, "outage")]


def test_reading_again_changes_nothing_and_what_is_gone_is_gone(path, tmp_path):
    with make_site(tmp_path / "site") as site:

        def take(text):
            path.write_text(HEADER + text)
            source = incident_file(path, zone="UTC", now=NOW)
            report = ingest_outages(site, source, start=source.span[0], end=source.span[1])
            return report.kept, report.known, report.changed

        first = "2026-01-31 14:00,3h,outage,a\n2026-02-01 14:00,3h,maintenance,b\n"
        assert take(first) == (2, 0, 0)
        assert take(first) == (0, 2, 0)
        assert take("2026-01-31 14:00,5h,outage,a\n") == (0, 0, 2)
        (one,) = site.outages.list()
        assert one.end - one.start == timedelta(hours=5)


def test_an_id_names_a_row_whatever_else_changes(path):
    rows = "id,start,end\n7,2026-01-31 14:00,3h\n8,2026-01-31 14:00,3h\n7,2026-01-31 15:00,3h\n"
    found, notes = read(path, rows)
    assert [(one.uid, one.start.hour) for one in found] == [("7", 14), ("8", 13)]
    assert notes == ["line 2: left out. Line 4 says the same otherwise, and is the one that counts."]


def test_a_kind_that_says_nothing_is_counted_and_decided_by_the_option(path):
    rows = HEADER + "2026-01-31,3h,P1,a\n2026-02-01,3h,P2,reboot of all nodes\n2026-02-02,3h,false alarm,\n2026-02-03,3h,,b\n"
    found, notes = read(path, rows)
    assert [str(one.kind) for one in found] == ["outage", "maintenance", "normal", "outage"]
    assert "2 rows are of a kind that says neither" in notes[0] and "P1, P2" in notes[0]
    found, _ = read(path, rows, kind=OutageKind.MAINTENANCE)
    assert [str(one.kind) for one in found] == ["maintenance", "maintenance", "normal", "maintenance"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("\n \n", "is empty"),
        ("when,what\n1,2\n", "no column 'start'. Found: when, what."),
        (b"\x00\x01\x02", "is not text"),
        (HEADER + '"' + "x" * 200_000, "is no CSV from line"),
    ],
)
def test_a_file_that_is_none_is_one_sentence(path, text, words):
    with pytest.raises(SourceFormatError) as caught:
        read(path, text)
    assert words in str(caught.value) and caught.value.hint


def test_a_file_that_is_too_long_or_not_there_is_one_sentence(path, monkeypatch):
    with pytest.raises(SourceError, match="cannot be read"):
        incident_file(path, zone="UTC", now=NOW)
    monkeypatch.setattr(incident_files, "_MOST_BYTES", 10)
    with pytest.raises(SourceFormatError, match="larger than"):
        read(path, HEADER)


def test_windows_text_is_read_and_said(path):
    found, notes = read(path, HEADER.encode() + b"2026-01-31,3h,outage,K\xfchlung\n")
    assert found[0].title == "Kühlung" and "not in UTF-8" in notes[0]


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("Unplanned downtime", OutageKind.OUTAGE),
        ("Scheduled downtime", OutageKind.MAINTENANCE),
        ("storage DOWN", OutageKind.OUTAGE),
        ("Wartung", OutageKind.MAINTENANCE),
        ("dispatcher meeting", None),
        ("abnormal", None),
    ],
)
def test_words_say_what_a_span_is(words, kind):
    assert kind_in(words) is kind
