"""A job that waits or runs is one record, whichever command of Slurm told of it and however often."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl
import pytest

from stormpetrel.records.jobs import job_frame
from stormpetrel.records.quality import no_rejects
from stormpetrel.sources.contract import Chunk
from stormpetrel.sources.slurm.unfinished import in_one_form, reason_class, tres_text

SUBMIT = datetime(2026, 11, 16, tzinfo=UTC)


def text_chunk(**values: str) -> Chunk:
    given = {
        "jobid": "7",
        "state": "PENDING",
        "exitcode": "0:0",
        "reason": "None",
        "priority": "9",
        "elapsed": "00:00:07",
        **values,
    }
    records = pl.DataFrame({"record": [1], "line": [1], **{name: [value] for name, value in given.items()}})
    return Chunk(records=records, translate=lambda rows, _: (rows, no_rejects()), read=1)


def typed_chunk(**values: object) -> Chunk:
    row = {"cluster": "c", "job_id": 7, "submit_time": SUBMIT, "restart": 0, "state": "PENDING", "state_raw": "PENDING", **values}
    records = job_frame([row]).with_columns(record=pl.lit(0, dtype=pl.UInt32), line=pl.lit(0, dtype=pl.Int64))
    return Chunk(records=records, translate=lambda rows, _: (rows, no_rejects()), read=1)


def only(chunk: Chunk) -> dict[str, object]:
    (row,) = in_one_form(chunk).records.to_dicts()
    return row


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("cpu=1,mem=100M,node=1,billing=1", "billing=1,cpu=1,mem=100M,node=1"),
        ("billing=1,cpu=1,mem=1G,node=1", "billing=1,cpu=1,mem=1024M,node=1"),
        ("cpu=8,gres/gpu:a100=2,mem=1.50G", "cpu=8,gres/gpu:a100=2,mem=1536M"),
        ("cpu=1,mem=odd", "cpu=1,mem=odd"),
        ("", None),
        (None, None),
    ],
)
def test_trackable_resources_have_one_order_and_one_unit(text, form):
    assert tres_text(text) == form


def test_what_drifts_while_a_job_waits_is_left_out_of_text():
    row = only(text_chunk())
    assert (row["exitcode"], row["priority"], row["elapsed"]) == (None, None, None)


def test_a_job_that_has_ended_keeps_everything():
    chunk = text_chunk(state="FAILED", exitcode="3:0", reason="NonZeroExitCode")
    assert in_one_form(chunk) is chunk


@pytest.mark.parametrize("reason", ["None", "Priority", "Resources", "", None])
def test_waiting_ones_turn_is_one_reason(reason):
    assert reason_class(reason) == "Priority"


def test_a_reason_says_the_same_whichever_nodes_are_down():
    assert reason_class("ReqNodeNotAvail, UnavailableNodes:n[1-3]") == reason_class("ReqNodeNotAvail(Unavailable:n7)")


def test_a_job_that_runs_has_no_reason_to_wait():
    assert only(text_chunk(state="RUNNING", reason="Priority"))["reason"] is None
    assert only(typed_chunk(state="RUNNING", extra={"reason": "None", "comment": "x"}))["extra"] == {"comment": "x"}


def test_a_held_job_is_a_pending_one_with_that_reason():
    row = only(typed_chunk(state="HELD", state_raw="PENDING", extra={"reason": "JobHeldAdmin", "priority": "0", "flags": "X"}))
    assert (row["state"], row["state_raw"], row["extra"]) == ("PENDING", "PENDING", {"reason": "JobHeldAdmin"})
