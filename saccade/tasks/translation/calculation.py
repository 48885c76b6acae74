"""One attention weight, from the query and the key to the weighted sum of the values, with a model's own numbers.

    e_k = score(query, key_k)        a = select(e)        context = Σ_k a_k value_k

The sentence is replayed while the attention in question computes explicitly, and its score and its selection are listened to. Nothing is
computed a second way: what is shown is what the model used.

Axis legend: H heads, Q queries, K keys, D features, A hidden size of a score.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from pydantic import Field
from torch import Tensor

from saccade.attention import Attend, MultiHead, Route, Score, Soft
from saccade.attention.scores import DotProductScore, HiddenLayerScore
from saccade.config.recipe import Config
from saccade.data.text.batching import collate
from saccade.data.text.shards import TokenPairs
from saccade.errors import UserError
from saccade.tasks.translation.look import replay_tokens, sides

if TYPE_CHECKING:
    from saccade.tasks.translation.task import TranslationTask


class CalculationFields(Config):
    target: str = Field(description="the translation")
    map: str = Field(max_length=200, description="the name of an attention module, as /api/look gives it")
    head: int = Field(0, ge=0, le=1000, description="which head")
    query: int = Field(ge=0, le=100_000, description="which word or token looks")
    key: int = Field(ge=0, le=100_000, description="which one is looked at")
    words: bool = Field(True, description="whether query and key count words or the model's own tokens")


@dataclass
class Heard:
    """What went in and out of a score and a selection, a call after another. The first axis, the batch of one, is gone."""

    queries: list[Tensor] = field(default_factory=list)  # each (H, Q, D)
    prepared: list[Tensor] = field(default_factory=list)  # each (H, K, as the score prepared it)
    raw: list[Tensor] = field(default_factory=list)  # each (H, Q, K): scores
    biased: list[Tensor] = field(default_factory=list)  # each (H, Q, K): scores as the selection got them
    hidden: list[Tensor] = field(default_factory=list)  # each (H, Q, K): what may not be looked at
    weights: list[Tensor] = field(default_factory=list)  # each (H, Q, K)
    values: list[Tensor] = field(default_factory=list)  # each (K, H · D), where the module projects its values

    def score(self, module: Any, inputs: tuple[Tensor, ...], scores: Tensor) -> None:
        self.queries.append(_heads_first(inputs[0]))
        self.prepared.append(_heads_first(inputs[1]))
        self.raw.append(_heads_first(scores))

    def selection(self, module: Any, inputs: tuple[Any, ...], alignment: Any) -> None:
        scores, visible = inputs[0], inputs[1]
        looked_at = torch.ones_like(scores, dtype=torch.bool) if visible is None else visible.expand(scores.shape)
        self.biased.append(_heads_first(scores))
        self.hidden.append(~_heads_first(looked_at))
        self.weights.append(_heads_first(alignment.weights))

    def value(self, module: Any, inputs: tuple[Tensor, ...], projected: Tensor) -> None:
        self.values.append(projected[0])


def calculate(task: "TranslationTask", text: str, fields: CalculationFields) -> dict[str, Any]:
    """One weight. Of words, the pair of pieces with the largest weight between them."""
    (source,) = task.encode([text])
    target = task.given_target(fields.target)[1]
    maps = {attention.name: attention for attention in replay_tokens(task, [(source, target)], words=False)[0]}
    if fields.map not in maps:
        raise UserError(f"this model has no attention called {fields.map!r}: /api/look names them")
    attention = maps[fields.map]
    if fields.head >= attention.heads:
        raise UserError(f"head {fields.head} was asked for, and there are {attention.heads}: count from 0")
    query, key = fields.query, fields.key
    query_side, key_side = sides(task, fields.map, source, target)
    query_groups, key_groups = query_side.groups(), key_side.groups()
    if fields.words:
        for what, number, groups in (("query", query, query_groups), ("key", key, key_groups)):
            if number > groups[-1]:
                raise UserError(f"{what} {number} was asked for, and there are {groups[-1] + 1}: count from 0")
        pairs = [(q, k) for q, g in enumerate(query_groups) if g == query for k, h in enumerate(key_groups) if h == key]
        query, key = max(pairs, key=lambda pair: float(attention.weights[fields.head][pair]))
    return {
        **calculation(task, source, target, fields.map, fields.head, query, key),
        "queries": list(attention.queries.labels),
        "keys": list(attention.keys.labels),
        "query_groups": query_groups,
        "key_groups": key_groups,
    }


@torch.no_grad()
def calculation(
    task: "TranslationTask", source: list[int], target: list[int], name: str, head: int, query: int, key: int
) -> dict[str, Any]:
    """How token `query` came to look at token `key`: vectors, score, softmax over the row, share in the context."""
    module = dict(task.model.named_modules()).get(name)
    if not isinstance(module, Attend):
        names = [module_name for module_name, part in task.model.named_modules() if isinstance(part, Attend)]
        raise UserError(f"this model has no attention called {name!r}: it has {', '.join(names) or 'none'}")
    batch = collate(TokenPairs.from_lists([(source, target)]), [0]).to(task.device)
    task.model.eval()
    with _listening(module) as heard:
        encoded = task.stepper.encode(batch.source, batch.source_lengths)
        task.stepper.read(encoded, batch.target_in)
    heads, keys = heard.raw[0].shape[0], heard.raw[-1].shape[-1]
    queries = sum(call.shape[1] for call in heard.raw)
    for what, number, count in (("head", head, heads), ("query", query, queries), ("key", key, keys)):
        if number >= count:
            raise UserError(f"{what} {number} was asked for and there are {count}: count from 0 to {count - 1}")
    call, row = _place(heard, query)
    values = _values(module, heard, encoded)[head]  # (K, D)
    weights = heard.weights[call][head, row]
    score = {
        "name": module.score.name,
        "equation": _equation(module.score),
        **_score_terms(module, heard.queries[call], heard.prepared[call], head, row, key),
        "value": float(heard.raw[call][head, row, key]),
        "bias": float(heard.biased[call][head, row, key] - heard.raw[call][head, row, key]),
    }
    return {
        "map": name,
        "head": head,
        "query": query,
        "key": key,
        "score": score,
        "selection": module.selection.name,
        "normalised": isinstance(module.selection, Soft),
        "scores": _numbers(heard.biased[call][head, row]),
        "visible": (~heard.hidden[call][head, row]).tolist(),
        "weights": _numbers(weights),
        "weight": float(weights[key]),
        "value": _numbers(values[key]),
        "context": _numbers(weights @ values),  # (K,) @ (K, D) -> (D,)
    }


@contextmanager
def _listening(module: Attend) -> Iterator[Heard]:
    heard, route = Heard(), module.route
    ears = [
        module.score.register_forward_hook(heard.score),
        module.selection.register_forward_hook(heard.selection),
    ]
    if isinstance(module, MultiHead):
        ears.append(module.value.register_forward_hook(heard.value))
    module.route = Route.EXPLICIT  # the only one that has all scores at hand
    try:
        yield heard
    finally:
        module.route = route
        for ear in ears:
            ear.remove()


def _place(heard: Heard, query: int) -> tuple[int, int]:
    """A recurrent decoder asks once per step, a Transformer for all steps at once: which call, and which row of it."""
    for call, scores in enumerate(heard.raw):
        if query < scores.shape[1]:
            return call, query
        query -= scores.shape[1]
    raise AssertionError("the query was checked before")


def _values(module: Attend, heard: Heard, encoded: Any) -> Tensor:
    if isinstance(module, MultiHead):
        projected = heard.values[-1]  # (K, H · D)
        return projected.view(len(projected), module.heads, -1).transpose(0, 1)  # (H, K, D)
    annotations: Tensor = encoded.annotations  # (1, K, D): one head, whose values are the annotations themselves
    return annotations


def _score_terms(module: Attend, queries: Tensor, prepared: Tensor, head: int, row: int, key: int) -> dict[str, Any]:
    """The vectors whose products add up to the score, under the names of the equation."""
    score = module.score
    query, known = queries[head, row], prepared[head, key] if prepared.shape[0] > 1 else prepared[0, key]
    if isinstance(score, DotProductScore):
        left = score.project_query(queries)[head, row]
        return {
            "kind": "product",
            "scale": float(score.scale),
            "left": _numbers(left),
            "right": _numbers(known),
            "sum": float(left @ known),
        }
    if isinstance(score, HiddenLayerScore):
        projected = score.project_query(queries if score.heads else queries[0])
        hidden = torch.tanh((projected[head] if score.heads else projected)[row] + known)  # (A,)
        v = (score.v[head] if score.heads else score.v).squeeze(-1)
        return {
            "kind": "product",
            "scale": 1.0,
            "left": _numbers(v),
            "right": _numbers(hidden),
            "sum": float(v @ hidden),
        }
    return {"kind": "other", "scale": 1.0, "left": _numbers(query), "right": _numbers(known), "sum": None}


def _equation(score: Score) -> str:
    """The equation that a score's description begins with, without what is said about it."""
    return re.split(r": |\. |, (?=[a-z]{3})|\n|$", score.__doc__ or score.name)[0]


def _heads_first(tensor: Tensor) -> Tensor:
    """(1, H, ...) or, without heads, (1, ...) -> (H, ...)"""
    return tensor[0] if tensor.dim() == 4 else tensor


def _numbers(tensor: Tensor) -> list[float]:
    return [round(value, 6) for value in tensor.double().tolist()]
