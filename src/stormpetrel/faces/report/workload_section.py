"""The workload in the report: the site's jobs beside synthetic ones, as the published study drew them, and how near they are.

Site -> site_workload_sections -> Section. A site with too few jobs to learn from has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from stormpetrel.errors import ModelError, NotEnoughJobsError, StormpetrelError
from stormpetrel.faces.report.blocks import Block, Paragraph, Section
from stormpetrel.faces.report.workload_blocks import comparison_drawings, comparison_table, scorecard_table, usefulness_tables
from stormpetrel.synth.choose import DEFAULT

if TYPE_CHECKING:
    from stormpetrel.store.site import Site
    from stormpetrel.synth.contract import WorkloadGenerator
    from stormpetrel.synth.workload import Workload

Progress = Callable[[str], None]

TITLE: Final = "Workload"
MOST_JOBS: Final = 20_000  # the newest: a report should not wait longer for this than for the rest of it
_INTRO: Final = (
    "The jobs of this site beside as many that a generator made which learnt from them. Where the lines lie on each other, "
    "synthetic jobs can stand in for real ones: to share a log, to plan, to test a scheduler."
)


def site_workload_sections(site: Site, *, generator: str = DEFAULT, progress: Progress = lambda _: None) -> list[Section]:
    """The site's workload, real against synthetic: of the generator in use, or of one that is fitted now and not kept."""
    from stormpetrel.lifecycle.workload_models import site_workload
    from stormpetrel.synth.contract import Wanted, sample

    progress("workload")
    try:
        real = site_workload(site, most=MOST_JOBS)
        made_by, words, card = _generator(site, real, generator)
        made = sample(made_by, Wanted(jobs=real.height, start=real.start()))
    except NotEnoughJobsError:
        return []
    except StormpetrelError as error:
        return [Section(TITLE, "", (Paragraph(f"No synthetic jobs could be made: {error.what}"),))]
    return [Section(TITLE, _INTRO, tuple(_blocks(real, made, words, card)))]


def _generator(site: Site, real: Workload, name: str) -> tuple[WorkloadGenerator, str, Mapping[str, Any]]:
    """The generator in use with its scorecard, or a new one; and what it is, in words."""
    from stormpetrel.lifecycle.workload_models import load_site_generator
    from stormpetrel.synth.choose import new_generator

    try:
        used = load_site_generator(site)
    except ModelError:
        return new_generator(name).fit(real), f"'{name}', fitted for this report on the newest {real.height:,} jobs", {}
    words = f"'{used.name}' ({used.training}), which is in use and has learnt from {used.about.get('n_train', 0):,} jobs"
    return used.generator, words, used.about.get("scorecard") or {}


def _blocks(real: Workload, made: Workload, words: str, card: Mapping[str, Any]) -> list[Block]:
    from stormpetrel.synth.score.fidelity import fidelity

    blocks: list[Block] = [
        Paragraph(f"Made by the generator {words}. The newest {real.height:,} jobs are drawn, and as many new ones."),
        *comparison_drawings({"real": real, "synthetic": made}),
    ]
    if not card:
        return [*blocks, comparison_table({"synthetic": fidelity(real, made)})]
    return [*blocks, scorecard_table("Scorecard: learnt from odd weeks, judged on even ones", card), *usefulness_tables(card)]
