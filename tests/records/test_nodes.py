import polars as pl
import pytest

from stormpetrel.records.nodes import expand_nodes, is_node_list


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


@pytest.mark.parametrize("text", ["n001", "cpn-f15-[06,08,11-12],gpu3", "a[1-2]b[3-4],c", "bgl[000-133]", None])
def test_a_list_of_nodes_is_known_as_one(text):
    assert is_node_list(pl.Series([text, "a[1]"], dtype=pl.String)).to_list() == [True, True]


@pytest.mark.parametrize("text", ["node[1-", "node[1-]", "node1]", "a,,b", "a b", "", "n[]", "n[[1]]"])
def test_a_list_of_nodes_that_was_cut_off_is_none(text):
    assert is_node_list(pl.Series([text, None], dtype=pl.String)).to_list() == [False, True]
