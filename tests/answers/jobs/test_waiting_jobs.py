"""What the scheduler says of waiting jobs, in the overview, about one job, and in the views of the table."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import TypeAdapter

from stormpetrel.answers.jobs.details import find_jobs, job_details
from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.overview.job_table import job_rows
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.faces.dashboard.pages.job_sections import waiting as waiting_section
from stormpetrel.faces.dashboard.pages.job_table import live_figures, table_rows
from stormpetrel.records.cluster import Cluster, NodeKind, Partition
from stormpetrel.records.jobs import JobRef, job_frame
from stormpetrel.store.cluster_cache import FILE, FORMAT
from tests.answers.live_sites import put_jobs, put_predictions, said_about
from tests.builders import T0, make_site

CLUSTER = Cluster((Partition("short", max_time_s=3600.0),), (NodeKind(4, 2**32, partitions=("short",)),))


def job(number: int, state: str, reason: str | None = None, **values: object) -> dict[str, object]:
    row = {"cluster": "c", "job_id": number, "submit_time": T0 + timedelta(minutes=number), "restart": 0, "user": "ada"}
    extra = {"reason": reason, **{name: values.pop(name) for name in ("dependency",) if name in values}} if reason else None
    return {**row, "partition": "short", "state": state, "state_raw": state, "time_limit_s": 7200.0, "extra": extra, **values}


JOBS = job_frame(
    [
        job(1, "RUNNING"),
        job(2, "PENDING", "PartitionTimeLimit"),
        job(3, "PENDING", "Dependency", dependency="afterok:1(unfulfilled)"),
        job(4, "PENDING", "JobHeldUser"),
        job(5, "COMPLETED", "None", end_time=T0 + timedelta(hours=1), elapsed_s=10.0),
    ]
)


@pytest.fixture
def live(tmp_path):
    with make_site(tmp_path / "site") as site:
        put_jobs(site, JOBS)
        put_predictions(site, said_about(JOBS, risk=0.9))
        live = LiveSite(site)
        live.refresh()
        yield live


def tell_cluster(live: LiveSite, cluster: Cluster) -> None:
    """What another process has read of the cluster."""
    document = {"format": FORMAT, "read_at": datetime.now(UTC).isoformat()}
    document["cluster"] = TypeAdapter(Cluster).dump_python(cluster, mode="json")
    (live.site.folder / FILE).write_text(json.dumps(document))


def rows_of(live: LiveSite, view: str) -> list[dict[str, object]]:
    return table_rows(live, LOCAL, {"view": view, "startRow": 0, "endRow": 100})["rows"]


def details(live: LiveSite, number: int):
    return job_details(live, LOCAL, JobRef.parse(find_jobs(live, LOCAL, str(number))["ref"].item()))


def test_a_job_that_cannot_run_stands_first_whatever_the_risks_of_others(live):
    first = rows_of(live, "now")[0]
    assert (first["job"], first["never_runs"]) == ("2", True)


def test_other_waiting_jobs_do_not_come_before_running_ones(live):
    put_predictions(live.site, said_about(JOBS.filter(JOBS["job_id"] == 1), "start", risk=0.99))
    live.refresh()
    assert [row["job"] for row in rows_of(live, "now")][:2] == ["2", "1"]


def test_the_view_of_jobs_that_cannot_run_has_only_them_and_they_are_counted(live):
    assert [row["job"] for row in rows_of(live, "stuck")] == ["2"]
    assert live_figures(live, LOCAL).stuck == 1


def test_rows_of_the_api_say_what_a_job_waits_for(live):
    rows = {row.job: row for row in job_rows(live.overview.rows(LOCAL).collect())}
    assert {name: row.waiting for name, row in rows.items()} == {"1": None, "2": "never", "3": "parent", "4": "held", "5": None}
    assert rows["3"].waiting_words == "Waits for job 1 to complete."


def test_a_cluster_that_becomes_known_makes_the_words_more_precise(live):
    assert "1 h" not in rows_of(live, "stuck")[0]["waiting_words"]
    tell_cluster(live, CLUSTER)
    assert live.refresh()
    assert "the limit of partition short is 1 h. Ask for --time=01:00:00." in rows_of(live, "stuck")[0]["waiting_words"]


def test_a_cluster_that_stays_the_same_changes_nothing(live):
    tell_cluster(live, CLUSTER)
    live.refresh()
    tell_cluster(live, CLUSTER)
    assert not live.refresh()


def test_one_job_in_full_says_it_with_the_command(live):
    tell_cluster(live, CLUSTER)
    told = details(live, 2).model_dump(mode="json")["waiting"]
    assert told["never_runs"] and told["command"] == "scontrol update JobId=2 TimeLimit=01:00:00"


def test_the_panel_of_a_job_has_it_before_the_forecast_and_only_where_it_waits(live):
    assert "Held by its user." in str(waiting_section(details(live, 4)))
    assert waiting_section(details(live, 1)) is None
