"""The commands of the jobs family on a simulated site: train, predict, check, why, explain, advise, evaluate; and bad input."""

from __future__ import annotations

import io
import json
import re
import shutil
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from stormpetrel.errors import ModelError, ModelFormatError, NotEnoughJobsError, SourceFormatError, StormpetrelError, UsageError
from stormpetrel.faces.cli.main import app
from stormpetrel.jobs import features
from stormpetrel.simulate.cluster import simulate
from stormpetrel.simulate.spec import ClusterSpec
from stormpetrel.simulate.writing import write_sacct
from stormpetrel.sources.scripts import job_script
from stormpetrel.store.site import open_site
from tests.builders import SACCT_FIELDS, Job, make_jobs, make_site, sacct_line
from tests.builders import write_sacct as write_jobs
from tests.jobs.logs import one_thread
from tests.lifecycle.sites import few_trees
from tests.parts.command_line import change_settings


@pytest.fixture(scope="module", autouse=True)
def _few_trees_on_one_thread():
    with one_thread(), few_trees():
        yield


def run(*words, code=0, stdin=None):
    done = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"}, input=stdin)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done.output


def as_json(*words):
    return json.loads(run(*words, "--json"))


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "sacct.txt"
    write_sacct(simulate(ClusterSpec(jobs=1000, days=None, nodes=8)), path)
    return path


@pytest.fixture(scope="module")
def site(tmp_path_factory, log):
    folder = tmp_path_factory.mktemp("trained") / "site"
    make_site(folder).close()
    run("--site", folder, "ingest", "jobs", log)
    run("--site", folder, "jobs", "train")
    return folder


def jobs_of(folder, state):
    with open_site(folder) as opened:
        return opened.jobs.read_jobs().filter(pl.col("state") == state).sort("submit_time").collect()


def script(folder, text, name="job.sh"):
    path = Path(folder) / name
    path.write_text(text)
    return path


def test_training_enters_a_version_for_each_moment_and_the_next_one_counts_up(site):
    entries = as_json("--site", site, "jobs", "train", "--at", "submit")
    assert [entry["name"] for entry in entries] == ["jobs-profiles", "jobs-submit"]
    assert {entry["version"] for entry in entries} >= {2}
    with open_site(site) as opened:
        assert {v.name for v in opened.models.versions() if v.current} == {
            "jobs-profiles",
            "jobs-submit",
            "jobs-start",
            "jobs-2min",
        }
        assert opened.models.current("jobs-submit").about["table_version"] == opened.jobs.table.version()


