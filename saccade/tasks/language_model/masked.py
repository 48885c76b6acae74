"""Masked words (Devlin 2019): some tokens are chosen, and the model guesses them from both sides.

Of the chosen ones 80 % are replaced by the mask, 10 % by any other token, and 10 % stay as they are: the model cannot know which. The loss
is over the chosen ones alone. Special tokens are never chosen, nor shown in place of others. Every epoch masks anew; validation masks the
same tokens each time.

Axis legend: B windows, N tokens, P chosen tokens.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from saccade.attention import record_attention
from saccade.data.text.running import encode_file
from saccade.errors import UserError
from saccade.layers.cross_entropy import linear_cross_entropy
from saccade.models.bert import Bert, WordHead
from saccade.tasks.language_model.look import CHOICES, attention_view, beliefs_of
from saccade.tasks.language_model.options import MaskedOptions
from saccade.tasks.language_model.task import LanguageModelTask
from saccade.tasks.language_model.windows import Windows, consecutive
from saccade.tasks.task import Example, Export, Json, Loss, Question, Scorer, SplitName, Stream, Validation
from saccade.views.beliefs import Beliefs
from saccade.views.view import View

_MASK, _OTHER = 0.8, 0.1
_SEED = 1  # of what is masked in held-out text
_WRITTEN = re.compile(r"\[MASK\]|<mask>|\[mask\]")


@dataclass(frozen=True)
class MaskedScores:
    total: float
    right: int
    tokens: int  # that were guessed
    text: str

    @property
    def loss(self) -> float:
        return self.total / max(self.tokens, 1)

    @property
    def accuracy(self) -> float:
        return self.right / max(self.tokens, 1)

    def rows(self) -> list[tuple[str, str]]:
        return [
            ("loss per masked token", f"{self.loss:.4f}"),
            ("perplexity", f"{math.exp(min(self.loss, 100)):.2f}"),
            ("guessed right", f"{100 * self.accuracy:.1f} %"),
            ("masked tokens", f"{self.tokens:,}"),
            ("text", self.text),
        ]

    def columns(self) -> list[tuple[str, list[str]]]:
        return []

    def compared(self) -> dict[str, float]:
        """More is better."""
        return {"negative loss": -self.loss, "accuracy": self.accuracy}

    def to_dict(self) -> Json:
        return {"loss": self.loss, "accuracy": self.accuracy, "tokens": self.tokens, "text": self.text}


@dataclass(frozen=True)
class Filled:
    """A text and what could stand at each of its masks, likeliest first."""

    text: str
    guesses: list[list[tuple[str, float]]]
    wanted: int

    def lines(self) -> list[str]:
        return [self.filled(number) for number in range(self.wanted)]

    def filled(self, number: int = 0) -> str:
        """The text with guess `number` at each mask."""
        parts = _WRITTEN.split(self.text)
        text = parts[0]
        for guess, part in zip(self.guesses, parts[1:], strict=True):
            text += (guess[number][0] if number < len(guess) else "") + part
        return text

    def to_dict(self) -> Json:
        masks = [[{"text": text, "probability": share} for text, share in guess] for guess in self.guesses]
        return {"text": self.text, "filled": self.filled(), "masks": masks}


class MaskedModelTask(LanguageModelTask):
    """The same with a model that sees both sides."""

    context_setting = "model.max_length"

    @property
    def bert(self) -> Bert:
        assert isinstance(self.model, Bert)
        return self.model

    @property
    def head(self) -> WordHead:
        assert self.bert.words is not None
        return self.bert.words

    @property
    def context(self) -> int:
        return self.bert.max_length - (len(self.tokenizer.around([1]).ids) - 1)

    @property
    def mask(self) -> int:
        mask = self.tokenizer.special.mask
        if mask is None:
            raise UserError("this vocabulary has no token that stands for a masked word: take another")
        return mask

    # Training

    def _loss(self, batch: Windows) -> Loss:
        generator = torch.Generator().manual_seed(int(torch.randint(2**31, ())))
        readouts, words = self.guessed(batch, generator)
        return Loss(linear_cross_entropy(readouts, self.head.output, words)[0], len(words))

    def guessed(self, batch: Windows, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """What is read off at the chosen positions (P, D) before the output layer, and the tokens that stood there (P,)."""
        tokens = self.around(batch.tokens)
        read, chosen = self.hide(tokens.cpu(), generator)
        lengths = torch.full((len(tokens),), tokens.shape[1], device=self.device)
        x = self.bert.encode(read.to(self.device), lengths)[chosen.to(self.device)]
        return self.head.norm(nn.functional.gelu(self.head.dense(x))), tokens[chosen.to(self.device)]

    def around(self, tokens: Tensor) -> Tensor:
        """Windows (B, N) with the special tokens around each."""
        joined = self.tokenizer.around([])
        before, after = joined.ids[: joined.first], joined.ids[joined.first :]
        columns = [tokens.new_tensor(ids).expand(len(tokens), -1) for ids in (before, after)]
        return torch.cat((columns[0], tokens, columns[1]), 1)

    def hide(self, tokens: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """What the model reads instead of these tokens (B, N), and which of them it is to guess."""
        objective = self.recipe.objective
        special = torch.isin(tokens, torch.tensor(self.special))
        draw = torch.rand(tokens.shape, generator=generator)
        if objective.whole_words:
            draw = draw.gather(1, self._word_starts(tokens))
        chosen = (draw < objective.masked) & ~special
        if not chosen.any():  # a very short text
            chosen = (draw == draw.masked_fill(special, 2.0).min()) & ~special
        kind = torch.rand(tokens.shape, generator=generator)
        others = torch.randint(len(self.tokenizer), tokens.shape, generator=generator)
        others = torch.where(torch.isin(others, torch.tensor(self.special)), tokens, others)
        read = torch.where(chosen & (kind < _MASK), self.mask, tokens)
        read = torch.where(chosen & (kind >= _MASK) & (kind < _MASK + _OTHER), others, read)
        return read, chosen

    @property
    def special(self) -> list[int]:
        known = self.tokenizer.special
        tokens = {known.pad, known.first, known.last, known.unknown, known.mask, self.begin}
        return sorted(token for token in tokens if token is not None)

    def _word_starts(self, tokens: Tensor) -> Tensor:
        """For each token (B, N) where its word begins."""
        begins = ~torch.tensor(self.tokenizer.continues())[tokens]
        begins[:, 0] = True
        places = torch.arange(tokens.shape[1]).expand_as(tokens)
        return torch.where(begins, places, 0).cummax(1).values

    # Judging

    def validate(self) -> Validation:
        scores = self.evaluate("valid", MaskedOptions())
        perplexity = math.exp(min(scores.loss, 100))
        return Validation({"loss": scores.loss, "perplexity": perplexity, "accuracy": scores.accuracy}, -scores.loss)

    @torch.no_grad()
    def evaluate(self, split: SplitName, options: Any) -> MaskedScores:  # type: ignore[override]
        """On the run's own held-out text, or on another: some tokens of it, always the same."""
        if options.data is not None:
            stream, _ = encode_file(self.tokenizer, options.data, self.recipe.data.field)
            text = str(options.data)
        else:
            stream, _ = self.corpus.held_out(split)
            text = f"the {'test' if split == 'test' and 'test' in self.corpus.bytes else 'validation'} part"
        self.model.eval()
        generator, total, right, count = torch.Generator().manual_seed(_SEED), 0.0, 0, 0
        for part in consecutive(stream.tokens, self.context, self.begin):
            readouts, words = self.guessed(part, generator)
            total += float(linear_cross_entropy(readouts, self.head.output, words)[0])
            right += int((self.head.output(readouts).argmax(-1) == words).sum())
            count += len(words)
        return MaskedScores(total, right, count, text)

    def held_out(self, split: SplitName) -> Sequence[Example[str]]:
        """Beginnings of windows with a word masked."""
        beside = super().held_out(split)

        def example(number: int) -> Example[str]:
            words = beside[number].content.split(" ")
            place = max(range(len(words)), key=lambda at: (len(words[at]) > 3, at == len(words) // 2, -at))
            masked = " ".join("[MASK]" if at == place else word for at, word in enumerate(words))
            return Example(masked, f"{split}:{number}", words[place])

        from saccade.tasks.held_out import HeldOut

        return HeldOut(len(beside), example)

    # Predicting

    def tokens_of(self, text: str) -> tuple[list[int], list[int]]:
        """With special tokens around it and the mask where it is written, and the places of those masks: other tokens may equal it."""
        parts, ids, places = _WRITTEN.split(text), list[int](), list[int]()
        for number, part in enumerate(parts):
            if number:
                places.append(len(ids))
                ids.append(self.mask)
            ids += self.tokenizer.encode(part.rstrip(" ") if number < len(parts) - 1 else part)
        if len(ids) > self.context:
            raise UserError(
                f"the text has {len(ids):,} tokens and this model reads {self.context:,}: shorten it around its masks"
            )
        joined = self.tokenizer.around(ids)
        return joined.ids, [joined.first + place for place in places]

    @torch.no_grad()
    def shares(self, tokens: Sequence[int]) -> Tensor:
        """Probabilities (N, V) at every position."""
        self.model.eval()
        row = torch.tensor([tokens], device=self.device)
        x = self.bert.encode(row, torch.tensor([len(tokens)], device=self.device))
        logits = self.head(x)[0].float()
        special = torch.tensor(self.special, device=logits.device)
        shares: Tensor = logits.index_fill(1, special, -torch.inf).softmax(-1)
        return shares

    def answers(self, examples: Sequence[Example[str]], options: Any) -> Iterator[Filled]:  # type: ignore[override]
        texts = [example.content for example in examples]
        for number, text in enumerate(texts, start=1):
            if not _WRITTEN.search(text):
                raise UserError(
                    f"text {number} of {len(texts)} has nothing to fill in ({text[:40]!r}): write [MASK] or <mask> where a word is missing"
                )
        for text in texts:
            tokens, masks = self.tokens_of(text)
            shares = self.shares(tokens)
            values, words = shares[masks].topk(min(max(options.best, CHOICES), shares.shape[1]))
            guesses = [
                [(self.tokenizer.decode([word]).strip(), value) for word, value in zip(*row, strict=True)]
                for row in zip(words.tolist(), values.tolist(), strict=True)
            ]
            yield Filled(text, guesses, options.best)

    def parts(self, example: Example[str], options: Any) -> None:
        return None

    def notes(self, examples: Sequence[Example[str]], options: Any) -> list[str]:
        return []

    def look(self, example: Example[str], options: Any) -> View:
        tokens, masks = self.tokens_of(example.content)
        with record_attention(self.model) as recorded:
            shares = self.shares(tokens)
        pieces = self.tokenizer.pieces(tokens)
        labels = tuple("[mask]" if place in masks else piece for place, piece in enumerate(pieces))
        row = beliefs_of(
            self, shares, [None if place in masks else token for place, token in enumerate(tokens)], CHOICES
        )
        beliefs = Beliefs(labels, ("guess",), (row,), at_position=True)
        filled = next(self.answers([example], MaskedOptions())).filled() if _WRITTEN.search(example.content) else ""
        return attention_view(self, recorded, example.content, labels, beliefs, options.only, filled, example.truth)

    def questions(self) -> Sequence[Question[str]]:
        return ()

    def stream(self) -> Stream[str] | None:
        return None

    def scorer(self) -> Scorer | None:
        return None

    def exports(self) -> Mapping[str, Export]:
        from saccade.tasks.language_model.export import masked_exports

        return masked_exports(self)
