"""`stormpetrel traces`: what people and programs read, and what is said of what cannot be done."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from stormpetrel.errors import ModelError, SourceError, UsageError
from stormpetrel.faces.cli.main import app
from stormpetrel.lifecycle.trace_models import calibration_fact
from stormpetrel.records.traces import UNKNOWN_JOB, Split
from stormpetrel.sources.trace_files import write_trace
from stormpetrel.store.site import open_site
from stormpetrel.traces import study
from stormpetrel.traces.shipped import NAME as SHIPPED
from stormpetrel.traces.shipped import shipped_version
from tests.answers import traced_sites as made
from tests.builders import make_site
from tests.lifecycle.traced_site import put_windows, traced_site
from tests.traces.small import one_torch_thread, small_trace, small_windows

QUICK = ("--models", "1", "--epochs", "1", "--device", "cpu", "--no-bench")


@pytest.fixture(scope="module", autouse=True)
def _quickly():
    with one_torch_thread(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "SPEED_S", 0.02)
        yield


def ran(*words, site=None):
    return CliRunner().invoke(app, ["--site", str(site), "traces", *map(str, words)], catch_exceptions=False).stdout


def told(*words, site=None):
    return json.loads(ran(*words, "--json", site=site))


def write_campaigns(folder, *, splits=tuple(Split), jobs=True):
    for seed, split in enumerate(splits):
        trace = small_trace(seed, steps=400, name=f"run-{seed}", nodes=1)
        np.clip(trace.rates, 0, 1, out=trace.rates)
        job = trace.job if jobs else trace.job * 0 + UNKNOWN_JOB
        write_trace(replace(trace, split=split, job=job, jobs=trace.jobs if jobs else ()), folder / f"run-{seed}.npz")
    return folder


@pytest.fixture(scope="module")
def campaigns(tmp_path_factory):
    return write_campaigns(tmp_path_factory.mktemp("campaigns"))


@pytest.fixture(scope="module")
def site_folder(tmp_path_factory):
    """A site whose model is trained and has scored everything."""
    folder = tmp_path_factory.mktemp("sites") / "site"
    traced_site(folder).close()
    told("train", "--epochs", "2", "--device", "cpu", site=folder)
    ran("score", site=folder)
    return folder


# --- evaluate -----------------------------------------------------------------------------------------------------------------


@pytest.mark.needs("torch")
def test_evaluate_prints_the_whole_study_as_json(campaigns, tmp_path):
    plot = tmp_path / "figures.html"
    found = told("evaluate", campaigns, *QUICK, "--keep", tmp_path / "kept", "--plot", plot)
    assert set(found["model"]) == {"vanilla", "node_gnn", "job_gnn", "fast"}
    assert found["model"]["vanilla"].keys() == {"re_normal", "re_anomalous", "silhouette", "roc_auc"}
    assert found["model"]["vanilla"]["re_normal"]["n"] == 1 and set(found["baselines"]) == {"mean_iowait", "pca"}
    assert found["windows"] == {"train": 32, "validation": 32, "test": 32, "left_out": 0, "mixed": 0}
    assert set(found["windows_per_second_per_core"]) == set(found["model"]) == set(found["seconds"]["training"])
    assert found["campaigns"] == {"run-0": "train", "run-1": "validation", "run-2": "test"}
    assert sorted(path.name for path in (tmp_path / "kept").iterdir() if path.is_dir()) == [
        "fast-0",
        "job_gnn-0",
        "node_gnn-0",
        "vanilla-0",
    ]
    page = plot.read_text()
    assert page.count("Plotly.newPlot(") == 5 and "near Bad IO" in page


@pytest.mark.needs("torch")
def test_evaluate_shows_the_published_table_beside_ours(campaigns):
    shown = ran("evaluate", campaigns, *QUICK, "--architectures", "vanilla")
    assert "0.0064 ± 0.0002" in shown and "Vanilla AE (1)" in shown and "mean iowait" in shown and "PCA" in shown
    assert "0.0122" not in shown and "--keep DIR" in shown


@pytest.mark.needs("torch")
def test_evaluate_simulates_campaigns_where_asked():
    size = ("--nodes", "1", "--threads", "8", "--minutes", "8")
    found = told("evaluate", "--simulated", *size, *QUICK, "--architectures", "vanilla")
    assert found["simulated"] and len(found["campaigns"]) == 5 and found["windows"]["test"] == 32


@pytest.mark.needs("torch")
def test_runs_without_split_and_jobs_are_judged_by_name_and_per_run(tmp_path):
    folder = write_campaigns(tmp_path, splits=(None,) * 4, jobs=False)
    found = told("evaluate", folder, *QUICK, "--architectures", "vanilla,job_gnn")
    assert found["model"]["job_gnn"] is None and "No thread is known" in found["why"]["job_gnn"]
    assert found["model"]["vanilla"]["roc_auc"] is None and set(found["per_run"]["vanilla"]) == {"run-2", "run-3"}
    assert "run-3" in ran("evaluate", folder, *QUICK, "--architectures", "vanilla")


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        ((), UsageError, "No campaign was named"),
        (("--simulated", "x.npz"), UsageError, "creates its own campaigns"),
        (("x.npz",), SourceError, "There is no file"),
        (("--simulated", "--architectures", "lstm"), UsageError, "Unknown architecture 'lstm'.*Known: vanilla"),
        (("--simulated", "--architectures", ","), UsageError, "Unknown architecture"),
    ],
)
def test_evaluate_refuses_what_makes_no_sense(words, error, said):
    with pytest.raises(error, match=said):
        ran("evaluate", *words)


def test_a_folder_without_test_campaigns_is_refused_in_a_sentence(tmp_path):
    with pytest.raises(UsageError, match=r"There is no campaign for test; there are 2 for train\."):
        ran("evaluate", write_campaigns(tmp_path, splits=(Split.TRAIN, Split.TRAIN)), *QUICK)


# --- a site -------------------------------------------------------------------------------------------------------------------


@pytest.mark.needs("torch")
def test_train_tells_what_the_model_is(tmp_path):
    traced_site(tmp_path / "site").close()
    shown = ran("train", "--epochs", "1", "--device", "cpu", "--architecture", "node_gnn", site=tmp_path / "site")
    assert "traces-node_gnn version 1: 112 windows of 16 s, stopped by 112" in shown and "at most 10.0 % of calm ones" in shown
    assert "traces score" in shown


@pytest.mark.needs("torch")
def test_train_takes_campaigns_that_are_not_in_the_site(tmp_path, campaigns):
    make_site(tmp_path / "site").close()
    found = told("train", "--campaigns", campaigns, "--epochs", "1", "--device", "cpu", site=tmp_path / "site")
    assert found["from"] == "campaign files" and found["window_s"] == 100.0 and found["name"] == "traces-fast"


@pytest.mark.needs("torch")
def test_score_names_the_most_abnormal_and_scores_once(site_folder):
    found = told("score", "--top", "3", site=site_folder)
    assert (found["scored"], found["version"], found["other_length"]) == (0, 1, 0)
    assert len(found["threads"]) == 3 and {job["job_type"] for job in found["jobs"]} >= {"Bad IO"}
    assert found["threads"][0].keys() >= {"node", "cpu", "windows", "flagged", "mean_score", "highest_score", "max_iowait"}
    shown = ran("score", site=site_folder)
    assert "0 windows scored by traces-fast version 1" in shown and "Most abnormal nodes" in shown


@pytest.mark.needs("torch")
def test_score_says_what_other_windows_there_are(tmp_path):
    traced_site(tmp_path / "site").close()
    told("train", "--epochs", "1", "--device", "cpu", site=tmp_path / "site")
    with open_site(tmp_path / "site") as site:
        put_windows(site, replace(small_windows(9, steps=128, name="other"), step_s=2.0))
    assert "are of another length or step" in ran("score", site=tmp_path / "site")


@pytest.mark.needs("torch")
def test_the_map_is_told_per_job_type(site_folder, tmp_path):
    found = told("map", "--plot", tmp_path / "map.html", site=site_folder)
    assert {row["job_type"] for row in found["job_types"]} == {"MPI 4", "Good IO", "Bad IO", "Idle"}
    assert len(found["points"]) == 384 and found["points"][0].keys() >= {"x", "y", "node", "cpu", "window_start", "score"}
    assert "Where job types lie" in ran("map", site=site_folder)
    assert "Plotly.newPlot(" in (tmp_path / "map.html").read_text()


@pytest.mark.needs("torch")
def test_the_diagnosis_names_its_region(site_folder, tmp_path):
    found = told("diagnose", "--plot", tmp_path / "near.html", site=site_folder)
    assert found["windows"] == 288 and found["radius"] > 0 and found["high_iowait"] > 0.3
    assert all(one["job_type"] not in ("Bad IO", "Idle") for one in found["suspects"])
    assert "of the centre of Bad IO" in ran("diagnose", site=site_folder)
    assert "Plotly.newPlot(" in (tmp_path / "near.html").read_text()


def test_the_diagnosis_says_who_is_above_in_the_newest_seconds_or_why_nobody_knows(tmp_path):
    folder = tmp_path / "site"
    with traced_site(folder) as site:
        rows = (("n003", 300, "4711"), ("n004", 20, None), ("n005", 1, None))
        start = datetime.now(UTC) - timedelta(seconds=50)
        made.put_sliding(site, [made.sliding_row(start, name, above, job=job, since=start) for name, above, job in rows])
    ran("score", site=folder)
    assert "every second now. No Prometheus with CPU counters is named" in " ".join(ran("diagnose", site=folder).split())
    with open_site(folder) as site:
        shipped = {"name": SHIPPED, "version": shipped_version()}
        promise = {"asked": 0.1, "share": 0.1, "threshold": 0.1, "calm": {"windows": 9, "independent": 9, "hours": 1.0}}
        site.state.set_fact(calibration_fact(shipped["version"]), json.dumps(promise))
        same = site.sliding_scores.read().collect()
        as_shipped = same.with_columns(model=pl.lit(shipped["name"]), model_version=pl.lit(shipped["version"], dtype=pl.Int64))
        site.sliding_scores.append(as_shipped)
    shown = " ".join(ran("diagnose", "--top", "2", site=folder).split())
    assert "3 nodes are above the threshold" in shown and "and 1 more (--top)" in shown
    assert "node n003: 4 of 8 threads above what one calm second in 10 reaches" in shown and "(job 4711)" in shown
    assert "quick score of single threads, second by second; incidents come from whole windows." in shown
    assert [node["node"] for node in told("diagnose", site=folder)["sliding"]["nodes"]] == ["n003", "n004", "n005"]


@pytest.mark.needs("torch")
def test_a_model_without_bad_io_cannot_diagnose(tmp_path):
    with make_site(tmp_path / "site", traces={"window_s": 16.0}) as site:
        put_windows(site, small_windows(0, steps=128, name="live").of_normal())
    shown = " ".join(ran("train", "--epochs", "1", "--device", "cpu", site=tmp_path / "site").split())
    assert "No Bad IO window is known" in shown
    assert "no detector, which names unusual nodes. There are 16 calm node windows; the detector learns from 24" in shown
    ran("score", site=tmp_path / "site")
    with pytest.raises(ModelError, match=r"no detector, and knows no Bad IO windows.* Take in more windows .*traces train"):
        ran("diagnose", site=tmp_path / "site")


@pytest.mark.parametrize("verb", ["map", "diagnose"])
def test_before_the_first_score_every_verb_says_what_to_do(tmp_path, verb):
    make_site(tmp_path / "site").close()
    with pytest.raises(ModelError, match=r"No window has been scored yet by the shipped encoder.*stormpetrel traces score"):
        ran(verb, site=tmp_path / "site")


def test_a_site_without_a_model_is_scored_by_the_shipped_encoder_and_everything_says_so(tmp_path):
    traced_site(tmp_path / "site").close()
    shown = ran("score", site=tmp_path / "site")
    assert "384 windows scored by the shipped encoder, not trained on this site" in shown
    assert told("score", site=tmp_path / "site")["shipped"]
    for verb in ("map", "diagnose"):
        assert told(verb, site=tmp_path / "site")["shipped"]
        assert "scores of the shipped encoder, which was trained on simulated jobs" in " ".join(
            ran(verb, site=tmp_path / "site").split()
        )


@pytest.mark.needs("torch")
def test_training_on_few_windows_says_how_many_and_how_many_hours_a_promise_takes(tmp_path):
    with make_site(tmp_path / "site", traces={"window_s": 16.0}) as site:
        put_windows(site, small_windows(0, steps=80, name="live"))
    shown = " ".join(ran("train", "--epochs", "1", "--device", "cpu", site=tmp_path / "site").split())
    assert "Nothing is flagged, and the scores are a ranking: 6 independent calm windows over 16 seconds were kept aside" in shown
    assert "To flag at most 0.10 % (traces.alarm_share) of calm windows it takes 2,995, about 2.2 hours like these." in shown


@pytest.mark.needs("torch")
def test_a_map_before_scoring_says_what_to_do(tmp_path):
    traced_site(tmp_path / "site").close()
    told("train", "--epochs", "1", "--device", "cpu", site=tmp_path / "site")
    with pytest.raises(ModelError, match=r"No window has been scored yet by traces-fast version 1.*stormpetrel traces score"):
        ran("map", site=tmp_path / "site")


@pytest.fixture(scope="module")
def exam_folder(tmp_path_factory):
    """Small campaigns with enough node windows to judge a detector on, and a fault of others."""
    folder = tmp_path_factory.mktemp("exam")
    for seed, split in enumerate((Split.TRAIN, Split.TRAIN, Split.VALIDATION, Split.TEST)):
        trace = small_trace(seed, steps=320, name=f"run-{seed}")
        write_trace(replace(trace, split=split), folder / f"run-{seed}.npz")
    (folder / "strange.py").write_text(
        "def everything_stops(windows, severity, seed):\n    windows[:] = [0, 0, 0, 1]\n    return windows\n"
    )
    return folder


def test_faults_of_others_are_judged_and_every_score_is_written(exam_folder, tmp_path):
    words = ("--models", "0", "--no-bench", "--window", "16", "--faults", f"{exam_folder}/strange.py:everything_stops")
    answer = told("evaluate", exam_folder, *words, "--scores", tmp_path / "scores.csv")
    cell = answer["faults"]["everything_stops"]["severe"]
    assert set(cell) == {
        "detector", "iowait", "pca", "pca_statistics", "mahalanobis", "node_mahalanobis", "iforest", "ecod", "knn", "kmeans",
        "autoencoder", "ceiling",
    }  # fmt: skip
    assert cell["detector"]["roc_auc"] > 0.95 and cell["ceiling"]["recall"] > 0.9
    assert answer["fault_summary"]["windows"]["calm"] == 40 and answer["model"] == {}
    assert answer["windows_per_second_per_core"]["detector"] > 0
    scores = pl.read_csv(tmp_path / "scores.csv")
    assert scores.columns == ["level", "trace", "node", "start_s", "fault", "severity", "scorer", "score"]
    assert set(scores["level"]) == {"thread", "job", "node"} and set(scores["fault"]) == {None, "everything_stops"}
    untouched = scores.filter(pl.col("fault").is_null(), pl.col("level") == "node", pl.col("scorer") == "detector")
    assert untouched.height == 40 and set(untouched["node"]) == {"n0", "n1"} and set(untouched["trace"]) == {"run-3"}


def test_the_exam_is_shown_in_words(exam_folder):
    words = ("--models", "0", "--no-bench", "--window", "16", "--faults", f"{exam_folder}/strange.py:everything_stops")
    shown = ran("evaluate", exam_folder, *words)
    assert "Faults injected into the test windows" in shown and "everything" in shown
    assert "Of 40 untouched node windows over one span of time: 5.0% promised" in shown
    assert "has learnt from 120 normal node windows. With fewer than 200, more may be flagged than promised" in shown


def test_too_few_windows_for_an_exam_are_refused_where_it_was_asked_for(tmp_path):
    for seed, split in enumerate((Split.TRAIN, Split.VALIDATION, Split.TEST)):
        write_trace(replace(small_trace(seed, steps=48, nodes=1), name=f"r{seed}", split=split), tmp_path / f"{seed}.npz")
    with pytest.raises(ModelError, match="calm node windows"):
        ran("evaluate", tmp_path, "--models", "0", "--window", "16", "--scores", tmp_path / "scores.csv")
    assert not list(tmp_path.glob("*scores*"))
    shown = " ".join(ran("evaluate", tmp_path, "--models", "0", "--window", "16").split())
    assert "not judged on faults. There are 6 calm node windows; the detector learns from 24 or more. Take in more:" in shown
    assert "learns from 24" in told("evaluate", tmp_path, "--models", "0", "--window", "16")["why"]["detector"]


def test_a_trouble_is_named_listed_found_and_taken_back(tmp_path):
    folder = tmp_path / "site"
    with traced_site(folder, splits=False):
        pass
    named = told("label", "waits for files", "--type", "Bad IO", site=folder)["regions"]
    assert [(line["name"], line["job_type"], line["incident"]) for line in named] == [("waits for files", "Bad IO", None)]
    told("score", site=folder)
    (fitted,) = told("regions", site=folder)["fitted"]
    assert fitted["name"] == "waits for files" and fitted["coverage"] > 0.8 and fitted["radius"] > 0
    diagnosis = told("diagnose", site=folder)
    assert {row["region"] for row in diagnosis["inside"]} == {"waits for files"} and diagnosis["like"][0]["past"]
    assert told("map", site=folder)["regions"] == diagnosis["regions"]
    assert "Jobs and threads in a known region" in ran("diagnose", site=folder) and "Named troubles" in ran(
        "regions", site=folder
    )
    assert "no longer a known region" in ran("regions", "--remove", "waits for files", site=folder)
    assert told("regions", site=folder) == {"regions": [], "fitted": []}
    with pytest.raises(UsageError, match="Which windows"):
        ran("label", "x", site=folder)
