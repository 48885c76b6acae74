"""What did the model look at in this text? One forward pass while recording, subwords merged to the words of the text.

First stands what the class is read from: [class] × words, one row for each attention. Where it is read from the first token, that is this
token's row; where it is read from the mean of all words, the mean of their rows, which is the same thing, since means add up; of several
looks, their mean. Layers over the same words are also multiplied into one (rollout).

Axis legend: H heads, Q queries, K keys, N tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from saccade.attention import Attend, record_attention
from saccade.data.text.labelled.files import one_line
from saccade.data.text.spelling import Span, words_of, words_of_tokens
from saccade.errors import UserError
from saccade.tasks.task import Example
from saccade.tasks.text_classes.options import TextOptions
from saccade.views.axes import Tokens
from saccade.views.maps import AttentionMap
from saccade.views.merging import merge_words
from saccade.views.rollout import rollout
from saccade.views.view import View

if TYPE_CHECKING:
    from saccade.tasks.text_classes.task import TextClassTask

Weights = NDArray[np.float32]
CLASS, BEGIN, END = "[class]", "[begin]", "[end]"
NO_ATTENTION = "this model has no attention to look at: train one with model.attention=self, or a bert"


@dataclass(frozen=True)
class Read:
    """One reading of a text: the tokens that stood before the model, and where each stands in the text (None: it is a special one)."""

    text: str
    tokens: list[int]
    spans: list[Span | None]
    part: int  # which of the readings of a long text
    parts: int


def readings(task: "TextClassTask", text: str) -> list[Read]:
    """All readings of a text: one, unless it is long and read in windows."""
    text = one_line(text)
    covered = task.tokenizer.encode_with_offsets(text)
    parts = task.texts.reading.parts(len(covered.ids))
    found = []
    for number, part in enumerate(parts):
        ids, spans = [covered.ids[place] for place in part], [covered.offsets[place] for place in part]
        if not task.takes_special:
            found.append(Read(text, ids, list(spans), number, len(parts)))
            continue
        joined = task.tokenizer.around(ids)
        after = len(joined.ids) - joined.first - len(ids)
        found.append(Read(text, joined.ids, [*[None] * joined.first, *spans, *[None] * after], number, len(parts)))
    return found


@torch.no_grad()
def recorded(task: "TextClassTask", read: Read, only: str = "*") -> tuple[dict[str, Weights], NDArray[np.float32]]:
    """The weights (H, Q, N) of every attention over the tokens of a reading, and the probabilities of the classes."""
    task.model.eval()
    tokens = torch.tensor([read.tokens or [task.tokenizer.special.pad]], device=task.device)
    lengths = torch.tensor([tokens.shape[1]], device=task.device)
    names = [name for name, module in task.model.named_modules() if isinstance(module, Attend)]
    matching = [name for name in names if fnmatchcase(name, only)]
    if names and not matching:
        raise UserError(f"no attention of this model matches {only!r}: it has {', '.join(names)}")
    with record_attention(task.model, matching) as recording:
        logits = task.model(tokens, lengths)
    weights = {name: recording.joined(name)[0] for name in recording}
    shaped = {name: (each[None] if each.dim() == 2 else each).float().cpu().numpy() for name, each in weights.items()}
    return shaped, logits[0].float().softmax(-1).cpu().numpy()


def class_row(task: "TextClassTask", weights: Weights) -> NDArray[np.float64]:
    """What the class is read from, over the tokens: (H, Q, N) → (N,)."""
    mean = weights.mean(0, dtype=np.float64)
    row: NDArray[np.float64] = mean[0] if task.recipe.model.reads_first_token else mean.mean(0)
    return row


def look(task: "TextClassTask", example: Example[str], options: TextOptions) -> View:
    read, weights, probabilities = _likeliest(task, example.content, options.only or "*")
    order = np.argsort(-probabilities, kind="stable")
    answer, share = task.classes[order[0]], probabilities[order[0]]
    others = ", ".join(f"{task.classes[number]} {probabilities[number]:.2f}" for number in order[1:4])
    windows = f"window {read.part + 1} of {read.parts}, the surest" if read.parts > 1 else ""
    left = "" if read.parts > 1 else _left_out(task, read)
    remarks = [f"else {others}", windows, left]
    head: dict[str, Any] = {
        "title": f"{answer} (probability {share:.2f})",
        "text": f"{answer} (probability {share:.2f})",
        "answer": {
            "source": example.content,
            "classes": [{"class": task.classes[n], "probability": float(probabilities[n])} for n in order],
        },
        "subtitle": " · ".join(part for part in remarks if part),
        "truth": example.truth,
        "source": example.name,
    }
    if not weights:
        return View(**head, maps=(), hint=NO_ATTENTION)
    labels, groups = _labels(task, read, options.tokens)
    layers = [_map(task, name, each, labels, groups) for name, each in weights.items()]
    rows = _class_maps(task, weights, labels, groups)
    summary = tuple(rows) if options.only is None else ()
    hint = "--only '*' draws every head of every layer" if summary and len(weights) + len(rows) > len(summary) else ""
    return View(**head, maps=(*rows, *layers), summary=summary, hint=hint)


def _likeliest(task: "TextClassTask", text: str, only: str) -> tuple[Read, dict[str, Weights], NDArray[np.float32]]:
    """The reading whose answer is the surest, of a long text in windows."""
    found = [(read, *recorded(task, read, only)) for read in readings(task, text)]
    return max(found, key=lambda each: float(each[2].max()))


def _left_out(task: "TextClassTask", read: Read) -> str:
    whole = len(task.tokenizer.encode_with_offsets(read.text).ids)
    count = sum(span is not None for span in read.spans)
    return f"{count:,} of {whole:,} tokens were read" if count < whole else ""


def _labels(task: "TextClassTask", read: Read, as_tokens: bool) -> tuple[list[str], list[int]]:
    """What stands along an axis, and which of it each token belongs to. Special tokens stand for themselves."""
    text, spans = read.text, read.spans
    inside = [span for span in spans if span is not None]
    words = words_of_tokens(text, inside, words_of(text)) if not as_tokens else list(range(len(inside)))
    known = iter(zip(inside, words, strict=True))
    labels, groups, last = list[str](), list[int](), None
    for place, span in enumerate(spans):
        if span is None:
            labels.append(CLASS if place == 0 and task.recipe.model.reads_first_token else BEGIN if place == 0 else END)
            last = None
        else:
            (start, end), word = next(known)
            if word == last:
                labels[-1] = text[start:end] if not labels[-1] else labels[-1]
                groups.append(len(labels) - 1)
                continue
            first, stop = words_of(text)[word] if not as_tokens else (start, end)
            labels.append(text[first:stop] or "∅")
            last = word
        groups.append(len(labels) - 1)
    return (labels, groups) if spans else (["∅"], [0])


def _map(
    task: "TextClassTask", name: str, weights: Weights, labels: Sequence[str], groups: Sequence[int]
) -> AttentionMap:
    axis = Tokens(tuple(labels))
    queries, keys = task.model.attention_axes(name, {"text": axis})
    of_queries = groups if queries == axis else range(weights.shape[1])
    return AttentionMap(
        name, merge_words(weights, list(of_queries), list(groups)), queries, keys, "looks from", "looks at"
    )


def class_rows(task: "TextClassTask", weights: dict[str, Weights]) -> dict[str, NDArray[np.float64]]:
    """What the class is read from, over the tokens (N,): through all layers together, then of each attention, the last one first."""
    found = dict[str, NDArray[np.float64]]()
    size = next(iter(weights.values())).shape[-1]
    if len(weights) > 1 and all(each.shape[1:] == (size, size) for each in weights.values()):
        tokens = Tokens(tuple(map(str, range(size))))
        flow = rollout([AttentionMap(name, each, tokens, tokens) for name, each in weights.items()])
        found[flow.name] = class_row(task, flow.weights)
    return {**found, **{name: class_row(task, each) for name, each in reversed(weights.items())}}


def _class_maps(
    task: "TextClassTask", weights: dict[str, Weights], labels: Sequence[str], groups: Sequence[int]
) -> list[AttentionMap]:
    """[class] × words."""
    queries, keys = Tokens((CLASS,)), Tokens(tuple(labels))
    return [
        AttentionMap(
            f"{CLASS}, {name}", merge_words(row[None, None], [0], list(groups)), queries, keys, "class", "text"
        )
        for name, row in class_rows(task, weights).items()
    ]
