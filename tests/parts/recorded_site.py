"""A small real site of one version, packed whole: tables, state, key, settings, a feed and models of every family.

`python -m tests.parts.recorded_site` makes the site of the version that runs it and packs it into tests/recordings/sites, with a
list of what is in it; `unpack_site` unpacks a recorded one. What was recorded stays as it is: every later version opens it.
"""

from __future__ import annotations

import json
import re
import sys
import tarfile
import tempfile
from contextlib import chdir
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from stormpetrel import __version__
from stormpetrel.config import settings_from
from stormpetrel.ingest.events import ingest_live_events
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.lifecycle.event_models import load_event_model, train_event_model
from stormpetrel.lifecycle.event_scoring import score_new_buckets
from stormpetrel.lifecycle.job_models import enter_job_models, fit_job_models
from stormpetrel.lifecycle.trace_models import load_trace_model, score_new_windows, train_trace_model
from stormpetrel.lifecycle.workload_models import fit_site_generator
from stormpetrel.records.jobs import KEY
from stormpetrel.records.outages import Outage, OutageKind
from stormpetrel.records.times import fixed_clock
from stormpetrel.records.traces import Split
from stormpetrel.records.window_frames import frame_of
from stormpetrel.simulate.cluster import simulate
from stormpetrel.simulate.feed import record_feed, set_clock, write_fake_sacct
from stormpetrel.simulate.spec import ClusterSpec
from stormpetrel.sources.slurm.live import live_sources
from stormpetrel.sources.slurm.sacct_text import SacctText
from stormpetrel.store.mails import MailKind, QueuedMail
from stormpetrel.store.site import Site, create_site, open_site
from stormpetrel.store.state import STATE_FORMAT
from stormpetrel.store.upkeep.upkeep import forget
from stormpetrel.traces.networks.architecture import Architecture
from stormpetrel.watch.loop import Watch
from tests.builders import SACCT_FIELDS, Job, sacct_line
from tests.lifecycle.sites import QUICK
from tests.traces.small import STEPS, small_windows, tiny

SITES = Path(__file__).parents[1] / "recordings" / "sites"
START = datetime(2026, 3, 2, tzinfo=UTC)
NOW = START + timedelta(days=25)  # where the clock of the recorded site stands; its feed goes on for two days more
TRAINED = NOW - timedelta(days=2)
SPEC = ClusterSpec(
    name="recorded", nodes=2, cores_per_node=8, mem_per_node_gib=32, days=27, load=0.5, start=START, seed=11, users=6
)
FORGOTTEN = "mallory"
HOUR = timedelta(hours=1)
_SACCT = 'sacct = "sacct"'  # the line of site.toml; no path of the machine that made the site is in it


def names() -> list[str]:
    """The names of all recorded sites, such as `site-0.1.0-state4`, the oldest first."""
    found = (path.name.removesuffix(".tar.xz") for path in SITES.glob("*.tar.xz"))
    return sorted(found, key=lambda name: [int(number) for number in re.findall(r"\d+", name)])


def contents_of(name: str) -> dict[str, Any]:
    """What was in a site when it was recorded: rows of each table, models in use, rows of each table of the state."""
    return dict(json.loads((SITES / f"{name}.json").read_text()))


