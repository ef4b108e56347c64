"""The colours of every figure: Okabe and Ito's, which people with any kind of colour vision tell apart."""

from __future__ import annotations

from typing import Final

BLACK: Final = "#000000"
ORANGE: Final = "#E69F00"
SKY: Final = "#56B4E9"
GREEN: Final = "#009E73"
YELLOW: Final = "#F0E442"
BLUE: Final = "#0072B2"
VERMILION: Final = "#D55E00"
PURPLE: Final = "#CC79A7"
GREY: Final = "#999999"  # not one of the eight: for what does not count

FAILED_COLOUR: Final = VERMILION
COMPLETED_COLOUR: Final = BLUE
# In the order in which lines take them; yellow is left out, since it is too pale for a line.
LINE_COLOURS: Final = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK, GREY)


def layout(title: str, x_title: str, y_title: str) -> dict[str, object]:
    """What every figure starts from: its title and the titles of its axes, on white."""
    return {
        "title": {"text": title},
        "xaxis": {"title": {"text": x_title}},
        "yaxis": {"title": {"text": y_title}},
        "template": "plotly_white",
    }
