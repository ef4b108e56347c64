"""Requests as rows: what a forecast reads of them is what it would read of the submitted job."""

from __future__ import annotations

import polars as pl
import pytest

from stormpetrel.answers.jobs.judging import predictions, request_frame, user_for
from stormpetrel.answers.schemas.predictions import PredictionRequest
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.errors import AccessError
from stormpetrel.jobs.history.keys import with_request
from stormpetrel.jobs.moments import Moment
from stormpetrel.records.jobs import JOB_SCHEMA, conform
from tests.builders import T0


def test_a_request_reads_as_the_job_it_would_be(world):
    """The jobs of the site itself, asked about as requests: features and risks are the same, to the last bit."""
    names = {"req_cpus": "cpus", "req_nodes": "nodes", "req_gpus": "gpus", "req_mem_bytes": "memory_bytes"}
    same = ("user", "job_name", "account", "partition", "qos", "time_limit_s", "work_dir", "script_path", "array_task")
    now = world.live.now()
    jobs = world.site.jobs.read_jobs().collect().sample(300, seed=1)
    jobs = jobs.filter(pl.col("req_cpus").is_not_null()).with_columns(submit_time=pl.lit(now).cast(JOB_SCHEMA["submit_time"]))
    rows = jobs.select(*same, *(pl.col(old).alias(new) for old, new in names.items())).to_dicts()
    requests = [PredictionRequest(**{name: value for name, value in row.items() if value is not None}) for row in rows]
    expected = world.live.predictor().risk(jobs, Moment.SUBMIT, now)
    assert [said.risk for said in predictions(world.live, requests)] == expected.tolist()
    alone = [predictions(world.live, [request])[0].risk for request in requests[:20]]
    assert alone == expected.tolist()[:20]


def test_the_frame_has_the_types_of_the_job_frame():
    frame = request_frame([PredictionRequest(), PredictionRequest(cpus=4, user="ada")], now=T0, cluster="c")
    assert dict(frame.schema) == {name: JOB_SCHEMA[name] for name in frame.columns}
    assert with_request(frame, {})["asked_cpus"].to_list() == [1, 4]
    assert conform(frame)["submit_time"].to_list() == [T0, T0]


def test_where_a_log_never_tells_requests_what_was_given_stands_in():
    frame = request_frame([PredictionRequest(cpus=8, nodes=2, gpus=1)], now=T0, cluster="c")
    asked = with_request(frame, {"asked_cpus": "cpus", "asked_nodes": "nodes", "asked_gpus": "gpus"})
    assert asked.select("asked_cpus", "asked_nodes", "asked_gpus").row(0) == (8, 2, 1)


def test_whose_job_it_is():
    ada, admin = Viewer("ada", is_admin=False), Viewer("root", is_admin=True)
    assert user_for(ada, None) == user_for(ada, "ada") == user_for(admin, "ada") == "ada"
    assert user_for(admin, None) == "root" and user_for(LOCAL, None) is None
    with pytest.raises(AccessError):
        user_for(ada, "bob")
