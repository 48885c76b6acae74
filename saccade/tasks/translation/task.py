"""Translation: a sentence in, a sentence out, from any pair of aligned texts.

The objective is the cross-entropy of the next token with label smoothing, summed over tokens that are not padding; what is reported as
perplexity is always the plain one. Where attention samples (hard selection), REINFORCE is part of the same objective: the reward of a
look is the log-probability of the word it led to, the baseline its mean over the batch (Xu 2015 uses a moving mean over batches).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from saccade.config.recipe import Config as BaseConfig
from saccade.config.recipe import Recipe
from saccade.data.text import corpus as corpora
from saccade.data.text.batching import PairBatch, TokenBatches, collate
from saccade.data.text.corpus import Corpus, CorpusConfig
from saccade.data.text.pairs import as_line, counted, normalise
from saccade.data.text.shards import TokenPairs
from saccade.data.text.tokenizer import PAD, UNK
from saccade.decoding import Hypothesis, max_target_length
from saccade.errors import UserError
from saccade.layers.consistency import consistent_cross_entropy
from saccade.layers.cross_entropy import linear_cross_entropy
from saccade.layers.pointer import PointerOutput
from saccade.metrics.bleu import TranslationScores, score_translations
from saccade.models.shapes import Shapes
from saccade.tasks.held_out import HeldOut
from saccade.tasks.inputs import Text
from saccade.tasks.task import (
    Example,
    Export,
    Loss,
    Question,
    Say,
    Scorer,
    SplitName,
    Step,
    Stream,
    Trained,
    Validation,
    build_model,
    device,
    trainable,
)
from saccade.tasks.translation import evaluating, exploring
from saccade.tasks.translation.options import TranslationOptions
from saccade.tasks.words import words_of
from saccade.tasks.writing import DecodeConfig, Written, found_in_order, generate, looks_at
from saccade.views.view import View


class ObjectiveConfig(BaseConfig):
    label_smoothing: float = Field(0.1, ge=0, lt=1)
    consistency: float = Field(
        0.0,
        ge=0,
        description="R-Drop: weight of the agreement of two forward passes with different dropout; 5 is usual, twice the time",
    )
    reinforce: float = Field(1.0, ge=0, description="hard attention: weight of the REINFORCE term")
    best_by: Literal["bleu", "perplexity"] = Field(
        "bleu",
        description="which figure of a validation says which checkpoint is kept; perplexity is less noisy",
    )


class EvaluateConfig(BaseConfig):
    rouge: bool = Field(
        False, description="also score by ROUGE, as summaries are, beside the first sentence of the source"
    )


class Config(BaseConfig):
    model_kind: ClassVar[str] = "sequence-to-sequence"

    data: CorpusConfig
    objective: ObjectiveConfig
    decode: DecodeConfig
    evaluate: EvaluateConfig

    @model_validator(mode="after")
    def _data_and_model_fit(self) -> "Config":
        """What only both sections together can tell, before any work starts."""
        model = getattr(self, "model", None)
        if getattr(model, "shared", False) and not self.data.joint:
            raise ValueError(
                "model.shared needs one vocabulary for both sides: set data.joint to true or model.shared to false"
            )
        if getattr(model, "copies", False):
            self._check_copying()
        if getattr(model, "selection", "soft") != "hard" and self.objective.reinforce != 1.0:
            raise ValueError(
                f"objective.reinforce = {self.objective.reinforce:g} is for model.selection=hard: leave it out"
            )
        bounded = {getattr(model, name, None) for name in ("positions", "score", "attention")} & {"learned", "location"}
        needed = max(self.data.max_length, self.decode.max_length) + 1  # the end or begin token
        if bounded and getattr(model, "max_length", needed) < needed:
            raise ValueError(
                f"{bounded.pop()} positions end at model.max_length = {getattr(model, 'max_length', 0)}, "
                f"but sentences may have {needed} tokens: "
                f"set model.max_length to {needed} or more, or data.max_length and decode.max_length to less"
            )
        return self

    def _check_copying(self) -> None:
        if not self.data.joint or self.data.tokenizer == "words":
            raise ValueError(
                "model.copies needs one vocabulary of subwords or characters for both sides, which spell words that were never seen: "
                "set data.joint=true and data.tokenizer=bpe"
            )
        if self.objective.consistency:
            raise ValueError(
                "objective.consistency is for models that do not copy: leave it out, or set model.copies=false"
            )


class Translation(Written):
    """One translated sentence, best hypothesis first."""

    called = "translations"


class TranslationTask(Trained[str, TranslationOptions]):
    unit = "tokens"

    def __init__(self, recipe: Recipe, corpus: Corpus):
        self.recipe = recipe
        self.corpus = corpus
        self.vocabularies = corpus.vocabularies
        self.device = device()
        shapes = Shapes(source_words=len(self.vocabularies.source), target_words=len(self.vocabularies.target))
        self.model = build_model(recipe, shapes, self.device)

    @classmethod
    def prepare(cls, recipe: Recipe, directory: Path, say: Say) -> "TranslationTask":
        """A new run: the corpus is read and tokenised into the directory."""
        corpus = corpora.prepare(recipe.data, directory, say, recipe.start)
        if getattr(recipe.model, "size", None) == "auto":
            pairs = len(corpus.train)
            recipe = recipe.model_copy(update={"model": recipe.model.fitted(pairs)})
            say(f"model.size {recipe.model.size}, chosen for {counted(pairs, 'pair')}: {recipe.model.sizes}")
        task = cls(recipe, corpus)
        say(f"{100 * task.batches(0, 1).padding_share(0):.1f} % of a batch is padding on average")
        return task

    @classmethod
    def reopen(cls, recipe: Recipe, directory: Path) -> "TranslationTask":
        return cls(recipe, corpora.reopen(directory))

    @classmethod
    def options(cls, recipe: Recipe) -> type[TranslationOptions]:
        return TranslationOptions

    @property
    def input(self) -> Text:
        return Text(self.problems, self.unknown_words)

    @property
    def attends(self) -> bool:
        return bool(looks_at(self.model, "target", "source"))

    # Training

    def steps(self) -> list[Step]:
        reinforced = getattr(self.recipe.model, "selection", "soft") == "hard"
        objective = self.recipe.objective
        loss_is_more = reinforced or objective.label_smoothing > 0 or objective.consistency > 0
        shown = ("cross-entropy",) if loss_is_more else ()
        return [Step("loss", trainable([self.model]), self._loss, shown)]

    def epoch(self, number: int, rank: int, world: int) -> Sequence[np.ndarray[Any, Any]]:
        return self.batches(rank, world).epoch(number)

    def batches(self, rank: int, world: int) -> TokenBatches:
        seed, tokens = self.recipe.train.seed, self.recipe.data.batch_tokens
        return TokenBatches(*self.corpus.train.lengths, tokens, seed=seed, shard=(rank, world))

    def batch(self, work: np.ndarray[Any, Any]) -> PairBatch | None:
        return collate(self.corpus.train, work).to(self.device) if len(work) else None

    def describe(self, work: np.ndarray[Any, Any]) -> str:
        first = self.vocabularies.source.decode(self.corpus.train[int(work[0])][0]) if len(work) else "no pair"
        return f"{len(work)} pairs, the first: {first!r}"

    def _loss(self, batch: PairBatch) -> Loss:
        smoothing, consistency = self.recipe.objective.label_smoothing, self.recipe.objective.consistency
        if consistency:
            batch = batch.twice()
        readouts, words, log_prob = self.readouts(batch)
        if consistency:
            total, nll = consistent_cross_entropy(readouts, self._linear, words, smoothing, consistency)
        else:
            total, nll = self.cross_entropy(readouts, words, smoothing)
        if log_prob.dim():
            advantage = nll.mean() - nll
            total = total - self.recipe.objective.reinforce * (advantage * log_prob[batch.target_out != PAD]).sum()
        return Loss(total, len(words), {"cross-entropy": float(nll.sum())})

    def readouts(self, batch: PairBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Readouts (tokens, D) of the words that are not padding, those words (tokens,), and attention's log-probability."""
        real = batch.target_out != PAD
        if getattr(self.model, "packs", False):
            lengths = batch.source_lengths, batch.target_lengths
            readouts = self.stepper.read_packed(batch.source, lengths[0], batch.target_in, lengths[1])
            return readouts, batch.target_out[real], readouts.new_zeros(())
        encoded = self.stepper.encode(batch.source, batch.source_lengths)
        readouts, log_prob = self.stepper.read(encoded, batch.target_in)
        return readouts[real], batch.target_out[real], log_prob

    def cross_entropy(self, readouts: Tensor, words: Tensor, label_smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """The smoothed loss summed over all words, and the plain negative log-likelihood of each."""
        if isinstance(self.output, PointerOutput):
            return self.output.cross_entropy(readouts, words, label_smoothing)
        return linear_cross_entropy(readouts, self._linear, words, label_smoothing)

    @property
    def output(self) -> nn.Linear | PointerOutput:
        """From readouts to logits of the next word."""
        layer = self.model.output
        assert isinstance(layer, nn.Linear | PointerOutput)
        return layer

    @property
    def _linear(self) -> nn.Linear:
        assert isinstance(self.output, nn.Linear)
        return self.output

    # Judging

    def validate(self) -> Validation:
        phrases = self.corpus.valid[: self.recipe.decode.valid_sentences]
        greedy = TranslationOptions(search="greedy")
        translations = self.translate([phrase.source for phrase in phrases], greedy)
        texts, references = [translation.text for translation in translations], [phrase.target for phrase in phrases]
        scores = score_translations(texts, references, self.recipe.data.lowercase)
        perplexity = evaluating.perplexity(self, self.corpus.valid)
        metrics = {"perplexity": perplexity, "bleu": scores.bleu, "exact": scores.exact}
        samples = [f"{translation.source} → {translation.text}" for translation in translations[:3]]
        # Of equal BLEU (0 at first), the lower perplexity is the better one.
        by_bleu = scores.bleu - 1e-9 * min(perplexity, 1e6)
        best_by = self.recipe.objective.best_by
        return Validation(metrics, by_bleu if best_by == "bleu" else -perplexity, samples)

    def evaluate(self, split: SplitName, options: TranslationOptions) -> TranslationScores:
        return evaluating.evaluate(self, split, options)

    def held_out(self, split: SplitName) -> Sequence[Example[str]]:
        phrases = self.corpus.held_out("valid" if split == "valid" else "test")

        def example(number: int) -> Example[str]:
            return Example(phrases[number].source, f"{split}:{number}", phrases[number].target)

        return HeldOut(len(phrases), example)

    # Predicting

    def answers(self, examples: Sequence[Example[str]], options: TranslationOptions) -> Iterator[Translation]:
        """What was given is checked before the first; weights must stay until the last."""
        sources = [example.content for example in examples]
        if options.engine == "ctranslate2":
            from saccade.tasks.translation.export.engine import CTranslate2Engine

            return CTranslate2Engine(self).answers(sources, options)
        config = options.decode(self.recipe.decode)
        ids = self.encode(sources)
        forced = self.encode_targets([options.prefix], known=True)[0] if options.prefix else None
        self.model.eval()

        @torch.no_grad()
        def search(rows: list[int]) -> list[list[Hypothesis]]:
            if self.model.training:  # somebody trained it since the last answer
                self.model.eval()
            memory, lengths = self.encoded([ids[row] for row in rows])
            begin = None if forced is None else [forced] * len(rows)
            return generate(self.stepper, memory, max_target_length(lengths), config, begin, rows)

        lengths = [len(tokens) for tokens in ids]
        return self.in_words(sources, found_in_order(lengths, config.batch_size, search), config.best)

    def translate(self, sources: Sequence[str], options: TranslationOptions | None = None) -> list[Translation]:
        return list(self.answers([Example(source) for source in sources], options or TranslationOptions()))

    def in_words(
        self, sources: Sequence[str], outputs: Iterable[list[Hypothesis] | None], wanted: int = 1
    ) -> Iterator[Translation]:
        """A translation of each source out of what was found for it. No words in, no words out: then the model was not asked."""
        writes = self.vocabularies.target
        for source, hypotheses in zip(sources, outputs, strict=True):
            hypotheses = hypotheses or [Hypothesis([], 0.0, 0.0, True, [])]
            texts = [as_line(writes.decode(hypothesis.tokens)) for hypothesis in hypotheses]
            words = [words_of(writes, hypothesis) for hypothesis in hypotheses]
            yield Translation(source, texts[0], hypotheses, texts[1:], words, wanted)

    @property
    def stepper(self) -> Any:
        return self.model

    def encode(self, sources: Sequence[str]) -> list[list[int]]:
        """Tokens of each source; one that is longer than the model was trained for is refused, never cut."""
        ids = self.vocabularies.source.encode_batch([normalise(source) for source in sources])
        for problem in self._too_long(sources, ids).values():
            raise UserError(f"{problem}: split it into shorter sentences")
        return ids

    def problems(self, sources: Sequence[str]) -> Mapping[int, str]:
        """The rows of sources that are longer than the model was trained for, and what is to be said of each."""
        return self._too_long(sources, self.vocabularies.source.encode_batch([normalise(source) for source in sources]))

    def _too_long(self, sources: Sequence[str], ids: Sequence[Sequence[int]]) -> dict[int, str]:
        most = self.recipe.data.max_length
        return {
            row: f"sentence {row + 1} of {len(ids)} has {len(tokens)} tokens and this model was trained for at most "
            f"{most} ({sources[row][:40]!r}…)"
            for row, tokens in enumerate(ids)
            if len(tokens) > most
        }

    def unknown_words(self, texts: Sequence[str]) -> list[str]:
        """A model that knows whole words, or characters, reads all others as one: then its answer may have nothing to do with them."""
        vocabulary = self.vocabularies.source
        if vocabulary.kind == "bpe":
            return []
        unknown: dict[str, None] = {}
        for text, tokens in zip(texts, vocabulary.encode_batch(list(texts)), strict=True):
            if UNK in tokens:
                spelled = zip(vocabulary.spellings(text), tokens, strict=True)
                unknown |= dict.fromkeys(word for word, token in spelled if token == UNK)
        return list(unknown)

    def encode_targets(self, targets: Sequence[str], known: bool = False) -> list[list[int]]:
        """Tokens of given translations or their beginnings. `known`: all of them are words that the model can write."""
        ids = self.vocabularies.target.encode_batch([normalise(target) for target in targets])
        longest = max(self.recipe.data.max_length, self.recipe.decode.max_length)
        for target, tokens in zip(targets, ids, strict=True):
            if len(tokens) > longest:
                raise UserError(
                    f"a translation of {len(tokens)} tokens was given and this model writes at most {longest} "
                    f"({target[:40]!r}…): give a shorter one"
                )
            if known and UNK in tokens:
                words = self.vocabularies.target.spellings(normalise(target))
                unknown = next(word for word, token in zip(words, tokens, strict=True) if token == UNK)
                raise UserError(
                    f"the translation must begin with {target!r} and this model has no word {unknown!r}: use words of its training data"
                )
        return ids

    def given_target(self, text: str) -> tuple[str, list[int]]:
        """A text on the target side and its tokens; too long a one is refused."""
        text = normalise(text)
        tokens = self.vocabularies.target.encode(text)
        longest = max(self.recipe.decode.max_length, getattr(self.recipe.model, "max_length", 0) - 1)
        if len(tokens) > longest:
            raise UserError(
                f"a translation of {len(tokens)} tokens was given, and at most {longest} are allowed: shorten it"
            )
        return text, tokens

    def encoded(self, ids: list[list[int]]) -> tuple[Any, Tensor]:
        """The sources as the model reads them, and their lengths with the end token."""
        batch = collate(TokenPairs.from_lists([(tokens, ()) for tokens in ids]), range(len(ids))).to(self.device)
        return self.stepper.encode(batch.source, batch.source_lengths), batch.source_lengths

    # Looking inside, scoring, exporting

    def look(self, example: Example[str], options: TranslationOptions) -> View:
        from saccade.tasks.translation.look import look

        return look(self, example, options.target, not options.subwords, options.only)

    def questions(self) -> Sequence[Question[str]]:
        return exploring.questions(self)

    def stream(self) -> Stream[str] | None:
        return exploring.stream(self)

    def scorer(self) -> Scorer | None:
        return evaluating.scorer(self)

    def exports(self) -> Mapping[str, Export]:
        from saccade.tasks.translation.export import exports

        return exports(self)


TASK = TranslationTask
