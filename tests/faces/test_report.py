"""The report: blocks and sections on one page, whatever the log lacks."""

from __future__ import annotations

import re
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from stormpetrel.answers.studies.job_evaluation import JobInput
from stormpetrel.config import JobsSection
from stormpetrel.errors import NotEnoughJobsError, UsageError
from stormpetrel.faces.cli.options import Context
from stormpetrel.faces.cli.report import report
from stormpetrel.faces.report.blocks import Column, Drawing, Paragraph, Section, SideBySide, Table, written
from stormpetrel.faces.report.jobs_section import jobs_sections
from stormpetrel.faces.report.page import render, write_page
from stormpetrel.records.jobs import job_frame
from tests.builders import T0, make_jobs, write_sacct

_VOID = {"meta", "link", "br", "hr", "img", "input"}


class Outline(HTMLParser):
    """Whether every element is closed, and what a page fetches from elsewhere."""

    def __init__(self, text):
        super().__init__()
        self.open, self.fetched, self.ids, self.anchors = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.fetched += [given[name] for name in ("src", "srcset", "data") if name in given]
        self.ids += [given["id"]] if "id" in given else []
        self.anchors += [given["href"]] if tag == "a" else []
        self.fetched += [given.get("href")] if tag == "link" else []
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def log_of(rows):
    return JobInput(job_frame(rows), JobsSection(), "UTC")


def rows(n, *, failed=0, **fields):
    """n jobs a minute apart, the first `failed` of them failed."""
    return [
        {
            "job_id": k, "submit_time": T0 + timedelta(minutes=k), "start_time": T0 + timedelta(minutes=k + 1),
            "end_time": T0 + timedelta(minutes=k + 6), "elapsed_s": 300.0, "cpus": 4, "user": f"user{k % 3}",
            "state": "FAILED" if k < failed else "COMPLETED", **fields,
        }
        for k in range(n)
    ]  # fmt: skip


def said(sections, title):
    """The paragraphs of a section."""
    (section,) = [section for section in sections if section.title == title]
    return " ".join(block.text for block in section.blocks if isinstance(block, Paragraph))


def figure():
    import plotly.graph_objects as go

    return go.Figure(go.Bar(x=[1], y=[2], name="</script><b>x"), layout={"title": {"text": "Bars & more"}})


def test_a_value_is_written_by_its_form():
    assert [written(value, ",.1f") for value in (1234.56, None, float("nan"), "many")] == ["1,234.6", "–", "–", "many"]


def test_everything_on_the_page_is_escaped_and_closed():
    evil = "<script>alert('x')</script>"
    blocks = (Paragraph(evil), Table(evil, (Column(evil), Column("n", ",d")), ((evil, 1000),), evil), Drawing(figure(), evil))
    page = render(evil, [Section(evil, evil, (SideBySide(blocks),))], subtitle=evil, footer=evil)
    outline = Outline(page)
    assert outline.open == []
    assert "<script>alert" not in page and page.count("&lt;script&gt;alert") == 13


def test_numbers_stand_on_the_right():
    page = render("t", [Section("s", "", (Table("t", (Column("user"), Column("jobs", ",d")), (("ada", 1000),)),))])
    assert "<th>user</th><th class=n>jobs</th>" in page and "<td>ada</td><td class=n>1,000</td>" in page


def test_the_page_fetches_nothing_and_holds_plotly_once():
    page = render("t", [Section("one", "", (Drawing(figure()), SideBySide((Drawing(figure()),)))), Section("two", "")])
    outline = Outline(page)
    assert outline.fetched == [] and not re.search(r"@import|url\(", page.split("</style>")[0])
    assert page.count("Plotly.newPlot(") == 2 and len(set(outline.ids)) == len(outline.ids)
    assert page.count("plotly.js v") == 1


def test_a_page_without_figures_holds_no_plotly():
    assert len(render("t", [Section("one", "nothing to draw", (Paragraph("x"),))])) < 10_000


