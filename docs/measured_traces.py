"""Tables of docs/traces.md, made from what the benchmarks measured: benchmarks/results/traces*.json -> Markdown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from markdown_tables import code, table

_RESULTS: Final = Path(__file__).parent.parent / "benchmarks" / "results"
_SHIPPED: Final = Path(__file__).parent.parent / "src" / "stormpetrel" / "traces" / "shipped_encoder"
_KINDS: Final = {"vanilla": "Vanilla AE", "node_gnn": "Node-GNN-AE", "job_gnn": "Job-GNN-AE"}
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
    on_gpu, on_cpu = measured("traces_table2"), measured("traces_table2_cpu")
    together = ("model", "by_job_type", "training")
    return {**on_gpu, **{name: {**on_gpu[name], **on_cpu[name]} for name in together}}


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


def trace_runs() -> str:
    """The normal error on each of the runs that nothing was learnt from."""
    found = measured("traces_exathlon")["per_run"]
    runs = list(next(iter(found.values())))
    rows = [(_KINDS[kind], *(_spread(errors[run]["re_normal"]) for run in runs)) for kind, errors in found.items()]
    return table(("RE normal", *(code(run) for run in runs)), rows)


def trace_training() -> str:
    """How long an ensemble of ten takes to train, by device."""
    rows = []
    for name in ("traces_table2", "traces_table2_cpu"):
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
    share = f"{found['vanilla_of_sgemm_peak']:.2f} of the core's matrix peak ({found['sgemm_gflops']['numpy']:.0f} GFLOP/s)"
    return (
        table(("what", "asked, per second and core", "measured, per second of CPU", "torch in the same run"), rows)
        + f"\n\nThe vanilla network needs {found['mflop_per_window']:.2f} MFLOP per window: {share}."
    )


def _asked(what: str) -> tuple[str]:
    return ({"vanilla": "≥ 6,500", "128": "≥ 500,000"}.get(what, "–"),)


def _per_second(found: dict[str, Any], ours: str, peer: str) -> tuple[str, str]:
    return f"{found[ours]['per_cpu_second']:,.0f}", f"{found[peer]['per_cpu_second']:,.0f}"


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


def trace_shipped() -> str:
    """The figures of the shipped encoder, as on its card."""
    card = (_SHIPPED / "CARD.md").read_text(encoding="utf-8")
    return "| figure" + card.partition("| figure")[2].partition("\n\n")[0]


def _spread(found: dict[str, Any] | None) -> str:
    return "–" if found is None else f"{_number(found['mean'])} ± {_number(found['std'])}"


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
    "trace-shipped": trace_shipped,
}
