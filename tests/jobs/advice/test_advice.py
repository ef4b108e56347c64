import time
from datetime import timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stormpetrel.errors import UsageError
from stormpetrel.jobs.advice import kinds
from stormpetrel.jobs.advice.advice import Advice, advise, next_request
from stormpetrel.jobs.advice.text import clean, format_duration, format_exit
from stormpetrel.records.jobs import JOB_SCHEMA, conform, job_frame
from stormpetrel.records.units import GB
from stormpetrel.simulate.cluster import simulate
from stormpetrel.simulate.spec import ClusterSpec
from tests.builders import T0

NOW = T0 + timedelta(days=30)
HOUR = 3600.0
OOM, TIMEOUT = {"state": "OUT_OF_MEMORY"}, {"state": "TIMEOUT"}


def job(number=0, *, gb=8.0, used_gb=None, limit_h=10.0, run_h=5.0, **others):
    """A job of ada's that ended `number` hours after T0, one CPU on one node."""
    end = T0 + timedelta(hours=number)
    row = {
        "cluster": "petrel", "job_id": 1000 + number, "submit_time": end - timedelta(hours=9), "restart": 0, "user": "ada",
        "job_name": f"fit_{number}", "partition": "batch", "start_time": end - timedelta(hours=run_h), "end_time": end,
        "state": "COMPLETED", "exit_code": 0, "exit_signal": 0, "time_limit_s": limit_h * HOUR, "elapsed_s": run_h * HOUR,
        "req_cpus": 1, "req_nodes": 1, "req_mem_bytes": int(gb * GB),
        "max_rss_bytes": None if used_gb is None else int(used_gb * GB),
    }  # fmt: skip
    return {**row, **others}


def jobs(count, first=0, **how):
    return [job(first + k, **how) for k in range(count)]


def ask(**how):
    request = {
        **job(999, **how),
        "state": "PENDING",
        "start_time": None,
        "end_time": None,
        "elapsed_s": None,
        "max_rss_bytes": None,
    }
    return job_frame([request])


def advice_on(past, risk_of=None, **how) -> list[Advice]:
    return advise(ask(**how), job_frame(past), now=NOW, risk_of=risk_of)


def only(offers: list[Advice]) -> Advice:
    assert len(offers) == 1, offers
    return offers[0]


def all_text(offers):
    return " ".join(text for offer in offers for text in (offer.sentence, *offer.evidence))


OUT_AT_8 = [*jobs(5, **OOM), *jobs(9, first=5, gb=16, used_gb=12.5)]


def test_memory_rises_to_what_past_jobs_completed_with():
    offer = only(advice_on(OUT_AT_8))
    assert (offer.column, offer.now, offer.proposed) == ("req_mem_bytes", 8 * GB, 16 * GB)
    assert offer.sentence == "Ask for 16 GB of memory instead of 8 GB."
    assert offer.evidence == (
        "your last 14 jobs of this kind needed more than 8 GB",
        "the 9 that asked for 16 GB or more all completed",
    )
    assert offer.support == 9 and not offer.saves


def test_memory_takes_the_smallest_step_with_head_room_when_one_task_was_measured():
    offer = only(advice_on([*jobs(5, **OOM), *jobs(9, first=5, gb=64, used_gb=9)]))
    assert offer.proposed == 12 * GB


def test_memory_of_many_tasks_is_never_guessed_from_the_largest_one():
    past = [*jobs(5, req_cpus=16, **OOM), *jobs(9, first=5, gb=64, used_gb=9, req_cpus=16)]
    assert only(advice_on(past, req_cpus=16)).proposed == 64 * GB
    assert advice_on(jobs(20, gb=64, used_gb=5, req_cpus=16), gb=64, req_cpus=16) == []


def test_no_value_is_proposed_that_nobody_completed_with():
    offer = only(advice_on(jobs(8, **OOM)))
    assert offer.proposed is None and offer.column == "req_mem_bytes"
    assert "likely too little" in offer.sentence


def test_a_later_job_never_speaks():
    past = [*jobs(5, **OOM), *jobs(9, first=10_000, gb=16, used_gb=12.5)]
    assert only(advice_on(past)).proposed is None


def test_too_much_memory_is_named_with_its_evidence():
    offer = only(advice_on(jobs(20, gb=64, used_gb=3.1), gb=64))
    assert offer.saves and offer.proposed == 4 * GB
    assert offer.sentence == "4 GB of memory would do instead of 64 GB; the job may start sooner."
    assert "your last 20 jobs of this kind asked for about as much" in offer.evidence[0]
    assert "at most 3.1 GB in the largest task" in offer.evidence[0]


