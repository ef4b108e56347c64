"""The traces of `stormpetrel demo`: simulated campaigns taken in, a model of what is normal, and the scores of the last one."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stormpetrel.lifecycle.trace_models import Scored
    from stormpetrel.store.site import Site

_FOLDER: Final = "campaigns"
_NODES, _THREADS, _MINUTES = 4, 16, 20.0
_APART_DAYS: Final = 6.0  # from the first campaign to the last
_EPOCHS: Final = 30  # enough to tell Bad IO; `traces evaluate` takes more


def add_traces(site: Site, *, quiet: bool) -> Scored | None:
    """Give the site traces, a model and scores, unless it has them; None where the extra for it is not installed."""
    from stormpetrel.faces.cli.trace_input import progress_shown
    from stormpetrel.lifecycle.trace_models import FAMILY, load_trace_model, score_new_windows, train_trace_model

    if not all(find_spec(name) for name in ("torch", "onnxruntime", "onnx", "safetensors")):
        return None
    with progress_shown(quiet=quiet) as progress:
        if site.models.current_training(FAMILY) is None:
            progress(0.0, "simulating CPU traces")
            _take_in_campaigns(site)
            from stormpetrel.traces.architecture import AutoencoderSettings

            train_trace_model(site, settings=AutoencoderSettings(max_epochs=_EPOCHS), progress=progress)
        return score_new_windows(site, load_trace_model(site), progress=progress)


def _take_in_campaigns(site: Site) -> None:
    """Campaigns for training, validation and test; the last one ends now."""
    from stormpetrel.simulate.campaigns import campaign_set
    from stormpetrel.sources.trace_files import write_trace
    from stormpetrel.store.trace_ingest import ingest_campaigns

    folder = site.folder / _FOLDER
    folder.mkdir(exist_ok=True)
    start_s = site.now().timestamp() // 60 * 60 - _MINUTES * 60 - _APART_DAYS * 86_400
    traces = campaign_set(1, train=1, nodes=_NODES, threads_per_node=_THREADS, minutes=_MINUTES, start_s=start_s)
    paths = [folder / f"{trace.name}.npz" for trace in traces]
    for path, trace in zip(paths, traces, strict=True):
        if not path.exists():  # a demo that was stopped half-way goes on with what it had made
            write_trace(trace, path)
    ingest_campaigns(site, paths)
