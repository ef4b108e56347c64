"""An HTCondor site is watched through its event log: it grows, its jobs are judged, what is half written waits."""

from __future__ import annotations

import gzip
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.lifecycle.job_models import train_job_models
from stormpetrel.simulate.writing import sacct_text
from stormpetrel.sources.htcondor.log_files import LogFile
from stormpetrel.sources.slurm.sacct_text import SacctText
from stormpetrel.watch.loop import Watch
from stormpetrel.watch.reading import LiveReader
from tests.builders import make_site
from tests.parts.watched_site import START, simulated_jobs

RECORDED = datetime(2026, 11, 15, 9, 6, tzinfo=UTC)  # when the log of a real HTCondor 23.9 was recorded
EVENTS = gzip.decompress((Path(__file__).parents[1] / "recordings" / "condor-eventlog-23.9.log.gz").read_bytes())
FIELDS = "JobID JobName User Submit Start End Elapsed State ExitCode Timelimit ReqCPUS AllocCPUS NNodes ReqMem NodeList".split()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("condor")
    log = folder / "EventLog"
    watch = {"address": "", "retrain_hours": 0.0, "replay_days": 1e5}
    sections = {"htcondor": {"event_log": str(log)}, "slurm": {"sacct": str(folder / "none")}, "watch": watch}
    with pytest.MonkeyPatch.context() as clock, make_site(folder / "site", **sections) as made:
        clock.setattr(made, "now", lambda: RECORDED + timedelta(hours=1))  # on any later day the recorded jobs were history
        jobs = simulated_jobs().with_columns(pl.col("^.*_time$") + (RECORDED - timedelta(days=15) - START))
        history = folder / "history.txt"
        history.write_text("|".join(FIELDS) + "\n" + sacct_text(jobs, fields=FIELDS, delimiter="|"))
        ingest_jobs(made, SacctText(history))
        train_job_models(made, until=RECORDED)
        yield made


def grow(site, until: int) -> None:
    path = Path(site.settings.htcondor.event_log)
    path.write_bytes(EVENTS[:until])
    os.utime(path, (RECORDED.timestamp() + until, RECORDED.timestamp() + until))


def test_jobs_of_a_growing_event_log_are_judged_once_each(site):
    watch = Watch(site)
    for share in (0.2, 0.55, 0.55, 1.0):
        grow(site, int(share * len(EVENTS)))
        step = watch.step()
        assert step.read.problem is None
    said = site.predictions.read().collect()
    condor = site.jobs.read_jobs().filter(pl.col("source") == "condor-events").collect()
    assert condor.height > 5
    assert said.filter(moment="submit").height == condor.height
    assert said.filter(moment="start").height == condor["start_time"].is_not_null().sum()
    assert not said.select("job_id", "array_task", "submit_time", "moment").is_duplicated().any()


def test_the_watch_reads_each_byte_of_a_growing_log_once(tmp_path, monkeypatch):
    pieces, read = LogFile.pieces, []

    def counted(file, start=0):
        for piece in pieces(file, start):
            read[-1] += len(piece)
            yield piece

    monkeypatch.setattr(LogFile, "pieces", counted)
    log = tmp_path / "EventLog"
    with make_site(tmp_path / "site", htcondor={"event_log": str(log)}, slurm={"sacct": str(tmp_path / "none")}) as site:
        monkeypatch.setattr(site, "now", lambda: RECORDED + timedelta(hours=1))
        reader, ends = LiveReader(site), [int(share * len(EVENTS)) for share in (0.25, 0.5, 0.75, 1.0)]
        for end in ends:
            grow(site, end)
            read.append(0)
            assert reader.read().problem is None
        read.append(0)
        reader.read()
    longest = max(len(event) for event in EVENTS.split(b"...\n"))  # one that was half there is read again when it is whole
    assert sum(read) <= len(EVENTS) + len(ends) * longest
    assert read[1] < ends[1] and read[-1] == 0


def test_a_log_that_is_gone_is_a_problem_that_is_waited_out(site):
    watch = Watch(site)
    path = Path(site.settings.htcondor.event_log)
    kept = path.read_bytes()
    path.unlink()
    assert "cannot be read" in watch.step().read.problem
    path.write_bytes(kept)
    assert watch.step().read.problem is None
