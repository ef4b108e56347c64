"""What sacct's steps tell, and what they leave out, in text and in JSON."""

import json

import pytest

from stormpetrel.sources.slurm.json_fields import JsonFields, step_use
from stormpetrel.sources.slurm.json_jobs import SlurmJson
from stormpetrel.sources.slurm.sacct_text import SacctText
from tests.builders import Job, read_all, sacct_json_record, wrapped

FIELDS = (
    "JobID|User|Submit|Start|End|Elapsed|State|ExitCode|ReqMem|MaxRSS|TotalCPU|TRESUsageInTot|NTasks|NNodes|AllocCPUS|Timelimit|"
    "Suspended"
)
TIMES = "2024-03-04T08:00:00|2024-03-04T08:01:00|2024-03-04T08:11:00|00:10:00"


def job_line(*, times=TIMES, reqmem="8G", total="", nodes=1, suspended="00:00:00", state="COMPLETED"):
    return f"1|ada|{times}|{state}|0:0|{reqmem}||{total}|||{nodes}|4|01:00:00|{suspended}"


def step_line(name="batch", *, rss="100M", total="", usage="", tasks="1", nodes=1, times=TIMES):
    return f"1.{name}||{times}|COMPLETED|0:0||{rss}|{total}|{usage}|{tasks}|{nodes}|4||00:00:00"


def read(tmp_path, *lines):
    path = tmp_path / "sacct.txt"
    path.write_text("\n".join((FIELDS, *lines)) + "\n")
    jobs, rejects, _, _ = read_all(SacctText(path))
    assert rejects.height == 0
    return jobs.row(0, named=True)


def test_cpu_time_comes_from_the_usage_of_the_steps_where_totalcpu_is_empty(tmp_path):
    usage = "cpu=00:10:30,energy=0,fs/disk=5,mem=100M,pages=0,vmem=1G"
    job = read(tmp_path, job_line(), step_line(usage=usage), step_line("0", usage="cpu=1-00:00:00,mem=1M"))
    assert job["cpu_time_s"] == 630.0 + 86_400.0
    assert "cpu_time_from_tres" in job["quality"]


def test_totalcpu_is_taken_where_it_is_told(tmp_path):
    job = read(tmp_path, job_line(), step_line(total="00:05:00", usage="cpu=00:10:30"))
    assert (job["cpu_time_s"], job["quality"]) == (300.0, None)


def test_no_usage_and_no_totalcpu_is_no_cpu_time_to_speak_of(tmp_path):
    job = read(tmp_path, job_line(), step_line())
    assert (job["cpu_time_s"], job["quality"]) == (0.0, None)


def read_gpus(tmp_path, *steps, gpus=4):
    """A job with GPUs whose steps are (TRESUsageInMax, TRESUsageInTot, tasks)."""
    lines = [f"1|{TIMES}|COMPLETED|0:0|cpu=4,gres/gpu={gpus},mem=8G|||1"]
    lines += [f"1.{number}|{TIMES}|COMPLETED|0:0||{most}|{total}|{count}" for number, (most, total, count) in enumerate(steps)]
    path = tmp_path / "gpus.txt"
    fields = "JobID|Submit|Start|End|Elapsed|State|ExitCode|AllocTRES|TRESUsageInMax|TRESUsageInTot|NTasks"
    path.write_text("\n".join((fields, *lines)) + "\n")
    jobs, rejects, _, _ = read_all(SacctText(path))
    assert rejects.height == 0
    return jobs["busy_gpus"].item(), jobs["gpu_mem_bytes"].item()


def test_use_of_gpus_is_the_largest_sample_of_each_step(tmp_path):
    batch = ("cpu=1,gres/gpumem=7954688K,gres/gpuutil=54", "cpu=1,gres/gpumem=1024K,gres/gpuutil=12", 1)
    assert read_gpus(tmp_path, batch, ("gres/gpumem=0,gres/gpuutil=0", "", 1)) == (0.54, 7954688 << 10)