@pytest.mark.parametrize("past", [jobs(9, gb=64, used_gb=3), [*jobs(20, gb=64, used_gb=3), job(30, gb=64, **OOM)]])
def test_nothing_is_saved_on_few_jobs_or_after_a_shortage(past):
    assert not any(offer.saves for offer in advice_on(past, gb=64))


def test_one_large_job_keeps_the_request_large():
    assert advice_on([*jobs(40, gb=64, used_gb=3), job(41, gb=64, used_gb=40)], gb=64) == []


def test_who_asks_for_another_amount_than_before_is_taken_to_know_why():
    small, large = jobs(20, gb=4, used_gb=1), jobs(20, first=20, gb=64, used_gb=50)
    assert advice_on([*small, *large], gb=4) == []
    assert advice_on(small, gb=64) == []
    assert advice_on(jobs(20, limit_h=1, run_h=0.5), limit_h=24) == []
    assert advice_on(jobs(20, gb=64, used_gb=1, job_name="sort"), gb=64) == []


def test_evidence_tells_how_similar_requests_fared():
    offer = only(advice_on([*jobs(2, **OOM), *jobs(4, first=2, used_gb=6), *jobs(9, first=6, gb=16, used_gb=7.5)]))
    assert offer.evidence[0] == (
        "2 of your last 15 jobs of this kind needed more than 8 GB, among them 2 of the 6 that asked for about as much"
    )


def test_the_limit_rises_above_every_time_out():
    past = [*jobs(4, limit_h=10, run_h=10, **TIMEOUT), *jobs(6, first=4, limit_h=48, run_h=13)]
    offer = only(advice_on(past))
    assert (offer.column, offer.proposed) == ("time_limit_s", 18 * HOUR)
    assert offer.evidence[0] == "your last 10 jobs of this kind needed more than 10 h"


def test_jobs_without_a_limit_speak_for_a_longer_one_without_a_warning():
    unlimited = jobs(4, first=4, run_h=13, time_limit_s=None)
    offer = only(advice_on([*jobs(4, limit_h=10, run_h=10, **TIMEOUT), *unlimited, *jobs(2, first=8, limit_h=48, run_h=13)]))
    assert (offer.column, offer.proposed) == ("time_limit_s", 18 * HOUR)


def test_a_failed_job_that_used_up_its_limit_counts_as_a_time_out():
    past = [*jobs(4, limit_h=10, run_h=10, state="FAILED"), *jobs(6, first=4, limit_h=24, run_h=9)]
    assert only(advice_on(past)).proposed == 12 * HOUR


def test_a_limit_beyond_the_partition_leads_to_a_checkpoint_or_another_partition():
    timed_out = jobs(4, limit_h=10, run_h=10, **TIMEOUT)
    longer = jobs(6, first=4, limit_h=48, run_h=13, partition="long")
    offer = only([one for one in advice_on([*timed_out, *longer]) if "limit of" in one.sentence])
    assert (offer.column, offer.now, offer.proposed) == ("partition", "batch", "long")
    stuck = next_request(job_frame([job(5, limit_h=10, run_h=10, **TIMEOUT)]), job_frame(timed_out), now=NOW)
    assert stuck is not None and stuck.proposed is None and "checkpoint" in stuck.sentence


def test_a_limit_far_too_long_is_named():
    offer = only(advice_on(jobs(12, limit_h=100, run_h=2), limit_h=100))
    assert offer.saves and offer.proposed == 3 * HOUR
    assert "at most 2 h" in offer.evidence[0] and "may start sooner" in offer.sentence


def test_gpus_that_idle_are_given_back():
    idle = jobs(12, req_gpus=4, busy_gpus=1.2)
    offer = only(advice_on(idle, req_gpus=4))
    assert (offer.column, offer.proposed, offer.saves) == ("req_gpus", 2, True)
    assert "at most 1.2 of 4 GPUs busy" in offer.evidence[0]
    assert advice_on([*idle, job(12, req_gpus=4, busy_gpus=2.5)], req_gpus=4) == []


def test_jobs_that_use_no_gpu_at_all_are_told_so_and_unmeasured_ones_are_not():
    offer = only(advice_on(jobs(12, req_gpus=1, busy_gpus=0.0), req_gpus=1))
    assert offer.proposed is None and "use none of the GPUs" in offer.sentence
    assert advice_on(jobs(12, req_gpus=1), req_gpus=1) == []


