import time
from pathlib import Path

import pytest

from stormpetrel.exporter.files import Files
from stormpetrel.exporter.proc_stat import MODES, WIDTH, CpuReader, ExporterError
from tests.exporter.made import FakeNode

ROW = [100, 1, 50, 9000, 7, 0, 5, 3]


@pytest.fixture
def node(tmp_path):
    return FakeNode(tmp_path)


def reader(node):
    return CpuReader(Files(str(node.root)))


def row_of(sample, cpu):
    at = sample.cpus.index(cpu)
    return sample.ticks[at * WIDTH : (at + 1) * WIDTH]


def test_every_counter_of_every_cpu_is_read(node):
    node.stat({0: ROW, 1: [2 * value for value in ROW]})
    sample = reader(node).read()
    assert sample.cpus == (0, 1)
    assert row_of(sample, 0) == ROW and row_of(sample, 1) == [2 * value for value in ROW]
    assert abs(sample.time_s - time.time()) < 5


def test_this_machine_is_read_as_it_is():
    before = CpuReader(Files()).read()
    text = Path("/proc/stat").read_text()
    lines = [line.split() for line in text.splitlines() if line.startswith("cpu") and not line.startswith("cpu ")]
    after = CpuReader(Files()).read()
    assert before.cpus == tuple(int(words[0][3:]) for words in lines)
    for low, words, high in zip(before.ticks[::WIDTH], lines, after.ticks[::WIDTH], strict=True):
        assert low <= int(words[1]) <= high
    assert sum(after.ticks) >= sum(before.ticks)


@pytest.mark.parametrize("guest", ["", " 0", " 0 0", " 0 0 0 0"])
def test_kernels_with_more_or_fewer_columns_are_read(node, guest):
    node.stat({0: ROW, 7: ROW}, guest=guest)
    sample = reader(node).read()
    assert sample.cpus == (0, 7) and row_of(sample, 7) == ROW


def test_modes_that_an_old_kernel_does_not_count_are_zero(node):
    node.write("proc/stat", "cpu  1 2 3 4\ncpu0 1 2 3 4\nintr 0\n")
    assert reader(node).read().ticks == [1, 2, 3, 4, 0, 0, 0, 0]


def test_a_cpu_that_goes_offline_is_left_out_and_may_come_back(node):
    cpus = reader(node)
    node.stat({0: ROW, 1: ROW, 2: ROW})
    cpus.read()
    node.stat({0: ROW, 2: ROW})
    assert cpus.read().cpus == (0, 2)
    node.stat({0: ROW, 1: [1, 0, 0, 5, 0, 0, 0, 0], 2: ROW})
    assert row_of(cpus.read(), 1) == [1, 0, 0, 5, 0, 0, 0, 0]


def test_a_counter_that_steps_back_a_little_stays_where_it_was(node):
    cpus = reader(node)
    node.stat({0: ROW, 1: ROW})
    cpus.read()
    lower = list(ROW)
    lower[MODES.index("iowait")] -= 2
    lower[MODES.index("user")] += 5
    node.stat({0: lower, 1: ROW})
    row = row_of(cpus.read(), 0)
    assert row[MODES.index("iowait")] == 7 and row[MODES.index("user")] == 105


def test_counters_that_begin_anew_are_believed(node):
    cpus = reader(node)
    node.stat({0: ROW})
    cpus.read()
    node.stat({0: [1, 0, 1, 10, 0, 0, 0, 0]})
    assert cpus.read().ticks == [1, 0, 1, 10, 0, 0, 0, 0]


@pytest.mark.parametrize(
    "line", ["cpu1 1 2 three 4 5 6 7 8 0 0", "cpu1 1 2", "cpux 1 2 3 4 5 6 7 8 0 0", "cpu1 -1 2 3 4 5 6 7 8 0 0"]
)
def test_a_line_that_makes_no_sense_is_left_out_and_counted(node, line):
    node.write("proc/stat", f"cpu  1 2 3 4 5 6 7 8 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n{line}\nintr 0\n")
    files = Files(str(node.root))
    sample = CpuReader(files).read()
    assert sample.cpus == (0,) and sample.ticks == [1, 2, 3, 4, 5, 6, 7, 8]
    assert files.problems["malformed"] == 1


@pytest.mark.parametrize("text", ["", "intr 0\n", "cpu  1 2 3 4 5 6 7 8 0 0\n", "\0\xff nonsense"])
def test_a_node_without_cpus_is_one_clear_sentence(node, text):
    node.write("proc/stat", text)
    with pytest.raises(ExporterError, match=r"/proc/stat cannot be read or names no CPU"):
        reader(node).read()
