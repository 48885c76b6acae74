"""A translation run taken apart: the search behind a translation as a tree, and translations with the attention changed by hand."""

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

from saccade.data.text.tokenizer import EOS
from saccade.decoding.search_tree import Branch, SearchTree
from saccade.errors import UserError
from saccade.serve.messages import Cut, SearchQuestion, Turn, WhatIfQuestion
from saccade.serve.served import word_probabilities
from saccade.serve.translations import TextRun
from saccade.tasks.translation import searching
from saccade.tasks.translation import what_if as changing
from saccade.tasks.translation.look import END


def search(run: TextRun, question: SearchQuestion) -> dict[str, Any]:
    """All that a beam search considered, each branch after the one it goes on from."""
    (source,) = run.task.encode([question.text])
    if not source:
        raise UserError("an empty sentence was given: there is nothing to search for; give some words")
    given = {
        name: getattr(question, name) for name in ("beam", "length_penalty") if getattr(question, name) is not None
    }
    config = run.task.recipe.decode.with_changes({"search": "beam", "best": question.best, **given})
    tree = SearchTree()
    searching.search(run.task, source, config, run.beginning(question.prefix), tree)
    _, *branches = tree.roots[0].everything()
    numbers = {id(branch): number for number, branch in enumerate(branches)}
    return {
        "run": run.name,
        "source": question.text,
        "beam": max(config.beam, config.best),
        "nodes": [_node(run, branch, numbers.get(id(branch.parent))) for branch in branches],
    }


def _node(run: TextRun, branch: Branch, parent: int | None) -> dict[str, Any]:
    tokens = branch.tokens
    ends = tokens[-1] == EOS
    return {
        "parent": parent,
        "piece": END if ends else run.writes.pieces(tokens)[-1],
        "prefix": None if ends else run.prefix_of(tokens),
        "log_prob": round(branch.log_prob, 5),
        "total": round(branch.total, 5),
        "score": round(branch.score, 5),
        "step": branch.step,
        "fate": branch.fate,
        "until": branch.until,
        "rank": branch.rank,
    }


def what_if(run: TextRun, question: WhatIfQuestion) -> dict[str, Any]:
    """The translation before and after, every word of both marked if the other has no such word there, and the weights after."""
    task = run.task
    (source,) = task.encode([question.text])
    if not source:
        raise UserError("an empty sentence was given: there is nothing to look at; give some words")
    own = task.predict([question.text])[0].text if question.target is None else question.target
    text, target = run.target(own)
    interventions = [_intervention(run, each, source, target, question.words) for each in question.interventions]
    outcome = changing.what_if(task, source, target, interventions, question.words)
    (scored,) = task.score([(question.text, text)])
    before, after = (word_probabilities(run.writes, each) for each in (scored, outcome.hypothesis))
    _mark(before, after)
    return {
        "run": run.name,
        "source": question.text,
        "before": {"text": text, "log_prob": scored.log_prob, "words": before},
        "after": {
            "text": run.writes.decode(outcome.hypothesis.tokens).strip(),
            "log_prob": outcome.hypothesis.log_prob,
            "finished": outcome.hypothesis.finished,
            "words": after,
        },
        "maps": run.shown(outcome.maps),
    }


def _intervention(
    run: TextRun, given: Turn | Cut, source: Sequence[int], target: Sequence[int], words: bool
) -> changing.Intervention:
    """As tokens. A word is turned where its first token is written: nobody knows yet whether others will follow."""
    if isinstance(given, Cut):
        return changing.Cut(given.map, given.head)
    if not words:
        return changing.Turn(given.step, (given.onto,), given.map, given.head)
    steps = run.writes.word_groups([*target, EOS])
    keys = run.task.vocabularies.source.word_groups([*source, EOS])
    for what, number, groups in (("step", given.step, steps), ("onto", given.onto, keys)):
        if number > groups[-1]:
            raise UserError(
                f"`{what}` is {number}, and there are {groups[-1] + 1} words, the end included: count from 0"
            )
    looked_at = tuple(place for place, group in enumerate(keys) if group == given.onto)
    return changing.Turn(steps.index(given.step), looked_at, given.map, given.head)


def _mark(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> None:
    old, new = ([word["text"] for word in words] for words in (before, after))
    for word in (*before, *after):
        word["changed"] = True
    for match in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
        for word in (*before[match.a : match.a + match.size], *after[match.b : match.b + match.size]):
            word["changed"] = False
