"""Readings: what the history tells about an entity at a moment, and which of it each space gives to the features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# What `history_kernel.read_entity` writes, in order.
READINGS: Final = (
    *(f"failed_rate_{name}" for name in ("1h", "12h", "4d", "30d")),
    *(f"failed_rate_{name}" for name in ("2jobs", "12jobs")),
    "failed_rate_ever",
    "ended_12h",
    "ended_30d",
    "ended_total",
    "failure_streak",
    "since_end",
    "since_failure",
    "since_success",
    "crash_share",
    "timeout_share",
    "oom_share",
    "cancelled_share",
    "typical_run",
    "run_to_limit",
    "quick_share",
    "running",
    "pending",
    "since_submit",
    "burst",
)

# Which readings each space gives: all of them would be three hundred columns, most of them copies of each other.
_SLOW: Final = ("failed_rate_1h", "failed_rate_12h", "failed_rate_4d", "failed_rate_30d")
_OWN: Final = tuple(name for name in READINGS if name != "ended_30d")
_NOT_NARROW: Final = (
    "failed_rate_1h", "failed_rate_ever", "ended_12h", "ended_total", "since_end", "crash_share", "cancelled_share",
)  # fmt: skip
_NARROW: Final = tuple(name for name in READINGS if name not in _NOT_NARROW)
_WIDE: Final = (*_SLOW, "failed_rate_12jobs", "ended_12h", "since_failure")
READINGS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "site": (*_SLOW, "ended_12h", "running", "pending", "since_failure"),
    "user": _OWN,
    "account": _WIDE,
    "partition": (*_WIDE, "running", "pending"),
    "family": (*_WIDE, "ended_30d", "timeout_share", "oom_share", "typical_run", "run_to_limit"),
    "similar_name": (*_WIDE, "ended_30d", "timeout_share", "oom_share", "typical_run", "run_to_limit"),
    "similar_script": (*_WIDE, "ended_30d", "timeout_share", "oom_share", "typical_run", "run_to_limit"),
    "shape": (*_WIDE, "ended_30d", "timeout_share", "typical_run", "run_to_limit"),
    "profile": _WIDE,
    "user_family": _NARROW,
    "user_directory": _NARROW,
    "user_limit": _NARROW,
    "user_shape": _NARROW,
    "retry": _NARROW,
}
