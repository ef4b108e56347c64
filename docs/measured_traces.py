"""Tables of docs/traces.md, made from what the benchmarks measured: benchmarks/results/traces*.json -> Markdown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from markdown_tables import code, table

_RESULTS: Final = Path(__file__).parent.parent / "benchmarks" / "results"
_SHIPPED: Final = Path(__file__).parent.parent / "src" / "stormpetrel" / "traces" / "shipped_encoder"
_KINDS: Final = {"vanilla": "Vanilla AE", "node_gnn": "Node-GNN-AE", "job_gnn": "Job-GNN-AE", "fast": "Fast AE"}
_TABLE_TWO: Final = ("traces_table2", "traces_table2_cpu", "traces_table2_fast")  # the same windows; the first on a GPU
_FIGURES: Final = {
    "re_normal": "RE normal",
    "re_anomalous": "RE anomalous",
    "silhouette": "silhouette",
    "roc_auc": "ROC area",
}


def measured(name: str) -> dict[str, Any]:
    """What a benchmark has written."""
    found: dict[str, Any] = json.loads((_RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def simulated() -> dict[str, Any]:
    """The ensembles on simulated campaigns, some trained on a GPU and some on the CPU, all judged on the same windows."""
    on_gpu, *on_cpu = (measured(name) for name in _TABLE_TWO)
    together = ("model", "by_job_type", "training")
    return {
        **on_gpu,
        **{name: {key: value for found in (on_gpu, *on_cpu) for key, value in found[name].items()} for name in together},
    }


def _table_two(found: dict[str, Any]) -> str:
    """Ensembles beside PCA of raw windows and the rule of one line, on the same test windows."""
    pca, rule = found["baselines"]["pca"], found["baselines"]["mean_iowait"]
    kinds = [kind for kind in _KINDS if found["model"].get(kind)]
    rows = [
        (
            words,
            *(_spread(found["model"][kind][figure]) for kind in kinds),
            _number(pca.get(figure)),
            _number(rule.get(figure)),
        )
        for figure, words in _FIGURES.items()
    ]
    return table(("", *(_KINDS[kind] for kind in kinds), "PCA of raw windows", "mean-iowait rule"), rows)


def _by_job_type(measurement: dict[str, Any]) -> str:
    """The mean error of each job type."""
    found = measurement["by_job_type"]
    types = list(next(iter(found.values())))
    rows = [(_KINDS[kind], *(_number(errors[job_type]["mean"], 5) for job_type in types)) for kind, errors in found.items()]
    return table(("mean error", *types), rows)


def trace_machines() -> str:
    """VUS-PR of each machine of the Server Machine Dataset."""
    found = measured("traces_machines")
    words = {
        "summary": "learned summary",
        "pca": "PCA",
        "pca_standardised": "PCA, standardised",
        "pca_smoothed": "PCA, smoothed",
        "pca_standardised_smoothed": "PCA, both",
    }
    rows = [(name, *(f"{figures[scorer]:.3f}" for scorer in words)) for name, figures in found["machines"].items()]
    rows.append(("**mean**", *(f"**{found['mean'][scorer]:.3f}**" for scorer in words)))
    return table(("machine", *words.values()), rows)


def trace_regions() -> str:
    """The index of past windows by size, and how a region named in one campaign does in the next."""
    found = measured("traces_regions")
    rows = [
        (
            f"{row['vectors']:,}",
            f"{row['recall_at_10']:.3f}",
            f"{row['exact_ms']:.2f}",
            f"{row['ivf_ms']:.2f}",
            f"{row['build_s']:.0f}",
        )
        for row in found["index"]
    ]
    index = table(("vectors", "recall of the ten nearest", "exact, ms a query", "inverted, ms a query", "built in, s"), rows)
    words = {"trouble": "windows of the trouble", "others": "all other windows"}
    named = [(words[name], f"{row['mean']:.4f} ± {row['std']:.4f}") for name, row in found["naming"].items()]
    return f"{index}\n\n{table(('in the next campaign', 'share that raises the name'), named)}"


def trace_runs() -> str:
    """The normal error on each of the runs that nothing was learnt from."""
    found = measured("traces_exathlon")["per_run"]
    runs = list(next(iter(found.values())))
    rows = [(_KINDS[kind], *(_spread(errors[run]["re_normal"]) for run in runs)) for kind, errors in found.items()]
    return table(("RE normal", *(code(run) for run in runs)), rows)


def trace_training() -> str:
    """How long an ensemble of ten takes to train, by device."""
    rows = []
    for name in _TABLE_TWO:
        found = measured(name)
        for kind, told in found["training"].items():
            few, most = min(told["epochs"]), max(told["epochs"])
            epochs = f"{few}" if few == most else f"{few} to {most}"
            work = f"{len(told['epochs'])} models, {epochs} epochs, {told['models_at_once']} at once"
            device = found["device"]["name"] if found["device"]["type"] == "cuda" else f"{told['models_at_once']} CPU cores"
            rows.append((device, _KINDS[kind], work, f"{told['seconds']:,.0f} s"))
    return table(("device", "architecture", "work", "time"), rows)


def trace_speed() -> str:
    """What was asked and what was measured on one core."""
    found = measured("traces")
    speeds, messages = found["windows_per_second_per_core"], found["message_passing_per_core"]
    rows = [
        (f"{_KINDS[kind]}, score included", *_asked(kind), *_per_second(speeds[kind], "windows", "torch_eager"))
        for kind in _KINDS
    ]
    for size, of in messages.items():
        what = f"message passing alone, {size} threads per graph"
        rows.append((what, *_asked(size), *_per_second(of, "threads", "torch_naive_pairs")))
    share = f"{found['vanilla_of_sgemm_peak']:.2f} of the core's matrix peak ({max(found['sgemm_gflops'].values()):.0f} GFLOP/s)"
    return (
        table(("what", "asked, per second and core", "measured, per second of CPU", "torch in the same run"), rows)
        + f"\n\nThe vanilla network needs {found['mflop_per_window']:.2f} MFLOP per window: {share}. {_fast_share(found)}"
    )


def _fast_share(found: dict[str, Any]) -> str:
    fast = found["fast"]
    sizes = ", ".join(f"{int(size):,}: {speed:,.0f}" for size, speed in fast["per_cpu_second_by_windows_at_once"].items())
    return (
        f"The fast one needs {fast['mflop_per_window']:.2f}: {fast['of_sgemm_peak']:.2f} of the peak, and"
        f" {fast['to_vanilla']:.0f} times the windows of the vanilla one in the same run. By how many windows go through at once:"
        f" {sizes}; the product takes {fast['windows_at_once']}."
    )


def trace_fast() -> str:
    """The vanilla and the fast network on real runs, mean and standard deviation over ten seeds each, beside PCA."""
    found = measured("traces_fast")
    names = {"recorded": "recorded", "exathlon": "public runs"}
    rows = [
        (
            f"{names[data]}: {words}",
            *(_spread(found[data]["model"][kind][figure], 5) for kind in ("vanilla", "fast")),
            _number(found[data]["baselines"]["pca"].get(figure), 5),
        )
        for data in names
        for figure, words in _FIGURES.items()
        if found[data]["model"]["fast"][figure] is not None
    ]
    return table(("", _KINDS["vanilla"], _KINDS["fast"], "PCA of raw windows"), rows)


def trace_scale() -> str:
    """CPU seconds and memory of one step of all threads."""
    found = measured("traces_scale")
    rows = [
        (
            f"{case['threads']:,}",
            *(
                f"{case[name]:.2g}" if name in case else "–"
                for name in ("shipped_cpu_s", "fast_cpu_s", "vanilla_cpu_s", "spans_cpu_s")
            ),
            *(f"{case[name]:.2g}" for name in ("held_gb", "spans_rss_gb")),
        )
        for case in found["cases"]
    ]
    heads = (
        "threads", "shipped, CPU s", "fast of default size, CPU s", "vanilla anew, CPU s",
        "the watch's part, CPU s", "windows held, GB", "process of the watch's part, GB",
    )  # fmt: skip
    rank = found["rank_correlation"]
    return table(heads, rows) + (
        f"\n\nRank correlation of the sliding score with the score of the whole window, over {rank['windows']:,} windows:"
        f" {rank['spearman']:.6f}."
    )


def _asked(what: str) -> tuple[str]:
    return ({"vanilla": "≥ 6,500", "fast": "≥ 100,000", "128": "≥ 500,000"}.get(what, "–"),)


def _per_second(found: dict[str, Any], ours: str, peer: str) -> tuple[str, str]:
    return f"{found[ours]['per_cpu_second']:,.0f}", f"{found[peer]['per_cpu_second']:,.0f}"


def trace_gpu() -> str:
    """Windows per second of one model and ten on a GPU, what that is of its limits, and a second of a large cluster."""
    found = measured("traces_gpu")
    ceilings, speeds = found["ceilings"], found["speed"]
    rows = []
    for name, speed in speeds.items():
        kind, models = name.rsplit("_", 1)
        rows.append(
            (
                _KINDS[kind],
                models,
                *(
                    _millions(speed[part]["windows_per_s"])
                    for part in ("resident", "with_transfer", "full_precision", "plain_torch_half")
                ),
            )
        )
    heads = ("network", "models", "on the GPU", "from and to the host", "on the GPU, 32 bits", "torch's own layers")
    limits = [
        (
            _KINDS[kind],
            f"{line['mflop_per_window']:.2f}",
            f"{line['kb_per_window']:.0f}",
            f"{line['tflops']:.0f} of {ceilings['matmul_fp16_tflops']:.0f}",
            f"{line['gb_per_s']:,.0f} of {ceilings['copy_gb_per_s']:,.0f}",
        )
        for kind, line in found["roofline"].items()
    ]
    machine = found["machine"]
    return (
        f"One {machine['gpu']} beside {machine['cores']} cores ({machine['cpu']}), torch {machine['torch']}, Triton"
        f" {machine['triton']}. Million windows per second, each through all models:\n\n{table(heads, rows)}\n\n"
        "Of the limits, measured in the same run (ten models, 16 bits):\n\n"
        + table(("network", "MFLOP per window and model", "kB moved", "TFLOP/s", "GB/s"), limits)
    )


def trace_gpu_second() -> str:
    """One second of all threads of a large cluster through ten models."""
    found = measured("traces_gpu")["one_second"]
    rows = [
        (
            _KINDS[kind],
            f"{found[kind]['sliding_s']:.2f} s",
            f"{found[kind]['whole_windows_s']:.2f} s",
            f"{found[kind]['whole_windows_full_precision_s']:.2f} s",
            f"{found[kind]['device_memory_gb']:.1f} GB",
        )
        for kind in ("vanilla", "fast")
    ]
    heads = (
        f"{found['threads']:,} threads, {found['models']} models",
        "a step in, all scores out",
        "whole windows sent",
        "whole windows, 32 bits",
        "memory of the GPU",
    )
    return table(heads, rows)


def trace_gpu_equality() -> str:
    """How far scores on a GPU are from those of ONNX Runtime."""
    found = measured("traces_gpu")["equality"]
    names = {**_KINDS, "shipped": "shipped"}
    rows = [
        (
            names[name],
            *(
                text
                for precision in ("full", "half")
                for text in (
                    f"{of[precision]['largest_of_tolerance']:.3f}",
                    f"{of[precision]['rank_correlation']:.7f}",
                )
            ),
        )
        for name, of in found.items()
    ]
    return table(
        ("network", "32 bits: of the tolerance", "rank correlation", "16 bits: of the tolerance", "rank correlation"), rows
    )


def trace_gpu_crossover() -> str:
    """Milliseconds of one call by the number of windows: GPU, all cores, one core."""
    found = measured("traces_gpu")["crossover"]
    cores = found["fast"]["cpu_cores"]
    heads = ("windows in a call", *(f"{_KINDS[kind]}: {who}" for kind in found for who in ("GPU", f"{cores} cores", "one core")))
    rows = [
        (
            f"{pair[0]['windows']:,}",
            *(_ms(row.get(name)) for row in pair for name in ("gpu_ms", "cores_ms", "core_ms")),
        )
        for pair in zip(*(of["rows"] for of in found.values()), strict=True)
    ]
    first = {kind: next((row["windows"] for row in of["rows"] if _beats_many(row, cores)), None) for kind, of in found.items()}
    from_windows = [f"{_KINDS[kind]} {windows:,}" for kind, windows in first.items() if windows is not None]
    return (
        f"Milliseconds of a call:\n\n{table(heads, rows)}\n\nONNX Runtime gains little from more cores here: windows go"
        f" through in small portions. If {cores} processes were {cores} times as fast as one core, the GPU would be faster from"
        f" these numbers of windows on: {', '.join(from_windows)}."
    )


def trace_gpu_training() -> str:
    """Seconds of a training on a GPU and on CPU cores."""
    found = measured("traces_gpu")
    one, ten = found["training"], found["ensemble_training"]
    rows = [(_KINDS[kind], *(f"{one[kind][device]:.1f} s" for device in ("cuda_s", "cpu_s"))) for kind in _KINDS]
    rows += [
        (f"ten of {_KINDS[kind]}, a process each", *(f"{ten[kind][device]:.0f} s" for device in ("cuda_s", "cpu_s")))
        for kind in ("vanilla", "fast")
    ]
    work = f"{one['epochs']} epochs of {one['windows']:,} windows"
    return table((work, found["machine"]["gpu"], f"{found['machine']['cores']} cores"), rows)


def _beats_many(row: dict[str, Any], cores: int) -> bool:
    return "core_ms" in row and row["gpu_ms"] < row["core_ms"] / cores


def _millions(per_second: float) -> str:
    return f"{1e-6 * per_second:,.1f}" if per_second >= 1e6 else f"{1e-6 * per_second:.2f}"


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:,.2f}" if value < 10 else f"{value:,.0f}"


def trace_forecast() -> str:
    """The error of the next ten seconds, with and without neighbours."""
    found = measured("traces_forecast")
    names = {
        "last_second_goes_on": "the last second goes on",
        "alone": "network, thread alone",
        "with_neighbours": "network, with its job's",
    }
    rows = []
    for rate in ("1_hz", "10_hz"):
        errors, gain = found[rate]["errors"], found[rate]["gain_by_neighbours"]
        told = (_number(errors[name]["all"]["mean"]) for name in names)
        gains = (
            f"{100 * gain[job_type]['mean']:.1f} ± {100 * gain[job_type]['std']:.1f} %" for job_type in ("all", "MPI 16", "MPI 2")
        )
        rows.append((rate.replace("_", " ").replace("hz", "Hz"), *told, *gains))
    return table(("rate", *names.values(), "gain by neighbours", "on MPI 16", "on MPI 2"), rows)


_SCORERS: Final = {
    "detector": "detector",
    "node_mahalanobis": "Mahalanobis, node statistics",
    "pca_statistics": "PCA residual, window statistics",
    "mahalanobis": "Mahalanobis, window statistics",
    "ecod": "ECOD",
    "iforest": "Isolation Forest",
    "pca": "PCA reconstruction",
    "knn": "kNN on PCA",
    "kmeans": "KMeansAD",
    "autoencoder": "autoencoder",
    "iowait": "mean iowait",
    "ceiling": "ceiling",
}


def trace_exam() -> str:
    """The mean ROC area per node window over visible cells: simulated campaigns, and real runs in all, busy and idle."""
    made, real = measured("traces_faults"), measured("traces_faults_real")
    rows = []
    for name, words in _SCORERS.items():
        interval = real["interval"].get(name)
        between = "" if interval is None else f" ({_number(interval[0], 3)}–{_number(interval[1], 3)})"
        simulated_means = (_number(made["mean"][part].get(name), 3) for part in ("tuned", "aside"))
        real_means = (_number(_mean_of(real, part, name), 3) for part in ("tuned", "aside"))
        strata = (_number(real["strata"][part].get(name), 3) for part in ("busy", "idle"))
        rows.append((words, *simulated_means, *real_means, f"{_number(real['mean'].get(name), 3)}{between}", *strata))
    return table(
        ("scorer", "simulated, tuned", "simulated, aside", "real, tuned", "real, aside", "real, all (95 %)", "busy", "idle"), rows
    )


def trace_fault_cells() -> str:
    """Each fault and severity: the detector's ROC area and recall, the best baseline, and the ceiling; simulated and real."""
    made, real = measured("traces_faults"), measured("traces_faults_real")
    rows = []
    for fault, severities in made["faults"].items():
        for severity, scorers in severities.items():
            here = real["faults"][fault][severity]
            simple = {name: {key: figure["mean"] for key, figure in found.items()} for name, found in scorers.items()}
            rows.append((code(fault), severity, *_cell(simple), *_cell(here)))
    words = ("detector", "recall", "best baseline", "ceiling")
    return table(("fault", "severity", *(f"simulated: {word}" for word in words), *(f"real: {word}" for word in words)), rows)


