"""The workload in the report: the site's jobs next to synthetic ones, as the published study drew them, and how near they are.

Site -> site_workload_sections -> Section. A site with too few jobs to learn from has none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from stormpetrel.answers.viewer import LOCAL
from stormpetrel.answers.workload.quality import SYNTHETIC, compare_site_workload
from stormpetrel.errors import NotEnoughJobsError, StormpetrelError
from stormpetrel.faces.report.blocks import Block, Paragraph, Section
from stormpetrel.faces.report.workload_blocks import comparison_drawings, comparison_table, evaluation_tables
from stormpetrel.synth.choose import DEFAULT

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.workload import SiteWorkload
    from stormpetrel.store.site import Site

Progress = Callable[[str], None]

TITLE: Final = "Workload"
_INTRO: Final = (
    "The jobs of this site beside as many that a generator made which learnt from them. Where the lines lie on each other, "
    "synthetic jobs can stand in for real ones: to share a log, to plan, to test a scheduler."
)


def site_workload_sections(site: Site, *, generator: str = DEFAULT, progress: Progress = lambda _: None) -> list[Section]:
    """Return the site's workload, real against synthetic: of the generator in use, or of one that is fitted now and not kept."""
    progress("workload")
    try:
        answer, workloads = compare_site_workload(site, LOCAL, generator=generator)
    except NotEnoughJobsError:
        return []
    except StormpetrelError as error:
        return [Section(TITLE, "", (Paragraph(f"No synthetic jobs could be made: {error.what}"),))]
    made_by = f"Made by the generator {_generator(answer)}. The newest {answer.jobs:,} jobs are drawn, and as many new ones."
    blocks: list[Block] = [Paragraph(made_by), *comparison_drawings(workloads)]
    if answer.fidelity is not None:
        blocks.append(comparison_table({SYNTHETIC: answer.fidelity}))
    else:
        blocks += evaluation_tables(answer, "Scorecard: learnt from odd weeks, judged on even ones")
    return [Section(TITLE, _INTRO, tuple(blocks))]


def _generator(answer: SiteWorkload) -> str:
    if answer.training is None:
        return f"'{answer.generator}', fitted for this report on the newest {answer.learnt_from:,} jobs"
    return f"'{answer.generator}' ({answer.training}), which is in use and has learnt from {answer.learnt_from:,} jobs"
