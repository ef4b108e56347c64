"""Events in the report: outages over time, the newest day, forecast against counts, alarms; nothing where there is nothing."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
import typer
from typer.testing import CliRunner

from stormpetrel.faces.cli.options import Context
from stormpetrel.faces.cli.report import report
from stormpetrel.faces.report.blocks import Drawing, Paragraph, Table
from stormpetrel.faces.report.events_section import TITLE, site_event_sections
from stormpetrel.faces.report.page import render
from stormpetrel.records.outages import Outage, OutageKind
from stormpetrel.store.site import open_site
from tests.answers import cluster_sites as made
from tests.builders import make_site

CLUSTER = made.sample_grid()
END = CLUSTER.series.moment(len(CLUSTER.series) - 1) + made.HOUR
MARKUP = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A site with counts, outages, a gap in its last day, and scores."""
    place = tmp_path_factory.mktemp("report") / "site"
    size = len(CLUSTER.series)
    with make_site(place) as site:
        made.put_counts(site, CLUSTER, unseen=(size - 5, size - 3), by_place=False)
        made.put_outages(site, CLUSTER, Outage(END - timedelta(days=3), None, OutageKind.OUTAGE, MARKUP))
        site.event_scores.append(made.scores_of(CLUSTER))
        site.models.add(made.MODEL, lambda where: where.mkdir(parents=True), {"threshold": made.THRESHOLD, "buckets": 300})
        site.models.promote(made.MODEL, 1)
    return place


@pytest.fixture(scope="module")
def section(folder):
    with open_site(folder) as site:
        (found,) = site_event_sections(site)
    return found


def tables(section):
    return {block.title: block for block in section.blocks if isinstance(block, Table)}


def test_the_section_has_the_figures_and_tables_of_the_published_study(section):
    drawn = [block.figure.layout.title.text for block in section.blocks if isinstance(block, Drawing)]
    assert section.title == TITLE and drawn[0] == "Outages, maintenance and alarms"
    assert [words.split(",")[0] for words in drawn[1:]] == ["Score and threshold", "Counts of each kind"]
    assert {"Figures", "Counts of the newest buckets (Fig. 5)", "Alarms", "The model in use"} <= set(tables(section))


def test_the_newest_day_is_a_row_per_hour_and_a_gap_is_no_zero(section):
    newest = tables(section)["Counts of the newest buckets (Fig. 5)"]
    lines = list(newest.lines())
    assert len(lines) == 24 and [column.name for column in newest.columns][1:] == list(CLUSTER.series.kinds)
    assert [line[1] == "gap" for line in lines] == [*[False] * 19, True, True, *[False] * 3]
    assert lines[-1][1:] == tuple(f"{count:,.0f}" for count in CLUSTER.series.counts[-1])


def test_outages_say_whether_an_alarm_was_raised(section):
    found = tables(section)["Outages and maintenance"]
    assert {row[4] for row in found.rows} >= {"yes"} and MARKUP in {row[3] for row in found.rows}
    raised = {row[0]: row[1] for row in tables(section)["Figures"].rows}["outages that raised an alarm"]
    assert raised.split()[0] == str(sum(row[4] == "yes" and row[2] == "outage" for row in found.rows))


def test_the_page_shows_titles_as_text(section):
    page = render("Report", [section])
    assert MARKUP not in page.replace("\\u003c", "") and "&lt;script&gt;alert(1)" in page


def test_a_site_without_events_has_no_section(tmp_path):
    with make_site(tmp_path / "site") as site:
        assert site_event_sections(site) == []


def test_counts_without_a_model_are_drawn_without_a_band(tmp_path):
    with make_site(tmp_path / "site") as site:
        made.put_counts(site, CLUSTER, by_place=False)
        (section,) = site_event_sections(site)
    assert "stormpetrel events train" in next(block.text for block in section.blocks if isinstance(block, Paragraph))
    (drawing,) = (block for block in section.blocks if isinstance(block, Drawing))
    assert not any(trace.fill for trace in drawing.figure.data)


def test_the_command_writes_it(folder, tmp_path):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command("report")(report)
    words = ["-o", str(tmp_path / "report.html"), "--json"]
    told = json.loads(CliRunner().invoke(app, words, obj=Context(folder, False), catch_exceptions=False).stdout)
    assert TITLE in told["sections"] and (tmp_path / "report.html").stat().st_size == told["bytes"]
