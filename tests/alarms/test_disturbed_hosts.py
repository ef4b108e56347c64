from datetime import UTC, datetime, timedelta

import polars as pl
from benchmarks.disturbed_hosts import FEWEST_LIKE, as_tasks, disturbed

START = datetime(2024, 5, 6, tzinfo=UTC)


def runs(number, *, slow=None, idle=None, hosts=("h1", "h2", "h3")):
    """So many runs of two tasks on each host; in the last one `slow` takes three times as long and `idle` uses no system time."""
    rows = []
    for run in range(number):
        last = run == number - 1
        for host in hosts:
            for task in ("fit", "plot"):
                usual = 100.0 + (run * 7 + len(rows)) % 11
                rows.append(
                    {
                        "task": f"{task}-{host}", "host": host, "together": run, "at": START + timedelta(hours=run),
                        "elapsed_s": usual * (3 if last and host == slow else 1),
                        "system_cpu_s": usual / 20 * (0.3 if last and host == idle else 1),
                    }
                )  # fmt: skip
    return pl.DataFrame(rows)


def last_scores(jobs):
    last = disturbed(jobs).filter(pl.col("together") == jobs["together"].max())
    return dict(last.group_by("host").agg(pl.col("disturbed").mean()).iter_rows())


def test_the_host_whose_jobs_take_longer_than_their_like_before_scores_highest():
    scores = last_scores(runs(40, slow="h2"))
    assert max(scores, key=scores.get) == "h2" and scores["h2"] > 5 > scores["h1"]


def test_the_host_whose_jobs_use_less_system_time_scores_highest_although_they_take_as_long():
    scores = last_scores(runs(40, idle="h3"))
    assert max(scores, key=scores.get) == "h3" and scores["h3"] > 5


def test_jobs_without_enough_like_before_them_score_nothing():
    assert set(disturbed(runs(FEWEST_LIKE, slow="h2"))["disturbed"]) == {0.0}


def test_what_comes_later_changes_no_score():
    jobs = runs(60, slow="h1")
    half = jobs.filter(pl.col("together") < 30)
    assert disturbed(jobs).filter(pl.col("together") < 30)["disturbed"].equals(disturbed(half)["disturbed"])


def test_rows_come_back_in_their_order_with_unknown_system_times():
    jobs = runs(30, slow="h2").with_columns(system_cpu_s=pl.lit(None, dtype=pl.Float64)).reverse()
    scored = disturbed(jobs)
    assert scored.drop("disturbed").equals(jobs) and scored["disturbed"].is_finite().all()


def test_job_records_are_alike_by_user_and_application_and_only_completed_ones_speak():
    rows = [
        {
            "cluster": "c1", "user": "ann", "application": "solve", "node_list": f"n{k % 3}", "state": state,
            "end_time": START + timedelta(minutes=k), "elapsed_s": 60.0, "system_cpu_s": 1.0,
        }
        for k, state in enumerate(["COMPLETED", "FAILED"] * 30)
    ]  # fmt: skip
    tasks = as_tasks(pl.DataFrame(rows))
    assert tasks.height == 30 and tasks["task"].n_unique() == 1 and tasks["host"].n_unique() == 3
    assert set(disturbed(tasks)["disturbed"]) == {0.0}
