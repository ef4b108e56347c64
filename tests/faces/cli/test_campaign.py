"""`stormpetrel campaign run` and `campaign simulate`, as commands."""

import json

import pytest
from typer.testing import CliRunner

from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.main import app
from stormpetrel.records.traces import Split
from stormpetrel.rehearse import campaign as campaigns
from stormpetrel.rehearse.campaign_files import Campaign
from stormpetrel.rehearse.plan import JobKind
from stormpetrel.sources.trace_files import read_campaigns

FACTS = {
    "split": "train",
    "steps": 1080,
    "step_s": 1.0,
    "types": {"NP": {"thread_steps": 116, "user": 0.98, "system": 0.01, "iowait": 0.0, "other": 0.01}},
    "recording": {"exporter_check": {"steps_compared": 2000, "agree": 1990, "disagree": 10, "not_told": 0}},
    "problems": ["Job train-1.3 (MPI 2) ended before its time\x1b[31m."],
}


def invoke(*words):
    answer = CliRunner().invoke(app, ["campaign", *map(str, words)])
    if answer.exception and not isinstance(answer.exception, SystemExit):
        raise answer.exception
    return answer


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """What was asked for, with nothing run."""
    requests = []

    def run_campaign(request, _progress):
        requests.append(request)
        return Campaign(tmp_path / "train-1.npz", FACTS)

    monkeypatch.setattr("stormpetrel.answers.studies.trace_study.run_campaign", run_campaign)
    monkeypatch.setattr(campaigns, "run_campaign", run_campaign)  # which a whole set calls
    return requests


def test_the_options_of_run_become_a_request(asked, tmp_path):
    words = [
        "--split",
        "test",
        "--name",
        "night",
        "--types",
        "idle,np",
        "--seconds-per-job",
        "30",
        "--repeat",
        "2",
        "--cpus",
        "0-1",
    ]
    words += ["--prometheus", "http://127.0.0.1:9090", "--node", "n1", "--seed", "3", "--scratch", tmp_path]
    assert invoke("run", tmp_path, *words).exit_code == 0
    [request] = asked
    assert request == campaigns.CampaignRequest(
        tmp_path, Split.TEST, "night", (JobKind.NP, JobKind.IDLE), (0, 1), 30.0, 2, 3, "http://127.0.0.1:9090", "n1", tmp_path
    )


def test_a_set_runs_one_campaign_for_each_split(asked, tmp_path):
    answer = invoke("run", tmp_path, "--set", "--json")
    assert [request.split for request in asked] == [Split.TRAIN, Split.VALIDATION, Split.TEST]
    assert len(json.loads(answer.stdout)["campaigns"]) == 3


def test_people_are_told_shares_checks_and_problems_as_text(asked, tmp_path):
    said = invoke("run", tmp_path).stdout
    assert "train, 1,080 steps of 1 s" in said and "98.0%" in said
    assert "the same job for 1,990 of 2,000 steps" in said
    assert "ended before its time\\x1b[31m." in said and "\x1b" not in said


def test_a_set_with_a_split_is_refused(tmp_path):
    with pytest.raises(UsageError, match="Leave --split out"):
        invoke("run", tmp_path, "--set", "--split", "test")


def test_an_unknown_type_is_refused(tmp_path):
    with pytest.raises(UsageError, match="Unknown job type 'gpu'"):
        invoke("run", tmp_path, "--types", "np,gpu")


def test_simulated_campaigns_lie_as_recorded_ones_do(tmp_path):
    words = ["--train", 2, "--nodes", 2, "--threads", 4, "--minutes", 4, "--seed", 1, "--json"]
    told = json.loads(invoke("simulate", tmp_path, *words).stdout)["campaigns"]
    traces = read_campaigns([tmp_path])
    splits = {"test-1": Split.TEST, "train-1": Split.TRAIN, "train-2": Split.TRAIN, "validation-1": Split.VALIDATION}
    assert {trace.name: trace.split for trace in traces} == splits
    assert {trace.threads for trace in traces} == {8} and {trace.steps for trace in traces} == {240}
    assert {entry["kind"] for entry in told} == {"simulated"}
    assert json.loads((tmp_path / "train-2.json").read_text())["types"]["Idle"]["thread_steps"] > 0


def test_simulated_campaigns_never_replace_others(tmp_path):
    (tmp_path / "test-1.npz").touch()
    with pytest.raises(UsageError, match="There is a campaign test-1"):
        invoke("simulate", tmp_path, "--minutes", 3)
    assert [path.name for path in tmp_path.iterdir()] == ["test-1.npz"]


@pytest.mark.parametrize("numbers", [("0", "0", "0"), ("1", "-1", "1")])
def test_no_campaigns_at_all_are_refused(tmp_path, numbers):
    train, validation, test = numbers
    with pytest.raises(UsageError, match="cannot be made"):
        invoke("simulate", tmp_path, f"--train={train}", f"--validation={validation}", f"--test={test}")
