"""How well a run predicts text: loss, perplexity, and bits per byte, which compare between vocabularies."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from saccade.data.text.lines import check_readable, read_lines
from saccade.data.text.running import encode_file
from saccade.data.text.shards import TokenStream
from saccade.layers.cross_entropy import linear_cross_entropy
from saccade.tasks.language_model.windows import consecutive
from saccade.tasks.task import Json, Probable, Scorer, SplitName

if TYPE_CHECKING:
    from saccade.tasks.language_model.options import LanguageOptions
    from saccade.tasks.language_model.task import LanguageModelTask


@dataclass(frozen=True)
class LanguageScores:
    total: float  # nats of all tokens
    tokens: int
    bytes: int
    text: str  # which one
    unknown: int = 0  # characters that are not in the vocabulary

    @property
    def loss(self) -> float:
        return self.total / max(self.tokens, 1)

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.loss, 100.0))

    @property
    def bits_per_byte(self) -> float:
        return self.total / math.log(2) / max(self.bytes, 1)

    def rows(self) -> list[tuple[str, str]]:
        rows = [
            ("loss per token", f"{self.loss:.4f}"),
            ("perplexity", f"{self.perplexity:.2f}"),
            ("bits per byte", f"{self.bits_per_byte:.4f}"),
            ("tokens", f"{self.tokens:,}"),
            ("bytes", f"{self.bytes:,}"),
            ("text", self.text),
        ]
        return rows + ([("unknown characters", f"{self.unknown:,}")] if self.unknown else [])

    def columns(self) -> list[tuple[str, list[str]]]:
        return []

    def compared(self) -> dict[str, float]:
        """More is better."""
        return {"negative bits per byte": -self.bits_per_byte, "negative loss": -self.loss}

    def to_dict(self) -> Json:
        return {
            "loss": self.loss,
            "perplexity": self.perplexity,
            "bits_per_byte": self.bits_per_byte,
            "tokens": self.tokens,
            "bytes": self.bytes,
            "text": self.text,
            "unknown_characters": self.unknown,
        }


def evaluate(task: "LanguageModelTask", split: SplitName, options: "LanguageOptions") -> LanguageScores:
    """On the run's own held-out text, all of it, or on another."""
    if options.data is not None:
        stream, count = encode_file(task.tokenizer, options.data, task.recipe.data.field)
        return LanguageScores(total_loss(task, stream), len(stream) - 1, count.bytes, str(options.data), count.unknown)
    stream, size = task.corpus.held_out(split)
    part = "test" if split == "test" and "test" in task.corpus.bytes else "validation"
    note = " (there is no other)" if split == "test" and part == "validation" else ""
    return LanguageScores(total_loss(task, stream), len(stream) - 1, size, f"the {part} part{note}")


@torch.no_grad()
def total_loss(task: "LanguageModelTask", stream: TokenStream) -> float:
    """Nats of every token after the first, in windows of the context that do not overlap."""
    task.model.eval()
    total = 0.0
    for part in consecutive(stream.tokens, task.context, task.begin):
        readouts, words = task.readouts(part.to(task.device))
        total += float(linear_cross_entropy(readouts, task.output, words)[0])
    return total


@torch.no_grad()
def log_probs(task: "LanguageModelTask", tokens: Sequence[int]) -> list[float]:
    """Of every token after the first, given as much before it as the model reads, at least half of its context where there is that much."""
    task.model.eval()
    found: list[float] = []
    stride = max(1, task.context // 2)
    for start in range(0, max(len(tokens) - 1, 1), stride):
        row = torch.tensor([tokens[start : start + task.context + 1]], device=task.device)
        if row.shape[1] < 2:
            break
        logits = task.gpt(row[:, :-1])[0].float().log_softmax(-1)
        values = logits.gather(1, row[0, 1:, None]).squeeze(1).tolist()
        found += values[len(found) - start :]
        if start + task.context + 1 >= len(tokens):
            break
    return found


def scorer(task: "LanguageModelTask") -> Scorer:
    def read(files: Sequence[Path]) -> list[str]:
        texts: list[str] = []
        for file in files:
            check_readable(file)
            texts += read_lines(file)
        return texts

    def score(texts: Sequence[str]) -> list[Probable]:
        return [_probable(task, text) for text in texts]

    return Scorer("text files: a text a line", read, score)


def _probable(task: "LanguageModelTask", text: str) -> Probable:
    tokens = task.prompt(text)
    values = log_probs(task, tokens)
    return Probable({"text": text}, sum(values), len(values))
