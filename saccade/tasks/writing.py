"""What tasks that write words share: the `decode` section of a recipe, the options of a search, the search itself, and what it wrote."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, ValidationError, model_validator
from torch import Tensor, nn

from saccade.attention import Attend, record_attention
from saccade.config.errors import Sources, sentences, together
from saccade.config.options import Options, option
from saccade.config.recipe import Config
from saccade.data.text.tokenizer import BOS, EOS, PAD
from saccade.decoding import BeamConfig, Hypothesis, Prefix, SamplingConfig, beam_search, greedy_search, sample
from saccade.errors import UserError
from saccade.layers.decoder_steps import Prepared, weights_stay
from saccade.views.axes import Axis, Tokens
from saccade.views.view import Word

_SORTED = 1024  # rows at a time; with a fourth of them batches of 32 hold a tenth more padding


class DecodeConfig(Config):
    search: Literal["greedy", "beam", "sample"] = "beam"
    beam: int = Field(5, ge=1, le=1000)
    length_penalty: float = Field(1.0, ge=-10, le=10, description="beam: above 0 favours longer outputs")
    coverage_penalty: float = Field(
        0.0, ge=0, le=100, description="beam: above 0 favours outputs that looked at all the source"
    )
    best: int = Field(1, ge=1, le=1000, description="how many outputs to give; greedy search has one")
    temperature: float = Field(1.0, ge=0.001, le=1000)
    top_k: int | None = Field(None, ge=1)
    top_p: float = Field(1.0, gt=0, le=1)
    seed: int = 1
    batch_size: int = Field(32, ge=1, description="inputs worked on at a time; changes the speed, never the output")
    max_length: int = Field(
        200, ge=1, description="an output has at most this many tokens, and at most twice the source's plus 20"
    )
    valid_sentences: int = Field(500, ge=1, description="sentences written at each validation, greedily")

    @model_validator(mode="after")
    def _greedy_has_one(self) -> "DecodeConfig":
        if self.search == "greedy" and self.best > 1:
            raise ValueError(f"{self.best} outputs are wanted and greedy search has one: use beam search or sampling")
        return self

    def with_changes(self, changes: dict[str, Any]) -> "DecodeConfig":
        kept = self.model_dump()
        if changes.get("search") == "greedy":
            kept["best"] = 1  # a recipe's own number is for its own search
        try:
            return DecodeConfig.model_validate({**kept, **changes})
        except ValidationError as error:
            problems = sentences(error, DecodeConfig, changes, Sources({(): "given for this search"}))
            # what concerns no single setting is the search's, not a recipe's
            raise UserError(together(problems, "the search").removeprefix("recipe (given for this search): ")) from None


class SearchOptions(Options):
    """Options of a search; what is not given is as in the recipe's `decode` section."""

    search: Literal["greedy", "beam", "sample"] | None = option(
        None, "predict evaluate", "how to search; as the recipe says unless given"
    )
    beam: int | None = option(None, "predict evaluate", "width of the beam", ge=1, le=1000, most_served=20)
    best: int = option(1, "predict", "how many answers, a line each, for each input", ge=1, le=1000, most_served=20)
    length_penalty: float | None = option(
        None, "predict evaluate", "beam: above 0 favours longer outputs", ge=-10, le=10, most_served=5
    )
    coverage_penalty: float | None = option(
        None, "predict evaluate", "beam: above 0 favours outputs that looked at all of the source", ge=0, le=100
    )
    temperature: float | None = option(
        None, "predict", "sampling: below 1 more deterministic, above 1 more random", ge=0.001, le=1000
    )
    top_k: int | None = option(None, "predict", "sampling: from the k likeliest words only", ge=1)
    top_p: float | None = option(None, "predict", "sampling: from the likeliest words that hold this share", gt=0, le=1)
    seed: int | None = option(None, "predict", "sampling: another seed, other samples", ge=0, lt=2**63)
    prefix: str = option("", "predict", "how every answer must begin")

    @model_validator(mode="after")
    def _one_kind_of_search(self) -> "SearchOptions":
        search: str | None = self.search
        reason = f"search is {self.search}"
        for kind, names in _OF_A_SEARCH.items():
            for name in names:
                if getattr(self, name) is None:
                    continue
                if search not in (None, kind):
                    raise ValueError(f"{name} is for search {kind} and {reason}: leave one of them out")
                search, reason = kind, f"{name} is for {kind}"
        if search == "greedy" and self.best > 1:
            raise ValueError(f"best is {self.best} and greedy search has one answer: leave best or search=greedy out")
        return self

    @property
    def may_share_a_batch(self) -> bool:
        """A sample depends on its place in the batch."""
        return self.kind != "sample"

    @property
    def kind(self) -> str | None:
        """The search that was asked for, by its name or by a setting that only it has."""
        asked = (kind for kind, names in _OF_A_SEARCH.items() if any(getattr(self, name) is not None for name in names))
        return self.search or next(asked, None)

    def decode(self, recipe: DecodeConfig) -> DecodeConfig:
        """The recipe's settings with what was chosen in their place."""
        names = ("beam", "length_penalty", "coverage_penalty", "temperature", "top_k", "top_p", "seed")
        settings = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if self.kind is not None:
            settings["search"] = self.kind
        return recipe.with_changes({**settings, "best": self.best})


