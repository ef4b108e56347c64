"""Each turn of the loop reads what is new and judges it; what goes wrong outside is waited out."""

from __future__ import annotations

import itertools
from datetime import timedelta

import polars as pl
import pytest

from stormpetrel.errors import UsageError
from stormpetrel.jobs.moments import Moment
from stormpetrel.lifecycle.job_models import train_job_models
from stormpetrel.lifecycle.live import open_stream
from stormpetrel.lifecycle.working_points import FEWEST_SETTLED, read_working_points
from stormpetrel.records.jobs import KEY
from stormpetrel.watch.actions.acting import KnownNow
from stormpetrel.watch.loop import Watch, retry_pause_s
from stormpetrel.watch.reading import LiveReader
from tests.lifecycle.sites import few_trees
from tests.parts.watched_site import TRAINED, copy_site, move_clock, simulated_jobs, train_same_again

SAID = [*KEY, "moment", "moment_time", "as_of", "risk", "model_version", "reason_words"]
SECOND = timedelta(seconds=1)


def predictions_of(site) -> pl.DataFrame:
    return site.predictions.read().collect().sort("job_id", "array_task", "moment")


def undisturbed(site, until) -> pl.DataFrame:
    """What is to be said about everything up to a moment, by a stream that is fed once with what really happened."""
    stream = open_stream(site, horizon=TRAINED, began=TRAINED, remember=False)
    jobs = site.jobs.read_jobs().collect()
    return stream.advance(jobs, until=until).sort("job_id", "array_task", "moment")


def test_jobs_are_judged_as_they_come_start_and_run(site):
    watch = Watch(site)
    assert not watch.step().predictions.height
    total = 0
    for hours in (1, 2, 5, 9):
        move_clock(site, TRAINED + timedelta(hours=hours))
        step = watch.step()
        total += step.predictions.height
        assert step.ready and step.horizon == TRAINED + timedelta(hours=hours) - SECOND
    stored = predictions_of(site)
    assert stored.height == total > 20
    assert set(stored["moment"].unique()) == {"submit", "start", "2min"}
    assert stored.select(SAID).equals(undisturbed(site, site.now() - SECOND).select(SAID))


def test_a_watcher_that_died_is_followed_by_one_that_goes_on(site):
    for hours in (2, 3, 7):
        move_clock(site, TRAINED + timedelta(hours=hours))
        Watch(site).step()  # each one new: nothing is left in memory
    assert predictions_of(site).select(SAID).equals(undisturbed(site, site.now() - SECOND).select(SAID))


def test_what_was_read_but_not_judged_is_judged_by_the_next_watcher(site):
    move_clock(site, TRAINED + timedelta(hours=2))
    Watch(site).step()
    move_clock(site, TRAINED + timedelta(hours=6))
    LiveReader(site).read()  # died after the ingest
    watch = Watch(site)
    watch.step()
    assert predictions_of(site).select(SAID).equals(undisturbed(site, site.now() - SECOND).select(SAID))


def test_a_source_that_is_gone_is_waited_for_and_caught_up_with_in_order(site):
    watch = Watch(site)
    move_clock(site, TRAINED + timedelta(hours=1))
    watch.step()
    sacct = site.folder / "feed" / "sacct"
    works = sacct.read_text()
    sacct.write_text("#!/bin/sh\necho 'sacct: error: Connection refused' >&2\nexit 1\n")
    for hours in (2, 3):
        move_clock(site, TRAINED + timedelta(hours=hours))
        step = watch.step()
        assert "Connection refused" in step.read.problem and not step.ready
        assert step.horizon == TRAINED + timedelta(hours=1) - SECOND and not step.predictions.height
    sacct.write_text(works)
    move_clock(site, TRAINED + timedelta(hours=4))
    step = watch.step()
    assert step.ready and step.predictions["as_of"].is_sorted()
    old = step.predictions.filter(pl.col("moment_time") < site.now() - timedelta(minutes=1))
    assert old.height and old["late"].all()
    assert predictions_of(site).select(SAID).equals(undisturbed(site, site.now() - SECOND).select(SAID))


