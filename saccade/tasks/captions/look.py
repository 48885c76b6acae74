"""What did each word of a caption look at? The caption is written first, then replayed while recording.

Axis legend: H heads, Q words and the end, K cells.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase

import torch

from saccade.attention import record_attention
from saccade.data.images.store import AnyImage
from saccade.data.text.tokenizer import BOS
from saccade.errors import UserError
from saccade.tasks.captions.task import CaptionTask
from saccade.tasks.words import END, words_of
from saccade.views.axes import Axis, Grid, Tokens
from saccade.views.maps import AttentionMap
from saccade.views.view import View


@torch.no_grad()
def look(task: CaptionTask, image: AnyImage, target: str | None = None, only: str | None = None) -> View:
    """The attention over the image of every layer whose name matches, for a caption, by default the model's own."""
    answer = task.predict([image])[0] if target is None else task.given(image, target)
    hypothesis, pixels = answer.hypotheses[0], task.picture(image)
    with record_attention(task.model, "decoder.*") as recorded:
        encoded = task.encoded(torch.tensor(pixels, device=task.device)[None])
        task.stepper.read(encoded, torch.tensor([[BOS, *hypothesis.tokens]], device=task.device))
    words, grid = Tokens((*task.vocabulary.words(hypothesis.tokens), END)), Grid(*task.stepper.encoder.grid)
    axes: dict[str, Axis] = {"target": words, "target_before": words, "cells": grid}
    over_image = [name for name in recorded if task.stepper.attention_axes(name, axes)[1] is grid]
    names = _matching(over_image, only or "*")
    return View(
        title=answer.text,
        maps=tuple(AttentionMap(name, recorded.joined(name)[0], words, grid, "words", "image") for name in names),
        text=answer.text,
        answer=answer.to_dict(),
        source=answer.source,
        picture=pixels.transpose(1, 2, 0),
        words=words_of(task.vocabulary, hypothesis),
    )


def _matching(names: Sequence[str], only: str) -> list[str]:
    if not names:
        raise UserError(
            "this model never looks at the image while it writes: train show_attend_tell or caption_transformer"
        )
    matching = [name for name in names if fnmatchcase(name, only)]
    if not matching:
        raise UserError(f"no attention of this model matches {only!r}: it has {', '.join(names)}")
    return matching
