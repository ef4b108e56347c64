import pytest

from stormpetrel.records.nodes import expand_nodes


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n001", ["n001"]),
        ("cpn-f15-[06,08,11-12]", ["cpn-f15-06", "cpn-f15-08", "cpn-f15-11", "cpn-f15-12"]),
        ("a[1-2]b[3-4],c", ["a1b3", "a1b4", "a2b3", "a2b4", "c"]),
        ("None assigned", []),
        ("", []),
        (None, []),
        ("n[1", ["n[1"]),
    ],
)
def test_node_ranges_expand(text, names):
    assert expand_nodes(text) == names


def test_a_hostile_range_is_refused_instead_of_filling_the_memory():
    assert expand_nodes("n[1-999999999]") == []