def test_idle_cpus_are_given_back_only_if_jobs_with_fewer_completed():
    idle = jobs(12, req_cpus=16, cpu_time_s=1.9 * 5 * HOUR)
    fewer = jobs(4, first=12, req_cpus=2, cpu_time_s=1.9 * 5 * HOUR)
    assert advice_on(idle, req_cpus=16) == []
    offer = only(advice_on([*idle, *fewer], req_cpus=16))
    assert (offer.column, offer.now, offer.proposed, offer.saves) == ("req_cpus", 16, 2, True)


def test_a_partition_is_left_when_jobs_fail_much_more_there():
    bad = jobs(9, state="FAILED", exit_code=1)
    good = jobs(20, first=9, partition="quiet")
    offer = only(advice_on([*bad, *good]))
    assert (offer.column, offer.now, offer.proposed) == ("partition", "batch", "quiet")
    assert offer.evidence == ("9 of 9 jobs of this kind failed on batch", "0 of 20 jobs of this kind failed on quiet")
    by_chance = [*jobs(5, state="FAILED", exit_code=1)[:2], *jobs(3, first=2), *jobs(6, first=9, partition="quiet")]
    assert advice_on(by_chance) == []


def test_runs_that_crash_at_once_point_at_the_script():
    crashed = jobs(6, first=20, state="FAILED", exit_code=127, run_h=20 / HOUR)
    offer = only(advice_on([*OUT_AT_8, *crashed]))
    assert offer.column is None and "not the problem" in offer.sentence
    assert offer.evidence == ("your last 6 jobs of this kind ended within 20 s, exit code 127 (command not found)",)


def test_too_few_jobs_get_an_honest_answer():
    offer = only(advice_on(jobs(2, **OOM), job_name="fit\x1b[31m\n\u202eevil"))
    assert offer.column is None and offer.proposed is None
    assert offer.sentence == "I know too little about jobs of this kind such as 'fit[31mevil' (0 so far)."
    assert "(2 so far)" in only(advice_on(jobs(2, **OOM))).sentence


def test_kinds_go_from_the_narrowest_to_the_widest():
    def kind_of(past, **how):
        return kinds.find_kind(ask(**how), job_frame(past), now=NOW).name

    assert kind_of([*jobs(5), *jobs(9, first=5, req_cpus=8)]) == kinds.SAME_SIZE
    assert kind_of([*jobs(4), *jobs(9, first=5, req_cpus=8)]) == kinds.SAME_APPLICATION
    assert kind_of([*jobs(4), *jobs(9, first=5, user="bob")]) == kinds.OTHER_USERS
    assert kind_of([*jobs(4), *jobs(9, first=5, job_name="sort")]) == kinds.ANY_APPLICATION


def test_only_the_last_fifty_jobs_count():
    assert advice_on([*jobs(30, **OOM), *jobs(50, first=30, used_gb=5)]) == []


def test_other_users_stay_unnamed():
    past = [{**one, "user": "bob_the_secret", "account": "bobs_lab"} for one in OUT_AT_8]
    offers = advice_on(past)
    assert offers and "other users' jobs of this kind" in all_text(offers)
    assert "bob" not in all_text(offers)


def test_a_change_that_does_not_lower_the_risk_is_offered_only_if_it_saves_or_past_jobs_ran_out():
    def flat(frame: pl.DataFrame):
        return np.full(frame.height, 0.4)

    def by_memory(frame: pl.DataFrame):
        return np.where(frame["req_mem_bytes"].to_numpy() > 8 * GB, 0.1, 0.6)

    short = only(advice_on(OUT_AT_8, flat))
    assert (short.column, short.risk_before, short.risk_after) == ("req_mem_bytes", 0.4, 0.4)
    offer = only(advice_on(OUT_AT_8, by_memory))
    assert (offer.risk_before, offer.risk_after) == (0.6, 0.1)
    saving = only(advice_on(jobs(20, gb=64, used_gb=3.1), flat, gb=64))
    assert saving.saves and saving.risk_after == 0.4


def test_what_avoids_a_failure_comes_before_what_saves():
    past = [*jobs(5, limit_h=100, run_h=2, **OOM), *jobs(10, first=5, gb=16, used_gb=12, limit_h=100, run_h=2)]
    assert [offer.saves for offer in advice_on(past, limit_h=100)] == [False, True]