def test_a_training_that_dies_half_way_changes_nothing(site, monkeypatch):
    with open_site(site) as opened:
        before = opened.models.versions()
    monkeypatch.setattr("stormpetrel.jobs.model.JobOutcomeModel.save", lambda self, folder: folder.mkdir() or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run("--site", site, "jobs", "train", "--at", "submit")
    monkeypatch.undo()
    with open_site(site) as opened:
        assert [v for v in opened.models.versions() if v.current] == [v for v in before if v.current]
    run("--site", site, "jobs", "train", "--at", "submit")


def test_check_gives_risk_reasons_and_the_words_of_the_script(site, tmp_path):
    job = jobs_of(site, "OUT_OF_MEMORY").row(-1, named=True)
    gib = job["req_mem_bytes"] // 2**30
    text = f"#!/bin/bash\n#SBATCH --job-name={job['job_name']}\n#SBATCH --mem={gib}G\n#SBATCH --time=01:00:00\nsrun ./a\n"
    answer = as_json("--site", site, "check", script(tmp_path, text), "--user", job["user"])
    assert 0 < answer["risk"] < 1 and answer["known"] and len(answer["reasons"]) == 12
    assert set(answer["outcomes"]) <= {"FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "CANCELLED"}
    shown = run("--site", site, "check", tmp_path / "job.sh", "--user", job["user"])
    assert re.search(r"\d+ % risk of failing", shown) and "raises" in shown and f"{gib} GB" in shown


def test_check_ends_with_three_above_the_risk_that_was_named(site, tmp_path):
    path = script(tmp_path, "#!/bin/bash\n#SBATCH -n 4\n./a\n")
    run("--site", site, "check", path, "--fail-above", "0", code=3)
    run("--site", site, "check", path, "--fail-above", "1", code=0)


@pytest.mark.parametrize("words", [["-"], [], ["--", "-c", "4", "-"], ["--", "-c", "4"]])
def test_check_reads_standard_input_as_sbatch_does(site, words):
    shown = run("--site", site, "check", *words, stdin="#!/bin/bash\n#SBATCH -c 8 --mem=2G\n./a\n")
    assert f"stdin requests {4 if words[1:] else 8} CPUs, 2 GB" in shown


def test_check_of_an_empty_standard_input_says_what_to_name(site):
    with pytest.raises(UsageError, match="Standard input is empty"):
        run("--site", site, "check", stdin="\n")


def test_a_script_from_standard_input_is_read_up_to_a_limit(monkeypatch):
    text = b"#!/bin/bash\n#SBATCH -c 8\n" + b"# data\n" * 20
    monkeypatch.setattr(job_script, "MAX_READ_BYTES", 60)
    request = job_script.read_job_input(io.BytesIO(text))
    assert request.columns["req_cpus"] == 8 and any("looked at" in warning for warning in request.warnings)


def test_check_of_a_stranger_says_that_it_does_not_know(site, tmp_path):
    path = script(tmp_path, "#!/bin/bash\n#SBATCH -n 4 -J never-seen-before\n./a\n")
    assert "I do not know this user" in run("--site", site, "check", path, "--user", "stranger")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.pbs", "#!/bin/bash\n#PBS -l select=1:ncpus=4:mem=8gb,walltime=01:00:00\n./a\n"),
        ("a.sub", "executable = a\nrequest_cpus = 4\nrequest_memory = 8 GB\nqueue 3\n"),
    ],
)
def test_check_reads_other_schedulers(site, tmp_path, name, text):
    assert "4 CPUs, " in run("--site", site, "check", script(tmp_path, text, name))


def test_a_new_site_is_told_that_general_experience_speaks(tmp_path, log):
    folder = tmp_path / "site"
    make_site(folder).close()
    text = script(tmp_path, "#!/bin/bash\n#SBATCH -n 4\n./a\n")
    assert "No history of this site yet" in run("--site", folder, "check", text), "even before the first job"
    run("--site", folder, "ingest", "jobs", log)
    assert "risk of failing" in run("--site", folder, "check", text)
    assert "No history of this site yet" in run("--site", folder, "jobs", "predict", "--last", "5")
    listed = run("--site", folder, "models", "list")
    assert "in use" in listed and "prior-1" in listed
    in_use = json.loads(run("--site", folder, "models", "list", "--json"))[0]
    assert in_use["current"] and set(in_use["models"].values()) == {-1}


def test_check_without_a_model_still_advises_and_says_how_to_train(tmp_path, log):
    folder = tmp_path / "site"
    make_site(folder, jobs={"prior": False}).close()
    run("--site", folder, "ingest", "jobs", log)
    shown = run("--site", folder, "check", script(tmp_path, "#!/bin/bash\n#SBATCH -n 4\n./a\n"))
    assert "No risk can be given" in shown and "stormpetrel jobs train" in shown
    with pytest.raises(ModelError, match="jobs train"):
        run("--site", folder, "jobs", "predict")


def test_why_tells_what_happened_and_what_to_ask_for(site):
    job = jobs_of(site, "OUT_OF_MEMORY").row(-1, named=True)
    shown = run("--site", site, "why", job["job_id"])
    assert f"Job {job['job_id']}" in shown and "OUT_OF_MEMORY" in shown and "Next time: Ask for" in shown
    answer = as_json("--site", site, "why", job["job_id"])
    assert answer["job"]["state"] == "OUT_OF_MEMORY"
    assert next(iter(answer["at"])) == "submit" and answer["next"]["column"] == "req_mem_bytes"
    assert answer["next"]["proposed"] > job["req_mem_bytes"]