def trace_example_faults() -> str:
    """The faults of examples/trace_faults.py: ROC area of the detector, of the best baseline, and the ceiling, fault by fault."""
    studies = measured("traces_faults_examples")["studies"]
    rows = []
    for fault, severities in studies["real"]["faults"].items():
        for severity in severities:
            cells: list[str] = []
            for name in studies:
                found = studies[name]["faults"][fault][severity]
                others = {key: value["roc_auc"] for key, value in found.items() if key not in ("detector", "ceiling")}
                best = max(others, key=lambda key: others[key])
                numbers = (found["detector"]["roc_auc"], others[best], found["ceiling"]["roc_auc"])
                own, other, ceiling = (_number(number, 3) for number in numbers)
                cells += [own, f"{other} ({_SCORERS[best]})", ceiling]
            rows.append((code(fault), severity, *cells))
    means = [studies[name]["mean"] for name in studies]
    last = [
        cell
        for mean in means
        for cell in (
            _number(mean["detector"], 3),
            _number(max(value for key, value in mean.items() if key not in ("detector", "ceiling")), 3),
            _number(mean["ceiling"], 3),
        )
    ]
    rows.append(("mean, visible cells", "", *last))
    heads = [f"{name}: {word}" for name in studies for word in ("detector", "best baseline", "ceiling")]
    return table(("fault", "severity", *heads), rows)


