import stat
from datetime import UTC, datetime, timedelta

import pytest

from stormpetrel.answers.site import doctor
from stormpetrel.answers.site.doctor import examine
from stormpetrel.errors import SourceUnavailableError
from stormpetrel.ingest import source_checks as schedulers
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.records.checks import Finding, summary, worst
from stormpetrel.records.cursor import Cursor
from stormpetrel.sources.slurm.sacct_text import SacctText
from stormpetrel.store.doctor import store_checks
from stormpetrel.store.source_health import JOBS, SourceHealth
from stormpetrel.store.watch_status import WatchStatus, write_sources, write_status
from tests.builders import Job, make_jobs, make_site, write_sacct


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def fake_sacct(*, users, hour="true"):
    """A sacct with no jobs in the last hour, and these users in the last week."""
    return f"case \"$*\" in *helpformat*) echo JobID User Submit State;; *=User*) printf '{users}';; *) {hour};; esac"


def findings(site, check):
    return [finding for finding in examine(site) if finding.check == check]


def only(site, check):
    found = findings(site, check)
    assert len(found) == 1, found
    return found[0]


@pytest.fixture
def site(tmp_path):
    quiet = script(tmp_path / "sacct", fake_sacct(users="ada\\nbo\\n"))
    with make_site(tmp_path / "site", slurm={"sacct": quiet}, serve={"address": "127.0.0.1:0"}, watch={"address": ""}) as opened:
        yield opened


def test_a_healthy_site_has_no_problems(site, tmp_path):
    ingest_jobs(site, SacctText(write_sacct(tmp_path / "a", make_jobs(3))))
    assert worst(examine(site)) == "ok", examine(site)
    assert "3 jobs" in only(site, "jobs").what


def test_an_empty_site_says_what_to_do_next(site):
    assert only(site, "jobs").level == "warning"
    assert "ingest jobs" in only(site, "jobs").hint


def test_a_folder_that_others_can_read_is_told(site):
    site.folder.chmod(0o755)
    assert "chmod 700" in only(site, "folder").hint


def test_jobs_from_the_future_mean_a_wrong_clock_or_zone(site, tmp_path):
    ingest_jobs(site, SacctText(write_sacct(tmp_path / "a", [Job(submit=site.now() + timedelta(hours=5))])))
    assert (only(site, "clock").level, "time_zone" in only(site, "clock").hint) == ("problem", True)


def test_refused_records_are_told_with_their_rules(site, tmp_path):
    path = write_sacct(tmp_path / "a", make_jobs(3))
    path.write_text(path.read_text() + "1|2\n1|3\n")
    ingest_jobs(site, SacctText(path))
    assert "wrong_column_count 2" in only(site, "quarantine").what


def test_a_column_that_can_mostly_not_be_read_is_told_until_it_can(site, tmp_path):
    path = write_sacct(tmp_path / "a", make_jobs(30))
    path.write_text(path.read_text().replace("01:00:00", "one hour"))
    ingest_jobs(site, SacctText(path))
    assert "time_limit_s could not be read in 30 of the last 30 sacct records" in only(site, "unread values").what
    assert "unread.time_limit_s" in only(site, "unread values").hint
    ingest_jobs(site, SacctText(write_sacct(tmp_path / "b", make_jobs(31, first_id=5000))))
    assert findings(site, "unread values") == []


def test_a_sacct_that_shows_only_ones_own_jobs_is_a_problem(site, tmp_path, monkeypatch):
    script(tmp_path / "sacct", fake_sacct(users="petrel\\npetrel\\n"))
    monkeypatch.setattr(schedulers.getpass, "getuser", lambda: "petrel")
    monkeypatch.setattr(schedulers.os, "geteuid", lambda: 1000)
    found = only(site, "sacct")
    assert found.level == "problem" and "PrivateData" in found.what and "sacctmgr" in found.hint


def test_a_sacct_that_does_not_answer_is_a_problem_and_one_that_is_missing_a_warning(site, tmp_path):
    script(tmp_path / "sacct", "exit 1")
    assert only(site, "sacct").level == "problem"
    (tmp_path / "sacct").unlink()
    assert only(site, "sacct").level == "warning"


def test_a_sacct_whose_database_is_dead_is_a_problem_with_its_own_words(site, tmp_path):
    script(
        tmp_path / "sacct", fake_sacct(users="", hour="echo 'Problem talking to the database: Connection refused' >&2; exit 1")
    )
    found = only(site, "sacct")
    assert found.level == "problem" and "Connection refused" in found.what


def test_a_sacct_that_hangs_is_given_up_after_a_short_time(site, tmp_path, monkeypatch):
    monkeypatch.setattr(schedulers, "_SLURM_PATIENCE_S", 0.3)
    script(tmp_path / "sacct", fake_sacct(users="", hour="exec sleep 60"))
    assert "did not answer within" in only(site, "sacct").what


