"""Scores of translations: sacreBLEU with its signature, chrF, exact match, BLEU by length."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from saccade.metrics.rouge import Rouge

LENGTHS = (10, 20, 30, 40)  # source words; the last group has no upper end


@dataclass(frozen=True)
class TranslationScores:
    sentences: int
    bleu: float
    chrf: float
    exact: float  # percent
    signature: str
    bleu_lowercased: float | None = None  # where case counts in `bleu`
    perplexity: float | None = None
    alignment_error_rate: float | None = None
    rouge: Rouge | None = None  # where it was asked for; it then comes first
    rouge_of_first_sentences: Rouge | None = None  # of the sources, for comparison
    by_length: tuple[tuple[str, int, float, float], ...] = ()  # words of the source, sentences, BLEU, exact

    def with_perplexity(self, perplexity: float) -> "TranslationScores":
        return replace(self, perplexity=perplexity)

    def rows(self) -> list[tuple[str, str]]:
        """Names and values, formatted."""
        first = self.rouge_of_first_sentences
        shown = [
            ("sentences", f"{self.sentences:,}"),
            *([] if self.rouge is None else self.rouge.rows()),
            *([] if first is None else [(f"{name} of the first sentence", value) for name, value in first.rows()]),
            ("BLEU", f"{self.bleu:.2f}"),
            *([] if self.bleu_lowercased is None else [("BLEU, lowercased", f"{self.bleu_lowercased:.2f}")]),
            ("chrF", f"{self.chrf:.2f}"),
            ("exact", f"{self.exact:.1f} %"),
        ]
        if self.perplexity is not None:
            shown.append(("perplexity", f"{self.perplexity:.3f}"))
        if self.alignment_error_rate is not None:
            shown.append(("alignment error rate", f"{self.alignment_error_rate:.3f}"))
        return [*shown, ("sacreBLEU signature", self.signature)]

    def columns(self) -> list[tuple[str, list[str]]]:
        """The table by length: a heading and a cell per group for each column."""
        cells = [[label, f"{count:,}", f"{bleu:.1f}", f"{exact:.1f}"] for label, count, bleu, exact in self.by_length]
        headings = ("words in the source", "sentences", "BLEU", "exact %")
        return [(heading, [row[index] for row in cells]) for index, heading in enumerate(headings)]

    def compared(self) -> dict[str, float]:
        """The figures that models are compared by, the most important one first."""
        first = {} if self.rouge is None else {"ROUGE-L": self.rouge.rouge_l, "ROUGE-1": self.rouge.rouge1}
        shown = first | {"BLEU": self.bleu, "chrF": self.chrf, "exact %": self.exact}
        more = {"perplexity": self.perplexity, "AER": self.alignment_error_rate}
        return shown | {name: value for name, value in more.items() if value is not None}

    def to_dict(self) -> dict[str, Any]:
        values = asdict(self)
        values["by_length"] = [
            {"source_words": words, "sentences": count, "bleu": bleu, "exact": exact}
            for words, count, bleu, exact in self.by_length
        ]
        return {name: value for name, value in values.items() if value is not None}


def score_translations(
    outputs: Sequence[str], references: Sequence[str], lowercase: bool = False, sources: Sequence[str] = ()
) -> TranslationScores:
    """Corpus scores; by source length too where there are sources."""
    bleu = BLEU(lowercase=lowercase, effective_order=False)
    score = bleu.corpus_score(list(outputs), [list(references)]).score
    return TranslationScores(
        sentences=len(outputs),
        bleu=score,
        chrf=CHRF().corpus_score(list(outputs), [list(references)]).score,
        exact=_exact(outputs, references),
        signature=str(bleu.get_signature()),
        bleu_lowercased=None
        if lowercase
        else BLEU(lowercase=True).corpus_score(list(outputs), [list(references)]).score,
        by_length=tuple(_by_length(outputs, references, lowercase, sources)),
    )


def _exact(outputs: Sequence[str], references: Sequence[str]) -> float:
    return 100 * sum(o == r for o, r in zip(outputs, references, strict=True)) / max(len(outputs), 1)


def _by_length(
    outputs: Sequence[str], references: Sequence[str], lowercase: bool, sources: Sequence[str]
) -> list[tuple[str, int, float, float]]:
    groups: list[tuple[str, int, float, float]] = []
    for lowest, highest in zip((0, *LENGTHS), (*LENGTHS, 10**9), strict=True):
        rows = [i for i, source in enumerate(sources) if lowest < len(source.split()) <= highest]
        if rows:
            chosen, wanted = [outputs[i] for i in rows], [references[i] for i in rows]
            label = f"{lowest + 1}-{highest}" if highest < 10**9 else f"over {lowest}"
            bleu = BLEU(lowercase=lowercase).corpus_score(chosen, [wanted]).score
            groups.append((label, len(rows), bleu, _exact(chosen, wanted)))
    return groups
