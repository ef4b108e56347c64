"""Tables on a page: a plain one to be read, and one that the browser sorts and filters. Every cell is shown as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from dash import html

if TYPE_CHECKING:
    from dash.development.base_component import Component

Kind = Literal["text", "number", "decimal", "percent", "link"]
_FORMATS: Final = {"number": ",.0f", "decimal": ",.3~f", "percent": ",.1f"}
_ROW_PX: Final = 40
_WIDE_PX: Final = 150
_HEAD_PX: Final = 52


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column: the key of its cells, its heading, and how cells are written.

    A `percent` is 0 to 100. A `link` is text with the address in `<key>_link` of the row; without one it is text alone.
    """

    key: str
    title: str
    kind: Kind = "text"
    width: int | None = None  # pixels at least, and its part of what is left
    hint: str = ""
    grow: int | None = None  # its part of what is left, where that is not its width
    wraps: bool = False  # over several lines, in a table whose rows are high enough


def text_table(columns: Sequence[TableColumn], rows: Iterable[dict[str, Any]], *, caption: str) -> Component:
    """A table to be read; the caption is for those who hear it."""
    head = [html.Th(column.title, scope="col", title=column.hint or None, className=_class(column)) for column in columns]
    body = [html.Tr([_cell(column, row, first=place == 0) for place, column in enumerate(columns)]) for row in rows]
    parts = [html.Caption(caption, className="hidden"), html.Thead(html.Tr(head)), html.Tbody(body)]
    return html.Div(html.Table(parts, className="table"), className="table-box", tabIndex="0", role="region", **_label(caption))


def sortable_table(
    id: str,  # noqa: A002 (Dash's name)
    columns: Sequence[TableColumn],
    rows: Sequence[dict[str, Any]],
    *,
    label: str,
    total: dict[str, Any] | None = None,
    most_px: int = 520,
    row_px: int = _ROW_PX,
) -> Component:
    """A table that the browser sorts and filters by itself; `total` stays below the others."""
    from dash_ag_grid import AgGrid

    shown = len(rows) + (total is not None)
    grid = AgGrid(
        id=id,
        className="grid grid-static",
        columnDefs=[_definition(column) for column in columns],
        rowData=list(rows),
        defaultColDef={
            "resizable": True,
            "sortable": True,
            "suppressHeaderMenuButton": True,
            "suppressMovable": True,
            "minWidth": 90,
        },
        dashGridOptions={
            "theme": "themeQuartz",
            "suppressCsvExport": True,  # it would write formulas as they are
            "suppressExcelExport": True,
            "animateRows": False,
            "enableCellTextSelection": True,
            "ensureDomOrder": True,
            "suppressColumnVirtualisation": True,
            "tooltipShowDelay": 500,
            **({"rowHeight": row_px} if row_px != _ROW_PX else {}),
            **({"pinnedBottomRowData": [total]} if total is not None else {}),
        },
        style={"height": f"{min(most_px, _HEAD_PX + row_px * max(1, shown))}px", "width": "100%"},
    )
    return html.Div(grid, role="region", **_label(label))


def numbers(summary: str, table: Component) -> Component:
    """What a figure draws, as a table that is folded away."""
    return html.Details([html.Summary(summary), table], className="numbers")


def status_chip(symbol: str, label: str, tone: str) -> Component:
    """A label with a symbol and a colour of the same meaning; `tone` is a class of `chip`."""
    hidden: Any = {"aria-hidden": "true"}
    return html.Span([html.Span(symbol, className="symbol", **hidden), label], className=f"chip {tone}".strip())


def _label(text: str) -> Any:
    return {"aria-label": text}


def _definition(column: TableColumn) -> dict[str, Any]:
    definition: dict[str, Any] = {"field": column.key, "headerName": column.title}
    definition |= {"flex": column.grow or column.width or _WIDE_PX, "minWidth": column.width or _WIDE_PX}
    if column.wraps:
        definition["wrapText"] = True
    if column.hint:
        definition["headerTooltip"] = column.hint
    if column.kind in _FORMATS:
        written = f"params.value == null ? '' : d3.format('{_FORMATS[column.kind]}')(params.value)"
        unit = " + ' %'" if column.kind == "percent" else ""
        definition |= {"filter": "agNumberColumnFilter", "type": "rightAligned", "sortingOrder": ["desc", "asc", None]}
        definition["valueFormatter"] = {"function": f"params.value == null ? '' : ({written}){unit}"}
    else:
        definition |= {"filter": "agTextColumnFilter", "tooltipField": column.key}
    if column.kind == "link":
        definition["cellRenderer"] = "LinkedText"
    return definition


def _cell(column: TableColumn, row: dict[str, Any], *, first: bool) -> Component:
    value, address = row.get(column.key), row.get(f"{column.key}_link")
    written = html.A(str(value), href=address) if column.kind == "link" and address else _written(column, value)
    if first:
        return html.Th(written, scope="row", className=_class(column))
    return html.Td(written, className=_class(column))


def _written(column: TableColumn, value: Any) -> Any:
    if value is None:
        return "–"
    if isinstance(value, str):  # written already
        return value
    if column.kind in ("number", "decimal"):
        return f"{value:{_FORMATS[column.kind].replace('~', '')}}"
    return f"{value:,.1f} %" if column.kind == "percent" else value


def _class(column: TableColumn) -> str:
    return "number" if column.kind in _FORMATS else ""
