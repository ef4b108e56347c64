"""The pages of the dashboard, one file each, in the order of the navigation."""

from __future__ import annotations

from typing import Final

from stormpetrel.faces.dashboard.page import DashboardPage
from stormpetrel.faces.dashboard.pages import (
    actions,
    alarms,
    capacity,
    cases,
    cluster,
    generator,
    health,
    jobs,
    me,
    model,
    nodes,
    now,
    profiles,
    rehearsal,
    trends,
    waste,
)

PAGES: Final[tuple[DashboardPage, ...]] = (
    now.PAGE, alarms.PAGE, jobs.PAGE, trends.PAGE, waste.PAGE, profiles.PAGE, me.PAGE, nodes.PAGE, cluster.PAGE, capacity.PAGE,
    generator.PAGE, model.PAGE, actions.PAGE, health.PAGE, cases.PAGE, rehearsal.PAGE,
)  # fmt: skip
