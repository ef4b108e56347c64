"""The traces of `stormpetrel demo`: those of its jobs, or simulated campaigns; a model of what is normal, and the scores.

Where torch is installed the demo trains a model of its own; elsewhere the shipped encoder scores.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stormpetrel.lifecycle.trace_models import Scored
    from stormpetrel.store.site import Site

_FOLDER: Final = "campaigns"
_OF_JOBS: Final = "traces"  # where `synth sample --with traces` has put those of the site's own jobs
_NODES, _THREADS, _MINUTES = 4, 16, 20.0
_APART_DAYS: Final = 6.0  # from the first campaign to the last
_EPOCHS: Final = 30  # enough to tell Bad IO; `traces evaluate` takes more
_FEWEST_EPOCHS, _SEEN = 6, 50_000  # windows that a training looks at, epochs times windows


def add_traces(site: Site, *, quiet: bool) -> Scored | None:
    """Give the site traces, a model and scores, unless it has them; None where nothing that could score is installed."""
    from stormpetrel.faces.cli.trace_input import progress_shown
    from stormpetrel.lifecycle.trace_models import FAMILY, load_trace_model, score_new_windows, train_trace_model

    if not all(find_spec(name) for name in ("onnxruntime", "onnx", "safetensors")):
        return None
    with progress_shown(quiet=quiet) as progress:
        if site.models.current_training(FAMILY) is None:
            if not _has_windows(site) and not _take_in_own(site):
                progress(0.0, "simulating CPU traces")
                _take_in_campaigns(site)
            if find_spec("torch") is not None:
                from stormpetrel.traces.architecture import AutoencoderSettings

                train_trace_model(site, settings=AutoencoderSettings(max_epochs=_epochs(site)), progress=progress)
        return score_new_windows(site, load_trace_model(site), progress=progress)


def _has_windows(site: Site) -> bool:
    """Whether traces were taken in before: a demo without torch is opened again and again without a model of its own."""
    return site.cpu_windows.read().select("node").head(1).collect().height > 0


def _epochs(site: Site) -> int:
    """Fewer where there is more to see in each: nobody waits longer for a demo of more nodes."""
    from stormpetrel.records.traces import Split

    windows = site.cpu_windows.read(splits=[Split.TRAIN]).select("cpu").collect().height
    return max(_FEWEST_EPOCHS, min(_EPOCHS, _SEEN // max(1, windows)))


def _take_in_own(site: Site) -> bool:
    """Take in the traces of the site's own jobs; whether there are any."""
    from stormpetrel.ingest.traces import ingest_campaigns
    from stormpetrel.sources.trace_files import SUFFIX

    folder = site.folder / _OF_JOBS
    if not any(folder.glob(f"*{SUFFIX}")):
        return False
    ingest_campaigns(site, [folder])
    return True


def _take_in_campaigns(site: Site) -> None:
    """Campaigns for training, validation and test; the last one ends now."""
    from stormpetrel.ingest.traces import ingest_campaigns
    from stormpetrel.simulate.campaigns import campaign_set
    from stormpetrel.sources.trace_files import write_trace

    folder = site.folder / _FOLDER
    folder.mkdir(exist_ok=True)
    start_s = site.now().timestamp() // 60 * 60 - _MINUTES * 60 - _APART_DAYS * 86_400
    traces = campaign_set(1, train=1, nodes=_NODES, threads_per_node=_THREADS, minutes=_MINUTES, start_s=start_s)
    paths = [folder / f"{trace.name}.npz" for trace in traces]
    for path, trace in zip(paths, traces, strict=True):
        if not path.exists():  # a demo that was stopped half-way goes on with what it had made
            write_trace(trace, path)
    ingest_campaigns(site, paths)
