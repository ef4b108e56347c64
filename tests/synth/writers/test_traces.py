"""The traces of synthetic jobs: the threads that a job holds work while it runs, and no longer."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.answers.workload.recorded_site import record_workload_site, recorded_jobs
from stormpetrel.errors import NotEnoughJobsError, UsageError
from stormpetrel.records.nodes import expand_nodes
from stormpetrel.records.traces import BAD_IO, HUNG, IDLE, NO_JOB, SILENT, SWAPPING, Trace
from stormpetrel.records.windows import cut_windows, join_windows
from stormpetrel.sources.trace_files import read_campaigns
from stormpetrel.synth.writers.traces import (
    Behaviour,
    TracedSpan,
    behaviour_of,
    cpu_share,
    held_threads,
    job_traces,
    write_job_traces,
)
from tests.synth.writers.sample_workload import made_workload, pieces

EACH = 32


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traced") / "site"
    site = record_workload_site(folder, pieces(made_workload(700), 300))
    assert site.machine.cores == site.nodes * EACH
    return pl.concat(recorded_jobs(folder))


@pytest.fixture(scope="module")
def span(jobs):
    return TracedSpan(jobs["submit_time"][-1], EACH, hours=2.0, seed=3)


@pytest.fixture(scope="module")
def made(jobs, span):
    return job_traces(jobs, span)


def windows_of(traces: tuple[Trace, ...]):
    return join_windows([cut_windows(trace.checked()) for trace in traces])


def whole(traces: tuple[Trace, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Rates and the id of the job of each second and thread, over all parts."""
    ids = [np.array([*(job.job_id for job in trace.jobs), ""])[trace.job] for trace in traces]
    return np.concatenate([trace.rates for trace in traces]), np.concatenate(ids)


def test_windows_sum_to_one_and_fill_the_span(made, span):
    windows = windows_of(made.traces)
    assert len(windows) == span.steps // 100 * made.traces[0].threads and not windows.left_out
    assert np.allclose(windows.rates.sum(axis=2), 1, atol=1e-5) and windows.rates.min() >= 0
    assert [trace.split for trace in made.traces] == ["train", "validation", "test"]
    assert windows.start_s.max() + 100 == int(span.until.timestamp())


def test_the_job_that_a_second_names_was_running_on_that_node_then(made, jobs):
    by_id = {str(row["job_id_raw"]): row for row in jobs.iter_rows(named=True)}
    checked = 0
    for trace in made.traces:
        for thread in range(trace.threads):
            for number in set(trace.job[:, thread].tolist()) - {NO_JOB}:
                job = by_id[trace.jobs[number].job_id]
                seconds = trace.time_s[trace.job[:, thread] == number]
                assert seconds.min() > job["start_time"].timestamp() and seconds.max() <= job["end_time"].timestamp()
                assert trace.nodes[thread] in expand_nodes(job["node_list"])
                checked += 1
    assert checked > 100


def test_every_running_job_has_as_many_threads_as_it_has_cores(jobs, span):
    held = held_threads(jobs, threads_per_node=EACH, since_s=span.start_s, until_s=span.start_s + span.steps)
    threads: dict[int, int] = {}
    for one in held:
        threads[one.job] = threads.get(one.job, 0) + len(one.cpus)
    running = jobs.with_row_index("row").filter(
        pl.col("start_time") < span.until, pl.col("end_time") > span.until - timedelta(hours=2), pl.col("elapsed_s") > 0
    )
    assert threads == dict(running.select(pl.col("row").cast(pl.Int64), "cpus").iter_rows())
    busy = [(one.node, cpu, one.start_s, one.end_s) for one in held for cpu in one.cpus]
    for before, after in zip(sorted(busy), sorted(busy)[1:], strict=False):
        assert before[:2] != after[:2] or before[3] <= after[2], "no thread is held twice"


def test_a_thread_changes_when_its_job_starts_and_ends(made):
    rates, ids = whole(made.traces)
    at_rest = rates[ids == ""]
    assert at_rest[:, 3].mean() > 0.98, "a thread without a job idles"
    ends, starts = [], []
    for row in made.threads.filter(pl.col("state") == "COMPLETED", ~pl.col("type").is_in([IDLE, BAD_IO])).iter_rows(named=True):
        for cpu in row["cpus"].split():
            thread = made.traces[0].nodes.index(row["node"]) + int(cpu)
            seconds = np.flatnonzero(ids[:, thread] == row["job"])
            first, last = seconds[0], seconds[-1]
            if first >= 30 and (ids[first - 30 : first, thread] == "").all():
                starts.append(rates[first : first + 30, thread, 3].mean() - rates[first - 30 : first, thread, 3].mean())
            if last + 30 < len(ids) and (ids[last + 1 : last + 31, thread] == "").all():
                ends.append(rates[last + 1 : last + 31, thread, 3].mean() - rates[last - 30 : last, thread, 3].mean())
    assert len(starts) > 5 and max(starts) < -0.2 and len(ends) > 5 and min(ends) > 0.1


