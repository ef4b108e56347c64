"""A heterogeneous job as one: the checks of its components -> whole_answer -> the check of the job.

Its components start together and fail together: it starts no sooner than the slowest of them, and its risk is at least the
highest of theirs. What the risks add to each other cannot be said: one script drives them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from stormpetrel.answers.schemas.predictions import Advice, ClusterFit, ComponentAnswer, ScriptAnswer, WaitOutlook

_SUMS: Final = ("req_nodes", "req_cpus", "req_gpus", "req_mem_bytes")
_LONGEST: Final = ("time_limit_s",)
_MOST_ADVICE: Final = 3


def whole_answer(answers: Sequence[ScriptAnswer]) -> ScriptAnswer:
    """Return the check of a job out of those of its components, which it holds; that of a job of one component is its own."""
    if len(answers) == 1:
        return answers[0]
    riskiest = max(range(len(answers)), key=lambda number: answers[number].risk or 0.0)
    first_risky = [riskiest, *(number for number in range(len(answers)) if number != riskiest)]
    about = f"A heterogeneous job of {len(answers)} components, which start together: no sooner than the slowest of them."
    if answers[riskiest].risk is not None:
        about += f" If one fails, the job fails: the risk is at least that of component {riskiest + 1}, which is said here."
    return answers[riskiest].model_copy(
        update={
            "request": _whole_request(answers),
            "warnings": list(_numbered((number, text) for number, answer in enumerate(answers) for text in answer.warnings)),
            "cluster": _whole_fit([answer.cluster for answer in answers]),
            "advice": [_of_component(number, piece) for number in first_risky for piece in answers[number].advice][:_MOST_ADVICE],
            "needs": None,
            "wait": _whole_wait([answer.wait for answer in answers]),
            "notes": [about, *dict.fromkeys(note for answer in answers for note in answer.notes)],
            "components": [_component(number, answer) for number, answer in enumerate(answers, 1)],
        }
    )


def _component(number: int, answer: ScriptAnswer) -> ComponentAnswer:
    return ComponentAnswer(
        number=number,
        request=answer.request,
        warnings=answer.warnings,
        can_run=None if answer.cluster is None else answer.cluster.can_run,
        risk=answer.risk,
        likeliest=answer.likeliest,
        advice=answer.advice,
        needs=answer.needs,
        wait=answer.wait,
    )


def _whole_request(answers: Sequence[ScriptAnswer]) -> dict[str, int | float | str | bool | None]:
    """The first component's request, with sums of what components hold side by side and the longest limit."""
    whole = dict(answers[0].request)
    for names, joined in ((_SUMS, sum), (_LONGEST, max)):
        for name in names:
            values = [value for answer in answers if isinstance(value := answer.request.get(name), int | float)]
            if len(values) == len(answers):
                whole[name] = joined(values)
            else:
                whole.pop(name, None)
    return whole


def _whole_fit(fits: Sequence[ClusterFit | None]) -> ClusterFit | None:
    known = [fit for fit in fits if fit is not None]
    if not known:
        return None
    verdicts = [fit.can_run for fit in known]
    problems = [
        problem.model_copy(update={"words": f"Component {number}: {problem.words}"})
        for number, fit in enumerate(fits, 1)
        if fit is not None
        for problem in fit.problems
    ]
    can_run = False if False in verdicts else None if None in verdicts else True
    never_first = sorted(problems, key=lambda problem: not problem.never_runs)
    return known[0].model_copy(update={"can_run": can_run, "problems": never_first})


def _whole_wait(waits: Sequence[WaitOutlook | None]) -> WaitOutlook | None:
    known = [wait for wait in waits if wait is not None]
    if not known:
        return None
    unknown = next((wait for wait in known if wait.p50_s is None), None)
    slowest = max(known, key=lambda wait: wait.p50_s or 0.0)
    return unknown or slowest.model_copy(update={"p90_s": max((wait.p90_s or 0.0 for wait in known), default=None)})


def _of_component(number: int, piece: Advice) -> Advice:
    return piece.model_copy(update={"sentence": f"Component {number + 1}: {piece.sentence}"})


def _numbered(texts: Iterable[tuple[int, str]]) -> Iterable[str]:
    return (f"Component {number + 1}: {text}" for number, text in texts)