def test_steps_that_may_have_run_side_by_side_are_added(tmp_path):
    steps = [("gres/gpumem=1G,gres/gpuutil=90", "", 1)] * 3
    assert read_gpus(tmp_path, *steps) == (2.7, 3 << 30)


def test_of_several_tasks_each_counts_as_the_busiest(tmp_path):
    assert read_gpus(tmp_path, ("gres/gpumem=1G,gres/gpuutil=90", "gres/gpumem=1G,gres/gpuutil=100", 2)) == (1.8, 2 << 30)


def test_idle_gpus_are_zero_and_those_that_nobody_measured_null(tmp_path):
    assert read_gpus(tmp_path, ("gres/gpumem=0,gres/gpuutil=0", "gres/gpumem=0,gres/gpuutil=0", 1)) == (0.0, 0)
    assert read_gpus(tmp_path, ("cpu=00:10:00,mem=1G", "cpu=00:10:00", 1)) == (None, None)
    assert read_gpus(tmp_path, ("gres/gpumem=0,gres/gpuutil=0", "", 1), gpus=0) == (None, None)


def test_parts_of_gpus_whose_memory_alone_is_measured_are_not_called_idle(tmp_path):
    assert read_gpus(tmp_path, ("gres/gpumem=3G,gres/gpuutil=0", "gres/gpumem=3G,gres/gpuutil=0", 1)) == (None, 3 << 30)


@pytest.mark.parametrize("odd", ["gres/gpuutil=-5", "gres/gpuutil=99999999999999999999", "gres/gpuutil=x", "gres/gpumem=1e400G"])
def test_odd_texts_of_gpu_use_are_no_use(tmp_path, odd):
    assert read_gpus(tmp_path, (odd, "", 1)) == (None, None)


def test_json_tells_the_use_of_gpus_too():
    tres = lambda util: [{"type": "gres", "name": "gpuutil", "count": util}, {"type": "gres", "name": "gpumem", "count": 1 << 30}]  # noqa: E731
    step = {"tres": {"requested": {"max": tres(90), "total": tres(90)}}, "tasks": {"count": 1}}
    used, _ = step_use([step], JsonFields(), nodes=1, sampled=True)
    assert (used["busy_gpus"], used["gpu_mem_bytes"]) == (0.9, 1 << 30)


def test_the_memory_of_a_job_is_that_of_its_largest_step(tmp_path):
    job = read(tmp_path, job_line(), step_line(rss="100M"), step_line("0", rss="300M"), step_line("1", rss="200M"))
    assert (job["max_rss_bytes"], job["quality"]) == (300 << 20, None)


@pytest.mark.parametrize(
    "steps",
    [
        (step_line(), step_line("0", rss="300M", tasks="8")),
        (step_line("0", rss="300M", tasks="", nodes=2),),
    ],
)
def test_the_memory_of_one_task_of_several_is_said_to_be_that(tmp_path, steps):
    job = read(tmp_path, job_line(), *steps)
    assert (job["max_rss_bytes"], job["quality"]) == (300 << 20, "rss_of_one_task")


def test_many_tasks_in_another_step_than_the_largest_do_not_matter(tmp_path):
    job = read(tmp_path, job_line(), step_line(rss="300M"), step_line("0", rss="1M", tasks="8"))
    assert job["quality"] is None


@pytest.mark.parametrize("rss", ["", "0"])
def test_memory_that_was_not_sampled_is_missing_not_zero(tmp_path, rss):
    job = read(tmp_path, job_line(), step_line(rss=rss))
    assert (job["max_rss_bytes"], job["quality"]) == (None, "rss_missing")


def test_a_short_job_need_not_have_been_sampled(tmp_path):
    times = "2024-03-04T08:00:00|2024-03-04T08:01:00|2024-03-04T08:01:10|00:00:10"
    assert read(tmp_path, job_line(times=times), step_line(rss="", times=times))["quality"] is None


