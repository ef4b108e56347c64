"""The workload in the report, and the site's own generator on the command line."""

from __future__ import annotations

import io
import json

import polars as pl
import pytest
from typer.testing import CliRunner

from stormpetrel.answers.workload.quality import fidelity_answer
from stormpetrel.answers.workload.workload import scores_of
from stormpetrel.errors import ModelError, UsageError
from stormpetrel.faces.cli.main import app
from stormpetrel.faces.report.blocks import Drawing, Paragraph, Table
from stormpetrel.faces.report.page import render
from stormpetrel.faces.report.workload_section import (
    TITLE,
    comparison_table,
    scorecard_table,
    site_workload_sections,
    usefulness_tables,
)
from stormpetrel.store.site import open_site
from tests.answers.workload_sites import CARD, GENERATOR, put_generator, put_workload
from tests.builders import make_site
from tests.synth.made_workloads import made_workload, shuffled


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("workload") / "site"
    with make_site(place) as site:
        put_workload(site)
    return place


def run(folder, *words):
    done = CliRunner().invoke(
        app, [*(["--site", str(folder)] if folder else []), "synth", *map(str, words)], env={"COLUMNS": "200"}
    )
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def titles(section, kind):
    return [
        block.title if kind is Table else block.figure.layout.title.text for block in section.blocks if isinstance(block, kind)
    ]


def test_a_site_without_a_generator_is_drawn_with_one_fitted_for_the_report(folder):
    with open_site(folder) as site:
        (section,) = site_workload_sections(site, generator=GENERATOR)
    assert section.title == TITLE and "fitted for this report" in section.blocks[0].text
    assert titles(section, Drawing) == [
        "Distribution of every column",
        "Memory of the intervals",
        "Rhythm of the week",
        "Jobs per hour",
    ]
    assert titles(section, Table) == ["Real against synthetic"]
    assert "Rhythm of the week" in render("Report", [section])


def test_a_site_without_jobs_has_no_section(tmp_path):
    with make_site(tmp_path / "site") as site:
        assert site_workload_sections(site, generator=GENERATOR) == []


def test_what_keeps_a_generator_from_being_made_is_one_sentence(folder):
    with open_site(folder) as site:
        (section,) = site_workload_sections(site, generator="no-such")
    assert section.blocks == (Paragraph("No synthetic jobs could be made: Unknown generator 'no-such'."),)


def test_the_site_fits_and_samples_its_own_generator(folder):
    with pytest.raises(ModelError, match="no generator"):
        run(folder, "sample", "-n", 3)
    with pytest.raises(UsageError, match="learns from all of its jobs"):
        run(folder, "fit", "--since", "2026-01-01")
    told = json.loads(run(folder, "fit", "--model", GENERATOR, "--json"))
    assert told["training"] == "synth-1" and told["n_train"] > 100
    made = pl.read_csv(io.StringIO(run(folder, "sample", "-n", 40)))
    assert made.height == 40 and made["user"].str.starts_with("user").all()


def test_the_generator_in_use_is_shown_with_its_scorecard(folder):
    with open_site(folder) as site:
        put_generator(site)
        (section,) = site_workload_sections(site)
    assert "which is in use" in section.blocks[0].text
    assert titles(section, Table) == ["Scorecard: learnt from odd weeks, judged on even ones"]


def test_a_scorecard_has_ideal_and_floor_and_a_verdict():
    rows = {row[0]: row for row in scorecard_table("Scorecard", scores_of(CARD)).rows}
    interval, order = rows["Distribution: interval"], rows["Lag-1 autocorrelation"]
    assert interval[1:5] == (0.04, 0.0, 0.03, "near") and order[1:5] == (0.1, 0.5, 0.48, "off")


def test_usefulness_is_told_where_it_was_measured():
    assert usefulness_tables(CARD) == []
    areas = {"pr_auc_real": 0.5, "roc_auc_real": 0.8, "pr_auc_synthetic": {"mean": 0.4, "std": 0.1, "n": 2}, "ratio": 0.8}
    waits = {name: {"mean_wait_s": 60.0, "utilisation": 0.7} for name in ("real", "synthetic")}
    learnt, scheduled = usefulness_tables(
        {
            "tstr": areas,
            "schedule": {"machine": {"cores": 100, "gpus": 0}, **waits, "wait_ratio": {"mean": 2.4, "std": 0.3, "n": 2}},
        }
    )
    assert learnt.rows[1][1] == 0.4 and "80%" in learnt.note and learnt.rows[2][1] is None
    assert scheduled.rows[0] == ("real jobs", 60.0, 0.7) and "100 cores" in scheduled.note
    assert "2.40 ± 0.30 over 2 seeds times that with real ones" in scheduled.note


def test_several_synthetic_logs_stand_beside_the_real_one():
    real = made_workload(300)
    table = comparison_table({"a": fidelity_answer(real, shuffled(real)), "b": fidelity_answer(real, real)})
    rows = {row[0]: row for row in table.rows}
    assert [column.name for column in table.columns] == ["figure", "real", "a", "b", "ideal"]
    order = rows["lag-1 autocorrelation"]
    assert order[1] == order[3] > order[2] and rows["interval_s, KS"][3] == 0.0