_OF_A_SEARCH = {
    "beam": ("beam", "length_penalty", "coverage_penalty"),
    "sample": ("temperature", "top_k", "top_p", "seed"),
}


@dataclass(frozen=True)
class Written:
    """What a model wrote for one input, best hypothesis first."""

    called: ClassVar[str]  # the hypotheses, in JSON

    source: str
    text: str
    hypotheses: list[Hypothesis]
    alternatives: list[str]
    words: list[tuple[Word, ...]] = field(default_factory=list)  # of each hypothesis, with their probabilities
    wanted: int = 1  # lines to print: as many for each input, so that they can be told apart

    def lines(self) -> list[str]:
        """Best first."""
        texts = [self.text, *self.alternatives]
        return texts + [""] * (self.wanted - len(texts))

    def to_dict(self) -> dict[str, Any]:
        outputs = [
            {"text": text, "score": hypothesis.score, "log_prob": hypothesis.log_prob, "finished": hypothesis.finished}
            for text, hypothesis in zip([self.text, *self.alternatives], self.hypotheses, strict=True)
        ]
        for output, words in zip(outputs, self.words, strict=False):
            output["words"] = [{"text": word.text, "probability": word.probability} for word in words]
        return {"source": self.source, self.called: outputs}


_ROLES: dict[str, Axis] = {role: Tokens((role,)) for role in ("source", "cells", "target", "target_before")}


def roles(model: Any, name: str) -> tuple[str, str]:
    """What stands along both sides of an attention, by the name of the axis ("target", "source"), as the model says."""
    queries, keys = model.attention_axes(name, _ROLES)
    return queries.labels[0], keys.labels[0]


def looks_at(model: Any, queries: str, keys: str) -> list[str]:
    """The attention modules that look from one axis of the model at another ("target" at "source"), by what the model says of them."""
    names = [name for name, module in model.named_modules() if isinstance(module, Attend)]
    return [name for name in names if roles(model, name) == (queries, keys)]


