import pwd
from types import SimpleNamespace

import pytest

from stormpetrel.exporter.exporter import JOB_FIGURES
from tests.exporter.made import CONDOR, SLURM, FakeNode, figures_of, text_of

MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


def test_prometheus_reads_what_is_in_proc_stat(tmp_path):
    node = FakeNode(tmp_path)
    node.stat({0: [123, 4, 56, 7890, 12, 1, 2, 3], 5: [1, 2, 3, 4, 5, 6, 7, 8]})
    found = figures_of(text_of(node.sampler()))
    seconds = [found["node_cpu_seconds_total", "0", mode] for mode in MODES]
    assert seconds == [1.23, 0.04, 0.56, 78.9, 0.12, 0.01, 0.02, 0.03]
    assert found["node_cpu_seconds_total", "5", "steal"] == 0.08
    assert sum(key[0] == "node_cpu_seconds_total" for key in found) == 16


def test_a_job_is_shown_under_the_names_that_people_query(tmp_path):
    node = FakeNode(tmp_path)
    node.job(f"{SLURM}/job_17", cpus="0-1,3", leaf="step_0/user/task_0", threads=[node.process(5, uid=0)])
    found = figures_of(text_of(node.sampler()))
    group = f"/{SLURM}/job_17"
    assert {name for name in JOB_FIGURES if (name, group) in found} == set(JOB_FIGURES)
    assert found["cgroup_cpus", group] == 3
    assert found["cgroup_cpu_info", group, "0-1,3"] == 1
    assert found["cgroup_info", group, "17", "0", "root"] == 1
    assert found["stormpetrel_thread_job_info", "3", "17"] == 1
    assert found["stormpetrel_threads_told_apart",] == 1
    assert found["stormpetrel_exporter_info", "v2", "0"] == 1


def test_the_sample_has_its_own_time(tmp_path):
    sampler = FakeNode(tmp_path).sampler()
    sample = sampler.sample()
    shown = figures_of(text_of(sampler, sample))["stormpetrel_sample_time_seconds",]
    assert shown == pytest.approx(sample.cpus.time_s, abs=1e-6)


@pytest.mark.parametrize(
    "name", ['job_a"b', "job_a\nb", "job_a\\b", "job_a\\n", 'job_"} 1\nnode_cpu_seconds_total{cpu="0"', "job_é", "job_a b\t{},=#"]
)
def test_a_hostile_name_is_one_label_and_comes_back_as_it_was(tmp_path, name):
    node = FakeNode(tmp_path)
    node.job(f"stormpetrel/{name}", cpus="1")
    found = figures_of(text_of(node.sampler()))
    assert found["cgroup_cpu_total_seconds", f"/stormpetrel/{name}"] == 3.5
    assert found["stormpetrel_thread_job_info", "1", name[4:]] == 1


def test_a_name_that_is_no_text_is_shown_as_text(tmp_path):
    node = FakeNode(tmp_path)
    node.job("stormpetrel/job_\udcff", cpus="1")
    found = figures_of(text_of(node.sampler()))
    assert found["stormpetrel_thread_job_info", "1", "\\udcff"] == 1


def test_a_cpu_that_goes_offline_leaves_the_text(tmp_path):
    node = FakeNode(tmp_path, cpus=3)
    sampler = node.sampler()
    assert 'cpu="1"' in text_of(sampler)
    row = [1, 2, 3, 4, 5, 6, 7, 8]
    node.stat({0: row, 2: row})
    assert 'cpu="1"' not in text_of(sampler)


def test_what_is_missing_is_said(tmp_path):
    node = FakeNode(tmp_path, kind="v1")
    node.job_v1(CONDOR, threads=[node.process(5)])
    found = figures_of(text_of(node.sampler()))
    missing = {key[1] for key in found if key[0] == "stormpetrel_exporter_missing_info"}
    assert missing == {"pressure", "threads told apart"}
    assert found["stormpetrel_threads_told_apart",] == 0
    assert not any(key[0] == "stormpetrel_thread_job_info" for key in found)


def test_every_family_has_its_help_and_type_once(tmp_path):
    node = FakeNode(tmp_path, kind="hybrid")
    node.job("stormpetrel/job_1")
    node.job("stormpetrel/job_2")
    lines = text_of(node.sampler()).splitlines()
    for word in ("HELP", "TYPE"):
        named = [line.split()[2] for line in lines if line.startswith(f"# {word}")]
        assert len(named) == len(set(named))
        assert set(named) == {line.partition(" ")[0].partition("{")[0] for line in lines if not line.startswith("#")}


def test_a_hostile_name_of_a_user_is_one_label(tmp_path, monkeypatch):
    node = FakeNode(tmp_path)
    node.job(f"{SLURM}/job_1", cpus="0", threads=[node.process(5, uid=1234)])
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name='kim"} 1\nx{y="\\'))
    assert figures_of(text_of(node.sampler()))["cgroup_info", f"/{SLURM}/job_1", "1", "1234", 'kim"} 1\nx{y="\\'] == 1
