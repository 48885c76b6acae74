"""The attentions of a text classifier against what people marked in the texts, and against erasing what was looked at.

Words are what white space separates, as people marked them. A word's weight is what the class is read from pays to all of its tokens
(`class_row`); where a long text is read in windows, the mean over those that have the word. The comparison is |input × gradient| of the
answer's logit, and random words.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from saccade.data.text.labelled.files import Labelled
from saccade.data.text.spelling import Span, spaced, words_of_tokens
from saccade.metrics.rationales import RationaleScores, score_rationales
from saccade.tasks.text_classes.look import Read, class_rows, readings, recorded

if TYPE_CHECKING:
    from saccade.tasks.text_classes.task import TextClassTask

GRADIENT = "input × gradient"
_Row = NDArray[np.float64]


def evaluate_rationales(task: "TextClassTask", examples: Sequence[Labelled], most: int) -> RationaleScores | None:
    """Of the first `most` examples in which some words are marked and some are not; None where there is none, or nothing to look at."""
    known = [(example, _marked(example)) for example in examples if example.rationale]
    known = [(example, words) for example, words in known if 0 < words.sum() < len(words)][:most]
    if not known or not task.attends:
        return None
    texts = [example.text for example, _ in known]
    answers = task.judge(texts).argmax(1)
    weights = dict[str, list[_Row]]()
    for text, answer in zip(texts, answers.tolist(), strict=True):
        for name, row in _weighed(task, text, answer).items():
            weights.setdefault(name, []).append(row)
    words = [[text[start:end] for start, end in spaced(text)] for text in texts]

    def probability(kept: Sequence[NDArray[np.bool_]]) -> NDArray[np.float64]:
        shorter = [" ".join(np.array(each, object)[chosen]) for each, chosen in zip(words, kept, strict=True)]
        log_probabilities = task.judge(shorter)
        found: NDArray[np.float64] = np.exp(log_probabilities[np.arange(len(texts)), answers].astype(np.float64))
        return found

    return score_rationales(weights, [marked for _, marked in known], probability, GRADIENT)


def _marked(example: Labelled) -> NDArray[np.bool_]:
    """Which words people marked: those that a marked part reaches into."""
    spans: Sequence[Span] = example.rationale or ()
    return np.array([any(a < end and start < b for a, b in spans) for start, end in spaced(example.text)], bool)


def _weighed(task: "TextClassTask", text: str, answer: int) -> dict[str, _Row]:
    """The weight of every word, by every attention, rollout and the gradient."""
    parts = readings(task, text)
    words = spaced(parts[0].text)
    sums, counts = dict[str, _Row](), np.zeros(len(words))
    for read in parts:
        rows = {**class_rows(task, recorded(task, read)[0]), GRADIENT: _gradient(task, read, answer)}
        inside = [place for place, span in enumerate(read.spans) if span is not None]
        spans = [span for span in read.spans if span is not None]
        groups = words_of_tokens(read.text, spans, words)
        counts[np.unique(groups)] += 1
        for name, row in rows.items():
            total = sums.setdefault(name, np.zeros(len(words)))
            np.add.at(total, groups, row[inside])
    return {name: total / np.maximum(counts, 1) for name, total in sums.items()}


def _gradient(task: "TextClassTask", read: Read, answer: int) -> _Row:
    tokens = torch.tensor([read.tokens], device=task.device)
    embedding = task.model.embed if isinstance(task.model.embed, torch.nn.Embedding) else task.model.embed.words
    words = embedding(tokens).detach().requires_grad_()
    logits, _ = task.model.from_embedded(words, torch.tensor([tokens.shape[1]], device=task.device))
    (gradient,) = torch.autograd.grad(logits[0, answer], words)
    row: _Row = (words * gradient).sum(-1)[0].abs().detach().double().cpu().numpy()
    return row
