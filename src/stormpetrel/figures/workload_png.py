"""The distributions of every column as a picture for a paper or a mail: name -> Workload -> PNG, by matplotlib."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from stormpetrel.errors import MissingExtraError
from stormpetrel.figures.palette import BLACK, LINE_COLOURS
from stormpetrel.figures.workload_curves import Picture, Workloads, columns_of, picture_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS: Final = 3
_FIELD_INCHES: Final = (4.2, 3.0)
_LONGEST: Final = 32
_COLOURS: Final = (BLACK, *(colour for colour in LINE_COLOURS if colour != BLACK))
_STYLES: Final = ("-", "--", ":", "-.")


def cdf_grid_png(workloads: Workloads, columns: Sequence[str] | None = None, *, dpi: int = 120) -> bytes:
    """The distribution of every column in each workload, the first one in black, as the bytes of a PNG."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("A PNG of workloads", "plots") from None
    shown = tuple(columns) if columns is not None else columns_of(workloads)
    rows = max(1, -(-len(shown) // _COLUMNS))
    size = (_COLUMNS * _FIELD_INCHES[0], rows * _FIELD_INCHES[1] + 0.5)
    figure = Figure(figsize=size, layout="constrained")  # without pyplot: it would keep every figure alive
    fields = list(figure.subplots(rows, _COLUMNS, squeeze=False).flat)
    for axes, column in zip(fields, shown, strict=False):
        _draw(axes, picture_of(column, workloads), tuple(workloads))
    for axes in fields[len(shown) :]:
        axes.set_visible(False)
    handles, names = fields[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper left", ncols=min(5, max(1, len(names))), frameon=False)
    written = io.BytesIO()
    figure.savefig(written, format="png", dpi=dpi, metadata={"Software": "Stormpetrel"})
    return written.getvalue()


def _draw(axes: Axes, picture: Picture, names: Sequence[str]) -> None:
    axes.set_title(_plain(picture.words), fontsize=10)
    for place, name in enumerate(names):
        curve = picture.curves.get(name)
        if curve is None:
            continue
        if picture.kind == "shares":
            width = 0.8 / len(names)
            axes.bar(curve.x + (place - (len(names) - 1) / 2) * width, curve.y, width, label=_plain(name), color=_colour(place))
        else:
            axes.step(curve.x, curve.y, where="post", label=_plain(name), **_line(place))
    if picture.kind == "shares":
        turned: dict[str, Any] = {"rotation": 30, "ha": "right", "fontsize": 8}
        axes.set_xticks(range(len(picture.categories)), [_plain(name) for name in picture.categories], **turned)
    else:
        axes.set_xscale("log" if picture.log_axis else "linear")
        axes.set_ylim(0, 1.02)
    axes.grid(alpha=0.3)


def _plain(text: str) -> str:
    """A name as matplotlib shows it: short, and with its dollar signs, which would begin a formula, as they are."""
    cut = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    return "".join(letter if letter.isprintable() else "?" for letter in cut).replace("$", r"\$")


def _colour(place: int) -> str:
    return _COLOURS[place % len(_COLOURS)]


def _line(place: int) -> dict[str, Any]:
    style = _STYLES[(place // len(_COLOURS)) % len(_STYLES)]
    return {"color": _colour(place), "linestyle": style, "linewidth": 2.0 if place == 0 else 1.3}
