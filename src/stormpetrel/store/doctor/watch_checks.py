"""Check of the watch: whether somebody watches the site, and how the watch's own reads go."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from stormpetrel.store.doctor.findings import Finding
from stormpetrel.store.site import Site
from stormpetrel.store.source_health import span_words
from stormpetrel.store.watch_status import read_watch


def check_watch(site: Site) -> Iterator[Finding]:
    """Whether the watch is heard of, and each of its sources is read; a site that nobody has watched yet is not ill."""
    now = datetime.now(UTC)
    watch = read_watch(site.state)
    state = watch.state(now)
    if state in ("stopped", "silent"):
        what = f"the watch was last heard of {span_words(watch.silent_s(now))} ago."
        yield Finding("warning", "watch", what, "Start it: stormpetrel watch")
        return
    problems = {trouble.source: trouble.what for trouble in watch.troubles(now)}
    for source in watch.sources:
        what = problems.get(source.name) or f"{source.last_words(now)[:-1]} ({source.records:,} records)"
        yield Finding("problem" if source.name in problems else "ok", "watch", f"{source.name}: {what}")
    own = watch.problem(now)
    if own and own not in problems.values():
        yield Finding("warning", "watch", own)