def test_an_answer_cut_off_in_the_middle_says_nothing_wrong(site):
    watch = Watch(site)
    move_clock(site, TRAINED + timedelta(hours=3))
    sacct = site.folder / "feed" / "sacct"
    works = sacct.read_text()
    sacct.write_text(works.replace("exec ", "").rstrip() + " | head -c 3000; exit 1\n")
    assert watch.step().read.problem
    sacct.write_text(works)
    watch.step()
    assert predictions_of(site).select(SAID).equals(undisturbed(site, site.now() - SECOND).select(SAID))


def test_a_model_that_is_promoted_is_taken_up_without_a_restart(site):
    watch = Watch(site)
    move_clock(site, TRAINED + timedelta(hours=3))
    assert set(watch.step().predictions["model_version"]) == {1}
    train_same_again(site)
    move_clock(site, TRAINED + timedelta(hours=6))
    step = watch.step()
    assert set(step.predictions["model_version"]) == {2}
    assert not predictions_of(site).select(*KEY, "moment").is_duplicated().any()


def test_a_new_working_point_is_taken_up_while_it_runs(prepared, copied):
    site = copied(prepared, jobs={"recalibrate": True, "missed_cost": 30.0})
    watch, at_submission = Watch(site), pl.col("moment") == "submit"
    move_clock(site, TRAINED + timedelta(hours=3))
    early = set(watch.step().predictions.filter(at_submission)["threshold"])
    assert len(early) == 1 and read_working_points(site) == {}, "too few have settled: the model's own threshold holds"
    for hours in (24, 48, 60):
        move_clock(site, TRAINED + timedelta(hours=hours, minutes=55))
        later = watch.step().predictions.filter(at_submission)
    later = later.filter(pl.col("moment_time") > pl.lit(site.now().replace(minute=0, second=0, microsecond=0)))
    point = read_working_points(site)[Moment.SUBMIT]
    assert point.settled >= FEWEST_SETTLED and point.corrected == pytest.approx(1 / 30, abs=0.01)
    assert later.height and later["threshold"].to_list() == pytest.approx([point.threshold] * later.height)
    assert next(iter(early)) != pytest.approx(point.threshold, rel=0.01)
    assert later["flagged"].equals(later["risk"] >= point.threshold)


def test_working_points_hang_on_the_sites_clock_and_not_on_how_often_it_looks(prepared, copied):
    said = []
    for hours in ((47, 54), range(1, 55)):
        site = copied(prepared, jobs={"recalibrate": True, "missed_cost": 30.0})
        watch = Watch(site)
        for hour in hours:
            move_clock(site, TRAINED + timedelta(hours=hour, minutes=hour % 7))
            watch.step()
            watch = Watch(site) if hour % 5 == 0 else watch  # killed
        late = pl.col("moment_time") > TRAINED + timedelta(hours=31)  # what is longer ago than a day is judged day by day
        said.append(predictions_of(site).filter(late).sort(*KEY, "moment").select(*KEY, "moment", "threshold", "flagged"))
    assert said[0].height and said[0]["threshold"].n_unique() > 3 and said[0].equals(said[1])


def test_a_promoted_model_that_cannot_be_read_leaves_the_old_one_at_work(site):
    watch = Watch(site)
    move_clock(site, TRAINED + timedelta(hours=3))
    watch.step()
    train_same_again(site)
    for path in site.models.folder_of("jobs-start", 2).iterdir():
        path.write_text("{}")
    move_clock(site, TRAINED + timedelta(hours=6))
    step = watch.step()
    assert set(step.predictions["model_version"]) == {1}
    assert step.model_problem and not step.ready


