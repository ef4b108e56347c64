import subprocess
import sys

import polars as pl
import pytest

from stormpetrel.records.units import by_distinct, bytes_of, duration_s, size_bytes, size_parts, tres, whole_count
from tests.parts import find_program, require


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:05:53", 353.0),
        ("7-20:39:39", 679179.0),
        ("15:33:59", 56039.0),
        ("23:08.357", 1388.357),
        ("00:00.001", 0.001),
        ("1-00:00:00", 86400.0),
        ("UNLIMITED", None),
        ("12x:00:00", None),
        ("", None),
    ],
)
def test_durations_are_seconds(text, seconds):
    assert duration_s(pl.Series([text])).to_list() == [seconds]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("8", 8),
        ("0.00K", 0),  # one node, as sacct --units=K prints it
        ("2.00K", 2048),  # 2047
        ("4K", 4096),
        ("1.50M", 1_572_864),
        ("1.5G", 1_610_612_736),
        ("9999999999999P", None),
        ("K", None),
        ("4k5", None),
        ("", None),
    ],
)
def test_counts_are_read_with_the_units_that_sacct_shortens_them_by(text, count):
    assert whole_count(pl.Series([text, "1"])).to_list() == [count, 1]


SLURM_LIBRARY = "/usr/lib/*/slurm*/libslurmfull.so"
AS_SLURM_PRINTS = """
import ctypes, sys
slurm = ctypes.CDLL(sys.argv[1])
convert, text = slurm.slurm_convert_num_unit, ctypes.create_string_buffer(64)
convert.argtypes = [ctypes.c_double, ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_uint32]
for count in (1, 999, 1000, 1023, 1024, 2000, 2047, 2048, 40_000, 1_572_864):
    convert(count, text, 64, 0, -2, 0)
    print(count, text.value.decode())
"""


@pytest.mark.slurm
def test_counts_as_the_real_slurm_shortens_them_are_read_to_half_a_percent():
    require(SLURM_LIBRARY, install="slurm-wlm")
    asked = [sys.executable, "-c", AS_SLURM_PRINTS, find_program(SLURM_LIBRARY)]
    told = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60).stdout
    counts, texts = zip(*(line.split() for line in told.splitlines()), strict=True)
    assert {"1000", "2K", "2.00K", "1.50M"} <= set(texts)
    assert whole_count(pl.Series(texts)).to_list() == pytest.approx([int(count) for count in counts], rel=0.005)


@pytest.mark.parametrize(
    ("text", "size", "per"),
    [
        ("4000Mn", 4000 << 20, "n"),
        ("2Gc", 2 << 30, "c"),
        ("62.50G", int(62.5 * (1 << 30)), ""),
        ("1294440K", 1294440 << 10, ""),
        ("2147486648Mn", 2147486648 << 20, "n"),
        ("0", 0, ""),
        ("9999999999P", None, ""),
        ("12GG", None, None),
    ],
)
def test_sizes_are_bytes_with_their_suffix(text, size, per):
    assert size_parts(pl.Series([text])).row(0) == (size, per)


def test_a_size_without_a_unit_takes_the_default():
    assert size_bytes(pl.Series(["512"]), default_unit="M").to_list() == [512 << 20]


def test_tres_strings_give_cpus_memory_nodes_and_gpus():
    text = pl.Series(["billing=8,cpu=8,gres/gpu:v100=2,gres/gpu=2,mem=10G,node=1", "cpu=4,mem=512M,node=2", None])
    found = tres(text)
    assert found["cpus"].to_list() == [8, 4, None]
    assert found["gpus"].to_list() == [2, None, None]
    assert found["mem_bytes"].to_list() == [10 << 30, 512 << 20, None]
    assert found["nodes"].to_list() == [1, 2, None]


def test_gpus_named_only_by_type_are_summed():
    assert tres(pl.Series(["cpu=1,gres/gpu:a100=2,gres/gpu:v100=1"]))["gpus"].to_list() == [3]


def test_the_raw_tres_of_slurmdb_reads_the_same():
    assert tres(pl.Series(["1=20,2=170000,4=1,5=20"])).row(0, named=True) == {
        "cpus": 20,
        "nodes": 1,
        "gpus": None,
        "mem_bytes": 170000 << 20,
    }


def test_parsing_distinct_values_only_changes_nothing():
    column = pl.Series(["00:01:00"] * 50 + [None, "x"] * 5)
    assert duration_s(column).to_list() == [60.0] * 50 + [None, None] * 5
    seen = []

    def parse(part):
        seen.append(len(part))
        return part.str.len_chars()

    by_distinct(column, parse)
    assert seen == [3]


@pytest.mark.parametrize("unit", ["", "M"])
@pytest.mark.parametrize(
    "text",
    [
        "4000Mn",
        "62.50G",
        "1294440K",
        "512",
        "0.5",
        "1.5",
        "2.5K",
        "8gb",
        "8GiB",
        "8iB",
        "16 G",
        "",
        "G",
        "-1G",
        "1e3",
        "\u0661G",
        "9" * 25,
        "9E",
    ],
)
def test_one_size_is_read_as_a_column_of_sizes_is(text, unit):
    assert bytes_of(text, default_unit=unit) == size_bytes(pl.Series([text]), default_unit=unit)[0]
