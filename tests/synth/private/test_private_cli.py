"""`synth fit --model private --epsilon`: the guarantee is told, and an epsilon for another generator is refused."""

import json

import pytest
from typer.testing import CliRunner

from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.main import app
from tests.synth.made_workloads import made_workload


def fit(*words):
    done = CliRunner().invoke(app, ["synth", "fit", *map(str, words)])
    if isinstance(done.exception, Exception):
        raise done.exception
    return done.output


@pytest.fixture
def table(tmp_path):
    made_workload(200, weeks=2).jobs.write_csv(tmp_path / "jobs.csv")
    return tmp_path / "jobs.csv"


def test_the_guarantee_is_among_the_notes(table, tmp_path):
    told = json.loads(fit(table, "-o", tmp_path / "model", "--model", "private", "--epsilon", "0.5", "--json"))
    assert any("epsilon = 0.5, delta = 0" in note for note in told["notes"])


def test_an_epsilon_for_another_generator_or_below_zero_is_refused(table, tmp_path):
    with pytest.raises(UsageError, match="epsilon"):
        fit(table, "-o", tmp_path / "model", "--epsilon", "1")
    with pytest.raises(UsageError, match="epsilon"):
        fit(table, "-o", tmp_path / "model", "--model", "private", "--epsilon", "-1")
