"""Options that several benchmarks have."""

from __future__ import annotations

import argparse

from stormpetrel.engine import Engine, engine_at


def add_workers(parser: argparse.ArgumentParser, *, default: int = 1) -> None:
    """`--workers` and `--engine`, as the product's own commands have them: how many items run at a time, and where."""
    parser.add_argument(
        "--workers",
        type=int,
        default=default,
        help="seeds, models or cuts at a time; more than one: each in a process of one thread",
    )
    parser.add_argument("--engine", default="local", help="local, auto, ray or ray://HOST:PORT; on Ray --workers 0 is every CPU")


def engine_of(options: argparse.Namespace) -> Engine:
    """The engine that these options ask for."""
    return engine_at(options.engine, options.workers)