def trace_spoilt() -> str:
    """What unlabelled faults in training cost the detector: ROC area, recall, and the share flagged where 1 % is promised."""
    rows = [
        (
            name,
            f"{float(share):.0%}",
            _number(found["roc_auc"], 3),
            _number(found["recall"], 2),
            f"{found['promised']['0.01']:.1%}",
        )
        for name, shares in measured("traces_faults_spoilt")["studies"].items()
        for share, found in shares.items()
    ]
    return table(("data", "training windows with a fault", "mean ROC area", "recall", "flagged at 1 % promised"), rows)


def _cell(found: dict[str, Any]) -> tuple[str, str, str, str]:
    best = max((figures["roc_auc"] for name, figures in found.items() if name not in ("detector", "ceiling")), default=None)
    return (
        _number(found["detector"]["roc_auc"], 3),
        _number(found["detector"]["recall"], 2),
        _number(best, 3),
        _number(found["ceiling"]["roc_auc"], 3),
    )


def _mean_of(real: dict[str, Any], part: str, name: str) -> float | None:
    cells = [
        found[name]["roc_auc"]
        for fault in real[part]
        for severity, found in real["faults"][fault].items()
        if name in found and [fault, severity] not in real["not_visible"]
    ]
    return float(sum(cells) / len(cells)) if cells else None


