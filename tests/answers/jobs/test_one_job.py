"""What every account of one job is made of."""

from dataclasses import replace

import pytest

from stormpetrel.answers.jobs.one_job import advice_answer, fitting_advice, notes_about, script_line, verdict_answer
from stormpetrel.answers.schemas.job import JobCause
from stormpetrel.jobs.advice.advice import Advice
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.predictor import Verdict
from stormpetrel.jobs.reasons import Reason

ADVICE = Advice("req_mem_bytes", 2**30, 2**34, "Ask for 16 GB.", (), 4, "mine")


@pytest.mark.parametrize(
    ("source", "line"), [("sacct", "#SBATCH --mem"), ("pbs", "#PBS"), ("lsf", "#BSUB -R"), ("condor-history", "request_memory")]
)
def test_the_line_to_write_is_in_the_language_of_the_scheduler(source, line):
    job = {"source": source, "req_cpus": 4, "req_nodes": 1, "req_gpus": None, "req_mem_bytes": 2**30, "time_limit_s": 60.0}
    assert script_line(job, ADVICE).startswith(line)


def test_advice_that_changes_no_request_has_no_line():
    assert script_line({"source": "sacct"}, Advice(None, None, None, "Look at node n7.", (), 4, "mine")) is None


@pytest.mark.parametrize(
    ("fault", "certainty", "kept"),
    [("node", "likely", 1), ("storage", "certain", 1), ("node", "possible", 3), ("user", "likely", 3)],
)
def test_where_the_node_was_at_fault_nobody_is_sent_to_the_script_or_to_a_trial_run(fault, certainty, kept):
    trial = Advice("time_limit_s", 3600.0, 300.0, "Run it once with a limit of 5 min.", (), 4, "mine", experiment=True)
    script = Advice(None, None, None, "The request is not the problem: look at the script.", (), 4, "mine")
    cause = JobCause(kind="node", sentence="", certainty=certainty, fault=fault, change="", evidence=[])
    pieces = fitting_advice([ADVICE, trial, script], cause)
    assert len(pieces) == kept and pieces[0] == ADVICE
    assert len(fitting_advice([ADVICE, trial, script], None)) == 3


def test_what_is_to_be_asked_for_next_time_is_not_advised_once_more():
    longer = Advice("time_limit_s", 3600.0, 7200.0, "Ask for 2 h.", (), 4, "mine")
    prescribed = Advice("time_limit_s", 3600.0, 9000.0, "Ask for 2.5 h.", (), 4, "mine")
    script = Advice(None, None, None, "Look at the script.", (), 4, "mine")
    assert fitting_advice([prescribed, ADVICE, script], None, longer) == (ADVICE, script)
    assert fitting_advice([prescribed, ADVICE, script], None) == (prescribed, ADVICE, script)


def test_a_verdict_keeps_its_strongest_reasons_and_counts_the_others():
    reasons = tuple(Reason(f"f{number}", "words", 1.0, float("nan"), 1.0) for number in range(15))
    verdict = Verdict(Moment.START, 0.5, True, 0.4, True, {"TIMEOUT": 0.5}, reasons, -1.0, None)
    answer = verdict_answer(verdict, most_reasons=12)
    assert (len(answer.reasons), answer.more_reasons, answer.reasons[0].value) == (12, 3, None)
    assert verdict_answer(verdict, most_reasons=None).more_reasons == 0
    assert verdict_answer(replace(verdict, more_reasons=7), most_reasons=12).more_reasons == 10  # that were not worded at all


def test_notes_tell_a_newcomer_a_task_and_a_node_that_failed():
    job = {"array_task": 3, "job_id": 17, "state": "NODE_FAIL", "start_time": 1, "end_time": 2}
    notes = notes_about(job, known=False, named="17")
    assert [words in note for words, note in zip(("do not know", "17_TASK", "node failed"), notes, strict=True)] == [True] * 3
    assert notes_about(job | {"state": "COMPLETED"}, known=None) == []


def test_the_line_of_advice_travels_with_it():
    assert advice_answer(ADVICE, "#SBATCH --mem=16G").line == "#SBATCH --mem=16G"
