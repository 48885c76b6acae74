"""A figure as the bytes of a file. SVG keeps its text as text, PDF embeds its fonts."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LARGEST = 20000  # pixels on a side of a PNG
_settings = Lock()


def png(figure: "Figure") -> bytes:
    return _printed(figure, format="png", dpi=min(160, _LARGEST / max(figure.get_size_inches())))


def svg(figure: "Figure", title: str = "") -> bytes:
    with _text_as_text():
        return _printed(figure, format="svg", metadata={"Title": _encodable(title), "Date": None})


def pdf(figure: "Figure", title: str = "") -> bytes:
    with _text_as_text():
        return _printed(figure, format="pdf", metadata={"Title": _encodable(title), "CreationDate": None})


@contextmanager
def _text_as_text() -> Iterator[None]:
    """matplotlib takes these from its global settings while it writes: they are set under a lock, and put back."""
    import matplotlib

    settings: dict[str, Any] = {"svg.fonttype": "none", "svg.hashsalt": "saccade", "pdf.fonttype": 42}
    shared: Any = matplotlib.rcParams
    with _settings:
        before = {name: shared[name] for name in settings}
        shared.update(settings)
        try:
            yield
        finally:
            shared.update(before)


def _printed(figure: "Figure", **options: Any) -> bytes:
    content = BytesIO()
    figure.savefig(content, bbox_inches="tight", pad_inches=0.2, **options)
    return content.getvalue()


def _encodable(title: str) -> str:
    return title.encode("utf-8", "replace").decode()
