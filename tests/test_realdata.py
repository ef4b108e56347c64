"""Public logs come out with exactly the counts that are known of them (raw labels), and go in once."""

import polars as pl
import pytest

from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.sources.formats import ReadOptions, open_source, sniff_format
from tests.builders import make_site, table_of

pytestmark = pytest.mark.realdata

POZIDRIV_FIELDS = (
    "jobid,jobidraw,cluster,partition,qos,account,group,gid,user,uid,submit,eligible,start,end,elapsed,exitcode,state,nnodes,ncpus,"
    "reqcpus,reqmem,reqtres,alloctres,timelimit,nodelist,jobname"
).split(",")
STEPS_FIELDS = (
    "JobID,JobName,User,Partition,NodeList,NNodes,NCPUs,NTasks,State,Submit,Start,End,Timelimit,Elapsed,TotalCPU,CPUTime,UserCPU,"
    "SystemCPU,ReqMem,MaxRSS,MaxVMSize,ReqTRES,AllocTRES,TRESUsageInMax,TRESUsageInTot,TRESUsageOutTot,MaxDiskRead,MaxDiskWrite,"
    "MaxRSSNode,MaxRSSTask,MaxVMSizeNode,MaxVMSizeTask,MaxDiskReadNode,MaxDiskReadTask,MaxDiskWriteNode,MaxDiskWriteTask,Comment"
).split(",")
LOGS = {
    "jobs/CEA-Curie-2011-2.1-cln.swf.gz": ("swf", {"1": 281_337, "0": 14_003, "5": 17_486}),
    "jobs/HPC2N-2002-2.1-cln.swf.gz": ("swf", {"1": 201_998, "-1": 878}),
    "jobs/KTH-SP2-1996-2.1-cln.swf.gz": ("swf", {"1": 20_483, "0": 7_509}),
    "jobs/mira.csv.gz": ("lumos", {"Pass": 15_768, "Killed": 4_733, "Failed": 2_007}),
    "jobs/theta.csv.gz": ("lumos", {"Pass": 8_932, "Killed": 4_258, "Failed": 1_184}),
    "jobs/thetagpu.csv.gz": ("lumos", {"Failed": 12_531, "Pass": 5_524, "Killed": 4_551}),
    "jobs/mit_supercloud_sample.csv.gz": ("supercloud", {"3": 5_784, "4": 1_893, "5": 1_077, "6": 841, "7": 12, "11": 21}),
}


LARGEST = "jobs/CEA-Curie-2011-2.1-cln.swf.gz"  # as many jobs as all others together


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == LARGEST else []) for name in sorted(LOGS)]
)
def test_a_public_log_has_its_known_counts_and_is_known_the_second_time(public_logs, tmp_path, name):
    format_name, expected = LOGS[name]
    path = str(public_logs / name)
    assert sniff_format(path) == format_name
    total = sum(expected.values())
    with make_site(tmp_path / "site") as site:
        first = ingest_jobs(site, open_source(path, None, ReadOptions()))
        assert (first.read, first.kept, dict(first.quarantined)) == (total, total, {})
        assert dict(first.raw_states) == expected
        again = ingest_jobs(site, open_source(path, None, ReadOptions()))
        assert (again.known, again.kept, again.changed) == (total, 0, 0)
        assert dict(again.raw_states) == expected


def test_pozidriv_has_its_known_states_and_memory_per_cpu_is_read_as_that(public_logs, tmp_path):
    with make_site(tmp_path / "site") as site:
        source = open_source(str(public_logs / "sacct/pozidriv.sacct.gz"), None, ReadOptions(fields=POZIDRIV_FIELDS))
        report = ingest_jobs(site, source)
        table = table_of(site)
    assert (report.read, report.kept, dict(report.quarantined)) == (11_704, 11_704, {})
    assert dict(report.states) == {"COMPLETED": 10_134, "FAILED": 1_007, "CANCELLED": 468, "PREEMPTED": 86, "TIMEOUT": 9}
    assert report.warnings.counts == {"memory_per_cpu_flag": 10_626}
    flagged = table.filter(pl.col("quality") == "memory_per_cpu_flag")
    asked = flagged.filter(pl.col("req_tres").str.contains("mem=22400M", literal=True))["req_mem_bytes"]
    assert (flagged.height, asked.unique().to_list()) == (10_626, [22_400 << 20])
    assert table["cluster"].unique().to_list() == ["pozidriv"]
    assert table.filter(job_id=982221)["cancelled_by"].to_list() == ["423120"]


def test_steps_are_folded_into_a_hundred_jobs(public_logs, tmp_path):
    with make_site(tmp_path / "site") as site:
        report = ingest_jobs(site, open_source(str(public_logs / "sacct/steps.sacct"), None, ReadOptions(fields=STEPS_FIELDS)))
        table = table_of(site)
    assert (report.read, report.kept, report.folded, dict(report.quarantined)) == (242, 100, 142, {})
    assert {"NODE_FAIL", "TIMEOUT", "PENDING", "RUNNING"} <= set(report.states)
    folded = table.filter(job_id=7965768).row(0, named=True)
    assert folded["max_rss_bytes"] == 1_294_440 << 10
    assert folded["gpus"] == 1
    assert report.warnings.counts == {"rss_of_one_task": 12, "elapsed_off_span": 1}


def test_killed_jobs_of_mira_at_their_limit_are_time_outs(public_logs, tmp_path):
    with make_site(tmp_path / "site") as site:
        ingest_jobs(site, open_source(str(public_logs / "jobs/mira.csv.gz"), None, ReadOptions()))
        table = table_of(site)
    killed = table.filter(state_raw="Killed")
    assert set(killed["state"]) == {"TIMEOUT", "CANCELLED"}
    assert round(killed.filter(state="TIMEOUT").height / killed.height, 2) == 0.86
