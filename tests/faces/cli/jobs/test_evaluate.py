"""`jobs evaluate` on a site, and on several logs by themselves."""

from __future__ import annotations

import pytest

from tests.builders import make_jobs, make_site, swf_document
from tests.jobs.logs import one_thread
from tests.lifecycle.sites import few_trees
from tests.parts.command_line import complaint_of, report_of, run_here


def test_a_site_without_jobs_says_what_to_do(tmp_path):
    make_site(tmp_path / "site").close()
    assert "ingest jobs" in complaint_of(run_here(tmp_path / "site", "jobs", "evaluate"))


def test_each_log_has_its_own_figures_and_is_kept(tmp_path):
    logs = [swf_document(make_jobs(160 + 20 * n, failed=60)).write(tmp_path / f"{n}.swf") for n in range(2)]
    command = ["jobs", "evaluate", "--each", *map(str, logs), "--at", "submit", "--keep", str(tmp_path / "kept")]
    with one_thread(), few_trees():
        first = report_of(run_here(tmp_path, *command, "--json"))
    assert list(first) == [str(log) for log in logs]
    assert report_of(run_here(tmp_path, *command, "--json")) == first  # to the seconds: nothing was judged again
    assert "jobs judged" in run_here(tmp_path, *command).stdout


@pytest.mark.parametrize("options", [["--each"], ["--keep", "kept"], ["--each", "a.swf", "--protocol", "seed"]])
def test_what_is_about_several_logs_needs_several_logs(options, tmp_path):
    done = run_here(tmp_path, "jobs", "evaluate", *options)
    assert done.returncode == 2 and "jobs evaluate --each FILE" in done.stderr
