import pytest

from stormpetrel.exporter.cpu_lists import MAX_CPU, format_cpu_list, parse_cpu_list


@pytest.mark.parametrize(
    ("text", "cpus"),
    [(b"0\n", {0}), (b"0-2,5\n", {0, 1, 2, 5}), (b"\n", set()), (b"3,1", {1, 3}), (b"127", {127})],
)
def test_a_list_is_read(text, cpus):
    assert parse_cpu_list(text) == cpus


@pytest.mark.parametrize("text", [b"a", b"1-", b"-1", b"3-1", b"1-2-3", b"0-99999999", b"9" * 40, b"1;2", b"0-65535,0-65535,1"])
def test_what_is_no_list_is_refused(text):
    assert parse_cpu_list(text) is None


@pytest.mark.parametrize("cpus", [set(), {0}, {1, 2, 3}, {0, 2, 4, 5, 6, 9}, {MAX_CPU - 1}])
def test_a_list_is_written_as_it_is_read(cpus):
    assert parse_cpu_list(format_cpu_list(cpus).encode()) == cpus


def test_neighbours_become_a_range():
    assert format_cpu_list([5, 0, 3, 2, 4]) == "0,2-5"
