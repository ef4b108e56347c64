"""How a span of time is asked for: by days where there are jobs, in few requests and without pauses where there are none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from stormpetrel.config import SiteSection, SlurmSection
from stormpetrel.sources.slurm.live import LiveSlurm
from tests.parts.told_slurm import ToldSlurm, row

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
DAY = timedelta(days=1)
PAUSE_S = 60.0  # any answer of the scripts is quick beside it


@pytest.fixture
def slurm(tmp_path) -> ToldSlurm:
    return ToldSlurm(tmp_path / "slurm")


def read(slurm: ToldSlurm, **settings: object) -> list[float]:
    """A first run: all windows of the month before; the pauses between two requests, in seconds."""
    pauses: list[float] = []
    section = SlurmSection.model_validate({**slurm.settings, "since": "", "pause_s": PAUSE_S, **settings})
    for source in LiveSlurm(section, SiteSection(), pause=pauses.append).sources(lambda _name: None, now=NOW):
        for _chunk in source.chunks():
            pass
    return pauses


def test_an_empty_month_is_asked_for_in_six_requests_without_a_pause(slurm):
    assert read(slurm) == []
    assert len(slurm.windows()) == 6


def test_windows_that_grow_leave_no_gap(slurm):
    read(slurm)
    spans = slurm.windows()
    assert (spans[0][0], spans[-1][1]) == ((NOW - 30 * DAY).replace(tzinfo=None), NOW.replace(tzinfo=None))
    assert all(before[1] == after[0] for before, after in pairwise(spans))


def test_a_month_of_jobs_is_asked_for_day_by_day_with_a_pause_between_two(slurm):
    slurm.accounting(ended=(row(1, "COMPLETED"),))
    assert read(slurm) == [PAUSE_S] * 29
    assert {end - start for start, end in slurm.windows()} == {DAY}


def test_the_first_day_with_jobs_ends_the_wide_windows(slurm):
    slurm.accounting(ended=(row(1, "COMPLETED"),))
    script = (slurm.folder / "sacct").read_text()
    (slurm.folder / "sacct").write_text(script.replace('sed "s', 'case "$start" in 2026-10-1*) exit;; esac\nsed "s'))
    read(slurm)
    assert [(end - start) / DAY for start, end in slurm.windows()][:6] == [1, 2, 4, 1, 1, 1]


def test_an_empty_answer_that_took_long_is_followed_by_a_pause(slurm):
    assert read(slurm, pause_s=1e-6) == [1e-6] * 5


def test_a_site_that_asks_for_whole_months_does_so_where_nothing_is_too(slurm):
    read(slurm, chunk_days=31.0, since="2026-08-16")
    assert [(end - start) / DAY for start, end in slurm.windows()] == [31, 31, 30.5]
