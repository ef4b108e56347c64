"""Choices that are links, and tables whose cells are text."""

import json

import pytest
from dash import html
from plotly.utils import PlotlyJSONEncoder

from stormpetrel.faces.dashboard.choices import PageLink, choice, chosen, search_field
from stormpetrel.faces.dashboard.tables import TableColumn, sortable_table, status_chip, text_table

LINK = PageLink("/node/8050/trends", {"by": "user", "group": "a&b <i>"})


def sent(component):
    return json.dumps(component, cls=PlotlyJSONEncoder)


def test_a_link_keeps_what_it_does_not_change():
    assert LINK.to(every="1d") == "/node/8050/trends?by=user&group=a%26b+%3Ci%3E&every=1d"
    assert LINK.to(by="node", group=None) == "/node/8050/trends?by=node"
    assert LINK.to(by=None, group="") == "/node/8050/trends"


def test_the_chosen_one_is_marked_and_the_others_lead_elsewhere():
    bar = choice("Per", {"1d": "Day", "1w": "Week"}, "1w", LINK, "every", group=None)
    links = [item.children for item in bar.children[1].children.children]
    assert [link.href for link in links] == ["/node/8050/trends?by=user&every=1d", "/node/8050/trends?by=user&every=1w"]
    assert ["aria-current" in link.to_plotly_json()["props"] for link in links] == [False, True]


@pytest.mark.parametrize(("query", "expected"), [({}, "b"), ({"x": "a"}, "a"), ({"x": "<script>"}, "b"), ({"x": ""}, "b")])
def test_a_link_chooses_among_what_there_is(query, expected):
    assert chosen(query, "x", ("a", "b"), "b") == expected


def test_one_of_many_is_proposed_while_it_is_typed():
    told = sent(search_field("trends-group", "Only one user", ["ada", "bob"], None, placeholder="All"))
    assert '"list": "trends-group-names"' in told and '"value": "ada"' in told


def test_cells_are_written_by_their_kind():
    columns = (TableColumn("name", "Name"), TableColumn("jobs", "Jobs", "number"), TableColumn("rate", "Rate", "percent"))
    rows = [{"name": "<b>x</b>", "jobs": 12345, "rate": 12.34}, {"name": "y", "jobs": None, "rate": "12"}]
    told = sent(text_table(columns, rows, caption="A table"))
    for words in ('"<b>x</b>"', '"12,345"', '"12.3 %"', '"\\u2013"', '"A table"'):
        assert words in told


def test_a_link_in_a_cell_needs_an_address():
    column = TableColumn("name", "Name", "link")
    table = text_table((column,), [{"name": "ada", "name_link": "/jobs?user=ada"}, {"name": "bob"}], caption="A table")
    cells = [row.children[0].children for row in table.children.children[2].children]
    assert isinstance(cells[0], html.A) and cells[0].href == "/jobs?user=ada"
    assert cells[1] == "bob"


def test_the_total_stays_below_the_others():
    columns = (TableColumn("name", "Name", "link"), TableColumn("jobs", "Jobs", "number", 100, "How many"))
    grid = sortable_table("x", columns, [{"name": "ada", "jobs": 1}], label="Jobs", total={"name": "All", "jobs": 1}).children
    assert grid.dashGridOptions["pinnedBottomRowData"] == [{"name": "All", "jobs": 1}]
    assert [definition["filter"] for definition in grid.columnDefs] == ["agTextColumnFilter", "agNumberColumnFilter"]
    assert grid.columnDefs[0]["cellRenderer"] == "LinkedText"


def test_a_mark_says_in_a_word_what_its_symbol_and_colour_say():
    mark = status_chip("✕", "Problem", "chip-fail")
    assert mark.children[1] == "Problem" and mark.className == "chip chip-fail"
    assert mark.children[0].to_plotly_json()["props"]["aria-hidden"] == "true"
