"""`stormpetrel events evaluate`: what people and programs read."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
import typer
from typer.testing import CliRunner

from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.events.evaluate import evaluate
from stormpetrel.faces.cli.options import Context
from tests.builders import Job, make_jobs, swf_document
from tests.events.rhythmic import broken, rhythmic_series

QUICK = ("--seeds", "1", "--workers", "1", "--models", "seasonal,pca")
app = typer.Typer()
app.command("evaluate")(evaluate)


def ran(*words):
    return CliRunner().invoke(app, [str(word) for word in words], obj=Context(None, False), catch_exceptions=False).stdout


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Twelve weeks of a job an hour or so, as an SWF log."""
    first = make_jobs(1)[0]
    jobs = [Job(job_id=n, submit=first.submit + timedelta(minutes=20 * n), run_s=600 + n % 7 * 60) for n in range(12 * 7 * 72)]
    return swf_document(jobs).write(tmp_path_factory.mktemp("logs") / "night.swf")


@pytest.fixture(scope="module")
def simulated():
    return json.loads(ran("--hours", "1680", *QUICK, "--json"))


def test_the_simulated_grid_is_judged_where_nothing_is_named(simulated):
    found = simulated["datasets"]["simulated"]
    assert found["models"] == {} and set(found["baselines"]) == {"seasonal", "pca"}
    for name in ("pr_auc", "roc_auc", "recall_at_one_per_week", "delay_hours", "false_alarms_per_week", "precision"):
        assert set(found["baselines"]["pca"][name]) == {"mean", "std", "n"}
    cells = [cell for severities in found["by_outage"].values() for cell in severities.values()]
    assert cells and all(
        set(cell) == {"seasonal", "pca"} and set(cell["pca"]) == {"recall", "delay_hours", "n"} for cell in cells
    )


def test_people_read_a_table_of_models_and_one_of_outages():
    told = ran("--hours", "1680", *QUICK)
    assert "simulated: 1 seed" in told and "seasonal z-score" in told and "PR area" in told
    assert "outages raised, by type and severity" in told and "Over all seeds together" in told


def test_a_job_log_is_counted_by_the_hour_and_named_after_its_file(log, tmp_path):
    found = json.loads(ran(log, *QUICK, "--json"))
    assert list(found["datasets"]) == ["night"]
    assert found["datasets"]["night"]["baselines"]["seasonal"]["pr_auc"]["n"] == 1
    folder = tmp_path / "logs"
    folder.mkdir()
    for name in ("a.swf", "b.swf", ".hidden"):
        (folder / name).write_bytes(log.read_bytes())
    assert list(json.loads(ran(folder, *QUICK[:-1], "seasonal", "--json"))["datasets"]) == ["a", "b"]


def test_the_figures_are_drawn_into_one_page(log, tmp_path):
    page = tmp_path / "quality.html"
    told = ran(log, *QUICK, "--plot", page)
    text = page.read_text()
    assert str(page) in told and "Outages raised, night" in text and "Models and baselines, night" in text


def test_an_outage_of_ones_own_is_judged_too(log):
    own = "tests.rehearse.outages_of_others:cooling_failure"
    found = json.loads(ran(log, *QUICK, "--outage", own, "--json"))
    assert own in found["datasets"]["night"]["by_outage"]


def test_labelled_outages_of_a_table_are_judged_and_what_was_odd_in_it_is_told(tmp_path):
    series = broken(rhythmic_series(12), (300, 310), (1900, 1910))
    table, incidents = tmp_path / "counts.csv", tmp_path / "incidents.csv"
    rows = [f"{series.moment(n).isoformat()},{row[0]:.0f},{row[2]:.0f}" for n, row in enumerate(series.counts)]
    table.write_text("time,Submit,JobDisconnected\n" + "\n".join([*rows, "never,1,1"]) + "\n")
    spans = [
        f"{series.moment(first).isoformat()},{series.moment(last).isoformat()}" for first, last in ((300, 311), (1900, 1911))
    ]
    incidents.write_text("start,end\n" + "\n".join(spans) + "\n")
    found = json.loads(ran(table, "--outages", incidents, *QUICK, "--json"))
    assert found["datasets"]["counts"]["by_outage"]["outage"]["recorded"]["seasonal"] == {
        "recall": 1.0,
        "delay_hours": 1.0,
        "n": 1,
    }
    assert any("not counted" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--models", "lstm"), "Unknown model 'lstm'"),
        (("--time-zone", "Mars/Base"), "not a time zone"),
        (("nowhere.swf",), "There is no file nowhere.swf"),
        (("--outages", "incidents.csv"), "Name the table of counts"),
        (("--hours", "500"), "too few to judge models by"),
        (("--outage", "nowhere_x:f"), "cannot be loaded"),
    ],
)
def test_what_makes_no_sense_is_said_in_one_sentence(words, said):
    with pytest.raises(UsageError, match=said):
        ran(*words, "--workers", "1")
