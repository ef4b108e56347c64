"""What time it is on a site: the real time, or that of the simulated feed that `site.feed` names."""

from __future__ import annotations

import json
from pathlib import Path

from stormpetrel.errors import SettingsError
from stormpetrel.records.clock import FEED_FILE, FeedClock, clock_of


def feed_clock(folder: Path) -> FeedClock:
    """Return the clock of the feed in a folder, as it is set now."""
    try:
        clock = clock_of(json.loads((folder / FEED_FILE).read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        clock = None
    if clock is None:
        raise SettingsError(f"{folder} is no recorded feed of this version.", hint="Check site.feed in site.toml.")
    return clock
