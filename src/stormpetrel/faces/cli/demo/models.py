"""The traces and events of `stormpetrel demo`: where they come from, a model of each, and scores.

Where torch is installed the demo trains a model of its own; elsewhere the shipped encoder scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from typing import Final

from stormpetrel.answers.cluster.alarms import score_events
from stormpetrel.answers.schemas.events import ScoredAlarm
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.errors import ModelError
from stormpetrel.faces.cli.progress import share_spinner
from stormpetrel.ingest.events import ingest_live_events
from stormpetrel.ingest.traces import ingest_campaigns
from stormpetrel.lifecycle.event_models import FAMILY as EVENTS
from stormpetrel.lifecycle.event_models import train_event_model
from stormpetrel.lifecycle.trace_models import FAMILY as TRACES
from stormpetrel.lifecycle.trace_models import Scored, load_trace_model, score_new_windows, train_trace_model
from stormpetrel.records.traces import Split
from stormpetrel.simulate.telemetry.campaigns import campaign_set
from stormpetrel.sources.trace_files import SUFFIX, write_trace
from stormpetrel.store.site import Site
from stormpetrel.traces.networks.architecture import AutoencoderSettings

_FOLDER: Final = "campaigns"
_OF_JOBS: Final = "traces"  # where `synth sample --with traces` has put those of the site's own jobs
_NODES, _THREADS, _MINUTES = 4, 16, 20.0
_APART_DAYS: Final = 6.0  # from the first campaign to the last
_EPOCHS: Final = 30  # enough to recognise Bad IO; `traces evaluate` takes more
_FEWEST_EPOCHS, _SEEN = 6, 50_000  # windows of a training, epochs times windows


def add_traces(site: Site, *, quiet: bool) -> Scored | None:
    """Add traces, a model and scores to the site, unless it has them; None where nothing that could score is installed."""
    if not all(find_spec(name) for name in ("onnxruntime", "onnx", "safetensors")):
        return None
    with share_spinner(quiet=quiet) as progress:
        if site.models.current_training(TRACES) is None:
            if not _has_windows(site) and not _take_in_own(site):
                progress(0.0, "simulating CPU traces")
                _take_in_campaigns(site)
            if find_spec("torch") is not None:
                train_trace_model(site, settings=AutoencoderSettings(max_epochs=_epochs(site)), progress=progress)
        return score_new_windows(site, load_trace_model(site), progress=progress)


def _has_windows(site: Site) -> bool:
    """Whether traces were taken in before: a demo without torch is opened again and again without a model of its own."""
    return site.cpu_windows.read().select("node").head(1).collect().height > 0


def _epochs(site: Site) -> int:
    """Fewer where there is more to see in each: nobody waits longer for a demo of more nodes."""
    windows = site.cpu_windows.read(splits=[Split.TRAIN]).select("cpu").collect().height
    return max(_FEWEST_EPOCHS, min(_EPOCHS, _SEEN // max(1, windows)))


def _take_in_own(site: Site) -> bool:
    """Take in the traces of the site's own jobs; whether there are any."""
    folder = site.folder / _OF_JOBS
    if not any(folder.glob(f"*{SUFFIX}")):
        return False
    ingest_campaigns(site, [folder])
    return True


def _take_in_campaigns(site: Site) -> None:
    """Campaigns for training, validation and test; the last one ends now."""
    folder = site.folder / _FOLDER
    folder.mkdir(exist_ok=True)
    start_s = site.now().timestamp() // 60 * 60 - _MINUTES * 60 - _APART_DAYS * 86_400
    traces = campaign_set(1, train=1, nodes=_NODES, threads_per_node=_THREADS, minutes=_MINUTES, start_s=start_s)
    paths = [folder / f"{trace.name}.npz" for trace in traces]
    for path, trace in zip(paths, traces, strict=True):
        if not path.exists():  # a demo that was stopped half-way goes on with what it had written
            write_trace(trace, path)
    ingest_campaigns(site, paths)


_SHOWN: Final = timedelta(days=7)  # alarms of the last week are shown


@dataclass(frozen=True, slots=True)
class DemoAlarms:
    """How many hours were scored, and the alarms of the last week, oldest first."""

    hours: int
    episodes: list[ScoredAlarm]


def add_events(site: Site, *, quiet: bool) -> DemoAlarms | None:
    """Count the events of the site's jobs, train a model unless there is one, and score; None where there is nothing to learn."""
    with share_spinner(quiet=quiet) as progress:
        progress(0.0, "counting events")
        ingest_live_events(site)
        try:
            if site.models.current_training(EVENTS) is None:
                train_event_model(site, progress=progress)
            scoring = score_events(site, LOCAL, progress=progress)
        except ModelError:  # a site that has just begun
            return None
    return DemoAlarms(scoring.buckets, [alarm for alarm in scoring.episodes if alarm.end > site.now() - _SHOWN])
