"""Translation: a sentence in, a sentence out, from any pair of aligned texts.

The objective is the cross-entropy of the next token with label smoothing, summed over tokens that are not padding; what is reported as
perplexity is always the plain one. Where attention samples (hard selection), REINFORCE is part of the same objective: the reward of a
look is the log-probability of the word it led to, the baseline its mean over the batch (Xu 2015 uses a moving mean over batches).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, ValidationError, model_validator
from torch import Tensor, nn

from saccade.config import Config as BaseConfig
from saccade.config import Recipe
from saccade.data import corpus as corpora
from saccade.data.batching import PairBatch, TokenBatches, collate
from saccade.data.corpus import Corpus, CorpusConfig, Say, SplitName
from saccade.data.phrasebook import Phrase
from saccade.data.shards import TokenPairs
from saccade.data.text import normalise
from saccade.data.tokenizer import BOS, EOS, PAD
from saccade.decoding import BeamConfig, Hypothesis, Prefix, SamplingConfig, beam_search, greedy_search, sample
from saccade.errors import UserError
from saccade.layers.cross_entropy import linear_cross_entropy
from saccade.tasks.scores import TranslationScores, score_translations
from saccade.tasks.task import Loss, Objective, Validation, device, trainable


class ObjectiveConfig(BaseConfig):
    label_smoothing: float = Field(0.1, ge=0, lt=1)
    reinforce: float = Field(1.0, ge=0, description="hard attention: weight of the REINFORCE term")


class DecodeConfig(BaseConfig):
    search: Literal["greedy", "beam", "sample"] = "beam"
    beam: int = Field(5, ge=1)
    length_penalty: float = 1.0
    best: int = Field(1, ge=1, description="how many translations to give")
    temperature: float = Field(1.0, gt=0)
    top_k: int | None = Field(None, ge=1)
    top_p: float = Field(1.0, gt=0, le=1)
    seed: int = 1
    batch: int = Field(32, ge=1, description="sentences translated at a time; changes the speed, never the output")
    longest: int = Field(
        200, ge=1, description="an output has at most this many tokens, and at most twice the source's plus 20"
    )
    valid_sentences: int = Field(500, ge=1, description="sentences translated at each validation, greedily")


class Config(BaseConfig):
    model_kind: ClassVar[str] = "sequence-to-sequence"

    data: CorpusConfig
    objective: ObjectiveConfig
    decode: DecodeConfig

    @model_validator(mode="after")
    def _data_and_model_fit(self) -> "Config":
        """What only both sections together can tell, before any work starts."""
        model = getattr(self, "model", None)
        if getattr(model, "shared", False) and not self.data.joint:
            raise ValueError(
                "model.shared needs one vocabulary for both sides: set data.joint to true or model.shared to false"
            )
        bounded = {getattr(model, name, None) for name in ("positions", "score", "attention")} & {"learned", "location"}
        needed = max(self.data.longest, self.decode.longest) + 1  # the end or begin token
        if bounded and getattr(model, "longest", needed) < needed:
            raise ValueError(
                f"{bounded.pop()} positions end at model.longest = {getattr(model, 'longest', 0)}, but sentences may have {needed} tokens: "
                f"set model.longest to {needed} or more, or data.longest and decode.longest to less"
            )
        return self


@dataclass(frozen=True)
class Translation:
    """One translated sentence, best hypothesis first."""

    source: str
    text: str
    hypotheses: list[Hypothesis]
    alternatives: list[str]

    def to_dict(self) -> dict[str, Any]:
        texts = (self.text, *self.alternatives)
        answers = [
            {"text": text, "score": hypothesis.score, "log_prob": hypothesis.log_prob, "finished": hypothesis.finished}
            for text, hypothesis in zip(texts, self.hypotheses, strict=True)
        ]
        return {"source": self.source, "translations": answers}


class TranslationTask:
    unit = "tokens"

    def __init__(self, recipe: Recipe, corpus: Corpus):
        self.recipe = recipe
        self.corpus = corpus
        self.vocabularies = corpus.vocabularies
        self.device = device()
        sizes = (len(self.vocabularies.source), len(self.vocabularies.target))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.train.seed)
            self.model: nn.Module = recipe.model_module.build(recipe.model, *sizes).to(self.device)

    @classmethod
    def prepare(cls, recipe: Recipe, directory: Path, say: Say) -> "TranslationTask":
        """A new run: the corpus is read and tokenised into the directory."""
        return cls(recipe, corpora.prepare(recipe.data, directory, recipe.train.seed, say))

    @classmethod
    def reopen(cls, recipe: Recipe, directory: Path) -> "TranslationTask":
        return cls(recipe, corpora.reopen(directory))

    # Training

    def objectives(self) -> list[Objective]:
        return [Objective("loss", trainable([self.model]), self._loss, shown=("cross-entropy",))]

    def epoch(self, number: int, rank: int, world: int) -> Sequence[np.ndarray[Any, Any]]:
        seed, tokens = self.recipe.train.seed, self.recipe.data.batch_tokens
        return TokenBatches(*self.corpus.train.lengths, tokens, seed=seed, shard=(rank, world)).epoch(number)

    def batch(self, work: np.ndarray[Any, Any]) -> PairBatch | None:
        return collate(self.corpus.train, work).to(self.device) if len(work) else None

    def describe(self, work: np.ndarray[Any, Any]) -> str:
        first = self.vocabularies.source.decode(self.corpus.train[int(work[0])][0]) if len(work) else "no pair"
        return f"{len(work)} pairs, the first: {first!r}"

    def _loss(self, batch: PairBatch) -> Loss:
        readouts, words, log_prob = self._readouts(batch)
        total, nll = linear_cross_entropy(readouts, self.output, words, self.recipe.objective.label_smoothing)
        if log_prob.dim():
            advantage = nll.mean() - nll
            total = total - self.recipe.objective.reinforce * (advantage * log_prob[batch.target_out != PAD]).sum()
        return Loss(total, len(words), {"cross-entropy": float(nll.sum())})

    def _readouts(self, batch: PairBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Readouts (tokens, D) of the words that are not padding, those words (tokens,), and attention's log-probability."""
        encoded = self.model.encode(batch.source, batch.source_lengths)  # type: ignore[operator]
        readouts, log_prob = self.model.read(encoded, batch.target_in)  # type: ignore[operator]
        real = batch.target_out != PAD
        return readouts[real], batch.target_out[real], log_prob

    @property
    def output(self) -> nn.Linear:
        layer = self.model.output
        assert isinstance(layer, nn.Linear)
        return layer

    # Judging

    def validate(self) -> Validation:
        phrases = self.corpus.valid[: self.recipe.decode.valid_sentences]
        translations = self.predict([phrase.source for phrase in phrases], search="greedy")
        scores = score_translations(
            translations_text(translations), [p.target for p in phrases], self.recipe.data.lowercase
        )
        metrics = {"perplexity": self.perplexity(self.corpus.valid), "bleu": scores.bleu, "exact": scores.exact}
        samples = [f"{t.source} → {t.text}" for t in translations[:3]]
        return Validation(metrics, scores.bleu, samples)

    @torch.no_grad()
    def perplexity(self, phrases: Sequence[Phrase]) -> float:
        """exp of the mean cross-entropy per target token, the end token included."""
        self.model.eval()
        encode = self.vocabularies
        pairs = TokenPairs.from_lists(
            [(encode.source.encode(p.source), encode.target.encode(p.target)) for p in phrases]
        )
        total, count = 0.0, 0
        for indices in TokenBatches(*pairs.lengths, tokens_per_batch=4096, shuffle=False).epoch(0):
            readouts, words, _ = self._readouts(collate(pairs, indices).to(self.device))
            total += float(linear_cross_entropy(readouts, self.output, words)[0])
            count += len(words)
        return math.exp(min(total / max(count, 1), 100.0))

    def evaluate(self, split: SplitName, **decode: Any) -> TranslationScores:
        phrases = self.corpus.held_out(split)
        translations = self.predict([phrase.source for phrase in phrases], **decode)
        scores = score_translations(
            translations_text(translations),
            [phrase.target for phrase in phrases],
            self.recipe.data.lowercase,
            sources=[phrase.source for phrase in phrases],
        )
        return scores.with_perplexity(self.perplexity(phrases))

    # Predicting

    @torch.no_grad()
    def predict(
        self, sources: Sequence[str], prefixes: Sequence[str] | None = None, **decode: Any
    ) -> list[Translation]:
        """Translations in the order given. Keywords replace settings of the recipe's `decode` section."""
        self.model.eval()
        config = self._decoding(decode)
        ids = self.vocabularies.source.encode_batch([normalise(source) for source in sources])
        for source, tokens in zip(sources, ids, strict=True):
            if len(tokens) > self.recipe.data.longest:
                raise UserError(
                    f"a sentence of {len(tokens)} tokens was given and this model was trained for at most {self.recipe.data.longest} "
                    f"({source[:40]!r}…): split it into shorter sentences"
                )
        order = sorted((row for row in range(len(ids)) if ids[row]), key=lambda row: len(ids[row]))
        results = {row: nothing_from(sources[row]) for row in range(len(ids)) if not ids[row]}
        for start in range(0, len(order), config.batch):
            rows = order[start : start + config.batch]
            forced = None if prefixes is None else [self.vocabularies.target.encode(prefixes[row]) for row in rows]
            for row, hypotheses in zip(
                rows, self._search([ids[row] for row in rows], config, forced, rows), strict=True
            ):
                texts = [self.vocabularies.target.decode(hypothesis.tokens).strip() for hypothesis in hypotheses]
                results[row] = Translation(sources[row], texts[0], hypotheses, texts[1:])
        return [results[row] for row in range(len(ids))]

    def _decoding(self, changes: dict[str, Any]) -> DecodeConfig:
        try:
            return DecodeConfig.model_validate({**self.recipe.decode.model_dump(), **changes})
        except ValidationError as error:
            first = error.errors()[0]
            names = ", ".join(DecodeConfig.model_fields)
            raise UserError(
                f"decoding got {first['loc'][0]} = {first['input']!r} ({first['msg']}); the settings are {names}"
            ) from None

    def _search(
        self, ids: list[list[int]], config: DecodeConfig, forced: list[list[int]] | None, rows: list[int]
    ) -> list[list[Hypothesis]]:
        batch = collate(TokenPairs.from_lists([(tokens, ()) for tokens in ids]), range(len(ids))).to(self.device)
        memory = self.model.encode(batch.source, batch.source_lengths)  # type: ignore[operator]
        begin = torch.full((len(ids),), BOS, device=self.device)
        longest = (2 * batch.source_lengths + 20).clamp(max=config.longest)
        common: dict[str, Any] = {"eos": EOS, "pad": PAD, "longest": longest}
        if forced is not None:
            common["prefix"] = _prefix(forced)
        stepper: Any = self.model
        if config.search == "greedy":
            return [[hypothesis] for hypothesis in greedy_search(stepper, memory, begin, **common)]
        if config.search == "sample":
            sampling = SamplingConfig(config.best, config.temperature, config.top_k, config.top_p)
            return sample(stepper, memory, begin, sampling, seed=config.seed, numbers=torch.tensor(rows), **common)
        beam = BeamConfig(max(config.beam, config.best), config.best, config.length_penalty)
        return beam_search(stepper, memory, begin, beam, **common)


def nothing_from(source: str) -> Translation:
    """No words in, no words out: the model is not asked."""
    return Translation(source, "", [Hypothesis([], 0.0, 0.0, True, [])], [])


def translations_text(translations: Sequence[Translation]) -> list[str]:
    return [translation.text for translation in translations]


def _prefix(rows: list[list[int]]) -> Prefix:
    longest = max(map(len, rows), default=0)
    tokens = torch.tensor([row + [PAD] * (longest - len(row)) for row in rows], dtype=torch.long)
    return Prefix(tokens.view(len(rows), longest), torch.tensor([len(row) for row in rows]))
