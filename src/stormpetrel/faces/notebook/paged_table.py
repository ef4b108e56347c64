"""A table of predictions as a widget: a page at a time, sorted as one likes.

prediction frame with details -> PagedTable.show -> HTML, two buttons and a list of orders.
"""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from stormpetrel.faces.notebook import markup
from stormpetrel.faces.notebook.predicting import COLUMNS

PAGE_ROWS: Final = 10
# What one reads in the list -> (column, largest first).
ORDERS: Final = {
    "most likely to fail first": ("Risk", True),
    "latest submission first": ("Submit Time", True),
    "earliest submission first": ("Submit Time", False),
    "latest start first": ("Start Time", True),
    "by user": ("User ID", False),
    "least likely to fail first": ("Risk", False),
}


class PagedTable:
    """Ten rows at a time; `box` is the widget, `page_rows` what it shows now."""

    def __init__(self) -> None:
        import ipywidgets

        self._rows = pl.DataFrame()
        self._page = 0
        self.order = ipywidgets.Dropdown(
            options=list(ORDERS), description="Order", layout={"width": "290px"}, style={"description_width": "auto"}
        )
        self.back = ipywidgets.Button(description="<", tooltip="Page before", layout={"width": "40px"})
        self.forth = ipywidgets.Button(description=">", tooltip="Next page", layout={"width": "40px"})
        self.place = ipywidgets.HTML()
        self.html = ipywidgets.HTML(layout={"width": "100%"})
        bar = ipywidgets.HBox(
            [self.order, self.back, self.forth, self.place], layout={"flex_flow": "row wrap", "align_items": "center"}
        )
        self.box: Any = ipywidgets.VBox([bar, self.html])
        self.back.on_click(lambda _: self._turn(-1))
        self.forth.on_click(lambda _: self._turn(1))
        self.order.observe(lambda _: self._sort(), "value")

    @property
    def pages(self) -> int:
        """How many pages there are, at least one."""
        return max(1, -(-self._rows.height // PAGE_ROWS))

    @property
    def page_rows(self) -> pl.DataFrame:
        """The rows on the page that is shown."""
        return self._rows.slice(self._page * PAGE_ROWS, PAGE_ROWS)

    def show(self, predictions: pl.DataFrame) -> None:
        """Show predictions (with details), from their first page on."""
        self._rows = predictions
        self._sort()

    def _sort(self) -> None:
        column, largest_first = ORDERS[self.order.value]
        if self._rows.height:
            self._rows = self._rows.sort(column, descending=largest_first, nulls_last=True, maintain_order=True)
        self._page = 0
        self._draw()

    def _turn(self, step: int) -> None:
        self._page = min(max(0, self._page + step), self.pages - 1)
        self._draw()

    def _draw(self) -> None:
        self.back.disabled, self.forth.disabled = self._page == 0, self._page == self.pages - 1
        first = self._page * PAGE_ROWS + 1
        last = min(first + PAGE_ROWS - 1, self._rows.height)
        shown = f"{first:,} to {last:,} of {self._rows.height:,}" if self._rows.height else "no jobs"
        self.place.value = markup.page(markup.sentence(shown))
        page = self.page_rows.select(COLUMNS) if self._rows.height else pl.DataFrame(schema=dict.fromkeys(COLUMNS, pl.String))
        self.html.value = markup.page(markup.table(page))
