"""Figures on a page: several Plotly figures in one HTML file that needs no network."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stormpetrel.private_files import write_private

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def write_figures(path: Path, title: str, figures: Sequence[Figure]) -> None:
    """Write figures below each other to one self-contained file."""
    parts = [figure.to_html(full_html=False, include_plotlyjs=number == 0) for number, figure in enumerate(figures)]
    head = f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title></head>'
    body = f"<body style='font-family: sans-serif; max-width: 70rem; margin: 1rem auto'><h1>{html.escape(title)}</h1>"
    write_private(path, head + body + "\n".join(parts) + "</body></html>")
