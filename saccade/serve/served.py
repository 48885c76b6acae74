"""A trained run as the server shows it: what it reads, what it answers, examples to click.

Everything here runs in the worker's thread. Pictures are always decoded from the request's bytes: a text is never taken for a path.
"""

import binascii
import io
import math
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from saccade.attention import Attend, LocalSelfAttention2d
from saccade.data.images.decoding import open_image
from saccade.data.text.tokenizer import EOS, Tokenizer
from saccade.decoding import Hypothesis
from saccade.errors import UserError
from saccade.layers.windows import WindowAttention
from saccade.models.glimpse import GlimpseNetwork
from saccade.runs.run import Run
from saccade.serve.limits import Limits
from saccade.serve.messages import FigureQuestion, LookQuestion, PredictQuestion, RunInfo
from saccade.tasks.held_out import example_or_itself
from saccade.tasks.image_classes import look as seeing
from saccade.tasks.translation.look import END
from saccade.views.axes import Axis, Grid, Steps, labels
from saccade.views.maps import AttentionMap
from saccade.views.view import View

_EXAMPLES = 6
_SETTINGS = ("search", "beam", "length_penalty", "temperature", "top_k", "top_p", "seed")


class Served(ABC):
    """One run under its name."""

    reads: Literal["text", "image"]

    def __init__(self, name: str, run: Run, limits: Limits):
        self.name = name
        self.run = run
        self.limits = limits

    def info(self) -> RunInfo:
        recipe = self.run.recipe
        decode = recipe.decode.model_dump(mode="json") if hasattr(recipe, "decode") else {}
        return RunInfo(
            name=self.name,
            task=recipe.task,
            reads=self.reads,
            model=recipe.model_module.__name__.rpartition(".")[2],
            description=recipe.description.partition(" (--set ")[0],  # how it was started is no news to a visitor
            attends=self.attends(),
            examples=self.examples(),
            decode=decode,
        )

    def attends(self) -> bool:
        kinds = (Attend, LocalSelfAttention2d, WindowAttention, GlimpseNetwork)
        return any(isinstance(module, kinds) for module in self.run.task.model.modules())

    @abstractmethod
    def check(self, question: Any) -> Any:
        """What the question is about, or a UserError: quick, before it is queued."""

    @abstractmethod
    def examples(self) -> list[str]: ...

    @abstractmethod
    def predict(self, questions: Sequence[PredictQuestion]) -> list[dict[str, Any]]:
        """Answers to questions that differ in their input (and prefix) only."""

    @abstractmethod
    def look(self, question: LookQuestion) -> dict[str, Any]: ...

    @abstractmethod
    def figure(self, question: FigureQuestion) -> bytes: ...

    def shown(self, maps: Sequence[AttentionMap]) -> list[dict[str, Any]]:
        """Maps as JSON with five digits: enough for eyes, a third of the bytes."""
        return [_shown(each) for each in self.within(maps, self.limits.weights)]

    def within(self, maps: Sequence[AttentionMap], most: int) -> Sequence[AttentionMap]:
        """The same maps, if they are not too many weights."""
        count = sum(each.weights.size for each in maps)
        if count > most:
            raise UserError(
                f"the answer would hold {count:,} weights, and {most:,} are allowed: "
                f"name fewer attentions with `only`, such as {maps[-1].name}"
            )
        return maps


class PictureReader(Served):
    """What runs that read pictures share."""

    reads = "image"

    def check(self, question: Any) -> None:
        if question.text is not None or getattr(question, "image", None) is None:
            raise UserError(
                f"the run {self.name} reads pictures: give `image`, a picture file in base64, and no `text`"
            )
        self.picture(question.image)

    def picture(self, encoded: str) -> Image.Image:
        """The picture, its size checked before a pixel is decoded."""
        _, comma, after = encoded.partition(",")
        try:
            content = b64decode(after if comma and encoded.startswith("data:") else encoded, validate=True)
        except (binascii.Error, ValueError):
            raise UserError("`image` is not base64: encode the bytes of a picture file, such as a PNG") from None
        picture = open_image(content, "the picture")
        columns, rows = picture.size
        if columns * rows > self.limits.pixels:
            raise UserError(
                f"the picture has {columns} × {rows} pixels, and {self.limits.pixels:,} in all are allowed: make it smaller"
            )
        return picture


class ImageRun(PictureReader):
    """Pictures in, classes out, with the attention over the picture or the path of the glimpses."""

    def examples(self) -> list[str]:
        task = self.run.task
        count = len(task.images.valid) if task.images.are_there else 0
        return [data_address(example_or_itself(task, f"valid:{place}")) for place in spread(count)]

    def predict(self, questions: Sequence[PredictQuestion]) -> list[dict[str, Any]]:
        pictures = [self.picture(str(question.image)) for question in questions]
        answers = self.run.task.predict(pictures, best=questions[0].best)
        return [{"run": self.name, "classes": answer.to_dict()["classes"]} for answer in answers]

    def look(self, question: LookQuestion) -> dict[str, Any]:
        task, picture = self.run.task, self.picture(str(question.image))
        if not self.attends():
            answer = task.predict([picture])[0].to_dict()
            pixels = task.picture(picture).transpose(1, 2, 0)
            return {"run": self.name, "classes": answer["classes"], "picture": shown_picture(pixels), "maps": []}
        view = seeing.look(task, picture, question.pixel, _chosen(question.only))
        assert view.picture is not None
        steps = [_glimpses(each.queries) for each in view.maps if isinstance(each.queries, Steps)]
        return {
            "run": self.name,
            "classes": view.answer["classes"],
            "picture": shown_picture(view.picture),
            "maps": self.shown(view.rows()),
            **({"glimpses": steps[0]} if steps else {}),
        }

    def figure(self, question: FigureQuestion) -> bytes:
        picture = self.picture(str(question.image))
        view = seeing.look(self.run.task, picture, question.pixel, _chosen(question.only))
        return view.png() if question.format == "png" else view.svg()


