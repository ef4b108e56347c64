import gzip

import pytest

from stormpetrel.errors import SourceFormatError
from stormpetrel.sources.lines import MAX_LINE_BYTES, LineFile, is_sound, shown, sound_lines


def read(path, block_bytes=1000):
    lines, refused = [], []
    for block in LineFile(path, block_bytes=block_bytes).blocks():
        good, bad = sound_lines(block)
        lines += good
        refused += [*block.refused, *bad]
    return lines, refused


@pytest.mark.parametrize("block_bytes", [1, 7, 64, 10_000])
def test_lines_come_out_whole_and_numbered_however_large_the_blocks(tmp_path, block_bytes):
    wanted = [f"line {n}".encode() for n in range(1, 50)]
    (tmp_path / "a").write_bytes(b"\n".join(wanted))
    lines, refused = read(tmp_path / "a", block_bytes)
    assert lines == list(enumerate(wanted, start=1))
    assert refused == []


@pytest.mark.parametrize("block_bytes", [100_000, 3_000_000, 64_000_000])
def test_lines_of_ten_and_fifty_megabytes_are_refused_and_the_others_kept(tmp_path, block_bytes):
    (tmp_path / "a").write_bytes(b"first\n" + b"x" * 10_000_000 + b"\nsecond\n" + b"y" * 50_000_000 + b"\nthird\n")
    lines, refused = read(tmp_path / "a", block_bytes)
    assert lines == [(1, b"first"), (3, b"second"), (5, b"third")]
    assert [(number, rule) for number, rule, _, _ in refused] == [(2, "line_too_long"), (4, "line_too_long")]
    assert all(len(raw) <= 4096 for *_, raw in refused)


def test_a_line_too_long_at_the_end_of_the_file_is_refused(tmp_path):
    (tmp_path / "a").write_bytes(b"first\n" + b"x" * (MAX_LINE_BYTES + 1))
    lines, refused = read(tmp_path / "a", 100_000)
    assert [number for number, _ in lines] == [1]
    assert [rule for _, rule, _, _ in refused] == ["line_too_long"]


def test_members_of_a_gzip_follow_each_other(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n") + b"\0" * 512)
    assert read(tmp_path / "a.gz") == ([(1, b"one"), (2, b"two")], [])


@pytest.mark.parametrize(
    ("magic", "name"), [(b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ\x00", "xz"), (b"BZh9", "bzip2"), (b"PK\x03\x04", "zip")]
)
def test_a_file_packed_otherwise_is_refused_by_name(tmp_path, magic, name):
    (tmp_path / "a").write_bytes(magic + b"\x00" * 100)
    with pytest.raises(SourceFormatError, match=f"is packed with {name}"):
        read(tmp_path / "a")


def test_garbage_after_a_gzip_is_ignored_as_gzip_does(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"one\ntwo") + b"garbage")
    assert read(tmp_path / "a.gz") == ([(1, b"one"), (2, b"two")], [])


def test_a_gzip_with_a_flipped_bit_gives_what_came_before(tmp_path):
    packed = bytearray(gzip.compress(b"".join(b"line %d\n" % n for n in range(100_000))))
    packed[len(packed) // 2] ^= 0x55
    (tmp_path / "a.gz").write_bytes(packed)
    lines, refused = read(tmp_path / "a.gz", 100_000)
    assert 10_000 < len(lines) < 100_000
    assert refused[-1][1] == "truncated_file"


def test_a_bomb_is_read_in_bounded_pieces(tmp_path):
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b"\n" * 50_000_000, mtime=0))
    largest = max(len(block.data) for block in LineFile(tmp_path / "bomb.gz", block_bytes=1_000_000).blocks())
    assert largest < 5_000_000


def test_what_is_shown_of_a_refused_line_cannot_command_a_terminal():
    assert shown(b"a\x1b[31m\x00\xff\tb") == "a\\x1b[31m\\x00\\xff\tb"


@pytest.mark.parametrize(
    ("data", "sound"),
    [
        (b"a\nb\n", True),
        ("é☃\n".encode(), True),
        (b"a\0\n", False),
        (b"\xff\n", False),
        (b"a\r\n", False),
        (b"x" * (MAX_LINE_BYTES * 2) + b"\n", False),
        ((b"y" * (MAX_LINE_BYTES - 1) + b"\n") * 3, True),
    ],
)
def test_a_block_is_judged_as_a_whole(data, sound):
    if sound:
        assert is_sound(data) or len(data) > MAX_LINE_BYTES  # long lines may be looked at one by one
    else:
        assert not is_sound(data)
