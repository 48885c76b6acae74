"""How texts become batches, and batches logits: by words and their letters, or by the tokens of a pretrained encoder (bert), which reads
question and context as one text.

Axis legend: B windows of the batch, N tokens of question and context in one, C longest context.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from saccade.config.recipe import Recipe
from saccade.data.questions.batching import QuestionBatch, Window, collate
from saccade.data.questions.dataset import QuestionsConfig
from saccade.data.questions.exercises import Exercise
from saccade.data.questions.words import Cut, Lexicon, cut
from saccade.data.text.spelling import Joined, Spelled
from saccade.data.text.tokenizer import Tokenizer
from saccade.data.text.vectors import WordVectors, read_vectors
from saccade.data.text.vocabulary import load_tokenizer, save_tokenizer, starting_tokenizer
from saccade.errors import ConfigError, Say, UserError
from saccade.models import bert
from saccade.models.shapes import Shapes

_VOCABULARY = "vocabulary.json"


@dataclass(frozen=True)
class PairBatch:
    """Questions and contexts, each pair one text."""

    tokens: Tensor  # (B, N)
    lengths: Tensor  # (B,)
    segments: Tensor  # (B, N)
    places: Tensor  # (B, 1 + C) the first token, which stands for "no answer", then the tokens of the context
    inside: Tensor  # (B, 1 + C) whether it is one
    rows: Tensor  # as in QuestionBatch
    starts: Tensor
    ends: Tensor

    def __len__(self) -> int:
        return len(self.tokens)

    def to(self, device: torch.device | str) -> "PairBatch":
        return PairBatch(**{field.name: getattr(self, field.name).to(device) for field in fields(self)})


Batch = QuestionBatch | PairBatch


class Reader(Protocol):
    @property
    def shapes(self) -> Shapes: ...
    def cut(self, text: str) -> Cut: ...
    def room(self, question: Cut, wanted: int) -> int:
        """How much of a context the model reads beside this question, where so much is wanted."""
        ...

    def collate(self, chosen: Sequence[Window]) -> Batch: ...
    def places(self, window: Window) -> tuple[slice, slice]:
        """Where question and context stand, where the model reads both as one text."""
        ...

    def logits(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Of the first and the last word, (B, 1 + C) each."""
        ...


