"""How good synthetic jobs are, as answers: of a generator, of a log, and of a site."""

from __future__ import annotations

import pytest

from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.answers.workload.input import WorkloadInput, make_generator
from stormpetrel.answers.workload.quality import compare_site_workload, compare_workloads, evaluate_generator
from stormpetrel.answers.workload.workload import scores_of
from stormpetrel.errors import AccessError
from tests.answers.workload_sites import CARD, GENERATOR, put_generator, put_workload
from tests.builders import make_site
from tests.synth.made_workloads import made_workload, shuffled


def test_a_comparison_keeps_the_order_of_the_names_and_a_copy_is_at_no_distance():
    real = made_workload(300)
    answer = compare_workloads(real, {"shuffled": shuffled(real), "copy": real})
    assert list(answer.synthetic) == ["shuffled", "copy"] and answer.jobs == 300 and answer.output is None
    copy = answer.synthetic["copy"]
    assert all(distance.ks == 0 for distance in copy.columns.values()) and copy.lag1.real == copy.lag1.synthetic


def test_an_evaluation_has_the_figures_of_its_scorecard_and_draws_only_when_asked():
    source, seeds = WorkloadInput(made_workload(600, weeks=4)), []

    def make(seed):
        seeds.append(seed)
        return make_generator("rows", seed=seed)

    evaluation, workloads = evaluate_generator(source, "rows", make, 1, None, lambda _share, _words: None)
    assert evaluation.scores == scores_of(evaluation.scorecard) and evaluation.notes == evaluation.scorecard["notes"]
    made_before = len(seeds)
    assert list(workloads()) == ["real (even weeks)", "rows"] and len(seeds) == made_before + 1


def test_a_site_is_compared_by_the_generator_in_use_or_by_one_that_is_not_kept(tmp_path):
    with make_site(tmp_path / "site") as site:
        put_workload(site)
        answer, workloads = compare_site_workload(site, LOCAL, generator=GENERATOR, most=400)
        assert (answer.training, answer.jobs, answer.scorecard) == (None, 400, None) and answer.fidelity is not None
        assert [workload.height for workload in workloads.values()] == [400, 400]
        training = put_generator(site)
        answer, _ = compare_site_workload(site, LOCAL, most=400)
        assert (answer.training, answer.scorecard, answer.fidelity) == (training.name, CARD, None)
        with pytest.raises(AccessError):
            compare_site_workload(site, Viewer("ada", is_admin=False))
