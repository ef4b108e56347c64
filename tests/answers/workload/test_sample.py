"""New jobs as a file: for whom, how many at most, in every format, with or without waits."""

from __future__ import annotations

import polars as pl
import pytest

from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.schemas.workload import WorkloadRequest
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.answers.workload import sample as workload_sample
from stormpetrel.answers.workload.sample import FORMATS, file_name, write_sample
from stormpetrel.errors import AccessError, ModelError, StoreBusyError, UsageError
from tests.answers.workload_sites import put_generator, put_workload
from tests.builders import make_site


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with make_site(tmp_path_factory.mktemp("sample") / "site") as site:
        put_workload(site)
        put_generator(site)
        yield LiveSite(site)


@pytest.mark.parametrize("format_name", FORMATS)
def test_every_format_holds_the_jobs_that_were_wished_for(live, tmp_path, format_name):
    wish = WorkloadRequest(jobs=200, format=format_name)
    path = tmp_path / file_name(wish)
    assert write_sample(live, LOCAL, wish, path).jobs == 200
    if format_name == "parquet":
        assert pl.read_parquet(path).height == 200
        return
    lines = [line for line in path.read_text("utf-8").splitlines() if not line.startswith(";")]
    assert len(lines) == 200 + (format_name in ("sacct", "csv"))


def test_no_real_name_is_in_a_file_of_new_jobs(live, tmp_path):
    path = tmp_path / "jobs.csv"
    write_sample(live, LOCAL, WorkloadRequest(jobs=1000, format="csv"), path)
    made, real = pl.read_csv(path), live.site.jobs.read_jobs().select("user", "group", "account").collect()
    for column in ("user", "group", "account"):
        assert not set(made[column].drop_nulls()) & set(real[column].drop_nulls())


def test_the_same_seed_gives_the_same_file_and_another_one_another(live, tmp_path):
    texts = []
    for place, seed in enumerate((5, 5, 6)):
        write_sample(live, LOCAL, WorkloadRequest(jobs=50, seed=seed), tmp_path / str(place))
        texts.append((tmp_path / str(place)).read_bytes())
    assert texts[0] == texts[1] != texts[2]


def test_waits_come_from_a_machine_of_so_many_cores(live, tmp_path):
    waits = []
    for cores in (None, 64, 1_000_000):
        write_sample(live, LOCAL, WorkloadRequest(jobs=500, waits=True, cores=cores, format="csv"), tmp_path / "jobs.csv")
        waits.append(pl.read_csv(tmp_path / "jobs.csv")["wait_s"].sum())
    assert waits[2] == 0 < waits[0] and waits[1] > waits[2]


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (WorkloadRequest(), "number of jobs"),
        (WorkloadRequest(jobs=10, days=2), "Both"),
        (WorkloadRequest(jobs=10, users=2.0), "cannot change the number of users"),
    ],
)
def test_a_wish_that_makes_no_sense_is_one_sentence(live, tmp_path, wish, words):
    with pytest.raises(UsageError, match=words):
        write_sample(live, LOCAL, wish, tmp_path / "jobs")
    assert not list(tmp_path.iterdir())


def test_more_jobs_than_a_file_may_have_are_refused(live, tmp_path, monkeypatch):
    monkeypatch.setattr(workload_sample, "MOST_JOBS", 300)
    with pytest.raises(UsageError, match="more than 300 jobs"):
        write_sample(live, LOCAL, WorkloadRequest(days=14), tmp_path / "jobs.swf")
    assert not list(tmp_path.iterdir())


def test_only_an_administrator_who_may_manage_gets_jobs(live, tmp_path):
    for viewer in (Viewer("ada", is_admin=False), Viewer("root", is_admin=True, scopes=frozenset({"read"}))):
        with pytest.raises(AccessError):
            write_sample(live, viewer, WorkloadRequest(jobs=1), tmp_path / "jobs")


def test_one_workload_is_made_at_a_time(live, tmp_path, monkeypatch):
    monkeypatch.setattr(workload_sample, "_WAIT_S", 0.01)
    with live.workload.sampling, pytest.raises(StoreBusyError):
        write_sample(live, LOCAL, WorkloadRequest(jobs=1), tmp_path / "jobs")
    assert write_sample(live, LOCAL, WorkloadRequest(jobs=1), tmp_path / "jobs").jobs == 1


def test_without_a_generator_the_next_command_is_named(tmp_path):
    with make_site(tmp_path / "site") as site, pytest.raises(ModelError, match="synth fit"):
        write_sample(LiveSite(site), LOCAL, WorkloadRequest(jobs=1), tmp_path / "jobs")
