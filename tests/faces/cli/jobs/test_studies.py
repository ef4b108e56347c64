"""The study commands: profiles, features, trends and waste, as a person and as a program reads them."""

from __future__ import annotations

import json
from datetime import timedelta

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from stormpetrel.errors import NotEnoughJobsError, UsageError
from stormpetrel.faces.cli.main import app
from stormpetrel.jobs.exam import feature_study
from tests.builders import T0, Job, make_jobs, make_site, write_sacct
from tests.jobs.logs import make_log, one_thread
from tests.lifecycle.sites import DAYS, few_trees, put_jobs


@pytest.fixture(scope="module", autouse=True)
def _few_trees_on_one_thread():
    with one_thread(), few_trees():
        yield


def run(*words, columns=160):
    done = CliRunner().invoke(app, ["jobs", *map(str, words)], env={"COLUMNS": str(columns)})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def as_json(*words):
    return json.loads(run(*words, "--json"))


def random_jobs(n, seed=0):
    """Jobs over half a year of two kinds of users: careful ones, and ones whose large jobs fail."""
    rng = np.random.default_rng(seed)
    careless, cpus = rng.random(n) < 0.4, rng.choice([1, 4, 32, 64], n)
    failed = rng.random(n) < np.where(careless & (cpus > 8), 0.7, 0.05)
    return [
        Job(
            job_id=1000 + k,
            user=f"{'bob' if careless[k] else 'ada'}{k % 4}",
            name=f"app{k % 3}",
            submit=T0 + timedelta(minutes=int(k * 260_000 / n)),
            run_s=int(rng.lognormal(6.5 if cpus[k] > 8 else 5.0, 0.7)) + 30,
            state="FAILED" if failed[k] else "COMPLETED",
            exit_code=int(failed[k]),
            cpus=int(cpus[k]),
        )
        for k in range(n)
    ]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return write_sacct(tmp_path_factory.mktemp("logs") / "jobs.txt", random_jobs(600))


@pytest.fixture
def few(tmp_path):
    return write_sacct(tmp_path / "few.txt", make_jobs(10, failed=3))


def test_profiles_say_what_was_prepared_how_many_there_are_and_what_each_is_like(log):
    text = run("profiles", log)
    assert "600 jobs, submitted 2024-03-04 to" in text
    assert "Completed" in text and "K = " in text and "Compared by CPUs" in text
    assert text.rstrip().splitlines()[-1].startswith("Next: ")


def test_profiles_count_every_job_once(log):
    found = as_json("profiles", log)
    assert found["preparation"]["rows"] == found["preparation"]["kept"] == 600
    assert sum(row["Completed"] + row["Failed"] + row["Other"] for row in found["status"]) == 600
    assert len(found["profiles"]) == found["k"] == len(found["resources"])
    assert sum(row["count"] for row in found["labels"]) == 600


def test_profiles_can_be_found_by_what_is_known_at_submission(log):
    assert set(as_json("profiles", log, "--columns", "submit", "--method", "kmeans")["columns"]) <= {
        "req_cpu", "req_node", "req_mem_gb", "time_limit_s",
    }  # fmt: skip


def test_profiles_of_ten_jobs_are_one(few):
    assert as_json("profiles", few)["k"] == 1
    assert "no mixture describes these jobs better" in run("profiles", few)


def test_a_plot_is_one_file_that_needs_nothing_else(log, tmp_path):
    assert f"{tmp_path / 'p.html'}: the figures" in run("profiles", log, "--plot", tmp_path / "p.html")
    page = (tmp_path / "p.html").read_text()
    assert page.count("Plotly.newPlot(") == 7
    assert "<link" not in page and "<script src" not in page


def test_a_plot_that_cannot_be_written_is_told_in_a_sentence(few, tmp_path):
    with pytest.raises(UsageError, match=r"cannot be written: no such file or directory\. Name a file"):
        run("trends", few, "--by", "user", "--plot", tmp_path / "nowhere" / "p.html")


