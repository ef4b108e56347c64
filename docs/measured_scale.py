"""Tables and figures of docs/scale.md: benchmarks/results/*.json -> Markdown and SVG.

`python docs/measured_scale.py` draws docs/figures/scale-threads.svg and docs/figures/scale-jobs.svg anew. A number is measured
where a benchmark has it; beyond that it is computed from the measured cost per unit, and called so.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from markdown_tables import table

_RESULTS: Final = Path(__file__).parent.parent / "benchmarks" / "results"
_FIGURES: Final = Path(__file__).parent / "figures"
THREADS: Final = 10_000 * 128
JOBS_A_DAY: Final = 1_000_000
SAMPLES_PER_THREAD: Final = 9  # a second: eight modes, and which job it runs
_HIGHEST_LOAD: Final = 0.5  # of its time that a watch spends on traces, where there is to be room for a bad minute
_PROMETHEUS_CORES: Final = 1.0  # that one is planned with, for scraping and for the reads of the watch
_DAY_S: Final = 86_400
_LONG_MINUTES: Final = 20.0  # of a step, from which on its memory says something about growth
_RETENTION_H: Final = 6.0  # of raw counters that the watch needs: it reads on behind a downtime of so many hours
_KEPT_MB_A_DAY: Final = 1650.0  # of windows and scores by one watch: traces.keep_windows_mb and traces.keep_scores_mb
_GPU: Final = "traces_gpu"


def results(name: str) -> dict[str, Any] | None:
    """What a benchmark has written; None where it was not run."""
    path = _RESULTS / f"{name}.json"
    if not path.exists():
        return None
    measured: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return measured


def required(name: str) -> dict[str, Any]:
    """The same of one that there must be."""
    measured = results(name)
    if measured is None:
        raise FileNotFoundError(f"benchmarks/results/{name}.json is missing")
    return measured


def steps() -> list[dict[str, Any]]:
    """The steps of the load test, by number of threads."""
    return sorted(required("load")["steps"].values(), key=lambda step: int(step["threads"]))


def judged_threads(step: dict[str, Any]) -> float:
    """How many threads were read and scored in a window of a step, in the mean: all, or those that had their turn."""
    windows = step["node_windows"]
    share: float = windows["judged"] / max(1, windows["judged"] + windows["skipped"])
    return share * float(step["threads"])


def most_threads(step: dict[str, Any]) -> float:
    """How many threads were read in one window of a step at most: what its memory has to hold."""
    if not step["node_windows"]["skipped"]:
        return float(step["threads"])
    return max(row["judged"] for row in step["coverage"]) * step["threads"] / step["nodes"]


@dataclass(frozen=True, slots=True)
class Line:
    """A straight line through measured points: `constant + slope * x`."""

    constant: float
    slope: float

    def at(self, x: float) -> float:
        """Its value."""
        return self.constant + self.slope * x


def line_through(points: Iterable[tuple[float, float]]) -> Line:
    """The line of least squares, with neither a negative constant nor a negative slope."""
    there = list(points)
    mean_x, mean_y = (sum(values) / len(there) for values in zip(*there, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in there)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in there) / spread if spread else mean_y / mean_x
    constant = mean_y - slope * mean_x
    if constant < 0:
        return Line(0.0, sum(x * y for x, y in there) / sum(x * x for x, _ in there))
    return Line(constant, max(0.0, slope))


@dataclass(frozen=True, slots=True)
class Units:
    """What a unit costs, as it was measured."""

    watch_cores: Line  # of one watch, by threads
    watch_mb: Line
    prometheus_cores: Line  # by threads scraped at 1 Hz
    prometheus_mb: Line
    wal_bytes: float  # on the disk, of a sample
    answer_core_s: float  # CPU seconds of Prometheus for a sample that the watch reads
    event_core_s: float  # CPU seconds of the watch for one event of a job
    slide_core_s: float  # of the watch, to score one thread once, every thread every second, and sum it up by node and job
    slide_mb: float  # of memory for one thread, for that

    @property
    def thread_of_watch(self) -> float:
        """Cores of the watch for one thread: its windows are read and scored, and it is scored every second."""
        return self.watch_cores.slope + self.slide_core_s

    @property
    def threads_per_watch(self) -> int:
        """How many threads one watch reads in half of a core's time."""
        return math.floor(_HIGHEST_LOAD / self.thread_of_watch)

    @property
    def thread_of_prometheus(self) -> float:
        """Cores of Prometheus for one thread: each sample is scraped, and read once."""
        return self.prometheus_cores.slope + SAMPLES_PER_THREAD * self.answer_core_s

    @property
    def threads_per_prometheus(self) -> int:
        """How many threads one Prometheus scrapes and answers on one core."""
        return math.floor((_PROMETHEUS_CORES - self.prometheus_cores.constant) / self.thread_of_prometheus)


