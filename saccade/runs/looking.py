"""One way to look at what a run attended to, whatever its task."""

from typing import Any

from saccade.errors import UserError
from saccade.views.view import View


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
) -> View:
    """What the task's model attended to, in the modules whose name matches `only`, or in all of them. `target` and `words` are for
    sentences, `pixel` (row, column) is for pictures; `name` and `truth` are of a held-out example."""
    view = _view(task, source, target, words, pixel, only)
    return view if name is None or truth is None else view.called(name, truth)


def _view(
    task: Any, source: Any, target: str | None, words: bool, pixel: tuple[int, int] | None, only: str | None
) -> View:
    if task.recipe.task == "image_classes":
        from saccade.tasks.image_classes import look as images

        if target is not None or not words:
            raise UserError("this run names classes: --target and --subwords are for sentences, leave them out")
        return images.look(task, source, pixel, only)
    if pixel is not None:
        raise UserError("this run writes sentences, whose words look: --pixel is for classes, leave it out")
    if task.recipe.task == "captions":
        from saccade.tasks.captions import look as captions

        return captions.look(task, source, target, only)
    from saccade.tasks.translation import look as translations

    return translations.look(task, source, target, words, only)
