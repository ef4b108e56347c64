"""Advice that people reject is shown less."""

from __future__ import annotations

from stormpetrel.jobs.advice.advice import PRIOR_SHARE, Advice, AdviceUsefulness, sort_of

LESS = "4 GiB of memory would do instead of 16 GiB; the job may start sooner."
MOVE = "Use partition long instead of short: jobs of this kind fail less there."


def piece(sentence: str, *, column: str = "req_mem_bytes", saves: bool = True) -> Advice:
    return Advice(column, 16, 4, sentence, (), 9, "same user", saves=saves)


def said(useful: bool, *users: str, sentence: str = LESS) -> list[tuple[str, str, bool]]:
    return [(user, sentence, useful) for user in users]


def test_sentences_that_differ_in_figures_and_names_only_are_one_sort():
    assert sort_of(LESS) == sort_of("1.5 GiB of memory would do instead of 128 GiB; the job may start sooner.")
    assert sort_of(MOVE) == sort_of("Use partition gpu instead of cpu: jobs of this kind fail less there.")
    assert sort_of(LESS) != sort_of(MOVE)


def test_advice_that_nobody_judged_is_shown_as_before():
    pieces = (piece(LESS), piece(MOVE, column="partition", saves=False))
    assert AdviceUsefulness().chosen(pieces) == (pieces, 0) and AdviceUsefulness().share(LESS) == PRIOR_SHARE


def test_advice_that_more_people_reject_comes_last():
    usefulness = AdviceUsefulness(said(False, "ann", "bob", "cat"))
    pieces = (piece(LESS), piece(MOVE, column="partition", saves=False))
    assert usefulness.chosen(pieces) == (pieces[::-1], 0)


def test_advice_that_nearly_all_reject_is_not_shown():
    usefulness = AdviceUsefulness(said(False, *"abcdefgh"))
    assert usefulness.chosen([piece(LESS)]) == ((), 1)


def test_one_person_hides_nothing_however_often_that_person_clicks():
    usefulness = AdviceUsefulness([("ann", f"{number} GiB of memory would do instead of 99 GiB", False) for number in range(50)])
    assert usefulness.chosen([piece("2 GiB of memory would do instead of 99 GiB")])[1] == 0


def test_useful_opinions_bring_advice_back():
    usefulness = AdviceUsefulness([*said(False, *"abcdefgh"), *said(True, *"stuvwxyz")])
    assert usefulness.chosen([piece(LESS)])[1] == 0


def test_what_jobs_ran_out_of_is_advised_whatever_people_think():
    more = "Ask for 16 GiB of memory instead of 4 GiB."
    usefulness = AdviceUsefulness(said(False, *"abcdefgh", sentence=more))
    assert usefulness.chosen([piece(more, saves=False)])[1] == 0
