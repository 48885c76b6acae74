"""One way to look at what a run attended to, whatever its task: maps, and a file of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from saccade.errors import UserError
from saccade.views import maps
from saccade.views.document import PICTURES
from saccade.views.maps import AttentionMap
from saccade.views.overview import overview, panels, source_first


@dataclass(frozen=True)
class Looked:
    maps: list[AttentionMap]
    save: Callable[[Path], None]  # .png, .svg, .html or .json by the ending
    answer: str = ""  # what the model says of a picture
    hint: str = ""  # what .png and .svg leave out, and how to see it


def looked(
    task: Any,
    source: Any,
    *,
    target: str | None = None,
    words: bool = True,
    pixel: tuple[int, int] | None = None,
    only: str | None = None,
    name: str | None = None,
    truth: str | None = None,
) -> Looked:
    """What the task's model attended to, in the modules whose name matches `only`, or in all of them: then a picture of a sentence that
    would have too many panels shows an overview. `target` and `words` are for sentences, `pixel` (row, column) is for pictures; `name`
    and `truth` too: what a held-out example is called and what people say of it."""
    if task.recipe.task == "image_classes":
        if target is not None or not words:
            raise UserError("this run names classes: --target and --subwords are for sentences, leave them out")
        return _picture(task, source, pixel, only, name, truth)
    is_whole, only = only is not None, only or "*"
    if pixel is not None:
        raise UserError("this run writes sentences, whose words look: --pixel is for classes, leave it out")
    if task.recipe.task == "captions":
        from saccade.tasks.captions import look as captioning

        sight = _called(captioning.see(task, source, target, only), name, truth)
        return Looked(sight.maps, partial(captioning.save, sight), sight.answer.text)
    from saccade.tasks.translation.look import look

    found = look(task, source, target, words, only)
    return Looked(
        found, partial(_save_sentence, found, source, is_whole), hint="" if is_whole else _what_is_left_out(found)
    )


def _save_sentence(found: list[AttentionMap], source: str, is_whole: bool, path: Path) -> None:
    """A page holds every map and opens on what a picture shows first, the mean of the layers' attention over the source."""
    ending = path.suffix.lower()
    if not is_whole and ending in PICTURES:
        found = overview(found)
    elif not is_whole and ending == ".html":
        found = source_first(found)
    maps.save(found, path, title=source)


def _what_is_left_out(found: list[AttentionMap]) -> str:
    drawn, every = (sum(map(panels, maps)) for maps in (overview(found), found))
    if drawn == every:
        return ""
    return f"shows {drawn} averages of {every} panels: --only '*' draws every layer and head, and .html holds them all"


def _called(sight: Any, name: str | None, truth: str | None) -> Any:
    """The same sight of a picture that has a name and a truth, if it has."""
    answer = sight.answer if name is None else replace(sight.answer, source=name)
    return replace(sight, answer=answer, truth=truth)


def _picture(
    task: Any, source: Any, pixel: tuple[int, int] | None, only: str | None, name: str | None, truth: str | None
) -> Looked:
    from saccade.models.glimpse import GlimpseNetwork
    from saccade.tasks.image_classes import glimpses, overlay
    from saccade.tasks.image_classes import look as seeing

    if isinstance(task.model, GlimpseNetwork):
        if pixel is not None or only is not None:
            raise UserError("this run glimpses, and its one picture is its path: leave out --pixel and --only")
        path = glimpses.see(task, source)
        path = replace(path, source=name or path.source, truth=truth)
        return Looked([path.attention_map()], partial(glimpses.save, path), glimpses.title_of(path))
    sight = _called(seeing.see(task, source, pixel, only), name, truth)
    return Looked(sight.maps, partial(overlay.save, sight), overlay.title_of(sight))
