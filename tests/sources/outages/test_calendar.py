import sys
from datetime import UTC, datetime, timedelta

import pytest

from stormpetrel.errors import MissingExtraError, SourceFormatError
from stormpetrel.ingest.events import ingest_outages
from stormpetrel.records.outages import OutageKind
from stormpetrel.sources.outages.files import incident_file
from tests.builders import make_site

NOW = datetime(2026, 11, 2, 10, tzinfo=UTC)
BERLIN = "DTSTART;TZID=Europe/Berlin:{}\nDTEND;TZID=Europe/Berlin:{}\n"


def event(uid, times, *more, summary="Maintenance"):
    return "\n".join(["BEGIN:VEVENT", f"UID:{uid}", times.strip(), f"SUMMARY:{summary}", *more, "END:VEVENT"])


def calendar(*events, more=""):
    lines = "\n".join(["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//test//", *([more] if more else []), *events, "END:VCALENDAR"])
    return lines.replace("\n", "\r\n") + "\r\n"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "plan.ics"


def read(path, text, *, start=None, end=None, **more):
    path.write_text(text, newline="")
    source = incident_file(path, **{"zone": "Europe/Berlin", "now": NOW, **more})
    return source.outages(start or source.span[0], end or source.span[1]), source.notes


def starts(outages):
    return [f"{one.start:%Y-%m-%d %H:%M}" for one in outages]


def test_a_monthly_maintenance_is_expanded_with_its_exceptions_and_summer_time(path):
    series = event("m", BERLIN.format("20260106T080000", "20260106T120000"), "RRULE:FREQ=MONTHLY;BYDAY=1TU;COUNT=6",
                   "EXDATE;TZID=Europe/Berlin:20260203T080000")  # fmt: skip
    moved = event("m", BERLIN.format("20260304T090000", "20260304T100000"), "RECURRENCE-ID;TZID=Europe/Berlin:20260303T080000")
    called_off = event("m", BERLIN.format("20260407T080000", "20260407T120000"), "STATUS:CANCELLED",
                       "RECURRENCE-ID;TZID=Europe/Berlin:20260407T080000")  # fmt: skip
    found, notes = read(path, calendar(series, moved, called_off))
    assert starts(found) == ["2026-01-06 07:00", "2026-03-04 08:00", "2026-05-05 06:00", "2026-06-02 06:00"]
    assert found[0].end - found[0].start == timedelta(hours=4) and found[1].end - found[1].start == timedelta(hours=1)
    assert len({one.uid for one in found}) == 4 and not notes


def test_a_rule_without_an_end_stops_a_year_ahead(path):
    found, _ = read(path, calendar(event("w", BERLIN.format("20100104T080000", "20100104T090000"), "RRULE:FREQ=WEEKLY")))
    assert NOW + timedelta(days=358) < found[-1].start <= NOW + timedelta(days=366)
    assert NOW - timedelta(days=3654) < found[0].start < NOW - timedelta(days=3645)


def test_days_and_times_without_a_zone_are_the_sites(path):
    days = event("d", "DTSTART;VALUE=DATE:20260701\nDTEND;VALUE=DATE:20260703")
    one_day = event("e", "DTSTART;VALUE=DATE:20260801")
    floating = event("f", "DTSTART:20260901T100000\nDURATION:PT90M")
    found, _ = read(path, calendar(days, one_day, floating))
    assert starts(found) == ["2026-06-30 22:00", "2026-07-31 22:00", "2026-09-01 08:00"]
    assert [one.end - one.start for one in found] == [timedelta(days=2), timedelta(days=1), timedelta(minutes=90)]


