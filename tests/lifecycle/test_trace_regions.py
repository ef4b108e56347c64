"""Named troubles: kept with the site, seen by the model in use, never learnt as normal, taken back again."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.nodes.board import make_node_board
from stormpetrel.answers.nodes.findings import known_troubles, node_findings
from stormpetrel.answers.nodes.regions import PastWindows
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.errors import NotThereError, UsageError
from stormpetrel.lifecycle.trace_learning import campaign_windows, learning_windows
from stormpetrel.lifecycle.trace_models import load_trace_model, score_new_windows
from stormpetrel.lifecycle.trace_regions import add_region, labelled_types, remove_region
from stormpetrel.records.regions import RegionScope
from stormpetrel.records.traces import BAD_IO, GOOD_IO
from stormpetrel.store.site import open_site
from tests.lifecycle.traced_site import STEPS_S, campaign, put_windows, traced_site
from tests.parts import need
from tests.traces.small import STEPS, small_trace

STUCK = "Stuck in the wild"  # a label that nothing in the product knows


@pytest.fixture
def site(tmp_path):
    need("onnxruntime")
    with traced_site(tmp_path / "site", splits=False) as site:
        yield site


def relabelled(windows, was, now, **changes):
    jobs = tuple(replace(job, job_type=now, **changes) if job.job_type == was else job for job in windows.jobs)
    return replace(windows, jobs=jobs)


def learnt_types(site):
    return set(learning_windows(site).train.of_normal().job_types().tolist())


def test_an_invented_label_that_a_campaign_calls_anomalous_is_never_learnt_as_normal(tmp_path):
    with traced_site(tmp_path / "site", splits=False) as site:
        put_windows(site, relabelled(campaign(0, name="other"), GOOD_IO, STUCK, labelled_anomalous=True))
        assert STUCK in set(learning_windows(site).train.job_types().tolist())  # it is there
        assert STUCK not in learnt_types(site) and GOOD_IO in learnt_types(site)


def test_a_job_type_of_any_name_is_learnt_until_somebody_names_it_as_trouble(tmp_path):
    with traced_site(tmp_path / "site", splits=False) as site:
        put_windows(site, relabelled(campaign(0, name="other"), GOOD_IO, STUCK))
        assert STUCK in learnt_types(site)
        add_region(site, "stuck", RegionScope(job_type=STUCK), user="ada")
        assert STUCK not in learnt_types(site) and labelled_types(site) == {STUCK}
        trace = small_trace(3, steps=20 * STEPS)
        other = replace(trace, jobs=tuple(replace(job, job_type=STUCK) for job in trace.jobs))
        seen = campaign_windows([other], window_s=STEPS_S, trouble=labelled_types(site))
        assert STUCK not in set(seen.train.of_normal().job_types().tolist())
        remove_region(site, "stuck")
        assert STUCK in learnt_types(site)


def test_a_job_or_a_node_in_a_span_of_time_that_is_named_is_not_learnt_from(site):
    every = learning_windows(site).train
    starts = site.cpu_windows.read().select("window_start").unique().collect()["window_start"].sort()
    since, until = starts[0], starts[2]
    add_region(site, "bad hour", RegionScope(node="n1", since=since, until=until), user="ada")
    add_region(site, "bad job", RegionScope(job_id="0"), user="ada")
    normal = learning_windows(site).train.of_normal()
    first_s = (since.timestamp(), (until - timedelta(seconds=1)).timestamp())
    node = np.array(normal.nodes)[normal.node] == "n1"
    assert len(normal) < len(every.of_normal())
    assert not (node & (normal.start_s >= first_s[0]) & (normal.start_s <= first_s[1])).any()  # its idle threads as well
    assert "0" not in {normal.jobs[number].job_id for number in set(normal.job.tolist()) if number >= 0}


def test_windows_like_a_named_trouble_carry_its_name_and_do_not_once_it_is_taken_back(site):
    add_region(site, "waits for files", RegionScope(job_type=BAD_IO), user="ada", incident=7)
    model = load_trace_model(site)
    score_new_windows(site, model)
    rows = site.trace_scores.read().collect()
    bad = rows["job_type"] == BAD_IO
    named = (rows["region"] == "waits for files").fill_null(False)
    assert named.filter(bad).mean() > 0.8 and named.filter(~bad).mean() < 0.02
    assert rows["embedding"].list.len().unique().to_list() == [model.scorer.settings.embedding]
    assert load_trace_model(site).regions.all[0].coverage > 0.8  # out of the stored embeddings now
    remove_region(site, "waits for files")
    put_windows(site, campaign(5, name="later"))
    score_new_windows(site, load_trace_model(site))
    later = site.trace_scores.read().filter(pl.col("trace") == "later").collect()
    assert later.height and later["region"].null_count() == later.height


def test_who_is_like_a_trouble_that_was_named_after_the_windows_were_scored_is_told_with_the_other_findings(site):
    score_new_windows(site, load_trace_model(site))
    live = LiveSite(site)
    live.refresh()
    assert node_findings(live, LOCAL).inside == []
    add_region(site, "waits for files", RegionScope(job_type=BAD_IO), user="ada")
    board = make_node_board(live, "", live.boards.nodes.latest(live).value).value
    inside = known_troubles(site, LOCAL, board.network.load(site), board.windows["window_start"].max())
    assert {one.region for one in inside} == {"waits for files"}
    assert inside[0].job_type == BAD_IO and inside[0].inside > 0.8 * inside[0].windows


def test_a_region_outlives_the_site_being_closed_and_its_windows_being_deleted(site):
    region = add_region(site, "waits for files", RegionScope(job_type=BAD_IO), user="ada")
    site.cpu_windows.table.overwrite(site.cpu_windows.table.scan().filter(pl.col("job_type") != BAD_IO).collect())
    with open_site(site.folder) as again:
        assert again.trace_regions.list() == [region]
        (seen,) = load_trace_model(again).regions.all
    assert (seen.name, len(seen.examples)) == ("waits for files", region.examples) and seen.radius > 0


def test_the_past_windows_that_were_like_a_window_are_of_other_jobs_and_had_ended(site):
    model = load_trace_model(site)
    score_new_windows(site, model)
    row = site.trace_scores.read().filter(pl.col("job_type") == BAD_IO).sort("window_start").collect().row(-1, named=True)
    matches = PastWindows(site, model).like(np.asarray(row["embedding"], np.float32), row, 2)
    assert matches[0]["job_type"] == BAD_IO and all(match["job_id"] != row["job_id"] for match in matches)
    ended = [match["window_start"] + timedelta(seconds=match["window_s"]) for match in matches]
    assert max(ended) <= row["window_start"] and matches == sorted(matches, key=lambda match: match["distance"])


def test_what_cannot_be_named_is_refused_and_leaves_nothing(site):
    with pytest.raises(NotThereError, match="No window of job '99'"):
        add_region(site, "x", RegionScope(job_id="99"), user="ada")
    with pytest.raises(UsageError, match="has no name"):
        add_region(site, " \n", RegionScope(job_type=BAD_IO), user="ada")
    with pytest.raises(UsageError, match="When was"):
        RegionScope(node="n1")
    with pytest.raises(NotThereError, match="no region 'x'"):
        remove_region(site, "x")
    assert site.trace_regions.list() == []
