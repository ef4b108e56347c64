import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from stormpetrel.errors import SettingsError, UsageError
from stormpetrel.faces.cli.ingest.traces import ingest_traces
from stormpetrel.faces.cli.options import Context
from stormpetrel.records.traces import NO_JOB, Trace
from stormpetrel.sources.trace_files import write_trace
from tests.builders import make_site

app = typer.Typer()
app.command("traces")(ingest_traces)


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site", traces={"window_s": 10.0}) as opened:
        yield opened


@pytest.fixture
def campaign(tmp_path):
    """Four windows of two threads, of which one has a gap."""
    rates = np.random.default_rng(0).dirichlet(np.ones(4), size=(40, 2)).astype(np.float32)
    rates[23:29] = np.nan
    job = np.full((40, 2), NO_JOB, dtype=np.int32)
    write_trace(Trace("c1", 1.0, 1.7e9 + 1 + np.arange(40.0), ("n1", "n1"), (0, 1), rates, job), tmp_path / "c.npz")
    return str(tmp_path / "c.npz")


def run(site, *words):
    return CliRunner().invoke(app, list(words), obj=Context(site_folder=site.folder, debug=False))


def test_the_report_for_programs_adds_up_and_has_the_promised_keys(site, campaign):
    done = run(site, campaign, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    promised = "read kept known changed left_out bridged nodes threads first last seconds".split()
    assert list(told)[: len(promised)] == promised
    assert (told["read"], told["kept"], told["left_out"], told["threads"]) == (8, 6, {"gap": 2}, 2)


def test_people_read_what_was_left_out_and_which_node_was_silent(site, campaign):
    text = run(site, campaign).stdout
    assert "8 windows of 2 threads on 1 node in" in text and "6 new" in text and "2 left out (gap 2)" in text
    assert "nothing was seen of n1 from 2023-11-14 22:13:43 to 22:13:49 UTC" in text


@pytest.mark.parametrize("words", [(), ("a.npz", "--live")])
def test_files_or_live_and_not_both(site, words):
    assert isinstance(run(site, *words).exception, UsageError)


def test_live_without_an_address_says_what_to_set(site):
    problem = run(site, "--live").exception
    assert isinstance(problem, SettingsError) and "prometheus.url" in problem.hint
