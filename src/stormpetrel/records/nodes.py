"""Nodes: lists of them (`cpn-f15-[06,08,11-12],gpu3` -> the names), and how one is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import polars as pl

MAX_NODES = 200_000  # a node list is hostile input: `n[1-999999999]` must not fill the memory


@dataclass(frozen=True, slots=True)
class NodeState:
    """How a scheduler sees a node: the words of its state, why an administrator or the scheduler set it so, and when (UTC)."""

    name: str
    states: frozenset[str]
    reason: str = ""
    since: datetime | None = None

    @property
    def is_down(self) -> bool:
        """Whether it went down, or does not answer; one that was drained on purpose, rebooted or powered down is not."""
        on_purpose = {"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "REBOOT_ISSUED", "REBOOT_REQUESTED", "MAINT", "PLANNED"}
        return bool(self.states & {"DOWN", "ERROR", "FAIL", "NOT_RESPONDING"}) and not self.states & on_purpose


def expand_nodes(node_list: str | None) -> list[str]:
    """The node names behind a Slurm node range; [] where there is none or where it is not one.

    >>> expand_nodes("cpn-f15-[06,08,11-12],gpu3")
    ['cpn-f15-06', 'cpn-f15-08', 'cpn-f15-11', 'cpn-f15-12', 'gpu3']
    """
    if not node_list or node_list in ("None assigned", "(null)", "Unknown"):
        return []
    names: list[str] = []
    for part in _split_outside_brackets(node_list):
        for name in _expand_part(part):
            if len(names) >= MAX_NODES:
                return []
            names.append(name)
    return names


# Names with at most some lists of numbers in brackets: `cpn-f15-[06,08,11-12],gpu3`, `rack[0-3]n[1-16]`.
_ITEM: Final = r"[0-9A-Za-z]+(?:-[0-9A-Za-z]+)?"
_PART: Final = rf"[^\[\],\s]+(?:\[{_ITEM}(?:,{_ITEM})*\][^\[\],\s]*)*"
_NODE_LIST: Final = rf"^{_PART}(?:,{_PART})*$"
_SIMPLE: Final = r"^[^\[\],\s]+$"


def is_node_list(column: pl.Series) -> pl.Series:
    """Which texts are lists of nodes as Slurm writes them, null included; a list that was cut off (`node[1-`) is none."""
    simple = column.str.contains(_SIMPLE).fill_null(True)
    if simple.all():
        return simple
    return simple | column.str.contains(_NODE_LIST).fill_null(True)


def is_list_of_nodes(text: str) -> bool:
    """The same of a single text."""
    return re.fullmatch(_NODE_LIST, text) is not None


def _split_outside_brackets(text: str) -> Iterator[str]:
    depth = start = 0
    for position, letter in enumerate(text):
        if letter == "[":
            depth += 1
        elif letter == "]":
            depth -= 1
        elif letter == "," and depth == 0:
            yield text[start:position]
            start = position + 1
    yield text[start:]


def _expand_part(part: str) -> Iterator[str]:
    open_at = part.find("[")
    close_at = part.find("]", open_at)
    if open_at < 0 or close_at < 0:
        if part:
            yield part
        return
    head, ranges, tail = part[:open_at], part[open_at + 1 : close_at], part[close_at + 1 :]
    for middle in _numbers(ranges):
        for rest in _expand_part(tail) if tail else ("",):
            yield f"{head}{middle}{rest}"


def _numbers(ranges: str) -> Iterator[str]:
    for item in ranges.split(","):
        low, dash, high = item.partition("-")
        if not dash or not (low.isdigit() and high.isdigit()):
            yield item
            continue
        first, last = int(low), int(high)
        for number in range(first, min(last, first + MAX_NODES) + 1):
            yield str(number).zfill(len(low))
