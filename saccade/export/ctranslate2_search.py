"""Translating with a CTranslate2 model, by the rules of our own searches.

Its beam follows the same beginnings as ours. What differs is set right here:

| matter         | CTranslate2                           | ours, and what is done                                        |
|----------------|---------------------------------------|---------------------------------------------------------------|
| length penalty | log P / |Y|^p                         | log P / ((5 + |Y|) / 6)^p (Wu 2016): outputs are ranked anew   |
| when to stop   | when a number of outputs have ended   | when none can be overtaken: it is asked for more outputs      |
| log P          | of the whole output                   | of each token too: what is given out is scored once more      |
| longest output | one limit for a batch                 | one for each sentence: those beyond their own are done again  |
| <pad>          | a word like any other                 | never written: where it is, the sentence is done again        |
| longest input  | cut at 1024, unless told otherwise    | never cut                                                     |

So an output has the score that torch would give it. Which output is found can still differ: where a better one would have ended after
CTranslate2 had seen enough (a narrow beam with a length penalty far above 1), and in a quantised model, whose probabilities are others.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from saccade.data.tokenizer import EOS, PAD, SPECIAL, Vocabularies
from saccade.decoding import Hypothesis
from saccade.decoding.beam import length_divisor
from saccade.decoding.hypothesis import read_hypothesis
from saccade.errors import UserError
from saccade.export.packages import require
from saccade.tasks.generate import DecodeConfig
from saccade.tasks.translation import Translation, TranslationTask, nothing_from

PATIENCE = 2
"""Outputs that must have ended before a sentence is done, as a multiple of the beam: with 1, some better ones are missed."""

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


class CTranslate2Search:
    """A model directory in CTranslate2's format, on the CPU. `threads` is CTranslate2's own choice unless given."""

    def __init__(
        self, directory: Path, vocabularies: Vocabularies, threads: int | None = None, compute_type: str = "default"
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
        self._source = vocabularies.source.vocabulary
        self._target = vocabularies.target.vocabulary
        self._numbers = {name: number for number, name in enumerate(self._target)}

    def translate(self, task: TranslationTask, sources: Sequence[str], config: DecodeConfig) -> list[Translation]:
        """Translations in the order given, as `TranslationTask.predict` gives them."""
        _require_possible(config)
        ids = task.encode(sources)
        order = sorted((row for row in range(len(ids)) if ids[row]), key=lambda row: len(ids[row]))
        results = {row: nothing_from(sources[row]) for row in range(len(ids)) if not ids[row]}
        for start in range(0, len(order), config.batch):
            rows = order[start : start + config.batch]
            for row, hypotheses in zip(rows, self._search([ids[row] for row in rows], config), strict=True):
                texts = [task.vocabularies.target.decode(each.tokens).strip() for each in hypotheses]
                results[row] = Translation(sources[row], texts[0], hypotheses, texts[1:])
        return [results[row] for row in range(len(ids))]

    def _search(self, sources: Sequence[Sequence[int]], config: DecodeConfig) -> list[list[Hypothesis]]:
        """The `config.best` best hypotheses for each source (tokens without eos), none longer than its own limit."""
        limits = [min(2 * (len(source) + 1) + 20, config.longest) for source in sources]
        found = self._translate(sources, max(limits), config)
        again: dict[tuple[int, bool], list[int]] = {}
        for row, candidates in enumerate(found):
            padded = any(PAD in each.tokens for each in candidates)
            if padded or any(len(each.tokens) > limits[row] for each in candidates):
                again.setdefault((limits[row], padded), []).append(row)
        for (limit, padded), rows in again.items():
            translated = self._translate([sources[row] for row in rows], limit, config, without_pad=padded)
            for row, candidates in zip(rows, translated, strict=True):
                found[row] = candidates
        _, best, penalty = _beam(config)
        chosen = [_ranked(candidates, penalty)[:best] for candidates in found]
        return self._hypotheses(sources, chosen, penalty)

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
        wanted = best if beam == 1 or exponent == 0 else PATIENCE * beam
        try:
            results = self._translator.translate_batch(
                [_names(source, self._source) for source in sources],
                beam_size=beam,
                patience=PATIENCE,
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
                f"CTranslate2 cannot translate this ({error}): set decode.longest to less, or translate with torch"
            ) from None
        return [
            [
                Candidate([self._numbers[name] for name in names], score * len(names) ** exponent)
                for names, score in zip(result.hypotheses, result.scores, strict=True)
            ]
            for result in results
        ]

    def _hypotheses(
        self, sources: Sequence[Sequence[int]], chosen: list[list[Candidate]], penalty: float
    ) -> list[list[Hypothesis]]:
        """The candidates with the model's own log-probabilities, token by token."""
        flat = [
            (source, each.tokens[:-1] if each.finished else each.tokens)
            for source, candidates in zip(sources, chosen, strict=True)
            for each in candidates
        ]
        scored = iter(self.log_probs(flat))
        results = []
        for candidates in chosen:
            hypotheses = []
            for each in candidates:
                log_probs = next(scored)[: len(each.tokens)]  # one that has not ended has no eos to score
                score = sum(log_probs) / length_divisor(float(len(each.tokens)), penalty)
                hypotheses.append(read_hypothesis(each.tokens, log_probs, EOS, score))
            results.append(sorted(hypotheses, key=lambda each: (each.finished, each.score), reverse=True))
        return results


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
    return sorted(candidates, key=lambda each: (each.finished, each.score(penalty)), reverse=True)


def _names(tokens: Sequence[int], vocabulary: Sequence[str]) -> list[str]:
    return [vocabulary[token] for token in tokens]
