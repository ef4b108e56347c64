"""Downtime files as grids publish them: which are read, as what, and what is left out."""

from datetime import UTC, datetime

import pytest

from stormpetrel.sources.outages.files import incident_file

NOW = datetime(2026, 11, 2, 10, tzinfo=UTC)
TEXT = """\
# --------------------
- Class: SCHEDULED
  ID: 1005689
  Description: There will be a power outage in the machine room
    due to "electrical: maintenance".
  Severity: Outage
  StartTime: Jul 20, 2018 16:00 -0500
  EndTime: Jul 21, 2018 17:00 -0500
  ResourceName: CE_03
  Services:
    - CE
  CreatedTime: Jul 12, 2018 11:08 -0500
# --------------------

- Class: UNSCHEDULED
  ID: 2
  Description: 'Disk''s end'
  Severity: Severe
  StartTime: Sep 7, 2018 9:00 +0000  # seen by the shifter
  EndTime: Sep 08, 2018 15:00 UTC
  ResourceName: CE_04
  Services:
  - CE
"""


def read(tmp_path, text, name="grid_downtime.yaml"):
    path = tmp_path / name
    path.write_text(text)
    source = incident_file(path, zone="Europe/Berlin", now=NOW)
    return source.outages(*source.span), source.notes


@pytest.mark.parametrize("name", ["grid_downtime.yaml", "downtimes.txt"])
def test_scheduled_downtimes_are_maintenance_and_the_others_outages(tmp_path, name):
    (planned, broken), notes = read(tmp_path, TEXT, name)
    assert (planned.start, planned.end) == (datetime(2018, 7, 20, 21, tzinfo=UTC), datetime(2018, 7, 21, 22, tzinfo=UTC))
    assert (planned.kind, planned.uid) == ("maintenance", "1005689")
    assert planned.title == 'CE_03: There will be a power outage in the machine room due to "electrical: maintenance".'
    assert (broken.kind, broken.title) == ("outage", "CE_04: Disk's end")
    assert (broken.start, broken.end) == (datetime(2018, 9, 7, 9, tzinfo=UTC), datetime(2018, 9, 8, 15, tzinfo=UTC))
    assert not notes


def test_a_downtime_that_announces_no_outage_excuses_nothing(tmp_path):
    (left,), notes = read(tmp_path, TEXT.replace("Severity: Outage", "Severity: No Significant Outage Expected"))
    assert left.uid == "2" and "1 downtimes" in notes[0]


@pytest.mark.parametrize(
    ("old", "new"),
    [("Jul 20, 2018 16:00 -0500", "20 July"), ("EndTime: Jul 21, 2018 17:00 -0500", "x:"), ("Jul 21, 2018", "Jul 21, 2019")],
)
def test_a_bad_entry_is_told_with_its_line_and_the_others_are_kept(tmp_path, old, new):
    (left,), (note,) = read(tmp_path, TEXT.replace(old, new))
    assert left.uid == "2" and note.startswith("line 2: left out.")


@pytest.mark.realdata
@pytest.mark.parametrize(("name", "maintenance", "outages", "harmless"), [("GPGRID", 9, 2, 0), ("USCMS-FNAL-WC1", 103, 5, 4)])
def test_the_downtimes_of_two_real_grids_are_all_read(public_logs, name, maintenance, outages, harmless):
    source = incident_file(public_logs / f"events/{name}_downtime.yaml", zone="UTC", now=NOW)
    found = [str(one.kind) for one in source.outages(*source.span)]
    assert (found.count("maintenance"), found.count("outage")) == (maintenance, outages)
    assert len(source.notes) == bool(harmless) and all(note.startswith(f"{harmless} downtimes") for note in source.notes)