def test_features_are_ranked_and_judged(log, tmp_path, monkeypatch):
    monkeypatch.setattr(feature_study, "_TREES", 6)  # forty models are fitted, and here it does not matter how good they are
    found = as_json("features", log, "--at", "start", "--plot", tmp_path / "f.html")
    assert found["at"] == "start" and found["jobs"] == 600
    correlated = {row["feature"]: row["pearson"] for row in found["correlations"]}
    assert correlated["request.cpus"] > 0.2 > abs(correlated["calendar.hour"])
    assert {row["verdict"] for row in found["verdicts"]} <= {"keep", "drop"}
    assert {row["group"] for row in found["ablation"]["groups"]} >= {"request", "user", "start"}
    assert '"type":"heatmap"' in (tmp_path / "f.html").read_text()


def test_features_need_both_outcomes(tmp_path):
    path = write_sacct(tmp_path / "good.txt", make_jobs(30))
    with pytest.raises(NotEnoughJobsError, match="30 ended jobs reached 'submit', 0 of them failed"):
        run("features", path)


def careless_last_week(total=40):
    """Ann, who never failed, fails all the time in the last week."""
    states = ["COMPLETED", "COMPLETED", "COMPLETED", "FAILED"]
    weeks = [
        Job(job_id=100 * week + k, user="ann", submit=T0 + timedelta(weeks=week, minutes=k), state=state)
        for week, state in enumerate(states)
        for k in range(total)
    ]
    return weeks + [Job(job_id=6000 + k, user="bob", submit=T0 + timedelta(weeks=k // 40, minutes=k)) for k in range(160)]


def test_trends_name_whose_rate_has_changed(tmp_path):
    path = write_sacct(tmp_path / "a", careless_last_week())
    text = run("trends", path, "--by", "user", "--plot", tmp_path / "t.html")
    assert "user ann: 40 of 40 jobs failed in the week of 25 March; 0 % before" in text
    assert "user bob" not in text
    found = as_json("trends", path, "--by", "user")
    assert [row["group"] for row in found["movers"]] == ["ann"]
    assert found["trend"][0]["period"] == "2024-03-04"


def test_trends_by_family_and_by_month(log):
    found = as_json("trends", log, "--by", "family", "--every", "1mo")
    assert {row["group"] for row in found["trend"]} == {"app"}
    assert {row["period"][-2:] for row in found["trend"]} == {"01"}


def test_trends_by_profile_cover_every_job_that_ended(log):
    found = as_json("trends", log, "--by", "profile")
    assert sum(row["jobs"] for row in found["trend"]) == 600


def test_trends_without_enough_jobs_say_so(few):
    assert "No node is known with enough jobs that ended (20)" in run("trends", few, "--by", "node")


def test_waste_reconciles_with_the_log(log):
    found = as_json("waste", log, "--by", "outcome")
    jobs = random_jobs(600)
    held = sum(job.run_s * job.cpus for job in jobs)
    lost = sum(job.run_s * job.cpus for job in jobs if job.state == "FAILED")
    assert found["total"]["core_seconds"] == held == sum(row["core_seconds"] for row in found["groups"])
    assert found["total"]["lost_core_seconds"] == lost
    text = run("waste", log, "--by", "outcome")
    assert f"The groups reconcile exactly with the log: 600 jobs, {held:,} core-seconds held, {lost:,} lost." in text


def test_waste_has_energy_that_reconciles_and_says_how_it_is_known(log):
    found = as_json("waste", log, "--by", "user")
    total = found["total"]
    assert sum(row["joules"] for row in found["groups"]) == total["joules"] >= 6 * total["core_seconds"]
    assert (found["energy"]["known"], total["measured_joules"], total["lost_co2_kg"]) == ("estimated", 0, None)
    text = run("waste", log, "--by", "user")
    assert "est.)" in text and "kWh (estimated)." in text and found["energy"]["words"] in text and "CO2" not in text


@pytest.mark.parametrize("by", ["user", "family", "account", "partition", "profile", "week", "outcome"])
def test_waste_is_broken_down_without_losing_a_second(log, by):
    found = as_json("waste", log, "--by", by)
    assert found["by"] == by
    assert sum(row["lost_core_seconds"] for row in found["groups"]) == found["total"]["lost_core_seconds"]


def test_states_that_are_left_out_are_in_no_sum_and_are_counted(log):
    found = as_json("waste", log, "--drop", "FAILED", "--failed", "TIMEOUT")
    assert found["dropped"] == sum(job.state == "FAILED" for job in random_jobs(600))
    assert found["total"]["failed_jobs"] == 0


def test_the_policy_is_chosen_on_earlier_jobs_and_judged_on_later_ones(log, tmp_path):
    found = as_json("waste", log, "--policy", "--tau", "0.5", "--plot", tmp_path / "w.html")["policy"]
    assert found["chosen_on"]["splits"] + found["judged_on"]["splits"] == 5
    assert found["tau"] == found["chosen_on"]["best"]["tau"]
    assert found["at_tau"]["net_core_seconds"] <= found["hindsight"]["net_core_seconds"]
    assert found["asked"]["asked_tau"] == 0.5 >= found["asked"]["tau"]
    assert "chosen before" in (tmp_path / "w.html").read_text()


def test_a_threshold_without_the_policy_is_refused(log):
    with pytest.raises(UsageError, match="Add --policy"):
        run("waste", log, "--tau", "0.5")


def test_no_jobs_since_a_day_is_told_in_a_sentence(few):
    with pytest.raises(NotEnoughJobsError, match="There are no jobs to study"):
        run("profiles", few, "--since", "2030-01-01")


def test_what_a_log_says_cannot_command_the_terminal(tmp_path):
    evil = [Job(job_id=k, user="\x1b[2Jeve", name="[bold]x", submit=T0 + timedelta(minutes=k), state="FAILED") for k in range(30)]
    path = write_sacct(tmp_path / "evil", evil)
    text = run("waste", path) + run("trends", path, "--by", "user")
    assert "\x1b[2J" not in text and "\\x1b[2Jeve" in text


@pytest.mark.parametrize("columns", [40, 80])
def test_no_column_is_cut_off_in_a_narrow_terminal(log, columns):
    assert "100.0" in run("waste", log, "--by", "account", columns=columns)  # the last column: the share of the loss


def test_features_of_all_jobs_of_a_site_are_written_at_the_moments_that_are_asked_for(tmp_path, monkeypatch):
    with make_site(tmp_path / "site") as site:
        put_jobs(site, make_log(300, 3, days=DAYS))
    monkeypatch.setenv("STORMPETREL_SITE", str(tmp_path / "site"))
    written = as_json("features", "--write", tmp_path / "start", "--at", "start", "--parts", 2)
    assert (written["jobs"], written["pieces"], written["shards"]) == (300, 1, 8) and written["rows"]["start"] > 200
    table = pl.read_parquet(tmp_path / "start" / "start-00000.parquet")
    assert table.height == written["rows"]["start"] and table.width == 5 + 2 + written["features"]["start"]
    assert (tmp_path / "start").stat().st_mode & 0o777 == 0o700
    shown = run("features", "--write", tmp_path / "all")
    assert (
        all(f"/{moment}-*.parquet: " in shown for moment in ("submit", "start", "2min")) and "no process held more than" in shown
    )


def test_features_are_written_of_a_site_and_not_of_a_log(log, tmp_path):
    with pytest.raises(UsageError, match="--write takes all jobs of a site"):
        run("features", log, "--write", tmp_path / "table")


@pytest.mark.realdata
def test_a_public_log_reconciles_and_has_profiles(public_logs):
    log = public_logs / "jobs" / "KTH-SP2-1996-2.1-cln.swf.gz"
    found = as_json("waste", log, "--by", "week")
    assert found["reconciled"] and found["total"]["jobs"] == 27_992
    assert as_json("profiles", log, "--since", "1997-07-01")["k"] >= 2