def test_a_controller_that_does_not_answer_is_a_problem_beside_a_database_that_does(site, tmp_path):
    script(tmp_path / "squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    assert only(site, "sacct").level == "ok"
    assert (only(site, "squeue").level, "Unable to contact" in only(site, "squeue").what) == ("problem", True)


def test_little_space_is_a_problem(site, monkeypatch):
    monkeypatch.setattr(store_checks.shutil, "disk_usage", lambda _: store_checks.shutil._ntuple_diskusage(10, 9, 1))
    assert only(site, "disk").level == "problem"


def test_missing_extras_are_listed_and_a_needed_one_is_a_problem(site, monkeypatch):
    monkeypatch.setattr(store_checks, "EXTRAS", {"postgres": ("no_such_module", ""), "htcondor": ("json", "")})
    assert "not installed: postgres" in only(site, "extras").what
    store = site.settings.store.model_copy(update={"state_url": "postgresql://x"})
    site.settings = site.settings.model_copy(update={"store": store})
    assert worst(findings(site, "extras")) == "problem"


def test_a_check_that_fails_is_a_finding_and_the_others_go_on(site, monkeypatch):
    def broken(_site):
        raise SourceUnavailableError("slurmrestd is gone.", hint="Start it.")
        yield

    monkeypatch.setattr(doctor, "CHECKS", (broken, store_checks.check_extras))
    found = examine(site)
    assert found[0].level == "problem" and found[0].what == "slurmrestd is gone."
    assert found[1].check == "extras"


def test_a_prometheus_that_scrapes_more_rarely_than_the_settings_say_is_told(tmp_path, monkeypatch):
    from stormpetrel.sources.prometheus.cpu_traces import PrometheusTraces

    monkeypatch.setattr(PrometheusTraces, "modes", lambda *_: ["idle", "iowait", "system", "user"])
    with make_site(tmp_path / "site", prometheus={"url": "http://127.0.0.1:9"}) as site:
        for intervals, level, word in (
            ({"n1": 1.0, "n2": 15.0}, "warning", "sees n2 every 15 s, and prometheus.step_s is 1 (1 of 2 nodes)"),
            ({"n1": 1.0, "n2": 1.02}, "ok", "2 nodes every 1 s"),
            ({}, "problem", "no node_cpu_seconds_total"),
        ):
            monkeypatch.setattr(PrometheusTraces, "scrape_intervals", lambda *_, found=intervals: found)
            assert (only(site, "prometheus").level, word in only(site, "prometheus").what) == (level, True)


def test_a_site_without_a_prometheus_is_fine_and_traces_that_are_not_read_any_more_are_told(site):
    assert only(site, "prometheus").level == "ok"
    position = round((site.now() - timedelta(hours=3)).timestamp() * 1e6)
    site.cpu_windows.commit(site.cpu_windows.read().collect(), cursor=Cursor("prometheus", position))
    assert only(site, "live").level == "warning" and "ingest traces --live" in only(site, "live").hint


def test_the_last_line_counts_problems_and_warnings():
    problem, warning, fine = (Finding(level, "x", "y") for level in ("problem", "warning", "ok"))
    assert summary([fine]) == "No problems."
    assert summary([fine, warning]) == "No problems, 1 warning."
    assert summary([warning, warning, problem]) == "1 problem, 2 warnings."
    assert summary([problem, problem]) == "2 problems."


def watched(site, *, heard_s=1.0, **problems):
    """Leave what a watch with these sources leaves in the state."""
    at = datetime.now(UTC) - timedelta(seconds=heard_s)
    told = dict.fromkeys(("started", "stepped", "stepped_real"), at.isoformat())
    write_status(site.state, WatchStatus(pid=1, host="login1", **told))
    sources = [
        SourceHealth(name, JOBS, 5.0, 15.0, since=at, last_good=at, records=7, problem=why) for name, why in problems.items()
    ]
    write_sources(site.state, tuple(sources), at)


def test_a_site_that_nobody_has_watched_yet_is_not_ill(site):
    assert not findings(site, "watch")


def test_the_watchs_own_reads_are_listed(site):
    watched(site, sacct="", squeue="squeue failed: no answer.")
    well, ill = findings(site, "watch")
    assert well.level == "ok" and well.what.startswith("sacct: Last read well") and well.what.endswith("(7 records)")
    assert (ill.level, ill.what) == ("problem", "squeue: squeue failed: no answer.")


def test_a_watch_that_is_silent_is_worth_a_look(site):
    watched(site, heard_s=600.0, sacct="")
    assert (only(site, "watch").level, only(site, "watch").what) == ("warning", "the watch was last heard of 10 min ago.")
