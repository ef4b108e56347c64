"""condor_history read by columns: the same rows, refusals and counts as one record at a time, whatever stands in the file."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import polars as pl
import pytest

from stormpetrel.sources.htcondor import history
from stormpetrel.sources.htcondor.history import CondorHistory
from stormpetrel.sources.htcondor.history_columns import WANTED

RECORDED = json.loads(gzip.decompress(Path("tests/recordings/condor-history-23.9.json.gz").read_bytes()))
ODD = [
    None, True, False, 0, -1, 1, 5, 2**31, 2**53 + 1, 10**17, 10**19, -(10**25), 1.5, -0.0, 1e300, 0.1 + 0.2, 1794733831,
    1794733831.5, "", "7", "x y", "None", "undefined", "é", "\ud800", "a\\b\"c", "slot1@n7", "group.ada",
    "condor_rm (by user ada)", "job exceeded memory limit", [], {}, [1], {"a": 1},
]  # fmt: skip
DAMAGE = [b"", b"}", b"{", b"]", b'"', b"\\", b"\0", b"\xff", b",", b"NaN", b"\xef\xbf\xbd"]
SHORT = [
    "",
    "[]",
    "{}",
    "[1, 2]",
    '[{"ClusterId": 1}]',
    '{"ClusterId": 1}\n{"ClusterId": 2}',
    "[{}",
    '[{"ClusterId": 01}]',
    "[{},]",
]


def read(path: Path, monkeypatch: pytest.MonkeyPatch, *, by_columns: bool, cluster: str = ""):
    monkeypatch.setattr(history, "BY_COLUMNS_BYTES", 0 if by_columns else 2**62)
    chunks = list(CondorHistory(path, cluster=cluster).chunks())
    jobs = pl.concat([chunk.records for chunk in chunks]).drop("record")
    return jobs, pl.concat([chunk.rejects for chunk in chunks]), sum(chunk.read for chunk in chunks)


def without_places(refused: pl.DataFrame) -> pl.DataFrame:
    """Refusals without the place that a decoder names: it counts from where its window begins."""
    return refused.with_columns(pl.col("reason").str.replace(r" line \d+ column \d+ \(char \d+\)", ""))


def differences(path: Path, monkeypatch: pytest.MonkeyPatch, **options: str) -> list[str]:
    (rows, refused, count), (columns, other_refused, other_count) = (
        read(path, monkeypatch, by_columns=by_columns, **options) for by_columns in (False, True)
    )
    if rows.height != columns.height:
        return [f"{rows.height} rows, {columns.height} by columns"]
    odd = [name for name in rows.columns if not rows[name].equals(columns[name], check_dtypes=True)]
    if not without_places(refused).equals(without_places(other_refused)):
        odd.append("refused")
    return odd if count == other_count else [*odd, "read"]


def changed(chance: random.Random) -> dict[str, object]:
    """A recorded ClassAd with a few attributes changed, dropped, added, or written in other letters."""
    ad = dict(chance.choice(RECORDED))
    for _ in range(chance.randint(0, 4)):
        name = chance.choice([*list(WANTED.at)[1:], "Unknown"])
        old = next((known for known in ad if known.lower() == name.lower()), name)
        match chance.randint(0, 3):
            case 0:
                ad.pop(old, None)
            case 1:
                ad[name.upper()] = ad.pop(old, 1)
            case _:
                ad[old] = chance.choice(ODD)
    return ad


@pytest.mark.parametrize("layout", [{"indent": 1}, {"separators": (",", ":")}, {"ensure_ascii": False, "indent": 0}])
def test_changed_records_are_the_same_read_by_columns(tmp_path, monkeypatch, layout):
    chance, failed = random.Random(7), {}
    for number in range(8):
        ads = [
            {key: value for key, value in changed(chance).items() if layout.get("ensure_ascii", True) or value != "\ud800"}
            for _ in range(40)
        ]
        (tmp_path / "history.json").write_text(json.dumps(ads, **layout), encoding="utf-8")
        if odd := differences(tmp_path / "history.json", monkeypatch, cluster=chance.choice(["", "pool"])):
            failed[number] = odd
    assert failed == {}


def test_damaged_files_are_the_same_read_by_columns(tmp_path, monkeypatch):
    chance, failed = random.Random(3), {}
    whole = json.dumps([changed(chance) for _ in range(30)], indent=1).encode()
    for number in range(30):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(data))
            data[at : at + chance.randint(0, 3)] = chance.choice(
                [b"", b"}", b"{", b"]", b'"', b"\\", b"\0", b"\xff", b",", b"NaN", b"\xef\xbf\xbd"]
            )
        (tmp_path / "history.json").write_bytes(bytes(data)[: chance.choice([len(data), chance.randrange(len(data))])])
        if odd := differences(tmp_path / "history.json", monkeypatch):
            failed[number] = odd
    assert failed == {}


@pytest.mark.parametrize("text", SHORT)
def test_short_files_are_the_same_read_by_columns(tmp_path, monkeypatch, text):
    (tmp_path / "history.json").write_text(text)
    assert differences(tmp_path / "history.json", monkeypatch) == []


def test_a_large_file_is_read_by_columns(tmp_path):
    ads = [{**ad, "Padding": "x" * 100_000} for ad in RECORDED] * 10
    (tmp_path / "history.json").write_text(json.dumps(ads))
    assert (tmp_path / "history.json").stat().st_size >= history.BY_COLUMNS_BYTES
    assert sum(chunk.records.height for chunk in CondorHistory(tmp_path / "history.json").chunks()) == len(ads)