def test_categories_then_words_then_the_option_say_what_it_is(path):
    times = "DTSTART:2026090{}T100000Z\nDTEND:2026090{}T110000Z"
    text = calendar(
        event("1", times.format(1, 1), "CATEGORIES:Facility,Outage", summary="Maintenance"),
        event("2", times.format(2, 2), summary="unplanned downtime"),
        event("3", times.format(3, 3), summary="Team meeting"),
        event("4", times.format(4, 4), "STATUS:CANCELLED", summary="Outage"),
    )
    found, notes = read(path, text)
    assert [(one.uid, str(one.kind)) for one in found] == [("1", "outage"), ("2", "outage")]
    assert notes == [
        "1 entries say neither outage nor maintenance ('Team meeting') and were left out; --kind says what they are."
    ]
    found, notes = read(path, text, kind=OutageKind.MAINTENANCE)
    assert [(one.uid, str(one.kind)) for one in found][2:] == [("3", "maintenance")] and not notes


def test_damaged_entries_are_told_with_their_line_and_good_ones_are_kept(path):
    good = "DTSTART:20260901T100000Z\nDTEND:20260901T110000Z"
    text = calendar(
        event("bad", "DTSTART:soon"),
        event("none", "DTEND:20260901T110000Z"),
        event("zone", "DTSTART;TZID=Mars/Olympus:20260901T100000\nDTEND;TZID=Mars/Olympus:20260901T110000"),
        event("often", good, "RRULE:FREQ=SECONDLY"),
        event("many", good, f"RRULE:FREQ=DAILY;BYMINUTE={','.join(map(str, range(60)))}"),
        event("stuck", good, "RRULE:FREQ=DAILY;INTERVAL=0"),
        event("long", "DTSTART:20260101T000000Z\nDTEND:20260801T000000Z"),
        event("back", "DTSTART:20260901T110000Z\nDTEND:20260901T100000Z"),
        event("ancient", "DTSTART:01000101T000000Z\nDTEND:01000101T010000Z", "RRULE:FREQ=DAILY"),
        event("good", good),
    )
    found, notes = read(path, text)
    assert [one.uid for one in found] == ["good"]
    lines = [number for number, line in enumerate(text.splitlines(), start=1) if line == "BEGIN:VEVENT"]
    assert [int(note.split()[1].rstrip(":")) for note in notes] == lines[:9]


@pytest.mark.parametrize("text", ["BEGIN:VCALENDAR\nBEGIN:VEVENT\n", "hello", "BEGIN:VCALENDAR\nBEGIN:VEVENT\nEND:VCALENDAR\n"])
def test_a_file_that_is_no_calendar_is_one_sentence(path, text):
    with pytest.raises(SourceFormatError, match="is no calendar") as caught:
        read(path, text)
    assert len(str(caught.value)) < 500


def test_half_a_file_is_not_taken_for_the_whole(path):
    whole = calendar(event("a", "DTSTART:20260901T100000Z\nDTEND:20260901T110000Z"), event("b", "DTSTART:20260902T100000Z"))
    with pytest.raises(SourceFormatError, match="breaks off"):
        read(path, whole[: whole.index("END:VEVENT") + 12])


def test_reading_again_changes_nothing_and_a_moved_event_moves(path, tmp_path):
    def plan(hour):
        times = f"DTSTART:20260901T{hour}0000Z\nDTEND:20260901T220000Z"
        weekly = event("w", BERLIN.format("20260907T080000", "20260907T090000"), "RRULE:FREQ=WEEKLY;COUNT=3")
        return calendar(event("once", times), weekly)

    with make_site(tmp_path / "site") as site:

        def take(text):
            path.write_text(text)
            source = incident_file(path, zone="UTC", now=NOW)
            report = ingest_outages(site, source, start=source.span[0], end=source.span[1])
            return report.kept, report.known, report.changed

        assert take(plan("10")) == (4, 0, 0)
        assert take(plan("10")) == (0, 4, 0)
        assert take(plan("11")) == (0, 3, 1)


def test_without_the_extra_it_is_said_which_one_to_install(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "icalendar", None)
    with pytest.raises(MissingExtraError, match=r"stormpetrel\[calendar\]"):
        read(path, calendar())


def test_an_empty_calendar_says_nothing(path):
    assert read(path, calendar()) == ([], [])