def test_a_failed_job_falls_silent_or_hangs_before_its_end(jobs, span):
    failing = jobs.with_columns(state=pl.lit("FAILED"))
    made = job_traces(failing, span)
    rates, ids = whole(made.traces)
    before, _ = whole(job_traces(jobs.with_columns(state=pl.lit("COMPLETED")), span).traces)
    stuck = np.abs(rates - before).max(axis=2) > 0.3
    assert stuck[ids == ""].mean() < 0.001 < 0.03 < stuck[ids != ""].mean() < 0.6
    windows = windows_of(made.traces)
    user, iowait = (windows.rates[:, :, mode].mean(axis=1) for mode in (0, 2))
    silent, hung = (windows.job_types() == kind for kind in (SILENT, HUNG))
    assert silent.sum() > 20 < hung.sum() and user[silent].max() < 0.1 and np.maximum(user, iowait)[hung].min() > 0.8
    last = made.threads.filter(pl.col("end").is_not_null(), pl.col("type") == "NP")
    assert last.height > 3
    for row in last.iter_rows(named=True):
        thread = made_thread(row)
        seconds = np.flatnonzero(ids[:, thread] == row["job"])[-20:]
        told = rates[seconds, thread].mean(axis=0)
        assert told.max() > 0.9 and rates[seconds, thread].std(axis=0).max() < 0.15, "all of it in one mode"


def test_windows_of_jobs_that_are_stuck_are_never_learnt_as_normal(jobs, span):
    ends = pl.Series(["FAILED", "OUT_OF_MEMORY"] * (len(jobs) // 2 + 1)).head(len(jobs))
    windows = windows_of(job_traces(jobs.with_columns(state=ends), span).traces)
    assert {SILENT, HUNG, SWAPPING, BAD_IO} <= set(windows.job_types())
    assert not {SILENT, HUNG, SWAPPING, BAD_IO} & set(windows.of_normal().job_types())


def made_thread(row: dict[str, str]) -> int:
    return (int(row["node"][1:]) - 1) * EACH + int(row["cpus"].split()[0])


def test_like_jobs_of_a_user_behave_alike_and_others_need_not(jobs):
    first = {"user": "a", "job_name": "work-1", "cpus": 4, "req_cpus": 4}
    assert behaviour_of(first, 1) == behaviour_of({**first, "state": "FAILED"}, 1)
    kinds = [behaviour_of({**first, "user": f"u{number}"}, 1).job_type for number in range(300)]
    assert set(kinds) == {"MPI 4", "NP", "Good IO", BAD_IO, IDLE} and kinds.count(BAD_IO) < 60 < kinds.count("MPI 4")
    assert {behaviour_of({**first, "cpus": 1, "user": f"u{number}"}, 1).job_type for number in range(99)} == set(kinds) - {
        "MPI 4"
    }
    assert cpu_share(Behaviour("MPI 7"))[0] > 0.8 > cpu_share(Behaviour(BAD_IO))[0]


def test_the_same_seed_gives_the_same_files_and_another_others(jobs, span, tmp_path):
    short = replace(span, hours=0.25, nodes=1)
    for name, chosen in (("a", short), ("b", short), ("c", replace(short, seed=4))):
        write_job_traces(jobs, tmp_path / name, chosen)
    files = {name: {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in "abc"}
    assert files["a"] == files["b"] != files["c"]
    assert sorted(files["a"]) == ["synthetic-test.npz", "synthetic-train.npz", "synthetic-validation.npz", "threads.csv"]
    back = read_campaigns([tmp_path / "a"])
    made = job_traces(jobs, short).traces
    assert {trace.name: trace.jobs for trace in back} == {trace.name: trace.jobs for trace in made}


def test_what_comes_after_the_span_is_not_told(made, span):
    assert made.threads.filter(pl.col("end") > span.until).is_empty()
    assert set(made.threads.filter(pl.col("end").is_null())["state"]) == {"RUNNING"}


@pytest.mark.parametrize(("wish", "said"), [({"hours": 0.05}, "cannot be made"), ({"hours": 500.0, "nodes": 50}, "too many")])
def test_spans_that_make_no_sense_are_refused(span, wish, said):
    with pytest.raises(UsageError, match=said):
        replace(span, **wish)


def test_a_span_in_which_nothing_ran_is_said_to_be_one(jobs, span):
    with pytest.raises(NotEnoughJobsError, match="nothing to trace"):
        job_traces(jobs, replace(span, until=jobs["submit_time"][0] - timedelta(days=9)))
