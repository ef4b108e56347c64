"""The page: sections -> one HTML file that needs nothing else, for a screen, a phone, the dark and paper.

Everything that is written is escaped; plotly.js is included once, and only where there is a figure.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Final

from stormpetrel.errors import UsageError
from stormpetrel.faces.report.blocks import Block, Column, Drawing, Link, Paragraph, Section, SideBySide, Table
from stormpetrel.faces.report.inventory import item_label
from stormpetrel.private_files import write_private

_STYLE: Final = Path(__file__).parent / "page.css"
_PAGE: Final = Template(
    """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="Stormpetrel">
<title>$title</title>
<style>
$style
</style>
$script</head>
<body>
<header><h1>$title</h1><p>$subtitle</p></header>
<nav aria-label="Contents"><ol>
$contents
</ol></nav>
<main>
$body
</main>
<footer>$footer</footer>
$fitting</body>
</html>
"""
)
# A figure is drawn before what stands next to it is there: once everything is, each takes the width that it is left.
_FITTING: Final = """<script>
addEventListener("load", () => document.querySelectorAll(".js-plotly-plot").forEach(figure => Plotly.Plots.resize(figure)));
</script>
"""
_CONFIG: Final = {"responsive": True, "displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"]}
_FONT: Final = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif'


def render(title: str, sections: Sequence[Section], *, subtitle: str = "", footer: str = "") -> str:
    """The whole page as text."""
    ids = _Ids()
    body = "\n".join(_section(place, section, ids) for place, section in enumerate(sections, 1))
    drawn = any(_has_drawing(block) for section in sections for block in section.blocks)
    contents = "\n".join(
        f'<li><a href="#section-{place}">{escape(section.title)}</a></li>' for place, section in enumerate(sections, 1)
    )
    return _PAGE.substitute(
        title=escape(title),
        subtitle=escape(subtitle),
        footer=escape(footer),
        style=_STYLE.read_text(encoding="utf-8").strip(),
        script=_plotly() if drawn else "",
        fitting=_FITTING if drawn else "",
        contents=contents,
        body=body,
    )


def write_page(path: Path, title: str, sections: Sequence[Section], *, subtitle: str = "", footer: str = "") -> int:
    """Write the page to a file and tell its size in bytes."""
    text = render(title, sections, subtitle=subtitle, footer=footer).encode("utf-8", errors="replace")
    try:
        write_private(path, text)
    except OSError as error:
        reason = (error.strerror or "it failed").lower()
        raise UsageError(f"{path} cannot be written: {reason}.", hint="Name a file in a folder that you may write to.") from None
    return len(text)


@dataclass(slots=True)
class _Ids:
    """The ids that were given so far: a number for each figure, and the items of the published studies, each once."""

    figures: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    items: set[str] = field(default_factory=set)

    def of_items(self, shows: Sequence[str]) -> str:
        """What of the published studies a block shows, as the places that the inventory's links lead to."""
        labels = "".join(f"<span{self._first(key)}>{escape(item_label(key))}</span>" for key in shows)
        return f'<p class="items">{labels}</p>' if labels else ""

    def _first(self, key: str) -> str:
        if key in self.items:
            return ""
        self.items.add(key)
        return f' id="{escape(key)}"'


def _section(place: int, section: Section, ids: _Ids) -> str:
    parts = "\n".join(_block(block, ids) for block in section.blocks)
    return (
        f'<section id="section-{place}">\n<h2>{escape(section.title)}</h2>\n<p class="intro">{escape(section.intro)}</p>\n'
        f"{parts}\n</section>"
    )


def _block(block: Block, ids: _Ids) -> str:
    if isinstance(block, Table):
        return _table(block, ids)
    if isinstance(block, Drawing):
        return _drawing(block, ids)
    if isinstance(block, Paragraph):
        return f"<p>{escape(block.text)}</p>"
    return '<div class="beside">\n' + "\n".join(_block(inner, ids) for inner in block.blocks) + "\n</div>"


def _table(table: Table, ids: _Ids) -> str:
    def cell(kind: str, text: str, column: Column) -> str:
        return f"<{kind}{'' if column.form is None else ' class=n'}>{text}</{kind}>"

    def line(kind: str, values: Iterable[str]) -> str:
        return f"<tr>{''.join(cell(kind, value, column) for value, column in zip(values, table.columns, strict=True))}</tr>"

    head = [line("th", (escape(column.name) for column in table.columns))] if any(column.name for column in table.columns) else []
    rows = "\n".join(line("td", map(_cell, row, texts)) for row, texts in zip(table.rows, table.lines(), strict=True))
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<div class="table">{ids.of_items(table.shows)}<h3>{escape(table.title)}</h3><div class="scroll"><table>\n'
        f"{''.join(f'<thead>{values}</thead>' for values in head)}\n<tbody>\n{rows}\n</tbody></table></div>{note}</div>"
    )


def _cell(value: object, text: str) -> str:
    return f'<a href="#{escape(value.anchor)}">{escape(text)}</a>' if isinstance(value, Link) else escape(text)


def _drawing(drawing: Drawing, ids: _Ids) -> str:
    """The figure without its title, which the page writes itself: text of HTML breaks its lines on a phone."""
    import plotly.graph_objects as go

    figure = go.Figure(drawing.figure)
    title = figure.layout.title
    text, below = title.text or "", (title.subtitle.text if title.subtitle is not None else None) or ""
    figure.update_layout(
        title=None,
        height=drawing.height,
        autosize=True,
        font={"family": _FONT, "size": 13},
        margin={"t": 30, "r": 20, "l": 60, "b": 60},
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0, "xanchor": "left"},
    )
    figure.update_yaxes(automargin=True).update_xaxes(automargin=True)
    html = figure.to_html(full_html=False, include_plotlyjs=False, div_id=f"figure-{next(ids.figures)}", config=_CONFIG)
    caption = " ".join(sentence for sentence in (below, drawing.caption) if sentence)
    note = f'<p class="note">{escape(caption)}</p>' if caption else ""
    return (
        f"<figure>{ids.of_items(drawing.shows)}<figcaption>{escape(text)}</figcaption>"
        f'<div class="plot">{html}</div>{note}</figure>'
    )


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    script: Any = get_plotlyjs()
    return f"<script>{script}</script>\n"


def _has_drawing(block: Block) -> bool:
    return isinstance(block, Drawing) or (isinstance(block, SideBySide) and any(map(_has_drawing, block.blocks)))
