"""Traces in the report: the study of campaigns, what a site's model says, and nothing where there is nothing."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

from stormpetrel.answers.schemas.traces import FittedRegion
from stormpetrel.answers.studies.trace_study import study_answer, study_of_site
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.errors import NotEnoughJobsError, UsageError
from stormpetrel.faces.cli.options import Context
from stormpetrel.faces.cli.report import report
from stormpetrel.faces.report.blocks import Drawing, Table
from stormpetrel.faces.report.page import render
from stormpetrel.faces.report.trace_tables import regions_table, table_two
from stormpetrel.faces.report.traces_section import site_trace_sections, study_sections
from stormpetrel.lifecycle.trace_models import load_trace_model, score_new_windows
from stormpetrel.records.traces import Split
from stormpetrel.sources.trace_files import read_campaigns, write_trace
from stormpetrel.traces import study
from stormpetrel.traces.campaign_splits import split_traces
from stormpetrel.traces.networks.architecture import Architecture, AutoencoderSettings
from stormpetrel.traces.study import StudyPlan, run_study
from tests.builders import make_jobs, make_site, write_sacct
from tests.faces.test_report import Outline
from tests.lifecycle.traced_site import traced_site, train
from tests.traces.small import one_torch_thread, small_trace

TITLES = [
    "Traces: how well they are represented", "Traces: sampling interval", "Traces: original and reconstruction",
    "Traces: error per job type", "Traces: map and diagnosis",
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _quickly():
    with one_torch_thread(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "SPEED_S", 0.02)
        yield


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Campaign files, and the models that were trained on them."""
    campaigns, models = tmp_path_factory.mktemp("campaigns"), tmp_path_factory.mktemp("models")
    for seed, split in enumerate(Split):
        trace = small_trace(seed, steps=500, name=split.value, nodes=1)
        write_trace(replace(trace, split=split, rates=trace.rates.clip(0, 1)), campaigns / f"{split}.npz")
    plan = StudyPlan((Architecture.VANILLA, Architecture.NODE_GNN), 1, "cpu", AutoencoderSettings(max_epochs=1))
    run_study(split_traces(read_campaigns([campaigns])), plan, models)
    return campaigns, models


def ran(*words, site=None):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command("report")(report)
    return CliRunner().invoke(app, [str(word) for word in words], obj=Context(site, False), catch_exceptions=False).stdout


def blocks_of(sections, kind):
    return [block for section in sections for block in section.blocks if isinstance(block, kind)]


