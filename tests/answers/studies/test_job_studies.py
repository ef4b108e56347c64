"""The studies of a job log: one model each, which says all that its faces show."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import ValidationError

from stormpetrel.answers.schemas.job_studies import ProfileQuestion, ProfileStudy, TrendStudy, WasteStudy
from stormpetrel.answers.studies import job_studies
from stormpetrel.answers.studies.job_evaluation import JobInput
from stormpetrel.config import JobsSection
from stormpetrel.engine import Engine
from stormpetrel.errors import NotEnoughJobsError, UsageError
from stormpetrel.jobs.exam import feature_study
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.training import label_jobs
from stormpetrel.records.jobs import job_frame
from tests.builders import T0


def log_of(n=120, *, users=3, failed=lambda k: k % 5 == 0, **fields):
    """n jobs an hour apart of a few users, of four sizes."""
    rows = [
        {
            "job_id": k, "submit_time": T0 + timedelta(hours=k), "start_time": T0 + timedelta(hours=k, minutes=1),
            "end_time": T0 + timedelta(hours=k, minutes=6 + k % 7), "elapsed_s": 300.0 + 60 * (k % 7), "cpus": 2 ** (k % 4),
            "user": f"user{k % users}", "job_name": "app", "state": "FAILED" if failed(k) else "COMPLETED", **fields,
        }
        for k in range(n)
    ]  # fmt: skip
    return JobInput(job_frame(rows), JobsSection(), "UTC")


def test_a_study_survives_its_own_json():
    data = log_of()
    for study, model in (
        (job_studies.profile_study(data), ProfileStudy),
        (job_studies.trend_study(data, "user"), TrendStudy),
        (job_studies.waste_study(data, "user"), WasteStudy),
    ):
        assert model.model_validate_json(study.model_dump_json()) == study


def test_a_study_cannot_be_changed():
    with pytest.raises(ValidationError):
        job_studies.waste_study(log_of(), "user").dropped = 1


def test_profiles_that_were_found_before_are_not_looked_for_again(monkeypatch):
    data, question = log_of(), ProfileQuestion(seed=3)
    fitted = job_studies.fit_profiles(data, question)
    expected = job_studies.profile_study(data, question)
    monkeypatch.setattr(job_studies, "fit_profiles", lambda *_: pytest.fail("fitted twice"))
    assert job_studies.profile_study(data, fitted=fitted) == expected
    assert job_studies.with_profile(data, fitted)["profile"].null_count() == 0


def test_profiles_count_every_job_that_was_kept_in_each_table():
    study = job_studies.profile_study(log_of())
    assert study.preparation["kept"] == 120 == sum(line.jobs for line in study.resources)
    for table in (study.duration, study.status, study.type):
        assert sum(count for line in table for name, count in line.items() if name != "profile") == 120
    assert [line.profile for line in study.profiles] == list(range(study.k))


def test_a_trend_shows_a_few_groups_and_looks_for_movers_among_all():
    data = log_of(400, users=4, failed=lambda k: (k % 4 == 3 and k > 380) or k % 4 == 0)
    study = job_studies.trend_study(data, "user", top=1)
    assert {point.group for point in study.trend} == {"user0"}
    assert "user3" in {mover.group for mover in study.movers}


def test_other_programs_know_an_application_as_a_family():
    data = log_of(40)
    assert job_studies.waste_study(data, "application").by == "family" == job_studies.trend_study(data, "application").by


def test_the_waste_of_groups_is_that_of_the_log():
    study = job_studies.waste_study(log_of(), "user")
    assert sum(line.lost_core_seconds for line in study.groups) == study.total.lost_core_seconds > 0
    assert study.total.jobs == 120 and study.reconciled


def test_features_without_ablation_have_no_verdict_and_constants_no_correlation(monkeypatch):
    monkeypatch.setattr(feature_study, "_TREES", 4)
    data = log_of()
    labelled = label_jobs(data.jobs, data.training(), [Moment.SUBMIT])
    study = job_studies.study_features(labelled, Moment.SUBMIT, with_ablation=False)
    assert study.at == "submit" and study.jobs == 120
    assert study.ablation is None and study.verdicts is None
    assert study.matrix.names[0] == "failed" and study.matrix.r[0][0] == pytest.approx(1.0)
    assert any(line.pearson is None for line in study.correlations)


def test_each_group_that_is_left_out_is_an_item_of_the_engine(monkeypatch):
    groups = []

    class WatchedEngine(Engine):
        def map(self, function, items, **options):
            groups.extend(items)
            return super().map(function, items, **options)

    monkeypatch.setattr(feature_study, "_TREES", 4)
    study = job_studies.feature_study(log_of(), Moment.SUBMIT, engine=WatchedEngine())
    assert set(groups) == {line.group for line in study.ablation.groups}


@pytest.mark.slow
def test_features_have_the_same_figures_with_one_worker_and_with_two():
    data = log_of(failed=lambda k: k % 4 == 3)
    alone, apart = (job_studies.feature_study(data, Moment.SUBMIT, engine=Engine(workers)) for workers in (1, 2))
    assert alone.verdicts and apart == alone


def test_columns_are_correlated_with_failing_over_the_jobs_that_ended():
    data = log_of(failed=lambda k: k % 4 == 3)  # the largest fail
    study = job_studies.column_study(data, fitted=job_studies.fit_profiles(data))
    assert study.matrix.names[0] == "failed" and dict.fromkeys(line.feature for line in study.correlations).keys() >= {"cpu"}
    assert next(line.pearson for line in study.correlations if line.feature == "cpu") > 0.5
    assert study.cpu_and_memory is None  # no job tells its memory
    good = log_of(failed=lambda _: False)
    with pytest.raises(UsageError, match="all have the same outcome"):
        job_studies.column_study(good, fitted=job_studies.fit_profiles(good))


def test_a_log_without_jobs_is_refused():
    empty = JobInput(job_frame([]), JobsSection(), "UTC")
    for study in (
        lambda: job_studies.profile_study(empty),
        lambda: job_studies.feature_study(empty, Moment.SUBMIT),
        lambda: job_studies.trend_study(empty, "user"),
        lambda: job_studies.waste_study(empty, "user"),
    ):
        with pytest.raises(NotEnoughJobsError, match="There are no jobs to study"):
            study()