def unpack_site(name: str, folder: Path) -> Path:
    """The folder of a recorded site, its sacct answering out of its feed."""
    with tarfile.open(SITES / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    site = folder / "site"
    site.chmod(0o700)
    attach_sacct(site)
    return site


def attach_sacct(folder: Path) -> None:
    """Let a site ask the sacct of its feed."""
    settings = (folder / "site.toml").read_text()
    assert _SACCT in settings
    (folder / "site.toml").write_text(settings.replace(_SACCT, f'sacct = "{write_fake_sacct(folder / "feed")}"'))


def make_recorded_site(folder: Path) -> Site:
    """A site that has everything that this version keeps, small."""
    with create_site(folder, settings_from(_settings())) as site:
        record_feed(
            [pl.concat(simulate(SPEC)).with_columns(work_dir=pl.lit("/home/ada/work"))], folder / "feed", fixed_clock(TRAINED)
        )
        plain = (folder / "site.toml").read_text()
    attach_sacct(folder)
    site = open_site(folder)
    _take_in_jobs(site)
    _train_jobs(site)
    _watch(site)
    _traces(site)
    _events(site)
    _generators(site)
    _what_people_did(site)
    (folder / "feed" / "sacct").unlink()
    (folder / "site.toml").write_text(plain)
    return site


def _settings() -> dict[str, Any]:
    return {
        "site": {"name": "recorded", "cluster": "recorded", "feed": "feed"},
        "slurm": {"since": f"{START:%Y-%m-%d}", "chunk_days": 31.0, "pause_s": 0.0},
        "watch": {"poll_s": 0.2, "address": "", "retrain_hours": 0.0},
        "traces": {"window_s": float(STEPS), "alarm_share": 0.05},
        "events": {"alarms_per_week": 2.0},
    }


def _take_in_jobs(site: Site) -> None:
    """The feed up to the training; and a file with a refused line, and a user who is forgotten afterwards."""
    _read_live(site)
    with tempfile.TemporaryDirectory() as made, chdir(made):
        theirs = [Job(job_id=900_001 + k, user=FORGOTTEN, name="dig", submit=START + k * HOUR) for k in range(5)]
        lines = [SACCT_FIELDS, *map(sacct_line, theirs), "ada|damaged", f"{FORGOTTEN}|damaged"]
        Path("jobs.txt").write_text("\n".join(lines) + "\n")
        ingest_jobs(site, SacctText(Path("jobs.txt")))
    forget(site, FORGOTTEN)


def _read_live(site: Site) -> None:
    for source in live_sources(site.settings.slurm, site.settings.site, site.jobs.cursor, now=site.now()):
        ingest_jobs(site, source)


def _train_jobs(site: Site) -> None:
    """Two trainings, so that there is one to go back to."""
    for days in (4, 0):
        fitted = fit_job_models(site, until=TRAINED - timedelta(days=days), settings=replace(QUICK, rounds=8))
        enter_job_models(site, fitted, why="trained by hand", promoted_by="ada")


def _watch(site: Site) -> None:
    watch = Watch(site)
    watch.step()
    for moment in (NOW - 24 * HOUR, NOW):
        set_clock(site.folder / "feed", fixed_clock(moment))
        watch.step()


def _traces(site: Site) -> None:
    for seed, split in enumerate([*Split, None]):
        name = split.value if split else "live"
        windows = small_windows(seed, steps=4 * STEPS, nodes=1, name=name)
        site.cpu_windows.commit(frame_of(windows, cluster="recorded", split=split))
    for architecture in (Architecture.JOB_GNN, Architecture.NODE_GNN, Architecture.VANILLA):
        train_trace_model(site, architecture, settings=tiny(max_epochs=2), device="cpu", user="ada")
    score_new_windows(site, load_trace_model(site))


def _events(site: Site) -> None:
    ingest_live_events(site)
    first = site.event_counts.seen()["first"].min()
    assert isinstance(first, datetime)
    hours = [first + k * HOUR for k in range(48)]
    background = {
        "bucket_start": hours,
        "bucket_s": 3600,
        "source": "graphite:jobs",
        "name": "running",
        "value": [float(k % 7) for k in range(48)],
    }
    schema = site.event_background.read().collect_schema()
    rows = pl.DataFrame(background).select([pl.col(name).cast(dtype) for name, dtype in schema.items()])
    site.event_background.replace(rows, source="graphite:jobs", start=hours[0], end=hours[-1] + HOUR, bucket_s=3600)
    seen = site.event_counts.coverage(bucket_s=3600)
    site.event_counts.reasons.update("table:other", [(NOW, NOW + HOUR, "the server was away")], seen=seen, now=NOW)
    site.outages.add(Outage(START + 200 * HOUR, START + 204 * HOUR, OutageKind.OUTAGE, "the file server was away"))
    site.outages.add(Outage(START + 300 * HOUR, START + 306 * HOUR, OutageKind.MAINTENANCE, "new switches"))
    for name in ("unsupervised", "supervised", "combined"):
        train_event_model(site, name, user="ada")
    score_new_buckets(site, load_event_model(site))


def _generators(site: Site) -> None:
    for name, settings in (("gaussian-copula", {}), ("private", {}), ("sessions", {"trees": 4})):
        fit_site_generator(site, name, user="ada", **settings)


def _what_people_did(site: Site) -> None:
    site.tokens.add("adas-laptop", user="ada", scopes=["read"], days=None)
    site.views.save("ada", "mine", "/jobs?user=ada")
    job = site.jobs.read_jobs().select(KEY).head(1).collect().row(0, named=True)
    site.opinions.add("ada", job["job_id"], "memory", useful=True)
    site.audit.record("ada", "site recorded", {"version": __version__})
    facts = {"job": str(job["job_id"]), "type": "ended"}
    site.mails.insert([QueuedMail("1-1-a.json:ada@example.org", MailKind.END, "ada@example.org", "ada", "job 1", NOW, facts)])


def row_counts(site: Site) -> dict[str, int]:
    """How many rows each table of a site has."""
    counts = site.event_counts
    tables = (
        site.jobs.table, site.jobs.sightings, site.quarantine.table, site.predictions.table, site.cpu_windows.table,
        site.trace_scores.table, counts.table, counts.reasons.table, site.event_background.table, site.event_scores.table,
        site.forgotten.table,
    )  # fmt: skip
    return {table.spec.name: table.scan().select(pl.len()).collect().item() for table in tables}


def pack(site: Site, target: Path) -> Path:
    """Pack a site and write beside it what is in it; the path of the archive."""
    name = f"site-{__version__}-state{STATE_FORMAT}"
    told = {
        "version": __version__,
        "state_format": STATE_FORMAT,
        "now": site.now().isoformat(),
        "forgotten": FORGOTTEN,
        "tables": row_counts(site),
        "state": {table: len(rows) for table, rows in site.state.dump().items()},
        "models": {model.name: model.version for model in site.models.in_use().values()},
        "all_models": sorted(f"{model.name}/{model.version}" for model in site.models.versions()),
    }
    site.state.empty_log()
    site.close()
    packed = target / f"{name}.tar.xz"
    with tarfile.open(packed, "w:xz", preset=9) as archive:
        archive.add(site.folder, "site", filter=_plain)
    (target / f"{name}.json").write_text(json.dumps(told, indent=1) + "\n")
    return packed


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without owner and time of the machine, locks and SQLite's side files."""
    if Path(member.name).name.endswith((".lock", "-wal", "-shm")):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = int(NOW.timestamp())
    return member


def main() -> None:
    """Record the site of this version."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else SITES
    with tempfile.TemporaryDirectory() as made, make_recorded_site(Path(made) / "site") as site:
        packed = pack(site, target)
    sys.stdout.write(f"{packed.name}: {packed.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