def generate(
    model: Any,
    memory: Any,
    longest: Tensor,
    config: DecodeConfig,
    forced: list[list[int]] | None = None,
    numbers: list[int] | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses for each row of `memory` (what the model encoded), none longer than `longest` (B,).

    `forced` holds the tokens each must begin with. `numbers` names the rows, so that a sample belongs to its input whatever the batch.
    """
    begin = torch.full((len(longest),), BOS, device=longest.device)
    common: dict[str, Any] = {"eos": EOS, "pad": PAD, "max_length": longest.clamp(max=config.max_length)}
    if forced is not None:
        common["prefix"] = as_prefix(forced)
    if config.search == "greedy":
        return [[hypothesis] for hypothesis in greedy_search(model, memory, begin, **common)]
    if config.search == "sample":
        sampling = SamplingConfig(config.best, config.temperature, config.top_k, config.top_p)
        order = None if numbers is None else torch.tensor(numbers)
        return sample(model, memory, begin, sampling, seed=config.seed, numbers=order, **common)
    beam = BeamConfig(
        max(config.beam, config.best), config.best, config.length_penalty, coverage_penalty=config.coverage_penalty
    )
    stepper = CoverageStepper(model) if config.coverage_penalty else model
    return beam_search(stepper, memory, begin, beam, **common)


def found_in_order(
    lengths: Sequence[int], batch: int, search: Callable[[list[int]], list[list[Hypothesis]]]
) -> Iterator[list[Hypothesis] | None]:
    """What `search` finds for each row, in order and some at a time; None for a row of length 0, which it is not asked about.

    It gets the rows of a batch, whose lengths are nearly equal: more and more rows at a time are sorted, so that the first come soon and
    little is padded.
    """
    rest, at_a_time = range(len(lengths)), 8 * batch
    while rest:
        prepared: Prepared = {}  # not longer: whoever takes the answers may train the model in between
        part, rest = rest[:at_a_time], rest[at_a_time:]
        at_a_time = max(at_a_time, min(2 * at_a_time, _SORTED))
        order = sorted((row for row in part if lengths[row]), key=lambda row: lengths[row])
        outputs: dict[int, list[Hypothesis]] = {}
        for start in range(0, len(order), batch):
            rows = order[start : start + batch]
            with weights_stay(prepared) if len(lengths) > batch else nullcontext():
                outputs.update(zip(rows, search(rows), strict=True))
        yield from (outputs.get(row) for row in part)


def as_prefix(rows: list[list[int]]) -> Prefix:
    longest = max(map(len, rows), default=0)
    tokens = torch.tensor([row + [PAD] * (longest - len(row)) for row in rows], dtype=torch.long)
    return Prefix(tokens.view(len(rows), longest), torch.tensor([len(row) for row in rows]))


@dataclass(frozen=True)
class Covered:
    state: Any
    coverage: Tensor  # (B, S)


class CoverageStepper:
    """A model's steps, watched: what each source position has been attended to so far, averaged over heads and layers.

    Only a search that asks for a coverage penalty pays for the watching.
    """

    def __init__(self, model: nn.Module):
        self.model: Any = model
        self.over_source = [*looks_at(model, "target", "source"), *looks_at(model, "target", "cells")]
        if not self.over_source:
            raise UserError(
                "this model has no attention, so nothing is covered: set decode.coverage_penalty to 0, or train one that attends"
            )

    def start(self, memory: Any) -> Covered:
        padded = (~memory.visible).squeeze(1).float()  # nothing is missed where there is nothing
        return Covered(self.model.start(memory), padded)

    def step(self, token: Tensor, state: Covered) -> tuple[Tensor, Covered]:
        with record_attention(self.model, self.over_source) as recorded:
            logits, after = self.model.step(token, state.state)
        looked = [_rows(calls[-1]) for calls in recorded.values()]
        return logits, Covered(after, state.coverage + torch.stack(looked).mean(0))

    def select(self, state: Covered, rows: Tensor) -> Covered:
        return Covered(self.model.select(state.state, rows), state.coverage[rows])

    def coverage(self, state: Covered) -> Tensor:
        return state.coverage


def _rows(weights: Tensor) -> Tensor:
    """Weights of one query of each hypothesis, (B, W, S) or (B, H, W, S), as (B · W, S)."""
    return (weights if weights.dim() == 3 else weights.mean(1)).flatten(0, 1)
