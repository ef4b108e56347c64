"""What a batch script of Slurm asks of a cluster: JobRequest -> ResourceRequest, with how CPUs, memory and GPUs lie on nodes."""

from __future__ import annotations

import re
from typing import Final

from stormpetrel.records.cluster import ResourceRequest
from stormpetrel.records.units import NO_LIMIT
from stormpetrel.sources.scripts.request import JobRequest, count_of, size_of
from stormpetrel.sources.scripts.slurm_options import Options, deciding

_GPU: Final = re.compile(r"(?:gres[/:])?gpu(?:[:=]([A-Za-z][\w.-]{0,63}))?(?:[:=](\d{1,9}))?", re.ASCII)
_TYPED: Final = re.compile(r"(?:([A-Za-z][\w.-]{0,63})(?::(\d{1,9}))?|(\d{1,9}))", re.ASCII)
_FEATURES: Final = re.compile(r"[\w.-]+(?:&[\w.-]+)*", re.ASCII)  # nothing but names that are all wanted


def resource_request(request: JobRequest) -> ResourceRequest:
    """The request of a Slurm script; what the text does not say, or says in a way that is not read, is None."""
    directives, columns = deciding(request.directives), request.columns
    least, most = _node_range(directives)
    return ResourceRequest(
        partitions=tuple(name for name in str(columns.get("partition") or "").split(",") if name),
        account=_text(columns.get("account")),
        qos=_text(columns.get("qos")),
        time_limit_s=_number(columns.get("time_limit_s")),
        no_time_limit="time" in directives and directives["time"].value.strip().upper() in {"0", "-1", *NO_LIMIT},
        min_nodes=least,
        max_nodes=most,
        cpus=_whole(columns.get("req_cpus")) or 1,
        cpus_per_task=_count(directives, "cpus-per-task"),
        tasks_per_node=_count(directives, "ntasks-per-node"),
        mem_per_node_bytes=_size(directives, "mem"),
        mem_per_cpu_bytes=_size(directives, "mem-per-cpu"),
        mem_bytes=_whole(columns.get("req_mem_bytes")),
        gpus=_whole(columns.get("req_gpus")),
        gpus_per_node=_gpus_per_node(directives),
        features=_features(directives),
    )


def _node_range(options: Options) -> tuple[int | None, int | None]:
    """The fewest and the most nodes in `4`, `2-4` or `1k`."""
    if "nodes" not in options:
        return None, None
    least, dash, most = options["nodes"].value.strip().partition("-")
    first = _with_suffix(least)
    return first, _with_suffix(most) if dash else first


def _with_suffix(word: str) -> int | None:
    factor = {"k": 1024, "m": 1024**2}.get(word[-1:].lower(), 1)
    count = count_of(word[:-1] if factor > 1 else word)
    return None if count is None else count * factor


def _gpus_per_node(options: Options) -> dict[str, int]:
    """GPUs of one node by type; those that are asked for per job or per task may lie anywhere."""
    gpus: dict[str, int] = {}
    if "gpus-per-node" in options:
        for entry in options["gpus-per-node"].value.split(","):
            match = _TYPED.fullmatch(entry.strip())
            if match:
                gpus[match[1] or ""] = gpus.get(match[1] or "", 0) + int(match[2] or match[3] or 1)
    elif "gres" in options:
        for entry in re.sub(r"\([^()]*\)", "", options["gres"].value).split(","):
            match = _GPU.fullmatch(entry.strip())
            if match:
                gpus[match[1] or ""] = gpus.get(match[1] or "", 0) + int(match[2] or 1)
    return {name: count for name, count in gpus.items() if count}


def _features(options: Options) -> tuple[str, ...]:
    written = options["constraint"].value.strip() if "constraint" in options else ""
    return tuple(written.split("&")) if _FEATURES.fullmatch(written) else ()


def _count(options: Options, option: str) -> int | None:
    return count_of(options[option].value) if option in options else None


def _size(options: Options, option: str) -> int | None:
    return (size_of(options[option].value.strip(), default_unit="M") or None) if option in options else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