def next_after(past, **how):
    return next_request(job_frame([job(700, **how)]), job_frame(past), now=NOW)


def test_after_a_shortage_past_jobs_answer_before_the_rule_of_thumb():
    assert next_after(OUT_AT_8, **OOM).proposed == 16 * GB
    alone = next_after([], **OOM)
    assert alone.proposed == 16 * GB and "rule of thumb" in alone.evidence[-1]
    slow = next_after([], limit_h=4, run_h=4, **TIMEOUT)
    assert slow.proposed == 6 * HOUR and "rule of thumb" in slow.evidence[-1]
    assert next_after(OUT_AT_8, state="FAILED", exit_code=1) is None
    assert next_after(OUT_AT_8) is None


@pytest.mark.parametrize("killed", [{"exit_signal": 9}, {"exit_code": 137}, {"failed_step_exit_signal": 9}])
def test_a_kill_with_full_memory_is_seen_through(killed):
    offer = next_after([], state="FAILED", used_gb=7.9, **killed)
    assert offer.column == "req_mem_bytes" and "recorded as FAILED" in offer.evidence[0]
    assert next_after([], state="FAILED", used_gb=2.0, **killed) is None


def test_nulls_everywhere_do_no_harm():
    blank = pl.DataFrame({"job_id": [1]}).pipe(conform)
    nothing = conform(pl.DataFrame({"end_time": [T0] * 30, "state": ["OUT_OF_MEMORY", "TIMEOUT", "COMPLETED"] * 10}))
    assert "too little" in only(advise(blank, nothing, now=NOW)).sentence
    assert "too little" in only(advise(blank, pl.DataFrame(schema=JOB_SCHEMA), now=NOW)).sentence
    named = nothing.with_columns(user=pl.lit("ada"), job_name=pl.lit("fit"))
    assert all(offer.proposed is None for offer in advise(ask(), named, now=NOW))
    for state in ("OUT_OF_MEMORY", "TIMEOUT"):
        offer = next_request(blank.with_columns(state=pl.lit(state)), nothing, now=NOW)
        assert offer is not None and offer.proposed is None


def test_a_wrong_call_is_named():
    with pytest.raises(UsageError, match="one request"):
        advise(job_frame(jobs(2)), job_frame(jobs(9)), now=NOW)
    with pytest.raises(UsageError, match="time zone"):
        advise(ask(), job_frame(jobs(9)), now=NOW.replace(tzinfo=None))


SIZES = st.sampled_from([1.0, 2.0, 3.5, 4.0, 8.0, 12.0, 16.0, 20.0, 64.0, 300.0])
LIMITS = st.sampled_from([0.5, 1.0, 2.0, 5.0, 10.0, 24.0, 80.0])
PAST_JOB = st.builds(
    lambda state, gb, share, limit_h, ran, cpus, user: {
        "state": state, "gb": gb, "used_gb": None if share is None else share * gb, "limit_h": limit_h,
        "run_h": limit_h if state == "TIMEOUT" else ran * limit_h, "req_cpus": cpus, "user": user,
    },
    st.sampled_from(["COMPLETED", "COMPLETED", "COMPLETED", "OUT_OF_MEMORY", "TIMEOUT", "FAILED", "CANCELLED"]),
    SIZES, st.none() | st.floats(0.01, 1.0), LIMITS, st.floats(0.01, 0.99), st.sampled_from([1, 1, 4]),
    st.sampled_from(["ada", "ada", "ada", "zebulon"]),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(PAST_JOB, max_size=40), SIZES, LIMITS)
def test_more_is_more_and_never_a_value_that_ran_out(past, gb, limit_h):
    frame = job_frame([job(k, **how) for k, how in enumerate(past)])
    request = ask(gb=gb, limit_h=limit_h)
    offers = advise(request, frame, now=NOW)
    compared = kinds.find_kind(request, frame, now=NOW).jobs
    assert len(offers) <= 3 and "zebulon" not in all_text(offers)
    for offer in offers:
        if offer.proposed is None or offer.column not in ("req_mem_bytes", "time_limit_s"):
            continue
        assert offer.support >= 1 and offer.evidence
        assert (offer.proposed < offer.now) if offer.saves else (offer.proposed > offer.now)
        shortage = "OUT_OF_MEMORY" if offer.column == "req_mem_bytes" else "TIMEOUT"
        ran_out = compared.filter(pl.col("outcome") == shortage)[offer.column]
        assert not (ran_out >= offer.proposed).any()