def test_the_reasons_of_a_job_add_up_to_its_risk_in_points_and_in_log_odds(site, tmp_path):
    from math import log

    job = jobs_of(site, "COMPLETED").row(-1, named=True)
    asked = ("--site", site, "jobs", "explain", job["job_id"], "--at", "submit")
    shown = run(*asked, "--top", "5", "--plot", tmp_path / "w.html")
    risk = as_json(*asked)
    points = [float(word.replace("−", "-")) for word in re.findall(r"^ +[±]?([+−]?\d+(?:\.\d)?) points?: ", shown, re.MULTILINE)]
    assert len(points) == 6 and 100 * risk["base_risk"] + sum(points) == pytest.approx(100 * risk["risk"], abs=3)
    shown = run(*asked, "--top", "1000", "--log-odds")
    parts = [float(word) for word in re.findall(r"^ +([+-]\d+\.\d\d) log-odds: ", shown, re.MULTILINE)]
    assert sum(parts) == pytest.approx(log(risk["risk"] / (1 - risk["risk"])), abs=0.005 * len(parts))
    assert "plotly" in (tmp_path / "w.html").read_text()


def test_predict_has_the_columns_of_the_published_table(site):
    rows = as_json("--site", site, "jobs", "predict", "--last", "30")
    assert len(rows) == 30
    assert {"job", "user", "start_time", "prediction", "confidence", "risk", "at", "known"} <= set(rows[0])
    assert [row["risk"] for row in rows] == sorted((row["risk"] for row in rows), reverse=True)
    assert all(row["prediction"] in ("Fail", "Complete") and 0 <= row["confidence"] <= 100 for row in rows)
    assert "risk of failing" in run("--site", site, "jobs", "predict", "--last", "3", "--at", "submit")


def test_the_threshold_is_a_setting(site):
    change_settings(site, jobs={"threshold": 1.0})
    assert {row["prediction"] for row in as_json("--site", site, "jobs", "predict", "--last", "50")} == {"Complete"}
    change_settings(site, jobs={"threshold": 0.0})


def test_advise_answers_in_sentences(site):
    job = jobs_of(site, "TIMEOUT").row(-1, named=True)
    assert "Ask for" in run("--site", site, "jobs", "advise", job["job_id"])
    assert as_json("--site", site, "jobs", "advise", job["job_id"])[0]["sentence"]


def test_recalibration_is_printed_below_the_fixed_threshold_with_both_working_points(log):
    shown = run("jobs", "evaluate", log, "--at", "submit", "--flags-per-day", "4")
    assert "recalibrated online" in shown
    assert "4 promised" in shown


def test_evaluate_needs_no_site_and_prints_the_baselines(log, tmp_path):
    answer = as_json("jobs", "evaluate", log, "--at", "submit,2min", "--plot", tmp_path / "e.html")
    assert list(answer["at"]) == ["submit", "2min"]
    assert set(answer["at"]["submit"]["baselines"]) == {"last_outcome", "user_rate", "xgboost"}
    assert set(answer["at"]["2min"]["same_jobs"]) == {"submit"}
    assert (tmp_path / "e.html").stat().st_size > 1e6
    shown = run("jobs", "evaluate", log, "--at", "submit", "--refit")
    assert "user's last outcome" in shown and "Refitted every week" in shown


def test_evaluate_prints_table_one_under_the_published_protocol(log):
    answer = as_json("jobs", "evaluate", log, "--protocol", "seed")
    rows = {(row["split"], row["model"], row["part"]) for row in answer["table1"]}
    assert ("random", "xgboost_active_learning", "test") in rows and ("time", "xgboost", "train") in rows
    assert "As published" in run("jobs", "evaluate", log, "--protocol", "seed")


# --- bad input ----------------------------------------------------------------------------------------------------------------


def write(path, jobs):
    return write_jobs(path, jobs)


@pytest.mark.parametrize(
    ("jobs", "sentence"),
    [
        (make_jobs(10, failed=3), "10 ended jobs, 3 of them failed"),
        (make_jobs(400), "400 ended jobs, 0 of them failed"),
    ],
    ids=["ten jobs", "one class"],
)
def test_a_log_that_nothing_can_be_learnt_from_is_one_sentence(tmp_path, jobs, sentence):
    with pytest.raises(NotEnoughJobsError, match=sentence) as caught:
        run("jobs", "evaluate", write(tmp_path / "log", jobs))
    assert "--failed" in str(caught.value)


