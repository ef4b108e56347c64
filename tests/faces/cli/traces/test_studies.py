import json

import pytest
import typer
from typer.testing import CliRunner

from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.traces.studies import sampling

SMALL = ["--simulated", "--nodes", "1", "--threads", "8", "--minutes", "8"]


@pytest.fixture
def run():
    app = typer.Typer()
    app.command()(sampling)
    return lambda *words: CliRunner().invoke(app, list(words))


def test_simulated_campaigns_get_one_sentence_of_advice(run, tmp_path):
    drawn = tmp_path / "sampling.html"
    told = run(*SMALL, "--plot", str(drawn))
    assert told.exit_code == 0, told.output
    assert "Advice: scrape every " in told.stdout and "none stands out" in told.stdout
    page = drawn.read_text()
    assert page.count("plotly-graph-div") == 3 and "http" not in page.split("<script", 1)[0]


def test_the_same_as_json(run):
    told = json.loads(run(*SMALL, "--seed", "3", "--window", "60", "--json").stdout)
    assert told["window_s"] == 60 and told["seed"] == 3 and told["simulated"] is True and len(told["campaigns"]) == 5
    assert told["advice"].startswith("scrape every ")


def test_without_a_path_it_says_why_a_site_is_not_enough(run):
    told = run()
    assert isinstance(told.exception, UsageError) and "--simulated" in told.exception.hint and "windows" in told.exception.what


def test_campaign_files_are_read(run, tmp_path):
    from stormpetrel.simulate.telemetry.campaigns import CampaignSpec, simulate_campaign
    from stormpetrel.sources.trace_files import write_trace

    write_trace(simulate_campaign(CampaignSpec(name="one", nodes=1, threads_per_node=16, minutes=20)), tmp_path / "one.npz")
    told = json.loads(run(str(tmp_path), "--json").stdout)
    assert told["campaigns"] == ["one"] and told["windows"] > 100
