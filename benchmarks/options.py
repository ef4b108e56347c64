"""Options that several benchmarks have."""

from __future__ import annotations

import argparse


def add_workers(parser: argparse.ArgumentParser, *, default: int = 1) -> None:
    """`--workers`, as the product's own commands have it: how many items of the engine run at a time."""
    parser.add_argument(
        "--workers",
        type=int,
        default=default,
        help="seeds, models or cuts at a time; more than one: each in a process of one thread",
    )