def units() -> Units:
    """The measured costs."""
    scraped = required("load_prometheus")["steps"]
    whole = [step for step in scraped if step["kept"] >= 0.99]
    first, *_, last = required("traces_scale")["cases"]
    looks = required("watch_jobs")["looks"]
    return Units(
        watch_cores=line_through((judged_threads(step), step["cores"]["watch"]) for step in steps() if step["windows"]),
        watch_mb=line_through((most_threads(step), step["rss_mb"]["watch"]["max"]) for step in steps()),
        prometheus_cores=line_through((step["threads"], step["cores"]) for step in whole),
        prometheus_mb=line_through((step["threads"], step["rss_mb"]) for step in whole),
        wal_bytes=max(step["wal_bytes_per_sample"] for step in whole[1:] or whole),
        answer_core_s=sorted(step["read"]["prometheus_cpu_s"] / step["read"]["samples"] for step in whole)[len(whole) // 2],
        event_core_s=looks["cpu_share"] / required("watch_jobs")["asked"]["events_per_s"],
        slide_core_s=last["spans_cpu_s"] / last["threads"],
        slide_mb=1e3 * (last["spans_rss_gb"] - first["spans_rss_gb"]) / (last["threads"] - first["threads"]),
    )


# --- tables -------------------------------------------------------------------------------------------------------------------


def load_steps() -> str:
    """What the load test came to, step by step."""
    rows = []
    for step in steps():
        lag, windows = step["window_lag_s"], step["node_windows"]
        skipped = windows["skipped"] / max(1, windows["judged"] + windows["skipped"])
        rows.append(
            (
                f"{step['threads']:,}",
                f"{step['minutes']:g}",
                "-" if lag is None else f"{lag['median']:.1f} s, {lag['max']:.1f} s",
                f"{step['trace_load']['median']:.2f}",
                f"{100 * skipped:.0f} %",
                f"{step['cores']['watch']:.2f}",
                f"{step['cores']['serve']:.2f}",
                f"{step['cores']['generator_of_counters'] + step['cores']['generator_of_jobs_and_this_benchmark']:.2f}",
                f"{step['rss_mb']['watch']['max']:,}",
                f"{step['rss_mb']['serve']['max']:,}",
                f"{step['disk_mb_an_hour']:,.0f}",
                f"{step['load_average']['mean']:.0f}, {step['cores_of_others']:.1f}",
            )
        )
    head = (
        "threads",
        "minutes",
        "lag: median, highest",
        "load of the traces",
        "skipped",
        "cores: watch",
        "serve",
        "generators",
        "MB: watch",
        "serve",
        "disk MB/h",
        "load average, cores of others",
    )
    return table(head, rows)


def what_broke() -> str:
    """A sentence on each step of the load test."""
    sentences = []
    for step in steps():
        windows, late = step["node_windows"], step["predictions"]
        whole = not windows["skipped"]
        lag = (
            f"scores came {step['window_lag_s']['median']:.0f} s after the end of a window in the median"
            if step["windows"]
            else ""
        )
        sampled = (
            f"each node was judged in one of {step['longest_rotation']} windows, and "
            f"{windows['skipped']:,} of {windows['judged'] + windows['skipped']:,} windows of nodes were skipped, and counted"
        )
        predicted = f"{late['late']:,} of {late['predictions']:,} predictions about jobs were late"
        what = "every node was judged in every window" if whole else sampled
        sentences.append(f"- **{step['threads']:,} threads**: {what}; {lag}; {predicted}.")
        if step["minutes"] >= _LONG_MINUTES:
            memory = {name: ", ".join(f"{mb:,}" for mb in step["rss_mb"][name]["by_quarter"]) for name in ("watch", "serve")}
            sentences.append(
                f"- Memory in the four quarters of these {step['minutes']:.0f} minutes: "
                f"watch {memory['watch']} MB, serve {memory['serve']} MB."
            )
    return "\n".join(sentences)


def prometheus_steps() -> str:
    """What one real Prometheus scraped."""
    rows = [
        (
            f"{step['threads']:,}",
            f"{step['samples_per_s']:,}",
            f"{100 * step['kept']:.1f} %",
            f"{step['cores']:.2f}",
            f"{step['rss_mb']:,}",
            f"{step['wal_bytes_per_sample']:.1f}",
            f"{step['read']['prometheus_cpu_s'] / step['read']['samples'] * 1e6:.2f} s",
            f"{step['read']['our_cpu_s'] / step['read']['samples'] * 1e6:.2f} s",
            f"{step['generator_cores']:.2f}",
        )
        for step in required("load_prometheus")["steps"]
    ]
    head = (
        "threads",
        "samples/s",
        "stored of those due",
        "cores",
        "MB",
        "log, bytes a sample",
        "a million samples read: its CPU",
        "ours",
        "cores: exporters",
    )
    return table(head, rows)


def unit_costs() -> str:
    """Measured cost per unit."""
    found = units()
    rows = [
        (
            "a thread, its windows read and scored by the watch",
            f"{1e6 * found.watch_cores.slope:.1f} µs of a core each second",
            "measured",
        ),
        ("a thread, scored every second by the watch", f"{1e6 * found.slide_core_s:.1f} µs of a core each second", "measured"),
        (
            "a thread in the memory of the watch",
            f"{1e3 * found.watch_mb.slope:.1f} kB, and {1e3 * found.slide_mb:.1f} kB for every second's score, "
            f"besides {found.watch_mb.constant:,.0f} MB",
            "measured",
        ),
        (
            "a thread, scraped by Prometheus at 1 Hz",
            f"{1e6 * found.prometheus_cores.slope:.1f} µs of a core each second",
            "measured",
        ),
        (
            "a thread in the memory of Prometheus",
            f"{1e3 * found.prometheus_mb.slope:.1f} kB, besides {found.prometheus_mb.constant:,.0f} MB",
            "measured",
        ),
        ("a sample in the log of Prometheus", f"{found.wal_bytes:.1f} bytes", "measured"),
        ("a sample, read by the watch", f"{1e6 * found.answer_core_s:.2f} µs of a core of Prometheus", "measured"),
        ("an event of a job: read, judged, rules, incidents", f"{1e3 * found.event_core_s:.1f} ms of a core", "measured"),
        ("threads of one watch (traces: half a core)", f"{round_down(found.threads_per_watch):,}", "computed"),
        ("threads of one Prometheus (one core)", f"{round_down(found.threads_per_prometheus):,}", "computed"),
        *_gpu_rows(),
    ]
    return table(("unit", "cost", ""), rows)


def _gpu_rows() -> list[tuple[str, str, str]]:
    """What a GPU does, where it was measured."""
    measured = results(_GPU)
    if measured is None:
        return [("a score of a thread on one GPU", "not measured yet", "")]
    second, rows = measured["one_second"], []
    for name in ("vanilla", "fast"):
        if name in second:
            share = second[name]["sliding_s"]  # of each second
            what = f"{second['threads']:,} threads through {second['models']} models ({name}) each second"
            rows.append((what, f"{share:.2f} of one {measured['machine']['gpu']}", "measured"))
    return rows


def round_down(number: float) -> int:
    """Two figures."""
    digits = max(0, math.floor(math.log10(max(1.0, number))) - 1)
    return math.floor(number / 10**digits) * 10**digits


def the_plan() -> str:
    """What has to be where for the whole of it, in pieces; all computed from the costs per unit."""
    found = units()
    watches, servers = (-(-THREADS // round_down(each)) for each in (found.threads_per_watch, found.threads_per_prometheus))
    in_watch, in_server = THREADS / watches, THREADS / servers
    samples = THREADS * SAMPLES_PER_THREAD
    events = 3 * JOBS_A_DAY / _DAY_S
    disk_gb = samples * found.wal_bytes * 3600 * _RETENTION_H / 1e9
    known, stream = [(size, case["stream"]) for size, case in required("jobs_scale")["cases"].items() if "stream" in case][-1]
    rows = [
        (
            "Prometheus",
            f"{servers}, each with {in_server:,.0f} threads",
            f"{THREADS * found.thread_of_prometheus:.0f}, of which {THREADS * found.prometheus_cores.slope:.0f} for scraping",
            f"{servers * found.prometheus_mb.at(in_server) / 1e3:,.0f} GB",
            f"{disk_gb:,.0f} GB for {_RETENTION_H:g} h, as its log takes them",
        ),
        (
            "watches of traces",
            f"{watches}, each with {in_watch:,.0f} threads",
            f"{watches * found.thread_of_watch * in_watch:.1f}",
            f"{watches * (found.watch_mb.at(in_watch) + found.slide_mb * in_watch) / 1e3:,.0f} GB",
            f"{watches * _KEPT_MB_A_DAY / 1e3:,.0f} GB a day at most, by traces.keep_*_mb",
        ),
        (
            "watch of jobs",
            "1",
            f"{events * found.event_core_s:.2f}",
            f"{stream['peak_bytes'] / 1e9:.1f} GB with {int(known):,} jobs",
            "about 100 MB a day of jobs; predictions were not measured",
        ),
        (
            "serve",
            "1 for each site",
            "0.1 while pages are open",
            f"{max(step['rss_mb']['serve']['max'] for step in steps()) / 1e3:.1f} GB each",
            "-",
        ),
        ("PostgreSQL", "1", "not measured", "not measured", "incidents, messages, models: megabytes"),
        *_gpu_of_the_plan(),
    ]
    return table(("part", "pieces", "cores", "memory", "disk"), rows)


def _gpu_of_the_plan() -> list[tuple[str, str, str, str, str]]:
    """A GPU that scores every second with ten models, which the watch does not do."""
    measured = results(_GPU)
    if measured is None:
        return []
    shares = {name: measured["one_second"][name]["sliding_s"] for name in ("vanilla", "fast")}
    what = " or ".join(f"{share:.2f} ({name})" for name, share in shares.items())
    return [("GPU, only for ten scores of every thread each second", f"{what} of one", "-", "-", "-")]


def job_costs() -> str:
    """What grows with the number of jobs that are known."""
    cases = required("jobs_scale")["cases"]
    names = list(dict.fromkeys(name for case in cases.values() for name in case))
    rows = []
    for name in names:
        cells = []
        for case in cases.values():
            one = case.get(name)
            cells.append("-" if one is None else f"{one['cpu_s']:.1f} s, {one['peak_bytes'] / 1e9:.1f} GB")
        rows.append((f"`{name}`", *cells))
    return table(("CPU, memory", *(f"{int(size):,} jobs" for size in cases)), rows)


PARTS: Final[dict[str, Callable[[], str]]] = {
    "scale-load": load_steps,
    "scale-broke": what_broke,
    "scale-prometheus": prometheus_steps,
    "scale-units": unit_costs,
    "scale-plan": the_plan,
    "scale-jobs": job_costs,
}


# --- figures ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a figure: what was measured, as dots, and what was computed from it, dashed."""

    label: str
    colour: str
    measured: Sequence[tuple[float, float]]
    computed: Sequence[tuple[float, float]] = ()


def threads_svg() -> str:
    """Cores by threads at 1 Hz, 10² to 10⁶."""
    found, every = units(), [step for step in steps() if step["windows"]]
    scraped = [step for step in required("load_prometheus")["steps"] if step["kept"] >= 0.99]
    alone = [(case["threads"], case["spans_cpu_s"]) for case in required("traces_scale")["cases"]]
    span = [10.0**power for power in (2, 3, 4, 5, 6)]
    curves = [
        Curve(
            "watch: reading and scoring every window",
            "#2166ac",
            sorted((judged_threads(step), step["cores"]["watch"]) for step in every),
            [(threads, found.watch_cores.at(threads)) for threads in span],
        ),
        Curve(
            "Prometheus: scraping",
            "#b2182b",
            [(step["threads"], step["cores"]) for step in scraped],
            [(threads, found.prometheus_cores.at(threads)) for threads in span],
        ),
        Curve("watch: every thread scored each second", "#4d9221", alone),
    ]
    return figure(curves, x=(2, 6), y=(-4, 2), across="threads at 1 Hz", up="cores")


def jobs_svg() -> str:
    """CPU seconds by known jobs, 10⁴ to 10⁸."""
    cases = required("jobs_scale")["cases"]
    colours = {"snapshot": "#2166ac", "features": "#b2182b", "serve": "#4d9221", "check": "#762a83", "models": "#888888"}
    words = {
        "snapshot": "history, worked out anew",
        "features": "features of a training",
        "serve": "start of serve",
        "check": "check job.sh",
        "models": "training of the models",
    }
    curves = []
    for name, colour in colours.items():
        points = [(float(size), case[name]["cpu_s"]) for size, case in cases.items() if name in case]
        if not points:
            continue
        beyond: list[tuple[float, float]] = []
        if len(points) > 1:
            line = line_through(points[-2:])
            sizes = sorted({points[-1][0], *(10.0**power for power in (7, 8) if 10.0**power > points[-1][0])})
            beyond = [(size, line.at(size)) for size in sizes]
        curves.append(Curve(words[name], colour, points, beyond))
    return figure(curves, x=(4, 8), y=(-1, 4), across="jobs that the site knows", up="CPU seconds")


def figure(curves: Sequence[Curve], *, x: tuple[int, int], y: tuple[int, int], across: str, up: str) -> str:
    """Both axes logarithmic: dots and solid lines are measured, dashed ones computed."""
    width, height, left, top, bottom = 680, 420, 64, 24, 54

    def at(point: tuple[float, float]) -> tuple[float, float]:
        value = min(max(point[1], 10.0 ** y[0]), 10.0 ** y[1])
        return (
            left + (math.log10(point[0]) - x[0]) / (x[1] - x[0]) * (width - left - 50),
            top + (y[1] - math.log10(value)) / (y[1] - y[0]) * (height - top - bottom),
        )

    def text(place: tuple[float, float], words: str, more: str = "") -> str:
        return f'<text x="{place[0]:.1f}" y="{place[1]:.1f}" font-family="sans-serif" font-size="12" {more}>{words}</text>'

    def path(points: Sequence[tuple[float, float]], colour: str, more: str = "") -> str:
        places = " ".join(f"{place[0]:.1f},{place[1]:.1f}" for place in map(at, points))
        return f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2" {more}/>'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for power in range(y[0], y[1] + 1):
        (begin, high), (end, _) = at((10.0 ** x[0], 10.0**power)), at((10.0 ** x[1], 10.0**power))
        parts.append(f'<line x1="{begin:.1f}" y1="{high:.1f}" x2="{end:.1f}" y2="{high:.1f}" stroke="#dddddd"/>')
        parts.append(text((begin - 6, high + 4), f"{10.0**power:g}", 'text-anchor="end"'))
    for power in range(x[0], x[1] + 1):
        place, low = at((10.0**power, 10.0 ** y[0]))
        parts.append(text((place, low + 18), f"{10**power:,}", 'text-anchor="middle"'))
    parts.append(text((left + 4, top - 8), up))
    parts.append(
        text((width / 2, height - 10), f"{across}; dots and solid lines: measured, dashed: computed", 'text-anchor="middle"')
    )
    for number, curve in enumerate(curves):
        if curve.computed:
            parts.append(path(curve.computed, curve.colour, 'stroke-dasharray="5 4" opacity="0.7"'))
        parts.append(path(curve.measured, curve.colour))
        for point in curve.measured:
            place = at(point)
            parts.append(f'<circle cx="{place[0]:.1f}" cy="{place[1]:.1f}" r="3.5" fill="{curve.colour}"/>')
        parts.append(text((left + 14, top + 16 + 17 * number), curve.label, f'fill="{curve.colour}"'))
    return "\n".join([*parts, "</svg>"]) + "\n"


DRAWN: Final[dict[str, Callable[[], str]]] = {"scale-threads.svg": threads_svg, "scale-jobs.svg": jobs_svg}


def main() -> None:
    """Draw the figures anew."""
    for name, draw in DRAWN.items():
        (_FIGURES / name).write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
