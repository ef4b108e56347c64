"""`stormpetrel synth`: fit, sample, evaluate and compare on a small simulated log; and what is refused, in one sentence."""

from __future__ import annotations

import contextlib
import io
import json
import signal
import subprocess
import sys

import polars as pl
import pytest
from typer.testing import CliRunner

from stormpetrel.answers.workload import fits
from stormpetrel.errors import ModelFormatError, NotEnoughJobsError, SourceFormatError, UsageError
from stormpetrel.faces.cli.main import app
from stormpetrel.faces.cli.synth.quality import names_of
from stormpetrel.faces.cli.synth.sample import _print_csv, format_of
from stormpetrel.simulate.cluster import simulate
from stormpetrel.simulate.spec import ClusterSpec
from stormpetrel.simulate.writing import write_sacct
from tests.parts import wait_until
from tests.synth.made_workloads import made_workload

COPULA = ("--model", "gaussian-copula")


def run(*words, site=None, code=0):
    done = CliRunner().invoke(app, [*(["--site", str(site)] if site else []), "synth", *map(str, words)], env={"COLUMNS": "200"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done.output


def as_json(*words, site=None):
    return json.loads(run(*words, "--json", site=site))


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "sacct.txt"
    write_sacct(simulate(ClusterSpec(jobs=600, days=None, nodes=8)), path)
    return path


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table of jobs over three weeks, as another tool would write it."""
    path = tmp_path_factory.mktemp("table") / "jobs.csv"
    made_workload(600, weeks=4).jobs.with_columns(license=pl.Series(["a", "b", "c"] * 200)).write_csv(path)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory, log):
    folder = tmp_path_factory.mktemp("model") / "model"
    run("fit", log, *COPULA, "-o", folder)
    return folder


# --- fit ----------------------------------------------------------------------------------------------------------------------


def test_fit_says_what_was_learnt(log, tmp_path):
    told = as_json("fit", log, *COPULA, "-o", tmp_path / "made", "--skip", 100)
    assert told["jobs"] == 500 and told["users"] > 1 and told["generator"] == "gaussian-copula"
    assert "runtime_s" in told["columns"] and "wait_s" not in told["columns"]
    assert (tmp_path / "made" / "model.json").is_file()


def test_several_fits_side_by_side_are_those_of_single_ones_to_the_byte(log, tmp_path):
    told = as_json("fit", log, "--model", "private,gaussian-copula", "--seeds", 2, "-o", tmp_path / "many", "--workers", 2)
    names = ["private-0", "private-1", "gaussian-copula-0", "gaussian-copula-1"]
    assert [learnt["model"] for learnt in told["models"]] == [str(tmp_path / "many" / name) for name in names]
    assert sorted(path.name for path in (tmp_path / "many").iterdir()) == sorted(names)
    run("fit", log, *COPULA, "--seed", 1, "-o", tmp_path / "single")
    for single in (tmp_path / "single").iterdir():
        assert (tmp_path / "many" / "gaussian-copula-1" / single.name).read_bytes() == single.read_bytes()
    with pytest.raises(UsageError, match="is there already"):
        run("fit", log, "--seeds", 2, "-o", tmp_path / "many")


def test_fits_that_were_ended_go_on_and_only_what_is_missing_is_fitted(log, tmp_path, monkeypatch):
    words = ("fit", log, "--model", "gaussian-copula", "--seeds", 3, "-o", tmp_path / "many")
    fitted, fit = [], fits._Fit.__call__

    def ended_in_the_second(work, plan, progress):
        fitted.append(plan.name)
        if len(fitted) == 2:
            raise RuntimeError
        return fit(work, plan, progress)

    monkeypatch.setattr(fits._Fit, "__call__", ended_in_the_second)
    with pytest.raises(RuntimeError):
        run(*words)
    run(*words)
    assert fitted == ["gaussian-copula-0", *(f"gaussian-copula-{seed}" for seed in (1, 1, 2))]
    assert sorted(path.name for path in (tmp_path / "many").iterdir()) == [f"gaussian-copula-{seed}" for seed in range(3)]
    monkeypatch.undo()
    run("fit", log, "--model", "gaussian-copula", "--seeds", 3, "-o", tmp_path / "whole")
    for path in sorted((tmp_path / "whole").rglob("*")):
        if path.is_file():
            assert (tmp_path / "many" / path.relative_to(tmp_path / "whole")).read_bytes() == path.read_bytes()


def test_one_fit_is_not_divided_and_several_need_a_folder(log, tmp_path):
    with pytest.raises(UsageError, match="One fit uses the cores of one machine"):
        run("fit", log, *COPULA, "-o", tmp_path / "made", "--workers", 2)
    with pytest.raises(UsageError, match="No folder for the models"):
        run("fit", "--seeds", 2)


def test_fit_in_words_names_columns_and_the_next_command(log, tmp_path):
    words = run("fit", log, *COPULA, "-o", tmp_path / "made")
    assert "600 jobs of" in words and "Columns: user" in words and "synth sample" in words


def test_columns_that_nobody_knows_are_learnt_and_made(table, tmp_path):
    assert "license" in as_json("fit", table, *COPULA, "-o", tmp_path / "made")["columns"]
    made = pl.read_csv(io.StringIO(run("sample", tmp_path / "made", "-n", 50)))
    assert set(made["license"]) <= {"a", "b", "c"}


def test_a_model_is_never_overwritten_and_that_is_said_before_anything_is_read(tmp_path):
    with pytest.raises(UsageError, match="is there already"):
        run("fit", "no-such-file", "-o", tmp_path)


def test_files_without_a_place_for_the_model_are_refused(log):
    with pytest.raises(UsageError, match="-o MODEL"):
        run("fit", log)


def test_a_setting_that_a_generator_lacks_is_named(log, tmp_path):
    with pytest.raises(UsageError, match="has no --epochs"):
        run("fit", log, *COPULA, "--epochs", 3, "-o", tmp_path / "made")


def test_an_unknown_generator_is_refused_with_the_nearest(log, tmp_path):
    with pytest.raises(UsageError, match="Did you mean 'ctgan'"):
        run("fit", log, "--model", "ctgn", "-o", tmp_path / "made")


def test_nothing_left_after_skip_and_since_is_one_sentence(log, tmp_path):
    for words in (("--skip", 600), ("--since", "2999-01-01")):
        with pytest.raises(NotEnoughJobsError, match="No job is left"):
            run("fit", log, *COPULA, "-o", tmp_path / "made", *words)


def test_since_leaves_out_what_is_older(table, tmp_path):
    told = as_json("fit", table, *COPULA, "-o", tmp_path / "made", "--since", "2024-01-08")
    assert told["jobs"] < 600 and told["first"] >= "2024-01-08"


# --- sample -------------------------------------------------------------------------------------------------------------------


def test_jobs_are_printed_as_a_table_where_no_file_is_named(model):
    made = pl.read_csv(io.StringIO(run("sample", model, "-n", 30, "--seed", 1, "--start", "2027-01-04")))
    assert made.height == 30 and made["submit_time"][0].startswith("2027-01-04")
    assert run("sample", model, "-n", 30, "--seed", 1) != run("sample", model, "-n", 30, "--seed", 2)


def test_names_of_users_are_new(model, log):
    real = set(pl.read_csv(log, separator="|")["User"])
    made = pl.read_csv(io.StringIO(run("sample", model, "-n", 200)))
    assert not real & set(made["user"])


def test_a_scheduler_says_on_which_machine_and_that_jobs_were_too_large_for_it(model, tmp_path):
    plan = as_json("sample", model, "-n", 300, "--schedule", "-o", tmp_path / "fits.csv")["schedule"]
    assert plan["cores"] > 1 and plan["mean_wait_s"] >= 0 and plan["too_large"] == 0
    words = run("sample", model, "-n", 300, "--schedule", "--cores", 1, "-o", tmp_path / "small.csv")
    assert "on 1 cores" in words and "larger than this machine" in words


def test_texts_that_come_out_again_are_named(table, tmp_path):
    assert any(
        "The texts of license come out again" in note for note in as_json("fit", table, *COPULA, "-o", tmp_path / "m")["notes"]
    )


def test_a_file_where_a_model_is_wanted_is_told_so(log):
    with pytest.raises(ModelFormatError, match="is a file and no model"):
        run("sample", log, "-n", 5)


def test_a_scheduler_gives_waits_where_they_are_asked_for(model):
    made = pl.read_csv(io.StringIO(run("sample", model, "-n", 300, "--schedule", "--cores", 64, "--gpus", 0)))
    assert made["wait_s"].min() >= 0 and made["wait_s"].max() > 0
    assert "wait_s" not in run("sample", model, "-n", 3).splitlines()[0]


@pytest.mark.parametrize("name", ["out.swf", "out.swf.gz", "out.sacct", "out.csv", "out.parquet"])
def test_what_is_written_reads_back_as_that_many_jobs(model, name, tmp_path):
    told = as_json("sample", model, "-n", 300, "-o", tmp_path / name, "--schedule")
    assert told["jobs"] == 300 and told["users"] > 1 and told["core_hours"] > 0
    again = as_json("fit", tmp_path / name, *COPULA, "-o", tmp_path / "again")
    assert again["jobs"] == 300 and again["users"] == told["users"]


def test_a_folder_becomes_a_site_once(model, tmp_path):
    words = run("sample", model, "-n", 200, "-o", f"{tmp_path}/site/")
    assert (tmp_path / "site" / "feed" / "sacct").exists() and "stormpetrel demo" in words
    with pytest.raises(UsageError, match="is there already"):
        run("sample", model, "-n", 200, "-o", f"{tmp_path}/site/")


def test_a_name_that_says_no_format_is_refused(model, tmp_path):
    assert format_of("out", "swf") == "swf" and format_of(None, None) == "csv" and format_of("new/", None) == "site"
    with pytest.raises(UsageError, match="does not say"):
        run("sample", model, "-n", 3, "-o", tmp_path / "out.doc")
    with pytest.raises(UsageError, match="Known: csv"):
        format_of("x", "xml")


def test_wishes_that_make_no_sense_together_are_refused(model, tmp_path):
    with pytest.raises(UsageError, match="Both a number of jobs"):
        run("sample", model, "-n", 3, "--days", 2)
    with pytest.raises(UsageError, match="--schedule"):
        run("sample", model, "-n", 3, "--cores", 8)
    with pytest.raises(UsageError, match="Add -o FILE"):
        run("sample", model, "-n", 3, "--json")
    with pytest.raises(UsageError, match="Only CSV is printed"):
        run("sample", model, "-n", 3, "--as", "swf")
    with pytest.raises(UsageError, match="not a day"):
        run("sample", model, "--start", "tomorrow")


def test_a_folder_that_is_no_model_is_one_sentence(tmp_path):
    with pytest.raises(ModelFormatError, match="synth fit FILE"):
        run("sample", tmp_path, "-n", 3)


def interrupted(running: subprocess.Popen[bytes]) -> int:
    """Press Ctrl-C, and again where nothing happens: one that falls into a library's callback is lost, as Python says."""
    for _ in range(15):
        running.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return running.wait(20)
    raise AssertionError("it does not end")


def test_ctrl_c_leaves_no_half_file(model, tmp_path):
    target = tmp_path / "out.csv"
    # A shell in the background has its children ignore Ctrl-C: this one listens.
    code = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "from stormpetrel.faces.cli.main import app; app(['synth', *sys.argv[1:]])"
    words = [sys.executable, "-c", code, "sample", str(model), "-n", "50000000", "-o", str(target)]
    running = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: any(tmp_path.iterdir()) or running.poll() is not None, "it writes", limit_s=60)
        assert running.poll() is None
        assert interrupted(running) != 0
    finally:
        running.kill()
        running.wait(10)
    assert list(tmp_path.iterdir()) == []


# --- evaluate -----------------------------------------------------------------------------------------------------------------

KEYS = {
    "columns", "lag1", "acf_mae", "dispersion", "hour_profile_tv", "same_user_share", "c2st_row", "c2st_sequence",
    "exact_copies", "nearest_record_ratio", "membership_auc", "tstr", "floor",
}  # fmt: skip


def test_a_pair_has_every_figure_of_the_scorecard_and_says_what_it_cannot_tell(table):
    found = as_json("evaluate", "--real", table, "--synthetic", "rows", "--no-tstr")
    assert set(found) >= KEYS and set(found["floor"]) >= KEYS - {"floor"}
    assert set(found["columns"]["interval_s"]) == {"ks", "w1"} and found["columns"]["runtime_s"]["ks"] < 0.1
    assert found["lag1"]["real"] > found["lag1"]["synthetic"] and found["c2st_sequence"] > 0.6
    assert found["tstr"] is None
    assert any("has seen the jobs that it is judged on" in note for note in found["notes"])


def test_a_generator_is_judged_on_odd_and_even_weeks_over_seeds(table):
    words = ("evaluate", table, "--model", "rows", "--odd-even", "--seeds", 2, "--no-tstr")
    found = as_json(*words)
    assert set(found["columns"]["interval_s"]["ks"]) == {"mean", "std", "n"} and found["acf_mae"]["n"] == 2
    assert found["exact_copies"]["synthetic"]["mean"] == pytest.approx(1.0)  # it gives the log's own rows away


def test_a_terminal_and_a_page_show_ideal_and_floor_beside_each_figure(table, tmp_path):
    page = tmp_path / "page.html"
    words = run("evaluate", table, "--model", "rows", "--seeds", 1, "--no-tstr", "--html", page)
    assert "ideal" in words and "floor" in words and "Lag-1 autocorrelation" in words and "1 seed" in words
    text = page.read_text()
    assert "Scorecard" in text and "Side by side" in text and "real (even weeks)" in text


def test_usefulness_is_measured_or_said_to_be_impossible(log, table):
    found = as_json("evaluate", "--real", log, "--synthetic", "rows")
    assert found["schedule"]["real"]["mean_wait_s"] >= 0 and found["schedule"]["machine"]["cores"] > 0
    assert found["tstr"] is None or 0 <= found["tstr"]["pr_auc_synthetic"] <= 1
    assert found["tstr"] is not None or any(note.startswith("tstr: ") for note in found["notes"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--real", "a"), "go together"),
        (("a", "--real", "a", "--synthetic", "b"), "Name either"),
        (("a", "--held-out", "b"), "belongs to a pair"),
    ],
)
def test_questions_that_make_no_sense_are_refused(words, said):
    with pytest.raises(UsageError, match=said):
        run("evaluate", *words)


def test_unknown_states_are_refused(table):
    with pytest.raises(UsageError, match="--failed"):
        run("evaluate", table, "--model", "rows", "--failed", "BROKEN")


def test_a_log_of_thirty_jobs_is_told_to_be_too_short(tmp_path):
    made_workload(30, weeks=0.5).jobs.write_csv(tmp_path / "short.csv")
    with pytest.raises(NotEnoughJobsError, match="longer log"):
        run("evaluate", tmp_path / "short.csv", "--model", "rows")


# --- compare ------------------------------------------------------------------------------------------------------------------


def test_files_models_and_generators_are_drawn_side_by_side(table, tmp_path):
    made_workload(400, seed=3).jobs.write_parquet(tmp_path / "other.parquet")
    run("fit", table, *COPULA, "-o", tmp_path / "model")
    page = tmp_path / "page.html"
    words = run("compare", table, tmp_path / "other.parquet", tmp_path / "model", "rows", "-o", page)
    assert all(name in words for name in ("other", "model", "rows", "interval_s, KS", "lag-1"))
    text = page.read_text()
    assert "Distribution of every column" in text and '"name":"other"' in text and "cdn.plot.ly" not in text.split("<body>")[1]


def test_generators_that_workers_fit_compare_as_those_of_one_process(table, tmp_path):
    made_workload(400, seed=3).jobs.write_parquet(tmp_path / "other.parquet")
    words = ("compare", table, "rows", tmp_path / "other.parquet", "gaussian-copula")
    here, there = as_json(*words), as_json(*words, "--workers", 2)
    assert there == here and list(here["synthetic"]) == ["rows", "other", "gaussian-copula"]


def test_a_picture_is_written(table, tmp_path):
    told = as_json("compare", table, "rows", "--names", "rows of the log", "-o", tmp_path / "page.png")
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG") and list(told["synthetic"]) == ["rows of the log"]


def test_each_name_is_given_once():
    assert names_of(["a/x.csv.gz", "b/x.csv", "real.swf"], None) == ["x", "x (2)", "real (2)"]
    with pytest.raises(UsageError, match="1 names for 2"):
        names_of(["a", "b"], "one")


def test_what_is_neither_file_nor_model_nor_generator_is_refused(table, tmp_path):
    with pytest.raises(UsageError, match="no file, no model folder and no generator"):
        run("compare", table, "copulagam")
    with pytest.raises(UsageError, match="holds no generator"):
        run("compare", table, tmp_path)
    with pytest.raises(UsageError, match="neither a page nor a picture"):
        run("compare", table, "rows", "-o", tmp_path / "page.pdf")
    with pytest.raises(UsageError, match="cannot be written"):
        run("compare", table, "rows", "-o", tmp_path / "no" / "page.png")


def test_a_table_without_times_says_what_is_expected(tmp_path):
    (tmp_path / "x.csv").write_text("colour,size\nred,1\n")
    with pytest.raises(SourceFormatError):
        run("compare", tmp_path / "x.csv", "rows")


def test_logs_and_tables_are_not_mixed(log, table, tmp_path):
    with pytest.raises(UsageError, match="one kind at a time"):
        run("fit", log, table, *COPULA, "-o", tmp_path / "made")


def test_a_hostile_file_name_is_shown_and_not_obeyed(tmp_path):
    name = tmp_path / "x\x1b[31m<b>.csv"
    made_workload(100, weeks=1).jobs.write_csv(name)
    words = run("compare", name, "rows", "--names", "\x1b[31m<script>", "-o", tmp_path / "page.html")
    assert "\x1b" not in words and "\\x1b" in words
    assert "<script>alert" not in (tmp_path / "page.html").read_text() and "&lt;b&gt;" in (tmp_path / "page.html").read_text()


def test_what_is_printed_as_csv_holds_no_formula():
    printed = []
    _print_csv(iter([pl.DataFrame({"partition": ["=HYPERLINK(1)", "normal"]})]), printed.append)
    assert printed == ["partition\n'=HYPERLINK(1)\nnormal\n"]