def mixed(n=400, **changes):
    return [
        Job(**{**{f: getattr(job, f) for f in ("job_id", "submit", "name", "user", "state", "run_s")}, **changes})
        for job in make_jobs(n, failed=n // 4)
    ]


def test_a_log_without_users_is_evaluated(tmp_path):
    text = [SACCT_FIELDS, *(sacct_line(job) for job in mixed(user=""))]
    path = tmp_path / "log"
    path.write_text("\n".join(text) + "\n")
    assert as_json("jobs", "evaluate", path, "--at", "submit")["at"]["submit"]["model"]["n_test"] > 0


def test_a_new_state_goes_to_quarantine_and_the_rest_is_evaluated(tmp_path):
    odd = [Job(job_id=9_000 + k, submit=make_jobs(1)[0].submit, state="WONDERFUL") for k in range(3)]
    answer = as_json("jobs", "evaluate", write(tmp_path / "log", [*mixed(), *odd]), "--at", "submit")
    assert any("3 records were refused" in note for note in answer["notes"])


def test_time_that_goes_backwards_is_evaluated(tmp_path):
    answer = as_json("jobs", "evaluate", write(tmp_path / "log", mixed()[::-1]), "--at", "submit,start")
    assert answer["split"]["usable"] == 400


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(b"\x7fELF\x00\x00\x01", "not a job script"), (b"", "empty"), (b"x" * (50 << 20), "50")],
    ids=["binary", "empty", "50 MB"],
)
def test_a_script_that_is_none_is_refused_in_one_sentence(site, tmp_path, content, sentence):
    path = tmp_path / "job.sh"
    path.write_bytes(content)
    with pytest.raises(StormpetrelError) as caught:
        run("--site", site, "check", path)
    assert "\n" not in str(caught.value) and str(path.name) in str(caught.value), sentence


def test_unknown_options_are_named_and_the_rest_is_answered(site, tmp_path):
    shown = run("--site", site, "check", script(tmp_path, "#!/bin/bash\n#SBATCH --frobnicate=3\n#SBATCH -n 4\n./a\n"))
    assert "frobnicate" in shown and "risk of failing" in shown


def test_a_model_of_other_columns_is_refused_in_one_sentence(site, tmp_path, monkeypatch):
    copy = tmp_path / "copy"
    shutil.copytree(site, copy)
    monkeypatch.setattr("stormpetrel.jobs.features._MARGINS", features._MARGINS[:1])
    with pytest.raises(ModelFormatError, match="trained on other columns") as caught:
        run("--site", copy, "jobs", "predict", "--last", "3")
    assert "stormpetrel jobs train" in str(caught.value)


def test_a_damaged_model_is_refused_in_one_sentence(site, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(site, copy)
    for path in (copy / "models").rglob("risk.json"):
        path.write_text(path.read_text().replace("1", "2", 1))
    with pytest.raises(ModelFormatError, match="not the one that this site entered"):
        run("--site", copy, "jobs", "predict", "--last", "3")


@pytest.mark.parametrize("words", [("why", "abc"), ("why", "999999999"), ("jobs", "explain", "1 OR 1=1")])
def test_a_job_that_is_not_there_is_said_so(site, words):
    with pytest.raises(UsageError, match="job"):
        run("--site", site, *words)


@pytest.mark.parametrize(
    "words",
    [
        ("--protocol", "magic"),
        ("--at", "noon"),
        ("--failed", "BROKEN"),
        ("--since", "tomorrow"),
    ],
)
def test_wrong_words_are_named_with_what_is_known(log, words):
    with pytest.raises(UsageError):
        run("jobs", "evaluate", log, *words)


def test_a_file_that_is_no_log_is_refused(tmp_path):
    path = tmp_path / "x.swf"
    path.write_text("; only a comment\n")
    with pytest.raises(SourceFormatError):
        run("jobs", "evaluate", path)
