"""A site with the windows of small campaigns, and a tiny model trained on them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from stormpetrel.lifecycle.trace_models import train_trace_model
from stormpetrel.records.traces import Split
from stormpetrel.records.window_frames import frame_of
from stormpetrel.records.windows import Windows
from stormpetrel.store.registry.models import ModelVersion
from stormpetrel.store.site import Site
from tests.builders import make_site
from tests.parts import need
from tests.traces.small import STEPS, small_windows, tiny

STEPS_S = float(STEPS)
SETTINGS = tiny(max_epochs=2)


def traced_site(folder: Path, *, splits: bool = True, **sections: dict[str, object]) -> Site:
    """Three campaigns of eight moments and sixteen threads each; without splits they are what a server has told."""
    site = make_site(folder, traces={"window_s": STEPS_S, "alarm_share": 0.1, **sections.pop("traces", {})}, **sections)
    for seed, split in enumerate(Split):
        put_windows(site, campaign(seed, name=split.value if splits else "live"), split if splits else None)
    return site


def campaign(seed: int, **changes: Any) -> Windows:
    """A small campaign, some days after the one with the seed before."""
    return small_windows(seed, **({"steps": 8 * STEPS} | changes))


def put_windows(site: Site, windows: Windows, split: Split | None = None) -> None:
    """Windows into the table of a site."""
    site.cpu_windows.commit(frame_of(windows, cluster="c", split=split))


def train(site: Site, **changes: Any) -> ModelVersion:
    """A quick training on one CPU."""
    need("torch")
    settings = replace(SETTINGS, **changes.pop("settings", {}))
    return train_trace_model(site, settings=settings, device="cpu", user="ada", **changes)
