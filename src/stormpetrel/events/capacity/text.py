"""Capacity in words: how the load grows and when the queue will hurt, in one sentence; and what that rests on.

CapacityPlan -> headline, reasons.
"""

from __future__ import annotations

from datetime import date
from typing import Final

from stormpetrel.events.capacity.capacity import CapacityPlan, CapacitySource, Outlook
from stormpetrel.events.capacity.trend import FEWEST_WEEKS, LONGEST_WEEKS, LoadTrend
from stormpetrel.events.capacity.weeks import LoadUnit

_WHOLE: Final = 0.995  # of a week that was seen: the rest is not worth a word
_WORTH_REPORTING: Final = 0.05


def headline(plan: CapacityPlan) -> str:
    """How the load grows, and when the queue will hurt."""
    if plan.trend is None:
        return _too_short(plan.record.known_weeks)
    return f"{growth_text(plan.trend)}; {_outlook_text(plan)}."


def growth_text(trend: LoadTrend) -> str:
    """By how much the load grows in a week."""
    low, high = trend.growth_range
    if trend.is_growing:
        return f"Load grows {_percent(trend.growth)} % a week ({_percent(low)} to {_percent(high)})"
    if high < 0:
        return f"Load falls {_percent(-trend.growth)} % a week ({_percent(-high)} to {_percent(-low)})"
    return f"It is not sure that load grows at all ({_percent(low)} to {_percent(high)} % a week)"


def reasons(plan: CapacityPlan, *, today: date | None = None) -> list[str]:
    """What the headline rests on, and what it leaves out, a sentence each."""
    sentences = [_capacity_text(plan), _knee_text(plan), _weeks_text(plan), _old_text(plan, today)]
    if plan.trend is not None:
        sentences.append("Holidays, seasons and planned changes are not modelled: the forecast is the past going on as it did.")
    return [sentence for sentence in sentences if sentence]


def wait_text(seconds: float | None) -> str:
    """A wait as people say it: 40 s, 12 min, 3.5 h, 2.1 days."""
    if seconds is None or seconds != seconds:
        return "–"
    for unit, length, most in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < most:
            number = seconds / length
            return f"{number:.1f} {unit}" if unit == "h" and number < 10 else f"{number:.0f} {unit}"
    return f"{seconds / 86_400:.1f} days"


def _too_short(weeks: int) -> str:
    length = {0: "is no whole week", 1: "is one whole week"}.get(weeks, f"are {weeks} whole weeks")
    return f"There {length} of data yet; it takes {FEWEST_WEEKS} to tell a trend."


def _outlook_text(plan: CapacityPlan) -> str:
    if plan.outlook is Outlook.UNKNOWN_SIZE:
        return "when the queue will hurt cannot be told, since nobody has told what jobs hold and how much there is"
    if plan.outlook is Outlook.ALREADY:
        return (
            f"the queue hurts already: {100 * (plan.utilisation or 0):.0f} % of the capacity is asked for, "
            f"and waits grow from {100 * plan.knee.utilisation:.0f} % on"
        )
    share = plan.reach.share if plan.reach is not None else 0.0
    courses = f"in {100 * share:.0f} of 100 possible courses it does"
    if plan.outlook is Outlook.UNSURE:
        return f"whether the queue will hurt within half a year is open, so there is no date: {courses}"
    median, earliest, latest = plan.hurts_from
    if median is None:
        return f"the queue should not hurt within half a year{f' ({courses})' if share >= _WORTH_REPORTING else ''}"
    return f"at this rate the queue hurts from {median:%B %Y} on{_range_text(median, earliest or median, latest)}"


def _range_text(median: date, earliest: date, latest: date | None) -> str:
    """The months in brackets; the year where it is not that of the headline."""

    def month(day: date) -> str:
        return f"{day:%b}" if day.year == median.year else f"{day:%b %Y}"

    if latest is None:
        return f" ({month(earliest)} at the earliest; it may be later than half a year)"
    first, last = month(earliest), month(latest)
    return "" if first == last else f" ({first}–{last})"


def _capacity_text(plan: CapacityPlan) -> str:
    if plan.capacity is None:
        return ""
    things = "slots" if plan.record.unit is LoadUnit.SLOT_HOURS else "cores"
    number = f"{plan.capacity:,.0f} {things}"
    if plan.record.unit is LoadUnit.FULL_HOURS:
        return "The utilisation is taken from the background that site.toml names."
    if plan.capacity_source is CapacitySource.GIVEN:
        return f"Capacity: {number}, as given."
    if plan.capacity_source is CapacitySource.TOLD:
        return f"Capacity: {number}, by the running jobs and the utilisation of the background."
    return f"Capacity: {number}, the most that ran at once. If there are more, give their number: all shares change with it."


def _knee_text(plan: CapacityPlan) -> str:
    if plan.capacity is None:
        return ""
    knee, share = plan.knee, f"{100 * plan.knee.utilisation:.0f} %"
    if not knee.learnt:
        return f"That the queue hurts from {share} on is a rule of thumb: no utilisation was seen yet from which on waits grew."
    whose = "estimated from the length of the queue" if plan.record.waits_are_estimates else "median"
    return (
        f"Waits grow from {share} utilisation on: above {wait_text(knee.hurts_s)} ({whose}), "
        f"against {wait_text(knee.calm_wait_s)} in calm hours."
    )


def _weeks_text(plan: CapacityPlan) -> str:
    weeks = plan.record.weeks.tail(LONGEST_WEEKS)
    known, scaled = int(weeks["load"].is_not_null().sum()), int(((weeks["seen"] < _WHOLE) & weeks["load"].is_not_null()).sum())
    unknown = weeks.height - known
    parts = [f"The trend is that of {known} weeks" if plan.trend is not None else ""]
    parts += [f"{scaled} with gaps, scaled by the share that was seen" if scaled else ""]
    parts += [f"{unknown} without enough data left out" if unknown else ""]
    return "; ".join(part for part in parts if part) + "." if any(parts) else ""


def _old_text(plan: CapacityPlan, today: date | None) -> str:
    end = plan.record.end
    if today is None or end is None or (today - end).days <= 21:
        return ""
    return f"The data ends with {end:%d %b %Y}; what came after is not known."


def _percent(share: float) -> str:
    return f"{100 * share:.1f}".replace("-", "−")
