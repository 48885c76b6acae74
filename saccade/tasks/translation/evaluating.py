"""How good a run's translations are, by the words, by its perplexity and by the word alignment of its attention."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from saccade.data.builtin.phrasebook.phrases import Phrase
from saccade.data.text.batching import TokenBatches, collate
from saccade.data.text.pairs import every_pair, holds_both_sides
from saccade.data.text.shards import TokenPairs
from saccade.data.text.tokenizer import BOS, EOS
from saccade.decoding import Hypothesis, score_targets
from saccade.errors import UserError
from saccade.metrics.bleu import TranslationScores, score_translations
from saccade.metrics.rouge import rouge
from saccade.tasks.task import Probable, Scorer, SplitName
from saccade.tasks.writing import as_prefix

if TYPE_CHECKING:
    from saccade.tasks.translation.options import TranslationOptions
    from saccade.tasks.translation.task import TranslationTask

Pair = tuple[str, str]


def evaluate(task: "TranslationTask", split: SplitName, options: "TranslationOptions") -> TranslationScores:
    """On the run's own held-out sentences, or on those of files."""
    if options.data is not None:
        phrases = [
            Phrase(source, target, ())
            for source, target in _pairs([options.data, options.reference])
            if source and target
        ]
    else:
        phrases = task.corpus.held_out("valid" if split == "valid" else "test")
    translations = task.translate([phrase.source for phrase in phrases], options)
    scores = score_translations(
        [translation.text for translation in translations],
        [phrase.target for phrase in phrases],
        task.recipe.data.lowercase,
        sources=[phrase.source for phrase in phrases],
    )
    scores = scores.with_perplexity(perplexity(task, phrases))
    if task.recipe.evaluate.rouge:
        references = [phrase.target for phrase in phrases]
        scores = replace(
            scores,
            rouge=rouge([translation.text for translation in translations], references),
            rouge_of_first_sentences=rouge([first_sentence(phrase.source) for phrase in phrases], references),
        )
    if not any(phrase.alignment for phrase in phrases):
        return scores
    from saccade.tasks.translation.look import alignment_error

    return replace(scores, alignment_error_rate=alignment_error(task, phrases, choose_on=task.corpus.valid))


def first_sentence(text: str) -> str:
    """Up to the first mark that ends one."""
    found = re.match(r".*?[.!?](?=\s|$)", text)
    return found[0] if found else text


@torch.no_grad()
def perplexity(task: "TranslationTask", phrases: Sequence[Phrase]) -> float:
    """exp of the mean cross-entropy per target token, the end token included."""
    task.model.eval()
    encode = task.vocabularies
    pairs = TokenPairs.from_lists(
        [(encode.source.encode(phrase.source), encode.target.encode(phrase.target)) for phrase in phrases]
    )
    total, count = 0.0, 0
    for indices in TokenBatches(*pairs.lengths, tokens_per_batch=4096, shuffle=False).epoch(0):
        readouts, words, _ = task.readouts(collate(pairs, indices).to(task.device))
        total += float(task.cross_entropy(readouts, words)[0])
        count += len(words)
    return math.exp(min(total / max(count, 1), 100.0))


@torch.no_grad()
def score(task: "TranslationTask", pairs: Sequence[Pair]) -> list[Hypothesis]:
    """log P(target | source) of given pairs, in all and per token, in the order given."""
    task.model.eval()
    for number, (source, target) in enumerate(pairs, start=1):
        if target.strip() and not source.strip():
            raise UserError(f"pair {number} of {len(pairs)} has a translation and nothing to translate: leave it out")
    sources = task.encode([source for source, _ in pairs])
    targets = task.encode_targets([target for _, target in pairs])
    results: list[Hypothesis] = []
    size = task.recipe.decode.batch_size
    for start in range(0, len(pairs), size):
        part = slice(start, start + size)
        memory, lengths = task.encoded(sources[part])
        begin = torch.full_like(lengths, BOS)
        results += score_targets(task.stepper, memory, begin, *as_prefix(targets[part]), eos=EOS)
    return results


def scorer(task: "TranslationTask") -> Scorer:
    def scored(pairs: Sequence[Pair]) -> list[Probable]:
        hypotheses = score(task, pairs)
        return [
            Probable({"source": source, "target": target}, hypothesis.log_prob, len(hypothesis.tokens) + 1)
            for (source, target), hypothesis in zip(pairs, hypotheses, strict=True)
        ]

    return Scorer(
        "two aligned text files (sources, then translations), or one TSV or JSON lines file with both", _pairs, scored
    )


def _pairs(files: Sequence[Path | None]) -> list[Pair]:
    first, *others = [file for file in files if file is not None]
    if len(others) > 1:
        raise UserError(f"{len(others) + 1} files were given: give sources and translations, or one file with both")
    try:
        return every_pair(first, others[0] if others else None)
    except UserError as error:
        if others or holds_both_sides(first) or not first.is_file():
            raise
        raise UserError(
            f"{first} is one text file and pairs of sentences are needed: name their translations with --reference, "
            "or give one TSV or JSON lines file with both sides"
        ) from error
