import re
from pathlib import Path

import polars as pl
import pytest

import stormpetrel
from stormpetrel.records.spreadsheet import without_formulas

HOSTILE = ["=1+1", "+cmd|' /C calc'!A0", "-2+3+cmd|' /C calc'!A0", "@SUM(1)", "\t=1", "\r=1", "\n=1", "＝1", "＋1", "－1", "＠x"]


@pytest.mark.parametrize("text", HOSTILE)
def test_text_that_a_spreadsheet_would_run_is_marked_as_text(text):
    frame = pl.DataFrame({"queue": [text, None], text: ["a", "b"]})
    safe = without_formulas(frame)
    assert safe["queue"].to_list() == [f"'{text}", None]
    assert safe.columns == ["queue", f"'{text}"]


@pytest.mark.parametrize("text", ["-1", "+5", "-1.5e-3", ".5", "-.5", "normal", "a=b", "x@y", "", "'=1"])
def test_numbers_and_common_text_stay_as_they_are(text):
    frame = pl.DataFrame({"queue": [text]})
    assert without_formulas(frame).equals(frame)


def test_other_columns_are_not_touched_and_named_values_are():
    frame = pl.DataFrame({"cores": [-1], "load": [-0.5], "state": ["=1"]}, schema_overrides={"state": pl.Categorical})
    assert without_formulas(frame).rows() == [(-1, -0.5, "'=1")]


def test_every_csv_that_is_written_goes_through_it():
    """But for the one function that writes what its callers have prepared: CSV that did, and SWF, which is for programs."""
    writing = {
        f"{path.name}: {line.strip()}"
        for path in Path(stormpetrel.__file__).parent.rglob("*.py")
        for line in path.read_text("utf-8").splitlines()
        if re.search(r"\.write_csv\(|\.sink_csv\(|csv\.writer\(", line) and "without_formulas(" not in line
    }
    assert writing == {
        "files.py: frame.write_csv(buffer, include_header=header, separator=separator)",
        "shards.py: return hashlib.sha256(frame.write_csv().encode()).hexdigest()[:16]",  # a digest, no file
        'swf.py: out.write(table.write_csv(separator=" ", include_header=False).encode())',
    }
