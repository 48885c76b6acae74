"""A translation taken apart: what else could have stood there, how a weight came about, the search as a tree, attention changed by hand.

The alternatives of a word are whole words also where the model writes pieces: each of the likeliest first pieces is completed greedily up
to the end of its word, and the word's probability is the product of its pieces'.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

import torch
from pydantic import Field
from torch import Tensor

from saccade.config.recipe import Config
from saccade.data.text.pairs import normalise
from saccade.data.text.tokenizer import BOS, EOS, PAD
from saccade.decoding import Hypothesis
from saccade.decoding.constraints import Constraints
from saccade.decoding.greedy import most_probable
from saccade.decoding.search_tree import Branch, SearchTree
from saccade.decoding.walk import walk
from saccade.errors import UserError
from saccade.tasks.task import Example, Json, Question, Stream
from saccade.tasks.translation import what_if as changing
from saccade.tasks.translation.calculation import CalculationFields, calculate
from saccade.tasks.translation.evaluating import score
from saccade.tasks.translation.searching import room, search
from saccade.tasks.words import END, words_of
from saccade.tasks.writing import generate, looks_at

if TYPE_CHECKING:
    from saccade.tasks.translation.task import TranslationTask

_LONGEST_WORD = 12  # pieces of an alternative


class StreamFields(Config):
    prefix: str = Field("", description="words that the translation must begin with")


class AlternativesFields(Config):
    target: str = Field(description="the translation")
    word: int = Field(
        ge=0, le=100_000, description="which word of the target, counted from 0; the one after the last is its end"
    )
    best: int = Field(8, ge=1, le=20, description="how many alternatives")


class SearchFields(Config):
    prefix: str = Field("", description="words that the translation must begin with, such as a branch that was pruned")
    beam: int | None = Field(None, ge=1, le=12, description="how many hypotheses are followed side by side")
    best: int = Field(1, ge=1, le=12, description="how many translations the search is for")
    length_penalty: float | None = Field(None, ge=-5, le=5, description="above 0 favours longer translations")


class TurnFields(Config):
    """While one word is begun, all attention lies on another one."""

    step: int = Field(ge=0, le=100_000, description="which word of the target is begun, counted from 0")
    onto: int = Field(ge=0, le=100_000, description="which word of the text is looked at, counted from 0")
    map: str | None = Field(
        None, max_length=200, description="one attention to the source by its name; all unless given"
    )
    head: int | None = Field(None, ge=0, le=1000, description="one head; all unless given")


class CutFields(Config):
    """One head passes nothing on."""

    map: str = Field(max_length=200, description="the name of an attention module, as /api/look gives it")
    head: int = Field(ge=0, le=1000, description="which head")


class WhatIfFields(Config):
    target: str | None = Field(None, description="the translation to start from; the model's own unless given")
    words: bool = Field(True, description="whether steps count words or the model's own tokens")
    interventions: list[TurnFields | CutFields] = Field(
        max_length=50, description="in the order in which they were made; the words before the last one's step stay"
    )


def questions(task: "TranslationTask") -> list[Question[str]]:
    """Without attention there is no weight to calculate or to change."""
    names = looks_at(task.model, "target", "source")
    return [*_of_the_search(task), *(_of_attention(task, names[0]) if names else ())]


def _of_the_search(task: "TranslationTask") -> list[Question[str]]:
    return [
        Question(
            "alternatives",
            "What else could have stood in the place of a word",
            AlternativesFields,
            lambda example, fields: alternatives(task, example.content, fields),
            {"target": "", "word": 0},
        ),
        Question(
            "search",
            "The beam search behind a translation, as a tree",
            SearchFields,
            lambda example, fields: search_tree(task, example.content, fields),
        ),
    ]


def _of_attention(task: "TranslationTask", name: str) -> list[Question[str]]:
    return [
        Question(
            "calculation",
            "How one attention weight came about",
            CalculationFields,
            lambda example, fields: calculate(task, example.content, fields),
            {"target": "", "map": name, "query": 0, "key": 0},
        ),
        Question(
            "what-if",
            "The translation if the model had looked elsewhere, or lost a head",
            WhatIfFields,
            lambda example, fields: what_if(task, example.content, fields),
            {"interventions": [{"step": 0, "onto": 0}]},
        ),
    ]


def stream(task: "TranslationTask") -> Stream[str]:
    def told(example: Example[str], fields: StreamFields, tell: Callable[[Json], None]) -> None:
        write(task, example.content, fields.prefix, tell)

    return Stream("Translate greedily, word by word: a line of JSON for each", StreamFields, told)


@torch.no_grad()
def write(task: "TranslationTask", text: str, prefix: str, tell: Callable[[Json], None]) -> None:
    """Greedy, and every word told as soon as it is written."""
    writes = task.vocabularies.target
    (source,) = task.encode([text])
    if not source:
        tell({"done": True, "text": "", "log_prob": 0.0, "finished": True})
        return
    forced = task.encode_targets([prefix], known=True)[0]
    task.model.eval()
    memory = task.encoded([source])[0]
    so_far: list[int] = []

    def choose(log_probs: Tensor, rows: Tensor, position: int) -> Tensor:
        token = most_probable(log_probs, PAD)
        if position < len(forced):
            token = torch.full_like(token, forced[position])
        if int(token) != EOS:
            so_far.append(int(token))
            tell({"text": writes.decode(so_far).strip(), "probability": float(log_probs[0, token[0]].exp())})
        return token

    begin = torch.tensor([BOS], device=task.device)
    limit = max(room(task, source), len(forced))
    (hypothesis,) = walk(task.stepper, memory, begin, choose, Constraints.of(begin, EOS, PAD, limit, None))
    written = writes.decode(hypothesis.tokens).strip()
    tell({"done": True, "text": written, "log_prob": hypothesis.log_prob, "finished": hypothesis.finished})


@torch.no_grad()
def alternatives(task: "TranslationTask", text: str, fields: AlternativesFields) -> Json:
    """The likeliest words in the place of one word of the target, given the words before it."""
    (source,) = task.encode([text])
    target = task.given_target(fields.target)[1]
    groups = task.vocabularies.target.word_groups([*target, EOS])
    if not source or fields.word > groups[-1]:
        raise UserError(
            f"word {fields.word} was asked for, and there are {groups[-1] + 1}: count from 0, the end included"
        )
    before = target[: groups.index(fields.word)]
    task.model.eval()
    memory = task.encoded([source])[0]
    readouts, _ = task.stepper.read(memory, torch.tensor([[BOS, *before]], device=task.device))
    log_probs = task.output(readouts[0, -1]).double().log_softmax(-1)
    values, tokens = log_probs.topk(min(fields.best + 4, len(log_probs)))
    likeliest = zip(tokens.tolist(), values.tolist(), strict=True)
    firsts = [(token, value) for token, value in likeliest if token not in (PAD, BOS)]
    words = list(_completed(task, source, before, firsts[: fields.best]))
    words.sort(key=lambda word: -float(word["probability"]))
    return {"word": fields.word, "alternatives": words}


def _completed(
    task: "TranslationTask", source: list[int], before: list[int], firsts: Sequence[tuple[int, float]]
) -> Iterator[Json]:
    going = [token for token, _ in firsts if token != EOS]
    if going:
        memory = task.encoded([source] * len(going))[0]
        config = task.recipe.decode.with_changes({"search": "greedy", "max_length": len(before) + _LONGEST_WORD})
        limit = torch.full((len(going),), len(before) + _LONGEST_WORD, device=task.device)
        for (hypothesis,) in generate(task.stepper, memory, limit, config, [[*before, token] for token in going]):
            yield _alternative(task, hypothesis, len(before))
    for token, value in firsts:
        if token == EOS:
            yield {"text": END, "probability": math.exp(value), "prefix": None}


def _alternative(task: "TranslationTask", hypothesis: Hypothesis, start: int) -> Json:
    writes = task.vocabularies.target
    groups = writes.word_groups(hypothesis.tokens)
    stop = start + 1
    while stop < len(groups) and groups[stop] == groups[start]:
        stop += 1
    assert hypothesis.token_log_probs is not None
    probability = math.exp(sum(hypothesis.token_log_probs[start:stop]))
    text = writes.decode(hypothesis.tokens[start:stop]).strip()
    return {"text": text, "probability": probability, "prefix": _prefix_of(task, hypothesis.tokens[:stop])}


def _prefix_of(task: "TranslationTask", tokens: list[int]) -> str | None:
    """The text by which these tokens can be forced; None where that text is read as other tokens."""
    writes = task.vocabularies.target
    text = writes.decode(tokens).strip()
    return text if writes.encode(normalise(text)) == tokens else None


def search_tree(task: "TranslationTask", text: str, fields: SearchFields) -> Json:
    """All that a beam search considered, each branch after the one it continues."""
    (source,) = task.encode([text])
    if not source:
        raise UserError("an empty sentence was given: there is nothing to search for; give some words")
    settings = {name: value for name, value in asdict_of(fields, "beam", "length_penalty").items() if value is not None}
    config = task.recipe.decode.with_changes({"search": "beam", "best": fields.best, **settings})
    tree = SearchTree()
    search(task, source, config, task.encode_targets([fields.prefix], known=True)[0], tree)
    _, *branches = tree.roots[0].everything()
    numbers = {id(branch): number for number, branch in enumerate(branches)}
    return {
        "source": text,
        "beam": max(config.beam, config.best),
        "nodes": [_node(task, branch, numbers.get(id(branch.parent))) for branch in branches],
    }


def asdict_of(fields: Config, *names: str) -> dict[str, Any]:
    return {name: getattr(fields, name) for name in names}


def _node(task: "TranslationTask", branch: Branch, parent: int | None) -> Json:
    tokens = branch.tokens
    ends = tokens[-1] == EOS
    return {
        "parent": parent,
        "piece": END if ends else task.vocabularies.target.pieces(tokens)[-1],
        "prefix": None if ends else _prefix_of(task, tokens),
        "log_prob": round(branch.log_prob, 5),
        "total": round(branch.total, 5),
        "score": round(branch.score, 5),
        "step": branch.step,
        "fate": branch.fate,
        "until": branch.until,
        "rank": branch.rank,
    }


def what_if(task: "TranslationTask", text: str, fields: WhatIfFields) -> Json:
    """The translation before and after, every word of both marked if the other has no such word there, and the weights after."""
    (source,) = task.encode([text])
    if not source:
        raise UserError("an empty sentence was given: there is nothing to look at; give some words")
    own = task.translate([text])[0].text if fields.target is None else fields.target
    before_text, target = task.given_target(own)
    interventions = [_intervention(task, asked, source, target, fields.words) for asked in fields.interventions]
    outcome = changing.what_if(task, source, target, interventions, fields.words)
    (scored,) = score(task, [(text, before_text)])
    writes = task.vocabularies.target
    before, after = (
        [asdict(word) for word in words_of(writes, hypothesis)] for hypothesis in (scored, outcome.hypothesis)
    )
    _mark_changes(before, after)
    return {
        "source": text,
        "before": {"text": before_text, "log_prob": scored.log_prob, "words": before},
        "after": {
            "text": writes.decode(outcome.hypothesis.tokens).strip(),
            "log_prob": outcome.hypothesis.log_prob,
            "finished": outcome.hypothesis.finished,
            "words": after,
        },
        "maps": [attention.to_dict(digits=5) for attention in outcome.maps],
    }


def _intervention(
    task: "TranslationTask", fields: TurnFields | CutFields, source: Sequence[int], target: Sequence[int], words: bool
) -> changing.Intervention:
    """As tokens. A word is turned where its first token is written: nobody knows yet whether others will follow."""
    if isinstance(fields, CutFields):
        return changing.Cut(fields.map, fields.head)
    if not words:
        return changing.Turn(fields.step, (fields.onto,), fields.map, fields.head)
    steps = task.vocabularies.target.word_groups([*target, EOS])
    keys = task.vocabularies.source.word_groups([*source, EOS])
    for what, number, groups in (("step", fields.step, steps), ("onto", fields.onto, keys)):
        if number > groups[-1]:
            raise UserError(
                f"`{what}` is {number}, and there are {groups[-1] + 1} words, the end included: count from 0"
            )
    looked_at = tuple(place for place, group in enumerate(keys) if group == fields.onto)
    return changing.Turn(steps.index(fields.step), looked_at, fields.map, fields.head)


def _mark_changes(before: list[Json], after: list[Json]) -> None:
    old, new = ([word["text"] for word in words] for words in (before, after))
    for word in (*before, *after):
        word["changed"] = True
    for match in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
        for word in (*before[match.a : match.a + match.size], *after[match.b : match.b + match.size]):
            word["changed"] = False
