"""What did each token look at, and what did the model expect after it? The text is read once while recording.

The logit lens (nostalgebraist 2020) reads what every layer would say if it were the last one: the output layer applied to the normalised
residual after it. A head can be cut meanwhile: it then attends to nothing.

Axis legend: L layers, N tokens, V vocabulary.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import torch
from pydantic import Field
from torch import Tensor

from saccade.attention import Attend, record_attention
from saccade.attention.intervening import change_attention, cut
from saccade.attention.recording import Recording
from saccade.config.recipe import Config
from saccade.errors import UserError
from saccade.tasks.language_model.writing_on import Written, write
from saccade.tasks.task import Example, Json, Question
from saccade.tasks.words import BEGIN, END
from saccade.views.axes import Tokens
from saccade.views.beliefs import Belief, Beliefs
from saccade.views.maps import AttentionMap
from saccade.views.overview import overview, panels
from saccade.views.view import View

if TYPE_CHECKING:
    from saccade.tasks.language_model.options import LanguageOptions
    from saccade.tasks.language_model.task import LanguageModelTask

CHOICES = 8  # tokens after each position


def look(task: "LanguageModelTask", example: Example[str], options: "LanguageOptions") -> View:
    """The attention modules whose name matches, over the text and, where tokens are asked for, what the model writes after it."""
    text = example.content
    if options.tokens:
        written = Written(text)
        for _ in write(task, written, options.decode(task.recipe.decode), options.stops):
            pass
        text += written.text
    tokens = _tokens(task, text)
    with record_attention(task.model) as recorded:
        beliefs = expected(task, tokens)
    known = [belief.truth_probability for belief in beliefs.final if belief.truth is not None]
    loss = -sum(math.log(max(probability, 1e-30)) for probability in known) / max(len(known), 1)
    view = attention_view(task, recorded, text, labels(task, tokens), beliefs, options.only)
    return replace(view, answer={"text": text, "loss": loss})


def attention_view(
    task: "LanguageModelTask",
    recorded: Recording,
    text: str,
    names: tuple[str, ...],
    beliefs: Beliefs,
    only: str | None,
    answer: str = "",
    truth: str | None = None,
) -> View:
    """What was recorded of one text, whose tokens have these names."""
    model: Any = task.model

    def labelled(name: str) -> AttentionMap:
        queries, keys = model.attention_axes(name, {"text": Tokens(names)})
        weights = recorded.joined(name)[0][:, : len(names), : len(names)]  # without padding
        return AttentionMap(name, weights, queries, keys, "reads", "looks at")

    maps = [labelled(name) for name in recorded if fnmatchcase(name, only or "*")]
    if not maps:
        raise UserError(f"no attention of this model matches {only!r}: it has {', '.join(recorded)}")
    summary = tuple(overview(maps, "looks at")) if only is None else ()
    drawn, all_panels = sum(map(panels, summary or maps)), sum(map(panels, maps))
    hint = f"shows {drawn} averages of {all_panels} panels: --only '*' draws every layer and head, and .html holds them all"
    return View(
        title=text.strip() or BEGIN,
        maps=tuple(maps),
        text=answer,
        truth=truth,
        beliefs=beliefs,
        summary=summary if drawn < all_panels else (),
        hint=hint if drawn < all_panels else "",
    )


def _tokens(task: "LanguageModelTask", text: str) -> list[int]:
    """Those that the model reads: the last of a text that is longer than its context."""
    return task.prompt(text)[-task.context :]


def labels(task: "LanguageModelTask", tokens: Sequence[int]) -> tuple[str, ...]:
    pieces = task.tokenizer.pieces(tokens)
    return tuple(BEGIN if token == task.begin else piece for token, piece in zip(tokens, pieces, strict=True))


@torch.no_grad()
def expected(task: "LanguageModelTask", tokens: Sequence[int]) -> Beliefs:
    """What comes after each token, as each layer would say."""
    task.model.eval()
    row = torch.tensor([tokens], device=task.device)
    rows = [task.gpt.output(task.gpt.norm(x))[0].float().softmax(-1) for x in task.gpt.residuals(row)]
    names = ("before the first layer", *(f"layer {number}" for number in range(len(rows) - 1)))
    following = [*tokens[1:], None]
    table = tuple(beliefs_of(task, shares, following, CHOICES if shares is rows[-1] else 1) for shares in rows)
    return Beliefs(labels(task, tokens), names, table)


def beliefs_of(
    task: "LanguageModelTask", shares: Tensor, truths: Sequence[int | None], count: int
) -> tuple[Belief, ...]:
    """From probabilities (N, V), and what really stands there."""
    values, places = shares.topk(min(count, shares.shape[1]))
    pieces = labels_after(task, places.flatten().tolist())
    width = places.shape[1]
    return tuple(
        Belief(
            tuple(zip(pieces[n * width : (n + 1) * width], values[n].tolist(), strict=True)),
            None if after is None else labels_after(task, [after])[0],
            1.0 if after is None else float(shares[n, after]),
        )
        for n, after in enumerate(truths)
    )


def labels_after(task: "LanguageModelTask", tokens: Sequence[int]) -> list[str]:
    """Each token by itself, as something that may come next."""
    ends = {task.begin, task.tokenizer.special.last}
    return [END if token in ends else task.tokenizer.pieces([token])[0] for token in tokens]


# Questions of the page


class HeadFields(Config):
    map: str = Field(max_length=200, description="the name of an attention module, as /api/look gives it")
    head: int = Field(ge=0, le=1000, description="which head")


class NextFields(Config):
    temperature: float = Field(1.0, ge=0, le=1000, description="below 1 is surer, above 1 bolder; 0 leaves one")
    count: int = Field(12, ge=1, le=100, description="how many of the likeliest tokens")
    cut: list[HeadFields] = Field(default_factory=list, max_length=200, description="heads that attend to nothing")


def questions(task: "LanguageModelTask") -> list[Question[str]]:
    return [
        Question(
            "next",
            "The likeliest tokens after a text, at a temperature and with heads cut",
            NextFields,
            lambda example, fields: following(task, example.content, fields),
            {"temperature": 0.8},
        )
    ]


@torch.no_grad()
def following(task: "LanguageModelTask", text: str, fields: NextFields) -> Json:
    task.model.eval()
    row = torch.tensor([_tokens(task, text)], device=task.device)
    with without(task, fields.cut):
        logits = task.gpt(row)[0, -1].float()
    shares = torch.softmax(logits / max(fields.temperature, 1e-3), 0)
    values, places = shares.topk(min(fields.count, len(shares)))
    entropy = -(shares * shares.clamp(min=1e-30).log()).sum().item() / math.log(2)
    names = labels_after(task, places.tolist())
    spelled = [task.tokenizer.decode([token]) for token in places.tolist()]
    return {
        "choices": [
            {"class": name, "text": text, "probability": probability}
            for name, text, probability in zip(names, spelled, values.tolist(), strict=True)
        ],
        "bits": entropy,
    }


def without(task: "LanguageModelTask", heads: Sequence[HeadFields]) -> AbstractContextManager[None]:
    """Meanwhile these heads attend to nothing."""
    by_name: dict[str, list[int]] = defaultdict(list)
    names = [name for name, module in task.model.named_modules() if isinstance(module, Attend)]
    for head in heads:
        if head.map not in names:
            raise UserError(f"no attention module is called {head.map!r}: choose {', '.join(names)}")
        by_name[head.map].append(head.head)
    return change_attention(task.model, {name: cut(numbers) for name, numbers in by_name.items()})