@settings(max_examples=40, deadline=None)
@given(st.lists(PAST_JOB, max_size=25), SIZES, LIMITS, st.sampled_from(["OUT_OF_MEMORY", "TIMEOUT"]))
def test_the_next_request_is_larger_than_the_last(past, gb, limit_h, state):
    frame = job_frame([job(k, **how) for k, how in enumerate(past)])
    ended = job_frame([job(700, gb=gb, limit_h=limit_h, run_h=limit_h, state=state)])
    offer = next_request(ended, frame, now=NOW)
    assert offer is not None and offer.support >= 1
    if isinstance(offer.proposed, int | float):
        assert offer.proposed > offer.now


def test_a_million_past_jobs_are_looked_through_in_a_moment():
    past = pl.concat([job_frame(jobs(100, used_gb=5))] * 10_000).with_columns(
        user=pl.format("user{}", pl.int_range(pl.len()) % 400), end_time=T0 + pl.duration(seconds=pl.int_range(pl.len()))
    )
    took = []
    for user in ("user7", "nobody"):
        start = time.process_time()  # the machine may have other work to do
        advise(ask(user=user), past, now=NOW)
        took.append(time.process_time() - start)
    assert min(took) < 2.0, f"{took} s of CPU; it takes about 0.3 s"


def test_advice_holds_on_a_simulated_cluster():
    past = pl.concat(simulate(ClusterSpec(nodes=8, jobs=3000, days=None, seed=3))).sort("submit_time")
    moment = past["submit_time"].quantile(0.8)
    shortages = past.filter(pl.col("state").is_in(["OUT_OF_MEMORY", "TIMEOUT"]) & (pl.col("submit_time") > moment)).head(8)
    for ended in shortages.iter_slices(1):
        offer = next_request(ended, past, now=ended["end_time"].item())
        assert offer is not None and offer.sentence


def test_sizes_and_times_are_written_as_people_say_them():
    assert [format_duration(s) for s in (20, 90, 300, 5400, 604_800)] == ["20 s", "1 min 30 s", "5 min", "1 h 30 min", "168 h"]


def test_exits_and_hostile_names_are_plain_text():
    assert format_exit(0, 11) == "signal 11 (SIGSEGV: memory access error in the program)"
    assert format_exit(42, 0) == "exit code 42"
    assert clean("a\x00\x1b]0;x\x07b") == "a]0;xb" and len(clean("x" * 500)) == 40


def test_runs_of_the_same_name_count_before_newer_ones_of_the_same_application():
    old = [{**one, "job_name": "fit-10"} for one in [*jobs(6, **OOM), *jobs(9, first=6, gb=16, used_gb=12)]]
    newer = [{**one, "job_name": "fit-22"} for one in jobs(60, first=20, gb=8, used_gb=1)]
    request = ask().with_columns(job_name=pl.lit("fit-10"))
    offers = advise(request, job_frame([*old, *newer]), now=NOW)
    assert offers[0].column == "req_mem_bytes" and offers[0].kind == "same user, name and size"
    assert "of this name" in all_text(offers)


def test_places_with_as_many_failures_are_told_the_fullest_first_and_few_jobs_or_none_named_tell_nothing():
    names = [*["here"] * 40, *["fast"] * 30, *["long"] * 40, *["few"] * 4, *[None] * 20]
    ends = [*["FAILED"] * 36, *["COMPLETED"] * 4, *["COMPLETED"] * 74, None, *["COMPLETED"] * 19]
    jobs = pl.DataFrame({"partition": names, "outcome": ends})
    places = kinds.better_places(jobs, "partition", "here")
    assert [(place.name, place.failed_here, place.jobs_here, place.jobs_there) for place in places] == [
        ("long", 36, 40, 40),
        ("fast", 36, 40, 30),
    ]
    assert [kinds.better_places(jobs, "partition", here) for here in (None, "few", "elsewhere")] == [[], [], []]


def test_rows_with_some_values_keep_their_order_and_a_missing_value_is_a_value():
    jobs = pl.DataFrame({"size_cpus": [4, None, 4, 8], "size_nodes": [1, None, None, 1], "job": [1, 2, 3, 4]})
    assert kinds.rows_with(jobs, size_cpus=4)["job"].to_list() == [1, 3]
    assert kinds.rows_with(jobs, size_cpus=None, size_nodes=None)["job"].to_list() == [2]
    assert kinds.rows_with(jobs, size_nodes=7).is_empty()
