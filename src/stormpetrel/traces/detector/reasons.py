"""Why a node is odd: which threads, in which mode, since when, what others do meanwhile, which windows before were like it.

TraceDetector, Observation -> odd_nodes -> NodeFinding, the oddest first. A finding is one sentence for whoever is on call, and
the numbers behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.records.traces import IOWAIT, MODES, OTHER, SYSTEM, USER
from stormpetrel.traces.detector.detector import TraceDetector
from stormpetrel.traces.detector.observation import Expectation, Observation, Surprise
from stormpetrel.traces.detector.statistics import THREAD_COLUMNS

Floats = npt.NDArray[np.float64]
Groups = npt.NDArray[np.intp]

_ODD_THREAD: Final = 2.0  # one in a hundred calm windows: a thread that takes part in what its node does
_STILL: Final = THREAD_COLUMNS.index("longest_still")
_STILL_BUSY: Final = THREAD_COLUMNS.index("longest_still_busy")
_STANDS: Final = 0.4  # of a window
_SUDDEN: Final = 0.05  # a change of level within the window that is worth a time
_SMALL: Final = 0.03  # a change of level that is not worth a number
_NOTHING: Final = 0.02  # of all modes but other, of threads that do nothing
_SAME_CHANGE: Final = 0.5  # of the mean change, that a thread must share
_WORKS: Final = 0.1  # user and system of threads that work
_SIMILAR: Final = 3


@dataclass(frozen=True, slots=True)
class SimilarWindow:
    """A node window before that was odd in the same way: 1 is the same direction, 0 none."""

    node: str
    start_s: float
    likeness: float


@dataclass(frozen=True, slots=True)
class NodeFinding:
    """An odd window of a node and why."""

    node: str
    start_s: float
    since_s: float
    score: float  # -log10 of the share of calm node windows that are as odd
    threads: tuple[int, ...]  # CPU numbers
    of_threads: int
    mode: str  # that changed most
    before: float  # mean share of it before, in these threads
    now: float  # since the change
    what: str  # they do, without node and time
    sentence: str
    similar: tuple[SimilarWindow, ...]


def odd_nodes(
    detector: TraceDetector,
    seen: Observation,
    *,
    share: float,
    since_s: float = -np.inf,
    zone: tzinfo = UTC,
    expected: Expectation | None = None,
) -> list[NodeFinding]:
    """Node windows that at most a share of calm ones are as odd as, from a moment on; the oddest first."""
    expected = expected or detector.expect(seen)
    surprise = detector.surprise(seen, expected)
    scores = detector.scores(surprise)
    rows = np.flatnonzero((scores["node"] >= -np.log10(share)) & (seen.layout.node_start_s >= since_s))
    ordered = rows[np.argsort(-surprise.node[rows], kind="stable")]
    residuals = detector.node_residuals(seen, expected) if ordered.size else np.empty((0, 0))
    return [_explained(seen, expected, surprise, residuals, scores["thread"], scores["node"], int(row), zone) for row in ordered]


def _explained(
    seen: Observation,
    expected: Expectation,
    surprise: Surprise,
    residuals: Floats,
    thread_scores: Floats,
    node_scores: Floats,
    node: int,
    zone: tzinfo,
) -> NodeFinding:
    layout, windows = seen.layout, seen.windows
    rows = np.flatnonzero(layout.node == node)
    odd = rows[thread_scores[rows] >= _ODD_THREAD]
    if not odd.size:
        odd = rows[np.argsort(-surprise.thread[rows])[: max(1, rows.size // 4)]]
    odd = _changed_alike(seen, odd)
    mean, had = _now_and_before(seen, odd)
    step, mode = _change(mean, had)
    before, now = _levels(mean, had, step, mode)
    start_s = float(layout.node_start_s[node])
    since_s = start_s + step * windows.step_s
    name = windows.nodes[layout.node_of[node]]
    busy = float(mean[step:, :OTHER].sum(axis=1).mean())
    what = _what(seen.statistics[odd], mode, before, now, busy, one=odd.size == 1)
    others = np.setdiff1d(rows[np.isin(layout.work[rows], layout.work[odd])], odd)
    had_job = bool((windows.job[odd] >= 0).any())
    whose = ("its job's" if odd.size == 1 else "their job's") if had_job else "the node's"
    jobless = not had_job and odd.size + others.size < rows.size
    meanwhile = _others_text(windows.rates[others], whose, " without a job" if jobless else "") if others.size else ""
    when = datetime.fromtimestamp(since_s, zone).strftime("%H:%M:%S" if windows.window_s < 60 else "%H:%M")
    every = f"all {rows.size} threads" if rows.size > 1 else "its only thread"
    who = f"{odd.size} of {rows.size} threads" if odd.size < rows.size else every
    return NodeFinding(
        node=name,
        start_s=start_s,
        since_s=since_s,
        score=float(node_scores[node]),
        threads=tuple(int(cpu) for cpu in windows.cpu[odd]),
        of_threads=int(rows.size),
        mode=MODES[mode],
        before=before,
        now=now,
        what=f"{who} {what}{meanwhile}",
        sentence=f"node {name}: {who} {what} since {when}{meanwhile}",
        similar=_similar(seen, surprise, residuals, node),
    )


def _now_and_before(seen: Observation, rows: Groups) -> tuple[Floats, Floats | None]:
    """The mean over threads (steps, 4), and what the same threads showed in the window before (4,); None where there is none."""
    past = seen.layout.thread_past.rows[rows, 0]
    rates = seen.windows.rates
    had = rates[past[past >= 0]].astype(np.float64).mean(axis=(0, 1)) if (past >= 0).any() else None
    return rates[rows].astype(np.float64).mean(axis=0), had


def _changed_alike(seen: Observation, odd: Groups) -> Groups:
    """Of some odd threads those that changed as the mean did; who only differs from neighbours that changed is left out."""
    mean, had = _now_and_before(seen, odd)
    step, mode = _change(mean, had)
    before, now = _levels(mean, had, step, mode)
    if abs(now - before) < _SMALL:
        return odd
    rates = seen.windows.rates[odd][:, :, mode].astype(np.float64)  # (threads, steps)
    past = seen.layout.thread_past.rows[odd, 0]
    own_before = np.where(past >= 0, seen.windows.rates[np.maximum(past, 0)][:, :, mode].mean(axis=1), before)
    own_before = rates[:, :step].mean(axis=1) if step else own_before
    same = (rates[:, step:].mean(axis=1) - own_before) / (now - before) >= _SAME_CHANGE
    return odd[same] if same.any() else odd


def _change(mean: Floats, had: Floats | None) -> tuple[int, int]:
    """The step from which on the mean (steps, 4) is another, and the mode that changed most; 0: from the first."""
    steps = len(mean)
    walk = np.cumsum(mean - mean.mean(axis=0), axis=0)[:-1]  # (steps - 1, 4)
    place = np.abs(walk).argmax(axis=0)
    jump = np.array([mean[at + 1 :, mode].mean() - mean[: at + 1, mode].mean() for mode, at in enumerate(place)])
    from_past = np.zeros(4) if had is None else mean.mean(axis=0) - had
    worst_jump, worst_past = _telling(jump), _telling(from_past)
    sudden = abs(jump[worst_jump]) >= _SUDDEN and 2 <= place[worst_jump] < steps - 2
    if sudden and abs(jump[worst_jump]) >= abs(from_past[worst_past]):
        return int(place[worst_jump]) + 1, worst_jump
    return 0, worst_past if np.abs(from_past).any() else worst_jump


def _telling(change: Floats) -> int:
    """The mode whose change says most: what rises says more than what it takes its time from."""
    return int(np.where(change > 0, change, -change / 2)[:3].argmax())


def _levels(mean: Floats, had: Floats | None, step: int, mode: int) -> tuple[float, float]:
    """The mean share of a mode before a change, and since."""
    before = mean[:step, mode].mean() if step else (mean[:, mode].mean() if had is None else had[mode])
    return float(before), float(mean[step:, mode].mean())


def _what(statistics: Floats, mode: int, before: float, now: float, busy: float, *, one: bool) -> str:
    """What some threads do, in words, in the singular for `one`; no number where it hardly changed."""
    numbers = f" ({MODES[mode]} {before:.0%} before, {now:.0%} now)" if abs(now - before) >= _SMALL else ""
    stand = "stands still" if one else "stand still"
    if (statistics[:, _STILL_BUSY] >= _STANDS).mean() > 0.5:
        return f"{'shows' if one else 'show'} the same second again and again{numbers}"
    if not numbers:
        differ = "does not behave as it did" if one else "do not behave as they did"
        return stand if (statistics[:, _STILL] >= _STANDS).mean() > 0.5 else differ
    if busy < _NOTHING and now < before:
        return f"{stand}{numbers}"
    more, less = {
        USER: ("work more than before", "work less than before"),
        SYSTEM: ("are kept busy by the kernel", "ask less of the kernel than before"),
        IOWAIT: ("wait for files", "wait less for files than before"),
        OTHER: ("idle", "are busier than before"),
    }[mode]
    verb, _, rest = (more if now > before else less).partition(" ")
    verb = ("is" if verb == "are" else f"{verb}s") if one else verb
    return f"{verb}{rest and ' '}{rest}{numbers}"


def _others_text(rates: npt.NDArray[np.float32], whose: str, which: str) -> str:
    """What the other threads of the same job, or of the node, do meanwhile."""
    works = float(rates[:, :, :2].sum(axis=2).mean()) >= _WORKS
    if len(rates) == 1:
        return f" while {whose} other thread{which} {'works' if works else 'is idle'}"
    return f" while {whose} other threads{which} {'work' if works else 'are idle'}"


def _similar(seen: Observation, surprise: Surprise, residuals: Floats, node: int) -> tuple[SimilarWindow, ...]:
    """The node windows before this one that were odd in the most similar direction."""
    layout = seen.layout
    before = np.flatnonzero((layout.node_start_s < layout.node_start_s[node]) & np.isfinite(surprise.node))
    if not before.size:
        return ()
    length = np.linalg.norm(residuals, axis=1) + 1e-9
    likeness = residuals[before] @ residuals[node] / (length[before] * length[node])
    best = before[np.argsort(-likeness, kind="stable")[:_SIMILAR]]
    likeness_of = dict(zip(before.tolist(), likeness.tolist(), strict=True))
    names = seen.windows.nodes
    return tuple(
        SimilarWindow(names[layout.node_of[row]], float(layout.node_start_s[row]), float(likeness_of[int(row)])) for row in best
    )
