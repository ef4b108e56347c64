"""The inventory of the published studies: no item is missing, and each is drawn or has a reason."""

from __future__ import annotations

import os
import re
from collections import Counter

import pytest

from stormpetrel.faces.cli.commands import COMMANDS
from stormpetrel.faces.cli.lazy_group import GroupEntry
from stormpetrel.faces.report.blocks import Column, Link, Paragraph, Section, SideBySide, Table
from stormpetrel.faces.report.inventory import ITEMS, STUDIES, inventory_section
from stormpetrel.faces.report.jobs_section import jobs_sections
from stormpetrel.faces.report.page import render
from tests.faces.test_report import Outline, log_of, rows
from tests.parts.command_line import call_main

NUMBERED = {"hpe": 16, "gpgrid": 13, "generator": 4}  # figures of each study, numbered from 1


def places(section):
    """Key -> where an item is, or why it is nowhere."""
    cells = [row[2] for table in section.blocks for row in table.rows]
    return dict(zip([item.key for study in STUDIES for item in ITEMS if item.study == study], cells, strict=True))


def shown(*items):
    return Table("t", (Column("n", ",d"),), ((1,),), shows=items)


def test_the_inventory_has_every_item_of_the_studies_once():
    counts = Counter(item.key for item in ITEMS)
    assert set(counts.values()) == {1} and set(STUDIES) == {item.study for item in ITEMS}
    for study, last in NUMBERED.items():
        labels = [item.label for item in ITEMS if item.study == study and item.label.startswith("Fig.")]
        assert labels == [f"Fig. {number}" for number in range(1, last + 1)]
    jlab = {item.label for item in ITEMS if item.study == "jlab"}
    assert jlab == {"Table 1", "Table 2", "Fig. 1a", "Fig. 1b", "Fig. 2", "Fig. 3", "Fig. 4a", "Fig. 4b"}
    assert "Table I" in {item.label for item in ITEMS if item.study == "hpe"}


def test_an_item_is_a_link_where_it_is_drawn_and_a_reason_where_it_is_not():
    section = inventory_section([Section("Traces", "", (SideBySide((shown("jlab-fig-2"),)),), {"jlab-fig-3": "no NP jobs"})])
    there = places(section)
    assert there["jlab-fig-2"] == Link("Traces", "jlab-fig-2") and there["jlab-fig-3"] == "no NP jobs"
    assert there["gpgrid-fig-7"].startswith("A drawing of a kind of network")
    assert there["gpgrid-fig-5"].startswith("needs counts of job events")
    assert section.intro.startswith("1 of 49 ")


def test_every_item_is_drawn_or_has_a_reason_whatever_the_data():
    for jobs in (rows(60, failed=20), rows(10), rows(1)):
        there = places(inventory_section(jobs_sections(log_of(jobs), quick=True)))
        assert [key for key, place in there.items() if not str(place).strip()] == []
        assert there["hpe-fig-2"] == Link("How jobs end", "hpe-fig-2")


def test_what_a_log_cannot_tell_is_the_reason_in_the_inventory():
    there = places(inventory_section(jobs_sections(log_of(rows(10)), quick=True)))
    assert there["hpe-table-1"].startswith("This log cannot tell: ")


def test_links_lead_to_the_block_and_ids_are_there_once():
    sections = [Section("One", "", (shown("jlab-fig-2", "poster-features"),)), Section("Two", "", (shown("jlab-fig-2"),))]
    page = Outline(render("t", [inventory_section(sections), *sections]))
    leads = [anchor[1:] for anchor in page.anchors if not anchor.startswith("#section")]
    assert leads == ["jlab-fig-2", "poster-features"] and set(leads) <= set(page.ids)
    assert len(set(page.ids)) == len(page.ids)


def test_a_block_cannot_show_what_no_study_has():
    with pytest.raises(KeyError):
        render("t", [Section("s", "", (shown("hpe-fig-99"), Paragraph("x")))])


def test_every_command_of_the_inventory_exists_with_its_options():
    wrong = []
    for command in sorted({item.command for item in ITEMS} - {""}):
        program, *words = re.sub(r"'[^']*'", "", command).split()
        path = words[:2] if isinstance(COMMANDS.get(words[0]), GroupEntry) else words[:1]
        done = call_main([*path, "--help"], env=dict(os.environ, COLUMNS="200"))
        options = [word for word in words if word.startswith("--")]
        if program != "stormpetrel" or done.returncode or any(option.encode() not in done.stdout for option in options):
            wrong.append(command)
    assert wrong == []
