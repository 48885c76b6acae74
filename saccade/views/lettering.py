"""Words in a picture: in fonts that exist here, measured before they are placed, and never read as formulas."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#1b2330"
_LONGEST = 28
_UNKNOWN = "�"
_boxed: ContextVar[set[str] | None] = ContextVar("boxed", default=None)


@contextmanager
def letters_without_font() -> Iterator[set[str]]:
    """Gathers the letters that are drawn meanwhile and that no font here has a shape for: a box or a mark stands in their place."""
    letters: set[str] = set()
    before = _boxed.set(letters)
    try:
        yield letters
    finally:
        _boxed.reset(before)


class Lettering:
    """The fonts for everything that one picture says."""

    def __init__(self, texts: Iterable[str]):
        from matplotlib.backends.backend_agg import RendererAgg
        from matplotlib.font_manager import FontProperties

        families, self._missing, boxes = _fonts(frozenset("".join(texts)))
        watched = _boxed.get()
        if watched is not None:
            watched |= self._missing | boxes
        self._font = FontProperties(family=list(families))
        self._renderer: Any = RendererAgg(8, 8, 72)  # type: ignore[no-untyped-call]

    def shown(self, text: str) -> str:
        """The text as it can be drawn: very long words lose their middle, letters that no font has are marked."""
        if len(text) > _LONGEST:
            text = text[: _LONGEST // 2] + "…" + text[-_LONGEST // 2 + 1 :]
        return self._marked(text)

    def width(self, texts: Sequence[str], size: float, whole: bool = False) -> float:
        """The width of the widest, in inches; written whole or as `shown`."""
        written = self._marked if whole else self.shown
        return max((self._width(written(text), size) for text in texts), default=0.0)

    def wrapped(self, text: str, size: float, room: float) -> str:
        """The text in lines of at most so many inches, broken between words."""
        lines: list[str] = []
        for word in text.split(" "):
            longer = f"{lines[-1]} {word}" if lines else word
            if lines and self.width([longer], size, whole=True) <= room:
                lines[-1] = longer
            else:
                lines.append(word)
        return "\n".join(lines)

    def _width(self, text: str, size: float) -> float:
        font = self._font.copy()
        font.set_size(size)
        width: float = self._renderer.get_text_width_height_descent(text, font, ismath=False)[0]
        return width / 72

    def write(
        self, place: "Axes | Figure", x: float, y: float, text: str, size: float, whole: bool = False, **options: Any
    ) -> None:
        """Write at (x, y) of the axes or figure; titles are written whole, words as `shown`."""
        font = self._font.copy()
        font.set_size(size)
        text = self._marked(text) if whole else self.shown(text)
        place.text(x, y, text, fontproperties=font, parse_math=False, **{"color": INK, **options})

    def _marked(self, text: str) -> str:
        return "".join(_UNKNOWN if character in self._missing else character for character in text)


@lru_cache(maxsize=256)
def _fonts(characters: frozenset[str]) -> tuple[tuple[str, ...], frozenset[str], frozenset[str]]:
    """Font families that cover the characters between them, the characters that none of them has, and those that get a box for a shape."""
    from matplotlib.font_manager import findfont, fontManager, get_font

    logging.getLogger("matplotlib.font_manager").addFilter(_is_news)
    families = ["DejaVu Sans"]  # comes with matplotlib: Latin, Greek, Cyrillic, Arabic, Hebrew and the marks used here
    missing = characters - _covered(get_font(findfont("DejaVu Sans")), characters)
    boxes: frozenset[str] = frozenset()
    upright = [entry for entry in fontManager.ttflist if entry.style == "normal"]
    for entry in sorted(upright, key=_preference):
        if not missing:
            break
        try:
            font = get_font(entry.fname)
        except (OSError, RuntimeError):
            continue  # a file that the font library cannot read helps nobody
        covered = _covered(font, missing) if font.scalable else frozenset()
        if covered:
            families.append(entry.name)
            missing -= covered
            boxes |= covered if _is_last_resort(entry) else frozenset()
    return tuple(families), missing, boxes


def _is_news(record: logging.LogRecord) -> bool:
    """A font that exists in one weight only is no reason to write to a person's terminal."""
    return not str(record.msg).startswith("findfont: Failed to find font weight")


def _preference(entry: Any) -> tuple[bool, int, str]:
    """Regular before bold; "Last Resort", which has a box for every letter of every script, after everything else."""
    from matplotlib.font_manager import weight_dict

    weight = weight_dict.get(entry.weight, entry.weight)
    return _is_last_resort(entry), abs(weight - 400), entry.name


def _is_last_resort(entry: Any) -> bool:
    return "Last Resort" in entry.name


def _covered(font: Any, characters: frozenset[str]) -> frozenset[str]:
    return frozenset(
        character
        for character in characters
        if character == "\n" or (_is_text(character) and font.get_char_index(ord(character)))
    )


def _is_text(character: str) -> bool:
    """Half of a surrogate pair is what undecodable input leaves behind; no drawing library takes it."""
    return not "\ud800" <= character <= "\udfff"
