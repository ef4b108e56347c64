"""A real Slurm that is down, or stands still: told in the log, by /readyz, in /metrics and on Health; a quiet one is not."""

from __future__ import annotations

import json
import re
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.schemas.health import HealthLine
from stormpetrel.answers.site.doctor import examine
from stormpetrel.answers.site.health import health
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.store.site import Site
from tests.builders import make_site
from tests.parts import wait_until
from tests.parts.command_line import start

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]
LIMIT_S = 90  # on a busy machine; docs/watch.md says what holds on a quiet one


@dataclass
class Watched:
    """A watch that runs, and the four places where it tells how its sources are."""

    site: Site
    port: int = 0
    log: list[dict[str, str]] = field(default_factory=list)

    def in_log(self, source: str) -> list[str]:
        return [line["event"] for line in self.log if line.get("source") == source]

    def fetch(self, path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.read().decode()

    def up(self, source: str) -> float | None:
        found = re.search(rf'^stormpetrel_source_up{{source="{source}"}} (\S+)$', self.fetch("/metrics"), re.MULTILINE)
        return float(found[1]) if found else None

    def on_page(self, *names: str) -> list[HealthLine]:
        lines = {line.name: line for line in reversed(health(LiveSite(self.site), LOCAL).lines)}
        missing = HealthLine(part="Sources", name="", level="warning", words="not there yet", advice="")
        return [lines.get(name, missing) for name in names]

    def tells_of(self, source: str) -> bool:
        """Whether all four places say that something is wrong with a source."""
        return (
            "problem" in self.in_log(source)[-1:]
            and self.up(source) == 0.0
            and source in self.fetch("/readyz")
            and all(line.level == "problem" for line in self.on_page(source, "Watch"))
        )

    def is_calm(self, source: str) -> bool:
        """Whether none of them says so."""
        if self.in_log(source)[-1:] == ["problem"] or self.up(source) != 1.0 or source in self.fetch("/readyz"):
            return False
        line, watch = self.on_page(source, "Watch")  # last: it takes longest
        return line.level == "ok" and source not in watch.words


@pytest.fixture(scope="module")
def watched(slurm, tmp_path_factory) -> Iterator[Watched]:
    """A watch beside the cluster, after its first look; it has no model, and needs none for this."""
    settings = {
        "slurm": {"since": f"{datetime.now(UTC):%Y-%m-%d}"},
        "watch": {"poll_s": 0.5, "patience_s": 5.0, "retrain_hours": 0.0},
    }
    with make_site(tmp_path_factory.mktemp("health") / "site", **settings) as site:
        process = start(site.folder, "watch", "--json", "--address", "127.0.0.1:0", env=slurm.env)
        seen = Watched(site, json.loads(process.stderr.readline())["metrics_port"])
        reader = threading.Thread(target=lambda: seen.log.extend(json.loads(line) for line in process.stderr), daemon=True)
        reader.start()
        try:
            wait_until(lambda: seen.up("sacct") == seen.up("squeue") == 1.0, "a first look", limit_s=LIMIT_S)
            yield seen
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
            reader.join(10)
            for pipe in (process.stdin, process.stdout, process.stderr):
                pipe.close()


def test_a_quiet_cluster_is_no_warning_anywhere(watched):
    wait_until(lambda: watched.is_calm("sacct") and watched.is_calm("squeue"), "calm", limit_s=LIMIT_S)
    assert {line.level for line in health(LiveSite(watched.site), LOCAL).lines if line.part == "Sources"} == {"ok"}
    found = [finding for finding in examine(watched.site) if finding.check in ("watch", "live", "events")]
    assert {finding.what.partition(":")[0] for finding in found if finding.check == "watch"} >= {"sacct", "squeue"}
    assert not [finding for finding in found if finding.level != "ok" and "model" not in finding.what]
    # Not incidents, alarms and trainings: the Slurm is shared, and a first watch looks a day back at the jobs of other files.
    warnings = [line for line in watched.log if line["level"] == "warning" and "problem" in line["event"]]
    assert not [line for line in warnings if "model" not in line["what"]]


@pytest.mark.parametrize(
    ("daemon", "how", "source"),
    [
        ("slurmctld", "down", "squeue"),
        ("slurmdbd", "hanging", "sacct"),
        ("slurmctld", "hanging", "squeue"),
    ],
)
def test_a_scheduler_that_is_down_or_hangs_is_told_everywhere_and_over_when_it_is_back(slurm, watched, daemon, how, source):
    with getattr(slurm, how)(daemon):
        wait_until(lambda: watched.tells_of(source), f"it is told that {source} does not answer", limit_s=LIMIT_S)
    wait_until(lambda: watched.is_calm(source), "it is over", limit_s=LIMIT_S)
    assert watched.in_log(source)[-1] == "problem over"