def trace_shipped() -> str:
    """The figures of the shipped encoder, as on its card."""
    card = (_SHIPPED / "CARD.md").read_text(encoding="utf-8")
    return "| figure" + card.partition("| figure")[2].partition("\n\n")[0]


def _spread(found: dict[str, Any] | None, digits: int = 4) -> str:
    return "–" if found is None else f"{_number(found['mean'], digits)} ± {_number(found['std'], digits)}"


def _number(value: float | None, digits: int = 4) -> str:
    return "–" if value is None else f"{value:.{digits}f}".removeprefix("0")


PARTS: Final[dict[str, Callable[[], str]]] = {
    "trace-table-two": lambda: _table_two(simulated()),
    "trace-job-types": lambda: _by_job_type(simulated()),
    "trace-recorded": lambda: _table_two(measured("traces_recorded")),
    "trace-recorded-types": lambda: _by_job_type(measured("traces_recorded")),
    "trace-runs": trace_runs,
    "trace-training": trace_training,
    "trace-speed": trace_speed,
    "trace-forecast": trace_forecast,
    "trace-regions": trace_regions,
    "trace-machines": trace_machines,
    "trace-shipped": trace_shipped,
    "trace-fast": trace_fast,
    "trace-scale": trace_scale,
    "trace-exam": trace_exam,
    "trace-fault-cells": trace_fault_cells,
    "trace-example-faults": trace_example_faults,
    "trace-spoilt": trace_spoilt,
    "trace-gpu": trace_gpu,
    "trace-gpu-second": trace_gpu_second,
    "trace-gpu-equality": trace_gpu_equality,
    "trace-gpu-crossover": trace_gpu_crossover,
    "trace-gpu-training": trace_gpu_training,
}
