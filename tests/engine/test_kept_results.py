"""Kept results: a second run skips what is there, damage counts as not there, and other settings are another run."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import pytest

from stormpetrel.engine import Engine, KeptResults, Progress
from stormpetrel.engine.codecs import FilesCodec, JsonCodec
from stormpetrel.errors import EngineError, ModelError
from stormpetrel.private_files import PRIVATE

WORKED: Counter[int] = Counter()


@dataclass(frozen=True)
class Figures:
    name: str
    values: tuple[float, ...]
    by_kind: dict[str, float | None]


def counted(item: int, _progress: Progress) -> Figures:
    WORKED[item] += 1
    if item == 5 and WORKED[item] == 1:
        raise ModelError("It was killed here.")
    return Figures(f"n {item}", (item / 3, math.nan, -math.inf), {"odd": None, "root": math.sqrt(item)})


@pytest.fixture
def kept(tmp_path):
    WORKED.clear()
    return KeptResults(tmp_path / "kept", {"study": "counted", "settings": [1, 2]}, JsonCodec(Figures))


def as_text(results) -> list[str]:
    return [repr(result) for result in results]  # NaN is not equal to itself


def test_a_second_run_works_only_on_what_the_first_did_not_finish(kept):
    with pytest.raises(ModelError):
        list(Engine(1).map(counted, range(10), kept=kept))
    assert sorted(WORKED) == [0, 1, 2, 3, 4, 5]
    results = as_text(Engine(1).map(counted, range(10), kept=kept))
    assert Counter([*range(10), 5]) == WORKED
    assert results == as_text(Engine(1).map(counted, range(10)))


@pytest.mark.parametrize("workers", [1, 2])
def test_kept_and_new_results_come_in_the_order_of_the_items(kept, workers):
    WORKED[5] = 1
    list(Engine(1).map(counted, [7, 2, 3], kept=kept))
    results = Engine(workers).map(plain, range(9), kept=kept)
    assert [result.name for result in results] == [f"n {n}" for n in range(9)]


def plain(item: int, _progress: Progress) -> Figures:
    return Figures(f"n {item}", (), {})


def test_the_share_grows_over_what_was_kept_too(kept):
    told: list[float] = []
    list(Engine(1).map(plain, range(4), kept=kept))
    list(Engine(1).map(plain, range(8), kept=kept, progress=lambda share, _text: told.append(share)))
    assert told == sorted(told) and told[-1] == 1.0


def test_other_settings_are_another_run(kept):
    list(Engine(1).map(plain, range(3), kept=kept))
    other = KeptResults(kept.folder, {"study": "counted", "settings": [1, 3]}, kept.codec)
    assert kept.has("2") and not other.has("2")


def test_a_result_that_is_damaged_is_made_again_and_none_is_ever_half_there(kept):
    list(Engine(1).map(plain, range(2), kept=kept))
    files = sorted(kept.folder.iterdir())
    assert len(files) == 2 and all(file.stat().st_mode & 0o777 == PRIVATE for file in files)
    files[0].write_bytes(files[0].read_bytes()[:-3])
    files[1].write_bytes(b"\x80\x04K\x01.")  # a pickle: it is not even looked into
    WORKED[5] = 1
    assert len(list(Engine(1).map(counted, range(2), kept=kept))) == 2 and Counter([0, 1, 5]) == WORKED


def test_two_items_of_one_name_cannot_be_kept_apart(kept):
    with pytest.raises(EngineError, match="Two items are called 'same'"):
        list(Engine(1).map(plain, range(2), name=lambda _: "same", kept=kept))


def test_files_come_back_byte_by_byte_and_no_name_leads_out_of_their_folder():
    files = {"weights.bin": bytes(range(256)), "empty": b""}
    assert FilesCodec().decode(FilesCodec().encode(files)) == files
    for name in ("../outside", "/etc/passwd", "..", "", "a\0b"):
        with pytest.raises(ValueError, match="leads out"):
            FilesCodec().decode(FilesCodec().encode({name: b"x"}))
    for content in (b"[]", b'{"a": 1}', b'{"a": "%"}', b"no JSON"):
        with pytest.raises(ValueError):
            FilesCodec().decode(content)
