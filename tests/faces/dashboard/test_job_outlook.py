"""Needs, start and the effect of advice in the panel of a job."""

from __future__ import annotations

from types import SimpleNamespace

from stormpetrel.answers.schemas.predictions import Advice, NeedOutlook, WaitOutlook
from stormpetrel.faces.dashboard.pages import job_sections as sections

GIB = 1 << 30
PIECE = Advice(
    column="req_mem_bytes", now=64 * GIB, proposed=24 * GIB, sentence="24 GB of memory would do instead of 64 GB.",
    evidence=["x"], support=20, kind="same user", saves=True, risk_before=0.61, risk_after=0.09, line="#SBATCH --mem=24G",
    wait_before_s=10800.0, wait_after_s=720.0, core_hours_saved=12.5, mem_update="#SBATCH --mem-update=50@30",
)  # fmt: skip


def details(**values):
    return SimpleNamespace(**{"needs": None, "wait": None, "next": None, "advice": [], **values})


def test_the_panel_tells_needs_and_start():
    need = NeedOutlook(request=64 * GIB, p50=20 * GIB, p90=24 * GIB, p99=30 * GIB, short=0.0, similar=20, group="same")
    shown = str(
        sections.outlook(details(needs={"memory": need}, wait=WaitOutlook(p50_s=720, p90_s=3600, waited_s=0, reason=None)))
    )
    assert "nine in ten up to 24 GB (it asks for 64 GB)" in shown and "Starts within 12 min (half of such jobs)" in shown
    assert sections.outlook(details()) is None


def test_a_piece_of_advice_shows_both_lines_and_what_it_does():
    shown = str(sections.advice(details(advice=[PIECE]), {}))
    assert "#SBATCH --mem=24G" in shown and "#SBATCH --mem-update=50@30" in shown and "Experiment" not in shown
    assert "Risk 61% → 9%, starts within 12 min instead of 3 h, 12.5 core-hours saved." in shown


def test_an_experiment_is_named_as_one():
    assert "Experiment: " in str(sections.advice(details(advice=[PIECE.model_copy(update={"experiment": True})]), {}))
