"""Translating with a CTranslate2 model, by the rules of our own searches.

Its beam follows the same beginnings as ours. What differs is set right here:

| matter         | CTranslate2                           | ours, and what is done                                        |
|----------------|---------------------------------------|---------------------------------------------------------------|
| length penalty | log P / |Y|^p                         | log P / ((5 + |Y|) / 6)^p (Wu 2016): outputs are ranked anew   |
| when to stop   | when a number of outputs have ended   | when none can be overtaken: it is asked for more outputs (*)  |
| log P          | of the whole output                   | of each token too: left out here, `log_probs` scores any pair |
| longest output | one limit for a batch                 | one for each sentence: those beyond their own are done again  |
| <pad>          | a word like any other                 | never written: where it is, the sentence is done again        |
| longest input  | cut at 1024, unless told otherwise    | never cut                                                     |

(*) A quantised model that is asked for one output is not, see HASTE.

So an output has the score that torch would give it. Which output is found can still differ: where a better one would have ended after
CTranslate2 had seen enough (a narrow beam with a length penalty far above 1), and in a quantised model, whose probabilities are others.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from saccade.data.text.tokenizer import EOS, PAD, SPECIAL, Vocabularies
from saccade.decoding import Hypothesis, max_target_length
from saccade.decoding.beam import length_divisor
from saccade.errors import UserError
from saccade.packages import require

if TYPE_CHECKING:
    from saccade.tasks.translation.task import Translation, TranslationTask
from saccade.tasks.writing import DecodeConfig, found_in_order

PATIENCE, HASTE = 1.5, 1.0
"""Outputs that must have ended before a sentence is done, as a multiple of the beam. With 1 it is a tenth faster, but misses a better one
in one to three sentences of a hundred: little beside what quantised weights change, and taken for their one best output only."""

EXPONENT = 2 / 3
"""|Y|^(2/3 p) grows as ((5 + |Y|) / 6)^p does at |Y| = 10: where more end than it was asked for, it leaves out those we would."""


class Candidate(NamedTuple):
    tokens: list[int]  # eos among them where it has ended
    log_prob: float

    @property
    def finished(self) -> bool:
        return self.tokens[-1:] == [EOS]

    def score(self, length_penalty: float) -> float:
        return self.log_prob / length_divisor(float(len(self.tokens)), length_penalty)

    def hypothesis(self, length_penalty: float) -> Hypothesis:
        tokens = self.tokens[:-1] if self.finished else self.tokens
        return Hypothesis(tokens, self.score(length_penalty), self.log_prob, self.finished, token_log_probs=None)


class CTranslate2Search:
    """A model directory in CTranslate2's format, on the CPU. `threads` is CTranslate2's own choice unless given."""

    def __init__(
        self,
        directory: Path,
        vocabularies: Vocabularies,
        threads: int | None = None,
        compute_type: str = "default",
        hasty: bool = False,
    ):
        engine = require("ctranslate2")
        try:
            self._translator: Any = engine.Translator(
                str(directory), device="cpu", compute_type=compute_type, intra_threads=threads or 0
            )
        except (RuntimeError, ValueError) as error:
            raise UserError(
                f"{directory} cannot be loaded by CTranslate2 ({error}): remove it and export anew"
            ) from None
        self._hasty = hasty
        self._source = vocabularies.source.vocabulary
        self._target = vocabularies.target.vocabulary
        self._numbers = {name: number for number, name in enumerate(self._target)}

    def translate(
        self, task: "TranslationTask", sources: Sequence[str], config: DecodeConfig
    ) -> "Iterator[Translation]":
        """Translations in the order given, as `TranslationTask.answers` gives them."""
        _require_possible(config)
        ids = task.encode(sources)

        def search(rows: list[int]) -> list[list[Hypothesis]]:
            return self._search([ids[row] for row in rows], config)

        outputs = found_in_order([len(tokens) for tokens in ids], config.batch_size, search)
        return task.in_words(sources, outputs, config.best)

    def _search(self, sources: Sequence[Sequence[int]], config: DecodeConfig) -> list[list[Hypothesis]]:
        """The `config.best` best hypotheses for each source (tokens without eos), none longer than its own limit."""
        limits = [min(max_target_length(len(source) + 1), config.max_length) for source in sources]
        results = self._translate(sources, max(limits), config)
        again: dict[tuple[int, bool], list[int]] = {}
        for row, candidates in enumerate(results):
            padded = any(PAD in candidate.tokens for candidate in candidates)
            if padded or any(len(candidate.tokens) > limits[row] for candidate in candidates):
                again.setdefault((limits[row], padded), []).append(row)
        for (limit, padded), rows in again.items():
            translated = self._translate([sources[row] for row in rows], limit, config, without_pad=padded)
            for row, candidates in zip(rows, translated, strict=True):
                results[row] = self._scored_again(sources[row], candidates) if padded else candidates
        _, best, penalty = _beam(config)
        return [
            [candidate.hypothesis(penalty) for candidate in _ranked(candidates, penalty)[:best]]
            for candidates in results
        ]

    def _scored_again(self, source: Sequence[int], candidates: list[Candidate]) -> list[Candidate]:
        """With the log-probabilities of the whole vocabulary: those of a search without <pad> are of the rest of it. Each once: a beam
        wider than what is left of the vocabulary is filled up with the same again."""
        candidates = list({tuple(candidate.tokens): candidate for candidate in candidates}.values())
        pairs = [
            (source, candidate.tokens[:-1] if candidate.finished else candidate.tokens) for candidate in candidates
        ]
        scored = zip(candidates, self.log_probs(pairs), strict=True)
        return [candidate._replace(log_prob=sum(log_probs[: len(candidate.tokens)])) for candidate, log_probs in scored]

    def log_probs(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[list[float]]:
        """Of each pair of source and target (tokens without eos): the log-probability of every target token and of eos."""
        results = self._translator.score_batch(
            [_names(source, self._source) for source, _ in pairs],
            [_names(target, self._target) for _, target in pairs],
            max_input_length=0,
        )
        return [list(result.log_probs) for result in results]

    def _translate(
        self, sources: Sequence[Sequence[int]], longest: int, config: DecodeConfig, without_pad: bool = False
    ) -> list[list[Candidate]]:
        beam, best, penalty = _beam(config)
        exponent = EXPONENT * penalty
        if best > 1 and penalty == 0:
            exponent = 1e-6  # with none at all it stops when the first is certain, and the others may not be found yet
        patience = HASTE if self._hasty and best == 1 else PATIENCE
        wanted = best if beam == 1 or exponent == 0 else math.floor(patience * beam)
        try:
            results = self._translator.translate_batch(
                [_names(source, self._source) for source in sources],
                beam_size=beam,
                patience=patience,
                num_hypotheses=wanted,
                length_penalty=exponent,
                suppress_sequences=[[SPECIAL[PAD]]] if without_pad else None,
                return_scores=True,
                return_end_token=True,
                max_input_length=0,
                min_decoding_length=0,
                max_decoding_length=longest,
            )
        except (RuntimeError, ValueError) as error:  # more positions than the model has
            raise UserError(
                f"CTranslate2 cannot translate this ({error}): set decode.max_length to less, or translate with torch"
            ) from None
        return [
            [
                Candidate([self._numbers[name] for name in names], score * len(names) ** exponent)
                for names, score in zip(result.hypotheses, result.scores, strict=True)
            ]
            for result in results
        ]


def _require_possible(config: DecodeConfig) -> None:
    if config.search == "sample":
        raise UserError(
            "CTranslate2 draws other random numbers than torch, so its samples would not be those of the seed: "
            "search greedily or with a beam, or sample with torch"
        )
    if config.coverage_penalty:
        raise UserError(
            f"decode.coverage_penalty is {config.coverage_penalty}, and CTranslate2 sees the attention of one layer only: "
            "set it to 0, or translate with torch"
        )


def _beam(config: DecodeConfig) -> tuple[int, int, float]:
    """Width, how many to give, length penalty; greedy search is a beam of one."""
    if config.search == "greedy":
        return 1, 1, 0.0
    return max(config.beam, config.best), config.best, config.length_penalty


def _ranked(candidates: list[Candidate], penalty: float) -> list[Candidate]:
    """Best first; what has not ended at its limit ranks behind all that has."""
    return sorted(candidates, key=lambda candidate: (candidate.finished, candidate.score(penalty)), reverse=True)


def _names(tokens: Sequence[int], vocabulary: Sequence[str]) -> list[str]:
    return [vocabulary[token] for token in tokens]
