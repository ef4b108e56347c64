import pytest

from stormpetrel.exporter.check import as_json, as_table_text, check
from tests.exporter.made import CONDOR, SLURM, FakeNode


def lines_of(node, **options):
    sampler = node.sampler(**options)
    return check(sampler, sampler.sample())


def test_a_node_that_offers_everything_is_all_ok(tmp_path):
    node = FakeNode(tmp_path)
    node.job(f"{SLURM}/job_1", cpus="0", threads=[node.process(5)])
    lines = lines_of(node)
    assert all(line.there for line in lines)
    words = as_table_text(lines)
    assert "4 CPUs: 0-3" in words and "1: 1 (Slurm)" in words and "1 of 4 CPUs have a job, by cpuset" in words


def test_what_is_missing_is_said_with_its_reason(tmp_path):
    node = FakeNode(tmp_path, kind="v1")
    node.job_v1(CONDOR, threads=[node.process(5)])
    told = as_json(lines_of(node))
    assert told["cgroups"]["words"].startswith("v1: cpuset at ")
    assert told["io pressure of jobs"] == {"there": False, "words": "cgroup v1 does not count pressure"}
    assert told["cpu of jobs"]["there"] and told["memory of jobs"]["there"]
    assert told["threads told apart"]["words"].endswith("(slot1_1@node7.example.org)")


@pytest.mark.parametrize(
    ("folder", "options", "words"),
    [
        ("x", {}, "name yours with --cgroup"),
        (SLURM, {}, "none runs; Slurm has its folder"),
        ("x", {"cgroups": ("batch/*",)}, "none runs"),
    ],
)
def test_a_node_without_jobs_says_whether_they_would_be_seen(tmp_path, folder, options, words):
    node = FakeNode(tmp_path)
    (node.v2 / folder).mkdir(parents=True)
    assert words in as_json(lines_of(node, **options))["jobs"]["words"]


def test_names_cannot_write_on_the_terminal(tmp_path):
    node = FakeNode(tmp_path)
    node.job("stormpetrel/job_\x1b[2J\nok", cpus="0")
    words = as_table_text(lines_of(node))
    assert "\x1b" not in words and "\\x1b[2J\\x0aok" in words


def test_files_that_could_not_be_read_are_counted(tmp_path):
    node = FakeNode(tmp_path)
    node.job(f"{SLURM}/job_1", cpus="nonsense")
    assert "malformed" in as_json(lines_of(node))["files"]["words"]


def test_a_node_without_cgroups_says_so(tmp_path):
    told = as_json(lines_of(FakeNode(tmp_path, kind="none")))
    assert not told["cgroups"]["there"] and not told["threads told apart"]["there"]
