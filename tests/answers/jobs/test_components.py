"""A heterogeneous job is said as a whole and by its components."""

from __future__ import annotations

from typing import Any

import pytest

from stormpetrel.answers.jobs.components import whole_answer
from stormpetrel.answers.schemas.predictions import Advice, ClusterFit, ClusterProblem, ScriptAnswer, WaitOutlook

ADVICE = Advice(
    column="req_mem_bytes", now=2, proposed=1, sentence="Ask for less.", evidence=[], support=9, kind="work", saves=True,
    risk_before=None, risk_after=None, line="#SBATCH --mem=1G",
)  # fmt: skip


def answer(risk: float | None, **fields: Any) -> ScriptAnswer:
    rest: dict[str, Any] = {"request": {"req_cpus": 2}, "warnings": [], "advice": [], "notes": []} | fields
    return ScriptAnswer(script="job.sh", kind="slurm", risk=risk, **rest)


def fit(can_run: bool | None, *words: str) -> ClusterFit:
    problems = [
        ClusterProblem(rule="r", never_runs=can_run is False, words=text, change="", column=None, proposed=None, line=None)
        for text in words
    ]
    return ClusterFit(can_run=can_run, problems=problems, read_at=None, age_s=None, note=None)


def test_a_job_of_one_component_is_its_own_answer() -> None:
    one = answer(0.2)
    assert whole_answer([one]) is one and one.components == []


def test_the_whole_has_the_highest_risk_and_sums_and_each_component_keeps_its_own() -> None:
    whole = whole_answer([answer(0.2), answer(0.7, request={"req_cpus": 6, "time_limit_s": 60.0}, likeliest="TIMEOUT")])
    assert (whole.risk, whole.likeliest, whole.request) == (0.7, "TIMEOUT", {"req_cpus": 8})
    assert [(one.number, one.risk, one.request["req_cpus"]) for one in whole.components] == [(1, 0.2, 2), (2, 0.7, 6)]
    assert "at least that of component 2" in whole.notes[0]


@pytest.mark.parametrize(("fits", "can_run"), [((True, False), False), ((True, None), None), ((True, True), True)])
def test_what_one_component_cannot_do_the_job_cannot(fits: tuple[bool | None, ...], can_run: bool | None) -> None:
    whole = whole_answer([answer(None, cluster=fit(one, f"{one}")) for one in fits])
    assert whole.cluster is not None and whole.cluster.can_run is can_run
    assert {problem.words for problem in whole.cluster.problems} == {
        f"Component {number}: {one}" for number, one in enumerate(fits, 1)
    }


def test_it_starts_no_sooner_than_the_slowest_and_not_at_a_known_time_where_one_has_none() -> None:
    quick, slow = (WaitOutlook(p50_s=s, p90_s=100 - s, waited_s=0.0, reason=None) for s in (10.0, 60.0))
    whole = whole_answer([answer(0.1, wait=quick), answer(0.1, wait=slow)])
    assert whole.wait is not None and (whole.wait.p50_s, whole.wait.p90_s) == (60.0, 90.0)
    held = WaitOutlook(p50_s=None, p90_s=None, waited_s=0.0, reason="it is held")
    assert whole_answer([answer(0.1, wait=quick), answer(0.1, wait=held)]).wait == held


def test_advice_says_for_which_component_it_is_and_the_riskiest_comes_first() -> None:
    whole = whole_answer([answer(0.1, advice=[ADVICE] * 3), answer(0.6, advice=[ADVICE])])
    assert [piece.sentence for piece in whole.advice] == ["Component 2: Ask for less.", *["Component 1: Ask for less."] * 2]
    assert whole.components[0].advice == [ADVICE] * 3
