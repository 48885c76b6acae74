"""One way to look at what a run attended to, whatever its task: maps, and a file of them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from saccade.errors import UserError
from saccade.explain import maps
from saccade.explain.maps import AttentionMap
from saccade.explain.overview import overview


@dataclass(frozen=True)
class Looked:
    maps: list[AttentionMap]
    save: Callable[[Path], None]  # .png, .svg, .html or .json by the ending
    answer: str = ""  # what the model says of a picture


def looked(
    task: Any,
    source: Any,
    *,
    target: str | None = None,
    words: bool = True,
    pixel: tuple[int, int] | None = None,
    only: str | None = None,
) -> Looked:
    """What the task's model attended to, in the modules whose name matches `only`, or in all of them: then a picture of a sentence that
    would have too many panels shows an overview. `target` and `words` are for sentences, `pixel` (row, column) is for pictures."""
    if task.recipe.task == "classify":
        if target is not None or not words:
            raise UserError("this run names classes: --target and --subwords are for sentences, leave them out")
        return _picture(task, source, pixel, only)
    is_whole, only = only is not None, only or "*"
    if pixel is not None:
        raise UserError("this run writes sentences, whose words look: --pixel is for classes, leave it out")
    if task.recipe.task == "caption":
        from saccade.explain import captioning

        sight = captioning.see(task, source, target, only)
        return Looked(sight.maps, partial(captioning.save, sight), sight.answer.text)
    from saccade.explain.replay import look

    found = look(task, source, target, words, only)
    return Looked(found, partial(_save_sentence, found, source, is_whole))


def _save_sentence(found: list[AttentionMap], source: str, is_whole: bool, path: Path) -> None:
    if not is_whole and path.suffix.lower() in (".png", ".svg"):
        found = overview(found)
    maps.save(found, path, title=source)


def _picture(task: Any, source: Any, pixel: tuple[int, int] | None, only: str | None) -> Looked:
    from saccade.explain import glimpses, overlay, seeing
    from saccade.models.glimpse import GlimpseNetwork

    if isinstance(task.model, GlimpseNetwork):
        if pixel is not None or only is not None:
            raise UserError("this run glimpses, and its one picture is its path: leave out --pixel and --only")
        path = glimpses.see(task, source)
        return Looked([path.attention_map()], partial(glimpses.save, path), glimpses.default_title(path))
    sight = seeing.see(task, source, pixel, only)
    return Looked(sight.maps, partial(overlay.save, sight), overlay.title_of(sight))
