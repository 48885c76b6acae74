"""The one palette of all pictures, and the scale of the colours: how dark a weight is."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from saccade.views.lettering import INK

if TYPE_CHECKING:
    from matplotlib.cm import ScalarMappable

__all__ = [
    "COLOURS",
    "FRAME",
    "INK",
    "ORDER",
    "QUIET",
    "SERIES",
    "limit_of",
    "number",
    "order_colours",
    "scale_to",
    "short",
]

QUIET, FRAME = "#5c6675", "#d5dae1"
MARKED = "#dfe3e8"  # behind days that are marked, such as clouded ones
# From paper white to ink blue in equal steps of the OKLab colour space: twice the weight looks twice as dark.
COLOURS = ("#f7fbfc", "#c4e6f3", "#93cfed", "#65b5e5", "#409adc", "#287acd", "#225cb8", "#243d9c", "#23217c")
# The order of steps: from yellow to violet, each bright enough to be seen on black.
ORDER = ("#ffe07a", "#ffb347", "#ff7f50", "#f2557e", "#c45cd6", "#8f7bff")
# Lines that are told apart with any colour vision, and in grey by their lightness (Okabe and Ito).
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
_EVEN = 6.0  # attention that is even over all keys has at most a sixth of the strongest colour
_BLANK = 0.005  # smaller weights have no number


def limit_of(panels: Iterable[tuple[NDArray[np.float32], int]]) -> float:
    """The weight that has the strongest colour in panels that are compared: their largest, or a multiple of what every key would get if
    all got the same, so that nearly even attention looks nearly even. A panel is its weights and the number of its keys."""
    shown = list(panels)
    peak = max(float(weights.max()) for weights, _ in shown)
    even = max(1 / max(keys, 1) for _, keys in shown)
    limit = max(peak, min(1.0, _EVEN * even))
    return 1.0 if limit == 0 or 0.7 < limit < 1 else limit


def scale_to(limit: float) -> "ScalarMappable":
    """Weights from 0 to `limit` as colours."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    return ScalarMappable(Normalize(0, limit), LinearSegmentedColormap.from_list("ink", COLOURS))


def order_colours(count: int) -> NDArray[np.float64]:
    """A colour (red, green, blue, opacity) for each of so many steps."""
    from matplotlib.colors import LinearSegmentedColormap

    colours: NDArray[np.float64] = LinearSegmentedColormap.from_list("order", ORDER)(np.linspace(0, 1, count))
    return colours


def number(weight: float) -> str:
    """Two decimals without the leading zero; nothing for what would be .00."""
    return f"{weight:.2f}".removeprefix("0") if weight >= _BLANK else ""


def short(weight: float) -> str:
    """Two significant digits, however small the weight."""
    return number(weight) if weight >= 0.095 else f"{weight:.2g}".removeprefix("0")
