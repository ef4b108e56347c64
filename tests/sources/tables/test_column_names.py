"""One recogniser of columns: the best name wins, then the first column; a unit at the end of a name is read."""

import pytest

from stormpetrel.records.events import PLACES
from stormpetrel.sources.tables.column_names import EVENTS, WORKLOAD, Named, Vocabulary, vocabulary_of_names, workload_columns

COLOURS = Vocabulary({"red": ("red", "rouge"), "blue": ("blue",)}, units={"blue": {"": 1.0, "kb": 1024.0}})


def test_the_best_name_wins_and_of_equal_names_the_first():
    columns, spare = COLOURS.recognise(["Rouge", "R E D", "red", "green"])
    assert columns == {"red": Named("R E D", None)}
    assert spare == {"Rouge": "R E D", "red": "R E D"}


def test_a_unit_counts_only_where_the_meaning_has_one():
    assert COLOURS.recognise(["blue_kb", "red_kb"])[0] == {"blue": Named("blue_kb", 1024.0)}
    assert COLOURS.recognise(["Blue"])[0] == {"blue": Named("Blue", 1.0)}


def test_meanings_that_are_not_wanted_are_left_out_and_come_in_the_order_wanted():
    assert list(COLOURS.columns(["red", "blue"], ["blue", "red"])) == ["blue", "red"]
    assert COLOURS.columns(["red", "blue"], ["blue"]) == {"blue": "blue"}


@pytest.mark.parametrize("vocabulary", [WORKLOAD, EVENTS])
def test_no_name_has_two_meanings_and_each_is_as_names_are_compared(vocabulary):
    names = [name for names in vocabulary.names.values() for name in names]
    assert len(names) == len(set(names))
    assert [name for name in names if vocabulary.plain(name) != name] == []


def test_names_of_the_three_kinds_of_tables():
    assert workload_columns(["Submit Time", "runtime (min)", "NCPUS"])[0] == {
        "submit_time": Named("Submit Time", None), "runtime_s": Named("runtime (min)", 60.0), "cores": Named("NCPUS", None),
    }  # fmt: skip
    header = ["_source.EventTime", "MyType.keyword", "SlotName", "ExecuteHost", "GLIDEIN_Site"]
    assert EVENTS.columns(header, ["time", "kind", *PLACES]) == {
        "time": "_source.EventTime", "kind": "MyType.keyword", "site": "GLIDEIN_Site", "node": "SlotName",
    }  # fmt: skip
    assert vocabulary_of_names(["Job ID"]).columns(["jobid"], ["Job ID"]) == {"Job ID": "jobid"}