def _glimpses(steps: Steps) -> list[dict[str, Any]]:
    return [
        {
            "windows": [dict(zip(("row", "column", "side"), window, strict=True)) for window in windows],
            "probabilities": dict(zip(steps.classes, (round(share, 5) for share in shares), strict=True)),
        }
        for windows, shares in zip(steps.windows, steps.probabilities, strict=True)
    ]


def _chosen(only: str) -> str | None:
    """Whoever names no modules gets all that fit."""
    return None if only == "*" else only


def open_runs(paths: Sequence[Path], limits: Limits) -> dict[str, Served]:
    """Every run under the name of its directory; a second one of the same name gets a number."""
    from saccade.serve.captions import CaptionRun
    from saccade.serve.translations import TextRun

    kinds: dict[str, Callable[[str, Run, Limits], Served]] = {
        "translation": TextRun,
        "image_classes": ImageRun,
        "captions": CaptionRun,
    }
    runs: dict[str, Served] = {}
    for path in paths:
        run = Run(path)
        if run.recipe.task not in kinds:
            raise UserError(
                f"{path} is a run of the task {run.recipe.task}, which has no page yet: serve runs of {' or '.join(kinds)}"
            )
        base = run.path.resolve().name
        name, number = base, 2
        while name in runs:
            name, number = f"{base}-{number}", number + 1
        runs[name] = kinds[run.recipe.task](name, run, limits)
    return runs


def settings_of(question: PredictQuestion) -> dict[str, Any]:
    """What a question says about the search; to name a temperature is to ask for a sample."""
    settings = {name: getattr(question, name) for name in _SETTINGS if getattr(question, name) is not None}
    if question.search is None and (question.temperature, question.top_k, question.top_p) != (None, None, None):
        settings["search"] = "sample"
    return settings


def word_probabilities(tokenizer: Tokenizer, hypothesis: Hypothesis) -> list[dict[str, Any]]:
    """Every word with the product of its pieces' probabilities, the end included where it was reached."""
    tokens = [*hypothesis.tokens, EOS] if hypothesis.finished else hypothesis.tokens
    words = [END if word == "<eos>" else word for word in tokenizer.words(tokens)]
    log_probs = [0.0] * len(words)
    assert hypothesis.token_log_probs is not None
    for group, value in zip(tokenizer.word_groups(tokens), hypothesis.token_log_probs, strict=False):
        log_probs[group] += value
    return [{"text": word, "probability": math.exp(value)} for word, value in zip(words, log_probs, strict=True)]


def written(text: str, hypothesis: Hypothesis, tokenizer: Tokenizer) -> dict[str, Any]:
    """One output of a search as JSON."""
    return {
        "text": text,
        "score": hypothesis.score,
        "log_prob": hypothesis.log_prob,
        "finished": hypothesis.finished,
        "words": word_probabilities(tokenizer, hypothesis),
    }


def map_figure(maps: Sequence[AttentionMap], question: FigureQuestion, title: str) -> bytes:
    """Maps of words as a picture, one head of each if one is named."""
    chosen = [each if question.head is None else each.head(question.head) for each in maps]
    view = View(title, tuple(chosen))
    return view.png() if question.format == "png" else view.svg()


def _shown(attention: AttentionMap) -> dict[str, Any]:
    return {
        "name": attention.name,
        "queries": _axis(attention.queries),
        "keys": _axis(attention.keys),
        "label": attention.label,
        "query_title": attention.query_title,
        "key_title": attention.key_title,
        "weights": attention.weights.astype(float).round(5).tolist(),
    }


def _axis(axis: Axis) -> dict[str, Any]:
    if not isinstance(axis, Grid):
        return {"labels": labels(axis)}
    return {
        "labels": labels(axis),
        "rows": axis.rows,
        "columns": axis.columns,
        "extra": len(axis.extra),
        "cell": axis.cell,
    }


def spread(count: int) -> list[int]:
    """Some of `count` held-out examples, from the first to the last."""
    return [int(place) for place in np.linspace(0, max(count - 1, 0), min(_EXAMPLES, count))]


def shown_picture(pixels: NDArray[np.uint8]) -> dict[str, Any]:
    """Pixels (H, W, C) as the page gets them."""
    rows, columns = pixels.shape[:2]
    return {"rows": rows, "columns": columns, "address": data_address(pixels)}


def data_address(pixels: NDArray[np.uint8]) -> str:
    """Pixels (H, W), (H, W, 1) or (H, W, 3) as a PNG in a data: address."""
    written = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels).save(written, "PNG")
    return "data:image/png;base64," + b64encode(written.getvalue()).decode()