def test_a_figure_cannot_end_its_script():
    page = render("t", [Section("one", "", (Drawing(figure()),))])
    assert "</script><b>x" not in page
    assert "<figcaption>Bars &amp; more</figcaption>" in page


def test_the_contents_lead_to_every_section():
    outline = Outline(render("t", [Section("one", ""), Section("two", "")]))
    assert outline.anchors == ["#section-1", "#section-2"] and set(outline.ids) >= {"section-1", "section-2"}


def test_the_page_knows_the_dark_the_phone_and_paper():
    page = render("t", [])
    assert all(words in page for words in ("prefers-color-scheme: dark", "@media print", 'name="viewport"', "max-width"))


def test_a_page_that_cannot_be_written_is_told_in_a_sentence(tmp_path):
    with pytest.raises(UsageError, match="cannot be written"):
        write_page(tmp_path / "no" / "page.html", "t", [])


@pytest.mark.parametrize(
    "jobs",
    [
        rows(10, failed=3),
        rows(10),
        rows(10, failed=10),
        rows(1),
        rows(40, failed=10, user=None),
        rows(12, failed=4, state="RUNNING", end_time=None, elapsed_s=None),
        rows(12, failed=4, cpus=None, start_time=None, elapsed_s=None),
    ],
    ids=["ten jobs", "none failed", "all failed", "one job", "no users", "all running", "no sizes"],
)
def test_a_section_whose_data_are_missing_says_so(jobs):
    sections = jobs_sections(log_of(jobs), quick=True)
    assert len(sections) == 10
    assert all(section.blocks for section in sections)
    assert "This log cannot tell" in said(sections, "Forecasts that see only the past")
    assert Outline(render("t", sections)).open == []


def test_what_a_log_lacks_is_named():
    sections = jobs_sections(log_of(rows(60, failed=10, user=None)), quick=True)
    assert "By user: the log does not tell it." in said(sections, "What failed jobs cost")
    assert "By user: none is known with enough jobs" in said(sections, "Trends")


def test_the_published_figures_stand_beside_ours():
    sections = jobs_sections(log_of(rows(60, failed=10)), quick=True)
    tables = {
        table.title: table
        for section in sections
        for block in section.blocks
        for table in (block.blocks if isinstance(block, SideBySide) else (block,))
        if isinstance(table, Table)
    }
    labels = {row[0]: row[1:] for row in tables["Fig. 2: labels"].rows}
    assert labels["Failed"] == (pytest.approx(100 / 6), 8)
    assert [title for title in tables if title.startswith("The published study, Fig.")] == [
        "The published study, Fig. 4: resources (mean ± std)", "The published study, Fig. 5: duration",
        "The published study, Fig. 6: user activity", "The published study, Fig. 7: status", "The published study, Fig. 8: type",
    ]  # fmt: skip
    assert ("kinds of jobs (K at the elbow)", "1", "3") in tables["Figures"].rows


def test_the_command_writes_the_file_and_says_what_to_do(tmp_path):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command("report")(report)
    log = write_sacct(tmp_path / "few.txt", make_jobs(30, failed=3))
    words = [str(log), "-o", str(tmp_path / "r.html"), "--quick", "--title", "Few <jobs>"]
    done = CliRunner().invoke(app, words, obj=Context(None, False), catch_exceptions=False)
    assert done.output.splitlines()[-1] == "Next: open it in a browser; it needs no network."
    page = Path(tmp_path / "r.html").read_text()
    assert "<title>Few &lt;jobs&gt;</title>" in page and "30 jobs, submitted 2024-03-04 to 2024-03-04, a quick report" in page


def test_a_report_of_no_jobs_is_refused(tmp_path):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command("report")(report)
    log = write_sacct(tmp_path / "few.txt", make_jobs(3))
    with pytest.raises(NotEnoughJobsError, match="There are no jobs to study"):
        CliRunner().invoke(app, [str(log), "--since", "2030-01-01"], obj=Context(None, False), catch_exceptions=False)
