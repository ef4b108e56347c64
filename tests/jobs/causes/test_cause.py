"""Why a job failed: which evidence wins, how sure that is, and when its node is suspected.

Known last words: every entry has a message that it recognises, and what is shown holds no secret.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from stormpetrel.jobs.causes.cause import Victims, find_cause, find_error_message, known_messages, mask_secrets, victims_near
from stormpetrel.records.jobs import job_frame

T = datetime(2026, 11, 1, 12, tzinfo=UTC)
GB = 10**9
SICK = Victims(failed=5, ended=5, users=3, nodes=("n1",))
LINES = [line.split("\t") for line in (Path(__file__).parent / "error_messages.txt").read_text().splitlines()]


def job(**values: Any) -> dict[str, Any]:
    return {
        "cluster": "c", "job_id": 1, "array_task": None, "submit_time": T - timedelta(hours=1), "restart": 0, "state": "FAILED",
        "user": "wren", "start_time": T - timedelta(minutes=30), "end_time": T, "elapsed_s": 1800.0, "node_list": "n1", **values,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("values", "kind", "certainty", "fault"),
    [
        ({"state": "TIMEOUT"}, "time limit", "certain", "user"),
        ({"state": "OUT_OF_MEMORY"}, "memory", "certain", "user"),
        ({"state": "NODE_FAIL"}, "node", "certain", "node"),
        ({"exit_signal": 9, "max_rss_bytes": 8 * GB, "req_mem_bytes": 8 * GB}, "memory", "likely", "user"),
        ({"exit_signal": 9}, "memory", "possible", "user"),
        ({"exit_code": 137}, "memory", "possible", "user"),
        ({"exit_code": 127}, "script", "likely", "user"),
        ({"exit_code": 139}, "program", "likely", "user"),
        ({"exit_code": 1}, "program", "possible", "user"),
        ({"exit_code": 11, "source": "sacct"}, "program", "likely", "user"),
        ({"exit_code": 9, "source": "sacct", "max_rss_bytes": 8 * GB, "req_mem_bytes": 8 * GB}, "memory", "likely", "user"),
        ({"exit_code": 11, "source": "sacct-json"}, "program", "possible", "user"),
        ({"exit_signal": 9, "max_rss_bytes": 1 * GB, "req_mem_bytes": 8 * GB}, "killed", "possible", "unclear"),
        ({"exit_signal": 53}, "set-up", "likely", "user"),
        ({"exit_signal": 8}, "program", "likely", "user"),
        ({"exit_signal": 2}, "ended", "likely", "user"),
        ({"exit_signal": 40}, "ended", "possible", "unclear"),
        ({"failed_step_exit_signal": 11}, "program", "likely", "user"),
        ({}, "unknown", "possible", "unclear"),
    ],
)
def test_state_exit_code_and_signal_name_the_cause(values: dict[str, Any], kind: str, certainty: str, fault: str) -> None:
    cause = find_cause(job(**values))
    assert cause is not None and (cause.kind, cause.certainty, cause.fault) == (kind, certainty, fault)


def test_jobs_that_did_not_fail_have_no_cause() -> None:
    assert find_cause(job(state="COMPLETED")) is None and find_cause(job(state="CANCELLED")) is None


def test_many_other_victims_make_the_node_suspect() -> None:
    cause = find_cause(job(exit_code=1), victims=SICK)
    assert cause is not None and (cause.kind, cause.fault) == ("node", "node")
    assert "5 of 5 jobs of 3 other users on n1" in cause.evidence[0]


def test_what_sacct_cuts_is_told_with_the_evidence() -> None:
    cause = find_cause(job(exit_code=11, source="sacct"))
    assert cause is not None and cause.evidence == ("exit code 11, which is also how sacct prints 139: signal 11",)


def test_a_job_killed_with_its_memory_full_is_not_blamed_on_a_node_that_little_speaks_against() -> None:
    two_users = Victims(failed=3, ended=4, users=2, nodes=("n1",))
    cause = find_cause(job(exit_signal=9, max_rss_bytes=10 * GB, req_mem_bytes=8 * GB), victims=two_users)
    assert cause is not None and cause.kind == "memory"


def test_a_node_is_not_suspected_where_as_many_fail_elsewhere() -> None:
    everywhere = Victims(failed=5, ended=5, users=3, nodes=("n1",), failed_elsewhere=8, ended_elsewhere=10)
    cause = find_cause(job(exit_code=1), victims=everywhere)
    assert cause is not None and (cause.kind, cause.fault) == ("cluster", "unclear")
    assert "5 of 5 jobs of 3 other users on n1, and 8 of 10 on other nodes" in cause.evidence[0]


def test_a_time_out_stays_one_among_other_victims_but_the_fault_is_unclear() -> None:
    cause = find_cause(job(state="TIMEOUT"), victims=SICK)
    assert cause is not None and (cause.kind, cause.fault) == ("time limit", "unclear")


def test_error_message_go_before_a_plain_exit_code() -> None:
    cause = find_cause(job(exit_code=1), message=find_error_message("cp: error writing 'x': Disk quota exceeded"))
    assert cause is not None and (cause.kind, cause.certainty) == ("quota", "likely")
    assert cause.evidence == ("it wrote: cp: error writing 'x': Disk quota exceeded",)


def test_evidence_that_agrees_makes_it_certain() -> None:
    message = find_error_message("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=12.batch.")
    cause = find_cause(job(exit_signal=9, max_rss_bytes=8 * GB, req_mem_bytes=8 * GB), message=message)
    assert cause is not None and (cause.kind, cause.certainty) == ("memory", "certain")


def test_victims_are_others_on_the_same_nodes_at_the_same_time() -> None:
    def other(number: int, **values: Any) -> dict[str, Any]:
        return job(**{"job_id": number, "user": f"u{number}", **values})

    past = job_frame(
        [
            other(2), other(3, node_list="n[1-4]"), other(4, state="COMPLETED"), other(5, user="wren"),
            other(6, node_list="n2"), other(7, end_time=T + timedelta(hours=2)),
        ]
    )  # fmt: skip
    victims = victims_near(job(), past)
    assert victims == Victims(failed=2, ended=3, users=2, nodes=("n1",), failed_elsewhere=1, ended_elsewhere=1)
    assert victims_near(job(node_list=None), past) is None


def test_failures_that_explain_themselves_do_not_count_against_a_node() -> None:
    full = {"max_rss_bytes": 8 * GB, "req_mem_bytes": 8 * GB, "exit_signal": 9}
    own = [{"state": "TIMEOUT"}, {"state": "OUT_OF_MEMORY"}, full, {"time_limit_s": 1800.0}]
    past = job_frame([job(job_id=number, user=f"u{number}", **values) for number, values in enumerate(own, 2)])
    victims, beside_a_time_out = victims_near(job(), past), victims_near(job(state="TIMEOUT"), past)
    assert victims is not None and (victims.failed, victims.ended) == (0, 4)
    assert beside_a_time_out is not None and beside_a_time_out.failed == 2


def test_every_entry_has_a_message_of_its_own() -> None:
    assert [entry.name for entry in known_messages()] == [name for name, _ in LINES]


def test_each_message_is_taken_for_what_it_is() -> None:
    mistaken = {
        name: words and words.meaning.name
        for name, line in LINES
        if not (words := find_error_message(line)) or words.meaning.name != name
    }
    assert mistaken == {}


def test_of_several_messages_the_more_telling_one_counts() -> None:
    words = find_error_message(
        "ValueError: bad\nslurmstepd: error: Detected 1 oom-kill event(s) in StepId=12.batch.\nSegmentation fault\n"
    )
    assert words is not None and words.meaning.kind == "memory"


def test_ordinary_output_says_nothing() -> None:
    assert find_error_message("step 1 of 10\nall is well\n") is None


def test_only_the_end_of_a_long_output_counts() -> None:
    assert find_error_message("Segmentation fault\n" + "fine\n" * 1000) is None


def test_passwords_tokens_and_keys_are_masked() -> None:
    texts = {
        "password=hunter2 failed": "password=*** failed",
        "Authorization: Bearer abcdef1234567890": "Authorization: ***",
        "postgres://wren:secret@db/x": "postgres://wren:***@db/x",
        "using ghp_0123456789abcdef": "using ghp_***",
    }
    assert {text: mask_secrets(text) for text in texts} == texts


def test_a_line_full_of_nothing_takes_no_time() -> None:
    assert find_error_message(("a" * 10_000 + "\n") * 400) is None
