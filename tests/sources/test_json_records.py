import json
import time

import pytest

from stormpetrel.sources.json_records import records_in
from stormpetrel.sources.lines import LineFile


def read(path, key=None):
    found = list(records_in(LineFile(path), key=key, is_record=lambda record: "id" in record))
    return [record["id"] for _, record, _ in found if isinstance(record, dict)], [r for _, r, _ in found if isinstance(r, tuple)]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[{"id": 1}, {"id": 2}]', None),
        ('{"id": 1}\n{"id": 2}\n', None),
        ('{"meta": {"id": 9}, "jobs": [{"id": 1}, {"id": 2}], "errors": []}', "jobs"),
        ('[{"id": 1}]\n[{"id": 2}]', None),
        ('{"jobs": [{"id": 1}], "meta": {}}{"jobs": [{"id": 2}]}', "jobs"),
        ('\ufeff [ {"id": 1} ,\n{"id": 2} ] ', None),
    ],
)
def test_records_are_found_however_the_list_is_wrapped(tmp_path, text, key):
    (tmp_path / "a").write_text(text)
    assert read(tmp_path / "a", key) == ([1, 2], [])


def test_records_longer_than_a_piece_are_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("stormpetrel.sources.json_records._PIECE_BYTES", 64)
    rows = [{"id": n, "text": "é☃" * n, "nest": [{"x": {"y": n}}]} for n in range(200)]
    (tmp_path / "a").write_text(json.dumps(rows, ensure_ascii=False))
    assert read(tmp_path / "a") == (list(range(200)), [])


def test_after_damage_reading_goes_on_at_the_next_record(tmp_path):
    (tmp_path / "a").write_text('[{"id": 1}, {"id": 2, "x": }, {"id": 3}, 7, "no", {"other": 1}, {"id": 4}]')
    found, refused = read(tmp_path / "a")
    assert found == [1, 3, 4]
    assert [rule for _, rule, _, _ in refused] == ["invalid_json", "not_a_record", "not_a_record", "not_a_record"]


def test_a_deep_nest_of_objects_does_not_take_forever(tmp_path):
    (tmp_path / "a").write_text("[" + '{"a":' * 200_000)
    began = time.process_time()
    found, refused = read(tmp_path / "a")
    assert (found, len(refused)) == ([], 1)
    assert time.process_time() - began < 5
