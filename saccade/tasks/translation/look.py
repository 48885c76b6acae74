"""What did each word look at? Decode first, then replay the finished sentence while recording.

The replay runs the model over the given output in one go (teacher forcing), so it serves greedy, beam and forced outputs alike, and
decoding itself never carries weights. Rows of a map are the words being written; subwords are merged to words.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from saccade.attention import record_attention
from saccade.data.builtin.phrasebook.phrases import Phrase, split_words
from saccade.data.text.batching import collate
from saccade.data.text.shards import TokenPairs
from saccade.data.text.tokenizer import BOS, EOS, Tokenizer
from saccade.errors import UserError
from saccade.metrics.alignment import corpus_alignment_error_rate, hard_alignment
from saccade.tasks.task import Example
from saccade.tasks.translation.evaluating import score
from saccade.tasks.words import BEGIN, END, words_of
from saccade.tasks.writing import roles
from saccade.views.axes import Tokens
from saccade.views.maps import AttentionMap
from saccade.views.merging import merge_words
from saccade.views.overview import over_the_source, overview, panels
from saccade.views.view import View

if TYPE_CHECKING:
    from saccade.tasks.translation.task import Translation, TranslationTask

TRANSLATION, SOURCE = "translation", "source"  # the titles of the two sides
TokenPair = tuple[list[int], list[int]]


def look(
    task: "TranslationTask",
    example: Example[str],
    target: str | None = None,
    words: bool = True,
    only: str | None = None,
) -> View:
    """The attention modules whose name matches, for a sentence and its translation, by default the model's own. Unless modules are named, a
    picture of very many shows an overview."""
    source = example.content
    if not source.strip():
        raise UserError("an empty sentence was given: there is nothing to look at; give some words")
    answer = _answer(task, source, target)
    hypothesis = answer.hypotheses[0]
    pair = (task.encode([source])[0], hypothesis.tokens)
    maps = tuple(replay_tokens(task, [pair], only or "*", words)[0])
    if not maps and only is not None:
        raise UserError(_why_none(replay_tokens(task, [pair])[0], only))
    mean = over_the_source(maps, SOURCE) if maps and only is None else None
    summary = tuple(overview(maps, SOURCE)) if maps and only is None else ()
    drawn, all_panels = sum(map(panels, summary or maps)), sum(map(panels, maps))
    hint = f"shows {drawn} averages of {all_panels} panels: --only '*' draws every layer and head, and .html holds them all"
    return View(
        title=source,
        maps=maps if mean is None else (mean, *maps),
        text=answer.text,
        answer=answer.to_dict(),
        truth=example.truth,
        words=words_of(task.vocabularies.target, hypothesis),
        summary=summary if drawn < all_panels else (),
        hint=(hint if drawn < all_panels else "") if maps else _why_none((), None),
        first=next((n for n, attention in enumerate(maps) if attention.key_title == SOURCE), 0)
        if only is None and mean is None
        else 0,
        details={"source": source, "log_prob": hypothesis.log_prob},
    )


def _answer(task: "TranslationTask", source: str, target: str | None) -> "Translation":
    """What the model wrote, as the tokens that it chose (its text might be cut into others), or a given translation."""
    if target is None:
        return task.translate([source])[0]
    text, _ = task.given_target(target)
    (scored,) = score(task, [(source, text)])
    return next(task.in_words([source], [[scored]]))


def _why_none(maps: Sequence[AttentionMap], only: str | None) -> str:
    if maps:
        return f"no attention of this model matches {only!r}: it has {', '.join(attention.name for attention in maps)}"
    return "this model has no attention to look at (model.attention is none): train one that attends"


def _tokens_of(task: "TranslationTask", source: str, target: str) -> TokenPair:
    return task.encode([source])[0], task.encode_targets([target])[0]


def replay(
    task: "TranslationTask", pairs: Sequence[tuple[str, str]], only: str = "*", words: bool = True
) -> list[list[AttentionMap]]:
    """For each (source, target) the maps of the attention modules whose name matches `only`."""
    tokens = [_tokens_of(task, source, target) for source, target in pairs]
    return replay_tokens(task, tokens, only, words)


@torch.no_grad()
def replay_tokens(
    task: "TranslationTask", ids: Sequence[TokenPair], only: str = "*", words: bool = True
) -> list[list[AttentionMap]]:
    """The same for tokens."""
    task.model.eval()
    batch = collate(TokenPairs.from_lists(ids), range(len(ids))).to(task.device)
    with record_attention(task.model, _Matching(only)) as recorded:
        encoded = task.model.encode(batch.source, batch.source_lengths)  # type: ignore[operator]
        task.model.read(encoded, batch.target_in)  # type: ignore[operator]
    joined = {name: recorded.joined(name) for name in recorded}
    return [
        [labelled(task, name, weights[row], source, target, words) for name, weights in joined.items()]
        for row, (source, target) in enumerate(ids)
    ]


@dataclass(frozen=True)
class _Matching:
    """The names that match a pattern, also if there are none: `look` says then which ones there are."""

    pattern: str

    def __contains__(self, name: object) -> bool:
        return fnmatchcase(str(name), self.pattern)


def alignment_error(task: "TranslationTask", phrases: Sequence[Phrase], choose_on: Sequence[Phrase]) -> float | None:
    """AER of the attention over the source while writing the reference; the layer that does best on `choose_on` is used."""
    rates = alignment_errors(task, choose_on)
    if not rates:
        return None
    best = min(rates, key=lambda name: rates[name])
    return alignment_errors(task, phrases, only=best).get(best)


def alignment_errors(
    task: "TranslationTask", phrases: Sequence[Phrase], only: str = "decoder.*", batch: int = 64
) -> dict[str, float]:
    """AER by module, heads averaged, of every attention from the target to the source."""
    predicted: dict[str, list[tuple[set[tuple[int, int]], set[tuple[int, int]]]]] = {}
    for start in range(0, len(phrases), batch):
        part = phrases[start : start + batch]
        for phrase, maps in zip(part, replay(task, [(p.source, p.target) for p in part], only), strict=True):
            for attention in maps:
                if (attention.query_title, attention.key_title) == (TRANSLATION, SOURCE) and _has_words_of(
                    phrase, attention
                ):
                    links = hard_alignment(attention.averaged().weights[0, :-1, :-1])  # without the end tokens
                    predicted.setdefault(attention.name, []).append((links, set(phrase.alignment)))
    return {name: corpus_alignment_error_rate(*zip(*links, strict=True)) for name, links in predicted.items()}


def _has_words_of(phrase: Phrase, attention: AttentionMap) -> bool:
    """Whether its words are those of the gold alignment; a character that the vocabulary does not have may hide where one begins."""
    words = len(split_words(phrase.target)), len(split_words(phrase.source))
    return (len(attention.queries) - 1, len(attention.keys) - 1) == words


def labelled(
    task: "TranslationTask", name: str, weights: Tensor, source: list[int], target: list[int], words: bool
) -> AttentionMap:
    """One example's weights (H, Q, K) or (Q, K) without padding, with words along both sides."""
    weights = weights if weights.dim() == 3 else weights[None]
    query, key = sides(task, name, source, target)
    titles = (TRANSLATION, SOURCE) if roles(task.model, name) == ("target", "source") else (None, None)
    own = weights[:, : len(query.ids), : len(key.ids)].cpu().numpy()
    if words:
        merged = merge_words(own, query.groups(), key.groups())
        return AttentionMap(name, merged, Tokens(query.words()), Tokens(key.words()), *titles)
    return AttentionMap(name, own, Tokens(query.pieces()), Tokens(key.pieces()), *titles)


def sides(task: "TranslationTask", name: str, source: list[int], target: list[int]) -> "tuple[Side, Side]":
    """What stands along both sides of an attention, as the model says."""
    own = {
        "source": Side(task.vocabularies.source, [*source, EOS]),
        "target": Side(task.vocabularies.target, [*target, EOS]),
        "target_before": Side(task.vocabularies.target, [BOS, *target]),
    }
    query, key = roles(task.model, name)
    return own[query], own[key]


class Side:
    """One side of a map, as tokens or as words; the special tokens under names for people."""

    def __init__(self, tokenizer: Tokenizer, ids: list[int]):
        self.tokenizer = tokenizer
        self.ids = ids

    def groups(self) -> list[int]:
        return self.tokenizer.word_groups(self.ids)

    def words(self) -> tuple[str, ...]:
        return _named(self.tokenizer.words(self.ids))

    def pieces(self) -> tuple[str, ...]:
        return _named(self.tokenizer.pieces(self.ids))


def _named(labels: Iterable[str]) -> tuple[str, ...]:
    names = {"<eos>": END, "<bos>": BEGIN}
    return tuple(names.get(label, label) for label in labels)