class WordReader:
    """Words, told apart by their letters where they are unknown."""

    def __init__(self, lexicon: Lexicon):
        self.lexicon = lexicon
        self.cut = lru_cache(maxsize=2048)(cut)  # several questions ask about one context

    @property
    def shapes(self) -> Shapes:
        return Shapes(source_words=len(self.lexicon), letters=self.lexicon.letter_count)

    @classmethod
    def learn(cls, data: QuestionsConfig, train: Sequence[Exercise], vectors: WordVectors | None) -> "WordReader":
        counts: Counter[str] = Counter()
        for context in dict.fromkeys(exercise.context for exercise in train):
            counts.update(cut(context).words)
        for exercise in train:
            counts.update(cut(exercise.question).words)
        least = 2 if data.corpus == "files" else 1
        known = () if vectors is None else vectors.words
        return cls(Lexicon.learn(counts, data.vocab_size, data.lowercase, least, known))

    def room(self, question: Cut, wanted: int) -> int:
        return wanted

    def collate(self, chosen: Sequence[Window]) -> QuestionBatch:
        return collate(chosen, self.lexicon)

    def logits(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        start, end = model(batch)
        return start, end

    def places(self, window: Window) -> tuple[slice, slice]:
        return slice(0, len(window.question)), slice(len(window.question), len(window.question) + len(window))

    @torch.no_grad()
    def take(self, vectors: WordVectors, model: nn.Module, say: Say) -> None:
        """Puts word vectors in the place of those that were drawn."""
        weight = model.get_parameter("words.embed.weight")
        if vectors.size != weight.shape[1]:
            raise ConfigError(
                f"the vectors of model.vectors have {vectors.size} numbers and model.embedding is {weight.shape[1]}: "
                f"set model.embedding={vectors.size}"
            )
        rows = {word: row for row, word in enumerate(vectors.words)}
        known = [(number, rows[word]) for number, word in enumerate(self.lexicon.words, start=2) if word in rows]
        taken = torch.from_numpy(vectors.matrix[[row for _, row in known]]).to(weight.device)
        weight[torch.tensor([number for number, _ in known], device=weight.device)] = taken
        say(f"{len(known):,} of {len(self.lexicon.words):,} words have a vector")


class TokenReader:
    """[class] question [end] context [end], in the tokens of a pretrained encoder."""

    def __init__(self, tokenizer: Spelled, longest: int, segments: int):
        self.tokenizer, self.longest, self.segments = tokenizer, longest, segments
        self.cut = lru_cache(maxsize=2048)(self._cut)

    @property
    def shapes(self) -> Shapes:
        return Shapes(source_words=len(self.tokenizer), spans=True)

    def _cut(self, text: str) -> Cut:
        """A token that covers white space before its word begins with the word."""
        encoded = self.tokenizer.encode_with_offsets(text)
        pieces = [text[start:end] for start, end in encoded.offsets]
        starts = [
            min(start + len(piece) - len(piece.lstrip()), end)
            for piece, (start, end) in zip(pieces, encoded.offsets, strict=True)
        ]
        words = tuple(self.tokenizer.pieces(encoded.ids))
        return Cut(words, tuple(starts), tuple(end for _, end in encoded.offsets), encoded.ids)

    def room(self, question: Cut, wanted: int) -> int:
        room = min(wanted, self.longest - len(self.joined(question.ids, ()).ids))
        if room < 1:
            raise UserError(
                f"the question has {len(question):,} tokens, and with the context this model reads {self.longest:,}: shorten it"
            )
        return room

    def joined(self, question: Sequence[int], context: Sequence[int]) -> Joined:
        return self.tokenizer.around(question, context)

    def collate(self, chosen: Sequence[Window]) -> PairBatch:
        texts = [self.joined(window.question.ids, window.context.ids[window.first : window.last]) for window in chosen]
        places = [
            torch.tensor([0, *range(text.second, text.second + len(window))])
            for text, window in zip(texts, chosen, strict=True)
        ]
        right = [(row, *span) for row, window in enumerate(chosen) for span in window.spans]
        rows, starts, ends = torch.tensor(right, dtype=torch.int64).reshape(-1, 3).unbind(1)
        lengths = torch.tensor([len(place) for place in places])
        kinds = [torch.tensor(text.segments).clamp(max=self.segments - 1) for text in texts]
        return PairBatch(
            tokens=_padded([torch.tensor(text.ids) for text in texts], self.tokenizer.special.pad),
            lengths=torch.tensor([len(text.ids) for text in texts]),
            segments=_padded(kinds),
            places=_padded(places),
            inside=torch.arange(int(lengths.max())) < lengths[:, None],
            rows=rows,
            starts=starts,
            ends=ends,
        )

    def places(self, window: Window) -> tuple[slice, slice]:
        text = self.joined(window.question.ids, window.context.ids[window.first : window.last])
        return slice(text.first, text.first + len(window.question)), slice(text.second, text.second + len(window))

    def logits(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        assert isinstance(batch, PairBatch)
        both = model(batch.tokens, batch.lengths, batch.segments)  # (B, N, 2)
        chosen = both.gather(1, batch.places[..., None].expand(-1, -1, 2))  # (B, 1 + C, 2)
        start, end = chosen.masked_fill(~batch.inside[..., None], -torch.inf).unbind(-1)
        return start, end


def _padded(rows: Sequence[Tensor], value: int = 0) -> Tensor:
    return pad_sequence(list(rows), batch_first=True, padding_value=value)


def new_reader(
    recipe: Recipe, train: Sequence[Exercise], directory: Path, say: Say
) -> tuple[Reader, WordVectors | None]:
    """The reader that the recipe's model needs, with its vocabulary in the directory; and vectors of words, where the recipe names some."""
    if isinstance(recipe.model, bert.Config):
        tokenizer = starting_tokenizer(recipe.start, say)
        if tokenizer is None:
            texts = dict.fromkeys(text for one in train for text in (one.context, one.question))
            tokenizer = Tokenizer.train(texts, "bpe", recipe.data.vocab_size, recipe.data.lowercase)
        save_tokenizer(tokenizer, directory)
        return TokenReader(tokenizer, recipe.model.max_length, recipe.model.segments), None
    path = getattr(recipe.model, "vectors", None)
    vectors = None if path is None else read_vectors(path)
    reader = WordReader.learn(recipe.data, train, vectors)
    reader.lexicon.save(directory / _VOCABULARY)
    say(f"a vocabulary of {len(reader.lexicon.words):,} words and {len(reader.lexicon.letters):,} letters")
    return reader, vectors


def open_reader(recipe: Recipe, directory: Path) -> Reader:
    if isinstance(recipe.model, bert.Config):
        return TokenReader(load_tokenizer(directory), recipe.model.max_length, recipe.model.segments)
    return WordReader(Lexicon.load(directory / _VOCABULARY))
