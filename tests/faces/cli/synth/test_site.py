"""`stormpetrel synth sample --with`: a whole site, for the demo or to share; and the demo shows the traces of its own jobs."""

from __future__ import annotations

import json

import polars as pl
import pytest
from typer.testing import CliRunner

from stormpetrel.answers.nodes.board import jobs_of
from stormpetrel.answers.workload.recorded_site import ALONGSIDE, Alongside, record_whole_site
from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.demo import command as demo
from stormpetrel.faces.cli.demo import models as demo_models
from stormpetrel.faces.cli.main import app
from stormpetrel.store.site import Site, open_site
from tests.builders import table_of
from tests.parts.command_line import report_of
from tests.parts.command_line import run as run_whole
from tests.synth.writers.sample_workload import made_workload

ADDRESS = "127.0.0.1:8050"  # where the demo answers; nobody listens there

BOTH = frozenset(ALONGSIDE)


def run(*words: object) -> str:
    done = CliRunner().invoke(app, ["synth", *map(str, words)], env={"COLUMNS": "200"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    made = tmp_path_factory.mktemp("model")
    made_workload(400).drop("array", "colour", "weight").write_csv(made / "jobs.csv")
    run("fit", made / "jobs.csv", "--model", "gaussian-copula", "-o", made / "model")
    return made / "model"


def test_a_plain_folder_holds_jobs_traces_and_events(model, tmp_path):
    words = ("-n", 300, "--as", "folder", "--with", "traces,events", "--trace-hours", 0.3, "--trace-nodes", 1, "--json")
    told = json.loads(run("sample", model, *words, "-o", tmp_path / "shared"))
    assert told["events"]["Submit"] == told["jobs"] == 300 and told["traces"]["nodes"] == 1
    assert sorted(path.name for path in (tmp_path / "shared").iterdir()) == ["README.txt", "events.log", "jobs.sacct", "traces"]


def test_a_site_says_what_lies_beside_the_jobs(model, tmp_path):
    said = run("sample", model, "-n", 300, "--with", "events, traces", "--trace-hours", 0.3, "-o", f"{tmp_path}/site/")
    assert " Submit" in said and "threads on" in said and "stormpetrel demo" in said
    assert sorted(path.name for path in (tmp_path / "site").iterdir()) == ["events.log", "feed", "traces"]


@pytest.mark.parametrize(
    ("words", "said"),
    [(("--with", "dust", "-o", "x/"), "dust is not known"), (("--with", "events", "-o", "x.csv"), "in a folder")],
)
def test_wishes_that_make_no_sense_are_refused(model, words, said):
    with pytest.raises(UsageError, match=said):
        run("sample", model, "-n", 10, *words)


def owners(site: Site, windows: pl.DataFrame) -> pl.DataFrame:
    """The windows that name a job, with the job that the page Nodes finds for each."""
    task = pl.concat_str(pl.lit("_"), pl.col("array_task")).fill_null("")
    jobs = table_of(site).with_columns(job=pl.concat_str(pl.col("job_id"), task))
    named = windows.filter(pl.col("job_id").is_not_null())
    found = jobs_of(named.with_columns(window_s=pl.lit(100.0)), jobs)
    return named.join(found, on=["cluster", "job_id", "window_start"], how="left")


def test_the_demo_takes_in_the_traces_of_its_own_jobs(tmp_path):
    record_whole_site(tmp_path / "mine", [made_workload(500)], Alongside(BOTH, hours=0.5))
    with demo._open_or_create(tmp_path / "mine", ADDRESS) as site:
        demo._stop_clock(site, quiet=True)
        demo._ingest_live(site, quiet=True)
        assert demo_models._take_in_own(site)
        shown = owners(site, site.cpu_windows.read().collect())
    assert shown.height > 200 and shown["ref"].null_count() == 0 and shown["user"].n_unique() > 3
    assert (tmp_path / "mine" / "events.log").exists() and not list(tmp_path.glob(".*")), "nothing is left beside it"


def test_a_demo_killed_between_two_moves_puts_everything_back(tmp_path):
    record_whole_site(tmp_path / "mine", [made_workload(300)], Alongside(frozenset({"events"})))
    (tmp_path / "mine" / "feed").rename(tmp_path / ".mine.feed")
    (tmp_path / "mine" / "events.log").rename(tmp_path / ".mine.events.log")
    demo._open_or_create(tmp_path / "mine", ADDRESS).close()
    assert (tmp_path / "mine" / "feed" / "sacct").exists() and (tmp_path / "mine" / "events.log").exists()


@pytest.mark.slow
def test_the_whole_demo_shows_jobs_on_nodes_that_the_job_table_has(tmp_path):
    record_whole_site(tmp_path / "site", [made_workload(8_000)], Alongside(BOTH, hours=1.0))
    told = report_of(run_whole(tmp_path, "demo", str(tmp_path / "site"), "--no-serve", "--json"))
    with open_site(tmp_path / "site") as site:
        shown = owners(site, site.trace_scores.read().collect())
        assert not (site.folder / "campaigns").exists()
    assert told["windows_scored"] > 1_000 and shown["ref"].null_count() == 0