@pytest.mark.needs("torch")
def test_the_study_of_campaigns_is_a_report_without_a_site(kept, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = json.loads(ran("--campaigns", kept[0], "--trace-models", kept[1], "-o", tmp_path / "r.html", "--json"))
    assert told["sections"] == TITLES and told["jobs"] == 0
    page = (tmp_path / "r.html").read_text()
    assert Outline(page).open == [] and "0.0064 ± 0.0002" in page and "<title>Traces</title>" in page
    for figure in (
        "Original and reconstructed traces: user",
        "Reconstruction error per job type",
        "on the map of the Vanilla AE",
    ):
        assert figure in page


@pytest.mark.needs("torch")
def test_the_sections_hold_the_tables_and_figures_of_the_study(kept):
    traces = read_campaigns([kept[0]])
    found = run_study(split_traces(traces), study.kept_plan(kept[1]), kept[1])
    sections = study_sections(found, traces)
    titles = [table.title for table in blocks_of(sections, Table)]
    assert titles[0].startswith("Table 2") and any(title.startswith("Fig. 3") for title in titles)
    assert any(title.startswith("Fig. 1b") for title in titles) and len(blocks_of(sections, Drawing)) >= 7
    (two,) = [table for table in blocks_of(sections, Table) if table.title.startswith("Table 2")]
    assert [row[0] for row in two.rows] == [
        "Vanilla AE (1)", "  published", "Node-GNN-AE (1)", "  published", "PCA, raw windows", "mean iowait",
    ]  # fmt: skip


def test_what_the_site_scored_is_a_section(tmp_path):
    with traced_site(tmp_path / "site") as site:
        train(site)
        assert site_trace_sections(site) == []  # nothing was scored yet
        score_new_windows(site, load_trace_model(site))
        section, *study = site_trace_sections(site)
    assert section.title == "Nodes and traces" and "384 windows from" in section.intro
    assert [part.title for part in study] == TITLES[:-1]
    assert [table.title for table in blocks_of([section], Table)] == [
        "Figures", "Job types", "Most abnormal nodes", "Most abnormal threads", "Most abnormal jobs", "Where job types lie",
        "Jobs and threads that lie near Bad IO",
    ]  # fmt: skip
    assert Outline(render("t", [section, *study])).open == []


def test_the_model_in_use_is_judged_on_windows_that_it_has_not_learnt_from(tmp_path):
    with traced_site(tmp_path / "site") as site:
        train(site)
        judged, traces = study_of_site(site, LOCAL)
        until_s = site.models.current_training("traces").trained_until.timestamp()
    assert judged.split.test.start_s.min() > until_s >= judged.split.train.start_s.max()
    assert {trace.name for trace in traces} == set(judged.split.test.traces) and all(trace.checked() for trace in traces)
    table = table_two(study_answer(judged))
    assert [row[0] for row in table.rows].count("  published") == 3 and "takes an ensemble of its own" in table.note


def test_a_site_with_traces_and_no_jobs_has_a_report(tmp_path):
    with traced_site(tmp_path / "site") as site:
        train(site)
        score_new_windows(site, load_trace_model(site))
    shown = ran("-o", tmp_path / "r.html", site=tmp_path / "site")
    assert "5 sections, " in shown and "Nodes and traces" in (tmp_path / "r.html").read_text()


def test_a_model_that_cannot_be_read_is_told_in_the_section(tmp_path):
    with traced_site(tmp_path / "site") as site:
        entry = train(site)
        (site.models.folder_of(entry.name, 1) / "model.json").write_text("{}")
        (section,) = site_trace_sections(site)
    assert "cannot be read" in section.blocks[0].text


def test_a_site_without_traces_has_no_section(tmp_path):
    with make_site(tmp_path / "site") as site:
        assert site_trace_sections(site) == []
    with pytest.raises(NotEnoughJobsError, match="no jobs yet"):
        ran("-o", tmp_path / "r.html", site=tmp_path / "site")


def test_a_report_of_a_job_log_has_no_word_about_traces(tmp_path):
    log = write_sacct(tmp_path / "few.txt", make_jobs(30, failed=3))
    told = json.loads(ran(log, "-o", tmp_path / "r.html", "--quick", "--json"))
    assert len(told["sections"]) == 10 and told["jobs"] == 30 and not any("race" in title for title in told["sections"])


def test_campaigns_and_their_models_go_together(tmp_path):
    for words in (("--campaigns", tmp_path), ("--trace-models", tmp_path)):
        with pytest.raises(UsageError, match="go together"):
            ran(*words)
    write_trace(replace(small_trace(0, steps=400), split=Split.TRAIN), tmp_path / "a.npz")
    write_trace(replace(small_trace(1, steps=400, name="b"), split=Split.TEST), tmp_path / "b.npz")
    with pytest.raises(UsageError, match="There is no trace model"):
        ran("--campaigns", tmp_path, "--trace-models", tmp_path)


def test_a_region_that_is_hardly_told_from_calm_windows_is_named_with_what_to_do():
    region = FittedRegion(name="stall", examples=8, radius=0.0, coverage=0.0, calm_inside=0.0, x=None, y=None)
    clear = region.model_copy(update={"name": "hang", "radius": 0.3, "coverage": 0.9})
    assert "reported: stall. Name only the" in regions_table([region, clear]).note
    assert "Hardly told" not in regions_table([clear]).note