def test_a_site_without_a_model_is_judged_by_the_prior_and_then_by_its_own(untrained, copied):
    site = copied(untrained)
    watch = Watch(site)
    assert not watch.step().predictions.height, "what was before is history"
    move_clock(site, TRAINED + timedelta(hours=3))
    step = watch.step()
    assert step.ready and step.predictions.height and set(step.predictions["model_version"]) == {-1}
    assert step.predictions["risk"].is_between(0, 1, closed="none").all() and step.predictions["profile"].null_count()
    assert KnownNow(site).judged_jobs(site.now()).is_empty(), "no policy acts on general experience"
    with few_trees():
        train_job_models(site, until=TRAINED)
    move_clock(site, TRAINED + timedelta(hours=6))
    assert set(watch.step().predictions["model_version"]) == {1}
    said = predictions_of(site)
    assert set(said["model_version"]) == {-1, 1} and not said.select(*KEY, "moment").is_duplicated().any()


def test_a_watch_with_the_prior_that_is_started_again_says_the_same(untrained, copied):
    once, twice = copied(untrained), copied(untrained)
    for site, stops in ((once, (6,)), (twice, (2, 4, 6))):
        Watch(site).step()
        for hours in stops:
            move_clock(site, TRAINED + timedelta(hours=hours))
            Watch(site).step()
    order = [*KEY, "moment"]
    columns = [*order, "risk", "model_version"]
    assert predictions_of(once).select(columns).sort(order).equals(predictions_of(twice).select(columns).sort(order))


def test_without_a_model_and_a_prior_jobs_are_read_and_the_step_says_what_to_do(untrained, copied):
    site = copied(untrained, jobs={"prior": False})
    move_clock(site, TRAINED + timedelta(hours=3))
    step = Watch(site).step()
    assert step.read.new > 0 and not step.predictions.height
    assert "stormpetrel jobs train" in step.model_problem


@pytest.fixture(scope="module")
def after_a_day(prepared, sacct, tmp_path_factory):
    """A site that was watched for the first time a day after its training, and what that first turn came to."""
    with copy_site(prepared, tmp_path_factory.mktemp("day") / "site", sacct=sacct) as site:
        move_clock(site, TRAINED + timedelta(days=1))
        yield site, Watch(site).step()


def test_a_first_watch_also_judges_what_came_after_the_training(after_a_day):
    _, step = after_a_day
    assert step.predictions["moment_time"].min() < TRAINED + timedelta(hours=4)
    assert step.predictions["late"].any()


def test_predictions_stand_beside_what_became_of_the_job(after_a_day):
    site, _ = after_a_day
    joined = predictions_of(site).join(simulated_jobs().select(*KEY, "state"), on=list(KEY), nulls_equal=True)
    assert joined.height == predictions_of(site).height > 0


def test_a_watcher_that_has_days_to_catch_up_with_gives_a_sign_of_life_after_each(begun, copied):
    site = copied(begun)
    move_clock(site, TRAINED + timedelta(days=2, hours=12))
    heard = []
    Watch(site, alive=heard.append).step()
    steps = [later - earlier for earlier, later in itertools.pairwise(heard)]
    assert all(timedelta(0) < step <= timedelta(days=1) for step in steps) and heard[-1] - TRAINED > timedelta(days=1)


def test_running_jobs_are_not_another_record_at_each_look(site):
    watch = Watch(site)
    move_clock(site, TRAINED + timedelta(hours=3))
    watch.step()
    before = site.jobs.sightings.scan().collect()["fingerprint"].n_unique()
    move_clock(site, TRAINED + timedelta(hours=3, seconds=2))
    step = watch.step()
    assert step.open_jobs > 0 and step.read.changed == 0
    assert site.jobs.sightings.scan().collect()["fingerprint"].n_unique() <= before + step.read.new


def test_a_site_with_nothing_to_watch_says_so(untrained, copied):
    site = copied(untrained)
    (site.folder / "feed" / "sacct").unlink()
    with pytest.raises(UsageError, match="nothing to watch"):
        Watch(site)


def test_the_pause_grows_while_nothing_answers_and_has_an_end():
    pauses = [retry_pause_s(failures, 5.0) for failures in range(8)]
    assert pauses[0] == 5.0 and pauses == sorted(pauses) and pauses[-1] == 60.0