def test_the_flag_for_memory_per_cpu_is_read_and_named(tmp_path):
    job = read(tmp_path, job_line(reqmem="2147486648Mn"))
    assert (job["req_mem_bytes"], job["quality"]) == (4 * 3000 << 20, "memory_per_cpu_flag")


def test_a_suspended_job_ran_for_less_than_from_start_to_end(tmp_path):
    times = "2024-03-04T08:00:00|2024-03-04T08:01:00|2024-03-04T09:11:00|00:10:00"
    told = read(tmp_path, job_line(times=times, suspended="01:00:00"))
    untold = read(tmp_path, job_line(times=times))
    assert (told["quality"], untold["quality"]) == (None, "elapsed_off_span")
    assert "suspended_s" not in (untold["extra"] or {})


def json_job(tmp_path, steps=(), **changes):
    record = {**sacct_json_record(Job()), "steps": list(steps), **changes}
    path = tmp_path / "sacct.json"
    path.write_text(json.dumps({"jobs": [record]}))
    jobs, rejects, _, _ = read_all(SlurmJson(path))
    assert rejects.height == 0
    return jobs.row(0, named=True)


def json_step(*, seconds=0, cpu_ms=0, rss=100 << 20, tasks=1):
    return {
        "step": {"id": "1000.0", "name": "a"},
        "exit_code": {"return_code": wrapped(0), "signal": {"id": wrapped(0)}},
        "tasks": {"count": tasks},
        "nodes": {"count": 1},
        "time": {"total": {"seconds": seconds, "microseconds": 0}},
        "tres": {
            "requested": {
                "max": [{"type": "cpu", "count": 0}, {"type": "mem", "count": rss}],
                "total": [{"type": "cpu", "count": cpu_ms}, {"type": "mem", "count": rss * tasks}],
            }
        },
    }


def test_json_has_cpu_time_from_the_usage_of_the_steps(tmp_path):
    job = json_job(tmp_path, [json_step(cpu_ms=90_500), json_step(cpu_ms=500)])
    assert (job["cpu_time_s"], job["quality"]) == (91.0, "cpu_time_from_tres")


def test_json_says_whether_memory_is_of_one_task_or_missing(tmp_path):
    assert json_job(tmp_path, [json_step(seconds=5, tasks=4)])["quality"] == "rss_of_one_task"
    assert json_job(tmp_path, [json_step(seconds=5, rss=0)])["quality"] == "rss_missing"
    assert json_job(tmp_path, [json_step(seconds=5)])["quality"] is None


@pytest.mark.parametrize("memory", [(1 << 31) + 3000, (1 << 63) + 3000])
def test_json_reads_the_flag_for_memory_per_cpu(tmp_path, memory):
    job = json_job(tmp_path, required={"CPUs": 4, "memory": memory}, tres={"allocated": [{"type": "cpu", "count": 4}]})
    assert (job["req_mem_bytes"], job["quality"]) == (4 * 3000 << 20, "memory_per_cpu_flag")


@pytest.mark.parametrize(
    ("field", "memory", "asked"),
    [
        ("memory_per_node", wrapped((1 << 63) + 3000), 4 * 3000),
        ("memory_per_cpu", wrapped(3000), 4 * 3000),
        ("memory_per_node", 5000, 5000),
    ],
)
def test_the_controllers_list_reads_memory_in_all_its_forms(tmp_path, field, memory, asked):
    record = {"job_id": 7, "job_state": ["RUNNING"], "submit_time": 1709539200, "cpus": wrapped(4), field: memory}
    path = tmp_path / "squeue.json"
    path.write_text(json.dumps({"jobs": [record | {"node_count": wrapped(1), "nodes": "n1", "start_time": 1709539300}]}))
    jobs, rejects, _, _ = read_all(SlurmJson(path))
    assert rejects.height == 0
    assert jobs["req_mem_bytes"].to_list() == [asked << 20]
