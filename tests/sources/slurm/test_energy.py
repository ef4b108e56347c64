"""The energy of a job in sacct's text and JSON: its own, or its steps', no joule counted twice."""

import gzip
import json
from pathlib import Path

import polars as pl
import pytest

from stormpetrel.records.units import joules
from stormpetrel.sources.slurm.energy import energy_of
from stormpetrel.sources.slurm.json_jobs import SlurmJson
from stormpetrel.sources.slurm.sacct_text import SacctText
from tests.builders import Job, read_all, sacct_json_record

RECORDINGS = Path(__file__).parents[2] / "recordings"
TIMES = "2024-03-04T08:00:00|2024-03-04T08:01:00|2024-03-04T09:01:00|01:00:00|COMPLETED|0:0"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3600000", 3_600_000),
        ("3.20M", 3_200_000),
        ("12K", 12_000),
        ("1.50G", 1_500_000_000),
        ("0", 0),
        ("4294967294", 0),
        ("4294967295", 0),
        ("18446744073709551614", 0),
        ("18446744073709551615", 0),
        ("18446744.07T", 0),
        ("18.45E", 0),
        ("9999999999999999", None),
        ("-2", None),
        ("many", None),
        ("1e6", None),
        ("", None),
        (None, None),
    ],
)
def test_energy_is_read_in_thousands_and_marks_for_no_value_are_none(text, expected):
    assert joules(pl.Series([text], dtype=pl.String)).item() == expected


def read(tmp_path, job, *steps, field="ConsumedEnergyRaw", nodes=1, tres="cpu=4,mem=8G,node=1"):
    """The energy of a job by its own line and those of its steps (name, text)."""
    lines = [f"1|{TIMES}|{tres}|{nodes}|{job}"] + [f"1.{name}|{TIMES}||{nodes}|{energy}" for name, energy in steps]
    path = tmp_path / "sacct.txt"
    path.write_text("\n".join((f"JobID|Submit|Start|End|Elapsed|State|ExitCode|AllocTRES|NNodes|{field}", *lines)) + "\n")
    jobs, rejects, _, _ = read_all(SacctText(path))
    assert rejects.height == 0
    row = jobs.row(0, named=True)
    assert not dict(row["extra"] or {}), "nothing is kept twice, and nothing that is no value is unread"
    return row["energy_j"]


def test_the_jobs_own_line_counts(tmp_path):
    assert read(tmp_path, "7200000") == 7_200_000
    assert read(tmp_path, "7.20M", field="ConsumedEnergy") == 7_200_000


@pytest.mark.parametrize("text", ["", "0", "4294967294", "18446744073709551614"])
def test_what_nobody_measured_is_unknown(tmp_path, text):
    assert read(tmp_path, text) is None
    assert read(tmp_path, text, ("batch", text), ("0", text)) is None


def test_energy_among_the_allocated_resources_counts(tmp_path):
    assert read(tmp_path, "", tres="billing=4,cpu=4,energy=7200000,mem=8G,node=1") == 7_200_000


def test_steps_tell_it_where_the_job_does_not(tmp_path):
    assert read(tmp_path, "", ("0", "100"), ("1", "250")) == 350


def test_the_usage_of_steps_tells_it_too(tmp_path):
    assert read(tmp_path, "", ("0", "cpu=00:10:00,energy=100,mem=1G"), field="TRESUsageInTot") == 100


def test_the_step_that_is_everywhere_all_the_time_is_the_job(tmp_path):
    assert read(tmp_path, "900", ("batch", "880"), ("extern", "900"), ("0", "860"), nodes=2) == 900
    assert read(tmp_path, "", ("batch", "880"), ("extern", "900"), ("0", "860"), nodes=2) == 900


def test_a_script_and_its_srun_on_the_same_node_are_not_added_as_slurm_does(tmp_path):
    assert read(tmp_path, "1740", ("batch", "880"), ("0", "860")) == 880
    assert read(tmp_path, "1740", ("batch", "880"), ("0", "430"), ("1", "430"), ("2", "430")) == 880


def test_on_several_nodes_the_steps_of_srun_cover_more_than_the_script(tmp_path):
    assert read(tmp_path, "4380", ("batch", "880"), ("0", "3500"), nodes=4) == 3500


def test_a_job_of_which_only_steps_without_energy_are_there_keeps_its_own(tmp_path):
    assert read(tmp_path, "900", ("batch", "0")) == 900


@pytest.mark.parametrize(
    ("own", "steps", "nodes", "expected"),
    [
        (None, [], 1, None),
        (-2, [("batch", 0)], 1, None),
        (900, [], 1, 900),
        (1740, [("batch", 880), ("0", 860)], 1, 880),
        (4380, [("batch", 880), ("0", 3500)], 4, 3500),
        (0, [("extern", 900), ("batch", 880)], 2, 900),
    ],
)
def test_json_and_text_agree(own, steps, nodes, expected):
    assert energy_of(own, steps, nodes=nodes) == expected


def json_job(tmp_path, *, allocated=(), steps=()):
    record = sacct_json_record(Job(1))
    record["tres"]["allocated"] = [*record["tres"]["allocated"], *allocated]
    record["steps"] = [
        {"step": {"id": f"1.{name}"}, "statistics": {"energy": {"consumed": consumed}}, "tres": {"requested": {}}}
        for name, consumed in steps
    ]
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps({"jobs": [record]}))
    jobs, rejects, _, _ = read_all(SlurmJson(path))
    assert rejects.height == 0
    return jobs["energy_j"].item()


def test_json_tells_it_among_the_allocated_resources(tmp_path):
    energy = {"type": "energy", "name": "", "id": 3, "count": 7_200_000}
    assert json_job(tmp_path, allocated=[energy]) == 7_200_000
    assert json_job(tmp_path, allocated=[energy | {"count": -2}]) is None


def test_json_tells_it_of_steps_plain_or_wrapped(tmp_path):
    wrapped = {"set": True, "infinite": False, "number": 860}
    assert json_job(tmp_path, steps=[("batch", 880), ("0", wrapped)]) == 880
    unset = {"set": False, "infinite": False, "number": 0}
    assert json_job(tmp_path, steps=[("batch", unset), ("0", 0xFFFFFFFFFFFFFFFE)]) is None


@pytest.mark.parametrize("path", sorted(RECORDINGS.glob("sacct-*.json.gz")), ids=lambda path: path.name)
def test_recordings_of_nodes_without_meters_have_no_energy(path, tmp_path):
    plain = tmp_path / "jobs.json"
    plain.write_bytes(gzip.decompress(path.read_bytes()))
    jobs, _, _, _ = read_all(SlurmJson(plain))
    assert jobs.height and jobs["energy_j"].null_count() == jobs.height
