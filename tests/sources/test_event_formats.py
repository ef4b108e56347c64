import polars as pl
import pytest

from stormpetrel.config import Settings
from stormpetrel.errors import SourceFormatError, UsageError
from stormpetrel.sources.formats import event_file, sniff_event_format


@pytest.mark.parametrize(
    ("text", "format_name"),
    [
        ("000 (101.000.000) 2024-03-31 12:10:00 Job submitted from host: <10.0.0.1>\n...\n", "condor-events"),
        ("...\n000 (101.000.000) 03/31 12:10:00 Job submitted\n...\n", "condor-events"),
        ('<?xml version="1.0"?>\n<c><a n="MyType">', "condor-events"),
        ("time,Submit,Execute\n2024-03-31 12:00,5,6\n", "counts"),
        ("time,kind,count\n2024-03-31 12:00,Submit,6\n", "counts"),
        ("time;kind;site\n2024-03-31 12:00;Submit;FNAL\n", "events"),
        ('\ufeff"EventTime","MyType"\n', "events"),
        ('{"EventTime": "2024-03-31T12:00:00", "MyType": "SubmitEvent"}\n', "events"),
        ('[\n {"time": "2024-03-31T12:00:00", "kind": "Submit", "count": 4}\n]\n', "counts"),
    ],
)
def test_the_format_of_a_file_is_found_out_by_its_beginning(tmp_path, text, format_name):
    (tmp_path / "file").write_text(text)
    assert sniff_event_format(tmp_path / "file") == format_name


def test_the_format_of_a_parquet_file_is_found_out_by_its_columns(tmp_path):
    pl.DataFrame({"time": [1], "kind": ["Submit"]}).write_parquet(tmp_path / "a.parquet")
    pl.DataFrame({"time": [1], "Submit": [4]}).write_parquet(tmp_path / "b.parquet")
    assert sniff_event_format(tmp_path / "a.parquet") == "events"
    assert sniff_event_format(tmp_path / "b.parquet") == "counts"


def test_a_file_that_is_none_of_them_is_one_clear_sentence(tmp_path):
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "words").write_text("hello\n")
    (tmp_path / "torn.parquet").write_bytes(b"PAR1")
    for name, complaint in (
        ("empty", "is empty"),
        ("words", "--format"),
        ("torn.parquet", "no Parquet"),
        ("no.parquet", "no file"),
    ):
        with pytest.raises(SourceFormatError, match=complaint):
            sniff_event_format(tmp_path / name)


def test_a_format_that_nobody_knows_is_answered_with_the_known_ones(tmp_path):
    with pytest.raises(UsageError, match=r"Did you mean 'counts'.*condor-events, slurmctld, events, counts"):
        event_file(tmp_path / "x", "count", Settings())
