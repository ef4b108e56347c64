"""Sites with a generator of their workload, for tests: simulated jobs of two weeks, and what a fitting would have entered."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from stormpetrel.lifecycle.workload_models import FAMILY, site_workload
from stormpetrel.store.registry.models import NewModel, Training
from stormpetrel.store.site import Site
from stormpetrel.synth.choose import new_generator
from tests.answers.live_sites import put_jobs
from tests.parts.watched_site import simulated_jobs

NOW = datetime(2026, 4, 1, tzinfo=UTC)
GENERATOR = "gaussian-copula"  # fits in a tenth of a second
GROUP = "<img src=x onerror=\"window.hacked='group'\">"
CARD: dict[str, Any] = {
    "columns": {"interval_s": {"ks": {"mean": 0.04, "std": 0.0, "n": 1}, "w1": 3.0}, "nodes": {"ks": 0.3, "w1": 1.0}},
    "categories": {"state": {"tv": 0.01, "by": "name"}},
    "lag1": {"real": 0.5, "synthetic": 0.1},
    "dispersion": {"real": 20.0, "synthetic": 18.0},
    "exact_copies": {"synthetic": 0.2, "natural": 0.01},
    "acf_mae": {"mean": 0.05, "std": 0.0, "n": 1},
    "c2st_sequence": 0.61,
    "c2st_row": None,
    "nearest_record_ratio": 1.4,
    "membership_auc": 0.7,
    "tstr": None,
    "floor": {
        "columns": {"interval_s": {"ks": 0.03}, "nodes": {"ks": 0.1}},
        "lag1": {"real": 0.5, "synthetic": 0.48},
        "dispersion": {"real": 20.0, "synthetic": 23.0},
        "acf_mae": 0.05,
        "c2st_sequence": 0.52,
    },
}


def put_workload(site: Site) -> None:
    """Two weeks of jobs; the site's clock stands after them."""
    site.now = lambda: NOW  # type: ignore[method-assign]
    put_jobs(site, simulated_jobs())


def put_generator(site: Site, name: str = GENERATOR, **about: Any) -> Training:
    """A generator of the site's jobs, in use, with a scorecard that nobody measured."""
    workload = site_workload(site)
    generator = new_generator(name, seed=0).fit(workload)
    told = {
        "generator": name,
        "n_train": workload.height,
        "columns": ["cores", "runtime_s", "gpus"],
        "groups": {GROUP: "users of large jobs"},
        "since": workload.start().isoformat(),
        "trained_until": NOW.isoformat(),
        "table_version": 3,
        "scorecard": CARD,
        "scored_jobs": 1000,
        **about,
    }
    return site.models.add_together({f"{FAMILY}-{name}": NewModel(generator.save, told)}, promoted_by="root", action="synth fit")
